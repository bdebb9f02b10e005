/* See cuts.h and, for the parts, cuts_internal.h. */
#include "cuts_internal.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_OF 8       /* sectors in flight of which every subset is tried */
#define DRAWN 24       /* subsets of more of them, beside each sector alone and all but each */
#define MOST_OPEN 1024 /* sectors in flight: 16 flushes of 16 KiB, superblocks and a snapshot's */
#define AREA_BYTES (256u << 10)
#define SNAPSHOT_BYTES 9000
#define FLUSH_BYTES 16384
#define MOST_APPENDS (1u << 16)
/* More than a run ever took; if not, it ends with -EOVERFLOW or -ENOMEM. */
#define MOST_OPS(appends) ((appends)*2 + 256)
#define MOST_SECTORS(appends) ((appends)*24ull + 8192)

/* After each sector. What it leaves is what opening writes again, but for the superblocks. */
static int replay(struct cuts_run *run, struct cl_blk *work, struct cl_bench_log_cuts *out, char err[256])
{
    const struct cuts_recorder *r = &run->device;
    uint8_t *data = cl_blk_memory_data(work), supers[2 * CL_LOG_BLOCK_BYTES];
    for (uint64_t k = 0; k < r->n_stored; k++) {
        memcpy(data + r->all[k].offset, r->all[k].bytes, CUTS_SECTOR);
        memcpy(supers, data, sizeof supers);
        /* Nothing is stored until the next sector is, so what is acknowledged by then must be here. */
        const struct cuts_bounds *sure = k + 1 < r->n_stored ? &r->all[k + 1].then : &r->now;
        out->cuts++;
        int rc = cuts_run_check(run, work, k, sure, &r->all[k].then, out, err);
        if (rc)
            return rc;
        memcpy(data, supers, sizeof supers);
        out->recovered++;
    }
    return 0;
}

/* The replay of a run's writes as wholes: `base` has those that are done, `work` what a crash leaves. */
struct crashes {
    uint8_t *base, *work;
    struct cl_blk *work_blk;
    const struct cuts_stored **sectors; /* those of write w: sectors[first[w]] to before sectors[first[w + 1]] */
    uint64_t *first;
    uint32_t flights[CUTS_FLIGHTS];
    unsigned n;
    const struct cuts_stored *open[MOST_OPEN]; /* of the writes in flight, those that change something */
    unsigned n_open;
    struct cuts_run *run;
    struct cl_random random;
    struct cl_bench_log_cuts counts;
};

/* Open what a crash leaves of which the sectors of `open` that `stays` says were stored. */
static int crash(struct crashes *c, const bool *stays, const struct cuts_bounds *sure, const struct cuts_bounds *most,
                 char err[256])
{
    for (unsigned i = 0; i < c->n_open; i++)
        if (stays[i])
            memcpy(c->work + c->open[i]->offset, c->open[i]->bytes, CUTS_SECTOR);
    int rc = cuts_run_check(c->run, c->work_blk, c->counts.cuts++, sure, most, &c->counts, err);
    for (unsigned i = 0; i < c->n_open; i++)
        memcpy(c->work + c->open[i]->offset, c->base + c->open[i]->offset, CUTS_SECTOR);
    memcpy(c->work, c->base, 2 * CL_LOG_BLOCK_BYTES); /* opening writes the flushes as it found them, and these anew */
    c->counts.recovered += rc == 0;
    return rc;
}

/* All subsets of a few sectors; of many: none, all, each alone, all but each, and some drawn with one to seven eighths
 * of them. */
