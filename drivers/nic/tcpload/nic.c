/* The client as a NIC with one queue: receiving from it generates segments, sending to it delivers the server's. For a
 * poll loop that shall be its own load's client. While a run is under way it wants to be polled all the time. */
#include "engine.h"

#include "../single.h"

#include <stdio.h>
#include <stdlib.h>

struct tcp_nic {
    struct cl_single_nic single; /* first */
    struct cl_tcpload *load;
};

static unsigned tcp_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct tcp_nic *t = (struct tcp_nic *)nic;
    uint64_t now = cl_tsc(), bytes = 0;
    unsigned due = cl_tcpload_due(t->load, now, n);
    if (!due)
        return 0;
    unsigned got = cl_single_get(&t->single, frames, due);
    cl_count(&t->single.stats.alloc_short, got < due);
    unsigned made = cl_tcpload_generate(t->load, now, frames, got);
    if (cl_unlikely(made < got))
        cl_single_free(nic, queue, frames + made, got - made);
    for (unsigned i = 0; i < made; i++)
        bytes += frames[i].len;
    cl_count(&t->single.stats.rx_frames, made);
    cl_count(&t->single.stats.rx_bytes, bytes);
    return made;
}

/* Whether a frame lies within its buffer. */
static bool well_formed(const struct tcp_nic *t, const struct cl_frame *f)
{
    size_t offset = (size_t)(f->data - cl_single_buffer(&t->single, f->buf)); /* huge if data lies before its buffer */
    return f->len >= CL_ETH_HLEN && f->len <= t->single.nic.mtu + CL_ETH_HLEN && offset <= t->single.nic.buffer_bytes &&
           offset + f->len <= t->single.nic.buffer_bytes;
}

static unsigned tcp_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct tcp_nic *t = (struct tcp_nic *)nic;
    uint64_t now = cl_tsc(), bytes = 0;
    unsigned bad = 0;
    for (unsigned i = 0; i < n; i++) {
        if (cl_unlikely(!well_formed(t, &frames[i]))) {
            bad++;
            continue;
        }
        bytes += frames[i].len;
        cl_tcpload_receive(t->load, now, &frames[i], 1);
    }
    cl_single_free(nic, queue, frames, n);
    cl_count(&t->single.stats.tx_frames, n - bad);
    cl_count(&t->single.stats.tx_bytes, bytes);
    cl_count(&t->single.stats.tx_dropped_malformed, bad);
    return n;
}

static uint64_t tcp_next_tsc(struct cl_nic *nic, unsigned queue)
{
    uint32_t state = state_of(((struct tcp_nic *)nic)->load);
    (void)queue;
    return state == CL_TCPLOAD_IDLE || state == CL_TCPLOAD_FAILED ? NEVER : 0;
}

static int tcp_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    return cl_single_wait_until(&((struct tcp_nic *)nic)->single, tcp_next_tsc(nic, queue), timeout_ns);
}

static void tcp_close(struct cl_nic *nic)
{
    struct tcp_nic *t = (struct tcp_nic *)nic;
    t->load->wake = NULL;
    cl_single_exit(&t->single);
    free(t);
}

static const struct cl_nic_ops tcp_ops = {
    .name = "tcpload",
    .rx_burst = tcp_rx,
    .tx_burst = tcp_tx,
    .alloc = cl_single_alloc,
    .free = cl_single_free,
    .parker = cl_single_parker,
    .wait = tcp_wait,
    .stats = cl_single_stats,
    .buffers_free = cl_single_buffers_free,
    .fd = cl_single_no_fd,
    .close = tcp_close,
    .next_tsc = tcp_next_tsc,
};

int cl_tcpload_nic_new(struct cl_tcpload *load, uint32_t buffers, struct cl_nic **out, char *err)
{
    if (load->wake) {
        snprintf(err, 256, "the client already has a NIC");
        return -EBUSY;
    }
    struct tcp_nic *t = aligned_alloc(CL_CACHELINE, sizeof *t);
    if (!t)
        return -ENOMEM;
    memset(t, 0, sizeof *t);
    t->load = load;
    t->single.nic = (struct cl_nic){.ops = &tcp_ops,
                                    .n_queues = 1,
                                    .n_buffers = buffers ? buffers : 2048,
                                    .buffer_bytes = cl_max(2048u, load->config.mtu + CL_CACHELINE),
                                    .mtu = load->config.mtu,
                                    .ipv4 = load->config.ip};
    memcpy(t->single.nic.mac, load->config.mac, 6);
    if (cl_single_init(&t->single)) {
        snprintf(err, 256, "out of memory for %u buffers", t->single.nic.n_buffers);
        tcp_close(&t->single.nic);
        return -ENOMEM;
    }
    load->wake = &t->single.parker;
    *out = &t->single.nic;
    return 0;
}
