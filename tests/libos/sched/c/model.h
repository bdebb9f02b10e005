/* What waits and wakes of libos/sched, as a part of a program that explores interleavings (explore.h): mutex.c, cond.c,
 * sem.c, wait.c, scope.c and channel.c, with kthread and uthread i for thread i. A blocking call waits in its thread.
 * THREADS is defined before. */
#ifndef TESTS_LIBOS_SCHED_MODEL_H
#define TESTS_LIBOS_SCHED_MODEL_H

#include "libos/sched/scope.h"
#include "libos/sched/wait.h"

#include "explore.h"

#include <corelane/libos/channel.h>

static struct cl_kthread *model_self(void);

/* clang-format off */
#define cl_spin_lock model_lock
#define cl_spin_unlock model_unlock
#define cl_kthread_self model_self
#undef cl_load_relaxed
#define cl_load_relaxed(p) (point(), __atomic_load_n(p, __ATOMIC_RELAXED))
#define cl_sched_clock(s) ((void)(s), 1ull)
#define swap swap_word
#include "libos/sched/mutex.c"
#undef swap
#undef WAITERS
#include "libos/sched/cond.c"
#include "libos/sched/sem.c"
#include "libos/sched/wait.c"
#include "libos/sched/scope.c"
#include "libos/sched/channel.c"
/* clang-format on */

static struct cl_sched sched;
static struct cl_kthread kthreads[THREADS];
static struct cl_uthread uthreads[THREADS];
static bool asleep[THREADS];

static struct cl_kthread *model_self(void)
{
    return &kthreads[running];
}

struct cl_uthread *cl_uthread_self(void)
{
    return &uthreads[running];
}

int cl_block(struct cl_kthread *k, enum cl_after_op op, void *p)
{
    unsigned me = running;
    (void)k;
    if (op != CL_AFTER_UNLOCK)
        abort();
    asleep[me] = true;
    model_unlock(p);
    while (asleep[me])
        wait_point();
    return 0;
}

void cl_uthread_ready(struct cl_uthread *t)
{
    point();
    if (!asleep[t - uthreads])
        fail("one that does not sleep is made ready");
    asleep[t - uthreads] = false;
}

int cl_uthread_yield(void)
{
    return 0;
}

/* One timer at a time, which the thread `timer` of a scenario lets expire. */
static struct cl_timer *armed, *firing;

void cl_timer_init(struct cl_timer *timer, cl_timer_fn fn, void *arg)
{
    *timer = (struct cl_timer){.fn = fn, .arg = arg};
}

int cl_timer_arm_locked(struct cl_kthread *k, struct cl_timer *timer, uint64_t deadline_ns)
{
    cl_spin_lock(&k->timers.lock);
    timer->deadline_ns = deadline_ns;
    armed = timer;
    return 0;
}

int cl_timer_arm(struct cl_timer *timer, uint64_t deadline_ns)
{
    timer->deadline_ns = deadline_ns;
    armed = timer;
    return 0;
}

int cl_timer_cancel(struct cl_timer *timer)
{
    point();
    bool was = armed == timer;
    if (was)
        armed = NULL;
    while (firing == timer)
        wait_point();
    return was;
}

static void expire_now(void)
{
    point();
    firing = armed;
    armed = NULL;
    if (firing)
        firing->fn(firing, firing->arg);
    firing = NULL;
}

/* Of the rest of the scheduler: what no scenario comes to. */
bool cl_join_withdraw(struct cl_waiter *w)
{
    (void)w;
    abort();
}

struct cl_uthread *cl_stack_get(struct cl_kthread *k)
{
    (void)k;
    abort();
}

struct cl_uthread *cl_stack_get_foreign(struct cl_sched *s)
{
    (void)s;
    abort();
}

void cl_uthread_prepare(struct cl_uthread *t, cl_uthread_fn fn, void *arg, uint64_t join)
{
    (void)t, (void)fn, (void)arg, (void)join;
    abort();
}

void cl_uthread_start(struct cl_kthread *k, struct cl_uthread *t)
{
    (void)k, (void)t;
    abort();
}

void cl_inject(struct cl_sched *s, struct cl_uthread *t, bool spawned)
{
    (void)s, (void)t, (void)spawned;
    abort();
}

static void check(bool good, const char *what)
{
    if (!good)
        fail(what);
}

/* Nobody sleeps, and no timer is armed. */
static void set_up_uthreads(void)
{
    memset(kthreads, 0, sizeof kthreads);
    memset(uthreads, 0, sizeof uthreads);
    memset(asleep, 0, sizeof asleep);
    armed = firing = NULL;
    sched.scopes = NULL;
    for (struct cl_scope_slab *s; (s = sched.scope_slabs); free(s))
        sched.scope_slabs = s->next;
    for (unsigned i = 0; i < THREADS; i++) {
        kthreads[i].sched = &sched;
        kthreads[i].current = &uthreads[i];
        uthreads[i].sched = &sched;
    }
}

#endif
