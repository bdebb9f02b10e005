/* A canary that takes a core away from what runs on it, now and then, and notes when: for `trace.gap_found`. It knows
 * what the machine did to the other thread, since it did it itself.
 *
 * It sleeps for 1 to 4 ms, by a seed, and then has the core for least_ns to most_ns, which is no less. Under
 * SCHED_FIFO, where that is permitted, it has it at once; else when the kernel lets it.
 * Threads: one of its own, pinned. */
#ifndef CORELANE_BENCH_TRACE_TAKER_H
#define CORELANE_BENCH_TRACE_TAKER_H

#include <corelane/runtime/clock.h>

// cffi: begin
struct cl_bench_taken {
    uint64_t begin, end; /* stamps of cl_tsc */
};

struct cl_bench_taker;

/* Start it on a CPU, with room for so many, 1 at least. -errno with one line in err. */
CL_API int cl_bench_taker_start(int cpu, uint64_t seed, uint64_t least_ns, uint64_t most_ns, uint32_t room,
                                struct cl_bench_taker **out, char err[256]);
/* Whether it is under SCHED_FIFO. */
CL_API bool cl_bench_taker_is_first(const struct cl_bench_taker *t);
/* Stop it, when it has taken the core once at least, and copy what it has taken. Returns how many; *t is gone. */
CL_API int64_t cl_bench_taker_stop(struct cl_bench_taker *t, struct cl_bench_taken *out, uint32_t room);
// cffi: end

#endif
