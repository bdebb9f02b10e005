/* See recovery.h. */
#include "machine.h"
#include "rack.h"

#define FIRST_RTO_AFTER_LOSS_NS 3000000000ull /* RFC 6298, section 5.7 */
#define LIMITED 2                             /* RFC 3042: new segments by the first duplicates */

static bool has_sack(const struct cl_tcp_conn *c)
{
    return c->flags & CL_TCP_SACKS;
}

/* In a recovery that did not begin with a time-out. */
static bool is_fast(const struct cl_tcp_conn *c)
{
    return (c->flags & (CL_TCP_RECOVERING | CL_TCP_TIMED_OUT)) == CL_TCP_RECOVERING;
}

/* Duplicates since something was acknowledged, without SACK: what a byte does not count the scoreboard has. */
static uint32_t duplicates(const struct cl_tcp_conn *c)
{
    return c->dup_acks + (c->board ? c->board->all.more_dups : 0);
}

static void set_duplicates(struct cl_tcp_conn *c, uint32_t n)
{
    n = cl_min(n, (uint32_t)UINT16_MAX); /* times a segment it is a number */
    c->dup_acks = (uint8_t)cl_min(n, (uint32_t)UINT8_MAX);
    if (c->board)
        c->board->all.more_dups = n - c->dup_acks;
}

/* Of what was sent from number `from` on. Without SACK each duplicate says that a segment has left the network. */
static uint32_t in_flight_from(const struct cl_tcp_conn *c, uint32_t from)
{
    uint32_t n = c->nxt - from - cl_tcp_board_sacked(c) - cl_tcp_board_lost(c), gone = duplicates(c);
    if (c->flags & CL_TCP_TIMED_OUT)
        return n;
    if (!(c->flags & CL_TCP_RECOVERING))
        gone = cl_min(gone, (uint32_t)LIMITED);
    return n - cl_min(n, gone * c->cc.mss);
}

uint32_t cl_tcp_in_flight_now(const struct cl_tcp_conn *c)
{
    return in_flight_from(c, c->una);
}

bool cl_tcp_find_lost(struct cl_tcp_conn *c, uint32_t *seq, uint32_t *end)
{
    struct cl_tcp_walk w;
    if (c->flags & CL_TCP_FRTO_NEW)
        return false;
    struct cl_tcp_record *r = cl_tcp_walk_to(c, &w, c->board ? cl_seq_max(c->board->all.lost_from, c->una) : c->una);
    while (!(r->flags & CL_TCP_RECORD_LOST))
        r = cl_tcp_walk_next(&w);
    uint32_t full = cl_tcp_mss_now(c);
    *seq = r->seq;
    *end = cl_tcp_record_end(r);
    while (*end - *seq < full && (r = cl_tcp_walk_next(&w)) && (r->flags & CL_TCP_RECORD_LOST))
        *end = cl_tcp_record_end(r); /* small ones leave as one; what is too large by now is cut */
    return true;
}

void cl_tcp_sent(struct cl_tcp_conn *c, uint32_t seq, uint32_t end, bool again)
{
    if (is_fast(c) && c->board)
        c->board->all.prr_out += end - seq;
    if (!again) {
        if (cl_unlikely(c->stall == CL_TCP_STALL_WINDOW))
            cl_tcp_stall_over(c, c->turn->now_ns);
        cl_tcp_board_add(c, seq, end);
        c->nxt = end;
        return;
    }
    cl_tcp_stall_resent(c, seq); /* before its record forgets when it left */
    cl_tcp_board_again(c, seq, end);
    if ((c->flags & CL_TCP_RECOVERING) && c->rtt.undo_left < UINT8_MAX)
        c->rtt.undo_left++;
    c->resent++;
    cl_count(&c->turn->counts->resent, 1);
}

void cl_tcp_recovery_again(struct cl_tcp_conn *c)
{
    struct cl_tcp_walk w;
    for (struct cl_tcp_record *r = cl_tcp_walk_first(c, &w); r; r = cl_tcp_walk_next(&w))
        cl_tcp_board_lose(c, r);
}

/* Proportional rate reduction (RFC 6937, section 3; PRR-SSRB). */
static void reduce(struct cl_tcp_conn *c, uint32_t delivered)
{
    uint32_t pipe = cl_tcp_in_flight(c), to = c->cc.threshold, may;
    if (!c->board) {
        c->cc.window = to;
        return;
    }
    struct cl_tcp_board_state *all = &c->board->all;
    all->prr_delivered += delivered;
    if (pipe > to) {
        uint64_t all_may = ((uint64_t)all->prr_delivered * to + all->prr_flight - 1) / all->prr_flight;
        may = all_may > all->prr_out ? (uint32_t)(all_may - all->prr_out) : 0;
    } else {
        uint32_t left = all->prr_delivered > all->prr_out ? all->prr_delivered - all->prr_out : 0;
        may = cl_min(to - pipe, cl_max(left, delivered) + c->cc.mss);
    }
    c->cc.window = pipe + may;
}

