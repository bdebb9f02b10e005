/* See af_xdp.h. */
#include "af_xdp.h"

#include "../../../runtime/net.h"
#include "../../../runtime/pool.h"
#include "../../linux/netdev.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REAP_BATCH 64
/* A queue that the kernel could not drain is tried again after at most this long; doubled each time, so often. */
#define RETRY_NS 50000
#define RETRY_DOUBLINGS 8
/* Every so many fruitless waits, or polls, the socket is asked whether its device is still there. */
#define GONE_CHECK 16
#define GONE_CHECK_POLLS 65536

/* Two sides, as af_xdp.h says, each used by one thread at a time:
 *   receive  xsk.rx, xsk.fill, released, empty_polls, rx_syscalls, stats.rx_*: whoever is in rx_burst, the owner or a
 *            thief
 *   send     the rest: the owner
 * Counters are read by anybody (relaxed). */
struct queue {
    struct cl_xsk xsk;
    bool kick_pending; /* frames are in the tx ring and the last sendto did not take them all */
    uint32_t released; /* rx.ours as the kernel was last told */
    uint32_t empty_waits, empty_polls;
    /* pthread_self() of the owner, where siblings may steal. Writer: the owner; readers: whoever polls. Relaxed: a
     * thread asks only whether it is itself. */
    uint64_t owner;
    uint64_t rx_syscalls;
    uint32_t retries;   /* times in a row that retry_tsc was put off */
    uint64_t retry_tsc; /* while kick_pending: when who sleeps shall ring again */
    uint32_t tx_lost;   /* frames that the device refused in copy mode (EBUSY) */
    uint32_t look; /* writers: stats (1, any thread), the queue's thread (0). Relaxed: it asks for a look, no more */
    struct cl_parker parker;
    uint32_t park_word CL_ALIGNED(CL_CACHELINE); /* written by wakers too: a line of its own */
    struct cl_nic_stats stats CL_ALIGNED(CL_CACHELINE);
} CL_ALIGNED(CL_CACHELINE);

struct af_xdp {
    struct cl_nic nic;
    struct cl_umem umem;
    struct cl_pool *pool;
    uint32_t chunk_shift, chunk_mask;
    uint32_t fill_target, fill_low; /* refill under load when so many are missing */
    bool busy_poll;
    bool alone;           /* one queue: nobody steals, so each call may do the work of both sides */
    int netlink, ifindex; /* to ask whether the device is still there; from any thread */
    struct queue *queues;
};

static inline struct af_xdp *self(struct cl_nic *nic)
{
    return cl_container_of(nic, struct af_xdp, nic);
}

/* The cache by which chunks are taken for receiving: not the owner's where somebody else may receive. */
static inline unsigned rx_cache(const struct af_xdp *a, unsigned queue)
{
    return a->alone ? queue : a->nic.n_queues + queue;
}

/* The calling thread sends by this queue, so it is the owner. */
static inline void own(const struct af_xdp *a, struct queue *q)
{
    if (!a->alone && cl_unlikely(cl_load_relaxed(&q->owner) != (uint64_t)pthread_self()))
        cl_store_relaxed(&q->owner, (uint64_t)pthread_self());
}

/* Whether who polls may work for the send side, too. */
static inline bool may_send(const struct af_xdp *a, const struct queue *q)
{
    return a->alone || cl_load_relaxed(&q->owner) == (uint64_t)pthread_self();
}

/* Frames that the fill ring lacks. What the kernel holds for receiving is what we filled less what came out of rx: it
 * may keep a chunk aside after a frame that it dropped, so the fill ring's own consumer index would count too few. */
static inline uint32_t fill_missing(const struct af_xdp *a, const struct queue *q)
{
    return a->fill_target - (q->xsk.fill.ours - q->xsk.rx.ours);
}

