/* Lost wake-ups of adopted kthreads, whose threads sleep in epoll without a timeout between two pieces of work: one lost
 * wake-up stops the program, which the watchdog ends. Work comes from foreign threads, from siblings and from timers at
 * the same time. Usage: adopt_wake KTHREADS MODE ADOPTED THREADS ROUNDS */
#include "adopted.h"

static unsigned rounds;
static struct cl_sched *sched;
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

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    struct driver drivers[CL_SCHED_MAX_KTHREADS] = {0};
    pthread_t threads[3];
    c.adopted = (uint32_t)atoi(argv[3]);
    unsigned n = (unsigned)atoi(argv[4]);
    rounds = (unsigned)atoi(argv[5]);
    sched = sched_started(&c);
    for (unsigned i = 0; i < n; i++) {
        drivers[i] = (struct driver){.sched = sched, .first = i * c.adopted / n, .n = c.adopted / n};
        CHECK_EQ(pthread_create(&drivers[i].thread, NULL, drive, &drivers[i]), 0);
    }
    CHECK_EQ(cl_sched_spawn(sched, serve, (void *)(uintptr_t)(3 * rounds)), 0);
    CHECK_EQ(cl_sched_spawn(sched, bursts, NULL), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, foreign, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    sched_stop_checked(sched);
    for (unsigned i = 0; i < n; i++) {
        pthread_join(drivers[i].thread, NULL);
        printf("driver %u: sleeps %llu, for nothing %llu\n", i, (unsigned long long)drivers[i].sleeps,
               (unsigned long long)drivers[i].for_nothing);
    }
    CHECK_EQ(__atomic_load_n(&served, __ATOMIC_ACQUIRE), 3ull * rounds);
    cl_sched_delete(sched);
    return 0;
}
