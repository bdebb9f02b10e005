/* The descriptor of an adopted kthread (adopt.c): readable when there is something to do while the kthread sleeps.
 *
 * It is an epoll descriptor, so that the caller's epoll, poll or select takes it as one. In it are
 *   the parker's eventfd   written by whoever wakes the kthread (runtime/park.c)
 *   the NIC's descriptor   of a device that the kernel serves; others wake the parker
 *   a timerfd              for the next timer, and for what nobody announces
 *
 * All are level-triggered, and nothing reads the epoll descriptor itself: when what made one readable is taken away, it
 * is not readable any more. A waker's write may come late, after the kthread is up again. Then one sleep ends for
 * nothing, as with every parker, and cl_wakefd_look takes the write away.
 *
 * While the kthread is up the descriptor says nothing. For a NIC's that is in an epoll the kernel calls back with each
 * frame that comes, and with each that has left, through all epoll descriptors above it. So that is taken out of a
 * kthread's that has been up for long, until it sleeps, where nobody else sleeps for it (cl_kthread_alone).
 *
 * Kthread only, but for cl_wakefd_new and _delete. */
#ifndef CORELANE_LIBOS_SCHED_WAKEFD_H
#define CORELANE_LIBOS_SCHED_WAKEFD_H

#include "internal.h"

/* Readable at first, until cl_wakefd_up. -errno with a reason. */
int cl_wakefd_new(struct cl_kthread *k, char err[256]);
void cl_wakefd_delete(struct cl_kthread *k);
/* Before the park word: what a NIC does before its user sleeps. */
void cl_wakefd_settle(struct cl_kthread *k);
/* After the park word, before the re-check. */
void cl_wakefd_parked(struct cl_kthread *k);
/* A turn had work, and k is up. */
void cl_wakefd_worked(struct cl_kthread *k);
/* After the re-check: be readable in ns, too (< 0: only when woken). */
void cl_wakefd_set(struct cl_kthread *k, int64_t ns);
/* That time is over. */
bool cl_wakefd_due(const struct cl_kthread *k);
/* Somebody has woken k. */
bool cl_wakefd_called(const struct cl_kthread *k);
/* k is up: what woke it is taken. */
void cl_wakefd_up(struct cl_kthread *k);
/* k sleeps and is asked to turn. If that comes to nothing again and again the descriptor may be readable of what is
 * over: take that. Before k looks whether there is something: what a waker has written since must stay. True: the
 * device shows an error, which the NIC is to see. */
bool cl_wakefd_look(struct cl_kthread *k);
/* Managed: it is time, and the core is another's. The iokernel knows of the timer; the descriptor is not to say it. */
void cl_wakefd_too_early(struct cl_kthread *k);
/* Have the descriptor be readable now, for who comes next. */
void cl_wakefd_call(struct cl_kthread *k);

#endif
