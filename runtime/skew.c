/* See skew.h. */
#include "skew.h"

#include <corelane/runtime/clock.h>

#include <pthread.h>
#include <sched.h>

#define ROUNDS 64
#define PATIENCE_NS 2000000 /* of a round: the other CPU is busy */
#define ALL_NS 8000000

struct cl_skew cl_skew_of(const struct cl_skew_between *b)
{
    if (b->least == INT64_MIN || b->most < b->least)
        return (struct cl_skew){0, CL_SKEW_UNKNOWN};
    int64_t bound = (b->most - b->least + 1) / 2, offset = b->least + bound;
    if (offset > INT32_MAX || offset < -INT32_MAX || bound >= CL_SKEW_UNKNOWN)
        return (struct cl_skew){0, CL_SKEW_UNKNOWN};
    return (struct cl_skew){(int32_t)offset, (uint32_t)bound};
}

void cl_skews_sum(struct cl_skews *s, unsigned reference)
{
    uint64_t worst[2] = {0, 0}; /* of two CPUs, both may be wrong */
    s->reference = reference;
    s->measured = 0;
    for (unsigned c = 0; c < CL_SKEW_CPUS; c++) {
        const struct cl_skew *of = &s->of[c];
        if (of->bound == CL_SKEW_UNKNOWN)
            continue;
        uint64_t wrong = (uint64_t)(of->offset < 0 ? -(int64_t)of->offset : of->offset) + of->bound;
        s->measured++;
        if (wrong > worst[0]) {
            worst[1] = worst[0];
            worst[0] = wrong;
        } else {
            worst[1] = cl_max(worst[1], wrong);
        }
    }
    s->apart = (uint32_t)cl_min(worst[0] + worst[1], (uint64_t)UINT32_MAX);
}

/* What two CPUs say to each other. */
struct talk {
    uint32_t asked CL_ALIGNED(64);    /* round; by who asks (release) */
    uint32_t over;                    /* by who asks: no more rounds */
    uint32_t answered CL_ALIGNED(64); /* round; by who answers (release), after: */
    uint64_t theirs;
    unsigned cpu; /* constant: of who answers */
};

static bool pin(unsigned cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}

static void *answer(void *arg)
{
    struct talk *t = arg;
    if (!pin(t->cpu))
        return NULL;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        while (cl_load_acquire(&t->asked) < round)
            if (cl_load_relaxed(&t->over))
                return NULL;
        t->theirs = cl_tsc_ordered();
        cl_store_release(&t->answered, round);
    }
    return NULL;
}

static struct cl_skew ask(unsigned cpu, uint64_t until_ns)
{
    struct talk t = {.cpu = cpu};
    struct cl_skew_between b = {INT64_MIN, INT64_MAX};
    pthread_t other;
    if (pthread_create(&other, NULL, answer, &t))
        return (struct cl_skew){0, CL_SKEW_UNKNOWN};
    for (uint32_t round = 1; round <= ROUNDS && !cl_load_relaxed(&t.over); round++) {
        uint64_t give_up = cl_min(cl_monotonic_raw_ns() + PATIENCE_NS, until_ns);
        uint64_t before = cl_tsc_ordered(), after = before;
        cl_store_release(&t.asked, round);
        for (unsigned n = 1; cl_load_acquire(&t.answered) < round; n++)
            if (n % 1024 == 0 && cl_monotonic_raw_ns() > give_up) {
                cl_store_relaxed(&t.over, 1);
                break;
            }
        after = cl_tsc_ordered();
        if (!cl_load_relaxed(&t.over))
            cl_skew_round(&b, before, t.theirs, after);
    }
    pthread_join(other, NULL);
    return cl_skew_of(&b);
}

static struct cl_skews measured;

static void *measure_from(void *arg)
{
    const cpu_set_t *allowed = arg;
    unsigned reference = 0;
    uint64_t until_ns = cl_monotonic_raw_ns() + ALL_NS;
    while (reference + 1 < CL_SKEW_CPUS && !CPU_ISSET(reference, allowed))
        reference++;
    bool pinned = pin(reference);
    measured.of[reference] = (struct cl_skew){0, 0};
    for (unsigned c = reference + 1; pinned && c < CL_SKEW_CPUS; c++)
        if (CPU_ISSET(c, allowed) && cl_monotonic_raw_ns() < until_ns)
            measured.of[c] = cl_tsc_fallback ? (struct cl_skew){0, 0} : ask(c, until_ns);
    cl_skews_sum(&measured, reference);
    return NULL;
}

static void measure(void)
{
    pthread_t thread;
    cpu_set_t allowed;
    for (unsigned c = 0; c < CL_SKEW_CPUS; c++)
        measured.of[c].bound = CL_SKEW_UNKNOWN;
    /* On a thread of its own: the caller's affinity stays what it is. */
    if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) == 0 &&
        pthread_create(&thread, NULL, measure_from, &allowed) == 0)
        pthread_join(thread, NULL);
}

const struct cl_skews *cl_skews_default(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure);
    return &measured;
}
