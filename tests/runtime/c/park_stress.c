/* Sleepers and wakers at full speed: no wake-up is lost. Each of two sides sleeps until the other has moved its
 * counter, so one lost wake-up stops everything, and a watchdog says so.
 * Usage: park_stress futex|private|eventfd threads|processes ROUNDS EXTRA_WAKERS
 *   EXTRA_WAKERS threads wake both sides at random times without any work: needless wake-ups must do no harm. */
#include <corelane/runtime/park.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct side {
    uint32_t word CL_ALIGNED(CL_CACHELINE);  /* the parker's */
    uint64_t count CL_ALIGNED(CL_CACHELINE); /* writer: this side (release); reader: the other (acquire) */
    uint64_t payload;                        /* plain data that `count` publishes */
    uint64_t sleeps;
    struct cl_parker parker;
};

struct shared {
    struct side side[2];
    uint32_t wrong, finished CL_ALIGNED(CL_CACHELINE);
};

static struct shared *shared;
static uint64_t rounds;

static void sleep_until(struct side *me, struct side *other, uint64_t want)
{
    struct cl_parker *p = &me->parker;
    while (cl_load_acquire(&other->count) < want) {
        cl_park_begin(p);
        if (cl_load_acquire(&other->count) >= want) {
            cl_park_cancel(p);
            return;
        }
        me->sleeps++;
        if (p->event_fd >= 0)
            cl_park_wait_fd(p, -1, -1);
        else
            cl_park_wait(p, -1);
    }
}

static void play(unsigned which)
{
    struct side *me = &shared->side[which], *other = &shared->side[!which];
    uint64_t state = which + 1;
    for (uint64_t i = 1; i <= rounds; i++) {
        if (which == 1) {
            sleep_until(me, other, i);
            if (other->payload != i * 3)
                cl_store_relaxed(&shared->wrong, 1);
        }
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        for (unsigned spin = (unsigned)(state >> 55); spin > 0 && (i & 7); spin--)
            cl_relax(); /* shift the two sides against each other */
        me->payload = i * 3;
        cl_store_release(&me->count, i);
        if (i & 1)
            cl_park_wake(&other->parker);
        else
            cl_park_wake_fast(&other->parker);
        if (which == 0)
            sleep_until(me, other, i);
    }
    __atomic_fetch_add(&shared->finished, 1, __ATOMIC_ACQ_REL);
}

static void *play_thread(void *which)
{
    play((unsigned)(uintptr_t)which);
    return NULL;
}

static void *disturb(void *arg)
{
    struct timespec pause = {0, 50000};
    (void)arg;
    while (cl_load_acquire(&shared->finished) < 2) {
        cl_park_wake(&shared->side[0].parker);
        cl_park_wake(&shared->side[1].parker);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Reports a standstill: 10 s in which neither counter moved. */
static void *watch(void *arg)
{
    uint64_t last = 0;
    struct timespec pause = {0, 20000000};
    (void)arg;
    for (unsigned still = 0; cl_load_acquire(&shared->finished) < 2; still++) {
        uint64_t now = cl_load_relaxed(&shared->side[0].count) + cl_load_relaxed(&shared->side[1].count);
        if (now != last)
            still = 0;
        last = now;
        if (still > 500) {
            printf("lost wake-up: counts %llu and %llu, words %u and %u\n", (unsigned long long)shared->side[0].count,
                   (unsigned long long)shared->side[1].count, shared->side[0].word, shared->side[1].word);
            fflush(stdout);
            _exit(1);
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    bool processes = !strcmp(argv[2], "processes");
    unsigned extra = (unsigned)atoi(argv[4]);
    rounds = strtoull(argv[3], NULL, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++) {
        int fd = !strcmp(argv[1], "eventfd")   ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
                 : !strcmp(argv[1], "private") ? CL_PARK_FUTEX_PRIVATE
                                               : CL_PARK_FUTEX;
        shared->side[i].parker = (struct cl_parker){.word = &shared->side[i].word, .event_fd = fd};
    }
    pid_t child = processes ? fork() : 0;
    if (processes && child == 0) {
        play(1);
        _exit(0);
    }
    pthread_t threads[16], watcher;
    unsigned n = 0;
    pthread_create(&watcher, NULL, watch, NULL);
    pthread_create(&threads[n++], NULL, play_thread, (void *)0);
    if (!processes)
        pthread_create(&threads[n++], NULL, play_thread, (void *)1);
    for (unsigned i = 0; i < extra; i++)
        pthread_create(&threads[n++], NULL, disturb, NULL);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    if (processes)
        waitpid(child, NULL, 0);
    pthread_join(watcher, NULL);
    printf("%llu rounds, %s, slept %llu and %llu times\n", (unsigned long long)rounds,
           shared->wrong ? "WRONG DATA" : "all data right", (unsigned long long)shared->side[0].sleeps,
           (unsigned long long)shared->side[1].sleeps);
    return shared->wrong || shared->side[0].sleeps + shared->side[1].sleeps == 0;
}
