/* What the kernel's own ways of giving a core to another process take: the raw arms of `corelane bench handoff`.
 *
 * Two processes run on one core, an old owner that computes and a new one that waits; a third thread, on another core,
 * decides again and again that the new one is to have it. Measured is the time from just before the decision's first
 * store or system call to the new owner's first instruction, both stamps of the time-stamp counter. After a microsecond
 * of work the new owner gives the core back and the next round begins when the old one computes again.
 *
 * Two processes, not two threads: a switch between them changes the address space as well. They are forked for a run
 * and killed at its end, and end with the thread that forked them. Every wait has a deadline; a round in which the new
 * owner did not begin by then is `missed`. */
#ifndef CORELANE_BENCH_HANDOFF_LOOPS_H
#define CORELANE_BENCH_HANDOFF_LOOPS_H

#include <corelane/runtime/base.h>

// cffi: begin
/* The old owner computes: it polls a flag every 100 ns ... */
#define CL_HANDOFF_YIELD 0 /* ... and calls sched_yield(), as the new one does while it waits */
#define CL_HANDOFF_FUTEX 1 /* ... and wakes the new one by futex, then sleeps on its own */
/* ... or polls nothing: */
#define CL_HANDOFF_SIGNAL 2 /* tgkill; the handler calls sched_yield() */
#define CL_HANDOFF_WAKE 3   /* FUTEX_WAKE of the new owner; the kernel is to preempt the old one, of nice 0 as well */
#define CL_HANDOFF_WAKE_IDLE 4 /* the same, and the old one is SCHED_IDLE */
/* As the first Shenango: tgkill, the handler reports and blocks in read() of an eventfd; then sched_setaffinity of the
 * new owner and write() to its eventfd. */
#define CL_HANDOFF_EVENTFD 5
/* Nobody computes; the new owner waits in the same way. */
#define CL_HANDOFF_IDLE_YIELD 6
#define CL_HANDOFF_IDLE_FUTEX 7
#define CL_HANDOFF_IDLE_EVENTFD 8
#define CL_HANDOFF_IDLE_SIGNAL 9 /* in sigwaitinfo() */
#define CL_HANDOFF_WAYS 10

struct cl_handoff_config {
    uint32_t way; /* CL_HANDOFF_... */
    int32_t decider_cpu, worker_cpu;
    uint32_t settle_ns; /* from the moment that everything is as before to the next decision */
    uint32_t rounds;    /* at most */
    uint64_t limit_ns;  /* for all of them */
};

/* One hand-over, ns from the decision. */
struct cl_handoff_times {
    double began; /* the new owner's first instruction */
    double seen;  /* the old owner has seen the flag, and is about to enter the kernel; 0: it does not look */
};

struct cl_handoff_result {
    uint32_t rounds; /* those in which the new owner began: entries of `times` */
    uint32_t missed; /* those in which it did not within 20 ms */
};

/* Run rounds until they are done or time is up. times: room for config->rounds. The calling thread is pinned to
 * decider_cpu meanwhile. -errno with a reason in err[256]: a CPU that is not ours, no process or memory to be had, or
 * the two never got to where a round begins. */
CL_API int cl_handoff_run(const struct cl_handoff_config *config, struct cl_handoff_times *times,
                          struct cl_handoff_result *out, char *err);
// cffi: end

#endif
