/* Mistakes of recovery: a time-out that came too early (F-RTO, RFC 5682), and what was sent again without need (RFC
 * 2883, 3708). The window is what it was, and what is not known to be lost is under way again (RFC 4015). */
#include "machine.h"
#include "rack.h"

#define MOST_AFTER 2 /* segments under way, beside one more, when F-RTO found that the time-out was right */

static void undo(struct cl_tcp_conn *c)
{
    struct cl_tcp_walk w;
    cl_tcp_cc_undo(&c->cc);
    c->rtt.undo_left = 0;
    c->flags &= ~(uint32_t)(CL_TCP_RECOVERING | CL_TCP_TIMED_OUT | CL_TCP_FRTO | CL_TCP_FRTO_NEW);
    for (struct cl_tcp_record *r = cl_tcp_walk_first(c, &w); r; r = cl_tcp_walk_next(&w))
        cl_tcp_board_find(c, r);
    if (c->board) /* by what came it may have been misled, too */
        c->board->all.rack_ns = 0;
    cl_count(&c->turn->counts->undone, 1);
}

/* What came twice was sent twice since recovery began, as far as that is still known: the network may double, too. */
static bool is_of_recovery(struct cl_tcp_conn *c, const struct cl_tcp_range *twice)
{
    struct cl_tcp_walk w;
    if (cl_seq_before(c->una, twice->to))
        return cl_tcp_walk_to(c, &w, twice->to - 1)->flags & CL_TCP_RECORD_AGAIN;
    return cl_seq_before(c->recover_seq - c->cc.before, twice->to);
}

void cl_tcp_undo_twice(struct cl_tcp_conn *c, const struct cl_tcp_told *told)
{
    c->dsacks++;
    cl_count(&c->turn->counts->dsacks, 1);
    if ((c->flags & CL_TCP_PROBED) && told->twice.to == c->recover_seq)
        return; /* the probe */
    cl_tcp_rack_widen(c);
    bool known = c->rtt.undo_left && c->rtt.undo_left != UINT8_MAX;
    if (known && cl_tcp_cc_may_undo(&c->cc) && is_of_recovery(c, &told->twice) && --c->rtt.undo_left == 0)
        undo(c);
}

/* There is new data, and the peer takes it. */
static bool may_send_new(const struct cl_tcp_conn *c)
{
    return !(c->flags & CL_TCP_FIN_OUT) && cl_seq_before(c->nxt, cl_tcp_data_end(c)) && c->nxt - c->una < c->wnd;
}

/* Section 2.1, with section 3's looks at SACK. Step 2: the first acknowledgement moves on, but not to the end: new data
 * leaves instead of what was taken for lost. Step 3: if the second one tells of what was sent once, that was not. */
void cl_tcp_frto_acked(struct cl_tcp_conn *c, bool moved, const struct cl_tcp_told *told)
{
    if (!(c->flags & (CL_TCP_FRTO | CL_TCP_FRTO_NEW)))
        return;
    bool first = c->flags & CL_TCP_FRTO;
    if (!moved && !told->sacked && !told->duplicate && told->delivered == 0)
        return; /* it told nothing */
    c->flags &= ~(uint32_t)(CL_TCP_FRTO | CL_TCP_FRTO_NEW);
    if (!first && told->original) {
        undo(c);
    } else if (!first) { /* step 3a: the time-out was right, and a segment has left the network */
        uint32_t one_more = cl_min(cl_tcp_in_flight(c), MOST_AFTER * c->cc.mss) + c->cc.mss;
        c->cc.window = cl_max(c->cc.window, one_more);
    } else if (moved && cl_seq_before(c->una, c->recover_seq) && may_send_new(c)) {
        c->flags |= CL_TCP_FRTO_NEW;
    }
}
