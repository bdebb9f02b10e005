/* Requests in queues by type: which one is next.
 *
 * A handler may sort its requests into types, each with a target for how long a request should wait (cl_udp_types in
 * corelane/libos/udp.h). A kthread has one queue for each type, first in, first out; the next request is the head of
 * that queue whose head has waited longest for its target, after Shinjuku (NSDI 2019). A head that waits gets more
 * urgent without bound, so no type starves while others are served.
 *
 * An entry is a datagram, or a uthread that was switched away from in the middle of one since its quantum was over.
 * That one goes to the end of its type's queue, waits anew, and so shares the processor with those like it. Counted
 * from the arrival of its datagram its wait would grow while it runs, and a long request that is nearly done would go
 * before short ones for all of its rest.
 *
 *   poll (receive.c) --classify--> ring of the type --choose--> handler, on a runner (handler.c)
 *                                    ^                                |
 *                                    +---- quantum over (preempted) --+
 *
 * Each ring is an inbox (inbox.h): the kthread puts, anybody takes, so that siblings can help. Types belong to a
 * runtime: handlers that sort bring theirs, up to CL_UDP_TYPES in all, and the rule is applied to all of them together.
 *
 * Tests: tests/libos/handlers/test_typed.py (the rule against a model; the whole path),
 * tests/libos/net/c/typed_stress.c (TSan). */
#ifndef CORELANE_LIBOS_NET_TYPED_H
#define CORELANE_LIBOS_NET_TYPED_H

#include <corelane/libos/udp.h>
#include "inbox.h"

struct cl_netif;

/* The types of a runtime. Writer: cl_udp_bind_typed, under its lock. */
struct cl_types {
    uint32_t n; /* in use; release: after the rings and the target; readers: kthreads, acquire */
    uint64_t target_ticks[CL_UDP_TYPES]; /* constant from then on, > 0 */
};

/* What a kthread owns of them. */
struct cl_typed {
    const struct cl_types *types;
    struct cl_inbox *ring[CL_UDP_TYPES]; /* constant from when types->n counts it */
    uint32_t put; /* entries, ever. Writer: the kthread; readers: anybody, relaxed: for display */
    uint32_t taken CL_ALIGNED(CL_CACHELINE); /* the same. Writers: anybody, by addition, relaxed */
};

/* When the head of a ring came; what it was a moment ago if siblings take, which makes the choice a worse one for
 * once. */
static inline uint64_t cl_typed_head_tsc(const struct cl_inbox *ring)
{
    return cl_load_relaxed(&ring->items[cl_load_relaxed(&ring->head) & ring->mask][CL_RX_ITEM_TSC]);
}

/* Anybody: the type whose head is next, or -1: nothing waits. Of equals the one of the lower target, then the first. */
static inline int cl_typed_choose(const struct cl_typed *q, uint64_t now_tsc)
{
    const struct cl_types *types = q->types;
    uint32_t n = cl_load_acquire(&types->n);
    uint64_t most = 0, target = 1;
    int best = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (cl_inbox_count(q->ring[i]) == 0)
            continue;
        uint64_t came = cl_typed_head_tsc(q->ring[i]), of = types->target_ticks[i];
        uint64_t waited = now_tsc > came ? now_tsc - came : 0; /* stamps of another core may be ahead */
        /* waited / of against most / target, without the division. */
        unsigned __int128 left = (unsigned __int128)waited * target, right = (unsigned __int128)most * of;
        if (best >= 0 && (left < right || (left == right && of >= target)))
            continue;
        most = waited;
        target = of;
        best = (int)i;
    }
    return best;
}

/* Whether some type has a lower target than this one. */
static inline bool cl_typed_can_wait(const struct cl_types *types, unsigned type)
{
    uint32_t n = cl_load_acquire(&types->n);
    for (uint32_t i = 0; i < n; i++)
        if (types->target_ticks[i] < types->target_ticks[type])
            return true;
    return false;
}

/* The kthread: put an entry at the end. False: the queue is full. */
static inline bool cl_typed_put(struct cl_typed *q, unsigned type, const struct cl_rx_item *item)
{
    if (cl_inbox_space(q->ring[type]) == 0)
        return false;
    cl_inbox_put(q->ring[type], 0, item);
    cl_inbox_publish(q->ring[type], 1);
    cl_store_relaxed(&q->put, q->put + 1);
    return true;
}

/* Anybody: take the head of a type. False: siblings were faster. */
static inline bool cl_typed_take(struct cl_typed *q, unsigned type, struct cl_rx_item *out)
{
    if (!cl_inbox_take_one(q->ring[type], out))
        return false;
    __atomic_fetch_add(&q->taken, 1, __ATOMIC_RELAXED); /* a count, nothing hangs on it */
    return true;
}

/* Anybody: entries that wait. Says 0 only of queues each of which was empty at some moment of the call. */
static inline unsigned cl_typed_count(const struct cl_typed *q)
{
    uint32_t n = cl_load_acquire(&q->types->n);
    unsigned sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += cl_inbox_count(q->ring[i]);
    return sum;
}

/* A handler that sorts. -EINVAL, -ENOSPC, -ENOMEM with a reason in err, and what binding answers. */
int cl_udp_bind_typed(struct cl_netif *nif, uint16_t port, cl_udp_handler fn, void *arg,
                      const struct cl_udp_types *types, char err[256]);
/* Give the datagrams that wait back to the NIC. No kthread runs. */
void cl_typed_drain(struct cl_netif *nif);
void cl_typed_delete(struct cl_netif *nif);

#endif
