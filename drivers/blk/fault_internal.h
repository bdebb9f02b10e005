/* The device of fault.h, for the files that are its parts: fault.c serves requests, fault_end.c ends the power or the
 * process. Private to them. All but `blk`, `inner` and `config` is under the lock. */
#ifndef CORELANE_DRIVERS_BLK_FAULT_INTERNAL_H
#define CORELANE_DRIVERS_BLK_FAULT_INTERNAL_H

#include "cache.h"

#include <pthread.h>

enum fate { FATE_OK, FATE_ERROR, FATE_NO_SPACE, FATE_DROP, FATE_ROT, FATE_NO_MEMORY };

/* A request in flight. */
struct flight {
    struct flight *next;
    struct cl_blk_req *req;
    uint64_t due_ns;
    uint64_t number; /* a flush: of the last write that was done when it was submitted */
    struct cl_blk_dirty *write;
    enum fate fate;
    uint64_t draw; /* for what the fate needs */
};

struct queue {
    struct flight *first;
    uint32_t in_flight;
    bool armed;
    int timer_fd; /* -1: not asked for yet */
    struct cl_blk_stats stats;
};

struct fault_blk {
    struct cl_blk blk;
    struct cl_blk *inner;
    struct cl_blk_fault_config config;
    pthread_mutex_t lock; /* of all that follows */
    struct cl_random fates, crashes;
    uint64_t served; /* since the configuration was set */
    bool failed;     /* after fail_after requests */
    struct cl_blk_cache cache;
    struct cl_blk_fault_counts counts;
    uint64_t *unreadable; /* a bit a block; NULL: there never was one */
    struct flight *free;
    struct queue *queues;
};

static inline void flight_put(struct fault_blk *f, struct flight *t)
{
    t->next = f->free;
    f->free = t;
}

/* f->unreadable is there. */
static inline void set_unreadable(struct fault_blk *f, uint64_t offset, uint64_t bytes, bool on)
{
    uint64_t first = offset / f->blk.block_bytes, end = (offset + bytes - 1) / f->blk.block_bytes;
    for (uint64_t i = first; i <= end; i++)
        f->unreadable[i / 64] = (f->unreadable[i / 64] & ~(1ull << i % 64)) | (uint64_t)on << i % 64;
}

static inline int do_flush(struct fault_blk *f, unsigned queue, struct flight *t)
{
    if (t->fate != FATE_ERROR)
        return cl_blk_cache_flush(&f->cache, queue, t->number);
    f->counts.flush_errors++;
    cl_blk_cache_flush_badly(&f->cache, queue, t->number, &f->fates);
    return -EIO;
}

#endif
