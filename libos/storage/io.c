/* See io.h. */
#include "io.h"

#include <corelane/libos/complete.h>
#include "../sched/internal.h"

#include <stdio.h>
#include <stdlib.h>

#define BATCH 64

/* A call; on the uthread's stack. Under its queue's lock until `left` is 0; then it belongs to who brings the uthread
 * back. */
struct wait {
    struct cl_uthread *t;
    unsigned left;
};

struct queue {
    struct cl_spin lock;
    struct cl_blk_req *first, *last; /* not submitted yet */
    struct cl_storage_stats stats;
} CL_ALIGNED(128);

struct cl_storage {
    struct cl_sched *sched;
    struct cl_blk *blk;
    struct cl_completions completions;
    uint32_t n_queues;
    struct queue *queues;
};

/* Take what fits, in order. */
static void submit(struct cl_storage *io, struct queue *q, unsigned k)
{
    while (q->first) {
        struct cl_blk_req *batch[BATCH], *next = q->first;
        unsigned n = 0;
        for (; next && n < BATCH; next = next->next)
            batch[n++] = next;
        cl_sched_call_begin();
        unsigned taken = io->blk->ops->submit(io->blk, k, batch, n);
        cl_sched_call_end();
        cl_count(&q->stats.doorbells, taken != 0);
        /* The device may have linked those that it took into lists of its own, the others it left alone. */
        q->first = taken < n ? batch[taken] : next;
        if (taken < n) {
            cl_count(&q->stats.waits, 1);
            return;
        }
    }
    q->last = NULL;
}

static unsigned collect(struct cl_storage *io, struct queue *q, unsigned self, unsigned k)
{
    struct cl_blk_req *done[BATCH];
    struct cl_uthread *ready[BATCH];
    unsigned n_ready = 0, n = io->blk->ops->poll(io->blk, k, done, BATCH);
    for (unsigned i = 0; i < n; i++) {
        struct wait *w = done[i]->user;
        if (--w->left == 0)
            ready[n_ready++] = w->t;
    }
    cl_count(self == k ? &q->stats.collected : &q->stats.helped, n);
    cl_spin_unlock(&q->lock);
    if (n)
        cl_sched_landed(io->sched, k, n);
    for (unsigned i = 0; i < n_ready; i++)
        cl_uthread_ready(ready[i]);
    return n;
}

static unsigned io_poll(void *arg, unsigned self, unsigned k)
{
    struct cl_storage *io = arg;
    struct queue *q = &io->queues[k];
    if (self == k)
        cl_spin_lock(&q->lock);
    else if (!cl_spin_try(&q->lock))
        return 0;
    if (q->first)
        submit(io, q, k);
    return collect(io, q, self, k);
}

static void io_arm(void *arg, unsigned k, bool on)
{
    struct cl_storage *io = arg;
    cl_spin_lock(&io->queues[k].lock);
    io->blk->ops->arm(io->blk, k, on);
    cl_spin_unlock(&io->queues[k].lock);
}

static int io_fd(void *arg, unsigned k)
{
    struct cl_storage *io = arg;
    return io->blk->ops->fd(io->blk, k);
}

int cl_storage_do(struct cl_storage *io, struct cl_blk_req **reqs, unsigned n)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k) || k->sched != io->sched)
        return -EDEADLK;
    if (n == 0)
        return 0;
    struct queue *q = &io->queues[k->index];
    struct wait w = {k->current, n};
    cl_spin_lock(&q->lock);
    for (unsigned i = 0; i < n; i++) {
        reqs[i]->user = &w;
        reqs[i]->next = NULL;
        *(q->first ? &q->last->next : &q->first) = reqs[i];
        q->last = reqs[i];
    }
    cl_count(&q->stats.requests, n);
    cl_sched_in_flight(n);
    cl_waits_for(k, CL_TRACE_WAITS_DISK, io, 0);
    cl_block(k, CL_AFTER_UNLOCK, &q->lock); /* may block, as was asked above; k may be another's from here on */
    for (unsigned i = 0; i < n; i++)
        if (reqs[i]->result)
            return reqs[i]->result;
    return 0;
}

int cl_storage_read(struct cl_storage *io, uint64_t offset, void *buf, uint32_t bytes)
{
    struct cl_blk_req r = {.op = CL_BLK_READ, .offset = offset, .bytes = bytes, .buf = buf};
    return cl_storage_do(io, (struct cl_blk_req *[]){&r}, 1);
}

int cl_storage_write(struct cl_storage *io, uint64_t offset, const void *buf, uint32_t bytes, unsigned flags)
{
    struct cl_blk_req r = {
        .op = CL_BLK_WRITE, .flags = (uint8_t)flags, .offset = offset, .bytes = bytes, .buf = (void *)buf};
    return cl_storage_do(io, (struct cl_blk_req *[]){&r}, 1);
}

int cl_storage_flush(struct cl_storage *io)
{
    struct cl_blk_req r = {.op = CL_BLK_FLUSH};
    return cl_storage_do(io, (struct cl_blk_req *[]){&r}, 1);
}

int cl_storage_stats(const struct cl_storage *io, unsigned k, struct cl_storage_stats *out)
{
    if (k >= io->n_queues)
        return -EINVAL;
    const struct cl_storage_stats *s = &io->queues[k].stats;
    *out = (struct cl_storage_stats){cl_load_relaxed(&s->requests), cl_load_relaxed(&s->doorbells),
                                     cl_load_relaxed(&s->waits), cl_load_relaxed(&s->collected),
                                     cl_load_relaxed(&s->helped)};
    return 0;
}

int cl_storage_new(struct cl_sched *sched, struct cl_blk *blk, struct cl_storage **out, char err[256])
{
    unsigned n = cl_sched_kthreads(sched);
    if (blk->n_queues < n) {
        snprintf(err, 256, "the device has %u queues, but there are %u kthreads: open it with as many", blk->n_queues,
                 n);
        return -EINVAL;
    }
    struct cl_storage *io = calloc(1, sizeof *io);
    struct queue *queues = aligned_alloc(128, n * sizeof *queues);
    if (!io || !queues) {
        snprintf(err, 256, "out of memory for %u queues", n);
        free(io);
        free(queues);
        return -ENOMEM;
    }
    memset(queues, 0, n * sizeof *queues);
    *io = (struct cl_storage){.sched = sched,
                              .blk = blk,
                              .completions = {.arg = io, .poll = io_poll, .arm = io_arm, .fd = io_fd},
                              .n_queues = n,
                              .queues = queues};
    int rc = cl_sched_completions_add(sched, &io->completions, err);
    if (rc) {
        free(queues);
        free(io);
        return rc;
    }
    *out = io;
    return 0;
}

/* Uthreads that still waited are not brought back: their scheduler has ended. Their stacks are there until it is
 * deleted. */
void cl_storage_delete(struct cl_storage *io)
{
    struct cl_blk_req *done[BATCH];
    if (!io)
        return;
    cl_sched_completions_remove(io->sched, &io->completions);
    for (unsigned k = 0; k < io->n_queues; k++) {
        struct cl_blk_stats s;
        for (io->blk->ops->stats(io->blk, k, &s); s.submitted != s.completed; io->blk->ops->stats(io->blk, k, &s))
            if (!io->blk->ops->poll(io->blk, k, done, BATCH) && io->blk->ops->wait(io->blk, k, -1) < 0)
                break; /* the device's close waits, too */
    }
    free(io->queues);
    free(io);
}
