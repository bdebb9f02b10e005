/* See cookie.h. */
#include "cookie.h"
#include "machine.h"

#define INDEX_SHIFT 29 /* of the MSS, in a first number */
#define BITS 63u       /* of a timestamp that say what was agreed */
#define BITS_SCALE 15u /* 15: windows are not scaled */
#define BITS_SACK 16u
#define BITS_ECN 32u
#define ECN (CL_TCPF_ECE | CL_TCPF_CWR)
#define RENEW_NS 1000000000ull

/* What peers name, rounded down: without a link of its own kind, by tunnels, of Ethernet, of large frames. */
static const uint16_t mss_of[] = {CL_TCP_MSS_LEAST, CL_TCP_MSS_DEFAULT, 1220, 1360, 1400, 1440, 1460, 8960};

static uint32_t index_of(const struct cl_tcp_options *o)
{
    uint32_t i = sizeof mss_of / sizeof *mss_of - 1, mss = o->has & CL_TCPO_MSS ? o->mss : CL_TCP_MSS_DEFAULT;
    while (i && mss_of[i] > mss)
        i--;
    return i;
}

/* The first number of ours. No other hash under this secret has these lengths in its last byte. */
static uint32_t number(const struct cl_tcp_stack *stack, const struct cl_flow_key *key, uint32_t peers, uint32_t index,
                       uint64_t period)
{
    uint64_t first = (uint64_t)key->peer_be << 32 | key->own_be;
    uint64_t ports = (uint64_t)key->peer_port_be << 16 | key->own_port_be;
    uint64_t ends = cl_sip_two(&stack->secret, first, ports | 13ull << 56);
    uint64_t rest = (uint64_t)peers | (uint64_t)index << 32 | (period & 0xffff) << 40;
    return index << INDEX_SHIFT | (uint32_t)(cl_sip_two(&stack->secret, ends, rest | 15ull << 56) >> 35);
}

static uint32_t bits_of(const struct cl_tcp_segment *syn)
{
    const struct cl_tcp_options *o = &syn->options;
    return (o->has & CL_TCPO_WSCALE ? o->wscale : BITS_SCALE) | (o->has & CL_TCPO_SACK_OK ? BITS_SACK : 0) |
           ((syn->flags & ECN) == ECN ? BITS_ECN : 0);
}

/* The latest time up to now that ends in these bits. */
static uint32_t time_with(uint32_t now, uint32_t bits)
{
    uint32_t at = (now & ~BITS) | bits;
    return (int32_t)(at - now) > 0 ? at - BITS - 1 : at;
}

void cl_tcp_cookie_answer(struct cl_tcp_turn *turn, const struct cl_tcp_listener *l, const struct cl_flow_key *key,
                          const struct cl_tcp_segment *syn, struct cl_tcp_segment *answer)
{
    struct cl_tcp_conn c; /* as if there were one */
    struct cl_tcp_segment said = *syn;
    uint64_t until_ns = turn->now_ns + CL_TCP_COOKIE_NS;
    if (!(said.options.has & l->settings->options & CL_TCPO_TIMES)) {
        said.options.has &= CL_TCPO_MSS;
        said.flags &= (uint8_t)~ECN;
    }
    cl_tcp_init(&c, turn, key, l->settings);
    c.state = CL_TCP_LISTEN;
    cl_tcp_listen_input(&c, &said);
    uint64_t period = turn->now_ns >> CL_TCP_COOKIE_PERIOD_BITS;
    c.una = number(turn->stack, key, syn->seq, index_of(&said.options), period);
    cl_tcp_syn(&c, answer);
    if (answer->options.has & CL_TCPO_TIMES)
        answer->options.ts_val = time_with(answer->options.ts_val, bits_of(&said));
    /* Relaxed, and not each time: a hint that saves the hash of segments that cannot be right. */
    if (cl_load_relaxed(&turn->stack->cookies_until_ns) + RENEW_NS < until_ns)
        cl_store_relaxed(&turn->stack->cookies_until_ns, until_ns);
    cl_count(&turn->counts->cookies_sent, 1);
}

bool cl_tcp_cookie_right(const struct cl_tcp_turn *turn, const struct cl_flow_key *key, const struct cl_tcp_segment *s)
{
    uint32_t ours = s->ack - 1, peers = s->seq - 1;
    uint64_t period = turn->now_ns >> CL_TCP_COOKIE_PERIOD_BITS;
    if ((s->flags & (CL_TCPF_SYN | CL_TCPF_ACK | CL_TCPF_RST)) != CL_TCPF_ACK ||
        turn->now_ns >= cl_load_relaxed(&turn->stack->cookies_until_ns) + RENEW_NS)
        return false;
    bool right = number(turn->stack, key, peers, ours >> INDEX_SHIFT, period) == ours ||
                 number(turn->stack, key, peers, ours >> INDEX_SHIFT, period - 1) == ours;
    cl_count(right ? &turn->counts->cookies_right : &turn->counts->cookies_wrong, 1);
    return right;
}

void cl_tcp_cookie_take(struct cl_tcp_conn *c, struct cl_tcp_listener *l, const struct cl_tcp_segment *s)
{
    uint32_t ours = s->ack - 1, bits = s->options.ts_ecr & BITS;
    struct cl_tcp_segment syn = {.seq = s->seq - 1, .flags = CL_TCPF_SYN, .window = s->window}, answer;
    syn.options.has = CL_TCPO_MSS;
    syn.options.mss = mss_of[ours >> INDEX_SHIFT];
    if (s->options.has & CL_TCPO_TIMES) {
        syn.options.has |= CL_TCPO_TIMES;
        syn.options.ts_val = s->options.ts_val;
        syn.options.wscale = bits & BITS_SCALE;
        syn.options.has |= (bits & BITS_SCALE) != BITS_SCALE ? CL_TCPO_WSCALE : 0;
        syn.options.has |= bits & BITS_SACK ? CL_TCPO_SACK_OK : 0;
        syn.flags |= bits & BITS_ECN ? ECN : 0;
    }
    cl_tcp_listen(c, l);
    cl_tcp_listen_input(c, &syn);
    cl_tcp_syn(c, &answer); /* what that promised, it keeps */
    c->una = c->nxt = c->recover_seq = ours;
    cl_tcp_sent(c, ours, ours + 1, false);
    c->one.flags |= CL_TCP_RECORD_AGAIN; /* when it was sent nobody knows: it tells no round trip */
    c->flags |= CL_TCP_SYN_OUT;
    cl_tcp_set(c, CL_TCP_TIMER_RESEND, cl_tcp_conn_rto_ns(c));
}
