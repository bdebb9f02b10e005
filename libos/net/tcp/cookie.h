/* SYN cookies (RFC 4987, section 3.6): a listener whose backlog is full answers a SYN and remembers nothing. What it
 * would have remembered comes back with the acknowledgement of its own SYN, and a connection is made of that.
 *
 *   our first number   29 bits of a keyed hash of the ends, the peer's number and the time, and an index of the MSS
 *   our timestamp      its low 6 bits: the peer's window scale, whether it takes SACK, and ECN
 *
 * A peer without timestamps gets none of these three. Whoever guesses numbers finds a right one in 2^28 tries, and
 * only while cookies were given out, in the last CL_TCP_COOKIE_NS.
 *
 * What is lost: an answer is not sent again. Its peer asks again, or if the acknowledgement was lost, says the same
 * with its first data.
 *
 * Tests: tests/libos/net/tcp/test_cookie.py; test_attacks.py (syn_flood, ack_flood); test_kernel.py. */
#ifndef CORELANE_LIBOS_NET_TCP_COOKIE_H
#define CORELANE_LIBOS_NET_TCP_COOKIE_H

#include "listen.h"

#define CL_TCP_COOKIE_PERIOD_BITS 36                         /* of the time in ns: 69 s */
#define CL_TCP_COOKIE_NS (2ull << CL_TCP_COOKIE_PERIOD_BITS) /* that a cookie is right, at most */

/* The answer to a SYN. Any thread. */
void cl_tcp_cookie_answer(struct cl_tcp_turn *turn, const struct cl_tcp_listener *l, const struct cl_flow_key *key,
                          const struct cl_tcp_segment *syn, struct cl_tcp_segment *answer);
/* Whether a segment that is of no connection acknowledges an answer of ours. Any thread. */
bool cl_tcp_cookie_right(const struct cl_tcp_turn *turn, const struct cl_flow_key *key, const struct cl_tcp_segment *s);
/* Whether one more connection may begin so; it is counted then. In spite of a full backlog: that is full of those who
 * do not answer. */
static inline bool cl_tcp_cookie_admit(struct cl_tcp_listener *l)
{
    if (!cl_tcp_takes(l))
        return false;
    __atomic_fetch_add(&l->pending, 1, __ATOMIC_RELAXED); /* a number */
    return true;
}
/* A block that was initialised becomes what it would be if it had taken the SYN, and is given s as its next segment. Of
 * one that was admitted; inside of a turn. */
void cl_tcp_cookie_take(struct cl_tcp_conn *c, struct cl_tcp_listener *l, const struct cl_tcp_segment *s);

#endif
