/* The contract of scopes: every call of scope.h, and that a cancel reaches each call that waits.
 * Usage: scope KTHREADS MODE */
#include "check.h"

#include <corelane/libos/scope.h>

#include "libos/sched/internal.h"

#define HOUR_NS 3600000000000ull
#define FOREVER CL_SCOPE_FOREVER

static uint64_t now(void)
{
    return cl_sched_now_ns(cl_sched_self());
}

static struct cl_mutex mutex;
static struct cl_cond cond;
static struct cl_sem sem;
static struct cl_wait_group group;
static uint32_t arrived, ended;

static void spin_until(uint32_t *word, uint32_t value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
        cl_uthread_yield();
}

static void arrive(uint32_t *word)
{
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
}

/* Each way to wait, for ever. */

static int64_t in_sleep(void *arg)
{
    (void)arg;
    return cl_uthread_sleep_ns(HOUR_NS);
}

static int64_t in_mutex(void *arg)
{
    (void)arg;
    return cl_mutex_lock(&mutex);
}

static int64_t in_sem(void *arg)
{
    (void)arg;
    return cl_sem_wait(&sem);
}

static int64_t in_timed_sem(void *arg)
{
    (void)arg;
    return cl_sem_wait_until(&sem, now() + HOUR_NS);
}

static int64_t in_group(void *arg)
{
    (void)arg;
    return cl_wait_group_wait(&group);
}

static struct cl_mutex of_cond;

static int64_t in_cond(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_mutex_lock(&of_cond), 0);
    int rc = cl_cond_wait(&cond, &of_cond);
    CHECK_EQ(cl_mutex_unlock(&of_cond), 0); /* held after any result */
    return rc;
}

static int64_t in_timed_cond(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_mutex_lock(&of_cond), 0);
    int rc = cl_cond_wait_until(&cond, &of_cond, now() + HOUR_NS);
    CHECK_EQ(cl_mutex_unlock(&of_cond), 0);
    return rc;
}

static cl_uthread_id joined;

static void wait_for_post(void *arg)
{
    CHECK_EQ(cl_sem_wait(arg), 0);
}

static int64_t in_join(void *arg)
{
    (void)arg;
    return cl_uthread_join(joined);
}

static const cl_scope_fn ways[] = {in_sleep, in_mutex, in_sem, in_timed_sem, in_group, in_cond, in_timed_cond, in_join};
#define WAYS (sizeof ways / sizeof *ways)

static int results[WAYS], again[WAYS];

static int64_t wait_by(void *arg)
{
    size_t way = (size_t)(uintptr_t)arg;
    arrive(&arrived);
    results[way] = (int)ways[way](NULL);
    CHECK_EQ(cl_uthread_cancelled(), 1);
    if (ways[way] != in_cond && ways[way] != in_timed_cond) /* whose mutex another one may hold */
        again[way] = (int)ways[way](NULL);                  /* at once */
    else
        again[way] = -ECANCELED;
    arrive(&ended);
    return results[way];
}

static void open_with_all(struct cl_scope **scope)
{
    arrived = ended = 0;
    CHECK_EQ(cl_scope_open(FOREVER, scope), 0);
    for (size_t way = 0; way < WAYS; way++)
        CHECK_EQ(cl_scope_spawn(*scope, wait_by, (void *)(uintptr_t)way), 0);
    CHECK_EQ(cl_scope_running(*scope), WAYS);
}

static void check_all_cancelled(void)
{
    CHECK_EQ(ended, WAYS);
    for (size_t way = 0; way < WAYS; way++) {
        CHECK_EQ(results[way], -ECANCELED);
        CHECK_EQ(again[way], -ECANCELED);
    }
}

static void *cancel_from_outside(void *arg)
{
    usleep(1000);
    cl_scope_cancel(arg);
    return NULL;
}