static CL_NOINLINE void fill(struct af_xdp *a, struct queue *q, unsigned queue, uint32_t missing)
{
    struct cl_xsk_ring *r = &q->xsk.fill;
    uint64_t *entries = r->entries;
    uint32_t chunks[REAP_BATCH];
    bool added = false;
    while (missing) {
        uint32_t want = cl_min(missing, (uint32_t)REAP_BATCH);
        want = cl_min(want, cl_xsk_space(r, want));
        unsigned got = want ? cl_pool_get(a->pool, rx_cache(a, queue), chunks, want) : 0;
        for (unsigned i = 0; i < got; i++)
            entries[r->ours++ & r->mask] = (uint64_t)chunks[i] << a->chunk_shift;
        added |= got > 0;
        missing -= got;
        if (got < REAP_BATCH)
            break;
    }
    if (added)
        cl_xsk_submit(r);
}

/* Take sent chunks back into the pool. */
static CL_NOINLINE void reap(struct af_xdp *a, struct queue *q, unsigned queue)
{
    struct cl_xsk_ring *r = &q->xsk.completion;
    const uint64_t *entries = r->entries;
    uint32_t chunks[REAP_BATCH];
    for (uint32_t ready; (ready = cl_xsk_ready(r)) != 0;) {
        uint32_t n = cl_min(ready, (uint32_t)REAP_BATCH);
        for (uint32_t i = 0; i < n; i++)
            chunks[i] = (uint32_t)(entries[r->ours++ & r->mask] >> a->chunk_shift);
        cl_xsk_release(r);
        cl_pool_put(a->pool, queue, chunks, n);
    }
}

/* Frames sent and not yet reaped: the completion ring is as long as the tx ring, so this never exceeds its size. */
static inline uint32_t tx_outstanding(const struct queue *q)
{
    return q->xsk.tx.ours - q->xsk.completion.ours;
}

/* What polls rings at each turn anyway, so it is put off only once it has come. */
static void put_off(struct queue *q)
{
    uint64_t now = cl_tsc();
    if (now < q->retry_tsc)
        return;
    int64_t ns = (int64_t)RETRY_NS << cl_min(q->retries++, (uint32_t)RETRY_DOUBLINGS);
    q->retry_tsc = now + (uint64_t)cl_ns_to_ticks(cl_clock_default(), ns);
}

static CL_NOINLINE void kick(struct af_xdp *a, struct queue *q)
{
    int r = cl_xsk_kick(&q->xsk);
    cl_count(&q->stats.syscalls, 1);
    q->kick_pending = false;
    switch (r) {
    case 0:
        q->retries = 0;
        break;
    case -ENXIO: /* the device was removed */
    case -EBADF:
        cl_store_relaxed(&a->nic.gone, 1); /* relaxed: a flag that only says "stop", it orders nothing */
        break;
    case -EBUSY: /* net/xdp/xsk.c: one frame completed but refused by the device; the rest is still in the ring */
        cl_count(&q->tx_lost, 1);
        q->kick_pending = true;
        break;
    default: /* EAGAIN: budget used up or the device's queue is full; ENETDOWN; ENOBUFS: the frames wait in the ring */
        q->kick_pending = true;
    }
    if (cl_unlikely(q->kick_pending))
        put_off(q);
}

/* What nobody waits for, of the receive side: give the rx slots back, top up the fill ring. */
static CL_NOINLINE void settle_rx(struct af_xdp *a, struct queue *q, unsigned queue)
{
    cl_xsk_release(&q->xsk.rx);
    q->released = q->xsk.rx.ours;
    uint32_t missing = fill_missing(a, q);
    if (missing)
        fill(a, q, queue, missing);
}

/* Of both sides where nobody steals, else of the send side, which takes sent chunks back. By the owner. */
static CL_NOINLINE void settle(struct af_xdp *a, struct queue *q, unsigned queue)
{
    if (tx_outstanding(q))
        reap(a, q, queue);
    if (a->alone)
        settle_rx(a, q, queue);
}

/* Whether the receive side has anything to settle. */
static inline bool unsettled(const struct af_xdp *a, const struct queue *q)
{
    return (q->xsk.rx.ours - q->released) | fill_missing(a, q);
}

/* Whether the kernel has frames for us, or a thief has not yet given the slots back of those that it took. By the
 * indices that are shared with the kernel alone: a thief may be at work. */
static inline bool rx_waits(const struct queue *q)
{
    return cl_load_acquire(q->xsk.rx.producer) != cl_load_relaxed(q->xsk.rx.consumer);
}

