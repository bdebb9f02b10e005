/* Scopes: uthreads that are started together end together.
 *
 * A scope is opened by a uthread, its owner, and closed by the same. Uthreads are started in it, and closing it waits
 * for all of them: none outlives its scope, and the first error of one of them is what closing returns. The idea is
 * that of trio's nurseries (N. J. Smith, "Notes on structured concurrency", 2018), and so are the rules of cancelling.
 *
 *   struct cl_scope *scope;
 *   int rc = cl_scope_open(cl_sched_now_ns(cl_sched_self()) + 1000000, &scope);
 *   if (rc == 0) {
 *       cl_scope_spawn(scope, ask, &first);
 *       cl_scope_spawn(scope, ask, &second);
 *       rc = cl_scope_close(scope);
 *   }
 *
 * here: 0 if both have ended well; what the first one that failed returned; -ETIMEDOUT if the millisecond was over.
 *
 * Cancelling. A scope is cancelled by cl_scope_cancel, by its deadline, by the first error, or since a scope around it
 * is. That holds for its owner, for the uthreads in it, and for all scopes that those have opened. From then on each
 * of their calls that would have to wait returns -ECANCELED at once, and those that wait already are brought back with
 * it: sleeps, mutexes, condition variables, semaphores, wait groups, joins, channels (channel.h), and what is made of
 * them, which is all waiting of UDP and stream sockets and of poll sets. A call that need not wait does its work as
 * ever, so that what was begun can be cleaned up; one that must wait for that is shielded (cl_shield_enter). Nothing
 * of a call that was cancelled has happened. A condition variable's mutex is held again, as after any result.
 *
 * An append to a log that is under way is not undone: its uthread waits until it is durable, or the device has failed.
 * One that has not begun, since the log's buffers are full, say, returns -ECANCELED when it would begin. Storage
 * requests (cl_storage_*) are waited for, too.
 *
 * Code that computes and never waits is not stopped: it asks cl_uthread_cancelled.
 *
 * Cost: a uthread in a scope takes an uncontended lock before and after each wait. One in no scope pays nothing. */
#ifndef CORELANE_LIBOS_SCOPE_H
#define CORELANE_LIBOS_SCOPE_H

#include <corelane/libos/sched.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_SCOPE_FOREVER 18446744073709551615ull /* no deadline */
#define CL_SCOPE_COPY_BYTES 1024

struct cl_scope;
/* What a uthread of a scope runs. < 0: an error, which cancels the rest. */
typedef int64_t (*cl_scope_fn)(void *arg);

/* Open one in the scope that the caller is in, if it is in any. It is cancelled at deadline_ns of cl_sched_now_ns; one
 * that is past cancels it at once. On a uthread, which is the owner. -EDEADLK elsewhere; -ENOMEM; -ENOSPC (timer.h). */
CL_API int cl_scope_open(uint64_t deadline_ns, struct cl_scope **out);
/* Wait until all its uthreads have ended, and free it: it waits for them also when it is cancelled. 0; or why it was
 * cancelled: the first error; -ETIMEDOUT: its deadline; -ECANCELED: by cl_scope_cancel or from around it. The owner
 * only: -EINVAL for others, or while a scope that it has opened later is open; -EDEADLK: this place may not block. What
 * a uthread has left open when its function returns is cancelled and closed then. */
CL_API int cl_scope_close(struct cl_scope *scope);
/* Start fn(arg) on a uthread in it. By its owner and its uthreads. Does not block. -ECANCELED: it is cancelled, so
 * nothing is started; -EAGAIN as cl_uthread_spawn; -EINVAL: no function. */
CL_API int cl_scope_spawn(struct cl_scope *scope, cl_scope_fn fn, void *arg);
/* The same with a copy of `bytes` bytes in the place of arg, on the new uthread's stack: the caller's may change or go.
 * -EMSGSIZE: more than CL_SCOPE_COPY_BYTES. */
CL_API int cl_scope_spawn_copy(struct cl_scope *scope, cl_scope_fn fn, const void *data, uint32_t bytes);
/* Cancel it; it stays to be closed. The first time counts. Any thread and any callback that knows it to be open. */
CL_API void cl_scope_cancel(struct cl_scope *scope);
/* The same with a reason < 0: what went wrong in the owner's own part. */
CL_API void cl_scope_fail(struct cl_scope *scope, int error);
/* Move its deadline. The owner only. 0; -EINVAL; -ENOSPC. */
CL_API int cl_scope_deadline(struct cl_scope *scope, uint64_t deadline_ns);
/* Why it was cancelled, as cl_scope_close will say; 0: it is not. As cl_scope_cancel. */
CL_API int cl_scope_why(const struct cl_scope *scope);
/* Uthreads in it that have not ended. As cl_scope_cancel. */
CL_API uint32_t cl_scope_running(const struct cl_scope *scope);

/* The scope that the calling uthread is in, the innermost; NULL: it is in none. */
CL_API struct cl_scope *cl_scope_self(void);
/* Cancel and close what the caller has opened since it was in `to`: for who calls code that may have left some. */
CL_API void cl_scope_unwind(struct cl_scope *to);
/* 1: the scope that the caller is in is cancelled. 0: it is not, or the caller is in none or shielded. */
CL_API int cl_uthread_cancelled(void);
/* Between the two a cancel does not reach the calling uthread's waits. It reaches uthreads of its scopes. Nests; does
 * nothing elsewhere than on a uthread. */
CL_API void cl_shield_enter(void);
CL_API void cl_shield_leave(void);

/* A scope without an owner and without a deadline, for threads that are not the scheduler's: they start uthreads in it,
 * cancel it, and wait for them. -ENOMEM. Any thread. */
CL_API int cl_scope_new(struct cl_sched *sched, struct cl_scope **out);
/* Of such a one: fn(arg) is called when the last uthread in it ends, by that one; it must not block, nor use the scope.
 * NULL: nobody is. If none runs, it is called at once. Any thread. */
CL_API void cl_scope_watch(struct cl_scope *scope, void (*fn)(void *arg), void *arg);
/* Free such a one. -EBUSY: uthreads run in it; -EINVAL: it has an owner. NULL is allowed. It goes with its scheduler at
 * the latest. Any thread. */
CL_API int cl_scope_delete(struct cl_scope *scope);
// cffi: end

CL_EXTERN_C_END
#endif
