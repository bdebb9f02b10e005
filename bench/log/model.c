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

#define FLUSH_BYTES 65536
#define MOST_RECORD 4000

struct world {
    struct bench_lanes disk;
    const struct cl_bench_log_model *model;
    struct cl_bench_log_modelled *out;
    struct cl_clock clock; /* virtual: its time is now_ns */
    uint64_t now_ns;
    uint64_t begin_ns, end_ns; /* of what is measured */
    struct cl_log_shared shared;
    struct cl_sched *sched;
    uint64_t next; /* of due_ns: what arrives next */
    int rc;        /* of the first append that failed */
};

/* The kthread computes for so long. */
static void work_for(struct world *w, uint64_t ns)
{
    w->now_ns += ns;
    w->out->worker_ns += ns;
}

static uint64_t clock_of(void *arg)
{
    return ((const struct world *)arg)->now_ns;
}

static void append(struct world *w, uint64_t from_ns)
{
    uint8_t data[MOST_RECORD] = {0};
    struct cl_log_future f = {.op = {.data = data, .bytes = w->model->record_bytes}};
    struct cl_bench_log_modelled *out = w->out;
    int rc = cl_log_begin(&w->shared, &f);
    work_for(w, CL_BENCH_LOG_MODEL_APPEND_NS);
    if (rc == 0)
        rc = cl_log_future_wait(&f);
    if (rc)
        w->rc = rc;
    if (rc || w->now_ns < w->begin_ns || out->appends == out->room)
        return;
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
    int found = cl_sched_step(w->sched, 0);
    /* With a fixed wait the kthread does not sleep, for time alone sends the flush: it always finds that. */
    if (found > (w->model->fixed_wait_ns ? 1 : 0) || cl_runq_len(&k->runq) || w->sched->n_inject) {
        work_for(w, CL_BENCH_LOG_MODEL_TURN_NS);
        return;
    }
    w->now_ns += CL_BENCH_LOG_MODEL_TURN_NS;
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
    struct cl_log_config config = {.blk = &w->disk.blk,
                                   .in_flight = m->in_flight,
                                   .fixed_records = m->fixed_records,
                                   .fixed_wait_ns = m->fixed_wait_ns,
                                   .search_bytes = FLUSH_BYTES,
                                   .now_ns = clock_of,
                                   .now_arg = w};
    int rc = cl_log_format(&w->disk.blk, 0, &layout, err);
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
    if (!m->disk.lanes || m->disk.lanes > BENCH_LANES_MOST || m->record_bytes > MOST_RECORD ||
        !(m->writers || m->arrivals)) {
        snprintf(err, 256, "the model takes 1 to %d lanes, records of up to %d bytes, and writers or arrivals",
                 BENCH_LANES_MOST, MOST_RECORD);
        return -EINVAL;
    }
    struct world *w = calloc(1, sizeof *w);
    if (!w) {
        snprintf(err, 256, "no memory for the model");
        return -ENOMEM;
    }
    out->appends = out->flushes = out->worker_ns = 0;
    w->model = m;
    w->out = out;
    w->now_ns = 1;
    cl_clock_virtual(&w->clock, &w->now_ns);
    int rc = bench_lanes_begin(&w->disk, &m->disk, &w->now_ns, &out->worker_ns);
    if (rc)
        snprintf(err, 256, "no descriptor for the model's disk: %s", strerror(-rc));
    if (rc == 0)
        rc = open_log(w, err);
    if (rc == 0) {
        rc = run(w, err);
        int closed = cl_log_close(w->shared.log, NULL);
        rc = rc ? rc : closed;
    }
    out->disk_ns = w->disk.busy_ns;
    bench_lanes_end(&w->disk);
    free(w);
    return rc;
}
