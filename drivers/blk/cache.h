/* The volatile cache of the fault device (fault.h): writes that are not durable yet, in the order in which they were
 * done. Not a public header. Not thread-safe: under the device's lock. */
#ifndef CORELANE_DRIVERS_BLK_CACHE_H
#define CORELANE_DRIVERS_BLK_CACHE_H

#include "fault.h"
#include "../random.h"

#define CL_BLK_CACHE_CLASSES 32 /* free writes by log2 of their capacity */

/* A write with a copy of its data. */
struct cl_blk_dirty {
    struct cl_blk_dirty *next, *prev;
    uint64_t offset;
    uint64_t done; /* number of this write among those done; 0 while in flight */
    uint32_t bytes, capacity;
    bool orphan;    /* a failed flush has given it up: seen by reads, never stored */
    uint8_t *data;  /* aligned to a block */
    uint64_t *gone; /* bit i: piece i has been superseded, or did not get here */
};

struct cl_blk_cache {
    struct cl_blk *inner;
    uint32_t piece_bytes;
    uint64_t bytes; /* of all in the list */
    uint64_t n_done;
    uint64_t left; /* pieces that may still become durable: UINT64_MAX without a power cut to come */
    struct cl_blk_dirty *first, *last;
    struct cl_blk_dirty *free[CL_BLK_CACHE_CLASSES];
    uint8_t *scratch; /* one block */
    struct cl_blk_fault_counts *counts;
};

int cl_blk_cache_init(struct cl_blk_cache *c, struct cl_blk *inner, struct cl_blk_fault_counts *counts);
void cl_blk_cache_fini(struct cl_blk_cache *c);
/* A copy of a write; NULL: out of memory. Not in the list yet. */
struct cl_blk_dirty *cl_blk_cache_copy(struct cl_blk_cache *c, uint64_t offset, const void *data, uint32_t bytes);
void cl_blk_cache_free(struct cl_blk_cache *c, struct cl_blk_dirty *d);
/* Pieces that are still there. */
uint64_t cl_blk_cache_pieces(const struct cl_blk_cache *c, const struct cl_blk_dirty *d);
/* The write is done: reads see it. */
void cl_blk_cache_add(struct cl_blk_cache *c, struct cl_blk_dirty *d);
/* A write in no list becomes durable, and is freed. -EIO: the power went, or the wrapped device's error. */
int cl_blk_cache_store(struct cl_blk_cache *c, unsigned queue, struct cl_blk_dirty *d, unsigned flags);
/* The write is about to be stored: what was done up to number `upto` must not come back over it. */
void cl_blk_cache_supersede(struct cl_blk_cache *c, const struct cl_blk_dirty *by, uint64_t upto);
void cl_blk_cache_overlay(const struct cl_blk_cache *c, uint64_t offset, void *buf, uint32_t bytes);
/* Store, in order, what was done up to number `upto`. */
int cl_blk_cache_flush(struct cl_blk_cache *c, unsigned queue, uint64_t upto);
/* The same with a flush that fails. */
void cl_blk_cache_flush_badly(struct cl_blk_cache *c, unsigned queue, uint64_t upto, struct cl_random *random);
/* Store the oldest until at most `bytes` are cached. */
int cl_blk_cache_shrink(struct cl_blk_cache *c, unsigned queue, uint64_t bytes);
/* Take some pieces away: all but the first, all but the last, or any. */
void cl_blk_cache_tear(const struct cl_blk_cache *c, struct cl_blk_dirty *d, struct cl_random *random);
/* What a crash makes of a write in no list: it is stored, in part or whole, or lost; and freed. */
void cl_blk_cache_crash_one(struct cl_blk_cache *c, struct cl_blk_dirty *d, const struct cl_blk_fault_config *config,
                            struct cl_random *random);
void cl_blk_cache_crash(struct cl_blk_cache *c, const struct cl_blk_fault_config *config, struct cl_random *random);

#endif
