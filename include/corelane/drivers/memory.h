/* Software multi-queue NIC: a link with two ends in one process, zero copy, one shared set of buffers.
 *
 * What is sent at one end is received at the other. There is one SPSC ring for each pair (sending queue, receiving
 * queue) of a direction; the sender's end computes the RSS hash and chooses the receiving queue, as hardware would on
 * arrival. A frame crosses as one 16-byte descriptor; its bytes stay where they were written. So a small frame costs
 * the receiver two cache lines that it has to fetch: the descriptor's, shared by four frames of a burst, and the
 * frame's own.
 *
 *   buffers   index i begins at base + i * stride; the frame starts there, cache-line aligned, so that headers and the
 *             first 22 payload bytes of a UDP datagram share one line. stride is an odd number of lines: with a power
 *             of two the first lines of all buffers would compete for a few sets of the L1 cache.
 *   threads   queue q of an end has one user at a time; rx state and tx state of a queue are apart, so that a sibling
 *             may receive while the owner sends (under the owner's receive lock).
 *   waking    a sender must check whether the receiver sleeps after its frames are visible, which takes a fence that
 *             waits for every store under way: some 100 ns. Nobody pays it for a queue that has never slept: the first
 *             wait of a queue says that it sleeps from now on, and makes every thread of the process pass a barrier
 *             (membarrier(2)).
 *   full      `drop_when_full` 0: back-pressure, tx_burst takes fewer frames and nothing is ever lost; 1: as hardware,
 *             the frame is dropped and counted as rx_dropped_ring_full at the receiving queue.
 *   closing   ends close separately, in any order. The end that stays sees `gone`, is woken, receives what was under
 *             way, and what it sends from then on is freed and counted as tx_dropped_error.
 *
 * Does not deal with: other processes (that is the port driver), more than two ends, MAC filtering, checksum offload.
 * Tests: tests/drivers/nic/test_nic.py (common suite), test_memory.py, c/memory_stress.c. */
#ifndef CORELANE_DRIVERS_MEMORY_H
#define CORELANE_DRIVERS_MEMORY_H

#include <corelane/drivers/nic.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* Zero means the default, given in brackets. Index 0 and 1 are the two ends. */
struct cl_memory_config {
    uint32_t queues[2];    /* 1..64 [1] */
    uint32_t buffers;      /* [enough for all rings and caches to be half full, at least 1024] */
    uint32_t buffer_bytes; /* 256..16384, rounded up to whole cache lines [2048] */
    uint32_t ring_slots;   /* a power of two, 2..2^16 [512] */
    uint32_t mtu;          /* [1500, or what a buffer holds if that is less] */
    uint32_t drop_when_full;
    uint64_t rss_key;  /* [CL_RSS_KEY] */
    uint8_t mac[2][6]; /* [02:00:00:00:00:01 and :02] */
    uint32_t ipv4[2];  /* host byte order [none] */
    uint32_t ipv4_prefix;
    const struct cl_clock *clock; /* of what is made on the ends; kept [the machine's] */
};

/* New link; ends[0] and ends[1] are to be closed by cl_nic_close each. -errno with a reason in err[256] (may be NULL).
 */
CL_API int cl_memory_link_new(const struct cl_memory_config *config, struct cl_nic **ends, char *err);
// cffi: end

CL_EXTERN_C_END
#endif
