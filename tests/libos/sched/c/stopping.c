/* uthreads that sleep learn that the scheduler stops, and none keeps it from stopping. Usage: stopping KTHREADS MODE */
#include "check.h"

#include "libos/sched/internal.h"

#define HOUR_NS 3600000000000ull
#define SLEEPERS 300

static unsigned asleep, told;

/* Sleeps of different lengths: they lie all over the heap. */
static void sleep_long(void *arg)
{
    __atomic_fetch_add(&asleep, 1, __ATOMIC_RELAXED);
    CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS + (uint64_t)(uintptr_t)arg * 7919 % SLEEPERS * 1000000000ull), -ESHUTDOWN);
    CHECK_EQ(cl_uthread_stopping(), 1);
    CHECK_EQ(cl_uthread_sleep_ns(HOUR_NS), -ESHUTDOWN); /* later ones, too */
    CHECK_EQ(cl_uthread_sleep_until_ns(0), 0);          /* what is past is no sleep */
    __atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
}

static void sleep_again_and_again(void *arg)
{
    (void)arg;
    __atomic_fetch_add(&asleep, 1, __ATOMIC_RELAXED);
    for (;;)
        cl_uthread_sleep_ns(1000000);
}

static void wait_for_good(void *arg)
{
    __atomic_fetch_add(&asleep, 1, __ATOMIC_RELAXED);
    cl_sem_wait(arg);
    CHECK(!"nobody posts");
}

static void timed_wait(void *arg)
{
    __atomic_fetch_add(&asleep, 1, __ATOMIC_RELAXED);
    CHECK_EQ(cl_sem_wait_until(arg, cl_sched_now_ns(cl_sched_self()) + 1000000), -ETIMEDOUT);
}

static void not_yet(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_uthread_stopping(), 0);
    CHECK_EQ(cl_uthread_sleep_ns(1000), 0);
}

static void wait_asleep(unsigned n)
{
    while (__atomic_load_n(&asleep, __ATOMIC_RELAXED) < n)
        usleep(100);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    struct cl_sem never = {0};
    struct cl_sched *s = sched_started(&c);
    CHECK_EQ(cl_uthread_stopping(), 0); /* on a foreign thread */
    CHECK_EQ(cl_sched_run(s, not_yet, NULL), 0);
    for (uintptr_t i = 0; i < SLEEPERS; i++)
        CHECK_EQ(cl_sched_spawn(s, sleep_long, (void *)i), 0);
    CHECK_EQ(cl_sched_spawn(s, timed_wait, &never), 0);
    wait_asleep(SLEEPERS / 2); /* others go to sleep while it stops, or after */
    CHECK_EQ(cl_sched_stop(s, -1), 0);
    CHECK_EQ(told, SLEEPERS);
    cl_sched_delete(s);

    asleep = 0;
    s = sched_started(&c);
    CHECK_EQ(cl_sched_spawn(s, sleep_again_and_again, NULL), 0);
    CHECK_EQ(cl_sched_spawn(s, wait_for_good, &never), 0);
    wait_asleep(2);
    CHECK_EQ(cl_sched_stop(s, 50000000), 2); /* the one that does not listen is left behind, as before */
    cl_sched_delete(s);
    return 0;
}
