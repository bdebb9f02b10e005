/* See cuts_internal.h: a run of the log with all that it is asked for, and what may be left of it. */
#include "cuts_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIRM_TICKS 12
#define META_BYTES 24
#define MOST_BYTES 700
#define MOST_SNAPSHOT 9000 /* bytes: cuts.c sets room for it apart */

/* What record, votes (`meta`) or snapshot number n holds. */
static void fill(const struct cuts_run *run, uint64_t n, uint8_t *out, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(n * 31 + i * 7 + run->seed + (n >> 8));
}

static uint32_t record_bytes(const struct cuts_run *run, uint64_t n)
{
    return (uint32_t)((n * 2654435761u ^ run->seed) % (n % 7 ? 200 : MOST_BYTES));
}

static uint32_t snapshot_bytes(const struct cuts_run *run, uint64_t number)
{
    return (uint32_t)((number * 2654435761u ^ run->seed) % MOST_SNAPSHOT);
}

static uint64_t tick(void *arg)
{
    return ++((struct cuts_run *)arg)->ticks;
}

static void acknowledged(struct cl_log_op *op)
{
    struct cuts_run *run = op->user;
    if (op->result == 0) /* in the order of the calls: log.h */
        run->device.now.acknowledged++;
}

static void trimmed(struct cl_log_op *op)
{
    struct cuts_run *run = op->user;
    run->trimming = false;
    if (op->result == 0)
        run->device.now.trimmed = cl_max(run->device.now.trimmed, run->trim_asked);
}

static void committed(struct cl_log_op *op)
{
    struct cuts_run *run = op->user;
    run->committing = false;
    if (op->result == 0)
        run->device.now.snapshot = run->device.now.snapshot_offered;
}

/* The operation that comes next, as if it changed nothing. */
static struct cuts_op *next_op(struct cuts_run *run)
{
    struct cuts_op *before = &run->ops[run->device.now.submitted], *op = before + 1;
    *op = (struct cuts_op){.op = {.done = acknowledged, .user = run},
                           .top = before->top,
                           .meta = before->meta,
                           .first = before->first,
                           .next = before->next};
    return op;
}

static int append(struct cuts_run *run, struct cl_log *log, struct cuts_op *op, uint32_t n)
{
    uint8_t data[MOST_BYTES];
    op->op.data = data;
    op->op.bytes = record_bytes(run, n);
    op->op.tag = ~(uint64_t)n;
    fill(run, n, data, op->op.bytes);
    int rc = cl_log_append(log, &op->op);
    op->below = op->top;
    op->top = n;
    op->index = op->next++;
    run->appends += rc == 0;
    return rc;
}

static int set_meta(struct cuts_run *run, struct cl_log *log, struct cuts_op *op, uint32_t n)
{
    uint8_t data[META_BYTES];
    memcpy(data, &n, sizeof n);
    fill(run, n, data + sizeof n, META_BYTES - sizeof n);
    op->op.data = data;
    op->op.bytes = META_BYTES;
    op->meta = n;
    int rc = cl_log_meta_set(log, &op->op);
    run->metas += rc == 0;
    return rc;
}

static int truncate(struct cuts_run *run, struct cl_log *log, struct cuts_op *op)
{
    uint64_t least = cl_max(op->first, cl_log_first_index(log));
    uint64_t from = op->next - cl_random_below(&run->device.random, cl_min(op->next - cl_min(least, op->next), 12) + 1);
    while (op->top && run->ops[op->top].index >= from)
        op->top = run->ops[op->top].below;
    op->next = from;
    int rc = cl_log_truncate(log, from, &op->op);
    run->truncates += rc == 0;
    return rc;
}

static int start_anew(struct cuts_run *run, struct cl_log *log, struct cuts_op *op)
{
    op->first = op->next += cl_random_below(&run->device.random, 10);
    op->top = 0;
    int rc = cl_log_restart(log, op->next, &op->op);
    run->restarts += rc == 0;
    return rc;
}

/* One more operation: 0, -EAGAIN, -ENOSPC or the log's error. */
static int act(struct cuts_run *run, struct cl_log *log)
{
    struct cuts_op *op = next_op(run);
    uint32_t n = run->device.now.submitted + 1;
    uint64_t kind = cl_random_below(&run->device.random, 200);
    int rc = n + 1 == run->most_ops ? -EOVERFLOW
             : kind < 8             ? set_meta(run, log, op, n)
             : kind < 14            ? truncate(run, log, op)
             : kind < 16            ? start_anew(run, log, op)
                                    : append(run, log, op, n);
    if (rc == 0)
        run->device.now.submitted++;
    return rc;
}

