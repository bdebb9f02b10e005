/* Mutex, condition variable, semaphore, wait group for uthreads.
 *
 * Zeroed memory is a valid unlocked mutex, an empty condition variable or wait group, a semaphore of count 0. There is
 * nothing to destroy; the memory may go when nobody is inside a call on it, and the thread that was let through last by
 * an unlock, post or done may free it at once: the waker no longer touches it then.
 *
 * Waiters queue first in, first out. Blocking calls work only on a uthread (else -EDEADLK, nothing changed); calls
 * marked "any thread" work in timer callbacks and on foreign threads too. Timed waits end by a timer, at an instant of
 * cl_sched_now_ns(cl_runtime_sched(rt)). In a scope that is cancelled (scope.h) a call that would have to wait returns
 * -ECANCELED, and nothing has changed, so its result is looked at: who ignores it goes on without the mutex. Others may
 * still be inside a call then, and so the memory stays.
 *
 * Mutex: an unlock with waiters frees the mutex and wakes the first of them, and whoever comes first takes it (barging,
 * which avoids a switch per critical section); a waiter that has lost four times is given the mutex directly, so each
 * waiter is overtaken a bounded number of times. Semaphore and wait group hand over directly, so are strictly fair. */
#ifndef CORELANE_LIBOS_SYNC_H
#define CORELANE_LIBOS_SYNC_H

#include <corelane/libos/spin.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_waiter;
struct cl_uthread;

/* Waiting uthreads in order of arrival. Guarded by the lock beside it. */
struct cl_wait_list {
    struct cl_waiter *first, *last;
};

struct cl_mutex {
    uint64_t word; /* owner's address | bit 0: somebody waits | bit 1: a woken waiter is on its way; 0: free */
    struct cl_wait_list waiters;
    struct cl_spin guard;
};

struct cl_cond {
    struct cl_wait_list waiters; /* `first` is also read without the guard, to see that there is nobody to wake */
    struct cl_spin guard;
};

struct cl_sem {
    uint64_t word; /* count << 1 | bit 0: somebody waits (then the count is 0) */
    struct cl_wait_list waiters;
    struct cl_spin guard;
};

struct cl_wait_group {
    uint64_t word; /* count << 1 | bit 0: somebody waits */
    struct cl_wait_list waiters;
    struct cl_spin guard;
};

CL_API void cl_mutex_init(struct cl_mutex *m);
/* 0; -EDEADLK: the caller holds it, or this place may not block; -ECANCELED. */
CL_API int cl_mutex_lock(struct cl_mutex *m);
/* 0; -EBUSY; -EDEADLK elsewhere than on a uthread (a mutex has an owner). Does not block. */
CL_API int cl_mutex_trylock(struct cl_mutex *m);
/* 0; -EPERM: the caller does not hold it. */
CL_API int cl_mutex_unlock(struct cl_mutex *m);

CL_API void cl_cond_init(struct cl_cond *c);
/* Release m, sleep until signalled, lock m again. No wake-ups without a signal, but the predicate may be false again.
 * -EPERM: the caller does not hold m; -EDEADLK: this place may not block; -ECANCELED. m is held after any result. */
CL_API int cl_cond_wait(struct cl_cond *c, struct cl_mutex *m);
/* The same until an instant of cl_sched_now_ns; -ETIMEDOUT if no signal came before it. */
CL_API int cl_cond_wait_until(struct cl_cond *c, struct cl_mutex *m, uint64_t deadline_ns);
/* Wake the first waiter, or all. Any thread. The predicate must have been changed under m, or a waiter may miss it. */
CL_API void cl_cond_signal(struct cl_cond *c);
CL_API void cl_cond_broadcast(struct cl_cond *c);

CL_API void cl_sem_init(struct cl_sem *s, uint32_t count);
/* Take one, blocking while there is none. 0; -EDEADLK; -ECANCELED. */
CL_API int cl_sem_wait(struct cl_sem *s);
/* 0; -EAGAIN: none there. Any thread. */
CL_API int cl_sem_trywait(struct cl_sem *s);
/* -ETIMEDOUT if none came before that instant of cl_sched_now_ns. */
CL_API int cl_sem_wait_until(struct cl_sem *s, uint64_t deadline_ns);
/* Give one, to the first waiter if there are any. Any thread. */
CL_API void cl_sem_post(struct cl_sem *s);
/* Its first half, which makes no system call, so it may be done under a spin lock: give one. Returns who was let
 * through and sleeps until the caller calls cl_uthread_ready (sched.h); NULL: nobody waited. Any thread. */
CL_API struct cl_uthread *cl_sem_give(struct cl_sem *s);
/* The count at this instant. */
CL_API uint32_t cl_sem_value(const struct cl_sem *s);

CL_API void cl_wait_group_init(struct cl_wait_group *g);
/* Add to the count (negative: subtract). At 0 all waiters go on. -ERANGE, unchanged: it would leave 0..2^31-1.
 * Any thread. Adding to a count of 0 must not overlap a wait. */
CL_API int cl_wait_group_add(struct cl_wait_group *g, int32_t n);
/* Subtract one. */
CL_API int cl_wait_group_done(struct cl_wait_group *g);
/* Block while the count is not 0. 0; -EDEADLK; -ECANCELED. */
CL_API int cl_wait_group_wait(struct cl_wait_group *g);
// cffi: end

CL_EXTERN_C_END
#endif
