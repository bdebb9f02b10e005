/* Runners: the uthreads on which the work source handles its inbox.
 *
 * A kthread keeps one runner that has nothing to do, and switches to it when frames are pending. If a handler blocks,
 * the runner is gone with it, like any uthread, and another is started for the rest of the inbox. A runner that comes
 * back goes on with the inbox of the kthread it is then on, and at the end becomes that kthread's idle runner, or ends
 * if there is one. A runner counts as alive (spawned, finished) only while it is inside the source's run. */
#include "runq.h"

#include <corelane/libos/scope.h>
#include <corelane/runtime/clock.h>

#define WORTH_WAKING_NS 10000 /* a backlog that takes longer than it costs to wake a sibling and warm it up */

static void runner_main(void *arg)
{
    (void)arg;
    for (;;) {
        struct cl_kthread *k = cl_kthread_self();
        const struct cl_work_source *source = &k->sched->source;
        source->run(source->arg, k->index);
        k = cl_kthread_self();
        if (cl_unlikely(k->current->scope)) { /* a handler has left it open */
            cl_scope_unwind(NULL);
            k = cl_kthread_self();
        }
        if (k->idle_runner)
            return;
        k->idle_runner = k->current; /* private to k, which reads it only after we have left */
        cl_count_finished(k);
        k->after.op = CL_AFTER_NOTHING;
        cl_switch_to(k, k->current, &k->loop);
    }
}

/* Fetch a sibling if what waits in the inbox would take long, or we fall behind all the time. */
static void share(struct cl_kthread *k, unsigned pending)
{
    if (k->sched->sleeps && pending > 1 && (pending * k->service_ns > WORTH_WAKING_NS || k->behind == CL_BEHIND_POLLS))
        cl_wake_one(k->sched, k);
}

static void measure(struct cl_kthread *k, unsigned before, uint64_t start_tsc)
{
    const struct cl_sched *s = k->sched;
    unsigned after = s->source.pending(s->source.arg, k->index);
    if (before <= after)
        return;
    uint64_t ns =
        (uint64_t)cl_ticks_to_ns(s->clock, (int64_t)(cl_clock_stamp(s->clock) - start_tsc)) / (before - after);
    k->service_ns = (7 * k->service_ns + ns) / 8;
}

bool cl_run_runner(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    struct cl_uthread *t = k->idle_runner;
    k->idle_runner = NULL;
    if (!t) {
        t = cl_stack_get(k);
        if (!t) {
            cl_count(&k->stats.runners_refused, 1);
            return false;
        }
        cl_uthread_prepare(t, runner_main, NULL, CL_JOIN_DETACHED);
        cl_count(&k->stats.runners, 1);
    }
    cl_count(&k->stats.spawned, 1);
    if (s->n_kthreads == 1) {
        cl_dispatch(k, t);
        return true;
    }
    unsigned pending = s->source.pending(s->source.arg, k->index);
    share(k, pending);
    uint64_t start_tsc = cl_clock_stamp(s->clock);
    cl_dispatch(k, t);
    measure(k, pending, start_tsc);
    return true;
}
