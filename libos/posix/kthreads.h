/* Who turns the runtime's kthreads. None has a thread of its own.
 *
 *   call    a thread borrows a kthread for one call into the stack: the one that it keeps, or any that is free
 *   keep    a thread that waits for connections keeps a kthread: it turns it while it waits, and its descriptor is
 *           among those for which it sleeps
 *   rest    the caretaker, a thread of ours, turns all that nobody keeps. Now and then it looks at those that are kept:
 *           from a thread that has not turned its kthread since, and does not sleep for it, it takes it back
 *
 * Whoever is inside of a kthread is so for microseconds; who finds all busy gives its core away and looks again.
 *
 * Where an iokernel manages the cores none of this holds: kthreads have threads of their own, which run where and when
 * they have a core, and the program's threads run as Linux has them. A call is then a uthread's, for which the caller
 * sleeps. */
#ifndef CORELANE_LIBOS_POSIX_KTHREADS_H
#define CORELANE_LIBOS_POSIX_KTHREADS_H

#include <corelane/libos/runtime.h>

/* Of a runtime that has been started, with all its kthreads `adopted`: they may be borrowed. -errno. */
int cl_posix_kthreads_open(struct cl_runtime *rt);
/* Whether an iokernel manages the cores. */
bool cl_posix_kthreads_managed(void);
/* Start to care for them: what comes is answered from now on, so its listeners are open. -errno. */
int cl_posix_kthreads_care(void);
/* Run fn(arg) on a kthread: nothing in it may block. 0; -EDEADLK: the thread is inside of one already, as a signal's
 * handler may be; -ECHILD. */
int cl_posix_run(void (*fn)(void *arg), void *arg);
/* The same of one that answers, or at least sends, to what is told apart by `to` (its socket). */
int cl_posix_run_sender(void (*fn)(void *arg), void *arg, const void *to);
/* A wait has told the calling thread of n events. What it sends on the kthread that it keeps leaves together: at its
 * n-th answer, with its next turn, which is before it waits again, or at the first that comes GATHER_NS after the
 * first. If it makes no call others see to it (kthreads.c). */
void cl_posix_told_of(int n);
/* What the calling thread writes now may wait for what it writes next. */
bool cl_posix_gathers(void);
/* How many answers have waited for others, and how often those of a thread that did not go on had to be sent for it.
 * Any thread. */
CL_API void cl_posix_gathered(uint64_t *gathers, uint64_t *rescues);
/* One turn of all that are free: of what somebody has left undone. */
void cl_posix_turn_all(void);
/* What was sent to ourselves comes now, as by Linux, and what answers it. */
void cl_posix_deliver(void);

/* Keep a kthread from now on, if one is to be had. */
void cl_posix_keep(void);
/* Whether what comes is seen to while the thread makes no call: it keeps a kthread, or they have their own threads. */
bool cl_posix_keeps(void);
/* One turn of the kthread that the thread keeps. alone: nobody else sleeps for its descriptor, as of now. True: turn
 * again before sleeping. */
bool cl_posix_turn(bool alone);
/* Around a sleep, after a turn that returned false: the descriptor for which to sleep, too, or -1. `begin` false: do
 * not sleep, but turn again. */
bool cl_posix_sleep_begin(int *fd);
void cl_posix_sleep_end(void);
/* The number of the kthread that the thread keeps; it keeps one. */
unsigned cl_posix_kept(void);
/* The same and 1; 0: it keeps none, or there is no other. */
uint32_t cl_posix_here(void);
/* Connections were told of something on the calling kthread: one whose home (and 1) is this. */
void cl_posix_count_told(uint32_t home);
/* Its descriptor. */
int cl_posix_kthread_fd(unsigned k);
/* The descriptor of kthread k was readable, which is perhaps another's: turn it for him. False: nobody keeps it, and
 * the caretaker sees to it. */
bool cl_posix_turn_for(unsigned k);

#endif
