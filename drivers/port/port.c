/* See port.h. This file: the data path. watch.c: attaching, watching, attaching again; arena.c: what
 * it is attached to. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Take over a newer arena, if there is one. By the thread that uses this side of the queue. */
static void rx_sync(struct port *port, unsigned queue, struct port_rx *rx)
{
    /* Acquire: pairs with the release in port_publish; the arena behind the pointer is complete. */
    struct port_arena *now = cl_load_acquire(&port->current);
    if (cl_likely(rx->arena == now))
        return;
    struct cl_arena_kthread *lines = port_lines(now, queue);
    uint32_t *old_word = cl_load_relaxed(&port->parkers[queue].word);
    cl_ring_rx_init(&rx->ring, port_slots(now, now->layout.rx_offset, queue, now->layout.rx_slots), &lines->rx_head,
                    now->layout.rx_slots);
    /* Relaxed: whoever still reads the old address wakes the old word; the wake below covers a sleeper on it (a thief
     * may be running this while the owner sleeps). Not on the first arena, whose word it is already: an owner that
     * looks for the first time as it parks has just said so there, and a wake would have it say that it runs. */
    cl_store_relaxed(&port->parkers[queue].word, &lines->park);
    struct cl_parker sleeper = {.word = old_word, .event_fd = -1};
    if (old_word != &lines->park)
        cl_park_wake(&sleeper);
    port_herald_look(port);
    cl_store_release(&rx->arena, now); /* release: the watcher unmaps the old arena once all sides have left it */
}

static void tx_sync(struct port *port, unsigned queue, struct port_tx *tx)
{
    struct port_arena *now = cl_load_acquire(&port->current); /* as in rx_sync */
    if (cl_likely(tx->arena == now))
        return;
    struct cl_arena_kthread *lines = port_lines(now, queue);
    cl_ring_tx_init(&tx->ring, port_slots(now, now->layout.tx_offset, queue, now->layout.tx_slots), &lines->tx_head,
                    now->layout.tx_slots);
    tx->doorbell = cl_arena_doorbell_of(now->base);
    tx->shadow = now->shadows + (size_t)queue * now->layout.tx_slots;
    tx->give_back = now->give_backs + (size_t)queue * now->layout.n_rx;
    tx->n_give_back = 0;
    tx->reclaimed = 0;
    tx->rung = 0;
    tx->lines = lines;
    tx->stamps.asked = tx->stamps.told = 0; /* what the old one has not told of is not known */
    cl_store_release(&tx->arena, now);
}

static inline uint8_t *rx_data(const struct port_arena *a, const struct cl_desc *d, uint32_t *buf, uint32_t *offset)
{
    *buf = (uint32_t)d->payload & 0xffffff;
    *offset = (d->payload >> 24) & 0xffff;
    return a->buffers + (size_t)*buf * a->layout.buffer_stride + *offset;
}

/* Send for the frames of the next burst. */
static inline void fetch_next(const struct port_arena *a, const struct cl_ring_rx *ring, unsigned n)
{
    struct cl_desc next[CL_NIC_BURST];
    uint32_t buf, offset;
    unsigned waiting = cl_ring_peek(ring, next, n);
    for (unsigned i = 0; i < waiting; i++)
        cl_prefetch_span(rx_data(a, &next[i], &buf, &offset), (uint16_t)(next[i].word >> 32));
}

/* cl_frame.buf of a frame that came with CL_RX_ASKS, beside the buffer's number. */
#define ASKS (1u << 31)

static inline uint32_t buffer_of(const struct cl_frame *f)
{
    return f->buf & ~ASKS;
}

bool port_may_be_anothers(const struct cl_frame *f)
{
    return f->buf & ASKS;
}

/* Which steering a descriptor's frame is of, with the attachment in the top byte. */
static inline uint32_t steering_of(const struct port_arena *a, const struct cl_desc *d)
{
    return cl_rx_steering(d->payload) | a->tag << 24;
}

bool port_steering(struct cl_nic *nic, unsigned queue, uint32_t *number)
{
    struct port *port = port_of(nic);
    struct port_rx *rx = &port->rx[queue];
    struct cl_desc next;
    rx_sync(port, queue, rx);
    if (!cl_ring_next(&rx->ring, &next))
        return false;
    *number = steering_of(rx->arena, &next);
    return true;
}

/* How many of n descriptors that were taken are of the first one's steering; the others stay in the ring. */
static CL_NOINLINE unsigned of_one_steering(struct cl_ring_rx *ring, const struct cl_desc *d, unsigned n)
{
    unsigned i = 1;
    while (i < n && cl_rx_steering(d[i].payload) == cl_rx_steering(d[0].payload))
        i++;
    cl_ring_unpop(ring, n - i);
    return i;
}

