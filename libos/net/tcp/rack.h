/* RACK: a segment is lost if one that was sent a reordering window later has come (RFC 8985, section 6).
 *
 * All times are in ns, so that a round trip of some microseconds has a window of one. Without a scoreboard, which is
 * with one segment under way, nothing is lost by it. */
#ifndef CORELANE_LIBOS_NET_TCP_RACK_H
#define CORELANE_LIBOS_NET_TCP_RACK_H

#include "scoreboard.h"

/* A record has come, told by s (section 6.2, steps 1 to 3). */
void cl_tcp_rack_came(struct cl_tcp_conn *c, const struct cl_tcp_record *r, const struct cl_tcp_segment *s);
/* Mark what is lost (steps 4 and 5). Returns whether something is that was not. *in_ns: in which time to look again; 0:
 * not by itself. */
bool cl_tcp_rack_detect(struct cl_tcp_conn *c, uint64_t *in_ns);
/* When a record that was sent at sent_ns is lost for sure (section 6.3: what a time-out takes for lost). */
bool cl_tcp_rack_is_old(const struct cl_tcp_conn *c, uint64_t sent_ns);
/* Something came twice: the window was too small, so it grows, once a round trip. */
void cl_tcp_rack_widen(struct cl_tcp_conn *c);
/* A recovery is over: the window that grew stays for some of them. */
void cl_tcp_rack_recovered(struct cl_tcp_conn *c);

#endif
