/* Work for kthreads that always sleep between two pieces of it, with no watch to save them: one lost wake-up stops the
 * program, which the watchdog ends. It comes from foreign threads, from siblings and from timers at the same time. */
#ifndef TESTS_LIBOS_SCHED_WAKES_H
#define TESTS_LIBOS_SCHED_WAKES_H

#include "check.h"

#include <pthread.h>

static unsigned rounds;
static struct cl_sched *sched;

/* Foreign thread <-> uthread: the uthread sleeps in a semaphore, the thread in cl_sched_run. */
static struct cl_sem to_server;
static uint64_t served;

static void serve(void *arg)
{
    for (uintptr_t n = (uintptr_t)arg; n; n--) {
        CHECK_EQ(cl_sem_wait(&to_server), 0);
        __atomic_fetch_add(&served, 1, __ATOMIC_RELEASE);
    }
}

static void nothing(void *arg)
{
    *(unsigned *)arg += 1;
}

static void *foreign(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < rounds; i++) {
        unsigned ran = 0;
        cl_sem_post(&to_server);
        CHECK_EQ(cl_sched_run(sched, nothing, &ran), 0);
        CHECK_EQ(ran, 1);
    }
    return NULL;
}

/* Bursts from one uthread that siblings have to be woken for; then everybody sleeps by timers of different lengths. */
static void burst_one(void *arg)
{
    cl_uthread_sleep_ns((uint64_t)(uintptr_t)arg % 7 * 3000);
}

static void bursts(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < rounds / 8; i++) {
        cl_uthread_id ids[8];
        for (uintptr_t n = 0; n < 8; n++)
            CHECK_EQ(cl_uthread_spawn(burst_one, (void *)(n + i), &ids[n]), 0);
        for (unsigned n = 0; n < 8; n++)
            CHECK_EQ(cl_uthread_join(ids[n]), 0);
        cl_uthread_sleep_ns(i % 50 * 1000);
    }
}

#define FOREIGN 3

/* All of it, `n` rounds. */
static void wakes_run(struct cl_sched *of, unsigned n)
{
    pthread_t threads[FOREIGN];
    sched = of;
    rounds = n;
    CHECK_EQ(cl_sched_spawn(sched, serve, (void *)(uintptr_t)(FOREIGN * rounds)), 0);
    CHECK_EQ(cl_sched_spawn(sched, bursts, NULL), 0);
    for (int i = 0; i < FOREIGN; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, foreign, NULL), 0);
    for (int i = 0; i < FOREIGN; i++)
        pthread_join(threads[i], NULL);
}

/* After the scheduler has stopped. */
static void wakes_check(void)
{
    CHECK_EQ(__atomic_load_n(&served, __ATOMIC_ACQUIRE), (uint64_t)FOREIGN * rounds);
}

#endif
