/* The engine as a NIC with one queue: receiving from it generates requests, sending to it delivers replies. For a poll
 * loop that shall be its own load's generator, with no device and no other thread between. Buffers as in memory.h. */
#include "engine.h"

#include "../single.h"

#include <stdio.h>
#include <stdlib.h>

struct load_nic {
    struct cl_single_nic single;
    struct cl_loadgen *lg;
};

static unsigned load_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct load_nic *l = (struct load_nic *)nic;
    uint64_t now = cl_clock_stamp(l->lg->clock), bytes = 0;
    unsigned due = cl_loadgen_due(l->lg, now, n);
    if (!due)
        return 0;
    unsigned got = cl_single_get(&l->single, frames, due);
    if (cl_unlikely(got < due))
        cl_count(&l->single.stats.alloc_short, 1);
    unsigned made = cl_loadgen_generate(l->lg, now, frames, got);
    if (cl_unlikely(made < got))
        cl_single_free(nic, queue, frames + made, got - made);
    for (unsigned i = 0; i < made; i++)
        bytes += frames[i].len;
    cl_count(&l->single.stats.rx_frames, made);
    cl_count(&l->single.stats.rx_bytes, bytes);
    return made;
}

/* Whether a frame lies within its buffer. */
static bool well_formed(const struct load_nic *l, const struct cl_frame *f)
{
    size_t offset = (size_t)(f->data - cl_single_buffer(&l->single, f->buf)); /* huge if data lies before its buffer */
    return f->len >= CL_ETH_HLEN && f->len <= l->single.nic.mtu + CL_ETH_HLEN && offset <= l->single.nic.buffer_bytes &&
           offset + f->len <= l->single.nic.buffer_bytes;
}

static unsigned load_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct load_nic *l = (struct load_nic *)nic;
    uint64_t now = cl_clock_stamp(l->lg->clock), bytes = 0;
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
    cl_single_free(nic, queue, frames, n);
    cl_count(&l->single.stats.tx_frames, n - bad);
    cl_count(&l->single.stats.tx_bytes, bytes);
    cl_count(&l->single.stats.tx_dropped_malformed, bad);
    return n;
}

/* Sleeps at most until the next request is due. */
static int load_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct load_nic *l = (struct load_nic *)nic;
    (void)queue;
    return cl_single_wait_until(&l->single, cl_loadgen_next_tsc(l->lg), timeout_ns);
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
    cl_single_exit(&l->single);
    free(l);
}

static const struct cl_nic_ops load_ops = {
    .name = "loadgen",
    .rx_burst = load_rx,
    .tx_burst = load_tx,
    .alloc = cl_single_alloc,
    .free = cl_single_free,
    .parker = cl_single_parker,
    .wait = load_wait,
    .stats = cl_single_stats,
    .buffers_free = cl_single_buffers_free,
    .fd = cl_single_no_fd,
    .close = load_close,
    .next_tsc = load_next_tsc,
};

int cl_loadgen_nic_new(struct cl_loadgen *lg, uint32_t buffers, struct cl_nic **out, char *err)
{
    struct load_nic *l = aligned_alloc(CL_CACHELINE, sizeof(*l));
    uint32_t frame = (CL_LOAD_MTU + CL_ETH_HLEN + CL_CACHELINE - 1) & ~(CL_CACHELINE - 1u);
    if (!l)
        return -ENOMEM;
    memset(l, 0, sizeof(*l));
    l->lg = lg;
    l->single.nic = (struct cl_nic){.ops = &load_ops,
                                    .n_queues = 1,
                                    .n_buffers = buffers ? buffers : 2048,
                                    .buffer_bytes = cl_max(2048u, frame),
                                    .mtu = CL_LOAD_MTU,
                                    .clock = lg->clock,
                                    .ipv4 = lg->ip};
    memcpy(l->single.nic.mac, lg->config.mac, 6);
    if (cl_single_init(&l->single)) {
        if (err)
            snprintf(err, 256, "out of memory for %u buffers", l->single.nic.n_buffers);
        load_close(&l->single.nic);
        return -ENOMEM;
    }
    lg->wake = &l->single.parker;
    *out = &l->single.nic;
    return 0;
}
