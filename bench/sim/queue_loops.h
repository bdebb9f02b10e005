/* A queue served by kthreads: what `corelane bench sim` compares its simulator with.
 *
 * Requests with arrival times and lengths drawn beforehand. A timer makes each a uthread when it is due; the uthread
 * spins for its length. One queue, n servers, first come first served as far as stealing makes it so: with one kthread
 * M/G/1, with two, M/G/2, in the scheduler's own currency and without a network. */
#ifndef CORELANE_BENCH_SIM_QUEUE_LOOPS_H
#define CORELANE_BENCH_SIM_QUEUE_LOOPS_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_BENCH_GAP_NS 1000 /* a kthread that was not seen for longer was stopped: nothing of ours takes as long */

/* When a kthread was stopped, and for how long, ns; of the same time as requests'. */
struct cl_bench_gap {
    uint64_t at_ns, length_ns;
};

/* What kthreads saw of being stopped: `room` entries for each; n[k]: how many gaps of kthread k are there. */
struct cl_bench_gaps {
    struct cl_bench_gap *gaps;
    uint64_t room;
    uint64_t n[64];
};

/* Run n requests on `kthreads` kthreads pinned to cpus[]. Request i is due at_ns[i] (ascending) after the start and
 * takes length_ns[i] of its kthread's time, in which gaps do not count. On return begun_ns[i] and ended_ns[i] say when
 * it began and ended, in the same time. Gaps are seen while requests are served and while kthreads are idle. -errno and
 * a reason in err. */
CL_API int cl_bench_queue(uint32_t kthreads, const int32_t *cpus, uint64_t n, const uint64_t *at_ns,
                          const uint64_t *length_ns, uint64_t *begun_ns, uint64_t *ended_ns, struct cl_bench_gaps *gaps,
                          char err[256]);
// cffi: end

#endif