static void enter(struct cl_tcp_conn *c)
{
    c->flags |= CL_TCP_RECOVERING | CL_TCP_FORCE;
    c->flags &= ~(CL_TCP_PROBED | CL_TCP_PROBED_AGAIN); /* its loss is this one */
    c->recover_seq = c->nxt;
    c->rtt.undo_left = 0;
    cl_tcp_cc_fall(&c->cc, c->turn->now_ns, false);
    if (c->board) {
        c->board->all.prr_flight = c->nxt - c->una;
        c->board->all.prr_delivered = c->board->all.prr_out = 0;
    }
    cl_count(&c->turn->counts->fast_retransmits, 1);
}

void cl_tcp_recovery_lost(struct cl_tcp_conn *c, uint32_t delivered)
{
    if (!(c->flags & CL_TCP_RECOVERING))
        enter(c);
    if (is_fast(c))
        reduce(c, delivered);
}

static void leave(struct cl_tcp_conn *c)
{
    if (is_fast(c))
        c->cc.window = c->cc.threshold;
    c->flags &= ~(uint32_t)(CL_TCP_RECOVERING | CL_TCP_TIMED_OUT | CL_TCP_FRTO | CL_TCP_FRTO_NEW);
    set_duplicates(c, 0);
    cl_tcp_rack_recovered(c);
}

/* How long what was acknowledged now took, if that can be told: of what was sent once (Karn's rule). With n samples a
 * round trip each counts for an n-th (RFC 7323, appendix G). */
static void measure(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, const struct cl_tcp_told *told,
                    uint32_t flight)
{
    if (told->oldest_ns && !told->again) {
        cl_tcp_rtt_sample(&c->rtt, c->turn->now_ns - told->oldest_ns, flight / (2 * c->cc.mss));
    } else if ((c->flags & CL_TCP_TIMES) && c->retries && (s->options.has & CL_TCPO_TIMES) && s->options.ts_ecr) {
        /* Of what was sent twice the echo says which one it was (RFC 7323, section 4). */
        uint32_t took_ms = cl_tcp_now_ms(c) + c->ts_offset - s->options.ts_ecr;
        if (took_ms < CL_TCP_RTO_MOST_NS / CL_TCP_MS)
            cl_tcp_rtt_sample(&c->rtt, cl_max(took_ms, 1u) * CL_TCP_MS, 1);
    }
    if (c->rtt.smoothed_ns == 0 && c->retries) { /* the SYN was lost: 3 s (RFC 6298, section 5.7) */
        c->rtt.smoothed_ns = FIRST_RTO_AFTER_LOSS_NS / 3;
        c->rtt.variation_ns = c->rtt.smoothed_ns / 2;
    }
}

/* Without SACK duplicates are counted (RFC 6582). Returns whether the first segment under way is lost now. */
static bool count_duplicates(struct cl_tcp_conn *c, uint32_t acked, bool duplicate, struct cl_tcp_told *told)
{
    bool recovering = c->flags & CL_TCP_RECOVERING;
    if (acked) { /* the first of these segments was missing, the others were duplicates */
        uint32_t others = cl_min((acked - 1) / c->cc.mss, duplicates(c));
        told->delivered -= cl_min(told->delivered, others * c->cc.mss);
        set_duplicates(c, recovering ? duplicates(c) - others : 0);
        return recovering && !(c->flags & CL_TCP_TIMED_OUT) && c->una != c->nxt; /* section 3.2, step 3 */
    }
    if (!duplicate)
        return false;
    told->delivered += c->cc.mss;
    set_duplicates(c, duplicates(c) + 1);
    /* Once for the losses of a window (step 1). */
    return c->dup_acks == CL_TCP_DUPLICATES && !recovering && cl_seq_before(c->recover_seq, c->una);
}