unsigned port_rx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct port *port = port_of(nic);
    struct port_rx *rx = &port->rx[queue];
    rx_sync(port, queue, rx);
    struct cl_desc d[CL_NIC_BURST];
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    unsigned got = cl_ring_pop(&rx->ring, d, n);
    if (got == 0)
        return 0;
    if (cl_unlikely(cl_rx_steering(d[0].payload) != cl_rx_steering(d[got - 1].payload)))
        got = of_one_steering(&rx->ring, d, got);
    struct port_arena *a = rx->arena;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < got; i++) {
        uint32_t buf, offset;
        uint8_t *data = rx_data(a, &d[i], &buf, &offset);
        cl_prefetch_span(data, (uint16_t)(d[i].word >> 32));
        frames[i] = (struct cl_frame){.data = data,
                                      .buf = buf | (cl_unlikely(d[i].word & CL_RX_ASKS) ? ASKS : 0),
                                      .len = (uint16_t)(d[i].word >> 32),
                                      .room = (uint16_t)(a->layout.buffer_bytes - offset),
                                      .hash = (uint32_t)d[i].word,
                                      .tag = a->tag};
        bytes += frames[i].len;
    }
    if (got == n)
        fetch_next(a, &rx->ring, n);
    cl_ring_publish(&rx->ring);
    cl_count(&a->counts[queue].received, got);
    cl_count(&rx->frames, got);
    cl_count(&rx->bytes, bytes);
    return got;
}

/* Send buffers whose slot the iokernel has passed go back to the pool. */
static void reclaim(struct port_tx *tx, unsigned queue)
{
    uint32_t head = cl_load_acquire(tx->ring.shared_head); /* acquire: the iokernel's copies are done */
    if (head - tx->reclaimed > tx->ring.tail - tx->reclaimed)
        return; /* impossible */
    uint32_t batch[64];
    unsigned n = 0;
    for (; tx->reclaimed != head; tx->reclaimed++) {
        uint32_t buf = tx->shadow[tx->reclaimed & (tx->ring.size - 1)];
        if (buf == CL_SHM_NO_BUFFER)
            continue;
        batch[n++] = buf;
        if (n == 64) {
            cl_pool_put(tx->arena->pool, queue, batch, n);
            n = 0;
        }
    }
    if (n)
        cl_pool_put(tx->arena->pool, queue, batch, n);
    tx->ring.head_cache = head;
}

static uint32_t take_give_back(struct port_tx *tx)
{
    return tx->n_give_back ? tx->give_back[--tx->n_give_back] : CL_SHM_NO_BUFFER;
}

/* The ring has something to be taken: tell the loop, and get it up if it sleeps. */
static void announce(struct port_tx *tx, unsigned queue)
{
    struct port_arena *a = tx->arena;
    if (a->never_sleeps) {
        cl_doorbell_set(tx->doorbell, queue);
        return;
    }
    /* Dekker's handshake with iokernel/loop/idle.c: our descriptors before its flag; its flag before its re-check. */
    cl_fence_seq_cst();
    cl_doorbell_set(tx->doorbell, queue);
    uint64_t sleep = cl_load_relaxed(&a->loop->sleeping), one = 1;
    if (cl_likely(!sleep || sleep == tx->rung)) /* it gets up, which may take longer than a burst */
        return;
    tx->rung = sleep;
    ssize_t ignored = write(a->doorbell, &one, sizeof one); /* EAGAIN: a ring is pending anyway */
    (void)ignored;
    cl_count(&tx->syscalls, 1);
}

/* Give receive buffers back by themselves, three a descriptor, while the ring has room. A loop that sleeps needs them
 * only when frames come, and then it is awake; but it is woken before they fill the ring, in which no frame to send
 * would find room any more, to wake it. */
static void flush_give_back(struct port_tx *tx, unsigned queue)
{
    bool any = false;
    while (tx->n_give_back && cl_ring_tx_space(&tx->ring, 1)) {
        if (tx->ring.tail - tx->reclaimed == tx->ring.size)
            break; /* the shadow of the next slot still names a buffer: reclaim first */
        tx->shadow[tx->ring.tail & (tx->ring.size - 1)] = CL_SHM_NO_BUFFER;
        uint32_t a = take_give_back(tx), b = take_give_back(tx), c = take_give_back(tx);
        cl_ring_push(&tx->ring, cl_tx_word(CL_TX_FREE, a, 0, 0), cl_tx_payload(b, c));
        any = true;
    }
    if (tx->ring.tail - tx->reclaimed > tx->ring.size / 2)
        announce(tx, queue);
    else if (any)
        cl_doorbell_set(tx->doorbell, queue);
}