static int subsets(struct crashes *c, const struct cuts_bounds *sure, const struct cuts_bounds *most_then,
                   char err[256])
{
    bool stays[MOST_OPEN];
    unsigned n = c->n_open, most = n <= ALL_OF ? 1u << n : 2 + 2 * n + DRAWN;
    int rc = 0;
    for (unsigned k = 0; k < most && rc == 0; k++) {
        unsigned eighths = 1 + (unsigned)cl_random_below(&c->random, 7);
        for (unsigned i = 0; i < n; i++) {
            if (n <= ALL_OF)
                stays[i] = k >> i & 1;
            else if (k < 2 + 2 * n)
                stays[i] = (k & 1) == (k / 2 != i);
            else
                stays[i] = cl_random_below(&c->random, 8) < eighths;
        }
        rc = crash(c, stays, sure, most_then, err);
    }
    return rc;
}
/* Of the superblocks that are done either may rot: the other one and the ring have all that was acknowledged. */
static int rotten_superblocks(struct crashes *c, const struct cuts_bounds *sure, const struct cuts_bounds *most,
                              char err[256])
{
    if (c->base[0] == 0 || c->base[CL_LOG_BLOCK_BYTES] == 0)
        return 0; /* a new log has one until it has been opened */
    int rc = 0;
    for (unsigned slot = 0; slot < 2 && rc == 0; slot++) {
        struct cl_bench_log_cuts counts = {0};
        c->work[slot * CL_LOG_BLOCK_BYTES + cl_random_below(&c->random, CUTS_SECTOR)] ^= 0x55;
        rc = cuts_run_check(c->run, c->work_blk, c->counts.rotten++, sure, most, &counts, err);
        memcpy(c->work, c->base, 2 * CL_LOG_BLOCK_BYTES);
        c->counts.rotten_recovered += rc == 0;
    }
    return rc;
}

/* The next event has come: which sectors of which writes are open then. */
static int advance(struct crashes *c, const struct cuts_event *e)
{
    if (!e->done) {
        c->flights[c->n++] = e->write;
    } else {
        unsigned i = 0;
        while (c->flights[i] != e->write)
            i++;
        c->flights[i] = c->flights[--c->n];
        for (uint64_t k = c->first[e->write]; k < c->first[e->write + 1]; k++) {
            memcpy(c->base + c->sectors[k]->offset, c->sectors[k]->bytes, CUTS_SECTOR);
            memcpy(c->work + c->sectors[k]->offset, c->sectors[k]->bytes, CUTS_SECTOR);
        }
    }
    c->n_open = 0;
    for (unsigned i = 0; i < c->n; i++)
        for (uint64_t k = c->first[c->flights[i]]; k < c->first[c->flights[i] + 1]; k++)
            if (memcmp(c->base + c->sectors[k]->offset, c->sectors[k]->bytes, CUTS_SECTOR) != 0) {
                if (c->n_open == MOST_OPEN)
                    return -EOVERFLOW;
                c->open[c->n_open++] = c->sectors[k];
            }
    return 0;
}

/* Sort the stored sectors by their write; each write's are in order. */
static int by_write(struct crashes *c, const struct cuts_recorder *r)
{
    c->first = calloc(r->n_writes + 2, sizeof *c->first);
    c->sectors = calloc(r->n_stored + 1, sizeof *c->sectors);
    if (!c->first || !c->sectors)
        return -ENOMEM;
    for (uint64_t k = 0; k < r->n_stored; k++)
        c->first[r->all[k].write + 2]++;
    for (uint32_t w = 2; w < r->n_writes + 2; w++)
        c->first[w] += c->first[w - 1];
    for (uint64_t k = 0; k < r->n_stored; k++)
        c->sectors[c->first[r->all[k].write + 1]++] = &r->all[k];
    return 0;
}

/* Between any two events: the writes that are done, and any of the sectors of the others. */
static int replay_subsets(struct crashes *c, char err[256])
{
    const struct cuts_recorder *r = &c->run->device;
    int rc = by_write(c, r);
    for (uint64_t k = 0; k < r->n_events && rc == 0; k++) {
        const struct cuts_bounds *sure = k + 1 < r->n_events ? &r->events[k + 1].then : &r->now;
        rc = advance(c, &r->events[k]);
        if (rc == 0)
            rc = subsets(c, sure, &r->events[k].then, err);
        if (rc == 0)
            rc = rotten_superblocks(c, sure, &r->events[k].then, err);
    }
    free(c->first);
    free(c->sectors);
    return rc;
}

/* What one opening frees is the next one's. Given back to the kernel each time it takes nine tenths of the run. */
static void keep_heap(bool keep)
{
    mallopt(M_MMAP_THRESHOLD, keep ? 16 << 20 : 128 << 10);
    mallopt(M_TRIM_THRESHOLD, keep ? 64 << 20 : 128 << 10);
    if (!keep)
        malloc_trim(0);
}

