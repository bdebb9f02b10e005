/* See joined.h. A frame's `buf` has the number of its NIC in the upper bits. */
#include "joined.h"
#include "../../runtime/net.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_BITS 24
#define SPINS 128 /* about a microsecond of pauses: then the holder may have lost its CPU */

/* lock  writers: whoever calls (acquire to take, release to give back: what the NIC holds is of the call before) */
struct member {
    struct cl_nic *nic;
    uint64_t
        heard; /* MAC that was heard last; writer: the holder of the lock; readers: anybody (relaxed: it is a whole) */
    uint32_t lock;
} CL_ALIGNED(CL_CACHELINE);

struct joined_nic {
    struct cl_nic nic;
    struct member member[CL_NIC_MAX_QUEUES];
};

static struct cl_nic *lock(struct cl_nic *nic, unsigned queue)
{
    struct member *m = &((struct joined_nic *)nic)->member[queue];
    /* Look before trying, so that waiters share the line instead of pulling it from the holder. */
    for (unsigned i = 1; cl_load_relaxed(&m->lock) || cl_exchange(&m->lock, 1); i++) {
        if (i % SPINS)
            cl_relax();
        else
            sched_yield();
    }
    return m->nic;
}

static void unlock(struct cl_nic *nic, unsigned queue)
{
    cl_store_release(&((struct joined_nic *)nic)->member[queue].lock, 0);
}

static unsigned marked(struct cl_frame *frames, unsigned n, unsigned queue)
{
    for (unsigned i = 0; i < n; i++)
        frames[i].buf |= queue << BUF_BITS;
    return n;
}

/* How many frames from the first on are of the same NIC, their buffers named as it does. */
static unsigned run_of(struct cl_frame *frames, unsigned n, unsigned *queue)
{
    unsigned got = 0;
    *queue = frames[0].buf >> BUF_BITS;
    for (; got < n && frames[got].buf >> BUF_BITS == *queue; got++)
        frames[got].buf &= (1u << BUF_BITS) - 1;
    return got;
}

static uint64_t mac_at(const uint8_t *bytes)
{
    uint64_t mac = 0;
    memcpy(&mac, bytes, 6);
    return mac;
}

/* Whose a frame's destination is, or by default the one that its buffer belongs to. */
static unsigned way_of(const struct joined_nic *j, const struct cl_frame *frame)
{
    unsigned own = frame->buf >> BUF_BITS;
    uint64_t to = mac_at(frame->data);
    if (cl_likely(cl_load_relaxed(&j->member[own].heard) == to))
        return own;
    for (unsigned q = 0; q < j->nic.n_queues; q++)
        if (cl_load_relaxed(&j->member[q].heard) == to)
            return q;
    return own;
}

/* Bring the frame into a buffer of the NIC by which it leaves. False: that one has none. */
static bool carry_over(struct cl_nic *nic, struct cl_frame *frame)
{
    unsigned to = way_of((struct joined_nic *)nic, frame);
    struct cl_frame copy;
    if (cl_likely(to == frame->buf >> BUF_BITS) || frame->len > nic->mtu + CL_ETH_HLEN)
        return true; /* too long: its own NIC says so */
    if (nic->ops->alloc(nic, to, &copy, 1) == 0)
        return false;
    memcpy(copy.data, frame->data, frame->len);
    copy.len = frame->len;
    copy.tag = frame->tag;
    nic->ops->free(nic, to, frame, 1);
    *frame = copy;
    return true;
}

static unsigned joined_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_nic *inner = lock(nic, queue);
    n = inner->ops->rx_burst(inner, 0, frames, n);
    bool gone = cl_load_relaxed(&inner->gone);
    uint64_t *heard = &((struct joined_nic *)nic)->member[queue].heard;
    if (n && *heard != mac_at(frames[0].data + 6))
        cl_store_relaxed(heard, mac_at(frames[0].data + 6));
    unlock(nic, queue);
    if (cl_unlikely(gone))
        cl_store_relaxed(&nic->gone, 1);
    return marked(frames, n, queue);
}