/* Take a frame's buffer from its holder without sending it. */
static void drop_buffer(struct port *port, struct port_tx *tx, unsigned queue, const struct cl_frame *f)
{
    struct port_arena *a = tx->arena;
    if (cl_unlikely(f->tag != a->tag)) {
        port_return_old(port, queue, f);
        return;
    }
    cl_count(&a->counts[queue].returned, 1);
    uint32_t buf = buffer_of(f);
    if (buf >= a->layout.n_rx)
        cl_pool_put(a->pool, queue, &buf, 1);
    else
        tx->give_back[tx->n_give_back++] = buf;
}

static unsigned drop_all(struct port *port, struct port_tx *tx, unsigned queue, const struct cl_frame *frames,
                         unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        drop_buffer(port, tx, queue, &frames[i]);
    cl_count(&tx->dropped_error, n);
    return n;
}

/* Whether a frame may go; counts the reason if not. */
static bool sendable(struct port_tx *tx, const struct cl_frame *f, uint32_t *offset)
{
    const struct port_arena *a = tx->arena;
    if (cl_unlikely(f->tag != a->tag)) {
        cl_count(&tx->dropped_error, 1);
        return false;
    }
    *offset = (uint32_t)(f->data - (a->buffers + (size_t)buffer_of(f) * a->layout.buffer_stride));
    if (cl_unlikely(f->len < CL_ETH_HLEN || f->len > a->max_frame || *offset > a->layout.buffer_bytes - f->len)) {
        cl_count(&tx->dropped_malformed, 1);
        return false;
    }
    return true;
}

/* What the last descriptor of a burst is to say: there is never more under way than the arena has room for. */
static inline uint64_t stamp_wanted(struct cl_nic_tx_stamps *s)
{
    bool wanted = s->wanted && s->asked - s->told < CL_NIC_TX_STAMPS;
    s->wanted = s->stamped = 0;
    return wanted ? CL_TX_STAMP : 0;
}

struct cl_nic_tx_stamps *port_tx_stamps(struct cl_nic *nic, unsigned queue)
{
    return &port_of(nic)->tx[queue].stamps;
}

unsigned port_tx_stamps_read(struct cl_nic *nic, unsigned queue, struct cl_nic_tx_stamp *out, unsigned n)
{
    struct port_tx *tx = &port_of(nic)->tx[queue];
    struct cl_nic_tx_stamps *s = &tx->stamps;
    uint32_t known = cl_load_acquire(&tx->lines->tx_stamped) - s->told; /* acquire: the stamps */
    n = cl_min(n, cl_min(known, s->asked - s->told));
    for (unsigned i = 0; i < n; i++, s->told++) {
        const struct cl_arena_tx_stamp *of = &tx->lines->tx_stamps[s->told % CL_NIC_TX_STAMPS];
        out[i] = (struct cl_nic_tx_stamp){.rang = s->rang[s->told % CL_NIC_TX_STAMPS],
                                          .taken = cl_load_relaxed(&of->taken),
                                          .given = cl_load_relaxed(&of->given)};
    }
    return n;
}

unsigned port_tx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct port *port = port_of(nic);
    struct port_tx *tx = &port->tx[queue];
    tx_sync(port, queue, tx);
    uint64_t stamp = stamp_wanted(&tx->stamps);
    if (cl_unlikely(cl_load_relaxed(&nic->gone)))
        return drop_all(port, tx, queue, frames, n);
    if (cl_unlikely(tx->ring.size - (tx->ring.tail - tx->reclaimed) < n))
        reclaim(tx, queue); /* a slot is free when its shadow is, too */
    uint32_t space = tx->ring.size - (tx->ring.tail - tx->reclaimed);
    unsigned take = cl_min(n, space);
    uint64_t sent = 0, bytes = 0, stamped = 0;
    for (unsigned i = 0; i < take; i++) {
        const struct cl_frame *f = &frames[i];
        uint32_t offset;
        if (cl_unlikely(!sendable(tx, f, &offset))) {
            drop_buffer(port, tx, queue, f);
            continue;
        }
        uint32_t buf = buffer_of(f);
        bool lent = buf < tx->arena->layout.n_rx;
        tx->shadow[tx->ring.tail & (tx->ring.size - 1)] = lent ? CL_SHM_NO_BUFFER : buf;
        uint32_t a = take_give_back(tx), b = take_give_back(tx);
        stamped = i + 1 == n ? stamp : 0; /* what is left goes by a doorbell of its own, and that is when it was sent */
        cl_ring_push(&tx->ring, cl_tx_word(CL_TX_SEND, buf, offset, f->len), cl_tx_payload(a, b) | stamped);
        sent++;
        bytes += f->len;
    }
    if (cl_unlikely(stamped)) {
        tx->stamps.stamped = 1;
        tx->stamps.asked++;
    }
    cl_count(&tx->arena->counts[queue].returned, sent);
    cl_count(&tx->frames, sent);
    cl_count(&tx->bytes, bytes);
    if (cl_unlikely(take < n))
        cl_count(&tx->full, 1);
    if (sent || take < n)
        announce(tx, queue);
    return take;
}

