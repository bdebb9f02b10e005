/* The least TCP that answers a request: what no server can leave out, if each request waits for the answer before it.
 *
 *   - the IPv4 header and the segment are summed
 *   - the connection is found by its addresses and ports, of as many as there are
 *   - number, acknowledgement, window and timestamp are compared with its own (RFC 9293, section 3.10.7.4; RFC 7323,
 *     section 5); what does not fit is dropped
 *   - the answer is kept until it is acknowledged, with the time at which it would be sent again
 *   - the answer is written where the request was, and summed
 *
 * Nothing is sent again, and nothing else is there: no user, buffers, congestion, kthreads, counters or traces. A
 * segment of a connection that it does not know begins one where the segment says, so that a client's connections
 * outlive it. Peers must lose nothing, send in order and reset nothing. */
#ifndef CORELANE_BENCH_TCP_MINIMAL_H
#define CORELANE_BENCH_TCP_MINIMAL_H

#include <corelane/drivers/nic.h>

struct cl_minimal;

/* NULL: out of memory. */
struct cl_minimal *cl_minimal_new(void);
void cl_minimal_free(struct cl_minimal *m);

/* Make the answer of a segment, in its place. False: there is none. */
bool cl_minimal_turn(struct cl_minimal *m, struct cl_frame *f, uint64_t now_ns);

#endif
