/* See loops.h. */
#include "loops.h"

#include <corelane/libos/sched.h>
#include <corelane/libos/log_shared.h>
#include "../../runtime/pages.h"
#include "../harness/pinned.h"

#include <errno.h>
#include <stdlib.h>

#define YIELD_EACH 8 /* arrivals */
#define TRIM_BELOW 4 /* the log is trimmed when less than a fourth of it is free */

struct run {
    const struct cl_bench_log_config *config;
    struct cl_bench_log_result *out;
    struct cl_log_shared shared;
    uint64_t end_ns, room;
    uint64_t trimmed;           /* up to here, by whoever holds the lock */
    uint64_t start_ns, last_ns; /* last_ns: when the last append was durable */
    uint64_t next;              /* of due_ns: what arrives next */
    int rc;                     /* of the first append that failed; writers: the uthreads, all on one kthread */
};

static uint64_t wall(void *arg)
{
    (void)arg;
    return cl_bench_wall_ns();
}

/* The clock that uthreads sleep by. The kernel's may be behind it by more than an append takes. */
static uint64_t now_ns(void)
{
    return cl_sched_now_ns(cl_sched_self());
}

static void trim_if_short(struct run *r)
{
    cl_spin_lock(&r->shared.lock);
    uint64_t keep = cl_log_durable_index(r->shared.log) + 1;
    if (cl_log_free_bytes(r->shared.log) < r->room / TRIM_BELOW && keep > r->trimmed + 1000) {
        r->trimmed = keep;
        cl_log_trim(r->shared.log, keep, NULL);
    }
    cl_spin_unlock(&r->shared.lock);
}

/* One append, that counts from from_ns on, an instant that has passed. Returns when it was durable; 0: it failed. */
static uint64_t append(struct run *r, uint64_t from_ns)
{
    struct cl_bench_log_result *out = r->out;
    uint8_t data[4000];
    memset(data, 0x5a, r->config->record_bytes);
    int rc = cl_log_append_wait(&r->shared, data, r->config->record_bytes, 0, NULL);
    uint64_t end = now_ns();
    if (rc || end < from_ns) {
        r->rc = rc ? rc : -ERANGE;
        return 0;
    }
    if (out->kept < out->room)
        out->each_ns[out->kept++] = (uint32_t)cl_min(end - from_ns, (uint64_t)UINT32_MAX);
    r->last_ns = end;
    if (++out->operations % 64 == 0)
        trim_if_short(r);
    return end;
}

static void writer(void *arg)
{
    struct run *r = arg;
    for (uint64_t start = now_ns(); start && start < r->end_ns && !r->rc;)
        start = append(r, start);
}

static void arrival(void *arg)
{
    struct run *r = arg;
    uint64_t due = r->start_ns + r->config->due_ns[r->next++]; /* they begin in the order in which they are spawned */
    uint64_t now = now_ns();
    r->out->late += now > due + CL_BENCH_LOG_LATE_NS;
    if (!r->rc)
        append(r, due);
}

/* Sleeps until the next one is due, and spawns all that are; those that are late run meanwhile. */
static void arrivals(void *arg)
{
    struct run *r = arg;
    const uint64_t *due = r->config->due_ns;
    r->start_ns = now_ns();
    for (uint64_t i = 0, now = r->start_ns; i < r->config->arrivals && !r->rc; i++) {
        if (r->start_ns + due[i] > now) {
            cl_uthread_sleep_until_ns(r->start_ns + due[i]);
            now = now_ns();
        }
        if (cl_uthread_spawn(arrival, r, NULL))
            r->rc = -EAGAIN;
        if (i % YIELD_EACH == YIELD_EACH - 1) {
            cl_uthread_yield();
            now = now_ns();
        }
    }
    while (r->out->operations < r->config->arrivals && !r->rc)
        cl_uthread_sleep_ns(100000);
    r->out->ns = r->last_ns - r->start_ns;
}

static void writers(void *arg)
{
    struct run *r = arg;
    uint32_t n = r->config->writers;
    cl_uthread_id *ids = calloc(n, sizeof *ids);
    if (!ids) {
        r->rc = -ENOMEM;
        return;
    }
    r->start_ns = now_ns();
    r->end_ns = r->start_ns + r->config->for_ns;
    for (uint32_t i = 0; i < n; i++)
        if (cl_uthread_spawn(writer, r, &ids[i]))
            r->rc = -EAGAIN;
    for (uint32_t i = 0; i < n; i++)
        cl_uthread_join(ids[i]);
    r->out->ns = now_ns() - r->start_ns;
    free(ids);
}