/* What is lost by this acknowledgement. *in_ns: as of cl_tcp_rack_detect. */
static bool detect(struct cl_tcp_conn *c, bool first_lost, uint64_t *in_ns)
{
    struct cl_tcp_walk w;
    *in_ns = 0;
    if (has_sack(c)) /* what is acknowledged in order leaves nothing behind that was sent before it */
        return (cl_tcp_board_sacked(c) || (c->flags & (CL_TCP_RECOVERING | CL_TCP_PROBED_AGAIN))) &&
               cl_tcp_rack_detect(c, in_ns);
    if (first_lost)
        cl_tcp_board_lose(c, cl_tcp_walk_first(c, &w));
    return first_lost;
}

void cl_tcp_recovery_grow(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t acked, uint32_t flight)
{
    bool echoed = (c->marks & CL_TCP_MARKS_ECN) && (s->flags & CL_TCPF_ECE);
    struct cl_tcp_cc_ack ack = {.now_ns = c->turn->now_ns,
                                .rtt_ns = c->rtt.smoothed_ns,
                                .acked = acked,
                                .marked = echoed ? acked : 0,
                                .una = c->una,
                                .nxt = c->nxt,
                                .limited = cl_tcp_cc_limited(&c->cc, flight)};
    cl_tcp_cc_acked(&c->cc, &ack, is_fast(c) || echoed);
}

void cl_tcp_recovery_acked(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t before, bool duplicate)
{
    uint32_t acked = c->una - before, flight = in_flight_from(c, before);
    bool first_lost = false, recovered = c->flags & CL_TCP_RECOVERING;
    struct cl_tcp_told told;
    struct cl_tcp_walk w;
    uint64_t in_ns;
    bool stalled = cl_unlikely(c->stall == CL_TCP_STALL_RESEND) && acked;
    uint64_t left_ns = stalled ? cl_tcp_walk_first(c, &w)->sent_ns : 0;
    struct cl_tcp_round round = cl_tcp_round_now(c, before);
    cl_tcp_board_take(c, s, &told);
    cl_tcp_round_acked(c, &round);
    if (acked) {
        measure(c, s, &told, flight);
        c->retries = c->rtt.doublings = 0;
    }
    if (told.latest_ns)
        cl_tcp_rtt_least(&c->rtt, c->turn->now_ns - told.latest_ns);
    if (!has_sack(c))
        first_lost = count_duplicates(c, acked, duplicate, &told);
    if (told.duplicate)
        cl_tcp_undo_twice(c, &told);
    cl_tcp_probe_acked(c, s, acked != 0, &told);
    if (acked)
        cl_tcp_recovery_grow(c, s, acked, flight);
    cl_tcp_frto_acked(c, acked != 0, &told);
    if ((c->flags & CL_TCP_RECOVERING) && cl_seq_upto(c->recover_seq, c->una)) {
        leave(c);
        first_lost = false;
    }
    if (detect(c, first_lost, &in_ns))
        cl_tcp_recovery_lost(c, told.delivered);
    else if (is_fast(c) && told.delivered)
        reduce(c, told.delivered);
    cl_tcp_watch_acked(c, acked != 0, in_ns);
    recovered = (recovered || told.again || c->una == c->nxt) && !(c->flags & CL_TCP_RECOVERING);
    if (cl_unlikely(stalled) && recovered)
        cl_tcp_stall_recovered(c, cl_max(left_ns, told.latest_ns));
}

void cl_tcp_recovery_timed_out(struct cl_tcp_conn *c)
{
    struct cl_tcp_walk w;
    struct cl_tcp_record *r = cl_tcp_walk_first(c, &w);
    bool recovering = c->flags & CL_TCP_RECOVERING, by_time_out = c->flags & CL_TCP_TIMED_OUT;
    bool first = c->retries <= 1 && (!recovering || by_time_out); /* of what is lost now the window fell already */
    if (r->flags & CL_TCP_RECORD_SACKED)
        cl_tcp_board_reneged(c);
    cl_tcp_cc_timed_out(&c->cc, c->turn->now_ns, first);
    cl_tcp_board_lose(c, r);
    while ((r = cl_tcp_walk_next(&w))) /* RFC 8985, section 6.3 */
        if (!has_sack(c) || cl_tcp_rack_is_old(c, r->sent_ns))
            cl_tcp_board_lose(c, r);
    c->recover_seq = c->nxt;
    set_duplicates(c, 0);
    c->rtt.undo_left = 0;
    c->flags &= ~(CL_TCP_PROBED | CL_TCP_PROBED_AGAIN | CL_TCP_FRTO | CL_TCP_FRTO_NEW);
    c->flags |= CL_TCP_RECOVERING | CL_TCP_TIMED_OUT | CL_TCP_FORCE;
    if (!recovering && c->retries <= 1 && c->board)
        c->flags |= CL_TCP_FRTO;
}