/* Give up some of the durable records, or at least half of them. */
static void trim(struct cuts_run *run, struct cl_log *log, bool most)
{
    uint64_t first = cl_log_first_index(log), next = run->ops[run->device.now.submitted].next;
    uint64_t end = cl_min(cl_log_durable_index(log) + 1, next);
    if (run->trimming || end < first)
        return;
    run->trim_asked = first + cl_random_below(&run->device.random, end - first + 1);
    if (most)
        run->trim_asked = cl_max(run->trim_asked, (first + end) / 2);
    run->trim_op = (struct cl_log_op){.done = trimmed, .user = run};
    run->trimming = true;
    run->device.now.trim_asked = cl_max(run->device.now.trim_asked, run->trim_asked);
    run->trims++;
    cl_log_trim(log, run->trim_asked, &run->trim_op);
}

static int snapshot(struct cuts_run *run, struct cl_log *log)
{
    uint64_t number = run->device.now.snapshot + 1;
    uint32_t bytes = snapshot_bytes(run, number);
    uint8_t data[MOST_SNAPSHOT] = {0}; /* of one of no bytes, too, its address is passed */
    if (run->committing)
        return 0;
    if (!run->writing) {
        int rc = cl_log_snapshot_begin(log, number, ~number);
        run->writing = rc == 0;
        run->snapshot_sent = 0;
        return rc == -EAGAIN ? 0 : rc;
    }
    fill(run, number, data, bytes);
    int64_t took = cl_log_snapshot_write(log, data + run->snapshot_sent, bytes - run->snapshot_sent);
    if (took < 0)
        return (int)took;
    run->snapshot_sent += (uint32_t)took;
    if (run->snapshot_sent < bytes)
        return 0;
    run->snapshot_op = (struct cl_log_op){.done = committed, .user = run};
    run->writing = false;
    run->committing = true;
    run->device.now.snapshot_offered = number;
    run->snapshots++;
    return cl_log_snapshot_commit(log, &run->snapshot_op);
}

/* The ring is full: give up records, and use what is freed as soon as it may be. */
static int make_room(struct cuts_run *run, struct cl_log *log, uint32_t appends)
{
    trim(run, log, true);
    for (unsigned turns = 40; turns && run->appends < appends; turns--) {
        int rc = act(run, log);
        if (rc && rc != -EAGAIN && rc != -ENOSPC)
            return rc;
        cl_log_pump(log);
    }
    return 0;
}

/* A turn of the run: one operation or a burst, and the rest now and then. */
static int turn(struct cuts_run *run, struct cl_log *log, uint32_t appends)
{
    struct cl_random *random = &run->device.random;
    int rc = 0;
    for (uint64_t burst = cl_random_below(random, 3) ? 1 : 1 + cl_random_below(random, 24); burst && rc == 0; burst--)
        if (run->appends < appends)
            rc = act(run, log);
    if (rc == -ENOSPC)
        rc = make_room(run, log, appends);
    else if (cl_random_below(random, 60) == 0)
        trim(run, log, false);
    if (rc == -EAGAIN)
        rc = 0;
    if (rc == 0 && cl_random_below(random, 12) == 0)
        rc = snapshot(run, log);
    for (uint64_t turns = cl_random_below(random, 24); turns; turns--)
        cl_log_pump(log);
    return rc ? rc : cl_log_error(log);
}

int cuts_run_make(struct cuts_run *run, uint32_t appends, uint32_t in_flight, char err[256])
{
    struct cl_log_config config = {.blk = &run->device.blk,
                                   .in_flight = in_flight,
                                   .fixed_records = 1, /* so many fly, whatever ticks say of the device */
                                   .confirm_ns = CONFIRM_TICKS,
                                   .now_ns = tick,
                                   .now_arg = run};
    struct cl_log *log;
    run->ops[0] = (struct cuts_op){.first = 1, .next = 1};
    int rc = cl_log_open_wait(&config, &log, NULL, err);
    if (rc)
        return rc;
    while (run->appends < appends && rc == 0)
        rc = turn(run, log, appends);
    while (rc == 0 && cl_log_busy(log))
        cl_log_pump(log);
    struct cl_log_stats stats;
    cl_log_stats(log, &stats);
    run->confirms = stats.confirms;
    run->repacks = stats.repacks;
    run->flush_bytes = stats.flush_bytes;
    if (rc == 0)
        rc = cl_log_error(log);
    if (rc)
        snprintf(err, 256, "the run failed: %s", strerror(-rc));
    cl_log_discard(log);
    return rc;
}

/* Whose record it is: its number, or -EBADMSG if it is not what that append gave. */
static int64_t whose(const struct cuts_run *run, const struct cl_log_record *record)
{
    uint8_t want[MOST_BYTES];
    uint64_t n = ~record->tag;
    if (n == 0 || n >= run->most_ops || record->bytes != record_bytes(run, n))
        return -EBADMSG;
    fill(run, n, want, record->bytes);
    return memcmp(record->data, want, record->bytes) ? -EBADMSG : (int64_t)n;
}

