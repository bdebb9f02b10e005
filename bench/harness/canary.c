/* See canary.h. The loop is a counter read, a subtraction and a comparison: its own period is some ten nanoseconds. */
#include "canary.h"
#include "pinned.h"
#include <corelane/runtime/clock.h>

#define SUB_BITS 3 /* eight buckets an octave */
#define CHECK_EVERY 4096

struct watcher {
    struct cl_canary *out;
    uint64_t duration_ns;
    uint64_t floor_ns;
    uint32_t *go; /* writer: the caller, once; readers: watchers */
    pthread_t thread;
};

static unsigned bucket_of(uint64_t ticks)
{
    if (ticks < (1u << SUB_BITS))
        return (unsigned)ticks;
    unsigned top = 63u - (unsigned)__builtin_clzll(ticks);
    unsigned sub = (unsigned)(ticks >> (top - SUB_BITS)) & ((1u << SUB_BITS) - 1);
    unsigned i = ((top - SUB_BITS + 1) << SUB_BITS) + sub;
    return cl_min(i, (unsigned)CL_CANARY_BUCKETS - 1);
}

uint64_t cl_canary_bucket_start(unsigned i)
{
    if (i < (1u << SUB_BITS))
        return i;
    unsigned octave = i >> SUB_BITS, sub = i & ((1u << SUB_BITS) - 1);
    return (uint64_t)((1u << SUB_BITS) + sub) << (octave - 1);
}

/* Ticks of floor_ns, from a first look at both clocks; exact scaling comes from the whole run. */
static uint64_t floor_ticks(uint64_t floor_ns)
{
    uint64_t wall = cl_bench_wall_ns(), tick = cl_tsc();
    while (cl_bench_wall_ns() - wall < 200000)
        ;
    uint64_t ticks = cl_tsc() - tick, ns = cl_bench_wall_ns() - wall;
    return cl_max(ticks * floor_ns / ns, (uint64_t)2);
}

static void *watch(void *arg)
{
    struct watcher *w = arg;
    struct cl_canary *out = w->out;
    uint64_t floor = floor_ticks(w->floor_ns);
    while (!cl_load_acquire(w->go)) /* acquire: pairs with the release store after all watchers exist */
        cl_relax();
    uint64_t wall = cl_bench_wall_ns(), first = cl_tsc(), last = first, polls = 0;
    uint64_t end = wall + w->duration_ns;
    do {
        for (unsigned i = 0; i < CHECK_EVERY; i++) {
            uint64_t now = cl_tsc(), gap = now - last;
            last = now;
            if (cl_unlikely(gap >= floor && gap < 1ull << 62)) { /* upper bound: a counter behind on another core */
                unsigned b = bucket_of(gap);
                out->count[b]++;
                out->ticks[b] += gap;
                if (gap > out->max_ticks)
                    out->max_ticks = gap;
            }
        }
        polls += CHECK_EVERY;
    } while (cl_bench_wall_ns() < end);
    uint64_t ns = cl_bench_wall_ns() - wall;
    out->seconds = (double)ns * 1e-9;
    out->ns_per_tick = (double)ns / (double)(cl_tsc() - first);
    out->polls = polls;
    return NULL;
}

int cl_canary_watch(const int32_t *cpus, unsigned n, uint64_t duration_ns, uint64_t floor_ns, struct cl_canary *out,
                    char *err)
{
    struct watcher watchers[CL_CANARY_CPUS];
    uint32_t go = 0;
    int rc = 0;
    unsigned started = 0;
    if (n == 0 || n > CL_CANARY_CPUS || duration_ns > 3600000000000ull) {
        snprintf(err, CL_BENCH_ERR_BYTES, "a canary watches 1 to %d cores for at most an hour", CL_CANARY_CPUS);
        return -EINVAL;
    }
    memset(out, 0, n * sizeof(*out));
    for (; started < n; started++) {
        struct watcher *w = &watchers[started];
        *w = (struct watcher){&out[started], duration_ns, floor_ns, &go, 0};
        rc = cl_bench_start_pinned(&w->thread, cpus[started], watch, w, err);
        if (rc) {
            for (unsigned i = 0; i < started; i++)
                watchers[i].duration_ns = 0; /* read after `go` only */
            break;
        }
    }
    cl_store_release(&go, 1); /* release: the durations above come first */
    for (unsigned i = 0; i < started; i++)
        pthread_join(watchers[i].thread, NULL);
    return rc;
}
