/* The log for uthreads: many of them append, on any number of kthreads, and each blocks until its record is durable.
 *
 * Nobody has a thread for it. Of those who wait one pumps the log between yields, so the other uthreads of its kthread go on; the others
 * sleep. When its own record is durable it hands the pumping over. Before it pumps for the first time it yields: what else was ready to
 * append shares the flush. With nobody else ready that is no delay.
 *
 * While a flush is in flight the one who pumps keeps its kthread awake; it gives the CPU to the kernel between looks, for the second half
 * of a durable write may be waiting for this very CPU (blk_file.h).
 *
 * All of it is guarded by `guard`, the log too. Calls block only on uthreads: elsewhere -EDEADLK.
 * Does not deal with: futures that nobody waits for (somebody has to wait for a later one), cancelling. */
#ifndef CORELANE_LIBOS_STORAGE_LOG_SHARED_H
#define CORELANE_LIBOS_STORAGE_LOG_SHARED_H

#include "../sync.h"
#include "log.h"

// cffi: begin
struct cl_log_future;

/* Zeroed memory with `log` set, which is then used through this alone. */
struct cl_log_shared {
    struct cl_log *log;
    struct cl_mutex guard;
    bool pumping; /* somebody is */
    struct cl_log_future *first, *last;
};

/* A record on its way. The caller's memory, until cl_log_future_wait has returned. */
struct cl_log_future {
    struct cl_log_op op; /* op.data, bytes, kind, tag: in; op.index: out */
    struct cl_log_shared *shared;
    struct cl_sem woken;
    bool waits;                        /* in the list */
    struct cl_log_future *next, *prev; /* those who sleep, in order */
};

/* Submit a record: its index is in f->op.index, and it is durable when the wait says so. May block while the buffers are full. 0, or the
 * errors of cl_log_append but -EAGAIN. */
CL_API int cl_log_begin(struct cl_log_shared *shared, struct cl_log_future *f);
/* Block until it is durable: 0, or why it is not. */
CL_API int cl_log_future_wait(struct cl_log_future *f);
/* Both. */
CL_API int cl_log_append_wait(struct cl_log_shared *shared, const void *data, uint32_t bytes, uint64_t tag,
                              uint64_t *index);
/* Trim, and block until that is durable. */
CL_API int cl_log_trim_wait(struct cl_log_shared *shared, uint64_t first_kept);
// cffi: end

#endif
