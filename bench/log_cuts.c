/* See log_cuts.h. */
#include "log_cuts.h"

#include "../drivers/blk_memory.h"
#include "../libos/storage/log.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR 512u
#define MOST_FLIGHTS 64
#define CONFIRM_TICKS 12
#define ALL_OF 8           /* sectors in flight of which every subset is tried */
#define DRAWN 24           /* subsets of more of them, beside each sector alone and all but each */
#define MOST_OPEN 768      /* sectors in flight: 16 flushes of 16 KiB, and superblocks */
#define SLACK (512u << 10) /* and 2 KiB an append are more than a run ever took; if not, it ends with -ENOSPC */

/* A sector as it was stored. */
struct stored {
    uint64_t offset;
    uint32_t acknowledged, submitted; /* records, when it was stored */
    uint32_t write;                   /* that it is of */
    uint8_t bytes[SECTOR];
};

/* A write was taken by the device, or is done. */
struct event {
    uint32_t write;
    bool done;
    uint32_t acknowledged, submitted; /* records, before it */
};

/* The device of the run: one queue, a memory device behind it. */
struct recorder {
    struct cl_blk blk;
    struct cl_blk *memory;
    struct cl_blk_req *flights[MOST_FLIGHTS];
    uint32_t at[MOST_FLIGHTS]; /* bytes stored of each */
    uint32_t write[MOST_FLIGHTS];
    unsigned n;
    uint32_t n_writes;
    struct event *events; /* as many as `all` has room for */
    uint64_t n_events;
    uint64_t rng;
    struct stored *all;
    uint64_t n_stored, room;
    uint64_t ticks,
        confirms; /* the run's clock, which goes on when it is read; superblocks that confirm, which are cut, too */
    uint32_t acknowledged, submitted;
};

static uint64_t draw_from(uint64_t *rng, uint64_t below)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % below;
}

static uint64_t draw(struct recorder *r, uint64_t below)
{
    return draw_from(&r->rng, below);
}

static void note(struct recorder *r, uint32_t write, bool done)
{
    if (r->n_events < r->room)
        r->events[r->n_events++] = (struct event){write, done, r->acknowledged, r->submitted};
}

static unsigned recorder_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct recorder *r = (struct recorder *)blk;
    unsigned taken = 0;
    (void)queue;
    for (; taken < n && r->n < MOST_FLIGHTS; taken++) {
        reqs[taken]->result = cl_blk_check(blk, reqs[taken]);
        r->at[r->n] = 0;
        r->write[r->n] = reqs[taken]->op == CL_BLK_WRITE ? r->n_writes++ : UINT32_MAX;
        if (reqs[taken]->op == CL_BLK_WRITE)
            note(r, r->write[r->n], false);
        r->flights[r->n++] = reqs[taken];
    }
    return taken;
}

/* Store one sector of a flight; true when that was the last one. */
static bool store(struct recorder *r, unsigned i)
{
    struct cl_blk_req *q = r->flights[i];
    uint8_t *data = cl_blk_memory_data(r->memory);
    if (q->result || q->op == CL_BLK_FLUSH)
        return true;
    if (q->op == CL_BLK_READ) {
        memcpy(q->buf, data + q->offset, q->bytes);
        return true;
    }
    if (r->n_stored == r->room) {
        q->result = -ENOMEM;
        return true;
    }
    struct stored *s = &r->all[r->n_stored++];
    *s = (struct stored){.offset = q->offset + r->at[i],
                         .acknowledged = r->acknowledged,
                         .submitted = r->submitted,
                         .write = r->write[i]};
    memcpy(s->bytes, (uint8_t *)q->buf + r->at[i], SECTOR);
    memcpy(data + s->offset, s->bytes, SECTOR);
    r->at[i] += SECTOR;
    return r->at[i] == q->bytes;
}