static unsigned joined_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    unsigned sent = 0, of, ready = 0;
    (void)queue;
    while (ready < n && carry_over(nic, &frames[ready]))
        ready++;
    n = ready;
    while (sent < n) {
        unsigned want = run_of(frames + sent, n - sent, &of);
        struct cl_nic *inner = lock(nic, of);
        unsigned got = inner->ops->tx_burst(inner, 0, frames + sent, want);
        bool gone = cl_load_relaxed(&inner->gone);
        unlock(nic, of);
        if (cl_unlikely(gone))
            cl_store_relaxed(&nic->gone, 1);
        marked(frames + sent + got, want - got, of);
        sent += got;
        if (got < want)
            break;
    }
    return sent;
}

static unsigned joined_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_nic *inner = lock(nic, queue);
    n = inner->ops->alloc(inner, 0, frames, n);
    unlock(nic, queue);
    return marked(frames, n, queue);
}

static void joined_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    unsigned of;
    (void)queue;
    while (n) {
        unsigned run = run_of(frames, n, &of);
        struct cl_nic *inner = lock(nic, of);
        inner->ops->free(inner, 0, frames, run);
        unlock(nic, of);
        frames += run;
        n -= run;
    }
}

static struct cl_nic *member(struct cl_nic *nic, unsigned queue)
{
    return ((struct joined_nic *)nic)->member[queue].nic;
}

static struct cl_parker *joined_parker(struct cl_nic *nic, unsigned queue)
{
    return member(nic, queue)->ops->parker(member(nic, queue), 0);
}

static int joined_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    return member(nic, queue)->ops->wait(member(nic, queue), 0, timeout_ns);
}

static void joined_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    member(nic, queue)->ops->stats(member(nic, queue), 0, out);
}

static uint32_t joined_buffers_free(struct cl_nic *nic)
{
    uint32_t n = 0;
    for (unsigned q = 0; q < nic->n_queues; q++)
        n += member(nic, q)->ops->buffers_free(member(nic, q));
    return n;
}

static int joined_fd(struct cl_nic *nic, unsigned queue)
{
    return member(nic, queue)->ops->fd(member(nic, queue), 0);
}

static void joined_close(struct cl_nic *nic)
{
    for (unsigned q = 0; q < nic->n_queues; q++)
        member(nic, q)->ops->close(member(nic, q));
    free(nic);
}

static uint64_t joined_next_tsc(struct cl_nic *nic, unsigned queue)
{
    struct cl_nic *inner = lock(nic, queue);
    uint64_t next = inner->ops->next_tsc ? inner->ops->next_tsc(inner, 0) : UINT64_MAX;
    unlock(nic, queue);
    return next;
}

static const struct cl_nic_ops joined_ops = {
    .name = "joined",
    .rx_burst = joined_rx,
    .tx_burst = joined_tx,
    .alloc = joined_alloc,
    .free = joined_free,
    .parker = joined_parker,
    .wait = joined_wait,
    .stats = joined_stats,
    .buffers_free = joined_buffers_free,
    .fd = joined_fd,
    .close = joined_close,
    .next_tsc = joined_next_tsc,
};

static int refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

int cl_joined_nic_new(struct cl_nic *const *nics, uint32_t n, struct cl_nic **out, char *err)
{
    if (n == 0 || n > CL_NIC_MAX_QUEUES)
        return refuse(err, -EINVAL, "1 to 64 NICs can be joined");
    struct joined_nic *j = aligned_alloc(CL_CACHELINE, sizeof *j);
    if (!j)
        return refuse(err, -ENOMEM, "out of memory");
    memset(j, 0, sizeof *j);
    j->nic = *nics[0];
    j->nic.ops = &joined_ops;
    j->nic.n_queues = n;
    j->nic.n_buffers = 0;
    for (uint32_t q = 0; q < n; q++) {
        if (nics[q]->n_queues != 1 || nics[q]->n_buffers > 1u << BUF_BITS) {
            free(j);
            return refuse(err, -EINVAL, "only NICs with one queue, and 2^24 buffers at most, can be joined");
        }
        j->member[q].nic = nics[q];
        j->nic.n_buffers += nics[q]->n_buffers;
        j->nic.buffer_bytes = cl_min(j->nic.buffer_bytes, nics[q]->buffer_bytes);
        j->nic.mtu = cl_min(j->nic.mtu, nics[q]->mtu);
    }
    *out = &j->nic;
    return 0;
}
