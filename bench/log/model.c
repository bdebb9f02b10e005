/* See model.h. */
#include "model.h"

#include "../../libos/sched/internal.h"
#include "../../libos/sched/runq.h"
#include "../../libos/storage/log/internal.h"
#include <corelane/libos/log_shared.h>
#include <corelane/libos/uthread.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LANES 64
#define FLIGHTS 64 /* requests of the disk */
#define AREA_BYTES (16ull << 30)
#define KEPT_BYTES 8192 /* the superblocks */
#define FLUSH_BYTES 65536
#define MOST_RECORD 4000

struct world {
    struct cl_blk disk; /* first */
    const struct cl_bench_log_model *model;
    struct cl_bench_log_modelled *out;
    struct cl_clock clock; /* virtual: its time is now_ns */
    uint64_t now_ns;
    uint64_t begin_ns, end_ns; /* of what is measured */
    uint64_t free_ns[LANES];
    struct {
        struct cl_blk_req *req;
        uint64_t at_ns;
    } flying[FLIGHTS];
    unsigned n_flying;
    int event_fd;
    uint8_t kept[KEPT_BYTES];
    struct cl_log_shared shared;
    struct cl_sched *sched;
    uint64_t next; /* of due_ns: what arrives next */
    int rc;        /* of the first append that failed */
};

static uint64_t clock_of(void *arg)
{
    return ((const struct world *)arg)->now_ns;
}

static void keep(struct world *w, struct cl_blk_req *r)
{
    uint64_t n = r->offset < KEPT_BYTES ? cl_min(r->bytes, KEPT_BYTES - r->offset) : 0;
    r->result = r->op == CL_BLK_FLUSH ? 0 : cl_blk_check(&w->disk, r);
    if (r->result || r->op == CL_BLK_FLUSH)
        return;
    if (r->op == CL_BLK_WRITE) {
        memcpy(w->kept + (n ? r->offset : 0), r->buf, n);
        return;
    }
    memset(r->buf, 0, r->bytes);
    memcpy(r->buf, w->kept + (n ? r->offset : 0), n);
}

/* When a request that comes now is done, in the lane that is free first. */
static uint64_t served(struct world *w, const struct cl_blk_req *r)
{
    uint64_t ns = w->model->write_ns + r->bytes / 1024 * w->model->kib_ns, *lane = w->free_ns;
    for (unsigned k = 1; k < w->model->lanes; k++)
        if (w->free_ns[k] < *lane)
            lane = &w->free_ns[k];
    *lane = cl_max(w->now_ns, *lane) + ns;
    w->out->disk_ns += ns;
    return *lane;
}

static unsigned submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct world *w = (struct world *)blk;
    unsigned taken = 0;
    (void)queue;
    for (; taken < n && w->n_flying < FLIGHTS; taken++) {
        keep(w, reqs[taken]);
        w->now_ns += CL_BENCH_LOG_MODEL_SUBMIT_NS;
        w->flying[w->n_flying].req = reqs[taken];
        w->flying[w->n_flying++].at_ns = served(w, reqs[taken]);
    }
    return taken;
}

static unsigned poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct world *w = (struct world *)blk;
    unsigned got = 0;
    (void)queue;
    for (unsigned i = 0; i < w->n_flying && got < n;) {
        if (w->flying[i].at_ns > w->now_ns) {
            i++;
            continue;
        }
        done[got++] = w->flying[i].req;
        w->flying[i] = w->flying[--w->n_flying];
    }
    return got;
}

static uint64_t next_ns(struct cl_blk *blk, unsigned queue)
{
    const struct world *w = (const struct world *)blk;
    uint64_t next = UINT64_MAX;
    (void)queue;
    for (unsigned i = 0; i < w->n_flying; i++)
        next = cl_min(next, w->flying[i].at_ns);
    return next;
}

static int wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    struct world *w = (struct world *)blk;
    uint64_t next = next_ns(blk, queue), until = timeout_ns < 0 ? next : w->now_ns + (uint64_t)timeout_ns;
    if (w->n_flying)
        w->now_ns = cl_max(w->now_ns, cl_min(next, until));
    return 0;
}

static int fd(struct cl_blk *blk, unsigned queue)
{
    (void)queue;
    return ((const struct world *)blk)->event_fd;
}

static void arm(struct cl_blk *blk, unsigned queue, bool on)
{
    (void)blk;
    (void)queue;
    (void)on;
}

static const struct cl_blk_ops disk_ops = {
    .name = "model", .submit = submit, .poll = poll, .wait = wait, .fd = fd, .arm = arm, .next_ns = next_ns};

static void append(struct world *w, uint64_t from_ns)
{
    uint8_t data[MOST_RECORD] = {0};
    struct cl_log_future f = {.op = {.data = data, .bytes = w->model->record_bytes}};
    struct cl_bench_log_modelled *out = w->out;
    int rc = cl_log_begin(&w->shared, &f);
    w->now_ns += CL_BENCH_LOG_MODEL_APPEND_NS;
    if (rc == 0)
        rc = cl_log_future_wait(&f);
    if (rc)
        w->rc = rc;
    else if (w->now_ns >= w->begin_ns && out->appends < out->room)
        out->each_ns[out->appends++] = (uint32_t)cl_min(w->now_ns - from_ns, (uint64_t)UINT32_MAX);
}

