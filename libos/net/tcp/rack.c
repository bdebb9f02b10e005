/* See rack.h. Names in capitals are those of RFC 8985. */
#include "machine.h"
#include "rack.h"

#define RECOVERIES 16   /* reo_wnd_persist */
#define STEPS_A_ROUND 4 /* the window is min_RTT / 4, or so many times that */

/* RACK_sent_after(RACK, r). What left again in the moment of the other was sent after it, not in the order of numbers:
 * else each acknowledgement that comes without any delay loses it anew. */
static bool sent_before(const struct cl_tcp_record *r, const struct cl_tcp_board_state *all)
{
    if (r->sent_ns != all->rack_ns)
        return r->sent_ns < all->rack_ns;
    return !(r->flags & CL_TCP_RECORD_AGAIN) && cl_seq_before(cl_tcp_record_end(r), all->rack_end);
}

/* Of one that was sent again: perhaps the first copy came (step 2). */
static bool is_of_first_copy(const struct cl_tcp_conn *c, const struct cl_tcp_record *r, const struct cl_tcp_segment *s)
{
    if ((c->flags & CL_TCP_TIMES) && (s->options.has & CL_TCPO_TIMES)) {
        uint32_t sent = (uint32_t)(r->sent_ns / CL_TCP_MS) + c->ts_offset;
        if ((int32_t)(s->options.ts_ecr - sent) < 0)
            return true;
    }
    return c->turn->now_ns - r->sent_ns < c->rtt.least_ns;
}

void cl_tcp_rack_came(struct cl_tcp_conn *c, const struct cl_tcp_record *r, const struct cl_tcp_segment *s)
{
    struct cl_tcp_board_state *all = &c->board->all;
    bool again = r->flags & CL_TCP_RECORD_AGAIN;
    uint32_t end = cl_tcp_record_end(r);
    if (cl_seq_before(all->highest, end))
        all->highest = end;
    else if (!again && end != all->highest)
        c->rtt.reordered = 1; /* RACK_detect_reordering */
    if (again && is_of_first_copy(c, r, s))
        return;
    if (all->rack_ns && sent_before(r, all))
        return;
    all->rack_rtt_ns = c->turn->now_ns - r->sent_ns;
    all->rack_ns = r->sent_ns;
    all->rack_end = end;
}

/* RACK_update_reo_wnd's RACK.reo_wnd. */
static uint64_t window_ns(const struct cl_tcp_conn *c)
{
    bool sure = (c->flags & CL_TCP_RECOVERING) || (c->board && c->board->all.sacked_n >= CL_TCP_DUPLICATES);
    if (!c->rtt.reordered && sure)
        return 0;
    uint64_t steps = 1 + (uint64_t)c->rtt.reorder_more;
    return cl_min(steps * c->rtt.least_ns / STEPS_A_ROUND, c->rtt.smoothed_ns);
}

bool cl_tcp_rack_is_old(const struct cl_tcp_conn *c, uint64_t sent_ns)
{
    uint64_t rtt_ns = c->board && c->board->all.rack_ns ? c->board->all.rack_rtt_ns : c->rtt.smoothed_ns;
    return sent_ns + rtt_ns + window_ns(c) <= c->turn->now_ns;
}

/* One record. False: neither it nor any behind it was sent before what has come. */
static bool look_at(struct cl_tcp_conn *c, struct cl_tcp_record *r, uint64_t wait_ns, bool *lost, uint64_t *in_ns)
{
    if (r->flags & (CL_TCP_RECORD_SACKED | CL_TCP_RECORD_LOST))
        return true;
    if (!sent_before(r, &c->board->all)) /* what was sent once lies in the order of its time */
        return r->flags & CL_TCP_RECORD_AGAIN;
    uint64_t due_ns = r->sent_ns + wait_ns, now_ns = c->turn->now_ns;
    if (due_ns <= now_ns) {
        cl_tcp_board_lose(c, r);
        *lost = true;
    } else {
        *in_ns = cl_max(*in_ns, due_ns - now_ns);
    }
    return true;
}

bool cl_tcp_rack_detect(struct cl_tcp_conn *c, uint64_t *in_ns)
{
    bool lost = false;
    struct cl_tcp_walk w;
    *in_ns = 0;
    if (!c->board || c->board->all.rack_ns == 0)
        return false;
    uint64_t wait_ns = c->board->all.rack_rtt_ns + window_ns(c);
    struct cl_tcp_record *r = cl_tcp_walk_first(c, &w);
    while (r && look_at(c, r, wait_ns, &lost, in_ns)) {
        bool all_came = w.board->sacked_n == w.board->to - w.board->from;
        r = all_came ? cl_tcp_walk_skip(&w) : cl_tcp_walk_next(&w);
    }
    return lost;
}

void cl_tcp_rack_widen(struct cl_tcp_conn *c)
{
    if (c->board && cl_seq_before(c->una, c->board->all.dsack_round))
        return;
    if (c->board)
        c->board->all.dsack_round = c->nxt;
    if (c->rtt.reorder_more < UINT8_MAX)
        c->rtt.reorder_more++;
    c->rtt.reorder_keep = RECOVERIES;
}

void cl_tcp_rack_recovered(struct cl_tcp_conn *c)
{
    if (c->rtt.reorder_keep && --c->rtt.reorder_keep == 0)
        c->rtt.reorder_more = 0;
}
