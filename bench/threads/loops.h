/* The loops behind `corelane bench threads`: the same work on uthreads and on pthreads.
 *
 * One core: all threads of an arm are pinned to it, so a hand-over is a switch and nothing else. Two cores: each side
 * is pinned to a core of its own; uthreads then are in two schedulers, since within one they would gather on one
 * kthread. pthread arms use what an expert would: default (fast) mutexes, condition variables signalled under the
 * mutex, 64 KiB stacks from glibc's cache, sem_t; loops and counts are the same. */
#ifndef CORELANE_BENCH_THREADS_LOOPS_H
#define CORELANE_BENCH_THREADS_LOOPS_H

#include <corelane/runtime/base.h>

// cffi: begin
/* The loops, n operations each:
 *   yield      two threads, each yields n / 2 times
 *   spawn      one spawns a thread that does nothing and joins it
 *   mutex      one locks and unlocks a free mutex
 *   condvar    two hand a turn to and fro under a mutex
 *   semaphore  two post each other's semaphore and wait on their own */
#define CL_BENCH_THREADS_YIELD 0
#define CL_BENCH_THREADS_SPAWN 1
#define CL_BENCH_THREADS_MUTEX 2
#define CL_BENCH_THREADS_CONDVAR 3
#define CL_BENCH_THREADS_SEMAPHORE 4
#define CL_BENCH_THREADS_LOOPS 5

/* What a run took. switches: context switches during it, by the scheduler's or by the kernel's own count. */
struct cl_bench_threads_result {
    uint64_t ns, operations, switches;
};

/* Run loop `what` with n operations (2 to 2^40) on core `cpu`; with other_cpu >= 0, only for the semaphore, the second
 * thread is there. Uthreads if `ours`, else pthreads. -errno and a reason in err. */
CL_API int cl_bench_threads(uint32_t what, bool ours, int cpu, int other_cpu, uint64_t n,
                            struct cl_bench_threads_result *out, char err[256]);
// cffi: end

#endif
