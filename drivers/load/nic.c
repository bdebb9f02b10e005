/* The engine as a NIC with one queue: receiving from it generates requests, sending to it delivers replies. For a poll loop
 * that shall be its own load's generator, with no device and no other thread between. Buffers as in memory.h. */
#include "engine.h"

#include "../../runtime/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct load_nic {
    struct cl_nic nic;
    struct cl_loadgen *lg;
    struct cl_pool *pool;
    uint8_t *base;
    size_t stride, base_len;
    struct cl_nic_stats stats;
    uint32_t word CL_ALIGNED(CL_CACHELINE); /* the parker's */
    struct cl_parker parker;
};

static unsigned load_get(struct load_nic *l, struct cl_frame *frames, unsigned n)
{
    uint32_t index[CL_NIC_BURST];
    unsigned got = cl_pool_get(l->pool, 0, index, n);
    for (unsigned i = 0; i < got; i++)
        frames[i] = (struct cl_frame){
            .data = l->base + index[i] * l->stride, .buf = index[i], .room = (uint16_t)l->nic.buffer_bytes};
    return got;
}

static void load_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct load_nic *l = (struct load_nic *)nic;
    (void)queue;
    for (unsigned i = 0; i < n; i++)
        cl_pool_put(l->pool, 0, &frames[i].buf, 1);
}

static unsigned load_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct load_nic *l = (struct load_nic *)nic;
    uint64_t now = cl_tsc(), bytes = 0;
    unsigned due = cl_loadgen_due(l->lg, now, n);
    if (!due)
        return 0;
    unsigned got = load_get(l, frames, due);
    if (cl_unlikely(got < due))
        cl_count(&l->stats.alloc_short, 1);
    unsigned made = cl_loadgen_generate(l->lg, now, frames, got);
    if (cl_unlikely(made < got))
        load_free(nic, queue, frames + made, got - made);
    for (unsigned i = 0; i < made; i++)
        bytes += frames[i].len;
    cl_count(&l->stats.rx_frames, made);
    cl_count(&l->stats.rx_bytes, bytes);
    return made;
}

/* Whether a frame lies within its buffer. */
static bool well_formed(const struct load_nic *l, const struct cl_frame *f)
{
    size_t offset = (size_t)(f->data - (l->base + f->buf * l->stride)); /* huge if data lies before its buffer */
    return f->len >= CL_ETH_HLEN && f->len <= l->nic.mtu + CL_ETH_HLEN && offset <= l->nic.buffer_bytes &&
           offset + f->len <= l->nic.buffer_bytes;
}

static unsigned load_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct load_nic *l = (struct load_nic *)nic;
    uint64_t now = cl_tsc(), bytes = 0;
    unsigned first = 0, bad = 0;
    for (unsigned i = 0; i < n; i++) {
        if (cl_unlikely(!well_formed(l, &frames[i]))) {
            cl_loadgen_receive(l->lg, now, frames + first, i - first);
            first = i + 1;
            bad++;
        } else {
            bytes += frames[i].len;
        }
    }
    cl_loadgen_receive(l->lg, now, frames + first, n - first);
    load_free(nic, queue, frames, n);
    cl_count(&l->stats.tx_frames, n - bad);
    cl_count(&l->stats.tx_bytes, bytes);
    cl_count(&l->stats.tx_dropped_malformed, bad);
    return n;
}

static unsigned load_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct load_nic *l = (struct load_nic *)nic;
    (void)queue;
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    unsigned got = load_get(l, frames, n);
    cl_count(&l->stats.alloc_short, got < n);
    return got;
}

static struct cl_parker *load_parker(struct cl_nic *nic, unsigned queue)
{
    (void)queue;
    return &((struct load_nic *)nic)->parker;
}

/* Sleeps at most until the next request is due. */
static int load_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct load_nic *l = (struct load_nic *)nic;
    uint64_t next = cl_loadgen_next_tsc(l->lg), now = cl_tsc();
    (void)queue;
    if (next != CL_NEVER) {
        int64_t left = next > now ? cl_ticks_to_ns(l->lg->clock, (int64_t)(next - now)) : 0;
        timeout_ns = timeout_ns < 0 ? left : cl_min(timeout_ns, left);
    }
    cl_count(&l->stats.syscalls, timeout_ns != 0);
    cl_park_wait(&l->parker, timeout_ns);
    return 0;
}

static void load_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    const uint64_t *from = &((struct load_nic *)nic)->stats.rx_frames;
    (void)queue;
    for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}

static uint32_t load_buffers_free(struct cl_nic *nic)
{
    return cl_pool_available(((struct load_nic *)nic)->pool);
}

static int load_fd(struct cl_nic *nic, unsigned queue)
{
    (void)nic;
    (void)queue;
    return -1;
}

static uint64_t load_next_tsc(struct cl_nic *nic, unsigned queue)
{
    (void)queue;
    return cl_loadgen_next_tsc(((struct load_nic *)nic)->lg);
}

static void load_close(struct cl_nic *nic)
{
    struct load_nic *l = (struct load_nic *)nic;
    l->lg->wake = NULL;
    if (l->base)
        munmap(l->base, l->base_len);
    cl_pool_delete(l->pool);
    free(l);
}

static const struct cl_nic_ops load_ops = {
    .name = "loadgen",
    .rx_burst = load_rx,
    .tx_burst = load_tx,
    .alloc = load_alloc,
    .free = load_free,
    .parker = load_parker,
    .wait = load_wait,
    .stats = load_stats,
    .buffers_free = load_buffers_free,
    .fd = load_fd,
    .close = load_close,
    .next_tsc = load_next_tsc,
};

int cl_loadgen_nic_new(struct cl_loadgen *lg, uint32_t buffers, struct cl_nic **out, char *err)
{
    struct load_nic *l = aligned_alloc(CL_CACHELINE, sizeof(*l));
    uint32_t frame = (lg->config.mtu + CL_ETH_HLEN + CL_CACHELINE - 1) & ~(CL_CACHELINE - 1u);
    if (!l)
        return -ENOMEM;
    memset(l, 0, sizeof(*l));
    l->lg = lg;
    l->nic = (struct cl_nic){.ops = &load_ops,
                             .n_queues = 1,
                             .n_buffers = buffers ? buffers : 2048,
                             .buffer_bytes = cl_max(2048u, frame),
                             .mtu = lg->config.mtu,
                             .ipv4 = lg->ip};
    memcpy(l->nic.mac, lg->config.mac, 6);
    l->stride = l->nic.buffer_bytes | CL_CACHELINE; /* an odd number of lines; drivers/memory.h says why */
    l->base_len = l->nic.n_buffers * l->stride;
    l->pool = cl_pool_new(0, l->nic.n_buffers, 1);
    void *base = mmap(NULL, l->base_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    l->base = base == MAP_FAILED ? NULL : base;
    if (!l->pool || !l->base) {
        if (err)
            snprintf(err, 256, "out of memory for %u buffers", l->nic.n_buffers);
        load_close(&l->nic);
        return -ENOMEM;
    }
    l->parker = (struct cl_parker){&l->word, -1};
    lg->wake = &l->parker;
    *out = &l->nic;
    return 0;
}
