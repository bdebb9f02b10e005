/* A block device that wraps another one and is a bad disk: seeded errors, lost and torn writes, bit rot, latency, power
 * cuts.
 *
 * It has a volatile cache. What was written without CL_BLK_DURABLE stays there until a flush, is seen by reads, and
 * reaches the wrapped device only then (or when the cache is full). cl_blk_fault_crash cuts the power: of every write
 * not yet durable, in flight or done, all, nothing or some atomic_bytes pieces (the first ones, the last ones, or any)
 * are left, each by itself, so later ones may be there without earlier ones. Requests in flight vanish: they are never
 * given back, and their memory is not touched again. The device can be used on at once, by a program that starts anew.
 *
 * cl_blk_fault_kill ends the process that used it, and the power stays: what is in the cache stays there, and is read,
 * though a later power cut may take it. Of requests in flight each is done or not, by itself and in any order, since
 * the kernel goes on with what it was given or gives it up; a durable write may have got as far as the cache alone.
 * None is done later: a file is locked until the kernel has let go of the last of them.
 *
 * Fates are drawn as requests are submitted, as many draws for each, from one generator: the n-th request meets the
 * same fate at every run with the same seed. Crashes and kills draw from another one. All probabilities zero: a good
 * disk with a volatile cache.
 *
 *   error     -EIO. A write that fails leaves any of its pieces behind. A flush that fails stores some of what it
 *             should have, and the rest is never stored by a later flush either, though reads go on to see it until the
 *             next crash: that is what the Linux page cache does, and what makes a flush that is tried again a lie.
 *   drop      a write, durable or not, is reported done and never happens.
 *   rot       one bit is flipped: in the buffer of a read, that once; or in what a write leaves behind, for good.
 *   cut       power goes when so many pieces have become durable, in the middle of a write if need be. Everything
 *             answers -EIO until cl_blk_fault_crash. For tests that cut a run at each place in turn.
 *   hang      requests are taken and none is done, without an error, until cl_blk_fault_set or cl_blk_fault_crash.
 *   unreadable  blocks of cl_blk_fault_unreadable answer reads with -EIO, until they are written over.
 *   latency   requests are done in the order in which their time comes, on the clock that was passed in.
 *
 * Pieces balance: pieces_written = stored + superseded + dropped + lost + cached, where superseded ones were
 * overwritten by durable writes while in the cache.
 *
 * Calls on the wrapped device are made one after another from within poll, under one lock, and wait: what the wrapped
 * device does is not overlapped. The wrapper owns it, and closing closes both: what is in the cache is then lost.
 * Does not deal with: writes that land elsewhere, failures of whole regions, bandwidth.
 * Tests: tests/drivers/blk/test_fault.py, and the common suite. */
#ifndef CORELANE_DRIVERS_BLK_FAULT_H
#define CORELANE_DRIVERS_BLK_FAULT_H

#include <corelane/drivers/blk.h>

// cffi: begin
struct cl_blk_fault_config {
    uint64_t seed;
    /* Probabilities, 0..1. */
    double read_error, write_error, flush_error;
    double no_space; /* a write answers -ENOSPC and does nothing */
    double drop;
    double read_rot, write_rot;
    double survive;                          /* a crash leaves something of a write that is not durable ... */
    double torn;                             /* ... and if so, not all */
    uint64_t latency_min_ns, latency_max_ns; /* uniformly */
    uint64_t full_from;                      /* writes that reach beyond this offset answer -ENOSPC; 0: none do */
    uint64_t fail_after; /* requests that are served before the device fails for good; 0: it does not */
    uint64_t cut_after;  /* pieces that become durable before the power goes; 0: it does not */
    uint32_t hang;       /* 1: nothing is ever done; cl_blk_fault_set with 0 lets it go on where it was */
    uint32_t pad;
    uint64_t cache_bytes;         /* the oldest writes are stored when there are more; 0 means 64 MiB */
    uint64_t (*clock)(void *arg); /* nanoseconds; NULL: CLOCK_MONOTONIC, and then `wait` sleeps */
    void *clock_arg;
};

/* Requests, and pieces (atomic_bytes each) of writes. Under the device's lock. */
struct cl_blk_fault_counts {
    uint64_t seen, vanished; /* requests submitted; requests that a crash or a kill took */
    uint64_t read_errors, write_errors, flush_errors, no_space, dropped, read_rotted, write_rotted;
    uint64_t unreadable; /* reads that failed for a block of cl_blk_fault_unreadable */
    uint64_t refused;    /* answered -EIO because the device had failed or its power was off */
    uint64_t crashes, kills;
    uint64_t pieces_written;    /* of writes that were done, and what failed ones left behind */
    uint64_t pieces_stored;     /* on the wrapped device */
    uint64_t pieces_superseded; /* overwritten in the cache by a durable write */
    uint64_t pieces_dropped;
    uint64_t pieces_lost;   /* in crashes, in failed flushes, by power cuts, or refused by the wrapped device */
    uint64_t pieces_cached; /* now */
};

/* Wrap `inner`, which then belongs to the wrapper. -errno with a reason in err[256]; inner is then untouched. */
CL_API int cl_blk_fault_new(struct cl_blk *inner, const struct cl_blk_fault_config *config, struct cl_blk **out,
                            char *err);
/* Other faults from now on; seed and clock stay. fail_after and cut_after count from here. A device that has failed
 * works again.
 */
CL_API int cl_blk_fault_set(struct cl_blk *blk, const struct cl_blk_fault_config *config, char *err);
/* Cut the power and restore it. While no other thread uses the device; queue 0 is used. Returns the pieces lost. */
CL_API uint64_t cl_blk_fault_crash(struct cl_blk *blk);
/* End the process that uses it. While no other thread does; queue 0 is used. The requests' memory may be given back
 * only then. A device that has failed, or whose power is off, stays so. */
CL_API void cl_blk_fault_kill(struct cl_blk *blk);
/* Flip one bit, drawn from the crashes' generator, of each of n places within bytes from offset on, on the wrapped
 * device. Queue 0 is used. 0 or -errno. */
CL_API int cl_blk_fault_rot(struct cl_blk *blk, uint64_t offset, uint64_t bytes, unsigned n);
/* Have reads that touch these bytes fail with -EIO, as of sectors gone bad, or not any more. Whole blocks of
 * block_bytes; a write that is done mends those it covers, though a crash takes it. -ERANGE, -ENOMEM. */
CL_API int cl_blk_fault_unreadable(struct cl_blk *blk, uint64_t offset, uint64_t bytes, bool on);
CL_API void cl_blk_fault_counts(struct cl_blk *blk, struct cl_blk_fault_counts *out);
/* A clock that is a word of the caller's: arg is a uint64_t *. */
CL_API uint64_t cl_blk_fault_clock_word(void *arg);
// cffi: end

#endif
