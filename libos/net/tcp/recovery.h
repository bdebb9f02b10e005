/* Loss: what of the data under way is taken for lost, and what is sent again next.
 *
 * This is the one place where that is decided. The rest of the machine tells it what happened (sent, acknowledged,
 * duplicate, timed out) and asks two things: how many bytes are under way, and what is to be sent again.
 *
 * What stands behind it now is a stand-in that knows one lost range, resend..resend_end: NewReno without SACK (RFC
 * 6582), and go-back-N in slow start after a time-out (RFC 5681, section 3.1). RACK-TLP with PRR takes its place: a
 * record for each segment in a chunk that exists while something is under way, made in cl_tcp_sent; SACK blocks and
 * timestamps come with cl_tcp_recovery_acked; its reordering timer and its probe share CL_TCP_TIMER_RESEND. */
#ifndef CORELANE_LIBOS_NET_TCP_RECOVERY_H
#define CORELANE_LIBOS_NET_TCP_RECOVERY_H

#include "conn.h"

/* Bytes that are taken to be in the network (pipe, RFC 6675). */
uint32_t cl_tcp_in_flight(const struct cl_tcp_conn *c);
/* What is to be sent again next, from *seq to before *end. False: nothing. */
bool cl_tcp_lost(const struct cl_tcp_conn *c, uint32_t *seq, uint32_t *end);
/* Numbers seq to before end have left; again: not for the first time. */
void cl_tcp_sent(struct cl_tcp_conn *c, uint32_t seq, uint32_t end, bool again);
/* A segment acknowledged what is before una, for the first time from `before` on. Grows and shrinks the window. */
void cl_tcp_recovery_acked(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t before);
/* A duplicate (RFC 5681, section 2). */
void cl_tcp_recovery_duplicate(struct cl_tcp_conn *c, const struct cl_tcp_segment *s);
/* The path does not take segments as large as those under way: they are lost, and not by congestion. Those that are
 * sent again are of the size of now. */
void cl_tcp_recovery_too_large(struct cl_tcp_conn *c);
/* Nothing came in time: all that is under way is lost. */
void cl_tcp_recovery_timed_out(struct cl_tcp_conn *c);

#endif
