/* The log for uthreads: many of them append, on any number of kthreads, and each blocks until its record is durable.
 *
 * Nobody has a thread for it, and nobody who waits stays awake for it: the scheduler's loop pumps the log while
 * somebody waits (corelane/libos/complete.h), and a kthread that has nothing else to do sleeps with the log's queue
 * armed.
 *
 * When a flush goes. Who waits pumps at once, on its own uthread, if no flush is in flight, whoever else is ready to
 * run: so a lone append is held back by nobody. It leaves that to the loop's next poll, which comes within 20 us and
 * the turn of one uthread, while a flush is in flight, or while uthreads that the log has just brought back have not
 * run yet, since those are likely to append, too: what gathers until then shares the flush. The last of those pumps, or
 * the loop, whichever comes first; or the one with whom half of all have appended, where the device would have nothing
 * to do until then (docs/log.md, "Batching"). A log with a fixed setting (fixed_records, fixed_wait_ns) is pumped with
 * each append.
 *
 * Who finds all buffers full waits for room. When some get free, as many come back as these have room for, the first
 * that came first. So a log with far more writers than buffers wakes each of them about once a record.
 *
 * Trace. An append is a message of service "log N": from its call until who waits for it runs again, or if nobody does,
 * until it is durable. What a request waits for in it is that request's, too.
 *
 * What nobody waits for, such as the superblock that confirms the last appends (libos/storage/log/confirm.c), a timer
 * pumps.
 *
 * `lock` guards all of it, the log and its queue of the device too. It is held for as long as a pump takes:
 * microseconds, and the copying of one record. Calls block only on uthreads of that scheduler: elsewhere -EDEADLK. Does
 * not deal with: futures that nobody waits for (somebody has to wait for a later one), cancelling, fixed_wait_ns
 * without others who keep the kthread awake. From Python: Runtime.share (libos/storage/log/shared.py). Tests:
 * tests/libos/storage/log/test_log.py, tests/libos/storage/log/test_shared.py. */
#ifndef CORELANE_LIBOS_LOG_SHARED_H
#define CORELANE_LIBOS_LOG_SHARED_H

#include <corelane/libos/complete.h>
#include <corelane/libos/timer.h>
#include <corelane/libos/log.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_log_future;

/* All but `completions` is under the lock. */
struct cl_log_shared {
    struct cl_log *log; /* NULL: closed */
    struct cl_sched *sched;
    struct cl_spin lock;
    uint64_t armed;                                 /* bit k: kthread k sleeps, or is about to */
    struct cl_log_future *short_first, *short_last; /* those who wait for a buffer, or for the end of closing */
    uint64_t due_bytes; /* of records of those who were brought back from there and have not asked again since */
    struct cl_log_future *ready; /* those to be brought back when the lock is free */
    struct cl_timer timer;       /* pumps when the log wants it though nobody waits */
    bool timer_armed;
    uint32_t sleepers; /* uthreads that wait */
    uint32_t
        roused; /* uthreads that were brought back and have not run since. RMW, relaxed: a guess at who appends next */
    uint32_t parts;    /* so many flushes more may go before all have gathered who append */
    bool pump_gathers; /* the pump that runs leaves what is not sent to those that it brings back */
    bool looks_again;  /* kthread `looker` has been told to poll once more */
    uint32_t looker;
    uint32_t service; /* of its appends in the trace; 0: there was no room, or no trace */
    uint64_t done_at; /* during a pump: a stamp of when it brought the first answer; 0: it has not been asked for */
    struct cl_completions completions;
};

/* A record on its way. The caller's memory, until cl_log_future_wait has returned. */
struct cl_log_future {
    struct cl_log_op op; /* op.data, bytes, kind, tag: in; op.index: out */
    struct cl_log_shared *shared;
    struct cl_uthread *t; /* who sleeps, NULL: nobody */
    uint32_t kthread;     /* where it went to sleep */
    uint64_t begun;       /* a stamp of its call; 0: it is not traced */
    uint64_t done_at;     /* of one that is: it was done, and who sleeps made ready */
    struct cl_log_future *next;
};

/* Give a log, whose device has that queue for it alone, to the uthreads of a scheduler, which may run already. From
 * here on the log is used through this, or with the lock held, until the scheduler has stopped; `shared` stays where it
 * is as long. 0; -ENOMEM, -EMFILE, -EEXIST with a reason in err[256]. */
CL_API int cl_log_share(struct cl_log_shared *shared, struct cl_log *log, struct cl_sched *sched, char err[256]);
/* After cl_sched_stop, or before cl_sched_start: the log is the caller's again. Needed if `shared` goes before the
 * scheduler. Uthreads that still waited are not brought back, but their futures are in the log: their stacks have to be
 * there until it is closed. */
CL_API void cl_log_unshare(struct cl_log_shared *shared);

/* Submit a record: its index is in f->op.index, and it is durable when the wait says so. May block while the buffers
 * are full. 0, or the errors of cl_log_append but -EAGAIN; -ESHUTDOWN: the log was closed. */
CL_API int cl_log_begin(struct cl_log_shared *shared, struct cl_log_future *f);
/* Block until it is durable: 0, or why it is not. */
CL_API int cl_log_future_wait(struct cl_log_future *f);
/* The same, and where the calling kthread is alone (cl_sched_alone) and the device has nothing to do, by a write that
 * the kthread itself waits for in the kernel (cl_blk_settle): sooner, and nothing else runs on it meanwhile. *call_ns:
 * how long that was; 0: it was not. */
CL_API int cl_log_future_call(struct cl_log_future *f, uint64_t *call_ns);
/* Append, and wait. */
CL_API int cl_log_append_wait(struct cl_log_shared *shared, const void *data, uint32_t bytes, uint64_t tag,
                              uint64_t *index);
/* Trim, and block until that is durable. */
CL_API int cl_log_trim_wait(struct cl_log_shared *shared, uint64_t first_kept);
/* Close the log while the scheduler runs: those who wait get their answers, who comes later -ESHUTDOWN. Blocks the
 * uthread. The result of cl_log_close. */
CL_API int cl_log_close_wait(struct cl_log_shared *shared);
// cffi: end

CL_EXTERN_C_END
#endif
