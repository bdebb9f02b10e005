/* The time from need to core, by the application's own stamps, on one worker core.
 *
 * A batch job has the core. Now and then it makes a uthread of another runtime of its process, a latency application
 * that has parked, as any thread that is none of a runtime's may: that is the need, and calls for help. The uthread's
 * first instruction is the core. Both stamps are cl_tsc() on the same core. Both runtimes are of one process, so that
 * the switch between their kthreads changes no address space: how the loop learns of the need is the same all the
 * same. */
#ifndef CORELANE_BENCH_LAB_NEEDS_H
#define CORELANE_BENCH_LAB_NEEDS_H

#include <corelane/libos/runtime.h>

// cffi: begin
/* n needs, each gap_ns to twice that after the last one was met (by `seed`), at most for limit_ns. Both runtimes have
 * started, and belong to the caller. needed[0..n), ticks[0..n): of each the stamp of the need, and from need to core.
 * Returns how many were met. -EINVAL, -ENOMEM, -EAGAIN (no uthread is left); -ETIMEDOUT: a need is still not met long
 * after that; then the runtimes may not be closed before the process ends. By a thread that is no kthread. */
CL_API int cl_lab_needs(struct cl_runtime *batch, struct cl_runtime *latency, uint64_t seed, uint64_t gap_ns,
                        uint64_t *needed, uint64_t *ticks, uint32_t n, uint64_t limit_ns);
// cffi: end

#endif
