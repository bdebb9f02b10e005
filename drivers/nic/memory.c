/* See memory.h. */
#include <corelane/drivers/memory.h>

#include "../../runtime/net.h"
#include "../../runtime/pool.h"
#include "../../runtime/ring.h"

#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Descriptor: word = buffer index | length << 32 | offset << 48 (bit 63 is the ring's), payload = RSS hash. */
#define LEN_SHIFT 32
#define OFFSET_SHIFT 48
#define MAX_BUFFER_BYTES 16384
#define DEMOTE_AT_MOST 2 /* frames in a burst */
#define PREFETCH_PAIR                                                                                                  \
    (2 * CL_CACHELINE) /* adjacent lines are fetched together: what two threads write is kept this far apart */

struct rx_side {              /* user: the thread that receives on the queue */
    struct cl_ring_rx *rings; /* one for each queue of the other end */
    uint32_t next;            /* ring to poll first: rotates, so that no sender starves the others */
    uint32_t ahead;           /* the user has sent for this burst's frames himself, as he will for the next one's.
                               * Writers: he and memory_ahead, relaxed: a hint */
    uint64_t frames, bytes;
} CL_ALIGNED(CL_CACHELINE);

struct tx_side {              /* user: the thread that sends on the queue */
    struct cl_ring_tx *rings; /* one for each queue of the other end */
    uint64_t frames, bytes, malformed, error, full, alloc_short, syscalls;
    uint64_t *ring_full; /* drops, for each queue of the other end */
} CL_ALIGNED(CL_CACHELINE);

/* word:   written by the queue's user and by whoever wakes it.
 * sleeps: whether the user has ever slept. Writer: the user, once; readers: senders, relaxed. Set before the first
 *         sleep, and followed by a barrier on all threads. A sender whose read of `sleeps` came before that barrier has
 *         its frames visible after it, where the user re-checks; one whose read comes after it sees the 1, and fences
 *         from then on. */
struct park_side {
    uint32_t word;
    uint32_t sleeps;
    uint64_t syscalls; /* writer: the queue's user */
    struct cl_parker parker;
} CL_ALIGNED(CL_CACHELINE);

struct queue {
    struct rx_side rx;
    struct tx_side tx;
    struct park_side park;
} CL_ALIGNED(PREFETCH_PAIR);

struct link;

struct end {
    struct cl_nic nic;
    struct link *link;
    struct end *peer;
    uint8_t *base;
    struct cl_pool *pool;
    uint32_t stride;
    uint32_t first_cache; /* this end's queue 0's cache in the pool */
    uint64_t rss_key;
    bool drop_when_full;
    struct queue *queues;
};

/* Shared memory of one direction of the link lies in one mapping; the heads have a line each. */
struct link {
    struct end ends[2];
    struct cl_pool *pool;
    uint8_t *base;
    size_t buffers_len;
    struct cl_desc *slots[2]; /* [receiving end] */
    size_t slots_len[2];
    uint8_t *heads[2];
    uint32_t open; /* ends not closed yet */
};

static inline uint8_t *buffer_of(const struct end *e, uint32_t buf)
{
    return e->base + (size_t)buf * e->stride;
}

/* The receiver's buffers are its next send buffers (pool.h): it takes the lines to write them, so that each goes over
 * once, and not once for the data and again for the right to write. */
static inline void fetch_frame(const struct end *e, uint64_t word)
{
    cl_prefetch_span_write(buffer_of(e, (uint32_t)word) + (uint32_t)(word >> OFFSET_SHIFT),
                           (uint16_t)(word >> LEN_SHIFT));
}

static inline void fetch_next(const struct end *e, const struct cl_ring_rx *ring, unsigned n)
{
    struct cl_desc next[CL_NIC_BURST];
    unsigned waiting = cl_ring_peek(ring, next, n);
    for (unsigned i = 0; i < waiting; i++)
        fetch_frame(e, next[i].word);
}

static inline unsigned take_ring(struct end *e, struct cl_ring_rx *ring, struct cl_frame *frames, unsigned n,
                                 bool ahead, uint64_t *bytes)
{
    struct cl_desc descs[CL_NIC_BURST];
    unsigned got = cl_ring_pop(ring, descs, n);
    if (!got)
        return 0;
    cl_ring_publish(ring);
    uint64_t sum = 0;
    for (unsigned i = 0; i < got; i++) {
        uint32_t buf = (uint32_t)descs[i].word;
        uint32_t offset = (uint32_t)(descs[i].word >> OFFSET_SHIFT);
        uint16_t len = (uint16_t)(descs[i].word >> LEN_SHIFT);
        uint8_t *data = buffer_of(e, buf) + offset;
        fetch_frame(e, descs[i].word);
        frames[i] = (struct cl_frame){.data = data,
                                      .buf = buf,
                                      .len = len,
                                      .room = (uint16_t)(e->nic.buffer_bytes - offset),
                                      .hash = (uint32_t)descs[i].payload};
        sum += len;
    }
    if (got == n && !ahead)
        fetch_next(e, ring, n);
    *bytes += sum;
    return got;
}

