/* The persistent log: records, durable in order, on an area of a block device, without a file system in the way.
 *
 * Records have indexes 1, 2, 3, ... A record is acknowledged when it and every record before it is on stable storage;
 * what was acknowledged is found again by the next open, in the same order, or the open fails and says where and why.
 * Beside the records the log keeps one small blob (`meta`: Raft's term and vote) and one snapshot. docs/log.md has the
 * format on the device.
 *
 * This is the core. It never blocks, has no thread, no clock and no scheduler: it is a state machine that its caller
 * pumps, so that a simulation drives the same code that a server runs. One thread at a time is inside calls on one log.
 * Code on uthreads uses log_shared.h, which brings a lock and waits.
 *
 * What is where, in libos/storage/log (start reading at append.c):
 *   disk.h      what lies on the device
 *   internal.h  the structures
 *   log.c       format, open, pump, close
 *   append.c    submit, flushes and when they go, acknowledgement
 *   view.c      what is durable: where each record lies; applying a flush, live and in recovery alike
 *   recover.c   open: the flushes one after another, and where they end. recover.h says which other files are its steps
 *   confirm.c   having the device say what was acknowledged
 *   grow.c      taking into use what an area grew by
 *   repack.c    copying what is kept to the end of the ring, so that what lies between is free
 *   super.c     the two superblocks: trim, epoch, the snapshot's commit
 *   snapshot.c  snapshots
 *   cursor.c    reading
 *
 * Caveats, the failure modes first:
 *   - A write or flush that fails ends the log: that append and all later ones answer the error, and none is tried
 *     again. Only opening it anew, which reads what is there, gives a log that takes appends. A full area is not that:
 *     -ENOSPC at submit, before anything is written.
 *   - An append that answered an error, or nothing because of a crash, may be in the log when it is opened again. It is
 *     there whole then, and everything before it is.
 *   - Records past a damaged one are never given out. Open refuses a log with damage before its end, unless it is told
 *     to cut there; then what followed is gone. A block that the device cannot read is damage where a flush is or is to
 *     be expected, and behind a torn one, for it may hide what proves damage. Elsewhere it is reported, and, if it is
 *     free, written over by the open.
 *   - Damage in a flush that was acknowledged just before a crash looks like a torn write: nothing on the device says
 *     yet that it had been acknowledged, so it is taken for the end of the log. The device says so once a later flush,
 *     a close or, config.confirm_ns after the acknowledgement, a superblock of its own is durable (confirm.c). That
 *     takes a pump at the time of cl_log_next_ns: who pumps only when he appends has the window open between his calls.
 *   - A device that says "durable" and lies is believed.
 *   - One owner at a time: a second open of a device is refused (-EBUSY). The core cannot see a second device over the
 *     same blocks, nor a second process: the file device locks its file (blk_file.h).
 *   - A flush begins on a fresh block of 4096 bytes, so a lone record of 100 bytes takes 4096. */
#ifndef CORELANE_LIBOS_LOG_H
#define CORELANE_LIBOS_LOG_H

#include <corelane/drivers/blk.h>
#include <corelane/runtime/clock.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_LOG_BLOCK_BYTES 4096 /* the device's block_bytes must divide it */
#define CL_LOG_META_BYTES 256   /* the meta blob at most */
#define CL_LOG_WHY_BYTES 256
#define CL_LOG_CONFIRM_NS 5000000
#define CL_LOG_INDEX_MOST 0x7fffffffffffffff /* of a record */

struct cl_log;

/* How an area is laid out; constant from cl_log_format on. Zero means the default, given in brackets. */
struct cl_log_layout {
    uint64_t area_id; /* seeds every checksum, so that no record of another log is taken for one of this [random] */
    uint64_t snapshot_bytes; /* largest snapshot; two slots of this are set apart [0: no snapshots] */
    uint32_t
        flush_bytes; /* largest flush, headers included: a multiple of 4096 [a 16th of the ring, 8 KiB to 256 KiB] */
};

