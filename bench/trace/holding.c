/* See holding.h. */
#include "holding.h"

#include <string.h>

#define PAYLOAD 42 /* of a datagram: Ethernet, IPv4 and UDP before it */

static struct cl_bench_holding *of(const struct cl_nic *nic)
{
    return (struct cl_bench_holding *)(uintptr_t)nic->ops;
}

static void stamp(const struct cl_frame *f, uint64_t now)
{
    memcpy(f->data + cl_nic_stamp_offset(f->len), &now, sizeof now);
}

static unsigned holding_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_bench_holding *h = of(nic);
    uint64_t now = cl_clock_stamp(cl_nic_clock(nic));
    unsigned out = 0, left = 0;
    for (unsigned i = 0; i < h->n; i++) {
        if (h->held[i].until <= now && out < n)
            frames[out++] = h->held[i].frame;
        else
            h->held[left++] = h->held[i];
    }
    h->n = left;
    unsigned got = h->inner->rx_burst(nic, queue, frames + out, n - out), end = out + got;
    for (unsigned i = out; i < end; i++) {
        const struct cl_frame *f = &frames[i];
        stamp(f, now);
        if (h->mark && f->len > PAYLOAD && f->data[PAYLOAD] == h->mark && h->n < CL_BENCH_HELD) {
            h->held[h->n].frame = *f;
            h->held[h->n++].until = now + h->for_ticks;
        } else {
            frames[out++] = *f;
        }
    }
    return out;
}

static unsigned holding_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_bench_holding *h = of(nic);
    return cl_clock_stamp(cl_nic_clock(nic)) < h->refuse_until ? 0 : h->inner->tx_burst(nic, queue, frames, n);
}

static uint64_t holding_next_tsc(struct cl_nic *nic, unsigned queue)
{
    const struct cl_bench_holding *h = of(nic);
    uint64_t next = h->inner->next_tsc ? h->inner->next_tsc(nic, queue) : UINT64_MAX;
    for (unsigned i = 0; i < h->n; i++)
        next = cl_min(next, h->held[i].until);
    return next;
}

void cl_bench_hold(struct cl_bench_holding *h, struct cl_nic *nic)
{
    h->inner = nic->ops;
    h->ops = *nic->ops;
    h->ops.rx_burst = holding_rx;
    h->ops.tx_burst = holding_tx;
    h->ops.next_tsc = holding_next_tsc;
    nic->ops = &h->ops;
    nic->rx_stamped = 1;
}
