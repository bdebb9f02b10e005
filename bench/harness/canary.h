/* The canary: how long the machine itself keeps a spinning thread from running.
 *
 * One thread on each measured core reads the time stamp counter in a tight loop and files every gap between two
 * readings. A gap is time in which the core ran something else: the timer tick, an interrupt, another thread, the
 * hypervisor. No request served by that core can be answered within such a gap, so a latency percentile that the gaps
 * alone produce says nothing about the program under test (bench/harness/jitter.py draws that conclusion).
 *
 * The counter is scaled against CLOCK_MONOTONIC over the run itself, so no calibration is taken on trust. */
#ifndef CORELANE_BENCH_HARNESS_CANARY_H
#define CORELANE_BENCH_HARNESS_CANARY_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_CANARY_BUCKETS 512 /* eight an octave of ticks: no bucket is wider than an eighth of its start */
#define CL_CANARY_CPUS 16     /* cores watched at once, at most */

/* Written by the canary's thread, read after it has been joined. */
struct cl_canary {
    double seconds;     /* how long it watched */
    double ns_per_tick; /* of the counter, over this run */
    uint64_t polls;     /* readings of the counter */
    uint64_t max_ticks; /* longest gap */
    uint64_t count[CL_CANARY_BUCKETS];
    uint64_t ticks[CL_CANARY_BUCKETS]; /* sum of the gaps in the bucket */
};

/* Watch n cores at once for duration_ns; fills out[0..n-1]. Blocks for about that long. Gaps under floor_ns are part of
 * the loop and not filed. -errno with a reason in err (256 bytes) if a thread cannot be started or pinned. */
CL_API int cl_canary_watch(const int32_t *cpus, unsigned n, uint64_t duration_ns, uint64_t floor_ns,
                           struct cl_canary *out, char *err);
/* First tick count of bucket i. */
CL_API uint64_t cl_canary_bucket_start(unsigned i);
// cffi: end

#endif
