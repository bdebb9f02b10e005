/* Round trips and the retransmission time-out (RFC 6298), in ns.
 *
 * A sample is taken of data that was sent once (Karn's rule, section 3), or by timestamps (RFC 7323, section 4). With
 * many samples a round trip the gains are divided by how many there are (RFC 7323, appendix G), so that their memory
 * stays one of round trips. */
#ifndef CORELANE_LIBOS_NET_TCP_RTT_H
#define CORELANE_LIBOS_NET_TCP_RTT_H

#include <corelane/runtime/base.h>

#define CL_TCP_RTO_FIRST_NS 1000000000ull  /* section 2.1 */
#define CL_TCP_RTO_MOST_NS 120000000000ull /* section 2.5: 60 s or more */
#define CL_TCP_RTO_DOUBLINGS 16

struct cl_tcp_rtt {
    uint64_t smoothed_ns;  /* SRTT; 0: no sample yet */
    uint64_t variation_ns; /* RTTVAR */
    uint32_t least_ns;     /* the least of all, 4 s at most: what RACK takes for the path's own; 0: none */
    uint8_t doublings;     /* back-off since data was acknowledged last (section 5.5) */
    /* Of RACK (RFC 8985, section 6.2): the reordering window is 1 + reorder_more steps of RTT/4, as long as
     * reorder_keep, which each recovery makes less by one, is not 0. */
    uint8_t reorder_more, reorder_keep : 7;
    uint8_t reordered : 1; /* segments of this connection have passed each other */
    uint8_t undo_left;     /* retransmissions that no DSACK has called needless; UINT8_MAX: too many to count */
};

/* A round trip that says nothing of how long peers wait before they acknowledge. */
static inline void cl_tcp_rtt_least(struct cl_tcp_rtt *r, uint64_t ns)
{
    uint32_t low = (uint32_t)cl_min(cl_max(ns, (uint64_t)1), (uint64_t)UINT32_MAX);
    if (low - 1 < r->least_ns - 1) /* of none the most */
        r->least_ns = low;
}

/* A sample. samples: how many come a round trip, at least 1. */
static inline void cl_tcp_rtt_sample(struct cl_tcp_rtt *r, uint64_t ns, unsigned samples)
{
    ns = cl_max(ns, (uint64_t)1);
    cl_tcp_rtt_least(r, ns);
    if (r->smoothed_ns == 0) {
        r->smoothed_ns = ns;
        r->variation_ns = ns / 2;
        return;
    }
    uint64_t apart = ns > r->smoothed_ns ? ns - r->smoothed_ns : r->smoothed_ns - ns;
    int64_t toward = (int64_t)ns - (int64_t)r->smoothed_ns;
    if (cl_likely(samples <= 1)) { /* without a division by what is not known before */
        r->variation_ns = (uint64_t)((int64_t)r->variation_ns + ((int64_t)apart - (int64_t)r->variation_ns) / 4);
        r->smoothed_ns = (uint64_t)((int64_t)r->smoothed_ns + toward / 8);
        return;
    }
    r->variation_ns =
        (uint64_t)((int64_t)r->variation_ns + ((int64_t)apart - (int64_t)r->variation_ns) / (int64_t)(4 * samples));
    r->smoothed_ns = (uint64_t)((int64_t)r->smoothed_ns + toward / (int64_t)(8 * samples));
}

/* The time-out now, back-off included. least_ns: what the connection allows at least; it bounds the variation's part,
 * so that a path whose round trips do not vary is not timed out by a delayed acknowledgement. */
static inline uint64_t cl_tcp_rto_ns(const struct cl_tcp_rtt *r, uint64_t least_ns)
{
    uint64_t rto = r->smoothed_ns ? r->smoothed_ns + cl_max(4 * r->variation_ns, least_ns) : CL_TCP_RTO_FIRST_NS;
    rto <<= cl_min((unsigned)r->doublings, (unsigned)CL_TCP_RTO_DOUBLINGS);
    return cl_min(rto, CL_TCP_RTO_MOST_NS);
}

#endif
