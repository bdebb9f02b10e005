/* See taker.h. */
#include "taker.h"

#include "../../drivers/random.h"
#include "../harness/pinned.h"

#include <stdlib.h>
#include <sys/prctl.h>

#define SLEEP_LEAST_NS 1000000
#define SLEEP_MORE_NS 3000000

struct cl_bench_taker {
    pthread_t thread;
    struct cl_random random;
    uint64_t least_ns, most_ns;
    uint32_t room, n;
    uint32_t stopping; /* writer: who stops it; relaxed */
    bool first;
    struct cl_bench_taken *taken;
};

static void *take(void *arg)
{
    struct cl_bench_taker *t = arg;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    do {
        struct timespec nap = {0, (long)(SLEEP_LEAST_NS + cl_random_below(&t->random, SLEEP_MORE_NS))};
        uint64_t ns = t->least_ns + cl_random_below(&t->random, t->most_ns - t->least_ns + 1);
        nanosleep(&nap, NULL);
        uint64_t begin = cl_tsc_ordered(), until = begin + (uint64_t)cl_ns_to_ticks(cl_clock_default(), (int64_t)ns),
                 now;
        while ((now = cl_tsc_ordered()) < until)
            ;
        t->taken[t->n++] = (struct cl_bench_taken){begin, now};
    } while (!cl_load_relaxed(&t->stopping) && t->n < t->room);
    return NULL;
}

int cl_bench_taker_start(int cpu, uint64_t seed, uint64_t least_ns, uint64_t most_ns, uint32_t room,
                         struct cl_bench_taker **out, char err[256])
{
    struct sched_param first = {.sched_priority = 1};
    struct cl_bench_taker *t = calloc(1, sizeof *t);
    struct cl_bench_taken *taken = calloc(room, sizeof *taken);
    if (!t || !taken) {
        free(t);
        free(taken);
        snprintf(err, 256, "no memory to note %u gaps", room);
        return -ENOMEM;
    }
    t->taken = taken;
    t->random = (struct cl_random){seed};
    t->least_ns = least_ns;
    t->most_ns = most_ns;
    t->room = room;
    int rc = cl_bench_start_pinned(&t->thread, cpu, take, t, err);
    if (rc) {
        free(t->taken);
        free(t);
        return rc;
    }
    t->first = pthread_setschedparam(t->thread, SCHED_FIFO, &first) == 0;
    *out = t;
    return 0;
}

bool cl_bench_taker_is_first(const struct cl_bench_taker *t)
{
    return t->first;
}

int64_t cl_bench_taker_stop(struct cl_bench_taker *t, struct cl_bench_taken *out, uint32_t room)
{
    cl_store_relaxed(&t->stopping, 1);
    pthread_join(t->thread, NULL);
    uint32_t n = cl_min(t->n, room);
    memcpy(out, t->taken, n * sizeof *out);
    free(t->taken);
    free(t);
    return n;
}
