/* See trial.h. */
#include "trial.h"

#include <corelane/runtime/clock.h>
#include "guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERR_BYTES 256
#define HISTORY 64  /* tables in a row for which the memory is kept */
#define TIMED 400   /* calls of which the fastest counts */
#define CANARY 0xA5 /* in the unused part of the copy, before apps[0] */

/* splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t pick(uint64_t *rng, uint64_t below)
{
    return below ? next(rng) % below : 0;
}

/* Mostly nothing, or around the usual thresholds, or far beyond them. */
static uint64_t some_delay_ns(uint64_t *rng)
{
    static const uint64_t usual[] = {0, 0, 0, 1, 4999, 5000, 5001, 9999, 10001, 50000, 1000000, 3600000000000};
    uint64_t at = pick(rng, sizeof usual / sizeof *usual + 1);
    return at < sizeof usual / sizeof *usual ? usual[at] : pick(rng, 200000);
}

void cl_policy_generate(uint64_t seed, struct cl_policy_view *view, struct cl_policy_app *apps, uint32_t n,
                        uint32_t n_cores)
{
    uint64_t rng = seed;
    uint32_t left = n_cores;
    memset(view, 0, sizeof *view);
    view->now_ns = 1000000000 + pick(&rng, 1000000000000);
    view->interval_ns = 5000;
    view->n_apps = n;
    view->n_cores = n_cores;
    view->move_ns = pick(&rng, 2) ? 0 : pick(&rng, 60000);
    view->batch_ns = pick(&rng, 2) ? 0 : pick(&rng, 2000000);
    view->moving_ns = pick(&rng, 2) ? 0 : pick(&rng, 500000);
    for (uint32_t i = 0; i < n; i++) {
        struct cl_policy_app *a = &apps[i];
        memset(a, 0, sizeof *a);
        a->kind = pick(&rng, 3) ? CL_POLICY_LATENCY : CL_POLICY_BATCH;
        if (a->kind == CL_POLICY_LATENCY) {
            a->packet_delay_ns = some_delay_ns(&rng);
            a->thread_delay_ns = some_delay_ns(&rng);
            a->timer_delay_ns = pick(&rng, 4) ? 0 : some_delay_ns(&rng);
            a->storage_delay_ns = pick(&rng, 4) ? 0 : some_delay_ns(&rng);
            a->deadline_ns = pick(&rng, 2) ? 0 : some_delay_ns(&rng);
            a->answer_ns = pick(&rng, 2) ? 0 : pick(&rng, 60000);
        }
        a->attained_ns = next(&rng) >> (20 + pick(&rng, 44));
        a->maximum = (uint32_t)(pick(&rng, 4) ? 1 + pick(&rng, n_cores) : pick(&rng, 2) * n_cores);
        a->guaranteed = (uint32_t)(pick(&rng, 2) ? 0 : pick(&rng, a->maximum + 1));
        a->weight = (uint32_t)(pick(&rng, 4) ? 1 : 1 + pick(&rng, 1000));
        a->cores = (uint32_t)pick(&rng, cl_min(left, a->maximum) + 1);
        a->idle = a->kind == CL_POLICY_BATCH ? 0 : (uint32_t)pick(&rng, a->cores + 1);
        bool wants_more = a->kind == CL_POLICY_BATCH ? pick(&rng, 4) != 0 : cl_policy_oldest_ns(a) != 0;
        uint32_t more = wants_more ? 1 + (uint32_t)pick(&rng, n_cores) : 0;
        a->demand = cl_min(a->cores - a->idle + more, a->maximum);
        left -= a->cores;
    }
}

struct trial {
    cl_policy_fn fn;
    const uint64_t *params;
    struct cl_policy_guard *guard;
    struct cl_policy_verdict *verdict;
    struct cl_policy_app rows[CL_POLICY_MAX_APPS];
    /* By histories: what the first pass answered, for the second. */
    uint64_t answers[HISTORY];
};

static uint32_t found(struct trial *t, uint32_t what, uint32_t app)
{
    t->verdict->found = what;
    t->verdict->app = app;
    return what;
}