static unsigned recorder_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct recorder *r = (struct recorder *)blk;
    unsigned got = 0;
    (void)queue;
    for (uint64_t sectors = 1 + draw(r, 12); sectors && r->n && got < n; sectors--) {
        unsigned i = (unsigned)draw(r, r->n);
        if (!store(r, i))
            continue;
        if (r->flights[i]->op == CL_BLK_WRITE)
            note(r, r->write[i], true);
        done[got++] = r->flights[i];
        r->n--;
        memmove(&r->flights[i], &r->flights[i + 1], (r->n - i) * sizeof r->flights[0]);
        memmove(&r->at[i], &r->at[i + 1], (r->n - i) * sizeof r->at[0]);
        memmove(&r->write[i], &r->write[i + 1], (r->n - i) * sizeof r->write[0]);
    }
    return got;
}

static int recorder_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    (void)blk;
    (void)queue;
    (void)timeout_ns;
    return 0;
}

static const struct cl_blk_ops recorder_ops = {
    .name = "recorder", .submit = recorder_submit, .poll = recorder_poll, .wait = recorder_wait};

/* What record i holds, which its tag names. */
static uint32_t contents(uint64_t seed, uint64_t index, uint8_t out[700])
{
    uint32_t bytes = (uint32_t)((index * 2654435761u ^ seed) % (index % 7 ? 200 : 700));
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(index * 31 + i * 7 + seed);
    return bytes;
}

static uint64_t tick(void *arg)
{
    return ++((struct recorder *)arg)->ticks;
}

static struct recorder *counting; /* the run's: a cut is taken by one thread of a process at a time */

static void acknowledged(struct cl_log_op *op)
{
    if (op->result == 0)
        counting->acknowledged++;
}

/* The run: lone appends and bursts, a vote and a trim now and then. */
static int record_run(struct recorder *r, uint64_t seed, uint32_t appends, uint32_t in_flight, char err[256])
{
    struct cl_log_config config = {
        .blk = &r->blk, .in_flight = in_flight, .confirm_ns = CONFIRM_TICKS, .now_ns = tick, .now_arg = r};
    struct cl_log *log;
    uint8_t data[700];
    struct cl_log_op *ops = calloc(appends, sizeof *ops), meta = {.data = data, .bytes = 24};
    int rc = ops ? cl_log_open_wait(&config, &log, NULL, err) : -ENOMEM;
    if (rc) {
        free(ops);
        return rc;
    }
    while (r->submitted < appends && rc == 0) {
        for (uint64_t burst = draw(r, 3) ? 1 : 1 + draw(r, 24); burst && r->submitted < appends; burst--) {
            struct cl_log_op *op = &ops[r->submitted];
            *op = (struct cl_log_op){.data = data, .tag = ~(uint64_t)(r->submitted + 1), .done = acknowledged};
            op->bytes = contents(seed, r->submitted + 1, data);
            rc = cl_log_append(log, op);
            r->submitted += rc == 0;
            if (rc)
                break;
        }
        if (draw(r, 40) == 0 && meta.result != CL_LOG_PENDING)
            cl_log_meta_set(log, &meta);
        if (draw(r, 100) == 0)
            cl_log_trim(log, cl_log_first_index(log), NULL); /* writes a superblock and keeps all records */
        rc = rc == -EAGAIN ? 0 : rc;
        for (uint64_t turns = draw(r, 24); turns; turns--)
            cl_log_pump(log);
    }
    while (rc == 0 && cl_log_busy(log))
        cl_log_pump(log);
    struct cl_log_stats stats;
    cl_log_stats(log, &stats);
    r->confirms = stats.confirms;
    if (rc == 0)
        rc = cl_log_error(log);
    if (rc)
        snprintf(err, 256, "the run failed: %s", strerror(-rc));
    cl_log_discard(log);
    free(ops);
    return rc;
}

