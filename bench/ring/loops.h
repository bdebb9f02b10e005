/* The loops behind `corelane bench ring`: 16-byte messages from one pinned thread to another, over four carriers.
 *
 *   ring   the descriptor ring of runtime/ring.h, polled
 *   nic    the memory NIC: a 64-byte frame in a buffer of its own, from alloc to free, polled
 *   mutex  a bounded queue behind a pthread mutex and two condition variables, as it is usually written: the receiver
 *          sleeps while the queue is empty, the sender while it is full
 *   pipe   a pipe of the kernel, one read or write a burst
 *
 * Streaming: the sender sends as fast as the carrier takes, `burst` messages at a time; the time runs until the last
 * one has been received. Round trip: one message there, one back, nothing else under way; two carriers, one for each
 * direction (of the NIC: the two ends of one link). */
#ifndef CORELANE_BENCH_RING_LOOPS_H
#define CORELANE_BENCH_RING_LOOPS_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_BENCH_CARRIER_RING 0
#define CL_BENCH_CARRIER_NIC 1
#define CL_BENCH_CARRIER_MUTEX 2
#define CL_BENCH_CARRIER_PIPE 3
#define CL_BENCH_CARRIERS 4
#define CL_BENCH_RING_SLOTS 1024 /* messages that wait in a carrier, at most */

struct cl_bench_ring_result {
    uint64_t ns, operations;
};

/* n messages, or with burst 0 n round trips, between two different cpus. Every message is checked. Ends after limit_ns
 * with what was done so far. -errno with a reason in err: -EPROTO if a message was lost or torn, -ETIMEDOUT if nothing
 * went. */
CL_API int cl_bench_ring(uint32_t carrier, int cpu_a, int cpu_b, uint64_t n, uint32_t burst, uint64_t limit_ns,
                         struct cl_bench_ring_result *out, char err[256]);
// cffi: end

#endif
