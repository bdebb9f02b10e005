/* Periodic work: a uthread of its own that sleeps from one call to the next. See runtime.h. */
#include "every.h"

#include <corelane/libos/sched.h>
#include <corelane/runtime/counter.h>

#include <errno.h>
#include <stdlib.h>

struct own {
    struct cl_every every; /* first: who frees it knows this one */
    struct cl_doing doing;
};

static void call(void *arg)
{
    struct cl_every *e = arg;
    int64_t rc = e->fn(e->arg);
    cl_count(&e->calls, 1);
    cl_count(&e->errors, rc < 0);
}

/* The next time that is not past; what was missed meanwhile is skipped. */
static uint64_t next_after(struct cl_every *e, uint64_t due, uint64_t now)
{
    uint64_t missed = now > due ? (now - due) / e->period_ns : 0;
    cl_count(&e->skipped, missed);
    return due + (missed + 1) * e->period_ns;
}

static void run(void *arg)
{
    struct own *own = arg;
    struct cl_every *e = &own->every;
    uint64_t due = cl_sched_now_ns(cl_sched_self()) + e->period_ns;
    while (cl_uthread_sleep_until_ns(due) == 0 && !cl_uthread_stopping()) {
        cl_uthread_doing(&own->doing);
        if (e->foreign)
            cl_kthread_call(call, e);
        else
            call(e);
        cl_uthread_doing(NULL);
        due = next_after(e, due, cl_sched_now_ns(cl_sched_self()));
    }
}

int cl_every_new(struct cl_sched *sched, uint64_t period_ns, cl_every_fn fn, void *arg, uint32_t foreign,
                 struct cl_every **out)
{
    if (period_ns == 0 || period_ns > INT64_MAX || !fn)
        return -EINVAL;
    struct own *own = malloc(sizeof *own);
    if (!own)
        return -ENOMEM;
    own->every = (struct cl_every){.period_ns = period_ns, .fn = fn, .arg = arg, .foreign = foreign};
    own->doing = (struct cl_doing){.what = "periodic work", .fn = (void *)(uintptr_t)fn, .arg = arg};
    int rc = cl_sched_spawn(sched, run, own);
    if (rc)
        free(own);
    else
        *out = &own->every;
    return rc;
}
