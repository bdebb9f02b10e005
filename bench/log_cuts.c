/* See log_cuts.h. */
#include "log_cuts.h"

#include "../drivers/blk_memory.h"
#include "../libos/storage/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR 512u
#define MOST_FLIGHTS 64
#define CONFIRM_TICKS 12
#define SLACK (512u << 10) /* and 2 KiB an append are more than a run ever took; if not, it ends with -ENOSPC */

/* A sector as it was stored. */
struct stored {
    uint64_t offset;
    uint32_t acknowledged, submitted; /* records, when it was stored */
    uint8_t bytes[SECTOR];
};

/* The device of the run: one queue, a memory device behind it. */
struct recorder {
    struct cl_blk blk;
    struct cl_blk *memory;
    struct cl_blk_req *flights[MOST_FLIGHTS];
    uint32_t at[MOST_FLIGHTS]; /* bytes stored of each */
    unsigned n;
    uint64_t rng;
    struct stored *all;
    uint64_t n_stored, room;
    uint64_t ticks,
        confirms; /* the run's clock, which goes on when it is read; superblocks that confirm, which are cut, too */
    uint32_t acknowledged, submitted;
};

static uint64_t draw(struct recorder *r, uint64_t below)
{
    uint64_t z = r->rng += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % below;
}

static unsigned recorder_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct recorder *r = (struct recorder *)blk;
    unsigned taken = 0;
    (void)queue;
    for (; taken < n && r->n < MOST_FLIGHTS; taken++) {
        reqs[taken]->result = cl_blk_check(blk, reqs[taken]);
        r->at[r->n] = 0;
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
    *s = (struct stored){.offset = q->offset + r->at[i], .acknowledged = r->acknowledged, .submitted = r->submitted};
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
        done[got++] = r->flights[i];
        r->n--;
        memmove(&r->flights[i], &r->flights[i + 1], (r->n - i) * sizeof r->flights[0]);
        memmove(&r->at[i], &r->at[i + 1], (r->n - i) * sizeof r->at[0]);
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

int cl_bench_log_cuts(uint64_t seed, uint32_t appends, uint32_t in_flight, struct cl_bench_log_cuts *out, char err[256])
{
    uint64_t bytes = ((uint64_t)appends * 2048 + SLACK) & ~4095ull;
    struct cl_blk_memory_config mc = {.bytes = bytes};
    struct cl_log_layout layout = {.area_id = seed | 1, .flush_bytes = 16384};
    struct recorder r = {.rng = seed, .room = bytes / SECTOR};
    struct cl_blk *work = NULL;
    *out = (struct cl_bench_log_cuts){0};
    if (appends < 1 || appends > 1 << 20 || in_flight < 1 || in_flight > 16) {
        snprintf(err, 256, "%u appends, %u in flight: expected 1 to 1048576 and 1 to 16", appends, in_flight);
        return -EINVAL;
    }
    r.all = malloc(r.room * sizeof *r.all);
    int rc = r.all ? cl_blk_memory_new(&mc, &r.memory, err) : -ENOMEM;
    if (rc == 0)
        rc = cl_blk_memory_new(&mc, &work, err);
    if (rc == 0) {
        r.blk = *r.memory;
        r.blk.ops = &recorder_ops;
        counting = &r;
        rc = cl_log_format(r.memory, 0, &layout, err);
    }
    if (rc == 0) {
        memcpy(cl_blk_memory_data(work), cl_blk_memory_data(r.memory), 2 * CL_LOG_BLOCK_BYTES);
        rc = record_run(&r, seed, appends, in_flight, err);
    }
    out->appends = r.acknowledged;
    out->sectors = r.n_stored;
    out->confirms = r.confirms;
    if (rc == 0)
        rc = replay(&r, work, seed, out, err);
    if (r.memory)
        cl_blk_close(r.memory);
    if (work)
        cl_blk_close(work);
    free(r.all);
    return rc;
}