/* Whose the records are that a log holds from `first` on, into run->found. How many, or -errno. */
static int64_t read_records(struct cuts_run *run, struct cl_log *log, uint64_t first)
{
    struct cl_log_cursor *c;
    struct cl_log_record record;
    int64_t n = 0, rc = cl_log_cursor_open(log, first, &c);
    if (rc)
        return rc;
    for (int got; rc >= 0 && (got = cl_log_cursor_next(c, &record)) != 0;) {
        if (got == -EAGAIN) {
            cl_log_pump(log);
            continue;
        }
        rc = got < 0 ? got : record.index == first + (uint64_t)n ? whose(run, &record) : -EBADMSG;
        if (rc > 0)
            run->found[n++] = (uint32_t)rc;
    }
    cl_log_cursor_close(c);
    return rc < 0 ? rc : n;
}

/* Whose votes a log holds: its number, 0 without any, or -EBADMSG. */
static int64_t read_meta(struct cuts_run *run, struct cl_log *log)
{
    uint8_t found[CL_LOG_META_BYTES], want[META_BYTES];
    uint32_t n, bytes = cl_log_meta_get(log, found);
    if (bytes == 0)
        return 0;
    memcpy(&n, found, sizeof n);
    fill(run, n, want, META_BYTES - sizeof n);
    return bytes == META_BYTES && memcmp(found + sizeof n, want, META_BYTES - sizeof n) == 0 ? (int64_t)n : -EBADMSG;
}

/* The snapshot must be the one that is kept for sure, or the next if that may be. */
static int check_snapshot(struct cuts_run *run, struct cl_log *log, const struct cuts_bounds *sure,
                          const struct cuts_bounds *most)
{
    struct cl_log_snapshot s;
    uint8_t found[MOST_SNAPSHOT + 1], want[MOST_SNAPSHOT];
    cl_log_snapshot_get(log, &s);
    if (s.number < sure->snapshot || s.number > cl_max(sure->snapshot, most->snapshot_offered))
        return -EBADMSG;
    if (s.number == 0)
        return 0;
    uint32_t bytes = snapshot_bytes(run, s.number);
    if (s.index != s.number || s.tag != ~s.number || s.bytes != bytes)
        return -EBADMSG;
    for (uint32_t at = 0; at < bytes;) {
        int64_t n = cl_log_snapshot_read(log, s.number, at, found + at, sizeof found - at);
        if (n == -EAGAIN)
            cl_log_pump(log);
        else if (n <= 0)
            return n < 0 ? (int)n : -EBADMSG;
        else
            at += (uint32_t)n;
    }
    fill(run, s.number, want, bytes);
    return memcmp(found, want, bytes) ? -EBADMSG : 0;
}

/* Whether the log is what it was after the first k operations, but for what was trimmed. */
static bool is_after(const struct cuts_run *run, uint32_t k, uint64_t first, uint64_t n, uint32_t meta,
                     const struct cuts_bounds *sure, const struct cuts_bounds *most)
{
    const struct cuts_op *op = &run->ops[k];
    if (meta != op->meta || first + n != cl_max(op->next, first) || first < cl_max(op->first, sure->trimmed) ||
        first > cl_max(op->first, most->trim_asked))
        return false;
    uint32_t whose = op->top;
    for (uint64_t i = n; i--; whose = run->ops[whose].below)
        if (whose == 0 || run->found[i] != whose)
            return false;
    return true;
}

/* As cuts_run_check, of a log that is open. */
static int compare(struct cuts_run *run, struct cl_log *log, uint64_t cut, const struct cuts_bounds *sure,
                   const struct cuts_bounds *most, struct cl_bench_log_cuts *out, char err[256])
{
    uint64_t first = cl_log_first_index(log), end = cl_log_durable_index(log) + 1;
    int64_t n = read_records(run, log, first), meta = read_meta(run, log);
    int rc = n < 0 ? (int)n : meta < 0 ? (int)meta : first + (uint64_t)n != end ? -EBADMSG : 0;
    if (rc == 0)
        rc = check_snapshot(run, log, sure, most);
    uint32_t k = sure->acknowledged;
    while (rc == 0 && !is_after(run, k, first, (uint64_t)n, (uint32_t)meta, sure, most))
        if (++k > most->submitted)
            rc = -EBADMSG;
    if (rc == 0)
        out->beyond += k - sure->acknowledged;
    else
        snprintf(
            err, 256,
            "cut %llu: records %llu to before %llu and the votes of operation %lld are what no number of operations "
            "leaves, of which %u were acknowledged and %u submitted: %s",
            (unsigned long long)cut, (unsigned long long)first, (unsigned long long)end, (long long)meta,
            sure->acknowledged, most->submitted, strerror(-rc));
    return rc;
}

int cuts_run_check(struct cuts_run *run, struct cl_blk *left, uint64_t cut, const struct cuts_bounds *sure,
                   const struct cuts_bounds *most, struct cl_bench_log_cuts *out, char err[256])
{
    struct cl_log_config config = {.blk = left};
    struct cl_log_report report;
    struct cl_log *log;
    int rc = cl_log_open_wait(&config, &log, &report, err);
    if (rc)
        return rc;
    rc = compare(run, log, cut, sure, most, out, err);
    while (cl_log_busy(log))
        cl_log_pump(log);
    out->torn += report.tail == CL_LOG_TAIL_TORN;
    cl_log_discard(log);
    return rc;
}
