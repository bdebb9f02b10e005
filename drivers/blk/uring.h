/* The io_uring engine of the file device (blk_file.h): one ring a queue, by system calls of our own. Not a public header.
 *
 *   uring_setup.c  making and freeing rings, registering memory with them
 *   uring.c        submission, completion, waiting
 *
 * Of the kernel's two words for a submission, head and tail, we write the tail with release (it publishes the entries) and read the
 * head with acquire (entries before it may be written again); of the two for completions the other way round.
 *
 * A ring belongs to the thread that uses its queue, its table of registered memory too. */
#ifndef CORELANE_DRIVERS_BLK_URING_H
#define CORELANE_DRIVERS_BLK_URING_H

#include "engine.h"

#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CL_URING_REGIONS 16 /* of registered memory, a queue */

struct cl_uring_ring {
    int fd;
    bool armed;
    bool sqpoll;
    bool fixed_buffers; /* the kernel's ring has a table for regions */
    bool word_waits;    /* the kernel has a FUTEX_WAIT of ours, which ends by a completion with WORD_TAG */
    bool word_refused;  /* it knows none */
    bool refused;       /* it was short of something: what is to go once more goes after a pause */
    bool pausing;       /* the kernel has a timeout of ours, which ends by a completion with PAUSE_TAG */
    uint32_t pause_ms;  /* the last one; 0: there was none since a request was done */
    const uint32_t *word;
    struct __kernel_timespec pause;
    uint32_t in_flight;
    uint32_t tail; /* entries written; published by ring_doorbell() */
    uint32_t sq_mask, cq_mask;
    uint32_t *sq_head, *sq_tail, *sq_flags, *cq_head, *cq_tail, *cq_flags;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    bool keeps;                                  /* a lone durable write is kept for settle (uring_call.c) */
    struct cl_blk_req *kept;                     /* in flight, and in no ring */
    struct cl_blk_req *again_first, *again_last; /* to be submitted once more */
    struct cl_blk_req *done_first, *done_last;   /* done, not given back yet */
    int event_fd;                                /* -1: not asked for yet */
    void *map, *sqe_map;
    size_t map_bytes, sqe_bytes;
    struct iovec regions[CL_URING_REGIONS]; /* iov_len 0: free */
    uint32_t n_regions;                     /* those behind are free */
    struct cl_blk_stats stats;
} CL_ALIGNED(CL_CACHELINE);

struct cl_uring {
    struct cl_uring_ring *rings;
};

static inline struct cl_uring_ring *cl_uring_ring_of(struct cl_blk *blk, unsigned queue)
{
    return &((struct cl_uring *)((struct cl_blk_file *)blk)->engine)->rings[queue];
}

/* uring.c */
extern const struct cl_blk_ops cl_uring_ops;

/* Give a request that is counted as in flight to the kernel. */
void cl_uring_give(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req);
/* A write was carried out in this thread: bytes, or -errno. It is given back by poll, or goes on in the ring. */
void cl_uring_written(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req, int res);

/* uring_call.c: keep and settle of blk.h; whether a request is kept, which else goes to the ring; and have what is kept go there. */
void cl_uring_keep(struct cl_blk *blk, unsigned queue, bool on);
bool cl_uring_settle(struct cl_blk *blk, unsigned queue, bool here);
bool cl_uring_keeps(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req);
static inline void cl_uring_let_go(struct cl_blk_file *f, struct cl_uring_ring *r)
{
    struct cl_blk_req *req = r->kept;
    r->kept = NULL;
    if (cl_unlikely(req != NULL))
        cl_uring_give(f, r, req);
}

/* uring_setup.c: as blk.h says of the operations. */
int cl_uring_register(struct cl_blk *blk, unsigned queue, void *ptr, uint64_t bytes);
void cl_uring_unregister(struct cl_blk *blk, unsigned queue, void *ptr);
/* The first n rings, and all of u. */
void cl_uring_delete(struct cl_uring *u, unsigned n);
int cl_uring_close(struct cl_blk *blk);

#endif