/* Make an empty log of the area. Blocks the calling thread (cl_blk_do): for setting up. What was there is lost, though
 * not erased. -EINVAL, -ENOSPC (too small: at least 4 flushes), -EBUSY (a log is open on it), or the device's error;
 * one line in err[256] (may be NULL). */
CL_API int cl_log_format(struct cl_blk *blk, unsigned queue, const struct cl_log_layout *layout, char *err);

/* What to do with damage before the end. */
#define CL_LOG_REFUSE 0 /* fail: -EBADMSG */
#define CL_LOG_CUT 1    /* end the log before the first bad flush: what follows is given up for ever */
/* What is opened for looking at: nothing is ever written, appends answer -EROFS; damage is reported, not refused. */
#define CL_LOG_READ_ONLY 2

struct cl_log_config {
    struct cl_blk *blk;
    uint32_t queue;     /* of blk, and the log's alone while it is open */
    uint32_t on_damage; /* CL_LOG_REFUSE, CL_LOG_CUT or CL_LOG_READ_ONLY */
    /* Flushes in flight at most; fewer where the device does fewer at once. Given: so many from the first one on.
     * [1 at first, and up to 8 as long as the device does more at once] */
    uint32_t in_flight;
    uint32_t buffers;      /* flushes in memory, open, waiting or in flight [16] */
    uint64_t search_bytes; /* how far beyond the end to look for flushes that prove damage [all of the ring] */
    /* For comparing only: instead of adapting, a flush goes when it has so many records or its first has waited so
     * long. */
    uint32_t fixed_records; /* 0: adapt */
    uint64_t fixed_wait_ns;
    /* What was acknowledged so long ago, and no later flush says so, is written down in a superblock: not sooner, so
     * that appends that follow each other do without [CL_LOG_CONFIRM_NS]; UINT64_MAX: never. */
    uint64_t confirm_ns;
    uint64_t (*now_ns)(void *arg); /* the log's clock [CLOCK_MONOTONIC] */
    void *now_arg;
};

#define CL_LOG_OPENING 0 /* recovering: pump */
#define CL_LOG_READY 1
#define CL_LOG_FAILED 2 /* for good: cl_log_error and cl_log_why say what happened */
#define CL_LOG_CLOSED 3

/* How the log ended. */
#define CL_LOG_TAIL_CLEAN 0 /* nothing that looks like a later flush */
#define CL_LOG_TAIL_TORN 1  /* a flush that is not whole, and no sign that it was ever acknowledged */
#define CL_LOG_TAIL_DAMAGED 2

/* What recovery found. Filled when the state is no longer OPENING. */
struct cl_log_report {
    uint64_t area_id, epoch;
    uint64_t first_index, next_index; /* the records are first_index .. next_index - 1 */
    uint64_t flushes, records;        /* read and found whole, those truncated later and those of meta included */
    uint64_t read_bytes;
    uint64_t
        acknowledged_index; /* the last index that the device itself says was acknowledged, even if it is lost; not what
                             * was truncated */
    uint64_t grown_bytes;   /* that the ring is larger by since this opening, since the area was */
    uint64_t unused_bytes;  /* of the area, which it grew by and the ring cannot take yet: open again after a trim */
    uint64_t last_flush;    /* number of the last one that is whole; 0: there never was one */
    uint64_t last_offset;   /* where the flushes end */
    uint32_t tail;          /* CL_LOG_TAIL_* */
    uint32_t bad_superblocks; /* bit 0, bit 1: that slot is torn or damaged, and the other one was used */
    uint64_t bad_offset;      /* torn or damaged: byte offset of what is bad */
    uint64_t bad_index;       /* the index that was expected there */
    uint64_t beyond_offset;   /* damaged: where a later, good flush lies; 0: other evidence */
    uint64_t beyond_flushes;  /* torn or damaged: later flushes found behind, by their headers; nothing of them is given
                         * out */
    uint64_t unreadable_blocks; /* of 4096 bytes, that the device could not read, one by one, in superblocks and ring */
    uint64_t unreadable_offset; /* of one of them: the one that decided, or the first met */
    int32_t unreadable_error;   /* -errno of that one */
    char why[CL_LOG_WHY_BYTES]; /* torn or damaged: a sentence with offset and index */
};

