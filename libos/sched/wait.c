/* See wait.h: timed waits, and those that a cancel ends. */
#include "scope.h"
#include "wait.h"

static void expire(struct cl_timer *timer, void *arg)
{
    struct cl_waiter *w = arg;
    (void)timer;
    cl_spin_lock(w->guard);
    bool waiting = w->list != NULL;
    if (waiting) {
        cl_wait_remove(w);
        w->result = -ETIMEDOUT;
    }
    cl_spin_unlock(w->guard);
    /* Else a waker has it. It cannot be gone: cl_wait_disarm waits for us. */
    if (waiting)
        cl_uthread_ready(w->t);
}

static int arm(struct cl_kthread *k, struct cl_waiter *w, cl_timer_fn fn, uint64_t deadline_ns)
{
    cl_timer_init(&w->timer, fn, w);
    int rc = cl_timer_arm_locked(k, &w->timer, deadline_ns);
    if (rc == 0)
        cl_spin_unlock(&k->timers.lock);
    return rc;
}

int cl_wait_arm(struct cl_kthread *k, struct cl_waiter *w, uint64_t deadline_ns)
{
    return arm(k, w, expire, deadline_ns);
}

void cl_wait_disarm(struct cl_waiter *w)
{
    cl_timer_cancel(&w->timer);
}

int cl_wait_register(struct cl_waiter *w)
{
    struct cl_uthread *t = w->t;
    cl_spin_lock(&t->cancel_lock);
    /* Relaxed: a cancel sets it before it takes cancel_lock. If it takes it after us, it finds w. */
    int rc = cl_load_relaxed(&t->scope->cancelled) ? -ECANCELED : 0;
    if (rc == 0) {
        t->waits = w;
        w->registered = true;
    }
    cl_spin_unlock(&t->cancel_lock);
    return rc;
}

void cl_wait_unregister(struct cl_waiter *w)
{
    struct cl_uthread *t = w->t;
    cl_spin_lock(&t->cancel_lock); /* a cancel that has found w is through with it then */
    t->waits = NULL;
    cl_spin_unlock(&t->cancel_lock);
    w->registered = false;
}

bool cl_wait_cancel(struct cl_waiter *w)
{
    cl_spin_lock(w->guard);
    bool waiting = w->joins ? cl_join_withdraw(w) : w->list != NULL;
    if (waiting) {
        if (w->list)
            cl_wait_remove(w);
        w->result = -ECANCELED;
    }
    w->cancelled = true;
    cl_spin_unlock(w->guard);
    return waiting;
}

void cl_wait_sleep_over(struct cl_timer *timer, void *arg)
{
    expire(timer, arg);
}

/* A wait on a list of its own, for the time to be over. */
int cl_wait_sleep(struct cl_kthread *k, uint64_t deadline_ns)
{
    struct cl_wait_list alone = {0};
    struct cl_spin guard = {0};
    struct cl_waiter w;
    int rc = cl_wait_begin(&w, k->current, &guard);
    if (rc == 0) {
        cl_spin_lock(&guard);
        cl_wait_push(&alone, &w, false);
        rc = w.cancelled ? -ECANCELED : arm(k, &w, cl_wait_sleep_over, deadline_ns);
        bool armed = rc == 0;
        /* Relaxed: either it was set before we had the heap's lock, or cl_timers_end_sleeps finds the timer. */
        if (rc == 0 && cl_unlikely(cl_load_relaxed(&k->sched->stopping)))
            rc = -ESHUTDOWN;
        if (rc == 0) {
            cl_waits_for(k, CL_TRACE_WAITS_SLEEP, NULL, 0);
            cl_block(k, CL_AFTER_UNLOCK, &guard);
        } else {
            cl_wait_remove(&w);
            cl_spin_unlock(&guard);
        }
        if (armed)
            cl_wait_disarm(&w);
        cl_wait_end(&w);
        if (rc == 0)
            rc = w.result != -ETIMEDOUT ? w.result : w.timer.deadline_ns == deadline_ns ? 0 : -ESHUTDOWN;
    }
    if (rc == -ECANCELED || rc == -ESHUTDOWN)
        (void)cl_uthread_yield(); /* one that sleeps in a loop gives way all the same */
    return rc;
}
