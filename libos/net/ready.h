/* The ready queue of a kthread: flows that have something to be done and that nobody holds (flow.h), first in, first
 * out.
 *
 * Its kthread appends, and takes out what it runs; so do siblings that have made a flow ready whose home it is, and
 * siblings without work take half. A list under a lock, since any
 * number of flows may be ready, and since a burst is appended at once: a lock for a burst, and one for a turn of a
 * flow.
 *
 * With no other lock held: of two ready queues that of the victim is left before that of the thief is taken. */
#ifndef CORELANE_LIBOS_NET_READY_H
#define CORELANE_LIBOS_NET_READY_H

#include <corelane/libos/spin.h>
#include "flow.h"

/* Flows on their way into a queue. Private to a thread. */
struct cl_ready_list {
    struct cl_flow *first, *last;
    uint32_t n;
};

struct cl_ready {
    struct cl_spin lock CL_ALIGNED(CL_CACHELINE);
    bool shared; /* constant: there are siblings */
    /* Flows ever put and taken, modulo 2^32. Writers: under the lock; readers: anybody, relaxed. Both are exported as a
     * part of the inbox's positions. */
    uint32_t put, taken;
    struct cl_flow *first, *last; /* under the lock */
};

static inline void cl_ready_add(struct cl_ready_list *l, struct cl_flow *f)
{
    f->next_ready = NULL;
    if (l->last)
        l->last->next_ready = f;
    else
        l->first = f;
    l->last = f;
    l->n++;
}

/* Anybody: append what is on the list. */
static inline void cl_ready_push(struct cl_ready *r, const struct cl_ready_list *l)
{
    if (l->n == 0)
        return;
    cl_spin_lock_if(&r->lock, r->shared);
    if (r->last)
        r->last->next_ready = l->first;
    else
        r->first = l->first;
    r->last = l->last;
    cl_store_relaxed(&r->put, r->put + l->n);
    cl_spin_unlock_if(&r->lock, r->shared);
}

/* Anybody: flows that wait, at some instant of the call; never more than there were. */
static inline unsigned cl_ready_count(const struct cl_ready *r)
{
    /* Relaxed: a flow that is there when a full fence has passed (cl_work_source.ready) was put before it. `put` first:
     * the difference could only be too small by what is taken meanwhile, and is 0 then rather than less. */
    uint32_t put = cl_load_relaxed(&r->put), n = put - cl_load_relaxed(&r->taken);
    return n > INT32_MAX ? 0 : n;
}

/* The kthread: take the first. NULL: none waits. *next: the one that is first then, which may be another's by now. */
static inline struct cl_flow *cl_ready_pop(struct cl_ready *r, const struct cl_flow **next)
{
    *next = NULL;
    if (cl_ready_count(r) == 0)
        return NULL;
    cl_spin_lock_if(&r->lock, r->shared);
    struct cl_flow *f = r->first;
    if (f) {
        *next = r->first = f->next_ready;
        if (!r->first)
            r->last = NULL;
        cl_store_relaxed(&r->taken, r->taken + 1);
    }
    cl_spin_unlock_if(&r->lock, r->shared);
    return f;
}

/* Anybody: take up to n from the front. */
static inline void cl_ready_take(struct cl_ready *r, unsigned n, struct cl_ready_list *out)
{
    *out = (struct cl_ready_list){0};
    if (n == 0 || cl_ready_count(r) == 0)
        return;
    cl_spin_lock_if(&r->lock, r->shared);
    for (struct cl_flow *f; out->n < n && (f = r->first);) {
        r->first = f->next_ready;
        cl_ready_add(out, f);
    }
    if (!r->first)
        r->last = NULL;
    cl_store_relaxed(&r->taken, r->taken + out->n);
    cl_spin_unlock_if(&r->lock, r->shared);
}

#endif