static CL_HOT unsigned memory_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct end *e = (struct end *)nic;
    struct rx_side *rx = &e->queues[queue].rx;
    unsigned rings = e->peer->nic.n_queues, got = 0;
    uint64_t bytes = 0;
    bool ahead = cl_load_relaxed(&rx->ahead);
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    if (rings == 1) {
        got = take_ring(e, &rx->rings[0], frames, n, ahead, &bytes);
    } else {
        unsigned at = rx->next;
        for (unsigned i = 0; i < rings && got < n; i++) {
            got += take_ring(e, &rx->rings[at], frames + got, n - got, ahead, &bytes);
            at = at + 1 == rings ? 0 : at + 1;
        }
        rx->next = got ? at : rx->next;
    }
    if (got) {
        if (ahead)
            cl_store_relaxed(&rx->ahead, 0);
        cl_count(&rx->frames, got);
        cl_count(&rx->bytes, bytes);
    }
    return got;
}

static void put_back(struct end *e, unsigned queue, const struct cl_frame *frames, unsigned n)
{
    uint32_t index[CL_NIC_BURST];
    for (unsigned done = 0; done < n;) {
        unsigned part = cl_min(n - done, (unsigned)CL_NIC_BURST);
        for (unsigned i = 0; i < part; i++)
            index[i] = frames[done + i].buf;
        cl_pool_put(e->pool, e->first_cache + queue, index, part);
        done += part;
    }
}

/* The other end is closed: nobody will receive. */
static unsigned tx_to_nobody(struct end *e, unsigned queue, struct cl_frame *frames, unsigned n)
{
    put_back(e, queue, frames, n);
    cl_count(&e->queues[queue].tx.error, n);
    return n;
}

static void wake_queues(struct end *e, struct tx_side *tx, uint64_t touched)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the reads below come after the pushes in the program; see park_side */
    while (touched) {
        unsigned q = (unsigned)__builtin_ctzll(touched);
        touched &= touched - 1;
        struct park_side *park = &e->peer->queues[q].park;
        /* One that has its own descriptor sleeps without calling wait. */
        if (!cl_load_relaxed(&park->sleeps) && cl_load_relaxed(&park->parker.event_fd) < 0)
            continue;
        if (cl_park_wake(&e->peer->queues[q].park.parker))
            cl_count(&tx->syscalls, 1);
    }
}

/* A small burst finds its receiver polling: push the frames that it will fetch, and the last descriptor, out of our
 * caches towards it (a tenth of the round trip). A large one is better left alone: the receiver is behind. Frames that
 * were dropped are demoted with the others, which harms nobody. */
static inline void demote(const struct tx_side *tx, unsigned to, const struct cl_frame *frames, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        cl_demote(frames[i].data);
    cl_ring_demote(&tx->rings[to]);
}

static CL_HOT unsigned memory_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct end *e = (struct end *)nic;
    struct tx_side *tx = &e->queues[queue].tx;
    unsigned peers = e->peer->nic.n_queues, i = 0, sent = 0;
    uint64_t touched = 0, bytes = 0;
    /* Relaxed: a late look costs frames that nobody receives, which cl_nic_buffers_free knows how to find. */
    if (cl_unlikely(cl_load_relaxed(&nic->gone)))
        return tx_to_nobody(e, queue, frames, n);
    for (; i < n; i++) {
        struct cl_frame *f = &frames[i];
        size_t offset = (size_t)(f->data - buffer_of(e, f->buf)); /* huge if data lies before its buffer */
        if (cl_unlikely(f->len < CL_ETH_HLEN || f->len > nic->mtu + CL_ETH_HLEN || offset > nic->buffer_bytes ||
                        offset + f->len > nic->buffer_bytes)) {
            put_back(e, queue, f, 1);
            cl_count(&tx->malformed, 1);
            continue;
        }
        uint32_t hash = 0;
        unsigned to = 0;
        if (peers > 1) {
            hash = cl_rss_frame(e->rss_key, f->data, f->len);
            to = cl_rss_queue(hash, peers);
        }
        uint64_t word = f->buf | (uint64_t)f->len << LEN_SHIFT | (uint64_t)offset << OFFSET_SHIFT;
        if (cl_unlikely(!cl_ring_push(&tx->rings[to], word, hash))) {
            if (!e->drop_when_full) {
                cl_count(&tx->full, 1);
                break;
            }
            put_back(e, queue, f, 1);
            cl_count(&tx->ring_full[to], 1);
        } else {
            touched |= 1ull << to;
        }
        sent++;
        bytes += f->len;
    }
    if (sent) {
        if (touched && sent <= DEMOTE_AT_MOST)
            demote(tx, (unsigned)__builtin_ctzll(touched), frames, i);
        cl_count(&tx->frames, sent);
        cl_count(&tx->bytes, bytes);
        wake_queues(e, tx, touched);
    }
    return i;
}

