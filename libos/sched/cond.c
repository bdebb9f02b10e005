/* Condition variable: see corelane/libos/sync.h. */
#include "wait.h"

void cl_cond_init(struct cl_cond *c)
{
    *c = (struct cl_cond){0};
}

static int wait_on(struct cl_cond *c, struct cl_mutex *m, bool timed, uint64_t deadline_ns)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    struct cl_waiter w;
    int rc = cl_wait_begin(&w, k->current, &c->guard);
    if (rc)
        return rc;
    cl_spin_lock(&c->guard);
    cl_wait_push(&c->waiters, &w, false);
    /* Order of locks: condition variable, then mutex or timer heap. */
    bool armed = false;
    rc = w.cancelled ? -ECANCELED : 0;
    if (rc == 0 && timed) {
        rc = cl_wait_arm(k, &w, deadline_ns);
        armed = rc == 0;
    }
    rc = rc ? rc : cl_mutex_unlock(m);
    bool slept = rc == 0;
    if (slept) {
        cl_waits_for(k, CL_TRACE_WAITS_COND, c, 0);
        cl_block(k, CL_AFTER_UNLOCK, &c->guard);
    } else {
        cl_wait_remove(&w);
        cl_spin_unlock(&c->guard);
    }
    if (armed)
        cl_wait_disarm(&w);
    cl_wait_end(&w);
    if (!slept)
        return rc;
    w.t->shields++; /* it is held after any result */
    cl_mutex_lock(m);
    w.t->shields--;
    return w.result;
}

int cl_cond_wait(struct cl_cond *c, struct cl_mutex *m)
{
    return wait_on(c, m, false, 0);
}

int cl_cond_wait_until(struct cl_cond *c, struct cl_mutex *m, uint64_t deadline_ns)
{
    return wait_on(c, m, true, deadline_ns);
}

void cl_cond_signal(struct cl_cond *c)
{
    /* Relaxed: a waiter that the caller has to see queued itself before it released the mutex that the caller held
     * since. */
    if (!cl_load_relaxed(&c->waiters.first))
        return;
    cl_spin_lock(&c->guard);
    struct cl_waiter *w = cl_wait_pop(&c->waiters);
    cl_spin_unlock(&c->guard);
    if (w)
        cl_uthread_ready(w->t);
}

void cl_cond_broadcast(struct cl_cond *c)
{
    if (!cl_load_relaxed(&c->waiters.first))
        return;
    cl_spin_lock(&c->guard);
    struct cl_waiter *w = c->waiters.first;
    for (struct cl_waiter *each = w; each; each = each->next)
        each->list = NULL; /* so that their timers leave them alone */
    c->waiters.last = NULL;
    cl_store_relaxed(&c->waiters.first, NULL);
    cl_spin_unlock(&c->guard);
    while (w) {
        struct cl_waiter *next = w->next; /* before it may go */
        cl_uthread_ready(w->t);
        w = next;
    }
}
