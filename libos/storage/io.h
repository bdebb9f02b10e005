/* Reads, writes and flushes of a block device by uthreads that wait for them, at no cost to their kthread.
 *
 * Kthread k uses queue k of the device. Requests that uthreads make in one turn of its loop go out with one doorbell at
 * the end of the turn; a lone one goes at once, since its uthread's wait is what ends the turn. How completions are
 * collected: corelane/libos/complete.h.
 *
 * What durability means, and what a failed write or flush leaves behind: corelane/drivers/blk.h.
 *
 * Does not deal with: merging or ordering requests, caching, cancelling, time limits. Code that is a state machine of
 * its own (log.h) uses the device and complete.h directly.
 * Tests: tests/libos/storage/test_io.py. */
#ifndef CORELANE_LIBOS_STORAGE_IO_H
#define CORELANE_LIBOS_STORAGE_IO_H

#include <corelane/drivers/blk.h>
#include <corelane/libos/sched.h>

// cffi: begin
struct cl_storage;

/* Counters of a kthread. Writer: who holds its queue's lock; readers: anybody (relaxed). */
struct cl_storage_stats {
    uint64_t requests;  /* made by uthreads of it */
    uint64_t doorbells; /* submits to the device */
    uint64_t waits;     /* times that requests stayed behind because the device's queue was full */
    uint64_t collected; /* by the kthread itself */
    uint64_t helped;    /* by siblings */
};

/* A device for the uthreads of a scheduler, which may run already. The device stays the caller's, has at least as many
 * queues as there are kthreads, and is used by nobody else. -EINVAL, -ENOMEM, -EEXIST, with a reason in err[256]. */
CL_API int cl_storage_new(struct cl_sched *sched, struct cl_blk *blk, struct cl_storage **out, char err[256]);
/* After cl_sched_stop, before cl_sched_delete and before the device is closed. Waits for what is still in flight. */
CL_API void cl_storage_delete(struct cl_storage *io);

/* On a uthread; all block. 0 or -errno of the request; -EDEADLK in a place that may not block. `buf` as in struct
 * cl_blk_req. */
CL_API int cl_storage_read(struct cl_storage *io, uint64_t offset, void *buf, uint32_t bytes);
CL_API int cl_storage_write(struct cl_storage *io, uint64_t offset, const void *buf, uint32_t bytes, unsigned flags);
CL_API int cl_storage_flush(struct cl_storage *io);
/* The same for several requests at once, with one doorbell; returns when all are done, with the first error by their
 * order in the array. Their `user` is the call's. */
CL_API int cl_storage_do(struct cl_storage *io, struct cl_blk_req **reqs, unsigned n);
CL_API int cl_storage_stats(const struct cl_storage *io, unsigned k, struct cl_storage_stats *out);
// cffi: end

#endif