/* The receiver that polls has a copy of the next descriptor's line, which must be taken from it before the push is
 * seen. With several receiving queues the hash will say later which line it is. */
static CL_HOT void memory_prepare(struct cl_nic *nic, unsigned queue)
{
    struct end *e = (struct end *)nic;
    if (e->peer->nic.n_queues == 1)
        cl_ring_prepare(&e->queues[queue].tx.rings[0]);
}

/* Between two cores that lie far apart the lines of a burst's frames are under way for longer than it takes to parse
 * them. All sent for at once, as by fetch_next, they hold up whatever else is fetched meanwhile. */
static CL_HOT void memory_ahead(struct cl_nic *nic, unsigned queue, unsigned at)
{
    struct end *e = (struct end *)nic;
    struct rx_side *rx = &e->queues[queue].rx;
    uint64_t word;
    if (e->peer->nic.n_queues != 1)
        return;
    if (!cl_load_relaxed(&rx->ahead))
        cl_store_relaxed(&rx->ahead, 1);
    if (cl_ring_look(&rx->rings[0], at, &word))
        fetch_frame(e, word);
}

static CL_HOT unsigned memory_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct end *e = (struct end *)nic;
    uint32_t index[CL_NIC_BURST];
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    unsigned got = cl_pool_get(e->pool, e->first_cache + queue, index, n);
    for (unsigned i = 0; i < got; i++) {
        uint8_t *data = buffer_of(e, index[i]);
        /* The other end read this line last: take it while the caller is still deciding what to write. */
        cl_prefetch_write(data);
        frames[i] = (struct cl_frame){.data = data, .buf = index[i], .room = (uint16_t)nic->buffer_bytes};
    }
    if (cl_unlikely(got < n))
        cl_count(&e->queues[queue].tx.alloc_short, 1);
    return got;
}

static CL_HOT void memory_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    put_back((struct end *)nic, queue, frames, n);
}

static struct cl_parker *memory_parker(struct cl_nic *nic, unsigned queue)
{
    return &((struct end *)nic)->queues[queue].park.parker;
}

static bool frame_waits(struct end *e, unsigned queue)
{
    for (unsigned i = 0; i < e->peer->nic.n_queues; i++)
        if (cl_ring_ready(&e->queues[queue].rx.rings[i]))
            return true;
    return false;
}

static int memory_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct park_side *park = &((struct end *)nic)->queues[queue].park;
    if (cl_unlikely(!cl_load_relaxed(&park->sleeps))) {
        cl_store_relaxed(&park->sleeps, 1);
        cl_count(&park->syscalls, 1);
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0,
                0); /* registered, or `sleeps` was 1 from the start */
        if (frame_waits((struct end *)nic, queue)) {
            cl_park_cancel(&park->parker);
            return 0;
        }
    }
    cl_count(&park->syscalls, timeout_ns != 0);
    cl_park_wait(&park->parker, timeout_ns);
    return 0;
}

static void memory_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    struct end *e = (struct end *)nic;
    struct queue *q = &e->queues[queue];
    *out = (struct cl_nic_stats){.rx_frames = cl_load_relaxed(&q->rx.frames),
                                 .rx_bytes = cl_load_relaxed(&q->rx.bytes),
                                 .tx_frames = cl_load_relaxed(&q->tx.frames),
                                 .tx_bytes = cl_load_relaxed(&q->tx.bytes),
                                 .tx_dropped_malformed = cl_load_relaxed(&q->tx.malformed),
                                 .tx_dropped_error = cl_load_relaxed(&q->tx.error),
                                 .tx_full = cl_load_relaxed(&q->tx.full),
                                 .alloc_short = cl_load_relaxed(&q->tx.alloc_short),
                                 .syscalls = cl_load_relaxed(&q->tx.syscalls) + cl_load_relaxed(&q->park.syscalls)};
    for (unsigned i = 0; i < e->peer->nic.n_queues; i++)
        out->rx_dropped_ring_full += cl_load_relaxed(&e->peer->queues[i].tx.ring_full[queue]);
}