/* Open what the cut left, and compare: 0, or why not. */
static int check(struct cl_blk *memory, uint64_t seed, uint64_t cut, const struct stored *at,
                 struct cl_bench_log_cuts *out, char err[256])
{
    struct cl_log_config config = {.blk = memory};
    struct cl_log_report report;
    struct cl_log_cursor *c;
    struct cl_log_record record;
    struct cl_log *log;
    uint8_t want[700];
    int rc = cl_log_open_wait(&config, &log, &report, err);
    if (rc)
        return rc;
    uint64_t last = cl_log_durable_index(log), index = 0;
    rc = cl_log_cursor_open(log, 1, &c);
    while (rc == 0) {
        int got = cl_log_cursor_next(c, &record);
        if (got == -EAGAIN)
            cl_log_pump(log);
        else if (got != 1)
            break;
        else if (record.index != ++index || record.tag != ~index || record.bytes != contents(seed, index, want) ||
                 memcmp(record.data, want, record.bytes))
            rc = -EBADMSG;
    }
    if (rc == 0)
        cl_log_cursor_close(c);
    if (rc == 0 && (index != last || index < at->acknowledged || index > at->submitted))
        rc = -EBADMSG;
    if (rc)
        snprintf(err, 256,
                 "cut %llu: %llu records found, the last index is %llu, %u were acknowledged and %u submitted",
                 (unsigned long long)cut, (unsigned long long)index, (unsigned long long)last, at->acknowledged,
                 at->submitted);
    while (cl_log_busy(log))
        cl_log_pump(log);
    out->beyond += index - at->acknowledged;
    out->torn += report.tail == CL_LOG_TAIL_TORN;
    cl_log_discard(log);
    return rc;
}

