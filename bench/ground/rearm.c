/* See rearm.h. */
#include "rearm.h"

#include <corelane/libos/sched.h>
#include <corelane/libos/timer.h>
#include <corelane/libos/uthread.h>
#include <corelane/libos/wheel.h>
#include <corelane/runtime/clock.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE 1024
#define AHEAD_NS 200000000ull

/* Each in a line of its own, as in a connection. */
union deadline {
    struct cl_timer timer;
    struct cl_alarm alarm;
} CL_ALIGNED(CL_CACHELINE);
_Static_assert(sizeof(union deadline) == CL_CACHELINE, "a line");

struct run {
    uint32_t what, armed;
    uint64_t n, called, ns;
    uint64_t far_ns; /* SOONER: before which all are moved, each time 1 ns further */
    union deadline *all;
    int rc;
};

static uint64_t called; /* by the one kthread of the one run */

static uint64_t now_ns(void)
{
    return cl_sched_now_ns(cl_sched_self());
}

static void on_timer(struct cl_timer *timer, void *arg)
{
    (void)arg;
    called++;
    cl_timer_arm(timer, now_ns() + AHEAD_NS);
}

static void on_alarm(struct cl_alarm *alarm)
{
    called++;
    if (cl_alarm_due(alarm, now_ns()))
        cl_alarm_arm(alarm, now_ns() + AHEAD_NS);
}

static int move(const struct run *r, union deadline *d, uint64_t at_ns)
{
    if (r->what == CL_BENCH_REARM_STORE) {
        cl_store_relaxed(&d->alarm.deadline_ns, at_ns);
        return 0;
    }
    if (r->what == CL_BENCH_REARM_LOOK) {
        if (cl_load_relaxed(&d->alarm.look_ns) < at_ns) /* always, which only the line says */
            cl_store_relaxed(&d->alarm.look_ns, at_ns);
        return 0;
    }
    return r->what == CL_BENCH_REARM_TIMER ? cl_timer_arm(&d->timer, at_ns) : cl_alarm_arm(&d->alarm, at_ns);
}

static void arm_all(struct run *r)
{
    uint64_t first_ns = now_ns() + AHEAD_NS;
    r->far_ns = first_ns + 1000 * AHEAD_NS;
    if (r->what == CL_BENCH_REARM_SOONER)
        first_ns = r->far_ns;
    for (uint32_t i = 0; i < r->armed && !r->rc; i++) {
        if (r->what == CL_BENCH_REARM_TIMER)
            cl_timer_init(&r->all[i].timer, on_timer, NULL);
        else
            cl_alarm_init(&r->all[i].alarm, on_alarm);
        r->rc = move(r, &r->all[i], first_ns + i * (AHEAD_NS / r->armed));
    }
}

static void move_all(struct run *r)
{
    uint64_t state = 88172645463325252ull, now = now_ns();
    for (uint64_t i = 0; i < r->n; i++) {
        if (i % PIECE == 0) {
            cl_uthread_yield();
            now = now_ns();
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        union deadline *d = &r->all[(state >> 32) * r->armed >> 32];
        r->rc |= move(r, d, r->what == CL_BENCH_REARM_SOONER ? r->far_ns - i : now + AHEAD_NS);
    }
}

static void root(void *arg)
{
    struct run *r = arg;
    arm_all(r);
    called = 0;
    uint64_t start = cl_tsc_ordered();
    if (!r->rc)
        move_all(r);
    r->ns = (uint64_t)cl_ticks_to_ns(cl_clock_default(), (int64_t)(cl_tsc_ordered() - start));
    r->called = called;
    for (uint32_t i = 0; i < r->armed; i++) {
        if (r->what == CL_BENCH_REARM_TIMER)
            cl_timer_cancel(&r->all[i].timer);
        else
            cl_alarm_remove(&r->all[i].alarm);
    }
}

int cl_bench_rearm(uint32_t what, int cpu, uint32_t armed, uint64_t n, struct cl_bench_rearm_result *out, char err[256])
{
    struct cl_sched_config c;
    struct cl_sched *s = NULL;
    int32_t cpus[1] = {cpu};
    struct run r = {.what = what, .armed = armed, .n = n};
    r.all = armed ? aligned_alloc(CL_CACHELINE, armed * sizeof *r.all) : NULL;
    if (!r.all) {
        snprintf(err, 256, "no memory for %u deadlines", armed);
        return -ENOMEM;
    }
    cl_sched_config_init(&c);
    c.poll = CL_SCHED_SPIN;
    c.cpus = cpus;
    int rc = cl_sched_new(&c, &s, err);
    if (rc == 0)
        rc = cl_sched_start(s, err);
    if (rc == 0)
        rc = cl_sched_run(s, root, &r);
    if (rc == 0 && r.rc) {
        rc = r.rc;
        snprintf(err, 256, "a deadline could not be armed (errno %d)", -rc);
    }
    cl_sched_delete(s);
    free(r.all);
    *out = (struct cl_bench_rearm_result){r.ns, n, r.called};
    return rc;
}
