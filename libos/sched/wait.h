/* Lists of waiting uthreads, and timed waits: what mutex.c, cond.c and sem.c share. */
#ifndef CORELANE_LIBOS_SCHED_WAIT_H
#define CORELANE_LIBOS_SCHED_WAIT_H

#include <corelane/libos/sync.h>
#include "internal.h"

/* One uthread in one wait list; it is on the uthread's stack. Guarded by the lock beside the list until it has been
 * taken off; from then on it belongs to who took it off, and from cl_uthread_ready on to the uthread. */
struct cl_waiter {
    struct cl_waiter *next, *prev;
    struct cl_uthread *t;
    struct cl_wait_list *list; /* NULL: taken off */
    struct cl_spin *guard;
    int result;    /* what the wait returns */
    uint32_t lost; /* mutex: times that it was woken and somebody else had been quicker */
    bool given;    /* mutex: it owns the mutex already */
    struct cl_timer timer;
};

static inline void cl_wait_push(struct cl_wait_list *l, struct cl_waiter *w, bool at_front)
{
    struct cl_waiter *next = at_front ? l->first : NULL, *prev = at_front ? NULL : l->last;
    w->list = l;
    w->next = next;
    w->prev = prev;
    /* Relaxed: the guard publishes; atomic at all since cl_cond_signal reads `first` without it. */
    if (prev)
        prev->next = w;
    else
        cl_store_relaxed(&l->first, w);
    if (next)
        next->prev = w;
    else
        l->last = w;
}

static inline void cl_wait_remove(struct cl_waiter *w)
{
    struct cl_wait_list *l = w->list;
    if (w->prev)
        w->prev->next = w->next;
    else
        cl_store_relaxed(&l->first, w->next);
    if (w->next)
        w->next->prev = w->prev;
    else
        l->last = w->prev;
    w->list = NULL;
}

static inline struct cl_waiter *cl_wait_pop(struct cl_wait_list *l)
{
    struct cl_waiter *w = l->first;
    if (w)
        cl_wait_remove(w);
    return w;
}

/* Arm the timer of a waiter that is on its list; `guard` is held. At the deadline it is taken off with -ETIMEDOUT. */
int cl_wait_arm(struct cl_kthread *k, struct cl_waiter *w, struct cl_spin *guard, uint64_t deadline_ns);
/* After the wait: the timer is dead and w may go. */
void cl_wait_disarm(struct cl_waiter *w);

#endif
