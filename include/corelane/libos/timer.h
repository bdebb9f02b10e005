/* Timers: a callback at an instant of the scheduler's clock, for protocol code and for timed waits.
 *
 * A timer is the caller's memory. It is armed on the kthread of the caller, in a heap that this kthread serves; a
 * sibling serves it when the kthread is busy. Callbacks run in the scheduler loop, not on a uthread: they may arm and
 * cancel timers, spawn and ready uthreads, post semaphores, signal condition variables; they may not block. A callback
 * may run on another kthread than the one that armed it, and may re-arm or free its own timer.
 *
 * A deadline is an instant of cl_sched_now_ns. The scheduler of a runtime is cl_runtime_sched(rt), and on a kthread
 * cl_sched_self() is the same one. On a uthread, for a call of fn(&timer, arg) in a millisecond:
 *
 *   cl_timer_init(&timer, fn, arg);
 *   uint64_t now_ns = cl_sched_now_ns(cl_runtime_sched(rt));
 *   int rc = cl_timer_arm(&timer, now_ns + 1000000);
 *
 * Timers of one kthread due at the same poll run in order of deadline; those of equal deadline in no particular order.
 * Cost: O(log n) in the timers armed on the kthread. At most 1 Mi less 64 are armed on one at a
 * time. Deadlines that mostly move on before they come are cheaper as alarms (wheel.h). */
#ifndef CORELANE_LIBOS_TIMER_H
#define CORELANE_LIBOS_TIMER_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_timer;
typedef void (*cl_timer_fn)(struct cl_timer *timer, void *arg);

/* All fields are the scheduler's; cl_timer_init makes one. Guarded by the lock of the heap that it is in. */
struct cl_timer {
    uint64_t deadline_ns;
    cl_timer_fn fn;
    void *arg;
    void *home;     /* kthread whose heap it is or was in; leaves a heap under its lock, read (acquire) before */
    void *kthreads; /* of its scheduler; constant from the first arming */
    uint32_t pos;   /* place in the heap + 1; 0: not armed */
    uint32_t fired; /* times that it was taken out to be run, * 128 + kthread that did it last + 1; 0: never */
};

CL_API void cl_timer_init(struct cl_timer *timer, cl_timer_fn fn, void *arg);
/* Arm, or move if it is armed. On a kthread (uthread or callback); does not block. -EPERM on a foreign thread; -ENOSPC.
 * Calls on one timer must not overlap each other (they may overlap its callback). */
CL_API int cl_timer_arm(struct cl_timer *timer, uint64_t deadline_ns);
/* Disarm, and wait for a callback that is just running elsewhere, so that afterwards the memory is the caller's. From
 * its own callback it does not wait; two callbacks must not cancel each other's timers, which would wait for ever.
 * Returns 1 if the timer was armed and now will not run, 0 if not. Any thread. */
CL_API int cl_timer_cancel(struct cl_timer *timer);
// cffi: end

CL_EXTERN_C_END
#endif
