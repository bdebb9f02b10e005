/* The log for uthreads: see log_shared.h. */
#include "log_shared.h"

#include "../uthread.h"

#include <sched.h>

static void enlist(struct cl_log_shared *s, struct cl_log_future *f)
{
    f->waits = true;
    f->next = NULL;
    f->prev = s->last;
    if (s->last)
        s->last->next = f;
    else
        s->first = f;
    s->last = f;
}

/* Off the list, and awake: to see that it is done, or to pump. */
static void rouse(struct cl_log_shared *s, struct cl_log_future *f)
{
    if (f->prev)
        f->prev->next = f->next;
    else
        s->first = f->next;
    if (f->next)
        f->next->prev = f->prev;
    else
        s->last = f->prev;
    f->waits = false;
    cl_sem_post(&f->woken);
}

static void done(struct cl_log_op *op)
{
    struct cl_log_future *f = cl_container_of(op, struct cl_log_future, op);
    if (f->waits)
        rouse(f->shared, f);
}

/* Let others run, uthreads and the kernel's workers; the guard is free meanwhile. */
static int step_back(struct cl_log_shared *s, bool idle)
{
    cl_mutex_unlock(&s->guard);
    int rc = cl_uthread_yield();
    if (idle)
        sched_yield();
    cl_mutex_lock(&s->guard);
    return rc;
}

static void prepare(struct cl_log_shared *s, struct cl_log_future *f)
{
    f->shared = s;
    f->op.done = done;
    f->waits = false;
    cl_sem_init(&f->woken, 0);
}

int cl_log_begin(struct cl_log_shared *shared, struct cl_log_future *f)
{
    prepare(shared, f);
    int rc = cl_mutex_lock(&shared->guard);
    if (rc)
        return rc;
    while ((rc = cl_log_append(shared->log, &f->op)) == -EAGAIN)
        step_back(shared, cl_log_pump(shared->log) == 0);
    cl_mutex_unlock(&shared->guard);
    return rc;
}

/* Pump until f is done; the guard is held. */
static void pump_for(struct cl_log_shared *s, struct cl_log_future *f)
{
    s->pumping = true;
    step_back(s, false);
    while (f->op.result == CL_LOG_PENDING) {
        unsigned happened = cl_log_pump(s->log);
        if (f->op.result == CL_LOG_PENDING)
            step_back(s, happened == 0);
    }
    s->pumping = false;
    if (s->first)
        rouse(s, s->first);
}

int cl_log_future_wait(struct cl_log_future *f)
{
    struct cl_log_shared *s = f->shared;
    int rc = cl_mutex_lock(&s->guard);
    if (rc)
        return rc;
    while (f->op.result == CL_LOG_PENDING) {
        if (!s->pumping) {
            pump_for(s, f);
            break;
        }
        enlist(s, f);
        cl_mutex_unlock(&s->guard);
        cl_sem_wait(&f->woken);
        cl_mutex_lock(&s->guard);
    }
    rc = f->op.result;
    cl_mutex_unlock(&s->guard);
    return rc;
}

int cl_log_append_wait(struct cl_log_shared *shared, const void *data, uint32_t bytes, uint64_t tag, uint64_t *index)
{
    struct cl_log_future f = {.op = {.data = data, .bytes = bytes, .tag = tag}};
    int rc = cl_log_begin(shared, &f);
    if (rc)
        return rc;
    if (index)
        *index = f.op.index;
    return cl_log_future_wait(&f);
}

int cl_log_trim_wait(struct cl_log_shared *shared, uint64_t first_kept)
{
    struct cl_log_future f = {0};
    prepare(shared, &f);
    int rc = cl_mutex_lock(&shared->guard);
    if (rc)
        return rc;
    rc = cl_log_trim(shared->log, first_kept, &f.op);
    cl_mutex_unlock(&shared->guard);
    return rc ? rc : cl_log_future_wait(&f);
}