/* Begin to open. The log is OPENING: pump it until it is not. -EINVAL, -ENOMEM, -EBUSY (the device has a log open);
 * err[256] (may be NULL). */
CL_API int cl_log_open(const struct cl_log_config *config, struct cl_log **out, char *err);
/* The same, and wait, blocking the calling thread in the device's `wait`. Then it is READY; or the result says why not,
 * one line is in err, report (may be NULL) is filled and there is no log. */
CL_API int cl_log_open_wait(const struct cl_log_config *config, struct cl_log **out, struct cl_log_report *report,
                            char *err);
/* Finish what is in flight, write down that all is well, and free the log; the device stays open. Blocks like
 * cl_log_open_wait. The result is that of the last writes: without 0 the next open recovers as after a crash, and
 * err[256] (may be NULL) says why. */
CL_API int cl_log_close(struct cl_log *log, char *err);
/* The same in two parts, for who may not block: begin, pump until the state is CL_LOG_CLOSED, or FAILED and not busy;
 * then discard. */
CL_API void cl_log_close_begin(struct cl_log *log);
/* Free the log at once, as a crash would leave it. No request may be in flight that the device still knows of: the log
 * is not busy, or the device crashed (drivers/blk/fault.h); but the device is not closed yet. No callback is called;
 * cursors still open go with it. */
CL_API void cl_log_discard(struct cl_log *log);

/* Have flushes stamped by a clock, whose life is the log's at least, for cl_log_op.stamps; NULL: no more. One that is
 * shared (log_shared.h) has its scheduler's. */
CL_API void cl_log_stamped(struct cl_log *log, const struct cl_clock *clock);
CL_API int cl_log_state(const struct cl_log *log);
CL_API int cl_log_error(
    const struct cl_log *log); /* 0, or -errno if FAILED: none of those by which a submit asks to be tried again */
CL_API const char *cl_log_why(const struct cl_log *log); /* one sentence if FAILED, else "" */
CL_API void cl_log_report(const struct cl_log *log, struct cl_log_report *out);

/* Collect what the device has done, call back, send what should go now. Returns how many things happened; 0: nothing to
 * do until the device completes something. Not from a callback. */
CL_API unsigned cl_log_pump(struct cl_log *log);
/* Something is in flight or waits to go: pump again when the device has completed something. */
CL_API bool cl_log_busy(const struct cl_log *log);
/* When to pump at the latest though the device completed nothing, and be the log not busy: for confirm_ns, for
 * fixed_wait_ns, and for devices with clocks of their own (blk->ops->next_ns), which then has to be the same clock;
 * UINT64_MAX: never. */
CL_API uint64_t cl_log_next_ns(const struct cl_log *log);

#define CL_LOG_PENDING 1

/* Something asked of the log: the caller's memory until `done` is called. What the caller does not set is zero, also
 * where only an answer is wanted: struct cl_log_op op = {0}. */
struct cl_log_op {
    const void *data; /* copied by the submit: free to go when it returns */
    uint32_t bytes;
    uint8_t kind;                       /* the user's own byte, kept with the record */
    uint64_t tag;                       /* the user's own word, kept with the record: Raft's term */
    uint64_t index;                     /* set by the submit */
    int32_t result;                     /* CL_LOG_PENDING; when it is done 0, or why it is not durable */
    void (*done)(struct cl_log_op *op); /* may be NULL; may submit, may not pump or close */
    void *user;
    struct cl_log_op *next; /* the log's */
    uint64_t lsn;           /* the log's */
    /* Of one that is done: when its flush was given to the device, and when that had written it. Stamps of the
     * scheduler whose uthreads share the log (log_shared.h), or of cl_log_stamped's clock; else 0. */
    uint64_t stamps[2];
};

