/* A NIC that is slow for some requests: it holds those that are marked, and it can refuse to send for a while. Each
 * frame that comes has the stamp of when it was seen first (cl_nic.rx_stamped), as those of an iokernel have.
 *
 * Threads: the one that uses the NIC's only queue. */
#ifndef CORELANE_BENCH_TRACE_HOLDING_H
#define CORELANE_BENCH_TRACE_HOLDING_H

#include <corelane/drivers/nic.h>

#define CL_BENCH_HELD 64 /* at one time; more are not held */

struct cl_bench_holding {
    struct cl_nic_ops ops; /* first: the NIC's, from cl_bench_hold on */
    const struct cl_nic_ops *inner;
    uint8_t mark;          /* the first byte of a datagram that is held ... */
    uint64_t for_ticks;    /* ... for so long */
    uint64_t refuse_until; /* stamp: nothing is sent before */
    unsigned n;
    struct {
        struct cl_frame frame;
        uint64_t until;
    } held[CL_BENCH_HELD];
};

/* Make a NIC that nobody uses yet such a one. *h has its mark and its time, and lives as long as the NIC. */
void cl_bench_hold(struct cl_bench_holding *h, struct cl_nic *nic);

#endif
