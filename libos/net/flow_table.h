/* Flows by their keys: buckets with a lock each, which also guards the flows in them (flow.h).
 *
 * Any kthread finds, enters and removes; where there is one alone, it does without the locks. There is no look-up
 * without the lock: a frame is appended to what it finds, and needs the bucket's line for itself anyway. As many
 * buckets as flows may exist, so that chains are short; the secret hash keeps a peer from making one long. */
#ifndef CORELANE_LIBOS_NET_FLOW_TABLE_H
#define CORELANE_LIBOS_NET_FLOW_TABLE_H

#include <corelane/libos/spin.h>
#include "flow.h"

struct cl_flow_bucket {
    struct cl_flow *first; /* under the lock */
    struct cl_spin lock;
};

struct cl_flow_table {
    struct cl_flow_secret secret; /* constant, as the rest */
    uint64_t mask;                /* buckets - 1 */
    bool shared;                  /* by several kthreads */
    struct cl_flow_bucket *buckets;
};

static inline struct cl_flow_bucket *cl_flow_bucket(const struct cl_flow_table *t, uint64_t hash)
{
    return &t->buckets[hash & t->mask];
}

static inline void cl_flow_lock(const struct cl_flow_table *t, struct cl_flow_bucket *b)
{
    cl_spin_lock_if(&b->lock, t->shared);
}

static inline void cl_flow_unlock(const struct cl_flow_table *t, struct cl_flow_bucket *b)
{
    cl_spin_unlock_if(&b->lock, t->shared);
}

/* Under the bucket's lock, all that follows. NULL: there is none. */
static inline struct cl_flow *cl_flow_find(const struct cl_flow_bucket *b, const struct cl_flow_key *key)
{
    struct cl_flow *f = b->first;
    while (f && !cl_flow_key_equal(&f->key, key))
        f = f->next;
    return f;
}

static inline void cl_flow_enter(struct cl_flow_bucket *b, struct cl_flow *f)
{
    f->next = b->first;
    b->first = f;
}

static inline void cl_flow_remove(struct cl_flow_bucket *b, const struct cl_flow *f)
{
    struct cl_flow **at = &b->first;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

#endif
