/* See wire.h. The NIC's table of functions is exchanged for a copy, from which the functions here find what belongs to it. */
#include "wire.h"

#include "../../runtime/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ETHERTYPE 12
#define PROTOCOL 23
#define UDP 17

struct cl_bench_wire {
    struct cl_nic_ops ops; /* first: the NIC's, of now */
    const struct cl_nic_ops *inner;
    struct cl_nic *nic;
    uint32_t room;
    uint32_t n_came, n_went; /* writer: the queue's user (release); reader: cl_bench_wire_take */
    uint64_t *came, *went;
};

static bool is_datagram(const struct cl_frame *f)
{
    return f->len > PROTOCOL && f->data[ETHERTYPE] == 0x08 && f->data[ETHERTYPE + 1] == 0 && f->data[PROTOCOL] == UDP;
}

/* They are counted before the stamp is taken: the first look at a frame fetches its line from the other core, which is the
 * server's time otherwise, before its own stamp. */
static unsigned watched_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_bench_wire *w = (struct cl_bench_wire *)(uintptr_t)nic->ops;
    uint32_t at = w->n_came, datagrams = 0;
    n = w->inner->rx_burst(nic, queue, frames, n);
    for (unsigned i = 0; i < n; i++)
        datagrams += is_datagram(&frames[i]);
    uint64_t now = n ? cl_clock_stamp(cl_nic_clock(nic)) : 0;
    for (uint32_t end = at + datagrams; at < end; at++)
        if (at < w->room)
            w->came[at] = now;
    if (datagrams)
        cl_store_release(&w->n_came, at);
    return n;
}

/* Which they are is looked at before: afterwards the buffers are the other end's. */
static unsigned watched_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_bench_wire *w = (struct cl_bench_wire *)(uintptr_t)nic->ops;
    uint64_t datagrams = 0; /* bit i: frame i is one */
    for (unsigned i = 0; i < n && i < 64; i++)
        datagrams |= (uint64_t)is_datagram(&frames[i]) << i;
    n = w->inner->tx_burst(nic, queue, frames, n);
    uint64_t now = cl_clock_stamp(cl_nic_clock(nic));
    uint32_t at = w->n_went;
    for (unsigned i = 0; i < n && i < 64; i++)
        if (datagrams >> i & 1) {
            if (at < w->room)
                w->went[at] = now;
            at++;
        }
    cl_store_release(&w->n_went, at);
    return n;
}

int cl_bench_wire_new(struct cl_nic *nic, uint32_t room, struct cl_bench_wire **out)
{
    struct cl_bench_wire *w = calloc(1, sizeof *w);
    uint64_t *stamps = malloc(2 * (uint64_t)room * sizeof *stamps);
    if (!w || !stamps) {
        free(w);
        free(stamps);
        return -ENOMEM;
    }
    *w = (struct cl_bench_wire){
        .ops = *nic->ops, .inner = nic->ops, .nic = nic, .room = room, .came = stamps, .went = stamps + room};
    w->ops.rx_burst = watched_rx;
    w->ops.tx_burst = watched_tx;
    nic->ops = &w->ops;
    *out = w;
    return 0;
}

int64_t cl_bench_wire_take(struct cl_bench_wire *w, uint64_t *came, uint64_t *went)
{
    uint32_t n_came = cl_load_acquire(&w->n_came), n_went = cl_load_acquire(&w->n_went);
    cl_store_relaxed(&w->n_came, 0);
    cl_store_relaxed(&w->n_went, 0);
    if (n_came != n_went || n_came > w->room)
        return -EBUSY;
    memcpy(came, w->came, n_came * sizeof *came);
    memcpy(went, w->went, n_went * sizeof *went);
    return n_came;
}

void cl_bench_wire_delete(struct cl_bench_wire *w)
{
    w->nic->ops = w->inner;
    free(w->came);
    free(w);
}
