/* AF_XDP sockets: the packet memory (UMEM), the four rings that a socket shares with the kernel, and binding it to a
 * queue.
 *
 *   fill         we produce chunks for the kernel to receive into
 *   rx           the kernel produces received frames
 *   tx           we produce frames to send
 *   completion   the kernel produces chunks that were sent
 *
 * One UMEM serves every socket of a device: the first socket registers it, the others share it (XDP_SHARED_UMEM, each
 * with fill and completion rings of its own, which the kernel allows between queues since 5.10). So a frame received on
 * one queue can be sent on another without a copy.
 *
 * Ring indices are free-running 32-bit counters, one written by us, the other by the kernel, each pair on lines of its
 * own:
 *
 *   producer index   written with release after the entries, read with acquire before them
 *   consumer index   written with release after the entries were copied, read with acquire before they are overwritten
 *
 * A side keeps private copies (`ours`, `theirs`) and re-reads the other's index only when its copy is used up.
 *
 * No threads, no pool, no statistics: drivers/nic/af_xdp/af_xdp.c adds these, bench/afxdp/reflector.c does without
 * them. Reference: kernel, Documentation/networking/af_xdp.rst and net/xdp/xsk_queue.h. */
#ifndef CORELANE_DRIVERS_NIC_AF_XDP_XSK_H
#define CORELANE_DRIVERS_NIC_AF_XDP_XSK_H

#include <corelane/runtime/base.h>

#define CL_ERR_BYTES 256

/* The kernel leaves this much in front of a received frame (XDP_PACKET_HEADROOM). */
#define CL_XSK_HEADROOM 256

// cffi: begin
#define CL_XSK_COPY 0     /* frames are copied by the kernel: any device */
#define CL_XSK_ZEROCOPY 1 /* the device reads and writes the UMEM, else fail */
#define CL_XSK_AUTO 2     /* zero-copy if the driver can, else copy */

/* What a socket is made with. Ring sizes are powers of two. */
struct cl_xsk_config {
    const char *ifname;        /* device, of the calling thread's network namespace */
    uint32_t rx_size, tx_size; /* entries; completion is as long as tx */
    uint32_t fill_size;
    uint32_t copy_mode;        /* CL_XSK_* */
    uint32_t need_wakeup;      /* the kernel says in the ring when a system call is needed */
    uint32_t busy_poll_us;     /* > 0: the queue's softirq work is done in our system calls (SO_PREFER_BUSY_POLL) */
    uint32_t bind_deadline_ms; /* how long to retry a queue that its last owner has not quite left */
};
// cffi: end

/* Our half of a kernel ring. */
struct cl_xsk_ring {
    uint32_t *producer, *consumer, *flags; /* shared with the kernel */
    void *entries;                         /* uint64_t chunk addresses (fill, completion) or struct xdp_desc */
    uint32_t mask, size;
    uint32_t ours;   /* the index that we write: entries produced (fill, tx) or consumed (rx, completion) */
    uint32_t theirs; /* the kernel's index when last read */
    void *map;
    size_t map_bytes;
};

struct cl_umem {
    uint8_t *area;
    uint64_t area_bytes;
    void *map; /* what was mapped: area is aligned within it */
    size_t map_bytes;
    uint32_t chunk_bytes, n_chunks;
    int fd; /* the socket that registered it, -1 until then */
};

struct cl_xsk {
    int fd;
    bool zero_copy, need_wakeup;
    struct cl_xsk_ring fill, completion, rx, tx;
};

/* Map packet memory. -EINVAL (chunk size not 2048 or 4096), -ENOMEM; err says it in words. */
int cl_umem_init(struct cl_umem *u, uint32_t n_chunks, uint32_t chunk_bytes, char err[CL_ERR_BYTES]);
void cl_umem_exit(struct cl_umem *u);
/* A socket of `queue`, bound and ready; the first one on a UMEM registers it. -errno with the reason and the remedy in
 * err. */
int cl_xsk_open(struct cl_xsk *x, struct cl_umem *u, const struct cl_xsk_config *c, uint32_t queue,
                char err[CL_ERR_BYTES]);
void cl_xsk_close(struct cl_xsk *x);
/* One system call that makes the kernel send what is in the tx ring. 0 or -errno. */
int cl_xsk_kick(struct cl_xsk *x);

/* Entries that we may produce into a fill or tx ring; re-reads the kernel's index when fewer than `want` are known. */
static inline uint32_t cl_xsk_space(struct cl_xsk_ring *r, uint32_t want)
{
    uint32_t space = r->size - (r->ours - r->theirs);
    if (cl_likely(space >= want))
        return space;
    r->theirs = cl_load_acquire(r->consumer); /* acquire: the kernel has copied what we overwrite */
    return r->size - (r->ours - r->theirs);
}

/* Entries that wait for us in an rx or completion ring. */
static inline uint32_t cl_xsk_ready(struct cl_xsk_ring *r)
{
    uint32_t ready = r->theirs - r->ours;
    if (ready)
        return ready;
    r->theirs = cl_load_acquire(r->producer); /* acquire: the entries and the frames they name come after */
    return r->theirs - r->ours;
}

/* Publish what was produced: entries before `ours`. */
static inline void cl_xsk_submit(struct cl_xsk_ring *r)
{
    cl_store_release(r->producer, r->ours); /* release: the entries are written */
}

/* Give consumed entries back to the kernel. */
static inline void cl_xsk_release(struct cl_xsk_ring *r)
{
    cl_store_release(r->consumer, r->ours); /* release: the entries are copied */
}

static inline bool cl_xsk_wants_wakeup(const struct cl_xsk_ring *r)
{
    /* Relaxed: a hint. In copy mode the flag of the tx ring is constant. Else whoever must not miss it has a full fence
     * between its cl_xsk_submit, which is a release only, and this load, or looks again later (af_xdp.c). */
    return cl_load_relaxed(r->flags) & 1; /* XDP_RING_NEED_WAKEUP */
}

#endif
