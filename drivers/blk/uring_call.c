/* A lone durable write in the calling thread.
 *
 * By a ring, the second half of a durable write (the flush) is begun by a kernel worker, on the CPU that took the
 * interrupt of the first, and ended by it: two switches there and two back, which a thread that looks for the
 * completion on that CPU waits for. A thread that waits in pwritev2(2) is woken by the interrupts themselves.
 *
 * Tests: tests/drivers/blk/c/uring_fake.c, tests/drivers/blk/test_file.py. */
#include "uring.h"

#include <sys/uio.h>

#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif

void cl_uring_keep(struct cl_blk *blk, unsigned queue, bool on)
{
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    r->keeps = on && !r->sqpoll;
}

bool cl_uring_settle(struct cl_blk *blk, unsigned queue, bool here)
{
    struct cl_blk_file *f = (struct cl_blk_file *)blk;
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    struct cl_blk_req *req = r->kept;
    if (!req)
        return false;
    if (!here) {
        cl_uring_let_go(f, r);
        return true;
    }
    r->kept = NULL;
    if (cl_unlikely(blk->gone)) {
        cl_uring_written(f, r, req, -EIO);
        return true;
    }
    struct iovec v = {req->buf, req->bytes};
    ssize_t rc = pwritev2(f->fd, &v, 1, (off_t)(f->start + req->offset), RWF_DSYNC);
    cl_count(&r->stats.syscalls, 1);
    cl_count(&r->stats.in_call, 1);
    cl_uring_written(f, r, req, rc < 0 ? -errno : (int)rc);
    return true;
}
