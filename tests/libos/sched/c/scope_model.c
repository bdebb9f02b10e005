/* Every interleaving, up to a number of preemptions, of a cancel with those who wait, those who wake them and a timer:
 * the code of libos/sched/{scope,wait,mutex,cond,sem}.c on four threads. Nobody is made ready twice or never, nobody
 * who is not cancelled loses a wake-up, and what a cancelled call has not done it has not done.
 * Usage: scope_model PREEMPTIONS
 *
 * A blocking call waits in its thread; see explore.h for the rest. */
#include "libos/sched/scope.h"
#include "libos/sched/wait.h"

#define THREADS 4
#include "explore.h"

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

/* Thread 0 is in a scope, which thread 3 cancels; 1 and 2 are in none. */
static struct cl_mutex m, held; /* m is held by thread 1 at the start of some */
static struct cl_cond cond;
static struct cl_sem sem;
static struct cl_wait_group group;
static struct cl_scope *scope;
static unsigned ready_threads, done, inside;
static int result;
static bool ran;

static void check(bool good, const char *what)
{
    if (!good)
        fail(what);
}

static void set_up(void)
{
    memset(kthreads, 0, sizeof kthreads);
    memset(uthreads, 0, sizeof uthreads);
    memset(asleep, 0, sizeof asleep);
    cl_mutex_init(&held);
    m = (struct cl_mutex){.word = scenario == 0 || scenario >= 7 ? (uint64_t)(uintptr_t)&uthreads[1] : 0};
    cl_cond_init(&cond);
    cl_sem_init(&sem, 0);
    group = (struct cl_wait_group){.word = scenario == 9 ? 2 : 0};
    armed = firing = NULL;
    ready_threads = done = inside = 0;
    result = 1;
    ran = false;
    sched.scopes = NULL;
    for (struct cl_scope_slab *s; (s = sched.scope_slabs); free(s))
        sched.scope_slabs = s->next;
    for (unsigned i = 0; i < THREADS; i++) {
        kthreads[i].sched = &sched;
        kthreads[i].current = &uthreads[i];
        uthreads[i].sched = &sched;
    }
    check(cl_scope_open(CL_SCOPE_FOREVER, &scope) == 0, "no scope");
}

/* 0: a mutex that 1 holds and 2 wants, too. */
static void of_mutex(unsigned me)
{
    if (me == 3) {
        cl_scope_cancel(scope);
        return;
    }
    if (me == 1) {
        check(cl_mutex_unlock(&m) == 0, "it was not held");
        return;
    }
    int rc = cl_mutex_lock(&m);
    check(rc == 0 || (me == 0 && rc == -ECANCELED), "an odd result");
    if (rc == 0) {
        check(inside++ == 0, "two hold the mutex");
        point();
        inside--;
        check(cl_mutex_unlock(&m) == 0, "it was not held");
    }
}

/* 1 and 2: a semaphore that 2 posts twice; the wait of thread 0 is timed in 2, and 3 lets the time be over. */
static void of_sem(unsigned me)
{
    if (me == 2) {
        cl_sem_post(&sem);
        cl_sem_post(&sem);
    } else if (me == 3) {
        if (scenario == 2)
            expire_now();
        cl_scope_cancel(scope);
    } else if (me == 1) {
        check(cl_sem_wait(&sem) == 0, "who is not cancelled does not get one");
    } else {
        result = scenario == 2 ? cl_sem_wait_until(&sem, 5) : cl_sem_wait(&sem);
        check(result == 0 || result == -ECANCELED || (scenario == 2 && result == -ETIMEDOUT), "an odd result");
    }
}

/* 3: a condition variable, signalled twice when both wait. */
static void of_cond(unsigned me)
{
    if (me == 3) {
        cl_scope_cancel(scope);
        return;
    }
    check(cl_mutex_lock(&m) == 0 || me == 0, "cannot lock"); /* thread 0 may be cancelled there */
    if (me == 2) {
        done = 2;
        cl_cond_signal(&cond);
        cl_cond_signal(&cond);
    }
    int rc = 0;
    if ((m.word & ~BITS) == (uint64_t)(uintptr_t)&uthreads[me]) {
        while (rc == 0 && done < 2)
            rc = cl_cond_wait(&cond, &m);
        check(rc == 0 || me == 0, "who is not cancelled is");
        check(cl_mutex_unlock(&m) == 0, "it is not held after the wait");
    }
}

