/* What a look at the clock takes: what every stamp of a trace costs at least, and how finely anything can be measured
 * by two of them. Threads: the caller's. */
#ifndef CORELANE_BENCH_TRACE_STAMPS_H
#define CORELANE_BENCH_TRACE_STAMPS_H

#include <corelane/runtime/clock.h>

// cffi: begin
/* The time of n looks one after the other, in ticks. */
CL_API uint64_t cl_bench_stamps(uint32_t n);
// cffi: end

#endif
