/* See wait.h: timed waits. */
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

int cl_wait_arm(struct cl_kthread *k, struct cl_waiter *w, struct cl_spin *guard, uint64_t deadline_ns)
{
    w->guard = guard;
    cl_timer_init(&w->timer, expire, w);
    int rc = cl_timer_arm_locked(k, &w->timer, deadline_ns);
    if (rc == 0)
        cl_spin_unlock(&k->timers.lock);
    return rc;
}

void cl_wait_disarm(struct cl_waiter *w)
{
    cl_timer_cancel(&w->timer);
}