/* Pump until an operation is done, blocking the calling thread in the device's `wait`. Its result. */
CL_API int cl_log_wait(struct cl_log *log, const struct cl_log_op *op);

/* The four below queue one record each; what they asked is durable, and done is called, in the order of the calls. All
 * of a burst of calls before the next pump share a flush if they fit one, and of one flush all or nothing survives.
 * Nothing is written before cl_log_pump. 0, or an error and nothing has changed (done is not called):
 *   -ENOSPC    the area is full of records that are kept: trim, then again    -EMSGSIZE  larger than cl_log_max_bytes
 *   -EAGAIN    the buffers are full, or room is being made: pump, then again    -EROFS, -EBUSY  read only; still
 *   opening or the error that ended the log. */

/* Append; op->index is its index. -EOVERFLOW: the one before had CL_LOG_INDEX_MOST. */
CL_API int cl_log_append(struct cl_log *log, struct cl_log_op *op);
/* Give up the records from `from` on, which is first_index at least; the next append gets that index. Once done, those
 * records never come back. -ERANGE. */
CL_API int cl_log_truncate(struct cl_log *log, uint64_t from, struct cl_log_op *op);
/* Give up all records; the next append gets `index`, not less than first_index, at most CL_LOG_INDEX_MOST. For a
 * snapshot that replaces the log. -ERANGE. */
CL_API int cl_log_restart(struct cl_log *log, uint64_t index, struct cl_log_op *op);
/* Replace the meta blob (op->data, op->bytes). The newest survives trim, truncation and restart. */
CL_API int cl_log_meta_set(struct cl_log *log, struct cl_log_op *op);

/* Bytes of the durable meta blob copied into buf (CL_LOG_META_BYTES); 0: never set. */
CL_API uint32_t cl_log_meta_get(const struct cl_log *log, void *buf);
/* Records before first_kept are not needed any more: their space is free once this is durable. first_kept is at most
 * one more than the last durable index, and at most next_index; less than first_index does nothing. op may be NULL.
 * -ERANGE. */
CL_API int cl_log_trim(struct cl_log *log, uint64_t first_kept, struct cl_log_op *op);

CL_API uint64_t cl_log_first_index(const struct cl_log *log);   /* durable records are first_index .. durable_index */
CL_API uint64_t cl_log_durable_index(const struct cl_log *log); /* first_index - 1: none */
CL_API uint64_t cl_log_next_index(const struct cl_log *log);    /* what the next append gets */
CL_API uint32_t cl_log_max_bytes(const struct cl_log *log);     /* of one record */
CL_API uint64_t cl_log_ring_bytes(const struct cl_log *log);    /* what free_bytes is out of, but for a reserve */
CL_API uint64_t cl_log_free_bytes(const struct cl_log *log);    /* left for flushes, headers and padding included */

/* Reading durable records, in order, from an index on. A cursor may be open while the log goes on, and sees what
 * becomes durable; what is trimmed or truncated under it ends it with -ESTALE. Close all before the log. */
struct cl_log_cursor;
struct cl_log_record {
    uint64_t index, tag, epoch;
    uint64_t offset; /* on the device */
    const void *data;
    uint32_t bytes;
    uint8_t kind;
};
/* -ENOENT: there is no such durable record (next_index is allowed: the cursor waits there). -ENOMEM. */
CL_API int cl_log_cursor_open(struct cl_log *log, uint64_t index, struct cl_log_cursor **out);
/* 1: *out is the next record, its data good until the next call on the cursor; 0: no more are durable. -EAGAIN: being
 * read, pump and call again. -EBADMSG: the record on the device is damaged (cl_log_cursor_why); -ESTALE, or the
 * device's error. */
CL_API int cl_log_cursor_next(struct cl_log_cursor *cursor, struct cl_log_record *out);
CL_API const char *cl_log_cursor_why(const struct cl_log_cursor *cursor);
/* Not while the cursor's read is in flight: -EBUSY, pump and close again. */
CL_API int cl_log_cursor_close(struct cl_log_cursor *cursor);