static int replay(struct recorder *r, struct cl_blk *work, uint64_t seed, struct cl_bench_log_cuts *out, char err[256])
{
    uint8_t *data = cl_blk_memory_data(work), supers[2 * CL_LOG_BLOCK_BYTES];
    for (uint64_t k = 0; k < r->n_stored; k++) {
        memcpy(data + r->all[k].offset, r->all[k].bytes, SECTOR);
        memcpy(supers, data, sizeof supers); /* all that opening writes */
        struct stored after = r->all[k];
        if (k + 1 < r->n_stored) /* acknowledged before the next sector was stored */
            after.submitted = cl_max(after.submitted, r->all[k + 1].submitted);
        out->cuts++;
        int rc = check(work, seed, k, &after, out, err);
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
    const struct stored **sectors; /* those of write w: sectors[first[w]] to before sectors[first[w + 1]] */
    uint64_t *first;
    uint32_t flights[MOST_FLIGHTS];
    unsigned n;
    const struct stored *open[MOST_OPEN]; /* of the writes in flight, those that change something */
    unsigned n_open;
    uint64_t seed, rng;
    struct cl_bench_log_cuts counts;
};

/* Open what a crash leaves of which the sectors of `open` that `stays` says were stored. */
static int crash(struct crashes *c, const bool *stays, const struct stored *bounds, char err[256])
{
    for (unsigned i = 0; i < c->n_open; i++)
        if (stays[i])
            memcpy(c->work + c->open[i]->offset, c->open[i]->bytes, SECTOR);
    int rc = check(c->work_blk, c->seed, c->counts.cuts++, bounds, &c->counts, err);
    for (unsigned i = 0; i < c->n_open; i++)
        memcpy(c->work + c->open[i]->offset, c->base + c->open[i]->offset, SECTOR);
    memcpy(c->work, c->base, 2 * CL_LOG_BLOCK_BYTES); /* all that opening writes */
    c->counts.recovered += rc == 0;
    return rc;
}

/* All subsets of a few sectors; of many: none, all, each alone, all but each, and some drawn with one to seven eighths of them. */
static int subsets(struct crashes *c, const struct stored *bounds, char err[256])
{
    bool stays[MOST_OPEN];
    unsigned n = c->n_open, most = n <= ALL_OF ? 1u << n : 2 + 2 * n + DRAWN;
    int rc = 0;
    for (unsigned k = 0; k < most && rc == 0; k++) {
        unsigned eighths = 1 + (unsigned)draw_from(&c->rng, 7);
        for (unsigned i = 0; i < n; i++) {
            if (n <= ALL_OF)
                stays[i] = k >> i & 1;
            else if (k < 2 + 2 * n)
                stays[i] = (k & 1) == (k / 2 != i);
            else
                stays[i] = draw_from(&c->rng, 8) < eighths;
        }
        rc = crash(c, stays, bounds, err);
    }
    return rc;
}

/* The next event has come: which sectors of which writes are open then. */
static int advance(struct crashes *c, const struct event *e)
{
    if (!e->done) {
        c->flights[c->n++] = e->write;
    } else {
        unsigned i = 0;
        while (c->flights[i] != e->write)
            i++;
        c->flights[i] = c->flights[--c->n];
        for (uint64_t k = c->first[e->write]; k < c->first[e->write + 1]; k++) {
            memcpy(c->base + c->sectors[k]->offset, c->sectors[k]->bytes, SECTOR);
            memcpy(c->work + c->sectors[k]->offset, c->sectors[k]->bytes, SECTOR);
        }
    }
    c->n_open = 0;
    for (unsigned i = 0; i < c->n; i++)
        for (uint64_t k = c->first[c->flights[i]]; k < c->first[c->flights[i] + 1]; k++)
            if (memcmp(c->base + c->sectors[k]->offset, c->sectors[k]->bytes, SECTOR) != 0) {
                if (c->n_open == MOST_OPEN)
                    return -EOVERFLOW;
                c->open[c->n_open++] = c->sectors[k];
            }
    return 0;
}

/* Sort the stored sectors by their write; each write's are in order. */
static int by_write(struct crashes *c, const struct recorder *r)
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
static int replay_subsets(struct crashes *c, const struct recorder *r, char err[256])
{
    int rc = by_write(c, r);
    for (uint64_t k = 0; k < r->n_events && rc == 0; k++) {
        const struct event *next = k + 1 < r->n_events ? &r->events[k + 1] : NULL;
        struct stored bounds = {.acknowledged = next ? next->acknowledged : r->acknowledged,
                                .submitted = next ? next->submitted : r->submitted};
        rc = advance(c, &r->events[k]);
        if (rc == 0)
            rc = subsets(c, &bounds, err);
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

int cl_bench_log_cuts(uint64_t seed, uint32_t appends, uint32_t in_flight, struct cl_bench_log_cuts *out, char err[256])
{
    uint64_t bytes = ((uint64_t)appends * 2048 + SLACK) & ~4095ull;
    struct cl_blk_memory_config mc = {.bytes = bytes};
    struct cl_log_layout layout = {.area_id = seed | 1, .flush_bytes = 16384};
    struct recorder r = {.rng = seed, .room = bytes / SECTOR};
    struct cl_blk *work = NULL;
    uint8_t formatted[2 * CL_LOG_BLOCK_BYTES];
    *out = (struct cl_bench_log_cuts){0};
    if (appends < 1 || appends > 1 << 20 || in_flight < 1 || in_flight > 16) {
        snprintf(err, 256, "%u appends, %u in flight: expected 1 to 1048576 and 1 to 16", appends, in_flight);
        return -EINVAL;
    }
    keep_heap(true);
    r.all = malloc(r.room * sizeof *r.all);
    r.events = malloc(r.room * sizeof *r.events);
    int rc = r.all && r.events ? cl_blk_memory_new(&mc, &r.memory, err) : -ENOMEM;
    if (rc == 0)
        rc = cl_blk_memory_new(&mc, &work, err);
    if (rc == 0) {
        r.blk = *r.memory;
        r.blk.ops = &recorder_ops;
        counting = &r;
        rc = cl_log_format(r.memory, 0, &layout, err);
    }
    if (rc == 0) {
        memcpy(formatted, cl_blk_memory_data(r.memory), sizeof formatted);
        memcpy(cl_blk_memory_data(work), formatted, sizeof formatted);
        rc = record_run(&r, seed, appends, in_flight, err);
    }
    out->appends = r.acknowledged;
    out->sectors = r.n_stored;
    out->confirms = r.confirms;
    if (rc == 0)
        rc = replay(&r, work, seed, out, err);
    if (rc == 0) { /* the run's own device is not needed any more */
        struct crashes c = {.base = cl_blk_memory_data(r.memory),
                            .work = cl_blk_memory_data(work),
                            .work_blk = work,
                            .seed = seed,
                            .rng = ~seed};
        memset(c.base, 0, bytes);
        memset(c.work, 0, bytes);
        memcpy(c.base, formatted, sizeof formatted);
        memcpy(c.work, formatted, sizeof formatted);
        rc = replay_subsets(&c, &r, err);
        out->subsets = c.counts.cuts;
        out->subsets_recovered = c.counts.recovered;
        out->subsets_torn = c.counts.torn;
    }
    if (r.memory)
        cl_blk_close(r.memory);
    if (work)
        cl_blk_close(work);
    free(r.events);
    free(r.all);
    keep_heap(false);
    return rc;
}
