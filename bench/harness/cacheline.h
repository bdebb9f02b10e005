/* The cross-core cache-line round trip: one word in one cache line, written in turn by two pinned threads.
 *
 * It is the floor of any hand-over between two cores and depends on where the host has put the (virtual) cores this
 * minute, so every latency that crosses cores is also given as a multiple of it, taken in the same run. */
#ifndef CORELANE_BENCH_HARNESS_CACHELINE_H
#define CORELANE_BENCH_HARNESS_CACHELINE_H

#include <corelane/runtime/base.h>

// cffi: begin
/* Fills out_ns[0..batches-1], each the mean round trip in ns of `rounds` round trips between the two cpus. Stops after
 * limit_ns at the latest. Returns the number of batches measured, or -errno with a reason in err (256 bytes). */
CL_API int cl_cacheline_roundtrip(int cpu_a, int cpu_b, unsigned rounds, unsigned batches, uint64_t limit_ns,
                                  double *out_ns, char *err);
// cffi: end

#endif
