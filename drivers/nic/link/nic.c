/* The link NIC: paths around another NIC. Losing a frame frees a buffer and delivering one takes one, which a sibling
 * that steals received frames may not do beside the owner; and the paths are those of all queues. So every call is
 * under one lock. Frames go on when their queue is polled, sent on or waited at. Statistics are the wrapped NIC's, but
 * for frames and bytes, which are counted at this NIC's own boundary, and tx_full: a path takes all. */
#include "path.h"

#include "../../../runtime/net.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_NS 100000 /* a NIC says nothing when it has room again for what it did not take */

/* At the boundary, of one queue and direction. Writer: the queue's user; readers: anybody (relaxed). */
struct boundary {
    uint64_t frames, bytes;
};

struct link_nic {
    struct cl_nic nic;
    struct cl_nic *inner;
    struct cl_path *path[2]; /* NULL: passed through */
    struct boundary (*boundary)[2];
    uint32_t lock CL_ALIGNED(CL_CACHELINE);
};

static struct link_nic *lock(struct cl_nic *nic)
{
    struct link_nic *l = (struct link_nic *)nic;
    for (unsigned spins = 0; cl_exchange(&l->lock, 1); spins++)
        if (spins > 100)
            sched_yield();
    return l;
}

static void check_gone(struct link_nic *l)
{
    if (cl_unlikely(cl_load_relaxed(&l->inner->gone)))
        cl_store_relaxed(&l->nic.gone, 1);
}

static void unlock(struct link_nic *l)
{
    cl_store_release(&l->lock, 0);
    check_gone(l);
}

static void count_burst(struct boundary *b, const struct cl_frame *frames, unsigned n)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += frames[i].len;
    cl_count(&b->frames, n);
    cl_count(&b->bytes, bytes);
}

/* Send what has come by now. */
static void send_on(struct link_nic *l, unsigned queue, uint64_t now)
{
    if (!l->path[CL_LINK_TX])
        return;
    cl_path_advance(l->path[CL_LINK_TX], now);
    if (cl_path_has(l->path[CL_LINK_TX], queue))
        cl_path_send(l->path[CL_LINK_TX], l->inner, queue);
}

static unsigned receive_path(struct link_nic *l, unsigned queue, struct cl_frame *frames, unsigned n, uint64_t now)
{
    struct cl_path *p = l->path[CL_LINK_RX];
    struct cl_frame fresh[CL_NIC_BURST];
    unsigned m = l->inner->ops->rx_burst(l->inner, queue, fresh, CL_NIC_BURST);
    if (m) {
        cl_path_offer(p, fresh, m, queue, now);
        l->inner->ops->free(l->inner, queue, fresh, m);
    }
    cl_path_advance(p, now);
    unsigned got = cl_path_fill(p, l->inner, queue, frames, n);
    cl_path_delivered(p, queue, got);
    count_burst(&l->boundary[queue][CL_LINK_RX], frames, got);
    return got;
}

static unsigned link_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct link_nic *l = lock(nic);
    uint64_t now = cl_clock_stamp(nic->clock);
    send_on(l, queue, now);
    n = l->path[CL_LINK_RX] ? receive_path(l, queue, frames, n, now)
                            : l->inner->ops->rx_burst(l->inner, queue, frames, n);
    unlock(l);
    return n;
}

/* What no NIC carries goes straight on, for the NIC below to refuse and count. */
static void take_sent(struct link_nic *l, unsigned queue, struct cl_frame *frames, unsigned n, uint64_t now)
{
    for (unsigned i = 0; i < n; i++) {
        if (cl_unlikely(frames[i].len < CL_ETH_HLEN || frames[i].len > l->nic.mtu + CL_ETH_HLEN)) {
            if (l->inner->ops->tx_burst(l->inner, queue, &frames[i], 1))
                continue;
        } else {
            count_burst(&l->boundary[queue][CL_LINK_TX], &frames[i], 1);
            cl_path_offer(l->path[CL_LINK_TX], &frames[i], 1, queue, now);
        }
        l->inner->ops->free(l->inner, queue, &frames[i], 1);
    }
}

static unsigned link_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct link_nic *l = lock(nic);
    if (l->path[CL_LINK_TX]) {
        uint64_t now = cl_clock_stamp(nic->clock);
        take_sent(l, queue, frames, n, now);
        send_on(l, queue, now);
    } else {
        n = l->inner->ops->tx_burst(l->inner, queue, frames, n);
    }
    unlock(l);
    return n;
}

static unsigned link_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct link_nic *l = lock(nic);
    n = l->inner->ops->alloc(l->inner, queue, frames, n);
    unlock(l);
    return n;
}

static void link_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct link_nic *l = lock(nic);
    l->inner->ops->free(l->inner, queue, frames, n);
    unlock(l);
}

static struct cl_parker *link_parker(struct cl_nic *nic, unsigned queue)
{
    struct link_nic *l = (struct link_nic *)nic;
    return l->inner->ops->parker(l->inner, queue);
}