static int64_t nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void cancel_reaches_every_wait(void)
{
    struct cl_scope *scope;
    struct cl_sem end = {0};
    cl_uthread_id id;
    CHECK_EQ(cl_uthread_spawn(wait_for_post, &end, &id), 0);
    joined = id;
    CHECK_EQ(cl_mutex_lock(&mutex), 0);
    CHECK_EQ(cl_wait_group_add(&group, 1), 0);
    for (unsigned at_rest = 0; at_rest < 2; at_rest++) { /* before they wait, perhaps, and after */
        open_with_all(&scope);
        spin_until(&arrived, (uint32_t)WAYS);
        if (at_rest)
            CHECK_EQ(cl_uthread_sleep_ns(300000), 0);
        CHECK_EQ(cl_scope_why(scope), 0);
        cl_scope_cancel(scope);
        cl_scope_cancel(scope); /* no more happens */
        cl_scope_fail(scope, -EIO);
        CHECK_EQ(cl_scope_spawn(scope, nothing, NULL), -ECANCELED);
        CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS), -ECANCELED); /* the owner's, too */
        CHECK_EQ(cl_scope_close(scope), -ECANCELED);
        check_all_cancelled();
        CHECK_EQ(cl_uthread_sleep_ns(1), 0);
    }
    open_with_all(&scope);
    CHECK_EQ(cl_scope_deadline(scope, now() + 500000), 0);
    CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS), -ECANCELED);
    CHECK_EQ(cl_scope_close(scope), -ETIMEDOUT);
    check_all_cancelled();
    pthread_t thread;
    open_with_all(&scope);
    CHECK_EQ(pthread_create(&thread, NULL, cancel_from_outside, scope), 0);
    CHECK_EQ(cl_scope_close(scope), -ECANCELED);
    check_all_cancelled();
    CHECK_EQ(pthread_join(thread, NULL), 0);
    /* Nothing of what was cancelled has happened. */
    CHECK_EQ(cl_mutex_unlock(&mutex), 0);
    CHECK_EQ(mutex.word, 0);
    cl_sem_post(&sem);
    CHECK_EQ(cl_sem_value(&sem), 1);
    CHECK_EQ(cl_sem_trywait(&sem), 0);
    CHECK_EQ(cl_wait_group_done(&group), 0);
    cl_sem_post(&end);
    CHECK_EQ(cl_uthread_join(id), 0); /* one whose joiner was cancelled is there to be joined */
}

/* What need not wait is not refused. */
static void what_need_not_wait_goes_on(void)
{
    struct cl_scope *scope;
    struct cl_mutex m = {0};
    struct cl_sem s = {0};
    struct cl_wait_group g = {0};
    CHECK_EQ(cl_scope_open(0, &scope), 0); /* a deadline that is past */
    CHECK_EQ(cl_scope_why(scope), -ETIMEDOUT);
    CHECK_EQ(cl_mutex_lock(&m), 0);
    CHECK_EQ(cl_mutex_unlock(&m), 0);
    cl_sem_post(&s);
    CHECK_EQ(cl_sem_wait(&s), 0);
    CHECK_EQ(cl_wait_group_wait(&g), 0);
    CHECK_EQ(cl_uthread_sleep_ns(0), 0);
    CHECK_EQ(cl_uthread_yield(), 0);
    cl_shield_enter();
    CHECK_EQ(cl_uthread_cancelled(), 0);
    CHECK_EQ(cl_uthread_sleep_ns(1000), 0);
    CHECK_EQ(cl_sem_wait_until(&s, now() + 1000), -ETIMEDOUT);
    cl_shield_leave();
    CHECK_EQ(cl_uthread_cancelled(), 1);
    CHECK_EQ(cl_scope_close(scope), -ETIMEDOUT);
}

/* The first error. */

static int64_t fail_with(void *arg)
{
    return -(int64_t)(uintptr_t)arg;
}

static int64_t fail_when_cancelled(void *arg)
{
    CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS), -ECANCELED);
    arrive(arg);
    return -EIO; /* later than the first */
}

static void first_error_cancels_the_rest(void)
{
    struct cl_scope *scope;
    uint32_t told = 0;
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    for (unsigned i = 0; i < 5; i++)
        CHECK_EQ(cl_scope_spawn(scope, fail_when_cancelled, &told), 0);
    CHECK_EQ(cl_scope_spawn(scope, fail_with, (void *)(uintptr_t)ENOENT), 0);
    CHECK_EQ(cl_scope_close(scope), -ENOENT);
    CHECK_EQ(told, 5);
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    CHECK_EQ(cl_scope_spawn(scope, nothing, NULL), 0);
    cl_scope_fail(scope, -EBADMSG); /* the owner's own part */
    CHECK_EQ(cl_scope_close(scope), -EBADMSG);
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    for (unsigned i = 0; i < 5; i++)
        CHECK_EQ(cl_scope_spawn(scope, nothing, NULL), 0);
    CHECK_EQ(cl_scope_close(scope), 0);
}

/* Scopes in scopes. */

static int inner_results[2];

static int64_t with_inner(void *arg)
{
    struct cl_scope *inner;
    int *result = arg;
    CHECK_EQ(cl_scope_open(FOREVER, &inner), 0);
    CHECK_EQ(cl_scope_spawn(inner, in_sleep, NULL), 0);
    arrive(&arrived);
    *result = cl_scope_close(inner); /* which waits, cancelled or not, for what sleeps in it */
    return 0;
}