/* Snapshots: at most one being written and one kept. The kept one stays until another is committed, which is atomic. */
struct cl_log_snapshot {
    uint64_t index, tag; /* the user's: the last index it stands for, and Raft's term of it */
    uint64_t bytes;
    uint64_t number; /* 0: there is none; grows with each */
};
CL_API void cl_log_snapshot_get(const struct cl_log *log, struct cl_log_snapshot *out);
/* Begin one; one begun before and not committed is given up. -EAGAIN: writes of that are still in flight. -ENOTSUP: no
 * space was set apart. index 0: of nothing. -ERANGE: no record has that index. */
CL_API int cl_log_snapshot_begin(struct cl_log *log, uint64_t index, uint64_t tag);
/* Bytes of the largest snapshot. 0: none are kept. */
CL_API uint64_t cl_log_snapshot_room(const struct cl_log *log);
/* Take the next bytes. Returns how many it took (pump and offer the rest); -ENOSPC; -EINVAL: none begun; or the log's
 * error. */
CL_API int64_t cl_log_snapshot_write(struct cl_log *log, const void *data, uint64_t bytes);
/* Make what was written the snapshot; op->done when that is durable. Does not trim. -EINVAL: none begun; -EBUSY: being
 * committed. */
CL_API int cl_log_snapshot_commit(struct cl_log *log, struct cl_log_op *op);
CL_API void cl_log_snapshot_abort(struct cl_log *log);
/* Copy up to `room` bytes of snapshot `number` from `at` on into buf: how many, 0 at its end. -EAGAIN: being read, pump
 * and call again with the same arguments. -ESTALE: there is a newer one; -EBADMSG: damaged (cl_log_snapshot_why). One
 * reader at a time. */
CL_API int64_t cl_log_snapshot_read(struct cl_log *log, uint64_t number, uint64_t at, void *buf, uint64_t room);
/* A sentence that says which offset is damaged or cannot be read; "" if no read has failed. */
CL_API const char *cl_log_snapshot_why(const struct cl_log *log);

/* Counters. Writer: who is inside the log; readers: the same. */
struct cl_log_stats {
    uint64_t appends, append_bytes; /* records acknowledged, and their data */
    uint64_t flushes, flush_bytes;  /* acknowledged; headers and padding included */
    uint64_t full, no_buffer;       /* submits that answered -ENOSPC, -EAGAIN */
    uint64_t superblocks;           /* written */
    uint64_t confirms;              /* of them: asked for only to say what was acknowledged */
    uint64_t last_flush;            /* number of the last flush acknowledged, since the log was made */
    uint64_t
        said_flush; /* the last one of which the device says so: damage up to there is never taken for a torn write */
    uint64_t trims, truncates, restarts, metas, snapshots;
    uint64_t repacks,
        repacked_bytes; /* passes that copied records to the end of the ring, so that what lay between is free;
                         * copied */
    uint64_t width;     /* flushes in flight at most now: in_flight, or fewer where the device does fewer at once */
    int64_t
        registered; /* bytes of the flushes' buffers, which the device knows as registered memory; -errno: why it does
                     * not */
};
CL_API void cl_log_stats(const struct cl_log *log, struct cl_log_stats *out);

/* How full the ring is, and of what; the sum of the last four is the first. Of an open log. Goes through the index: not
 * for a hot path. */
struct cl_log_usage {
    uint64_t ring_bytes;
    uint64_t kept_bytes; /* records that are there, as far as is known without reading them */
    uint64_t dead_bytes; /* truncated records, votes, and the rest of the block in which each flush ends: won back when
                     * little is free */
    uint64_t free_bytes; /* for records */
    uint64_t reserved_bytes; /* for truncations, and for winning back */
};
CL_API void cl_log_usage(const struct cl_log *log, struct cl_log_usage *out);
// cffi: end

CL_EXTERN_C_END
#endif
