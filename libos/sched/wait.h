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
    struct cl_uthread *joins; /* a join: of this one, and not on any list */
    int result;               /* what the wait returns */
    uint32_t lost;            /* mutex: times that it was woken and somebody else had been quicker */
    bool given;               /* mutex: it owns the mutex already */
    bool registered;          /* the uthread's own: a cancel finds it */
    bool cancelled;           /* it has come while w was on no list: the next push is not to be */
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

/* Cancelling, see scope.c. Before a wait, without its guard: leave w where a cancel of the uthread's scope finds it.
 * -ECANCELED: it is cancelled. From then on w is pushed only under the guard, after a look at w->cancelled. */
int cl_wait_register(struct cl_waiter *w);
void cl_wait_unregister(struct cl_waiter *w);

/* Field by field: an initializer would write the timer, too, which is more than all the rest, and has its own. */
static inline void cl_waiter_init(struct cl_waiter *w, struct cl_uthread *t, struct cl_spin *guard)
{
    w->t = t;
    w->list = NULL;
    w->guard = guard;
    w->joins = NULL;
    w->result = 0;
    w->lost = 0;
    w->given = w->registered = w->cancelled = false;
}

/* Whether a cancel is to find what t waits for. */
static inline bool cl_may_be_cancelled(const struct cl_uthread *t)
{
    return cl_unlikely(t->scope != NULL) && !t->shields;
}

/* Fills in w, for t, which is the caller. */
static inline int cl_wait_begin(struct cl_waiter *w, struct cl_uthread *t, struct cl_spin *guard)
{
    cl_waiter_init(w, t, guard);
    return cl_may_be_cancelled(t) ? cl_wait_register(w) : 0;
}

/* After it, without the guard. No cancel touches w any more. */
static inline void cl_wait_end(struct cl_waiter *w)
{
    if (cl_unlikely(w->registered))
        cl_wait_unregister(w);
}

/* With cancel_lock of the uthread: take it off. True: it sleeps, is to return -ECANCELED and to be made ready. */
bool cl_wait_cancel(struct cl_waiter *w);
/* uthread.c: the same of a join, with its guard. */
bool cl_join_withdraw(struct cl_waiter *w);
/* In a scope: cl_uthread_sleep_until_ns. */
int cl_wait_sleep(struct cl_kthread *k, uint64_t deadline_ns);
/* Of the timer of such a sleep. */
void cl_wait_sleep_over(struct cl_timer *timer, void *arg);

/* Arm the timer of a waiter that is on its list; its guard is held. At the deadline it is taken off with
 * -ETIMEDOUT. */
int cl_wait_arm(struct cl_kthread *k, struct cl_waiter *w, uint64_t deadline_ns);
/* After the wait: the timer is dead and w may go. */
void cl_wait_disarm(struct cl_waiter *w);

#endif