static void scopes_nest(void)
{
    struct cl_scope *outer, *middle, *inner;
    uint32_t told = 0;
    arrived = 0;
    CHECK_EQ(cl_scope_open(FOREVER, &outer), 0);
    CHECK_EQ(cl_scope_self() == outer, true);
    CHECK_EQ(cl_scope_spawn(outer, with_inner, &inner_results[0]), 0);
    CHECK_EQ(cl_scope_open(FOREVER, &middle), 0);
    CHECK_EQ(cl_scope_spawn(middle, with_inner, &inner_results[1]), 0);
    CHECK_EQ(cl_scope_close(outer), -EINVAL); /* an inner one is open */
    CHECK_EQ(cl_scope_deadline(outer, 0), -EINVAL);
    CHECK_EQ(cl_scope_open(FOREVER, &inner), 0);
    CHECK_EQ(cl_scope_spawn(inner, fail_when_cancelled, &told), 0);
    cl_scope_cancel(inner);
    CHECK_EQ(cl_scope_close(inner), -ECANCELED);
    CHECK_EQ(told, 1);
    CHECK_EQ(cl_scope_why(middle), 0); /* inwards only */
    CHECK_EQ(cl_uthread_sleep_ns(1), 0);
    spin_until(&arrived, 2);
    cl_scope_cancel(outer);
    CHECK_EQ(cl_scope_why(middle), -ECANCELED);
    CHECK_EQ(cl_scope_open(FOREVER, &inner), 0); /* cancelled from the start */
    CHECK_EQ(cl_scope_why(inner), -ECANCELED);
    CHECK_EQ(cl_scope_close(inner), -ECANCELED);
    CHECK_EQ(cl_scope_close(middle), -ECANCELED);
    CHECK_EQ(cl_scope_close(outer), -ECANCELED);
    CHECK_EQ(inner_results[0], -ECANCELED);
    CHECK_EQ(inner_results[1], -ECANCELED);
    CHECK_EQ(cl_scope_self() == NULL, true);
}

/* Left open, it is cancelled and closed at the end of its owner. */

static uint32_t forgotten_told;

static int64_t forget(void *arg)
{
    struct cl_scope *scope[3];
    (void)arg;
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(cl_scope_open(FOREVER, &scope[i]), 0);
        CHECK_EQ(cl_scope_spawn(scope[i], fail_when_cancelled, &forgotten_told), 0);
    }
    cl_shield_enter();
    return 0;
}

static void forget_outside(void *arg)
{
    forget(arg);
    cl_uthread_exit();
}

static int64_t end_early(void *arg)
{
    (void)arg;
    return cl_uthread_exit();
}

static void nothing_is_forgotten(void)
{
    struct cl_scope *scope, *left;
    cl_uthread_id id;
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    CHECK_EQ(cl_scope_spawn(scope, forget, NULL), 0);
    CHECK_EQ(cl_scope_spawn(scope, end_early, NULL), 0);
    CHECK_EQ(cl_scope_close(scope), 0);
    CHECK_EQ(forgotten_told, 3);
    CHECK_EQ(cl_uthread_spawn(forget_outside, NULL, &id), 0);
    CHECK_EQ(cl_uthread_join(id), 0);
    CHECK_EQ(forgotten_told, 6);
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    CHECK_EQ(cl_scope_open(FOREVER, &left), 0);
    CHECK_EQ(cl_scope_spawn(left, fail_when_cancelled, &forgotten_told), 0);
    cl_scope_unwind(scope);
    CHECK_EQ(forgotten_told, 7);
    CHECK_EQ(cl_scope_close(scope), 0);
}

static int64_t close_for_another(void *arg)
{
    CHECK_EQ(cl_scope_close(arg), -EINVAL);
    CHECK_EQ(cl_scope_deadline(arg, 0), -EINVAL);
    CHECK_EQ(cl_scope_delete(arg), -EINVAL);
    return 0;
}

static void deadlines_move(void)
{
    struct cl_scope *scope;
    CHECK_EQ(cl_scope_open(now() + HOUR_NS, &scope), 0);
    CHECK_EQ(cl_scope_spawn(scope, close_for_another, scope), 0);
    CHECK_EQ(cl_scope_deadline(scope, now() + 200000), 0);
    CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS), -ECANCELED);
    CHECK_EQ(cl_scope_deadline(scope, FOREVER), 0); /* too late */
    CHECK_EQ(cl_scope_close(scope), -ETIMEDOUT);
    CHECK_EQ(cl_scope_open(now() + HOUR_NS, &scope), 0);
    CHECK_EQ(cl_scope_deadline(scope, FOREVER), 0);
    CHECK_EQ(cl_scope_spawn(scope, NULL, NULL), -EINVAL);
    CHECK_EQ(cl_scope_close(scope), 0);
}