/* Frames in rings whose receiver has closed will never be freed by anybody: they count as free. */
static uint32_t memory_buffers_free(struct cl_nic *nic)
{
    struct end *e = (struct end *)nic;
    uint32_t sum = cl_pool_available(e->pool);
    if (!cl_load_relaxed(&nic->gone))
        return sum;
    for (unsigned i = 0; i < nic->n_queues; i++)
        for (unsigned j = 0; j < e->peer->nic.n_queues; j++)
            sum += e->queues[i].tx.rings[j].tail - e->peer->queues[j].rx.rings[i].head;
    return sum;
}

static int memory_fd(struct cl_nic *nic, unsigned queue)
{
    (void)nic;
    (void)queue;
    return -1;
}

static void link_delete(struct link *link)
{
    for (unsigned s = 0; s < 2; s++) {
        struct end *e = &link->ends[s];
        for (unsigned q = 0; e->queues && q < e->nic.n_queues; q++) {
            free(e->queues[q].rx.rings);
            free(e->queues[q].tx.rings);
            free(e->queues[q].tx.ring_full);
            cl_park_close_given(&e->queues[q].park.parker);
        }
        free(e->queues);
        if (link->slots[s])
            munmap(link->slots[s], link->slots_len[s]);
        free(link->heads[s]);
    }
    if (link->base)
        munmap(link->base, link->buffers_len);
    cl_pool_delete(link->pool);
    free(link);
}

static void memory_close(struct cl_nic *nic)
{
    struct end *e = (struct end *)nic, *peer = e->peer;
    struct link *link = e->link;
    cl_store_relaxed(&peer->nic.gone, 1);
    for (unsigned q = 0; q < peer->nic.n_queues; q++)
        cl_park_wake(&peer->queues[q].park.parker);
    /* Acquire-release: whatever the first closer did to the link happens before the second one deletes it. */
    if (__atomic_sub_fetch(&link->open, 1, __ATOMIC_ACQ_REL) == 0)
        link_delete(link);
}

static const struct cl_nic_ops memory_ops = {
    .name = "memory",
    .rx_burst = memory_rx,
    .tx_burst = memory_tx,
    .alloc = memory_alloc,
    .free = memory_free,
    .parker = memory_parker,
    .wait = memory_wait,
    .stats = memory_stats,
    .buffers_free = memory_buffers_free,
    .fd = memory_fd,
    .close = memory_close,
    .prepare = memory_prepare,
    .ahead = memory_ahead,
};

static int refuse(char *err, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return -EINVAL;
}

/* Defaults filled in, limits checked. */
static int settle(struct cl_memory_config *c, char *err)
{
    for (unsigned s = 0; s < 2; s++) {
        c->queues[s] = c->queues[s] ? c->queues[s] : 1;
        if (c->queues[s] > CL_NIC_MAX_QUEUES)
            return refuse(err, "a memory NIC has at most 64 queues");
        if (cl_get32(c->mac[s]) == 0 && cl_get16(c->mac[s] + 4) == 0)
            memcpy(c->mac[s], (uint8_t[6]){2, 0, 0, 0, 0, (uint8_t)(s + 1)}, 6);
    }
    c->buffer_bytes = (c->buffer_bytes ? c->buffer_bytes : 2048);
    c->buffer_bytes = (c->buffer_bytes + CL_CACHELINE - 1) & ~(CL_CACHELINE - 1u);
    if (c->buffer_bytes < 256 || c->buffer_bytes > MAX_BUFFER_BYTES)
        return refuse(err, "buffer_bytes must be from 256 to 16384");
    uint32_t largest = c->buffer_bytes - CL_ETH_HLEN;
    c->mtu = c->mtu ? c->mtu : cl_min(1500u, largest);
    if (c->mtu < 68 || c->mtu > largest) /* RFC 791: every link carries 68 bytes */
        return refuse(err, "mtu must be at least 68 and, with the 14 bytes of the Ethernet header, fit into a buffer");
    c->ring_slots = c->ring_slots ? c->ring_slots : 512;
    if (c->ring_slots < 2 || c->ring_slots > 65536 || (c->ring_slots & (c->ring_slots - 1)))
        return refuse(err, "ring_slots must be a power of two from 2 to 65536");
    uint32_t all = c->queues[0] + c->queues[1];
    c->buffers = c->buffers ? c->buffers : cl_max(1024u, all * (c->ring_slots + 2 * CL_POOL_CACHE) / 2);
    if (c->buffers > 1u << 24)
        return refuse(err, "more than 2^24 buffers");
    c->rss_key = c->rss_key ? c->rss_key : CL_RSS_KEY;
    return 0;
}