void port_prepare(struct cl_nic *nic, unsigned queue)
{
    cl_ring_prepare(&port_of(nic)->tx[queue].ring); /* of an old arena perhaps: then it is a wasted hint */
}

unsigned port_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct port *port = port_of(nic);
    struct port_tx *tx = &port->tx[queue];
    tx_sync(port, queue, tx);
    struct port_arena *a = tx->arena;
    uint32_t index[CL_NIC_BURST];
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    /* Early enough that a steady flow goes round on few, warm buffers; late enough to read the head once a burst. */
    if (tx->ring.tail - tx->reclaimed >= 32)
        reclaim(tx, queue);
    unsigned got = cl_pool_get(a->pool, queue, index, n);
    if (cl_unlikely(got < n) && tx->reclaimed != tx->ring.tail) {
        reclaim(tx, queue);
        got += cl_pool_get(a->pool, queue, index + got, n - got);
    }
    for (unsigned i = 0; i < got; i++) {
        uint8_t *data = a->buffers + (size_t)index[i] * a->layout.buffer_stride;
        cl_prefetch_write(data); /* the loop has read it last */
        frames[i] =
            (struct cl_frame){.data = data, .buf = index[i], .room = (uint16_t)a->layout.buffer_bytes, .tag = a->tag};
    }
    cl_count(&a->counts[queue].allocated, got);
    if (cl_unlikely(got < n))
        cl_count(&tx->alloc_short, 1);
    return got;
}

void port_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct port *port = port_of(nic);
    struct port_tx *tx = &port->tx[queue];
    tx_sync(port, queue, tx);
    for (unsigned i = 0; i < n; i++)
        drop_buffer(port, tx, queue, &frames[i]);
    if (tx->n_give_back >= tx->arena->give_back_at) {
        if (tx->ring.size - (tx->ring.tail - tx->reclaimed) < tx->n_give_back)
            reclaim(tx, queue);
        flush_give_back(tx, queue);
    }
}

struct cl_parker *port_parker(struct cl_nic *nic, unsigned queue)
{
    return &port_of(nic)->parkers[queue];
}

void port_give_back(struct port *port, unsigned queue)
{
    struct port_tx *tx = &port->tx[queue];
    tx_sync(port, queue, tx);
    reclaim(tx, queue);
    flush_give_back(tx, queue);
}

int port_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct port *port = port_of(nic);
    port_give_back(port, queue);
    cl_count(&port->tx[queue].syscalls, 1);
    cl_park_wait(&port->parkers[queue], timeout_ns);
    return 0;
}

void port_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    struct port *port = port_of(nic);
    const struct port_rx *rx = &port->rx[queue];
    const struct port_tx *tx = &port->tx[queue];
    *out = (struct cl_nic_stats){
        .rx_frames = cl_load_relaxed(&rx->frames),
        .rx_bytes = cl_load_relaxed(&rx->bytes),
        .tx_frames = cl_load_relaxed(&tx->frames),
        .tx_bytes = cl_load_relaxed(&tx->bytes),
        .tx_dropped_malformed = cl_load_relaxed(&tx->dropped_malformed),
        .tx_dropped_error = cl_load_relaxed(&tx->dropped_error),
        .tx_full = cl_load_relaxed(&tx->full),
        .alloc_short = cl_load_relaxed(&tx->alloc_short),
        .syscalls = cl_load_relaxed(&tx->syscalls),
    };
}

uint32_t port_buffers_free(struct cl_nic *nic)
{
    struct port *port = port_of(nic);
    struct port_arena *a = cl_load_acquire(&port->current);
    uint32_t in_flight = 0;
    for (unsigned q = 0; q < nic->n_queues; q++) {
        struct port_tx *tx = &port->tx[q];
        if (cl_load_acquire(&tx->arena) != a)
            continue;
        uint32_t head = cl_load_acquire(tx->ring.shared_head);
        for (uint32_t pos = head; pos != tx->ring.tail; pos++)
            in_flight += tx->shadow[pos & (tx->ring.size - 1)] != CL_SHM_NO_BUFFER;
    }
    return nic->n_buffers - port_held(port, a) - in_flight;
}

int port_fd(struct cl_nic *nic, unsigned queue)
{
    (void)nic;
    (void)queue;
    return -1;
}
