/* See pool.h. The depot is a stack under a spinlock taken once per half cache; a thread preempted inside it delays the
 * others by its time slice at worst, so waiters yield the core after a short spin. */
#include "pool.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void depot_lock(struct cl_pool *pool)
{
    for (unsigned spins = 0; cl_exchange(&pool->lock, 1); spins++) {
        /* Wait on loads, so that the line is shared among the waiters until it is free. */
        while (cl_load_relaxed(&pool->lock)) {
            if (spins++ < 100)
                cl_relax();
            else
                sched_yield();
        }
    }
}

static void depot_unlock(struct cl_pool *pool)
{
    cl_store_release(&pool->lock, 0); /* release: the depot is consistent before the next holder reads it */
}

struct cl_pool *cl_pool_new(uint32_t first, uint32_t capacity, uint32_t n_caches)
{
    if ((uint64_t)first + capacity > UINT32_MAX)
        return NULL;
    struct cl_pool *pool = aligned_alloc(CL_CACHELINE, sizeof(*pool));
    if (!pool)
        return NULL;
    memset(pool, 0, sizeof(*pool));
    pool->first = first;
    pool->capacity = capacity;
    pool->n_caches = cl_max(n_caches, 1u);
    pool->cache_limit = cl_min(capacity / 2 / pool->n_caches, (uint32_t)CL_POOL_CACHE) & ~1u;
    pool->cache_limit = cl_max(pool->cache_limit, 2u);
    pool->caches = aligned_alloc(CL_CACHELINE, pool->n_caches * sizeof(*pool->caches));
    pool->depot = malloc(cl_max(capacity, 1u) * sizeof(*pool->depot));
#ifdef CORELANE_DEBUG
    pool->out = calloc(capacity / 64 + 1, sizeof(*pool->out));
    if (!pool->out) {
        cl_pool_delete(pool);
        return NULL;
    }
#endif
    if (!pool->caches || !pool->depot) {
        cl_pool_delete(pool);
        return NULL;
    }
    for (uint32_t i = 0; i < pool->n_caches; i++)
        pool->caches[i].count = 0;
    for (uint32_t i = 0; i < capacity; i++)
        pool->depot[i] = first + capacity - 1 - i; /* low indices on top: used first, the rest stays untouched */
    pool->depot_count = capacity;
    return pool;
}

void cl_pool_delete(struct cl_pool *pool)
{
    if (!pool)
        return;
    free(pool->caches);
    free(pool->depot);
    free(pool->out);
    free(pool);
}

static void refuse(struct cl_pool *pool, uint64_t n)
{
    __atomic_fetch_add(&pool->errors, n, __ATOMIC_RELAXED);
}

#ifdef CORELANE_DEBUG
/* Set or clear the bit of an index; false if it is of another pool or the bit was so already. */
static bool mark(struct cl_pool *pool, uint32_t index, bool out)
{
    uint32_t i = index - pool->first;
    if (i >= pool->capacity)
        return false;
    uint64_t bit = 1ull << (i & 63);
    uint64_t old = out ? __atomic_fetch_or(&pool->out[i / 64], bit, __ATOMIC_RELAXED)
                       : __atomic_fetch_and(&pool->out[i / 64], ~bit, __ATOMIC_RELAXED);
    return !(old & bit) == out;
}
#endif

static void refill(struct cl_pool *pool, struct cl_pool_cache *c)
{
    depot_lock(pool);
    uint32_t n = cl_min(pool->depot_count, pool->cache_limit / 2);
    uint32_t left = pool->depot_count - n;
    /* Order is kept: what was on top of the depot is on top of the cache. */
    memcpy(&c->index[c->count], &pool->depot[left], n * sizeof(uint32_t));
    cl_store_relaxed(&pool->depot_count, left);
    cl_store_relaxed(&c->count, c->count + n);
    depot_unlock(pool);
}

static void spill(struct cl_pool *pool, struct cl_pool_cache *c)
{
    /* The bottom half goes: the coldest. More than the capacity comes only of double frees: those are refused. */
    const uint32_t half = pool->cache_limit / 2;
    depot_lock(pool);
    uint32_t n = cl_min(half, pool->capacity - pool->depot_count);
    memcpy(&pool->depot[pool->depot_count], c->index, n * sizeof(uint32_t));
    cl_store_relaxed(&pool->depot_count, pool->depot_count + n);
    memmove(c->index, &c->index[half], (c->count - half) * sizeof(uint32_t));
    cl_store_relaxed(&c->count, c->count - half);
    depot_unlock(pool);
    if (cl_unlikely(n < half))
        refuse(pool, half - n);
}

unsigned cl_pool_get(struct cl_pool *pool, unsigned cache, uint32_t *out, unsigned n)
{
    struct cl_pool_cache *c = &pool->caches[cache];
    unsigned got = 0;
    while (got < n) {
        if (c->count == 0) {
            refill(pool, c);
            if (c->count == 0)
                break;
        }
        uint32_t take = cl_min(n - got, c->count), left = c->count - take;
        memcpy(&out[got], &c->index[left], take * sizeof(uint32_t));
        got += take;
        cl_store_relaxed(&c->count, left);
    }
#ifdef CORELANE_DEBUG
    for (unsigned i = 0; i < got; i++)
        if (!mark(pool, out[i], true))
            refuse(pool, 1);
#endif
    return got;
}

void cl_pool_put(struct cl_pool *pool, unsigned cache, const uint32_t *in, unsigned n)
{
    struct cl_pool_cache *c = &pool->caches[cache];
    while (n > 0) {
        if (c->count == pool->cache_limit)
            spill(pool, c);
        uint32_t take = cl_min(n, pool->cache_limit - c->count), count = c->count;
#ifdef CORELANE_DEBUG
        for (uint32_t i = 0; i < take; i++) {
            if (mark(pool, in[i], false))
                c->index[count++] = in[i];
            else
                refuse(pool, 1);
        }
#else
        memcpy(&c->index[count], in, take * sizeof(uint32_t));
        count += take;
#endif
        cl_store_relaxed(&c->count, count);
        in += take;
        n -= take;
    }
}

uint32_t cl_pool_available(const struct cl_pool *pool)
{
    uint32_t sum = cl_load_relaxed(&pool->depot_count);
    for (uint32_t i = 0; i < pool->n_caches; i++)
        sum += cl_load_relaxed(&pool->caches[i].count);
    return sum;
}

uint64_t cl_pool_errors(const struct cl_pool *pool)
{
    return cl_load_relaxed(&pool->errors);
}
