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

#endif
