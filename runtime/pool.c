/* See pool.h. The depot is a stack under a spinlock taken once per half cache; a thread preempted inside it delays the
 * others by its time slice at worst, so waiters yield the core after a short spin. */
#include "pool.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct cl_pool_cache {
    uint32_t count; /* writer: the owning thread; readers: cl_pool_available (relaxed) */
    uint32_t index[CL_POOL_CACHE];
} CL_ALIGNED(CL_CACHELINE);

struct cl_pool {
    uint32_t capacity, n_caches;
    struct cl_pool_cache *caches;
    uint32_t lock CL_ALIGNED(CL_CACHELINE); /* guards depot and depot_count */
    uint32_t depot_count;
    uint32_t *depot;
};

static void depot_lock(struct cl_pool *pool)
{
    for (unsigned spins = 0; cl_exchange(&pool->lock, 1); spins++) {
        if (spins < 100)
            cl_relax();
        else
            sched_yield();
    }
}

static void depot_unlock(struct cl_pool *pool)
{
    cl_store_release(&pool->lock, 0);
}

struct cl_pool *cl_pool_new(uint32_t first, uint32_t capacity, uint32_t n_caches)
{
    struct cl_pool *pool = aligned_alloc(CL_CACHELINE, sizeof(*pool));
    if (!pool)
        return NULL;
    memset(pool, 0, sizeof(*pool));
    pool->capacity = capacity;
    pool->n_caches = cl_max(n_caches, 1u);
    pool->caches = aligned_alloc(CL_CACHELINE, pool->n_caches * sizeof(*pool->caches));
    pool->depot = malloc(cl_max(capacity, 1u) * sizeof(*pool->depot));
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
    free(pool);
}

static void refill(struct cl_pool *pool, struct cl_pool_cache *c)
{
    depot_lock(pool);
    uint32_t n = cl_min(pool->depot_count, CL_POOL_CACHE / 2u);
    pool->depot_count -= n;
    /* Order is kept: what was on top of the depot is on top of the cache. */
    memcpy(&c->index[c->count], &pool->depot[pool->depot_count], n * sizeof(uint32_t));
    cl_store_relaxed(&c->count, c->count + n);
    depot_unlock(pool);
}

static void spill(struct cl_pool *pool, struct cl_pool_cache *c)
{
    /* The bottom half goes: the coldest. */
    const uint32_t n = CL_POOL_CACHE / 2;
    depot_lock(pool);
    memcpy(&pool->depot[pool->depot_count], c->index, n * sizeof(uint32_t));
    pool->depot_count += n;
    memmove(c->index, &c->index[n], (c->count - n) * sizeof(uint32_t));
    cl_store_relaxed(&c->count, c->count - n);
    depot_unlock(pool);
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
        unsigned take = cl_min(n - got, c->count);
        uint32_t count = c->count;
        for (unsigned i = 0; i < take; i++)
            out[got++] = c->index[--count];
        cl_store_relaxed(&c->count, count);
    }
    return got;
}

void cl_pool_put(struct cl_pool *pool, unsigned cache, const uint32_t *in, unsigned n)
{
    struct cl_pool_cache *c = &pool->caches[cache];
    for (unsigned i = 0; i < n; i++) {
        if (c->count == CL_POOL_CACHE)
            spill(pool, c);
        uint32_t count = c->count;
        c->index[count] = in[i];
        cl_store_relaxed(&c->count, count + 1);
    }
}

uint32_t cl_pool_available(const struct cl_pool *pool)
{
    uint32_t sum = cl_load_relaxed(&pool->depot_count);
    for (uint32_t i = 0; i < pool->n_caches; i++)
        sum += cl_load_relaxed(&pool->caches[i].count);
    return sum;
}

uint32_t cl_pool_capacity(const struct cl_pool *pool)
{
    return pool->capacity;
}
