/* Pages of what a pool hands out (pool.h), fetched before they are needed.
 *
 * Memory that was never needed takes no pages, so the first use of each waits for the kernel: 2 us a page in a virtual
 * machine, 7 us where its host has to find one, too (measured). That is some ten times what a request takes. Whoever
 * makes others need memory, by a thousand connections of which each has a piece of it wait, delays everybody so. Here
 * whoever has nothing else to do fetches the pages of what will be handed out next, some of them at a time, and stays
 * in front of what is in use: by CL_AHEAD_TIMES as many items as that is, and by `ahead` at most. So who needs little
 * takes little; until something is in use nothing is fetched.
 *
 * Which come next is known, as pools are last in, first out, and begin with low indices on top: those in use have never
 * been more than the depot has ever lacked.
 *
 * Threads: any may call, several at one time. Tests: tests/runtime/test_ahead.py. */
#ifndef CORELANE_RUNTIME_AHEAD_H
#define CORELANE_RUNTIME_AHEAD_H

#include "pool.h"

#define CL_AHEAD_BYTES 8192 /* fetched at a time: some 5 us */
#define CL_AHEAD_TIMES 4

struct cl_ahead {
    /* Constant: the pool, whose first index is 0, and where its items lie, one behind the other, in private memory. */
    const struct cl_pool *pool;
    uint8_t *base;
    uint32_t item_bytes, ahead;
    uint32_t fetched; /* items: those in front of it need no page any more. By compare and swap; relaxed: a hint */
};

/* Items that have left the depot. Relaxed: a hint. */
static inline uint32_t cl_ahead_used(const struct cl_ahead *a)
{
    return a->pool->capacity - cl_load_relaxed(&a->pool->depot_count);
}

/* Up to where pages are to be there. */
static inline uint32_t cl_ahead_goal(const struct cl_ahead *a)
{
    uint32_t used = cl_ahead_used(a), left = a->pool->capacity - used;
    uint64_t ahead = cl_min((uint64_t)used * CL_AHEAD_TIMES, (uint64_t)a->ahead);
    return used + (uint32_t)cl_min((uint64_t)left, ahead);
}

/* Fetch some pages, if any are due. False: none are. Where the kernel cannot (before Linux 5.14, or out of memory) it
 * is not asked again, and pages come when they are touched. */
bool cl_ahead_fetch(struct cl_ahead *a);

#endif