/* An area of a run's size, formatted or as it came. */
static int area(struct cl_blk **out, const struct cl_log_layout *layout, char err[256])
{
    struct cl_blk_memory_config mc = {.bytes = AREA_BYTES};
    int rc = cl_blk_memory_new(&mc, out, err);
    return rc || !layout ? rc : cl_log_format(*out, 0, layout, err);
}

static int make_and_cut(struct cuts_run *run, uint32_t appends, uint32_t in_flight, struct cl_blk *memory,
                        struct cl_blk *work, struct cl_bench_log_cuts *out, char err[256])
{
    uint8_t formatted[2 * CL_LOG_BLOCK_BYTES];
    memcpy(formatted, cl_blk_memory_data(memory), sizeof formatted);
    memcpy(cl_blk_memory_data(work), formatted, sizeof formatted);
    cuts_recorder_begin(&run->device, memory);
    int rc = cuts_run_make(run, appends, in_flight, err);
    out->appends = run->appends;
    out->truncates = run->truncates;
    out->restarts = run->restarts;
    out->metas = run->metas;
    out->trims = run->trims;
    out->snapshots = run->snapshots;
    out->laps = run->flush_bytes / AREA_BYTES;
    out->sectors = run->device.n_stored;
    out->confirms = run->confirms;
    out->repacks = run->repacks;
    if (rc == 0)
        rc = replay(run, work, out, err);
    if (rc)
        return rc;
    /* The run's own device is not needed any more. */
    struct crashes c = {.base = cl_blk_memory_data(memory),
                        .work = cl_blk_memory_data(work),
                        .work_blk = work,
                        .run = run,
                        .random.state = ~run->seed};
    memset(c.base, 0, AREA_BYTES);
    memset(c.work, 0, AREA_BYTES);
    memcpy(c.base, formatted, sizeof formatted);
    memcpy(c.work, formatted, sizeof formatted);
    rc = replay_subsets(&c, err);
    out->subsets = c.counts.cuts;
    out->subsets_recovered = c.counts.recovered;
    out->subsets_torn = c.counts.torn;
    out->rotten = c.counts.rotten;
    out->rotten_recovered = c.counts.rotten_recovered;
    return rc;
}

int cl_bench_log_cuts(uint64_t seed, uint32_t appends, uint32_t in_flight, struct cl_bench_log_cuts *out, char err[256])
{
    struct cl_log_layout layout = {.area_id = seed | 1, .flush_bytes = FLUSH_BYTES, .snapshot_bytes = SNAPSHOT_BYTES};
    struct cl_blk *memory = NULL, *work = NULL;
    *out = (struct cl_bench_log_cuts){0};
    if (appends < 1 || appends > MOST_APPENDS || in_flight < 1 || in_flight > 16) {
        snprintf(err, 256, "%u appends, %u in flight: expected 1 to %u and 1 to 16", appends, in_flight, MOST_APPENDS);
        return -EINVAL;
    }
    keep_heap(true);
    struct cuts_run run = {.seed = seed, .most_ops = MOST_OPS(appends)};
    run.device.random.state = seed;
    run.device.room = MOST_SECTORS(appends);
    run.device.all = malloc(run.device.room * sizeof *run.device.all);
    run.device.events = malloc(run.device.room * sizeof *run.device.events);
    run.ops = calloc(run.most_ops, sizeof *run.ops);
    run.found = calloc(run.most_ops, sizeof *run.found);
    int rc = run.device.all && run.device.events && run.ops && run.found ? 0 : -ENOMEM;
    if (rc == 0)
        rc = area(&memory, &layout, err);
    if (rc == 0)
        rc = area(&work, NULL, err);
    if (rc == 0)
        rc = make_and_cut(&run, appends, in_flight, memory, work, out, err);
    if (memory)
        cl_blk_close(memory);
    if (work)
        cl_blk_close(work);
    free(run.device.events);
    free(run.device.all);
    free(run.ops);
    free(run.found);
    keep_heap(false);
    return rc;
}
