/* See queue.h. */
#include "queue.h"

#include "mark.h"

void cl_link_queue_init(struct cl_link_queue *q, const struct cl_link_config *c, uint64_t hz)
{
    *q = (struct cl_link_queue){.priorities = c->priorities ? c->priorities : 1,
                                .overhead_bytes = c->overhead_bytes,
                                .limit_bytes = c->queue_bytes ? c->queue_bytes : 1u << 20,
                                .ecn_bytes = c->ecn_bytes,
                                .rate_bps = c->rate_bps,
                                .hz = hz};
    for (unsigned p = 0; p < CL_LINK_PRIORITIES; p++)
        cl_link_list_init(&q->waiting[p]);
}

bool cl_link_wait(struct cl_link_queue *q, struct cl_link_store *s, uint32_t slot, bool *marked)
{
    struct cl_link_slot *f = &s->slots[slot];
    uint64_t *bytes = &q->bytes[f->priority];
    *marked = false;
    if (*bytes + f->len > q->limit_bytes)
        return false;
    if (q->ecn_bytes && *bytes >= q->ecn_bytes)
        *marked = cl_link_mark(cl_link_bytes(s, slot), f->len);
    *bytes += f->len;
    cl_link_push(s, &q->waiting[f->priority], slot);
    return true;
}

/* The priority to be served, -1: nothing waits. */
static int first_of(const struct cl_link_queue *q)
{
    for (int p = (int)q->priorities - 1; p >= 0; p--)
        if (q->waiting[p].first != CL_LINK_NONE)
            return p;
    return -1;
}

/* Send so many bytes from `begin` on. Returns when the last bit has left. */
static uint64_t occupy(struct cl_link_queue *q, uint64_t begin, uint32_t bytes)
{
    if (!q->rate_bps)
        return begin;
    if (begin > q->free_tsc)
        q->rest = 0; /* it was idle */
    /* 64 KiB at 32 GHz are 1.7e16: no overflow. */
    uint64_t work = (uint64_t)bytes * 8 * q->hz + q->rest;
    q->rest = work % q->rate_bps;
    q->free_tsc = begin + work / q->rate_bps;
    return q->free_tsc;
}

uint32_t cl_link_serve(struct cl_link_queue *q, struct cl_link_store *s, uint64_t now, uint64_t *left_tsc)
{
    int p = first_of(q);
    if (p < 0 || q->free_tsc > now)
        return CL_LINK_NONE;
    uint32_t slot = cl_link_pop(s, &q->waiting[p]);
    struct cl_link_slot *f = &s->slots[slot];
    q->bytes[p] -= f->len;
    *left_tsc = occupy(q, cl_max(q->free_tsc, f->at), f->len + q->overhead_bytes);
    return slot;
}

uint64_t cl_link_queue_next(const struct cl_link_queue *q)
{
    return first_of(q) < 0 ? UINT64_MAX : q->free_tsc;
}