/* Whether the kernel must be told of what is in the tx ring. In copy mode always: nobody else looks into it, and the
 * kernel set the flag for good when the socket was bound. With zero copy the driver sets it before it stops looking: of
 * our "write entries, read flag" and its "set flag, look once more" at least one sees the other's store, given a fence
 * between ours. Not every driver looks once more: unsent() mends that. */
static inline bool must_kick(const struct queue *q)
{
    if (!q->xsk.need_wakeup)
        return true;
    if (q->xsk.zero_copy)
        cl_fence_seq_cst(); /* after cl_xsk_submit */
    return cl_xsk_wants_wakeup(&q->xsk.tx);
}

/* Whether a zero-copy driver has fallen asleep over entries that were there. */
static inline bool unsent(const struct queue *q)
{
    return q->xsk.zero_copy && q->xsk.need_wakeup && tx_outstanding(q) &&
           cl_load_relaxed(q->xsk.tx.consumer) !=
               q->xsk.tx.ours && /* relaxed: a hint, looked at again at the next poll */
           cl_xsk_wants_wakeup(&q->xsk.tx);
}

/* Let the kernel work for the receive queue on our core, if the user asked for this or the driver does. */
static inline void drive_rx(struct af_xdp *a, struct queue *q)
{
    if (cl_unlikely(a->busy_poll) || (q->xsk.zero_copy && cl_unlikely(cl_xsk_wants_wakeup(&q->xsk.fill)))) {
        ssize_t ignored = recvfrom(q->xsk.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
        (void)ignored; /* nothing is read: the call is the doorbell */
        cl_count(&q->rx_syscalls, 1);
    }
}

/* The kernel tells of a lost device by an error on the socket, which poll() does not show. A device that is only down
 * may come back; a removed one has unbound the socket, and then a doorbell answers ENXIO. By owner or thief, each
 * counting its own system calls. */
static CL_NOINLINE void want_gone_check(struct af_xdp *a, struct queue *q, uint64_t *syscalls)
{
    int error = 0;
    socklen_t length = sizeof error;
    cl_store_relaxed(&q->look, 0);
    cl_count(syscalls, 1);
    if (!getsockopt(q->xsk.fd, SOL_SOCKET, SO_ERROR, &error, &length) && error == ENETDOWN &&
        cl_xsk_kick(&q->xsk) == -ENXIO)
        cl_store_relaxed(&a->nic.gone, 1); /* relaxed: see kick */
}

/* Fetch the frame that comes next while its descriptor is still on its way from the other core. The kernel takes chunks
 * in the order of the fill ring, whose entries are ours to read until as many have been received; where it has not, the
 * prefetch is in vain. */
static inline void prefetch_next(const struct af_xdp *a, const struct queue *q)
{
    const uint64_t *filled = q->xsk.fill.entries;
    cl_prefetch(a->umem.area + filled[q->xsk.rx.ours & q->xsk.fill.mask] + CL_XSK_HEADROOM);
}

/* In copy mode whoever sent it has written it on another core. Its chunk is one of the next to be sent, too: each line
 * comes once, to be written. */
static inline void fetch_frame(const uint8_t *data, uint32_t len)
{
    cl_prefetch_span_write(data, len);
}

/* Nothing came: time for what nobody waits for. One system call at most. */
static void idle(struct af_xdp *a, struct queue *q, unsigned queue)
{
    bool sends = may_send(a, q);
    if (sends && tx_outstanding(q))
        reap(a, q, queue);
    if (unsettled(a, q))
        settle_rx(a, q, queue);
    if (cl_unlikely(sends && (q->kick_pending || unsent(q))))
        kick(a, q);
    else if (cl_unlikely(++q->empty_polls % GONE_CHECK_POLLS == 0 || cl_load_relaxed(&q->look)))
        want_gone_check(a, q, &q->rx_syscalls);
    else
        drive_rx(a, q);
}

static CL_HOT unsigned rx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct af_xdp *a = self(nic);
    struct queue *q = &a->queues[queue];
    struct cl_xsk_ring *r = &q->xsk.rx;
    uint32_t ready = cl_xsk_ready(r);
    if (!ready) {
        idle(a, q, queue);
        return 0;
    }
    prefetch_next(a, q);
    n = cl_min(n, ready);
    const struct xdp_desc *entries = r->entries;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct xdp_desc *d = &entries[r->ours++ & r->mask];
        fetch_frame(a->umem.area + d->addr, d->len);
        frames[i].data = a->umem.area + d->addr;
        frames[i].buf = (uint32_t)(d->addr >> a->chunk_shift);
        frames[i].len = (uint16_t)d->len;
        frames[i].room = (uint16_t)(a->umem.chunk_bytes - (d->addr & a->chunk_mask));
        frames[i].hash = 0;
        frames[i].tag = 0;
        bytes += d->len;
    }
    cl_count(&q->stats.rx_frames, n);
    cl_count(&q->stats.rx_bytes, bytes);
    if (cl_unlikely(fill_missing(a, q) >= a->fill_low || r->ours - q->released >= r->size / 4))
        settle_rx(a, q, queue);
    return n;
}

