/* See ahead.h. */
#include "ahead.h"
#include "pages.h"

/* The first item whose page may be missing: what has left the depot was touched, but for what waits in caches. */
static uint32_t first_missing(const struct cl_ahead *a, uint32_t fetched)
{
    uint32_t used = cl_ahead_used(a), cached = a->pool->n_caches * CL_POOL_CACHE;
    return cl_max(fetched, used > cached ? used - cached : 0);
}

bool cl_ahead_fetch(struct cl_ahead *a)
{
    uint32_t fetched = cl_load_relaxed(&a->fetched), goal = cl_ahead_goal(a);
    if (cl_likely(fetched >= goal))
        return false;
    uint32_t first = first_missing(a, fetched);
    uint32_t next = first + cl_min(goal - first, cl_max(CL_AHEAD_BYTES / a->item_bytes, 1u));
    /* Of several one does it, and the others the next. */
    if (!__atomic_compare_exchange_n(&a->fetched, &fetched, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return true;
    if (!cl_pages_fetch(a->base + (uint64_t)first * a->item_bytes, (uint64_t)(next - first) * a->item_bytes))
        cl_store_relaxed(&a->fetched, a->pool->capacity);
    return true;
}
