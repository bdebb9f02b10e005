/* AF_XDP as a NIC: one socket a queue, one UMEM and one buffer pool for all of them.
 *
 * Owns: the sockets, their rings, the UMEM. Does not own: the XDP program and its maps (drivers/nic/af_xdp/af_xdp.py
 * loads, fills and detaches them; cl_nic.ops->fd gives the descriptor to put into the program's XSKMAP).
 *
 * Where the kernel is still on the path (copy mode, which is all that veth and most virtual devices have):
 *   receive   no system call. The kernel copies the frame into a chunk from the fill ring and produces into rx.
 *   send      one sendto a burst: the kernel makes an skb of each frame and hands it to the driver in this call; on a
 *             veth it even runs the receiver's side up to its socket before it returns. It is most of an echo's time.
 *   sleep     ppoll on the socket and the parker's eventfd.
 * With zero copy and need_wakeup the device reads the rings itself; sendto is made only when the kernel asks for it.
 *
 * Chunks are in one place each: the pool, a user's hands, fill ring to rx ring (kernel), tx ring to completion ring
 * (kernel). What the peer does not wait for comes after the doorbell or when a poll finds nothing: rx slots are given
 * back, completions reaped, the fill ring topped up. Under load without sending: when a quarter of a ring is used up.
 *
 * Threads: queue q belongs to its thread, as in nic.h. A sibling may be in rx_burst while the owner sends, allocates,
 * frees and waits. So rx and fill rings are of whoever is in rx_burst, tx and completion rings of the owner, and the
 * pool has a cache for each of the two. An empty poll by the owner works for its send side, too; one by a thief does
 * not. With one queue there are no thieves, and every call does what there is to do. Statistics may be read by any.
 *
 * Tests: tests/drivers/nic/af_xdp/test_af_xdp.py, and the common suite of all drivers. */
#ifndef CORELANE_DRIVERS_NIC_AF_XDP_AF_XDP_H
#define CORELANE_DRIVERS_NIC_AF_XDP_AF_XDP_H

#include <corelane/drivers/nic.h>
#include "xsk.h"

// cffi: begin
struct cl_af_xdp_config {
    struct cl_xsk_config socket;
    uint32_t n_queues, first_queue; /* device queues first_queue .. first_queue + n_queues - 1 */
    uint32_t n_buffers;             /* UMEM frames for all queues together */
    uint32_t buffer_bytes;          /* 2048 or 4096 each */
    uint32_t fill_target;           /* frames kept in a queue's fill ring: what it can receive between two polls */
};

/* What is usual. */
#define CL_AF_XDP_RING_SLOTS 1024
#define CL_AF_XDP_FILL 512
#define CL_AF_XDP_BUFFERS 2048 /* a queue */
#define CL_AF_XDP_BUFFER_BYTES 2048
#define CL_AF_XDP_BIND_MS 2000

/* New NIC on an interface of the calling thread's network namespace. -errno with the reason and the remedy in err. */
CL_API int cl_af_xdp_nic_new(const struct cl_af_xdp_config *config, struct cl_nic **out, char *err);
/* The same with what is usual, on queues 0 to n_queues - 1, for an XDP program that somebody else has loaded: its
 * XSKMAP, whose descriptor the caller keeps, has the sockets from now on (given.c). */
CL_API int cl_af_xdp_nic_given(const char *ifname, uint32_t n_queues, int xskmap_fd, struct cl_nic **out, char *err);
/* Whether the device reads and writes the UMEM itself. */
CL_API bool cl_af_xdp_zero_copy(const struct cl_nic *nic);
/* The kernel's own counters of a queue (XDP_STATISTICS), as they are: rx_dropped, rx_invalid_descs, tx_invalid_descs,
 * rx_ring_full, rx_fill_ring_empty_descs, tx_ring_empty_descs. 0 or -errno. */
CL_API int cl_af_xdp_kernel_stats(const struct cl_nic *nic, unsigned queue, uint64_t out[6]);
// cffi: end

/* check.c: whether the configuration can be; MAC and MTU of the interface. 0 or -errno, the reason in err. */
int cl_af_xdp_check(const struct cl_af_xdp_config *c, char *err);
int cl_af_xdp_read_interface(struct cl_nic *nic, const struct cl_af_xdp_config *c, char *err);

#endif
