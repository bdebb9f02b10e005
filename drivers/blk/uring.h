/* The io_uring engine of the file device (blk_file.h): one ring a queue, by system calls of our own. Not a public
 * header.
 *
 *   uring.c        submission, completion, waiting
 *   uring_call.c   a lone durable write in the calling thread
 *   uring_setup.c  making and freeing rings, registering memory with them, the table of operations
 *
 * Of the kernel's two words for a submission, head and tail, we write the tail with release (it publishes the entries)
 * and read the head with acquire (entries before it may be written again); of the two for completions the other way
 * round.
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
/* Operations of blk.h. */
unsigned cl_uring_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n);
unsigned cl_uring_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n);
bool cl_uring_ready(struct cl_blk *blk, unsigned queue);
int cl_uring_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns);
int cl_uring_wait_word(struct cl_blk *blk, unsigned queue, const uint32_t *word, uint32_t value, int64_t timeout_ns);
int cl_uring_fd(struct cl_blk *blk, unsigned queue);
void cl_uring_arm(struct cl_blk *blk, unsigned queue, bool on);
void cl_uring_stats(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out);

/* Give a request that is counted as in flight to the kernel. */
void cl_uring_give(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req);
/* A write was carried out in this thread: bytes, or -errno. It is given back by poll, or goes on in the ring. */
void cl_uring_written(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_req *req, int res);

/* uring_call.c: keep and settle of blk.h. */
void cl_uring_keep(struct cl_blk *blk, unsigned queue, bool on);
bool cl_uring_settle(struct cl_blk *blk, unsigned queue, bool here);

/* Have what is kept go to the ring. */
static inline void cl_uring_let_go(struct cl_blk_file *f, struct cl_uring_ring *r)
{
    struct cl_blk_req *req = r->kept;
    r->kept = NULL;
    if (cl_unlikely(req != NULL))
        cl_uring_give(f, r, req);
}

#endif
