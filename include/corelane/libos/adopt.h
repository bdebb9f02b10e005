/* A kthread driven by a thread that is not ours: an event loop inside somebody's process turns it while it is busy, and
 * sleeps in its own epoll when it is not.
 *
 *   struct cl_runtime_config config = {.nic = nic, .adopted = 1};
 *   ... cl_runtime_new, cl_runtime_bind_udp, cl_runtime_start ...
 *   struct cl_sched *s = cl_runtime_sched(rt);
 *   cl_kthread_adopt(s, 0, err);
 *   epoll_ctl(epoll, EPOLL_CTL_ADD, cl_kthread_fd(s, 0), &readable);
 *   for (;;) {
 *       int again = cl_kthread_turn(s, 0);
 *       n = epoll_wait(epoll, events, 16, again > 0 ? 0 : -1);
 *       ... its other descriptors ...
 *   }
 *
 * A scheduler whose config says `adopted` = n starts no threads for its kthreads 0 to n-1. All else of them is as of
 * any kthread: siblings steal from them and they from siblings, they park and are woken by the same protocol
 * (libos/sched/idle.c), and a turn is what the loop of an ordinary one does between two looks at whether it is to end.
 *
 * A turn runs timers that are due, uthreads that are ready and what has come from the network, each as many as the loop
 * takes at a time. It never sleeps.
 *
 * Where an iokernel manages cores (docs/cores.md) a turn without a core returns 0, and the descriptor tells when the
 * kthread has one again; asked for its core, it gives it up at its next turn, or at a scheduling point or probe inside
 * of one. Between turns the thread should do little: while it has ceded its core, that time is an overrun. Code that
 * polls nothing, in a handler or of the event loop, is interrupted and waits in place for a core, as foreign code on
 * uthreads does.
 *
 * Whoever wakes a kthread counts on it to come. So turn it soon after the descriptor was readable. What waits
 * meanwhile, siblings take if there are any.
 *
 * The thread keeps its signal mask. Handlers run on its signal stack if they ask for it (SA_ONSTACK), else on a
 * uthread's stack, which has room for small ones. Where cores are managed it lets SIGURG through.
 *
 * A thread may adopt several kthreads, of one scheduler or of several. When it ends it has let go of them. After a fork
 * the child has no kthreads.
 *
 * Tests: tests/libos/sched/c/adopt.c, borrow.c, tests/libos/sched/test_adopt_model.py, tests/libos/test_adopt.py. */
#ifndef CORELANE_LIBOS_ADOPT_H
#define CORELANE_LIBOS_ADOPT_H

#include <corelane/libos/sched.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* Be the thread of kthread k, after cl_sched_start. -errno with a reason: -EINVAL it has one of its own, -EBUSY another
 * thread has adopted it or borrows it at this moment, -EALREADY this one has adopted it, -EDEADLK on a kthread,
 * -ESHUTDOWN, -ENOMEM. Where an iokernel manages the cores it is told of the kthreads when all of them have their
 * threads, and what it answers comes back here. */
CL_API int cl_kthread_adopt(struct cl_sched *sched, unsigned k, char err[256]);
/* One turn. 1: turn again, after a look at what else there is; poll mode says for how long it does so without work
 * (CL_SCHED_BLOCK: not at all). 0: nothing is to be done, and the descriptor is readable when there is; a call before
 * that costs some ns. Errors, each with its sentence in cl_adopt_error:
 *   -EPERM     this thread has not adopted it
 *   -EDEADLK   the call comes from inside a turn: from a handler, a timer or a uthread
 *   -ECHILD    this process was forked from the one that adopted it
 *   -ESHUTDOWN the scheduler has stopped
 *   -EINVAL    there is no such kthread, or it has a thread of its own */
CL_API int cl_kthread_turn(struct cl_sched *sched, unsigned k);
/* Readable (epoll, poll, select) when kthread k, whose last turn returned 0, has something to do. Not to be read. The
 * same for the life of the scheduler, which closes it. Readable before the first turn, and when the scheduler stops.
 * -EINVAL. Any thread. */
CL_API int cl_kthread_fd(const struct cl_sched *sched, unsigned k);
/* Whether only who turns kthread k sleeps for its descriptor, as of now; at first others may, too. Then the kernel is
 * not asked to tell of frames while k is up for long, which saves a part of each. k has a descriptor. By who turns it
 * next. */
CL_API void cl_kthread_alone(struct cl_sched *sched, unsigned k, bool alone);
/* Let go of it: another thread may adopt it. What comes until then waits, or siblings take it. -EPERM, -EDEADLK,
 * -ECHILD, -ESHUTDOWN; -EBUSY: an iokernel manages the cores, and counts on the thread that it was told of. */
CL_API int cl_kthread_let_go(struct cl_sched *sched, unsigned k);
/* A kthread that nobody has adopted, for who has threads that come and go and keeps none of them to it: the calling
 * thread is its thread for a moment. Not where an iokernel manages the cores. Or the calling thread's own, that it has
 * adopted, between two turns: there or not.
 * The first is one turn, as cl_kthread_turn. The second calls fn(arg) there, outside of uthreads: what would block
 * answers -EDEADLK, as in a timer's callback. What fn sends has left when it returns; the kthread is up then, so
 * somebody turns it until that returns 0, or what comes waits. Returns 0.
 *   -EBUSY      another thread is inside of it at this moment, or has adopted it
 *   -EDEADLK    the calling thread is inside of one
 *   -EOPNOTSUPP an iokernel manages the cores, and the calling thread has not adopted it
 *   -EAGAIN     (the second) it has, and is without a core: its descriptor tells when a turn has one
 *   -ECHILD, -ESHUTDOWN, -EINVAL  as cl_kthread_turn */
CL_API int cl_kthread_borrow_turn(struct cl_sched *sched, unsigned k);
CL_API int cl_kthread_borrow(struct cl_sched *sched, unsigned k, void (*fn)(void *arg), void *arg);
/* The same, by who answers on several connections one after the other and will turn the kthread soon: what fn sends
 * leaves when the NIC's queue is full, with what the next cl_kthread_borrow sends, or at the beginning of the next
 * turn. */
CL_API int cl_kthread_borrow_more(struct cl_sched *sched, unsigned k, void (*fn)(void *arg), void *arg);
/* Since when something waits that was sent so, by the scheduler's clock; 0: nothing does. Whoever finds that it waits
 * for long turns the kthread (cl_kthread_borrow_turn). Any thread. */
CL_API uint64_t cl_kthread_gathered_ns(const struct cl_sched *sched, unsigned k);
/* Whether the calling thread is inside of the latter. */
CL_API bool cl_kthread_more_follows(void);
/* The interpreter that runs on the calling thread begins to collect garbage, or has collected that of a generation: all
 * of the thread's kthreads, its own and those it has adopted, stand still meanwhile, which their traces tell. On any
 * thread, in a turn or not; does nothing where nothing is traced. */
CL_API void cl_kthread_collects(bool begins, uint32_t generation);
/* What an error of these calls means and what to do, as a sentence. */
CL_API const char *cl_adopt_error(int error);
// cffi: end

CL_EXTERN_C_END
#endif
