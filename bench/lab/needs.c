/* See needs.h. */
#include "needs.h"

#include <corelane/libos/probe.h>
#include <corelane/libos/uthread.h>
#include <corelane/runtime/clock.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE_NS 5000000000ull
#define LOOK_NS 200000 /* between two looks of who waits for the end */

struct needs {
    struct cl_sched *latency;
    uint64_t *needed, *ticks;
    uint64_t gap_ticks, random;
    uint32_t n, met;
    uint64_t came;            /* writer: the uthread that was needed (release); reader: the job (acquire) */
    uint32_t over, ended, rc; /* over: by who waits; the others by the job (release) */
};

static uint64_t gap_of(struct needs *r)
{
    r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
    return r->gap_ticks + (uint64_t)(((unsigned __int128)r->gap_ticks * (r->random >> 32)) >> 32);
}

static void came(void *arg)
{
    struct needs *r = arg;
    cl_store_release(&r->came, cl_tsc());
}

/* Whether the need was met, and not after all was over. */
static bool meet(struct needs *r)
{
    cl_store_relaxed(&r->came, 0);
    uint64_t need = cl_tsc();
    int rc = cl_sched_spawn(r->latency, came, r);
    if (rc < 0) {
        r->rc = (uint32_t)-rc;
        return false;
    }
    while (!cl_load_acquire(&r->came))
        CL_PROBE();
    r->needed[r->met] = need;
    r->ticks[r->met] = r->came - need;
    return !cl_load_relaxed(&r->over);
}

static void job(void *arg)
{
    struct needs *r = arg;
    while (r->met < r->n && !cl_load_relaxed(&r->over)) {
        for (uint64_t until = cl_tsc() + gap_of(r); (int64_t)(cl_tsc() - until) < 0;)
            CL_PROBE();
        if (!meet(r))
            break;
        r->met++;
    }
    cl_store_release(&r->ended, 1);
}

static bool await_end(struct needs *r, uint64_t ns)
{
    const struct cl_clock *clock = cl_clock_default();
    for (uint64_t until = cl_tsc() + (uint64_t)cl_ns_to_ticks(clock, (int64_t)ns); !cl_load_acquire(&r->ended);) {
        if ((int64_t)(cl_tsc() - until) >= 0)
            return false;
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    return true;
}

int cl_lab_needs(struct cl_runtime *batch, struct cl_runtime *latency, uint64_t seed, uint64_t gap_ns, uint64_t *needed,
                 uint64_t *ticks, uint32_t n, uint64_t limit_ns)
{
    if (!batch || !latency || batch == latency || !needed || !ticks || n > INT32_MAX)
        return -EINVAL;
    struct needs *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    *r = (struct needs){.latency = cl_runtime_sched(latency),
                        .needed = needed,
                        .ticks = ticks,
                        .gap_ticks = (uint64_t)cl_ns_to_ticks(cl_clock_default(), (int64_t)gap_ns),
                        .random = seed,
                        .n = n};
    int rc = cl_sched_spawn(cl_runtime_sched(batch), job, r);
    if (rc == 0 && !await_end(r, limit_ns)) {
        cl_store_relaxed(&r->over, 1);
        if (!await_end(r, PATIENCE_NS))
            return -ETIMEDOUT; /* r is still in use */
    }
    rc = rc < 0 ? rc : r->rc ? -(int)r->rc : (int)r->met;
    free(r);
    return rc;
}
