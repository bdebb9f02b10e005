/* See memory.h. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

struct queue {
    struct cl_blk_req *first, *last; /* done, not given back yet */
    uint32_t in_flight;
    bool armed;
    int event_fd; /* -1: not asked for yet */
    struct cl_blk_stats stats;
} CL_ALIGNED(CL_CACHELINE);

struct memory_blk {
    struct cl_blk blk;
    uint8_t *data;
    struct queue *queues;
};

static void announce(struct queue *q)
{
    cl_count(&q->stats.syscalls, 1);
    /* EAGAIN: the count is at its limit, so the descriptor is readable. */
    if (eventfd_write(q->event_fd, 1) < 0 && errno != EAGAIN)
        q->armed = false;
}

static unsigned memory_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct memory_blk *m = (struct memory_blk *)blk;
    struct queue *q = &m->queues[queue];
    unsigned take = cl_min(n, blk->depth - q->in_flight);
    for (unsigned i = 0; i < take; i++) {
        struct cl_blk_req *r = reqs[i];
        r->result = cl_blk_check(blk, r);
        if (r->result == 0 && r->op == CL_BLK_READ)
            memcpy(r->buf, m->data + r->offset, r->bytes);
        else if (r->result == 0 && r->op == CL_BLK_WRITE)
            memcpy(m->data + r->offset, r->buf, r->bytes);
        r->next = NULL;
        if (q->last)
            q->last->next = r;
        else
            q->first = r;
        q->last = r;
    }
    q->in_flight += take;
    cl_count(&q->stats.submitted, take);
    if (take < n)
        cl_count(&q->stats.full, 1);
    if (take && q->armed)
        announce(q);
    return take;
}

static unsigned memory_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct queue *q = &((struct memory_blk *)blk)->queues[queue];
    unsigned got = 0;
    for (; got < n && q->first; got++) {
        struct cl_blk_req *r = done[got] = q->first;
        q->first = r->next;
        cl_blk_count(&q->stats, r);
    }
    if (!q->first)
        q->last = NULL;
    q->in_flight -= got;
    return got;
}

/* What is in flight is done: there is never anything to wait for. */
static int memory_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    (void)blk;
    (void)queue;
    (void)timeout_ns;
    return 0;
}

static int memory_fd(struct cl_blk *blk, unsigned queue)
{
    struct queue *q = &((struct memory_blk *)blk)->queues[queue];
    if (q->event_fd < 0)
        q->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return q->event_fd;
}

static void memory_arm(struct cl_blk *blk, unsigned queue, bool on)
{
    struct queue *q = &((struct memory_blk *)blk)->queues[queue];
    q->armed = on && memory_fd(blk, queue) >= 0;
    if (q->armed && q->first)
        announce(q);
}

static void memory_stats(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out)
{
    cl_blk_stats_read(&((struct memory_blk *)blk)->queues[queue].stats, out);
}

static int memory_close(struct cl_blk *blk)
{
    struct memory_blk *m = (struct memory_blk *)blk;
    for (unsigned i = 0; m->queues && i < blk->n_queues; i++)
        if (m->queues[i].event_fd >= 0)
            close(m->queues[i].event_fd);
    free(m->queues);
    if (m->data)
        munmap(m->data, blk->bytes);
    free(m);
    return 0;
}

static const struct cl_blk_ops memory_ops = {
    .name = "memory",
    .submit = memory_submit,
    .poll = memory_poll,
    .wait = memory_wait,
    .fd = memory_fd,
    .arm = memory_arm,
    .stats = memory_stats,
    .close = memory_close,
};

uint8_t *cl_blk_memory_data(struct cl_blk *blk)
{
    return ((struct memory_blk *)blk)->data;
}

static int refuse(char *err, int error, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return error;
}

static bool power_of_two(uint32_t x)
{
    return x && (x & (x - 1)) == 0;
}

/* Defaults filled in, limits checked. */
static int settle(struct cl_blk_memory_config *c, char *err)
{
    c->queues = c->queues ? c->queues : 1;
    c->depth = c->depth ? c->depth : 1024;
    c->block_bytes = c->block_bytes ? c->block_bytes : 4096;
    c->atomic_bytes = c->atomic_bytes ? c->atomic_bytes : 512;
    c->bytes = c->bytes ? c->bytes : 64ull << 20;
    if (c->queues > CL_BLK_MAX_QUEUES)
        return refuse(err, -EINVAL, "a block device in memory has at most 64 queues");
    if (c->depth > 65536)
        return refuse(err, -EINVAL, "depth must be from 1 to 65536");
    if (!power_of_two(c->block_bytes) || c->block_bytes < 512 || c->block_bytes > 65536)
        return refuse(err, -EINVAL, "block_bytes must be a power of two from 512 to 65536");
    if (!power_of_two(c->atomic_bytes) || c->atomic_bytes > c->block_bytes)
        return refuse(err, -EINVAL, "atomic_bytes must be a power of two, at most block_bytes");
    if (c->bytes % c->block_bytes)
        return refuse(err, -EINVAL, "bytes must be a multiple of block_bytes");
    return 0;
}

int cl_blk_memory_new(const struct cl_blk_memory_config *config, struct cl_blk **out, char *err)
{
    struct cl_blk_memory_config c = *config;
    int rc = settle(&c, err);
    if (rc)
        return rc;
    struct memory_blk *m = calloc(1, sizeof(*m));
    if (!m)
        return refuse(err, -ENOMEM, "out of memory");
    m->blk = (struct cl_blk){.ops = &memory_ops,
                             .n_queues = c.queues,
                             .depth = c.depth,
                             .bytes = c.bytes,
                             .block_bytes = c.block_bytes,
                             .atomic_bytes = c.atomic_bytes};
    void *data = mmap(NULL, c.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m->data = data == MAP_FAILED ? NULL : data;
    m->queues = aligned_alloc(CL_CACHELINE, c.queues * sizeof(*m->queues));
    for (unsigned i = 0; m->queues && i < c.queues; i++)
        m->queues[i] = (struct queue){.event_fd = -1};
    if (!m->data || !m->queues) {
        memory_close(&m->blk);
        return refuse(err, -ENOMEM, "out of memory for the device's bytes");
    }
    *out = &m->blk;
    return 0;
}