/* Zeroed memory that is not touched until it is used. */
static void *map_lazily(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static bool end_alloc(struct end *e, unsigned peers)
{
    bool barriers = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    e->queues = aligned_alloc(PREFETCH_PAIR, e->nic.n_queues * sizeof(*e->queues));
    if (!e->queues)
        return false;
    memset(e->queues, 0, e->nic.n_queues * sizeof(*e->queues));
    for (unsigned q = 0; q < e->nic.n_queues; q++) {
        struct queue *queue = &e->queues[q];
        queue->rx.rings = calloc(peers, sizeof(*queue->rx.rings));
        queue->tx.rings = calloc(peers, sizeof(*queue->tx.rings));
        queue->tx.ring_full = calloc(peers, sizeof(*queue->tx.ring_full));
        queue->park.parker = (struct cl_parker){.word = &queue->park.word, .event_fd = -1};
        queue->park.sleeps = !barriers; /* an old kernel, or a filter: then senders always fence */
        if (!queue->rx.rings || !queue->tx.rings || !queue->tx.ring_full)
            return false;
    }
    return true;
}

/* The rings that end `to` receives from. */
static bool connect_rings(struct link *link, unsigned to, uint32_t slots)
{
    struct end *rx = &link->ends[to], *tx = &link->ends[!to];
    size_t rings = (size_t)rx->nic.n_queues * tx->nic.n_queues;
    link->slots_len[to] = rings * slots * sizeof(struct cl_desc);
    link->slots[to] = map_lazily(link->slots_len[to]);
    link->heads[to] = aligned_alloc(PREFETCH_PAIR, rings * PREFETCH_PAIR);
    if (!link->slots[to] || !link->heads[to])
        return false;
    memset(link->heads[to], 0, rings * PREFETCH_PAIR);
    for (unsigned r = 0, i = 0; r < rx->nic.n_queues; r++) {
        for (unsigned t = 0; t < tx->nic.n_queues; t++, i++) {
            uint32_t *head = (uint32_t *)(void *)(link->heads[to] + (size_t)i * PREFETCH_PAIR);
            struct cl_desc *ring = link->slots[to] + (size_t)i * slots;
            cl_ring_rx_init(&rx->queues[r].rx.rings[t], ring, head, slots);
            cl_ring_tx_init(&tx->queues[t].tx.rings[r], ring, head, slots);
        }
    }
    return true;
}

static bool link_build(struct link *link, const struct cl_memory_config *c)
{
    uint32_t stride = c->buffer_bytes | CL_CACHELINE; /* an odd number of lines, at least as many as asked for */
    link->open = 2;
    link->pool = cl_pool_new(0, c->buffers, c->queues[0] + c->queues[1]);
    link->buffers_len = (size_t)c->buffers * stride;
    link->base = map_lazily(link->buffers_len);
    if (!link->pool || !link->base)
        return false;
    for (unsigned s = 0; s < 2; s++) {
        struct end *e = &link->ends[s];
        e->nic = (struct cl_nic){.ops = &memory_ops,
                                 .n_queues = c->queues[s],
                                 .n_buffers = c->buffers,
                                 .buffer_bytes = c->buffer_bytes,
                                 .mtu = c->mtu,
                                 .ipv4 = c->ipv4[s],
                                 .ipv4_prefix = c->ipv4_prefix,
                                 .clock = c->clock};
        memcpy(e->nic.mac, c->mac[s], 6);
        e->link = link;
        e->peer = &link->ends[!s];
        e->base = link->base;
        e->pool = link->pool;
        e->stride = stride;
        e->first_cache = s ? c->queues[0] : 0;
        e->rss_key = c->rss_key;
        e->drop_when_full = c->drop_when_full;
        if (!end_alloc(e, c->queues[!s]))
            return false;
    }
    return connect_rings(link, 0, c->ring_slots) && connect_rings(link, 1, c->ring_slots);
}

int cl_memory_link_new(const struct cl_memory_config *config, struct cl_nic **ends, char *err)
{
    struct cl_memory_config c = *config;
    int rc = settle(&c, err);
    if (rc)
        return rc;
    struct link *link = calloc(1, sizeof(*link));
    if (!link || !link_build(link, &c)) {
        if (link)
            link_delete(link);
        refuse(err, "out of memory for the link's rings and buffers");
        return -ENOMEM;
    }
    ends[0] = &link->ends[0].nic;
    ends[1] = &link->ends[1].nic;
    return 0;
}