/* What one call left in the copy, against the rows that it was made from. */
static uint32_t inspect(struct trial *t, const struct cl_policy_view *view, const struct cl_policy_app *copy,
                        const uint8_t *before, size_t unused)
{
    for (size_t k = 0; k < unused; k++)
        if (before[k] != CANARY) {
            t->verdict->offset = (int64_t)k - (int64_t)unused;
            return found(t, CL_POLICY_BEFORE, 0);
        }
    for (uint32_t i = 0; i < view->n_apps; i++) {
        const uint8_t *was = (const uint8_t *)&t->rows[i], *is = (const uint8_t *)&copy[i];
        for (size_t k = 0; k < sizeof *copy; k++) {
            if (k < offsetof(struct cl_policy_app, grant) && was[k] != is[k]) {
                t->verdict->offset = (int64_t)(i * sizeof *copy + k);
                return found(t, CL_POLICY_OVERWROTE, i);
            }
        }
        t->verdict->grant = copy[i].grant;
        if (copy[i].grant == CL_POLICY_NO_GRANT)
            return found(t, CL_POLICY_UNWRITTEN, i);
        if (copy[i].grant > CL_POLICY_MOST_GRANT)
            return found(t, CL_POLICY_NONSENSE, i);
    }
    return CL_POLICY_FINE;
}

/* One table: generated (the memory of its rows kept if asked), called, inspected. *answer is a hash of grants and
 * memory. */
static uint32_t try_table(struct trial *t, uint64_t seed, uint32_t n, uint32_t n_cores, bool keep_memory,
                          uint64_t *answer)
{
    uint64_t memory[CL_POLICY_MAX_APPS][CL_POLICY_MEMORY];
    for (uint32_t i = 0; i < n; i++)
        memcpy(memory[i], t->rows[i].memory, sizeof memory[i]);
    struct cl_policy_view view;
    cl_policy_generate(seed, &view, t->rows, n, n_cores);
    memcpy(view.params, t->params, sizeof view.params);
    struct cl_policy_app *copy = cl_policy_guard_table(t->guard, n);
    size_t unused = (CL_POLICY_MAX_APPS - n) * sizeof *copy;
    uint8_t *before = (uint8_t *)copy - unused;
    memset(before, CANARY, unused);
    for (uint32_t i = 0; i < n; i++) {
        if (keep_memory)
            memcpy(t->rows[i].memory, memory[i], sizeof memory[i]);
        t->rows[i].grant = CL_POLICY_NO_GRANT;
        copy[i] = t->rows[i];
    }
    t->verdict->n_apps = n;
    struct cl_policy_event event;
    if (cl_policy_guard_call(t->guard, t->fn, &view, copy, &event)) {
        t->verdict->signal = event.signal;
        t->verdict->offset = event.offset;
        return found(t, event.reason, 0);
    }
    if (inspect(t, &view, copy, before, unused))
        return t->verdict->found;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, by words */
    for (uint32_t i = 0; i < n; i++) {
        memcpy(t->rows[i].memory, copy[i].memory, sizeof copy[i].memory);
        hash = (hash ^ copy[i].grant) * 0x100000001b3u;
        for (unsigned k = 0; k < CL_POLICY_MEMORY; k++)
            hash = (hash ^ copy[i].memory[k]) * 0x100000001b3u;
    }
    *answer = hash;
    return CL_POLICY_FINE;
}

/* The same history of tables twice: with the same applications, and memory that is zero at its begin. Between, one call
 * more, so that a state of the policy's own, if it goes round, is not where it was. */
static uint32_t try_history(struct trial *t, uint64_t seed, uint32_t length)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 16, 64, CL_POLICY_MAX_APPS};
    static const uint32_t machines[] = {1, 2, 4, 16, 64, 256};
    uint64_t rng = seed;
    uint32_t n = sizes[pick(&rng, sizeof sizes / sizeof *sizes)];
    uint32_t cores = machines[pick(&rng, sizeof machines / sizeof *machines)];
    for (unsigned pass = 0; pass < 2; pass++) {
        uint64_t answer = 0;
        uint32_t rc = pass ? try_table(t, seed, n, cores, false, &answer) : CL_POLICY_FINE;
        for (uint32_t k = 0; rc == 0 && k < length; k++) {
            rc = try_table(t, seed + k, n, cores, k > 0, &answer);
            t->verdict->tables += pass == 0;
            if (pass == 0)
                t->answers[k] = answer;
            else if (rc == 0 && t->answers[k] != answer)
                rc = found(t, CL_POLICY_UNSTEADY, 0);
        }
        if (rc)
            return rc;
    }
    return CL_POLICY_FINE;
}

