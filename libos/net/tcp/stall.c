/* What a connection stood still for: told to whoever keeps a trace of it (cl_tcp_turn.stalled).
 *
 * RESEND   a segment was sent again: from when it had left first, until a round trip after the last one left that was
 *          lost, or its acknowledgement if that is sooner (a peer may delay it by 40 ms). Whoever began the recovery:
 *          RACK, a probe, a time-out. A retransmission that was a mistake counts.
 * WINDOW   nothing is under way, something waits, and the peer's window takes less than a segment of it: until data
 * leaves.
 * HOLE     of what the peer sends: from when something had come behind a gap, until the gap is filled.
 *
 * One stall of the sending side at a time: what is lost while a window is shut ends that one. The end of a connection
 * ends its stall. Of a connection without a stall this costs nothing: it begins and ends in the long ways of input and
 * output, which take all that is not plain. */
#include "machine.h"

static uint32_t us_of(uint64_t ns)
{
    return (uint32_t)(ns / 1000);
}

static void begin(struct cl_tcp_conn *c, enum cl_tcp_stall why, uint64_t since_ns)
{
    c->stall = (uint8_t)why;
    c->stall_us = us_of(since_ns);
    c->stalled_n = 0;
}

void cl_tcp_stall_over(struct cl_tcp_conn *c, uint64_t end_ns)
{
    uint64_t now_ns = c->turn->now_ns, ago_ns = (uint32_t)(us_of(now_ns) - c->stall_us) * 1000ull; /* it goes round */
    uint64_t begin_ns = now_ns - cl_min(ago_ns, now_ns);
    if (c->turn->stalled)
        c->turn->stalled(c->turn, c, (enum cl_tcp_stall)c->stall, begin_ns, cl_max(begin_ns, cl_min(end_ns, now_ns)),
                         c->stalled_n);
    c->stall = CL_TCP_STALL_NONE;
}

void cl_tcp_stall_recovered(struct cl_tcp_conn *c, uint64_t left_ns)
{
    uint64_t rtt_ns = c->rtt.smoothed_ns;
    cl_tcp_stall_over(c, rtt_ns ? left_ns + rtt_ns : c->turn->now_ns);
}

void cl_tcp_stall_resent(struct cl_tcp_conn *c, uint32_t seq)
{
    struct cl_tcp_walk w;
    if (c->stall == CL_TCP_STALL_WINDOW)
        cl_tcp_stall_over(c, c->turn->now_ns);
    if (c->stall == CL_TCP_STALL_NONE)
        begin(c, CL_TCP_STALL_RESEND, cl_tcp_walk_to(c, &w, seq)->sent_ns);
    c->stalled_n += c->stalled_n < UINT16_MAX;
}

void cl_tcp_stall_window(struct cl_tcp_conn *c)
{
    uint32_t unsent = c->flags & CL_TCP_FIN_OUT ? 0 : cl_tcp_data_end(c) - c->nxt, full = cl_tcp_mss_now(c);
    if (c->stall != CL_TCP_STALL_NONE || c->wnd >= cl_min(unsent, full))
        return; /* or it is held on purpose, or there is no buffer */
    begin(c, CL_TCP_STALL_WINDOW, c->turn->now_ns);
    c->stalled_n = (uint16_t)cl_min((unsent + full - 1) / full, (uint32_t)UINT16_MAX);
}

void cl_tcp_stall_filled(struct cl_tcp_conn *c, uint64_t since_ns)
{
    if (c->turn->stalled)
        c->turn->stalled(c->turn, c, CL_TCP_STALL_HOLE, since_ns, c->turn->now_ns, 1);
    if (c->aside)
        c->aside->since_ns = c->turn->now_ns; /* of what is behind another gap */
}