static int64_t add_up(void *arg)
{
    const uint8_t *bytes = arg;
    int64_t sum = 0;
    CHECK_EQ((uintptr_t)arg % 64, 0);
    CHECK_EQ(cl_uthread_sleep_ns(1000), 0);
    for (unsigned i = 0; i < CL_SCOPE_COPY_BYTES; i++)
        sum += bytes[i];
    __atomic_fetch_add(&arrived, (uint32_t)sum, __ATOMIC_RELAXED);
    return 0;
}

static void arguments_are_copied(void)
{
    struct cl_scope *scope;
    uint8_t bytes[CL_SCOPE_COPY_BYTES];
    arrived = 0;
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    CHECK_EQ(cl_scope_spawn_copy(scope, add_up, bytes, sizeof bytes + 1), -EMSGSIZE);
    for (uint8_t i = 1; i <= 10; i++) {
        memset(bytes, i, sizeof bytes);
        CHECK_EQ(cl_scope_spawn_copy(scope, add_up, bytes, sizeof bytes), 0);
    }
    CHECK_EQ(cl_scope_close(scope), 0);
    CHECK_EQ(arrived, 55 * sizeof bytes);
}

static void root(void *arg)
{
    (void)arg;
    arguments_are_copied();
    cancel_reaches_every_wait();
    what_need_not_wait_goes_on();
    first_error_cancels_the_rest();
    scopes_nest();
    nothing_is_forgotten();
    deadlines_move();
    struct cl_scope *scope;
    cl_sched_no_switch_enter();
    CHECK_EQ(cl_scope_open(FOREVER, &scope), -EDEADLK);
    cl_sched_no_switch_leave();
}

/* Without an owner. */

static void post(void *arg)
{
    arrive(arg);
}

static void from_a_foreign_thread(struct cl_sched *s)
{
    struct cl_scope *scope;
    uint32_t told = 0, over = 0;
    CHECK_EQ(cl_scope_open(FOREVER, &scope), -EDEADLK);
    CHECK_EQ(cl_scope_new(s, &scope), 0);
    cl_scope_watch(scope, post, &over);
    CHECK_EQ(over, 1);
    for (unsigned i = 0; i < 20; i++)
        CHECK_EQ(cl_scope_spawn(scope, fail_when_cancelled, &told), 0);
    CHECK_EQ(cl_scope_delete(scope), -EBUSY);
    cl_scope_cancel(scope);
    while (__atomic_load_n(&over, __ATOMIC_ACQUIRE) < 2)
        usleep(100);
    CHECK_EQ(told, 20);
    CHECK_EQ(cl_scope_why(scope), -ECANCELED);
    CHECK_EQ(cl_scope_running(scope), 0);
    CHECK_EQ(cl_scope_delete(scope), 0);
    CHECK_EQ(cl_scope_delete(NULL), 0);
    CHECK_EQ(cl_uthread_cancelled(), 0);
    cl_shield_enter();
    cl_shield_leave();
    CHECK_EQ(cl_scope_self() == NULL, true);
    cl_scope_unwind(NULL);
}

/* A stop cuts sleeps short in scopes, too. */
static int64_t sleep_until_the_stop(void *arg)
{
    arrive(arg);
    CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS), -ESHUTDOWN);
    CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS), -ESHUTDOWN);
    return 0;
}

static uint32_t before_stop;

static void open_and_sleep(void *arg)
{
    struct cl_scope *scope;
    (void)arg;
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    for (unsigned i = 0; i < 5; i++)
        CHECK_EQ(cl_scope_spawn(scope, sleep_until_the_stop, &before_stop), 0);
    CHECK_EQ(cl_scope_close(scope), 0);
}

static uint32_t left;

static void stay(void *arg)
{
    struct cl_scope *scope;
    (void)arg;
    CHECK_EQ(cl_scope_open(FOREVER, &scope), 0);
    arrive(&left);
    (void)cl_sem_wait(&sem);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    struct cl_sched *s = sched_started(&c);
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    from_a_foreign_thread(s);
    CHECK_EQ(cl_sched_spawn(s, open_and_sleep, NULL), 0);
    while (__atomic_load_n(&before_stop, __ATOMIC_ACQUIRE) < 5)
        usleep(100);
    sched_stop_clean(s);
    s = sched_started(&c);
    CHECK_EQ(cl_sched_spawn(s, stay, NULL), 0); /* left behind by a stop: its scope goes with the scheduler */
    while (__atomic_load_n(&left, __ATOMIC_ACQUIRE) < 1)
        usleep(100);
    CHECK_EQ(cl_sched_stop(s, 0), 1);
    cl_sched_delete(s);
    return 0;
}
