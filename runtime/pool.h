/* Buffer pool: indices of fixed-size buffers, a cache for each thread, a locked depot behind them.
 *
 * The pool hands out indices 0..capacity-1 and never touches the buffers, so one implementation serves arenas, UMEM and
 * software NICs. Caches are last-in first-out: a steady flow reuses the few buffers that are warm in the core's cache,
 * and memory that was never needed is never touched. All of it is private memory of one process.
 *
 * Invariant: indices in all caches + depot + held by users = capacity (asserted by tests/runtime/test_pool.py). */
#ifndef CORELANE_RUNTIME_POOL_H
#define CORELANE_RUNTIME_POOL_H

#include <corelane/runtime/base.h>

#define CL_POOL_CACHE 128 /* indices a thread's cache holds at most; half of it moves at a time */

// cffi: begin
struct cl_pool;

/* New pool of `capacity` indices from `first` on, with `n_caches` caches. NULL if out of memory, or if first + capacity
 * does not fit 32 bits. */
CL_API struct cl_pool *cl_pool_new(uint32_t first, uint32_t capacity, uint32_t n_caches);
CL_API void cl_pool_delete(struct cl_pool *pool);
/* Take up to n indices through cache `cache`; returns how many there were. */
CL_API unsigned cl_pool_get(struct cl_pool *pool, unsigned cache, uint32_t *out, unsigned n);
/* Give n indices back through cache `cache`. The caller held them; see cl_pool_errors. */
CL_API void cl_pool_put(struct cl_pool *pool, unsigned cache, const uint32_t *in, unsigned n);
/* Indices not held by users. Exact when no thread is inside get or put. */
CL_API uint32_t cl_pool_available(const struct cl_pool *pool);
/* Indices refused in put: with CORELANE_DEBUG each one that was not out; else only those beyond the capacity. */
CL_API uint64_t cl_pool_errors(const struct cl_pool *pool);
// cffi: end

struct cl_pool_cache {
    uint32_t count; /* writer: the owning thread; readers: cl_pool_available (relaxed) */
    uint32_t index[CL_POOL_CACHE];
} CL_ALIGNED(CL_CACHELINE);

struct cl_pool {
    /* Constant after creation. */
    uint32_t first, capacity, n_caches;
    uint32_t cache_limit; /* indices a cache holds at most; even */
    struct cl_pool_cache *caches;
    uint32_t *depot;
    uint64_t *out; /* CORELANE_DEBUG: bit i set while index first + i is held by a user (atomic, relaxed) */
    /* In a line of its own: what threads that refill and spill fight over. */
    uint32_t lock CL_ALIGNED(CL_CACHELINE); /* guards depot and depot_count */
    uint32_t depot_count;                   /* writer: holder of the lock; readers: cl_pool_available (relaxed) */
    uint64_t errors;                        /* any thread, relaxed adds: a count and nothing more */
};

/* One index, in line where the cache has it. False: there is none. */
static inline bool cl_pool_get_one(struct cl_pool *pool, unsigned cache, uint32_t *out)
{
#ifndef CORELANE_DEBUG
    struct cl_pool_cache *c = &pool->caches[cache];
    uint32_t n = c->count;
    if (cl_likely(n)) {
        *out = c->index[n - 1];
        cl_store_relaxed(&c->count, n - 1);
        return true;
    }
#endif
    return cl_pool_get(pool, cache, out, 1);
}

/* The same of giving one back. */
static inline void cl_pool_put_one(struct cl_pool *pool, unsigned cache, uint32_t index)
{
#ifndef CORELANE_DEBUG
    struct cl_pool_cache *c = &pool->caches[cache];
    uint32_t n = c->count;
    if (cl_likely(n < pool->cache_limit)) {
        c->index[n] = index;
        cl_store_relaxed(&c->count, n + 1);
        return;
    }
#endif
    cl_pool_put(pool, cache, &index, 1);
}

#endif
