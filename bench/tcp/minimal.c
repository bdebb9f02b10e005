/* See minimal.h. */
#include "minimal.h"

#include "segments.h"
#include "../../runtime/csum_copy.h"

#include <stdlib.h>

#define CONNS (1u << 14)
#define BUCKETS (1u << 13)
#define KEPT_BYTES 64
#define RTO_NS 200000000ull

/* Of a connection. All of what the peer says is in host order. */
struct conn {
    uint32_t src_be, dst_be, ports;
    uint32_t una, nxt, rcv_nxt, wnd, ts_recent;
    uint64_t again_ns; /* what is kept is due again then */
    uint32_t next;     /* of its bucket, or of those that are free: a number and one more; 0: none */
    uint16_t kept;
    bool ended; /* by both */
    uint8_t data[KEPT_BYTES];
} CL_ALIGNED(CL_CACHELINE);

struct cl_minimal {
    uint32_t buckets[BUCKETS]; /* as conn.next */
    uint32_t free, used;       /* conns that were given back; conns from this one on never had a connection */
    struct conn conns[CONNS];
};

struct cl_minimal *cl_minimal_new(void)
{
    void *m = NULL;
    if (posix_memalign(&m, CL_CACHELINE, sizeof(struct cl_minimal)))
        return NULL;
    memset(m, 0, offsetof(struct cl_minimal, conns));
    return m;
}

void cl_minimal_free(struct cl_minimal *m)
{
    free(m);
}

/* What leads to a connection: its bucket, or the one before it there. */
static uint32_t *find(struct cl_minimal *m, const struct head *h)
{
    uint32_t ports = cl_get32(&h->src_be);
    uint32_t hash = cl_rss_mix(CL_RSS_KEY, h->ip.src_be | (uint64_t)h->ip.dst_be << 32, ports);
    uint32_t *at = &m->buckets[hash % BUCKETS];
    for (; *at; at = &m->conns[*at - 1].next) {
        const struct conn *c = &m->conns[*at - 1];
        if (c->ports == ports && c->src_be == h->ip.src_be && c->dst_be == h->ip.dst_be)
            break;
    }
    return at;
}

/* A connection at the end of a bucket: it stands where the segment says. NULL: there are too many. */
static struct conn *begin(struct cl_minimal *m, uint32_t *at, const struct head *h)
{
    uint32_t number = m->free ? m->free : m->used < CONNS ? ++m->used : 0;
    if (!number)
        return NULL;
    struct conn *c = &m->conns[number - 1];
    if (m->free)
        m->free = c->next;
    *c = (struct conn){.src_be = h->ip.src_be, .dst_be = h->ip.dst_be, .ports = cl_get32(&h->src_be)};
    c->una = c->nxt = cl_be32(h->ack_be);
    c->rcv_nxt = cl_be32(h->seq_be);
    *at = number;
    return c;
}

static void end(struct cl_minimal *m, uint32_t *at)
{
    uint32_t number = *at;
    struct conn *c = &m->conns[number - 1];
    *at = c->next;
    c->next = m->free;
    m->free = number;
}

/* Whether a segment fits to its connection, of which it says what it says from now on. */
static bool take(struct conn *c, const struct head *h, const struct parts *p)
{
    uint32_t ack = cl_be32(h->ack_be);
    if (cl_be32(h->seq_be) != c->rcv_nxt || (int32_t)(ack - c->una) < 0 || (int32_t)(c->nxt - ack) < 0)
        return false;
    if (p->header == 20 + TIMES_BYTES && cl_get32(h->options) == cl_be32(NOPS_TIMES)) {
        uint32_t ts_val = cl_be32(cl_get32(h->options + 4));
        if (c->ts_recent && (int32_t)(ts_val - c->ts_recent) < 0)
            return false;
        c->ts_recent = ts_val;
    }
    if (ack == c->nxt)
        c->kept = 0;
    c->una = ack;
    c->wnd = cl_be16(h->window_be);
    return true;
}

/* The headers of the answer; `sum`: of its data. It is as long as what came, so the IPv4 header's sum stays. The other
 * is made of the values: loads that span stores just made would wait for these. */
static void write_answer(const struct conn *c, struct head *h, const struct parts *p, uint32_t flags, uint64_t sum,
                         uint64_t now_ns)
{
    uint32_t seq_be = cl_be32(c->nxt), ack_be = cl_be32(c->rcv_nxt), options = p->header - 20;
    uint16_t offset_be = cl_be16(p->header / 4 << 12 | flags);
    sum += cl_csum_pseudo(c->src_be, c->dst_be, CL_IPPROTO_TCP, (uint16_t)(p->header + p->len));
    sum += (uint64_t)c->ports + seq_be + ack_be + offset_be + UINT16_MAX;
    if (cl_likely(options == TIMES_BYTES)) {
        uint32_t val_be = cl_be32((uint32_t)(now_ns >> 20)), ecr_be = cl_be32(c->ts_recent);
        cl_put32(h->options + 4, val_be);
        cl_put32(h->options + 8, ecr_be);
        sum += (uint64_t)cl_be32(NOPS_TIMES) + val_be + ecr_be;
    } else {
        sum = cl_csum_add(sum, h->options, options);
    }
    turn_addresses(h);
    h->seq_be = seq_be;
    h->ack_be = ack_be;
    h->offset_be = offset_be;
    h->window_be = UINT16_MAX;
    h->check = cl_csum_finish(sum);
    h->urgent_be = 0;
}

/* The options of a SYN are turned round. */
static bool answer_syn(struct conn *c, struct head *h, const struct parts *p, uint64_t sum, uint64_t now_ns)
{
    c->rcv_nxt = cl_be32(h->seq_be) + 1;
    c->una = c->nxt = 1;
    c->ts_recent = c->kept = 0;
    c->ended = false;
    write_answer(c, h, p, SYN | ACK, sum, now_ns);
    c->nxt++;
    return true;
}

bool cl_minimal_turn(struct cl_minimal *m, struct cl_frame *f, uint64_t now_ns)
{
    struct head *h = (struct head *)f->data;
    struct parts p;
    if (!part(f, &p) || h->ip.version_ihl != 0x45 || cl_csum(&h->ip, sizeof h->ip))
        return false;
    uint64_t in = sum_header(h, p.header, p.len), out;
    uint8_t *data = (uint8_t *)&h->src_be + p.header;
    uint32_t *at = find(m, h);
    struct conn *c = *at ? &m->conns[*at - 1] : begin(m, at, h);
    if (!c || p.len > KEPT_BYTES)
        return false;
    uint8_t answer[KEPT_BYTES]; /* to be kept if the segment is sound */
    out = cl_csum_copy(0, answer, data, p.len);
    if (cl_csum_finish(in + out))
        return false;
    if (cl_unlikely(p.flags & SYN))
        return answer_syn(c, h, &p, out, now_ns);
    if (!take(c, h, &p))
        return false;
    bool fin = p.flags & FIN;
    if (cl_unlikely(!p.len && !fin) || p.len > c->wnd) {
        if (c->ended && c->una == c->nxt)
            end(m, at);
        return false;
    }
    memcpy(c->data, answer, KEPT_BYTES);
    c->kept = (uint16_t)p.len;
    c->again_ns = now_ns + RTO_NS;
    c->ended = fin;
    c->rcv_nxt += p.len + fin;
    write_answer(c, h, &p, ACK | (fin ? FIN : 0), out, now_ns);
    c->nxt += p.len + fin;
    f->len = (uint16_t)(CL_ETH_HLEN + CL_IPV4_HLEN + p.header + p.len);
    return true;
}
