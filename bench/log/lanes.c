/* See lanes.h. */
#include "lanes.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define AREA_BYTES (16ull << 30)

static void keep(struct bench_lanes *d, struct cl_blk_req *r)
{
    uint64_t n = r->offset < BENCH_LANES_KEPT ? cl_min((uint64_t)r->bytes, BENCH_LANES_KEPT - r->offset) : 0;
    r->result = cl_blk_check(&d->blk, r);
    if (r->result || r->op == CL_BLK_FLUSH)
        return;
    uint8_t *kept = d->kept + (n ? r->offset : 0);
    if (r->op == CL_BLK_WRITE) {
        memcpy(kept, r->buf, n);
        return;
    }
    memset(r->buf, 0, r->bytes);
    memcpy(r->buf, kept, n);
}

/* When a request that comes now is done, in the lane that is free first. */
static uint64_t served(struct bench_lanes *d, const struct cl_blk_req *r)
{
    const struct cl_bench_lanes_config *c = &d->config;
    uint64_t ns = c->write_ns + r->bytes / 1024 * c->kib_ns + d->n_flying * c->beside_ns;
    uint64_t *lane = d->free_ns;
    for (unsigned k = 1; k < c->lanes; k++)
        if (d->free_ns[k] < *lane)
            lane = &d->free_ns[k];
    *lane = cl_max(*d->now_ns, *lane) + ns;
    d->busy_ns += ns;
    return *lane;
}

static unsigned submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct bench_lanes *d = (struct bench_lanes *)blk;
    unsigned taken = 0;
    (void)queue;
    for (; taken < n && d->n_flying < BENCH_LANES_FLIGHTS; taken++) {
        keep(d, reqs[taken]);
        *d->now_ns += d->config.submit_ns;
        *d->worker_ns += d->config.submit_ns;
        d->flying[d->n_flying].at_ns = served(d, reqs[taken]);
        d->flying[d->n_flying++].req = reqs[taken];
    }
    return taken;
}

static unsigned poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct bench_lanes *d = (struct bench_lanes *)blk;
    unsigned got = 0;
    (void)queue;
    for (unsigned i = 0; i < d->n_flying && got < n;) {
        if (d->flying[i].at_ns > *d->now_ns) {
            i++;
            continue;
        }
        done[got++] = d->flying[i].req;
        d->flying[i] = d->flying[--d->n_flying];
    }
    return got;
}

static uint64_t next_ns(struct cl_blk *blk, unsigned queue)
{
    const struct bench_lanes *d = (const struct bench_lanes *)blk;
    uint64_t next = UINT64_MAX;
    (void)queue;
    for (unsigned i = 0; i < d->n_flying; i++)
        next = cl_min(next, d->flying[i].at_ns);
    return next;
}

/* On to when something is done. */
static int wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    struct bench_lanes *d = (struct bench_lanes *)blk;
    uint64_t until = timeout_ns < 0 ? UINT64_MAX : *d->now_ns + (uint64_t)timeout_ns;
    if (d->n_flying)
        *d->now_ns = cl_max(*d->now_ns, cl_min(next_ns(blk, queue), until));
    return 0;
}

static int fd(struct cl_blk *blk, unsigned queue)
{
    (void)queue;
    return ((const struct bench_lanes *)blk)->event_fd;
}

/* Nobody sleeps on this disk. */
static void arm(struct cl_blk *blk, unsigned queue, bool on)
{
    (void)blk;
    (void)queue;
    (void)on;
}

static const struct cl_blk_ops ops = {
    .name = "lanes", .submit = submit, .poll = poll, .wait = wait, .fd = fd, .arm = arm, .next_ns = next_ns};

int bench_lanes_begin(struct bench_lanes *d, const struct cl_bench_lanes_config *config, uint64_t *now_ns,
                      uint64_t *worker_ns)
{
    *d = (struct bench_lanes){
        .blk = {.ops = &ops,
                .n_queues = 1,
                .depth = BENCH_LANES_FLIGHTS,
                .bytes = AREA_BYTES,
                .block_bytes = 4096,
                .atomic_bytes = 512},
        .config = *config,
        .now_ns = now_ns,
        .worker_ns = worker_ns,
        .event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
    };
    return d->event_fd < 0 ? -errno : 0;
}

void bench_lanes_end(struct bench_lanes *d)
{
    if (d->event_fd >= 0)
        close(d->event_fd);
}
