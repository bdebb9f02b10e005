/* Round trips to a peer, and the times that follow from them: the timeout of RFC 6298, with Karn's rule, which the
 * caller keeps (what was sent twice is no sample); when to probe (RFC 8985, section 7); when one that later ones have
 * overtaken is lost (section 6). */
#ifndef CORELANE_APPS_RAFT_TRANSPORT_RTT_H
#define CORELANE_APPS_RAFT_TRANSPORT_RTT_H

#include <corelane/runtime/base.h>

#define RAFT_RTT_MS 1000000ull
#define RAFT_ACK_DELAY_NS (RAFT_RTT_MS / 4)
#define RAFT_PROBE_LEAST_NS                                                                                            \
    (RAFT_RTT_MS / 2) /* more than RAFT_ACK_DELAY_NS by a grain of the service's timer, and a round trip */
#define RAFT_TIMEOUT_FIRST_NS (20 * RAFT_RTT_MS) /* before there is a round trip to go by */
#define RAFT_TIMEOUT_LEAST_NS (5 * RAFT_RTT_MS)  /* a receiver may be late: a write holds it up */
#define RAFT_TIMEOUT_MOST_NS (200 * RAFT_RTT_MS)
#define RAFT_TIMEOUT_GRANULE_NS RAFT_RTT_MS

struct raft_rtt {
    uint64_t smooth_ns, off_ns; /* SRTT and RTTVAR; 0: none was measured */
    uint64_t least_ns;
    uint32_t backoff; /* doublings */
};

static inline void raft_rtt_sample(struct raft_rtt *r, uint64_t ns)
{
    uint64_t off = ns > r->smooth_ns ? ns - r->smooth_ns : r->smooth_ns - ns;
    r->off_ns = r->smooth_ns ? (3 * r->off_ns + off) / 4 : ns / 2;
    r->smooth_ns = cl_max(r->smooth_ns ? (7 * r->smooth_ns + ns) / 8 : ns, 1ull);
    r->least_ns = r->least_ns ? cl_min(r->least_ns, ns) : ns;
    r->backoff = 0;
}

static inline uint64_t raft_rtt_timeout_ns(const struct raft_rtt *r)
{
    uint64_t ns = RAFT_TIMEOUT_FIRST_NS;
    if (r->smooth_ns)
        ns = cl_max(r->smooth_ns + cl_max(4 * r->off_ns, RAFT_TIMEOUT_GRANULE_NS), RAFT_TIMEOUT_LEAST_NS);
    return cl_min(ns << r->backoff, RAFT_TIMEOUT_MOST_NS);
}

static inline void raft_rtt_double(struct raft_rtt *r)
{
    r->backoff += raft_rtt_timeout_ns(r) < RAFT_TIMEOUT_MOST_NS;
}

/* Of one that was sent that long ago, and of which nothing is known though later ones have come, it is known: it is
 * lost. */
static inline uint64_t raft_rtt_late_ns(const struct raft_rtt *r)
{
    return r->smooth_ns + cl_max(4 * r->off_ns, r->smooth_ns / 8);
}

/* After so long in which nothing was sent or acknowledged one goes again, to be acknowledged; the times-th in a row. */
static inline uint64_t raft_rtt_probe_ns(const struct raft_rtt *r, uint32_t times)
{
    uint64_t ns = cl_max(cl_max(2 * r->smooth_ns, raft_rtt_late_ns(r)), (uint64_t)RAFT_PROBE_LEAST_NS);
    return r->smooth_ns && times < 8 ? ns << times : UINT64_MAX;
}

#endif