/* When a queue has something of a path. What has come and could not be passed on is tried again `retry` ticks from
 * now. */
static uint64_t next_of(const struct cl_path *p, unsigned queue, uint64_t now, uint64_t retry)
{
    if (!p)
        return UINT64_MAX;
    return cl_min(cl_path_has(p, queue) ? now + retry : UINT64_MAX, p->next_tsc);
}

static uint64_t link_next_tsc(struct cl_nic *nic, unsigned queue)
{
    struct link_nic *l = lock(nic);
    uint64_t now = cl_clock_stamp(nic->clock), retry = (uint64_t)cl_ns_to_ticks(nic->clock, RETRY_NS);
    uint64_t next =
        cl_min(next_of(l->path[CL_LINK_RX], queue, now, 0), next_of(l->path[CL_LINK_TX], queue, now, retry));
    if (l->inner->ops->next_tsc)
        next = cl_min(next, l->inner->ops->next_tsc(l->inner, queue));
    unlock(l);
    return next;
}

static int link_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    uint64_t next = link_next_tsc(nic, queue), now = cl_clock_stamp(nic->clock);
    struct cl_nic *inner = ((struct link_nic *)nic)->inner;
    if (next != UINT64_MAX) {
        int64_t left = next > now ? cl_ticks_to_ns(nic->clock, (int64_t)(next - now)) + 1 : 0;
        timeout_ns = timeout_ns < 0 ? left : cl_min(timeout_ns, left);
    }
    int rc = inner->ops->wait(inner, queue, timeout_ns);
    struct link_nic *l = lock(nic);
    send_on(l, queue, cl_clock_stamp(nic->clock));
    unlock(l);
    return rc;
}

static void link_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    struct link_nic *l = (struct link_nic *)nic;
    const struct boundary *b = l->boundary[queue];
    l->inner->ops->stats(l->inner, queue, out);
    check_gone(l);
    if (l->path[CL_LINK_RX]) {
        out->rx_frames = cl_load_relaxed(&b[CL_LINK_RX].frames);
        out->rx_bytes = cl_load_relaxed(&b[CL_LINK_RX].bytes);
    }
    if (l->path[CL_LINK_TX]) {
        out->tx_frames = cl_load_relaxed(&b[CL_LINK_TX].frames);
        out->tx_bytes = cl_load_relaxed(&b[CL_LINK_TX].bytes);
        out->tx_full = 0;
    }
}

static uint32_t link_buffers_free(struct cl_nic *nic)
{
    struct link_nic *l = (struct link_nic *)nic;
    return l->inner->ops->buffers_free(l->inner);
}

static int link_fd(struct cl_nic *nic, unsigned queue)
{
    struct link_nic *l = (struct link_nic *)nic;
    return l->inner->ops->fd(l->inner, queue);
}

static void link_delete(struct link_nic *l)
{
    cl_path_delete(l->path[CL_LINK_RX]);
    cl_path_delete(l->path[CL_LINK_TX]);
    free(l->boundary);
    free(l);
}

static void link_close(struct cl_nic *nic)
{
    struct link_nic *l = (struct link_nic *)nic;
    l->inner->ops->close(l->inner);
    link_delete(l);
}

static const struct cl_nic_ops link_ops = {
    .name = "link",
    .rx_burst = link_rx,
    .tx_burst = link_tx,
    .alloc = link_alloc,
    .free = link_free,
    .parker = link_parker,
    .wait = link_wait,
    .stats = link_stats,
    .buffers_free = link_buffers_free,
    .fd = link_fd,
    .close = link_close,
    .next_tsc = link_next_tsc,
};

int cl_link_nic_new(struct cl_nic *inner, const struct cl_link_config *const paths[2], struct cl_nic **out, char *err)
{
    for (unsigned d = 0; d < 2; d++)
        if (paths[d] && cl_path_check(paths[d], err))
            return -EINVAL;
    struct link_nic *l = aligned_alloc(CL_CACHELINE, sizeof *l);
    bool whole = l != NULL;
    if (whole) {
        memset(l, 0, sizeof *l);
        l->nic = *inner;
        l->nic.ops = &link_ops;
        l->nic.clock = cl_nic_clock(inner);
        l->inner = inner;
        l->boundary = calloc(inner->n_queues, sizeof *l->boundary);
        whole = l->boundary != NULL;
        for (unsigned d = 0; whole && d < 2; d++)
            if (paths[d])
                whole = (l->path[d] = cl_path_new(paths[d], inner, l->nic.clock, d)) != NULL;
        if (!whole)
            link_delete(l);
    }
    if (!whole) {
        if (err)
            snprintf(err, 256, "out of memory for the frames of a path; give it fewer");
        return -ENOMEM;
    }
    *out = &l->nic;
    return 0;
}

void cl_link_nic_counts(struct cl_nic *nic, unsigned direction, struct cl_link_counts *out)
{
    const struct cl_path *p = ((struct link_nic *)nic)->path[direction];
    *out = (struct cl_link_counts){0};
    if (p)
        cl_path_counts(p, out);
}
