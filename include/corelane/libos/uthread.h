/* User-level threads: what code running on one may do. How they are scheduled: sched.h; one page:
 * docs/uthreads.md.
 *
 * "On a uthread" below means: in code that a scheduler runs, not in a timer callback, not between
 * cl_sched_no_switch_enter and leave. Calls that would have to block anywhere else answer -EDEADLK. */
#ifndef CORELANE_LIBOS_UTHREAD_H
#define CORELANE_LIBOS_UTHREAD_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* The thread itself: only ever a pointer, good until the uthread ends. */
struct cl_uthread;
/* A name for a uthread that is never used again: a stale one is refused, not confused with a later thread's. 0: none.
 */
typedef uint64_t cl_uthread_id;
typedef void (*cl_uthread_fn)(void *arg);

/* Start fn(arg) on a new uthread of the caller's scheduler; it runs at the next scheduling point at the earliest. With
 * out == NULL it is detached; else somebody must join or detach it. On a uthread or in a timer callback; does not
 * block. -EAGAIN: max_uthreads exist or memory is short; -EPERM: on a foreign thread (use cl_sched_spawn). */
CL_API int cl_uthread_spawn(cl_uthread_fn fn, void *arg, cl_uthread_id *out);
/* Wait until it has ended and release it. On a uthread; may block. -ESRCH: no such thread, or joined already, or
 * detached and gone; -EINVAL: detached, or somebody else is joining it; -EDEADLK: itself, or this place may not block.
 * -ECANCELED (scope.h): it is still to be joined. */
CL_API int cl_uthread_join(cl_uthread_id id);
/* Nobody will join it. Does not block. -ESRCH and -EINVAL as for join; -EPERM on a foreign thread. */
CL_API int cl_uthread_detach(cl_uthread_id id);
/* Let the other runnable uthreads go first, and poll the network if there are none. -EDEADLK: nothing happened. */
CL_API int cl_uthread_yield(void);
/* Whether others would run on this kthread right after the caller, if that blocked now. A guess where siblings
 * steal. */
CL_API bool cl_uthread_others_ready(void);
/* End the calling uthread as if its function had returned. Elsewhere than on a uthread: returns -EDEADLK. */
CL_API int cl_uthread_exit(void);
/* The calling uthread; NULL elsewhere. */
CL_API struct cl_uthread *cl_uthread_self(void);
CL_API cl_uthread_id cl_uthread_id_of(const struct cl_uthread *t);
/* One pointer that belongs to the calling uthread, NULL at its start: what a thread-local cannot be here. NULL, and
 * -EPERM for set, elsewhere. */
CL_API void *cl_uthread_local(void);
CL_API int cl_uthread_set_local(void *local);
/* Where the calling uthread has another such pointer, of compiled code's memory (libos/service/memory.h). NULL
 * elsewhere. */
CL_API void **cl_uthread_memory(void);
/* Sleep for at least so long on the scheduler's clock. On a uthread. -EDEADLK; -ENOSPC: too many timers (timer.h).
 * -ESHUTDOWN: the scheduler stops, so the sleep is cut short, and so is each that follows: the uthread ends its
 * work. -ECANCELED: the same of a scope that is cancelled (scope.h). */
CL_API int cl_uthread_sleep_ns(uint64_t ns);
/* The same until an instant of cl_sched_now_ns(cl_sched_self()). Returns at once if it has passed. */
CL_API int cl_uthread_sleep_until_ns(uint64_t deadline_ns);
/* 1: the scheduler of the calling kthread stops, and waits for its uthreads for a while (cl_sched_stop,
 * cl_runtime_stop): one that goes on for ever ends now. 0: it does not, or this is a foreign thread. */
CL_API int cl_uthread_stopping(void);
/* Bytes of stack left below the caller's frame; 0 elsewhere than on a uthread. */
CL_API uint64_t cl_uthread_stack_left_bytes(void);
// cffi: end

CL_EXTERN_C_END
#endif
