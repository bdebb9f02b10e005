/* See wire.h. The NIC's table of functions is exchanged for a copy, from which the functions here find what belongs to
 * it. */
#include "wire.h"

#include "../../runtime/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ETHERTYPE 12
#define PROTOCOL 23
#define UDP 17

/* Of one call of the NIC: so many datagrams, and when it returned. */
struct burst {
    uint64_t at, n;
};

/* Writer: the queue's user (n: release); reader: cl_bench_wire_take. */
struct bursts {
    uint32_t n;
    struct burst *of;
};

struct cl_bench_wire {
    struct cl_nic_ops ops; /* first: the NIC's, of now */
    const struct cl_nic_ops *inner;
    struct cl_nic *nic;
    uint32_t room;
    struct bursts came, went;
};

static bool is_datagram(const struct cl_frame *f)
{
    return f->len > PROTOCOL && f->data[ETHERTYPE] == 0x08 && f->data[ETHERTYPE + 1] == 0 && f->data[PROTOCOL] == UDP;
}

/* Ordered behind all loads before it. Else the processor takes it early, while a line is on its way from the other
 * core, and the next stamp, the server's own, behind that: it would be charged with the way of a line, which is no
 * stage. */
static uint64_t stamp(const struct cl_nic *nic)
{
    const struct cl_clock *clock = cl_nic_clock(nic);
    return clock->word ? cl_clock_stamp(clock) : cl_tsc_ordered();
}

/* One store a burst, into memory that is there: this lies between our stamp and the server's, which would see it. */
static void note(const struct cl_bench_wire *w, struct bursts *b, uint64_t at, uint64_t n)
{
    uint32_t i = b->n;
    if (n == 0)
        return;
    if (i < w->room)
        b->of[i] = (struct burst){at, n};
    cl_store_release(&b->n, i + 1);
}

/* They are counted before the stamp is taken: the first look at a frame fetches its line from the other core, which is
 * the server's time otherwise, before its own stamp. */
static unsigned watched_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct cl_bench_wire *w = (struct cl_bench_wire *)(uintptr_t)nic->ops;
    unsigned datagrams = 0;
    n = w->inner->rx_burst(nic, queue, frames, n);
    for (unsigned i = 0; i < n; i++)
        datagrams += is_datagram(&frames[i]);
    if (datagrams)
        note(w, &w->came, stamp(nic), datagrams);
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
    uint64_t now = stamp(nic);
    datagrams &= n < 64 ? (1ull << n) - 1 : UINT64_MAX;
    note(w, &w->went, now, (uint64_t)__builtin_popcountll(datagrams));
    return n;
}

/* Room for bursts whose pages are there. */
static struct burst *room_for(uint32_t n)
{
    struct burst *of = malloc(n * sizeof *of);
    if (of)
        memset(of, 1, n * sizeof *of); /* not 0, which may be pages of the kernel's that nobody has touched */
    return of;
}

int cl_bench_wire_new(struct cl_nic *nic, uint32_t room, struct cl_bench_wire **out)
{
    struct cl_bench_wire *w = calloc(1, sizeof *w);
    struct burst *came = room_for(room), *went = room_for(room);
    if (!w || !came || !went) {
        free(w);
        free(came);
        free(went);
        return -ENOMEM;
    }
    *w = (struct cl_bench_wire){
        .ops = *nic->ops, .inner = nic->ops, .nic = nic, .room = room, .came = {0, came}, .went = {0, went}};
    w->ops.rx_burst = watched_rx;
    w->ops.tx_burst = watched_tx;
    nic->ops = &w->ops;
    *out = w;
    return 0;
}

/* The stamp of each datagram; returns how many there are, which may be more than there is room for. */
static uint64_t take(const struct cl_bench_wire *w, struct bursts *b, uint64_t *out)
{
    uint32_t n = cl_load_acquire(&b->n);
    uint64_t datagrams = n > w->room ? UINT32_MAX : 0;
    for (uint32_t i = 0; i < n && i < w->room; i++)
        for (uint64_t k = 0; k < b->of[i].n; k++, datagrams++)
            if (datagrams < w->room)
                out[datagrams] = b->of[i].at;
    cl_store_relaxed(&b->n, 0);
    return datagrams;
}

int64_t cl_bench_wire_take(struct cl_bench_wire *w, uint64_t *came, uint64_t *went)
{
    uint64_t n_came = take(w, &w->came, came), n_went = take(w, &w->went, went);
    return n_came != n_went || n_came > w->room ? -EBUSY : (int64_t)n_came;
}

void cl_bench_wire_delete(struct cl_bench_wire *w)
{
    w->nic->ops = w->inner;
    free(w->came.of);
    free(w->went.of);
    free(w);
}