/* 4: a wait group, and a scope that thread 0 opens while the one around it is cancelled. */
static void of_group(unsigned me)
{
    if (me == 1) {
        (void)cl_wait_group_add(&group, 1);
        ready_threads = 1;
        cl_scope_cancel(scope);
    } else if (me == 2) {
        while (!ready_threads)
            wait_point();
        check(cl_wait_group_done(&group) == 0, "an odd count");
    } else if (me == 0) {
        struct cl_scope *inner;
        while (!ready_threads)
            wait_point();
        check(cl_scope_open(CL_SCOPE_FOREVER, &inner) == 0, "no scope");
        int rc = cl_wait_group_wait(&group);
        check(rc == 0 || rc == -ECANCELED, "an odd result");
        check(cl_sem_wait(&sem) == -ECANCELED, "a cancel got lost");
        check(cl_scope_close(inner) == -ECANCELED, "it is not cancelled");
    }
}

/* 5: thread 0 closes the scope while its uthreads 1 and 2 end, one of them with an error, and 3 cancels. */
static void of_close(unsigned me)
{
    if (me == 0) {
        while (ready_threads < 2)
            wait_point();
        result = cl_scope_close(scope);
        check(done == 2, "a uthread has outlived its scope");
        check(result == -EIO || result == -ECANCELED, "the reason is lost");
    } else if (me < 3) {
        cl_spin_lock(&scope->lock);
        scope->n_running++;
        cl_spin_unlock(&scope->lock);
        uthreads[me].home = uthreads[me].scope = scope;
        count_in(scope, &uthreads[me]);
        ready_threads++;
        int rc = cl_sem_wait(&sem);
        check(rc == -ECANCELED || (rc == 0 && !inside++), "a cancel got lost"); /* there is one post */
        done++;
        cl_scope_end(&uthreads[me], me == 1 ? -EIO : 0);
    } else {
        while (ready_threads < 2)
            wait_point();
        cl_sem_post(&sem);
        cl_scope_cancel(scope); /* still open: thread 2 is in it until then */
    }
}

/* 6: thread 0 sleeps; the time is over, and it is cancelled. */
static void of_sleep(unsigned me)
{
    if (me == 0) {
        result = cl_wait_sleep(&kthreads[0], 5);
        check(result == 0 || result == -ECANCELED, "an odd result");
        check(!armed && !firing, "its timer lives on");
    } else if (me == 1) {
        expire_now();
    } else if (me == 3) {
        cl_scope_cancel(scope);
    }
}

/* 7, 8, 9: a mutex, a condition variable, a wait group that nobody wakes thread 0 from before it has been cancelled. */
static void of_one_way(unsigned me)
{
    if (me == 0) {
        int rc = cl_mutex_lock(scenario == 7 ? &m : &held);
        if (scenario == 8 && rc == 0) {
            rc = cl_cond_wait(&cond, &held);
            check(cl_mutex_unlock(&held) == 0, "it is not held after the wait");
        } else if (scenario == 9) {
            rc = cl_wait_group_wait(&group);
        }
        check(rc == -ECANCELED, "an odd result");
        result = rc;
    } else if (me == 1) {
        while (result == 1)
            wait_point();
        check(cl_mutex_unlock(&m) == 0, "it was not held");
    } else if (me == 2) {
        check(cl_mutex_lock(&m) == 0 && cl_mutex_unlock(&m) == 0, "who is not cancelled does not get it");
    } else {
        cl_scope_cancel(scope);
    }
}

static void (*const scenarios[])(unsigned me) = {of_mutex, of_sem,   of_sem,     of_cond,    of_group,
                                                 of_close, of_sleep, of_one_way, of_one_way, of_one_way};

static void thread_run(unsigned me)
{
    ran = true;
    scenarios[scenario](me);
}

/* Afterwards, by scenario. */
static void set_up_next(void)
{
    if (ran && (scenario == 0 || scenario >= 7))
        check(m.word == 0, "the mutex is not free in the end");
    if (ran && (scenario == 1 || scenario == 2) && result <= 0)
        check(cl_sem_value(&sem) == (result ? 1 : 0), "posts do not add up");
    set_up();
}

int main(int argc, char **argv)
{
    unsigned bound = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    for (scenario = 0; scenario < sizeof scenarios / sizeof *scenarios; scenario++) {
        limit = scenario == 5 ? bound - 1 : bound; /* in which all four have much to do */
        set_up();
        printf("scenario %u: %lu interleavings\n", scenario, explore(set_up_next));
    }
    set_up();
    cl_scopes_delete(&sched);
    return 0;
}