/* The fastest of many: others had the core during the rest. */
static uint32_t try_speed(struct trial *t, uint64_t seed)
{
    uint64_t least = UINT64_MAX, answer;
    for (unsigned k = 0; k < TIMED; k++) {
        uint32_t rc = try_table(t, seed, CL_POLICY_MAX_APPS, 256, false, &answer);
        if (rc)
            return rc;
        /* That was mostly generating and inspecting. The call alone, on the table as it lies there: */
        struct cl_policy_app *copy = cl_policy_guard_table(t->guard, CL_POLICY_MAX_APPS);
        struct cl_policy_view view = {.interval_ns = 5000, .n_apps = CL_POLICY_MAX_APPS, .n_cores = 256};
        struct cl_policy_event event;
        memcpy(copy, t->rows, sizeof t->rows);
        memcpy(view.params, t->params, sizeof view.params);
        uint64_t begin = cl_tsc_ordered();
        rc = cl_policy_guard_call(t->guard, t->fn, &view, copy, &event);
        least = cl_min(least, cl_tsc_ordered() - begin);
        if (rc)
            return found(t, rc, 0);
    }
    t->verdict->ns = (double)cl_ticks_to_ns(cl_clock_default(), (int64_t)least);
    return t->verdict->ns > CL_POLICY_TRIAL_NS ? found(t, CL_POLICY_SLOW, 0) : CL_POLICY_FINE;
}

int cl_policy_trial(cl_policy_fn fn, const uint64_t *params, uint64_t seed, uint64_t tables, uint64_t limit_ns,
                    struct cl_policy_verdict *out, char *err)
{
    memset(out, 0, sizeof *out);
    struct trial *t = calloc(1, sizeof *t);
    if (!t)
        return snprintf(err, ERR_BYTES, "out of memory for a trial"), -ENOMEM;
    t->fn = fn;
    t->params = params;
    t->verdict = out;
    int rc = cl_policy_guard_new(limit_ns, 0, &t->guard, err);
    if (rc == 0)
        rc = cl_policy_guard_prepare(err);
    if (rc == 0) {
        uint32_t what = CL_POLICY_FINE;
        while (!what && out->tables < tables)
            what = try_history(t, seed + out->tables, (uint32_t)cl_min(tables - out->tables, (uint64_t)HISTORY));
        if (!what)
            try_speed(t, seed);
        rc = (int)out->found;
    }
    cl_policy_guard_delete(t->guard);
    free(t);
    return rc;
}

/* The next table of a measurement: other signals, and the cores that the last decision granted. */
static void advance(struct cl_policy_app *apps, const struct cl_policy_app *signals, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cl_policy_app *a = &apps[i];
        a->cores = a->grant;
        a->attained_ns += a->grant * 5000;
        if (a->kind == CL_POLICY_BATCH)
            continue;
        a->packet_delay_ns = signals[i].packet_delay_ns;
        a->thread_delay_ns = signals[i].thread_delay_ns;
        a->idle = cl_min(signals[i].idle, a->cores);
        a->demand = cl_min(a->cores - a->idle + (cl_policy_oldest_ns(a) != 0), a->maximum);
    }
}

int cl_policy_measure(const struct cl_policy_setting *setting, uint32_t n_apps, uint32_t n_cores, uint64_t seed,
                      uint32_t rounds, double *out, char *err)
{
    enum { TABLES = 64 };
    if (n_apps == 0 || n_apps > CL_POLICY_MAX_APPS)
        return snprintf(err, ERR_BYTES, "1 to %d applications", CL_POLICY_MAX_APPS), -EINVAL;
    struct cl_policy_view views[TABLES];
    struct cl_policy_app *tables = aligned_alloc(CL_CACHELINE, TABLES * n_apps * sizeof *tables);
    struct cl_policy_app *apps = aligned_alloc(CL_CACHELINE, n_apps * sizeof *apps);
    struct cl_policy_host *host = NULL;
    int rc = tables && apps ? cl_policy_host_new(0, 0, &host, err) : -ENOMEM;
    if (rc == 0)
        rc = (int)cl_min(cl_policy_host_set(host, setting, err), (int64_t)0);
    for (unsigned k = 0; rc == 0 && k < TABLES; k++)
        cl_policy_generate(seed + k, &views[k], tables + k * n_apps, n_apps, n_cores);
    if (rc == 0)
        memcpy(apps, tables, n_apps * sizeof *apps);
    uint64_t clock_ticks = UINT64_MAX;
    for (unsigned k = 0; k < 1000; k++) {
        uint64_t begin = cl_tsc_ordered();
        clock_ticks = cl_min(clock_ticks, cl_tsc_ordered() - begin);
    }
    for (uint32_t r = 0; rc == 0 && r < rounds; r++) {
        advance(apps, tables + (r % TABLES) * n_apps, n_apps);
        uint64_t begin = cl_tsc_ordered();
        cl_policy_run(host, &views[r % TABLES], apps);
        uint64_t ticks = cl_tsc_ordered() - begin;
        out[r] = (double)cl_ticks_to_ns(cl_clock_default(), (int64_t)(ticks - cl_min(ticks, clock_ticks)));
    }
    cl_policy_host_delete(host);
    free(tables);
    free(apps);
    return rc;
}