static void writer(void *arg)
{
    struct world *w = arg;
    while (w->now_ns < w->end_ns && !w->rc)
        append(w, w->now_ns);
}

static void arrival(void *arg)
{
    struct world *w = arg;
    append(w, w->begin_ns + w->model->due_ns[w->next++]); /* they begin in the order in which they are spawned */
}

/* One turn of the kthread; without work, on to the next thing that happens. */
static void turn(struct world *w, uint64_t until_ns)
{
    const struct cl_kthread *k = &w->sched->kthreads[0];
    int work = cl_sched_step(w->sched, 0);
    w->now_ns += CL_BENCH_LOG_MODEL_TURN_NS;
    /* With a fixed wait the kthread does not sleep, for time alone sends the flush. */
    bool waits = work == 1 && w->model->fixed_wait_ns;
    if ((work && !waits) || cl_runq_len(&k->runq) || w->sched->n_inject)
        return;
    uint64_t next = cl_min(until_ns, cl_min(cl_log_next_ns(w->shared.log), k->timers.next_ns));
    if (next != UINT64_MAX)
        w->now_ns = cl_max(w->now_ns, next);
}

static void finish(struct world *w)
{
    while (cl_sched_live(w->sched))
        turn(w, UINT64_MAX);
}

static int closed_loop(struct world *w)
{
    w->begin_ns = w->now_ns + w->model->warm_ns;
    w->end_ns = w->begin_ns + w->model->for_ns;
    for (uint64_t i = 0; i < w->model->writers; i++)
        if (cl_sched_spawn(w->sched, writer, w))
            return -EAGAIN;
    finish(w);
    return w->rc;
}

static int open_loop(struct world *w)
{
    w->begin_ns = w->now_ns;
    for (uint64_t i = 0; i < w->model->arrivals; i++) {
        uint64_t due = w->begin_ns + w->model->due_ns[i];
        while (w->now_ns < due)
            turn(w, due);
        if (cl_sched_spawn(w->sched, arrival, w))
            return -EAGAIN;
    }
    finish(w);
    return w->rc;
}

static int open_log(struct world *w, char err[256])
{
    const struct cl_bench_log_model *m = w->model;
    struct cl_log_layout layout = {.area_id = 1, .flush_bytes = FLUSH_BYTES};
    struct cl_log_config config = {.blk = &w->disk,
                                   .in_flight = m->in_flight,
                                   .fixed_records = m->fixed_records,
                                   .fixed_wait_ns = m->fixed_wait_ns,
                                   .search_bytes = FLUSH_BYTES,
                                   .now_ns = clock_of,
                                   .now_arg = w};
    int rc = cl_log_format(&w->disk, 0, &layout, err);
    return rc ? rc : cl_log_open_wait(&config, &w->shared.log, NULL, err);
}

static int run(struct world *w, char err[256])
{
    struct cl_sched_config config;
    struct cl_log_stats stats;
    cl_sched_config_init(&config);
    config.clock = &w->clock;
    int rc = cl_sched_new(&config, &w->sched, err);
    if (rc)
        return rc;
    rc = cl_log_share(&w->shared, w->shared.log, w->sched, err);
    if (rc == 0) {
        w->sched->let_go_ticks = UINT64_MAX; /* no sched_yield: no disk waits for this CPU */
        rc = w->model->writers ? closed_loop(w) : open_loop(w);
        w->out->ns = w->now_ns - w->begin_ns;
        if (rc)
            snprintf(err, 256, "an append failed: %s %s", strerror(-rc), cl_log_why(w->shared.log));
        cl_sched_stop(w->sched, 0);
        cl_log_unshare(&w->shared);
    }
    cl_sched_delete(w->sched);
    cl_log_stats(w->shared.log, &stats);
    w->out->flushes = stats.flushes;
    w->out->width = stats.width;
    return rc;
}

int cl_bench_log_model(const struct cl_bench_log_model *m, struct cl_bench_log_modelled *out, char err[256])
{
    if (!m->lanes || m->lanes > LANES || m->record_bytes > MOST_RECORD || !(m->writers || m->arrivals)) {
        snprintf(err, 256, "the model takes 1 to %d lanes, records of up to %d bytes, and writers or arrivals", LANES,
                 MOST_RECORD);
        return -EINVAL;
    }
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    out->appends = out->flushes = out->disk_ns = 0;
    w->model = m;
    w->out = out;
    w->now_ns = 1;
    cl_clock_virtual(&w->clock, &w->now_ns);
    w->disk = (struct cl_blk){.ops = &disk_ops,
                              .n_queues = 1,
                              .depth = FLIGHTS,
                              .bytes = AREA_BYTES,
                              .block_bytes = 4096,
                              .atomic_bytes = 512};
    w->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = w->event_fd < 0 ? -errno : open_log(w, err);
    if (rc == 0) {
        rc = run(w, err);
        int closed = cl_log_close(w->shared.log, NULL);
        rc = rc ? rc : closed;
    }
    if (w->event_fd >= 0)
        close(w->event_fd);
    free(w);
    return rc;
}