/* Put one frame into the tx ring at `ours`; false if its length or place cannot be. */
static inline bool place(struct af_xdp *a, struct cl_xsk_ring *r, const struct cl_frame *f)
{
    uint64_t at = (uint64_t)(f->data - a->umem.area);
    if (cl_unlikely(f->len < CL_ETH_HLEN || f->len > a->nic.mtu + CL_ETH_HLEN || (at >> a->chunk_shift) != f->buf ||
                    (at & a->chunk_mask) + f->len > a->umem.chunk_bytes))
        return false;
    struct xdp_desc *d = (struct xdp_desc *)r->entries + (r->ours & r->mask);
    d->addr = at;
    d->len = f->len;
    d->options = 0;
    r->ours++;
    return true;
}

static CL_HOT unsigned tx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct af_xdp *a = self(nic);
    struct queue *q = &a->queues[queue];
    struct cl_xsk_ring *r = &q->xsk.tx;
    own(a, q);
    if (cl_unlikely(tx_outstanding(q) + n > r->size / 2))
        reap(a, q, queue);
    /* Bounded by completions, not by the tx ring's consumer: then the completion ring can never overflow either. */
    unsigned take = cl_min(n, r->size - tx_outstanding(q));
    uint64_t bytes = 0;
    unsigned placed = 0;
    for (unsigned i = 0; i < take; i++) {
        if (cl_likely(place(a, r, &frames[i]))) {
            bytes += frames[i].len;
            placed++;
        } else {
            cl_count(&q->stats.tx_dropped_malformed, 1);
            cl_pool_put(a->pool, queue, &frames[i].buf, 1);
        }
    }
    if (cl_likely(placed)) {
        cl_xsk_submit(r);
        cl_count(&q->stats.tx_frames, placed);
        cl_count(&q->stats.tx_bytes, bytes);
    }
    if (cl_unlikely(take < n))
        cl_count(&q->stats.tx_full, 1);
    if ((placed || q->kick_pending || take < n) && must_kick(q))
        kick(a, q);
    /* In copy mode the frames are sent when the doorbell returns. Now is better than when the next frame has come. */
    if (!q->xsk.zero_copy && !q->kick_pending)
        settle(a, q, queue);
    return take;
}

static unsigned alloc_frames(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct af_xdp *a = self(nic);
    struct queue *q = &a->queues[queue];
    uint32_t chunks[CL_NIC_BURST];
    own(a, q);
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    unsigned got = cl_pool_get(a->pool, queue, chunks, n);
    if (cl_unlikely(got < n) && tx_outstanding(q)) {
        reap(a, q, queue);
        got += cl_pool_get(a->pool, queue, &chunks[got], n - got);
    }
    if (cl_unlikely(got < n))
        cl_count(&q->stats.alloc_short, 1);
    for (unsigned i = 0; i < got; i++)
        frames[i] = (struct cl_frame){
            .data = a->umem.area + ((uint64_t)chunks[i] << a->chunk_shift),
            .buf = chunks[i],
            .room = (uint16_t)a->nic.buffer_bytes,
        };
    return got;
}

static void free_frames(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct af_xdp *a = self(nic);
    uint32_t chunks[CL_NIC_BURST];
    for (unsigned done = 0; done < n;) {
        unsigned part = cl_min(n - done, (unsigned)CL_NIC_BURST);
        for (unsigned i = 0; i < part; i++)
            chunks[i] = frames[done + i].buf;
        cl_pool_put(a->pool, queue, chunks, part);
        done += part;
    }
}