int cl_bench_log_append(const struct cl_bench_log_config *config, struct cl_bench_log_result *out, char err[256])
{
    struct run r = {.config = config, .out = out};
    struct cl_log_config lc = {.blk = config->blk,
                               .in_flight = config->in_flight,
                               .fixed_records = config->fixed_records,
                               .fixed_wait_ns = config->fixed_wait_ns,
                               .now_ns = config->fixed_wait_ns ? wall : NULL};
    struct cl_sched *sched = NULL;
    struct cl_sched_config sc;
    struct cl_log_stats stats;
    struct cl_sched_stats turns = {0};
    int32_t cpus[1] = {config->cpu};
    out->operations = out->kept = out->late = 0;
    int rc = cl_log_open_wait(&lc, &r.shared.log, NULL, err);
    if (rc)
        return rc;
    r.room = cl_log_free_bytes(r.shared.log);
    cl_sched_config_init(&sc);
    sc.cpus = cpus;
    rc = cl_log_trim(r.shared.log, cl_log_next_index(r.shared.log), NULL); /* what the run before left */
    if (rc == 0)
        rc = cl_sched_new(&sc, &sched, err);
    if (rc == 0)
        rc = cl_log_share(&r.shared, r.shared.log, sched, err);
    if (rc == 0)
        rc = cl_sched_start(sched, err);
    if (rc == 0)
        rc = cl_sched_run(sched, config->writers ? writers : arrivals, &r);
    if (sched)
        cl_sched_stats(sched, 0, &turns);
    cl_sched_delete(sched);
    cl_log_stats(r.shared.log, &stats);
    out->flushes = stats.flushes;
    out->idle_turns = turns.idle_turns;
    if (rc == 0 && (rc = r.rc))
        snprintf(err, 256, "an append failed: %s %s", strerror(-rc), cl_log_why(r.shared.log));
    /* Else the next run begins by reading what this one wrote. */
    int trimmed = rc ? 0 : cl_log_trim(r.shared.log, cl_log_next_index(r.shared.log), NULL);
    int closed = cl_log_close(r.shared.log, NULL);
    return rc ? rc : trimmed ? trimmed : closed;
}

int cl_bench_log_fill(struct cl_blk *blk, uint64_t bytes, uint32_t record_bytes, uint64_t *records, char err[256])
{
    struct cl_log_config lc = {.blk = blk};
    struct cl_log *log;
    uint8_t data[4000];
    memset(data, 0x5a, sizeof data);
    int rc = cl_log_open_wait(&lc, &log, NULL, err);
    if (rc)
        return rc;
    uint64_t free_bytes = cl_log_free_bytes(log), n = 0;
    struct cl_log_op *ops = calloc(1 << 20, sizeof *ops);
    while (ops && n < 1 << 20 && free_bytes - cl_log_free_bytes(log) < bytes) {
        ops[n] = (struct cl_log_op){.data = data, .bytes = record_bytes};
        rc = cl_log_append(log, &ops[n]);
        n += rc == 0;
        if (rc == -EAGAIN && cl_log_pump(log) == 0)
            blk->ops->wait(blk, 0, -1);
        else if (rc && rc != -EAGAIN)
            break;
    }
    while (cl_log_busy(log) && !cl_log_error(log))
        if (cl_log_pump(log) == 0)
            blk->ops->wait(blk, 0, -1);
    *records = n;
    rc = ops ? cl_log_error(log) : -ENOMEM;
    if (rc)
        snprintf(err, 256, "filling the log failed: %s", cl_log_why(log));
    cl_log_discard(log);
    free(ops);
    return rc;
}

int cl_bench_log_recover(struct cl_blk *blk, uint64_t *ns, uint64_t *bytes, uint64_t *records, char err[256])
{
    struct cl_log_config lc = {.blk = blk};
    struct cl_log_report report;
    struct cl_log *log;
    uint64_t start = cl_bench_wall_ns();
    int rc = cl_log_open_wait(&lc, &log, &report, err);
    *ns = cl_bench_wall_ns() - start;
    if (rc)
        return rc;
    *bytes = report.read_bytes;
    *records = report.records;
    while (cl_log_busy(log))
        if (cl_log_pump(log) == 0)
            blk->ops->wait(blk, 0, -1);
    cl_log_discard(log); /* not closed: the next one has to find out by itself what this one found */
    return 0;
}

#define READ_BYTES (256u << 10)
#define MAX_DEPTH 64

int cl_bench_log_read(struct cl_blk *blk, uint64_t bytes, uint32_t depth, uint64_t *ns, char err[256])
{
    struct cl_blk_req reqs[MAX_DEPTH], *ready[MAX_DEPTH], *done[MAX_DEPTH];
    uint64_t at = 0, finished = 0;
    unsigned n = cl_min(depth, MAX_DEPTH);
    int rc = 0;
    void *buf = cl_pages_new(MAX_DEPTH * READ_BYTES); /* on large pages, as recovery's are */
    if (!buf) {
        snprintf(err, 256, "no memory for %u reads", n);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < n; i++) {
        reqs[i] = (struct cl_blk_req){.op = CL_BLK_READ, .bytes = READ_BYTES, .buf = (uint8_t *)buf + i * READ_BYTES};
        ready[i] = &reqs[i];
    }
    uint64_t start = cl_bench_wall_ns();
    while (finished < bytes) {
        unsigned want = 0;
        for (; want < n && at < bytes; want++, at += READ_BYTES)
            ready[want]->offset = at;
        unsigned taken = want ? blk->ops->submit(blk, 0, ready, want) : 0;
        at -= (uint64_t)(want - taken) * READ_BYTES;
        for (unsigned i = taken; i < n; i++)
            ready[i - taken] = ready[i];
        n -= taken;
        blk->ops->wait(blk, 0, -1);
        unsigned got = blk->ops->poll(blk, 0, done, MAX_DEPTH);
        for (unsigned i = 0; i < got; i++) {
            rc = done[i]->result ? done[i]->result : rc;
            finished += READ_BYTES;
            ready[n++] = done[i];
        }
    }
    *ns = cl_bench_wall_ns() - start;
    free(buf);
    if (rc)
        snprintf(err, 256, "a read failed: %s", strerror(-rc));
    return rc;
}
