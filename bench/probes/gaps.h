/* Gaps between probes: a function to call instead of cl_probe_slow, which notes when it was called.
 *
 * A kernel is compiled with probes that act as if the word were never 0 and that call cl_bench_gap
 * (libos/batch_work/probes.py, Target). One thread at a time: the measured code runs alone. What noting takes lies
 * within the gaps, and is measured by calling it back to back. */
#ifndef CORELANE_BENCH_PROBES_GAPS_H
#define CORELANE_BENCH_PROBES_GAPS_H

#include <corelane/runtime/base.h>

// cffi: begin
/* Begin: keep the gaps, in ticks, in out[0..n-1]. The first call of cl_bench_gap only starts the clock. */
CL_API void cl_bench_gaps_begin(uint32_t *out, uint64_t n);
/* End; the number of gaps that came, which may be more than were kept. */
CL_API uint64_t cl_bench_gaps_end(void);
CL_API void cl_bench_gap(void);
/* What comes next does not follow what came last: the caller did something else in between. */
CL_API void cl_bench_gaps_pause(void);
/* n calls of cl_bench_gap back to back. */
CL_API void cl_bench_gaps_repeat(unsigned n);
// cffi: end

#endif