static struct cl_parker *parker(struct cl_nic *nic, unsigned queue)
{
    return &self(nic)->queues[queue].parker;
}

static int wait_frames(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct af_xdp *a = self(nic);
    struct queue *q = &a->queues[queue];
    own(a, q);
    /* Or the kernel has no chunk to wake us with. With siblings the poll before, which nic.h asks for, has seen to
     * that. */
    settle(a, q, queue);
    if (q->kick_pending || unsent(q)) /* after cl_park_begin's fence */
        kick(a, q);
    if (q->kick_pending) {
        uint64_t now = cl_tsc();
        int64_t left = q->retry_tsc > now ? cl_ticks_to_ns(cl_clock_default(), (int64_t)(q->retry_tsc - now)) + 1 : 0;
        timeout_ns = timeout_ns < 0 ? left : cl_min(timeout_ns, left);
    }
    if (rx_waits(q)) {
        cl_park_cancel(&q->parker);
        return 0;
    }
    int r = cl_park_wait_fd(&q->parker, q->xsk.fd, timeout_ns);
    cl_count(&q->stats.syscalls, 1);
    if (!rx_waits(q) && (++q->empty_waits % GONE_CHECK == 0 || cl_load_relaxed(&q->look)))
        want_gone_check(a, q, &q->stats.syscalls);
    return r;
}

/* No frame comes then, but a doorbell that did not take all wants another one: for who sleeps by the descriptor. */
static uint64_t next_tsc(struct cl_nic *nic, unsigned queue)
{
    const struct queue *q = &self(nic)->queues[queue];
    return cl_unlikely(q->kick_pending) ? q->retry_tsc : UINT64_MAX;
}

int cl_af_xdp_kernel_stats(const struct cl_nic *nic, unsigned queue, uint64_t out[6])
{
    const struct af_xdp *a = cl_container_of(nic, struct af_xdp, nic);
    struct xdp_statistics s = {0};
    socklen_t length = sizeof s;
    if (getsockopt(a->queues[queue].xsk.fd, SOL_XDP, XDP_STATISTICS, &s, &length))
        return -errno;
    out[0] = s.rx_dropped;
    out[1] = s.rx_invalid_descs;
    out[2] = s.tx_invalid_descs;
    out[3] = s.rx_ring_full;
    out[4] = s.rx_fill_ring_empty_descs;
    out[5] = s.tx_ring_empty_descs;
    return 0;
}

static void stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    struct af_xdp *a = self(nic);
    struct queue *q = &a->queues[queue];
    cl_nic_stats_read(&q->stats, out);
    out->syscalls += cl_load_relaxed(&q->rx_syscalls);
    uint64_t k[6];
    if (cl_af_xdp_kernel_stats(nic, queue, k))
        return;
    /* net/xdp/xsk.c counts a frame that found the fill ring empty in rx_dropped as well. */
    out->rx_dropped_no_buffer = k[4];
    out->rx_dropped_ring_full = k[3];
    out->rx_dropped_malformed = k[0] - cl_min(k[0], k[4]);
    uint64_t refused = k[2] + cl_load_relaxed(&q->tx_lost);
    out->tx_dropped_error = refused;
    out->tx_frames -= cl_min(refused, out->tx_frames);
    uint64_t ignored;
    if (cl_netdev_tx_dropped(a->netlink, a->ifindex, &ignored) == -ENODEV)
        cl_store_relaxed(&a->nic.gone, 1); /* relaxed: see kick. Its queues' threads may sleep for long */
    /* The queue's thread asks for the device the next time that it has nothing else to do. */
    cl_store_relaxed(&q->look, 1);
    cl_park_wake(&q->parker);
}

static uint32_t buffers_free(struct cl_nic *nic)
{
    struct af_xdp *a = self(nic);
    uint32_t free = cl_pool_available(a->pool);
    for (unsigned i = 0; i < nic->n_queues; i++) {
        struct cl_xsk *x = &a->queues[i].xsk;
        free += x->fill.ours - cl_load_relaxed(x->rx.producer);               /* waiting to receive */
        free += cl_load_relaxed(x->completion.producer) - x->completion.ours; /* sent, not yet reaped */
    }
    return free;
}

