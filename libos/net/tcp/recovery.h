/* Loss: what of the data under way is taken for lost, and what is sent again next.
 *
 * This is the one place where that is decided. The rest of the machine tells it what happened (sent, acknowledged, its
 * timer is due) and asks: how many bytes are under way, what is to be sent again, and may one segment more leave.
 *
 *   scoreboard.{h,c}  what is known of each segment under way
 *   rack.{h,c}        which of them are lost: RACK, for peers with SACK
 *   recovery.c        acknowledgements; recovery with PRR; NewReno without SACK; time-outs
 *   probe.c           what the timer waits for: RACK's window, a tail loss probe, the time-out
 *   undo.c            mistakes: F-RTO, and what DSACK says
 *   rate.c            the delivery rate, of whoever asks for it: nothing here goes by it
 *
 * A recovery begins when something is lost, ends when all that was under way then is acknowledged, and lets the window
 * fall once. One that the time-out began (CL_TCP_TIMED_OUT) is a slow start instead. */
#ifndef CORELANE_LIBOS_NET_TCP_RECOVERY_H
#define CORELANE_LIBOS_NET_TCP_RECOVERY_H

#include "scoreboard.h"

/* Nothing is known to be missing, and at most one segment is under way, which was sent once. */
static inline bool cl_tcp_calm(const struct cl_tcp_conn *c)
{
    uint32_t uneasy = CL_TCP_RECOVERING | CL_TCP_TIMED_OUT | CL_TCP_PROBED | CL_TCP_PROBED_AGAIN | CL_TCP_FRTO |
                      CL_TCP_FRTO_NEW | CL_TCP_TRIES_PATH;
    return !c->board && !(c->flags & uneasy) && c->dup_acks == 0 && c->one.flags == 0;
}

uint32_t cl_tcp_in_flight_now(const struct cl_tcp_conn *c);
/* Bytes that are taken to be in the network (pipe, RFC 6675). */
static inline uint32_t cl_tcp_in_flight(const struct cl_tcp_conn *c)
{
    return cl_tcp_calm(c) ? c->nxt - c->una : cl_tcp_in_flight_now(c);
}

bool cl_tcp_find_lost(struct cl_tcp_conn *c, uint32_t *seq, uint32_t *end);
/* What is to be sent again next, from *seq to before *end. False: nothing, for now. */
static inline bool cl_tcp_lost(struct cl_tcp_conn *c, uint32_t *seq, uint32_t *end)
{
    return cl_tcp_board_lost(c) && cl_tcp_find_lost(c, seq, end);
}
/* Numbers seq to before end have left; again: not for the first time. Else cl_tcp_board_room was true. */
void cl_tcp_sent(struct cl_tcp_conn *c, uint32_t seq, uint32_t end, bool again);
/* A segment acknowledged what is before una, for the first time from `before` on; its SACK blocks are looked at.
 * duplicate: RFC 5681, section 2. Measures the round trip, grows and shrinks the window, sets the timer. */
void cl_tcp_recovery_acked(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t before, bool duplicate);
/* The window grows, outside of a recovery and in one after a time-out. flight: what was under way before. */
void cl_tcp_recovery_grow(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t acked, uint32_t flight);
/* cl_tcp_recovery_acked of a segment that acknowledges all, which was one segment of `acked` bytes, while all was calm,
 * with neither SACK blocks nor marks: what is left of it then. */
static inline void cl_tcp_recovery_acked_all(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t acked)
{
    uint32_t most = 4 * c->cc.mss; /* below it is one sample at most, which needs no division */
    cl_tcp_rtt_sample(&c->rtt, c->turn->now_ns - c->one.sent_ns, acked < most ? 1 : acked / (2 * c->cc.mss));
    c->one.len = 0;
    c->retries = c->rtt.doublings = 0;
    if (!cl_tcp_cc_rests(&c->cc, cl_tcp_cc_limited(&c->cc, acked)))
        cl_tcp_recovery_grow(c, s, acked, acked);
    c->flags &= ~(CL_TCP_PROBED_FIRST | CL_TCP_PROBING | CL_TCP_REORDERING);
    c->due_ns[CL_TCP_TIMER_RESEND] = CL_TCP_NEVER;
}
/* All that is under way is to be sent again, and not for congestion: its answer was lost, or the path does not take
 * segments as large. Those that leave again are of the size of now. */
void cl_tcp_recovery_again(struct cl_tcp_conn *c);
/* CL_TCP_TIMER_RESEND has come. False: it is the time-out. */
bool cl_tcp_recovery_due(struct cl_tcp_conn *c);
/* Nothing came in time: what is under way is lost. */
void cl_tcp_recovery_timed_out(struct cl_tcp_conn *c);

/* Between the files of recovery. */

/* Recovery begins, or goes on: something is lost that was not. delivered: bytes that the acknowledgement told of. */
void cl_tcp_recovery_lost(struct cl_tcp_conn *c, uint32_t delivered);
/* probe.c. The timer, after something has left ... */
void cl_tcp_watch_sent(struct cl_tcp_conn *c, bool again);
/* The same of a segment that left for the first time while nothing was under way, and all was calm. */
void cl_tcp_watch_first(struct cl_tcp_conn *c);
/* ... and after an acknowledgement. moved: of something new; reorder_ns: RACK wants to look in this time; 0: not. */
void cl_tcp_watch_acked(struct cl_tcp_conn *c, bool moved, uint64_t reorder_ns);
/* An acknowledgement: was the probe needed (RFC 8985, section 7.4.2)? */
void cl_tcp_probe_acked(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, bool moved,
                        const struct cl_tcp_told *told);
/* undo.c. Something came twice. */
void cl_tcp_undo_twice(struct cl_tcp_conn *c, const struct cl_tcp_told *told);
/* An acknowledgement after a time-out that may have been a mistake. */
void cl_tcp_frto_acked(struct cl_tcp_conn *c, bool moved, const struct cl_tcp_told *told);

#endif