static int queue_fd(struct cl_nic *nic, unsigned queue)
{
    return self(nic)->queues[queue].xsk.fd;
}

static void destroy(struct cl_nic *nic)
{
    struct af_xdp *a = self(nic);
    /* The socket that registered the UMEM last: the others refer to it. */
    for (unsigned i = nic->n_queues; a->queues && i-- > 0;) {
        cl_xsk_close(&a->queues[i].xsk);
        cl_park_close_fd(&a->queues[i].parker);
    }
    cl_umem_exit(&a->umem);
    cl_pool_delete(a->pool);
    if (a->netlink >= 0)
        close(a->netlink);
    free(a->queues);
    free(a);
}

static const struct cl_nic_ops OPS = {
    .name = "af_xdp",
    .rx_burst = rx_burst,
    .tx_burst = tx_burst,
    .alloc = alloc_frames,
    .free = free_frames,
    .parker = parker,
    .wait = wait_frames,
    .stats = stats,
    .buffers_free = buffers_free,
    .fd = queue_fd,
    .next_tsc = next_tsc,
    .close = destroy,
};

bool cl_af_xdp_zero_copy(const struct cl_nic *nic)
{
    return cl_container_of(nic, struct af_xdp, nic)->queues[0].xsk.zero_copy;
}

static int open_queues(struct af_xdp *a, const struct cl_af_xdp_config *c, char *err)
{
    for (unsigned i = 0; i < c->n_queues; i++) {
        struct queue *q = &a->queues[i];
        int r = cl_park_open_fd(&q->parker, &q->park_word);
        if (r) {
            snprintf(err, CL_ERR_BYTES, "an eventfd for queue %u: %s", i, strerror(-r));
            return r;
        }
        r = cl_xsk_open(&q->xsk, &a->umem, &c->socket, c->first_queue + i, err);
        if (r)
            return r;
        fill(a, q, i, a->fill_target);
    }
    return 0;
}

int cl_af_xdp_nic_new(const struct cl_af_xdp_config *c, struct cl_nic **out, char *err)
{
    int r = cl_af_xdp_check(c, err);
    if (r)
        return r;
    struct af_xdp *a = calloc(1, sizeof *a);
    size_t bytes = c->n_queues * sizeof(struct queue);
    if (a) {
        a->queues = aligned_alloc(CL_CACHELINE, bytes);
        a->pool = cl_pool_new(0, c->n_buffers, c->n_queues == 1 ? 1 : 2 * c->n_queues);
    }
    if (!a || !a->queues || !a->pool) {
        snprintf(err, CL_ERR_BYTES, "out of memory");
        if (a) {
            free(a->queues);
            cl_pool_delete(a->pool);
        }
        free(a);
        return -ENOMEM;
    }
    memset(a->queues, 0, bytes);
    for (unsigned i = 0; i < c->n_queues; i++)
        a->queues[i].xsk.fd = a->queues[i].parker.event_fd = -1;
    a->nic = (struct cl_nic){.ops = &OPS, .n_queues = c->n_queues, .n_buffers = c->n_buffers};
    a->nic.buffer_bytes = c->buffer_bytes;
    a->nic.tx_calls = 1;
    a->alone = c->n_queues == 1;
    a->chunk_shift = (uint32_t)__builtin_ctz(c->buffer_bytes | 1u << 31);
    a->chunk_mask = c->buffer_bytes - 1;
    a->fill_target = c->fill_target;
    a->fill_low = cl_max(c->fill_target / 4, 1u);
    a->busy_poll = c->socket.busy_poll_us > 0;
    a->netlink = cl_netdev_open(); /* without it a lost device shows at the next frame */
    a->ifindex = (int)if_nametoindex(c->socket.ifname);
    r = cl_umem_init(&a->umem, c->n_buffers, c->buffer_bytes, err);
    if (!r)
        r = cl_af_xdp_read_interface(&a->nic, c, err);
    if (!r)
        r = open_queues(a, c, err);
    if (r) {
        destroy(&a->nic);
        return r;
    }
    *out = &a->nic;
    return 0;
}
