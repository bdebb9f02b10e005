/* See runq.h: the overflow list and stealing. */
#include "runq.h"

void cl_runq_overflow(struct cl_runq *q, struct cl_uthread *t)
{
    t->next = NULL;
    cl_spin_lock(&q->lock);
    if (q->last)
        q->last->next = t;
    else
        q->first = t;
    q->last = t;
    cl_store_relaxed(&q->n_overflow, q->n_overflow + 1);
    cl_store_relaxed(&q->beyond, q->beyond + 1);
    cl_spin_unlock(&q->lock);
    q->overflowed++;
}

/* Take up to n uthreads off the overflow list into out, oldest first. `own`: all but the first go to the ring. */
static unsigned take_overflow(struct cl_runq *q, struct cl_uthread **out, unsigned n, bool own)
{
    unsigned i = 0;
    cl_spin_lock(&q->lock);
    for (; i < n && q->first; i++) {
        out[i] = q->first;
        q->first = out[i]->next;
    }
    if (!q->first)
        q->last = NULL;
    cl_store_relaxed(&q->n_overflow, q->n_overflow - i);
    cl_store_relaxed(&q->beyond, q->beyond - (own && i ? i - 1 : 0));
    __atomic_fetch_add(&q->passed, own && i ? 1 : i, __ATOMIC_RELAXED); /* cede.c adds without the lock */
    cl_spin_unlock(&q->lock);
    return i;
}

/* Owner: append to an empty ring. */
static void append(struct cl_runq *q, struct cl_uthread **t, unsigned n)
{
    uint32_t tail = q->tail;
    (void)cl_load_acquire(&q->head); /* as in cl_runq_push: thieves' copies of these slots happen before */
    for (unsigned i = 0; i < n; i++)
        cl_store_relaxed(&q->ring[(tail + i) % CL_RUNQ_SIZE], t[i]);
    cl_store_release(&q->tail, tail + n);
}

struct cl_uthread *cl_runq_refill(struct cl_runq *q)
{
    struct cl_uthread *batch[CL_RUNQ_REFILL];
    unsigned n = take_overflow(q, batch, CL_RUNQ_REFILL, true);
    if (n > 1)
        append(q, batch + 1, n - 1);
    return n ? batch[0] : NULL;
}

/* Win the oldest half of the victim's ring. */
static unsigned grab(struct cl_runq *victim, struct cl_uthread **batch)
{
    for (;;) {
        uint32_t head = cl_load_acquire(&victim->head);     /* before tail, or the difference could be nonsense */
        uint32_t n = cl_load_acquire(&victim->tail) - head; /* acquire: the slots and contexts behind it */
        n -= n / 2;
        if (n == 0)
            return 0;
        if (n > CL_RUNQ_SIZE / 2) /* head moved between the two loads */
            continue;
        for (unsigned i = 0; i < n; i++)
            batch[i] = cl_load_relaxed(&victim->ring[(head + i) % CL_RUNQ_SIZE]);
        /* Release: the copies are done before the owner may overwrite; acquire: see push. */
        if (__atomic_compare_exchange_n(&victim->head, &head, head + n, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return n;
        cl_relax();
    }
}

struct cl_uthread *cl_runq_steal(struct cl_runq *own, struct cl_runq *victim, unsigned *n)
{
    struct cl_uthread *batch[CL_RUNQ_SIZE / 2];
    *n = grab(victim, batch);
    if (*n == 0 && cl_load_relaxed(&victim->n_overflow))
        *n =
            take_overflow(victim, batch, cl_min(CL_RUNQ_REFILL, (cl_load_relaxed(&victim->n_overflow) + 1) / 2), false);
    if (*n > 1)
        append(own, batch + 1, *n - 1);
    return *n ? batch[0] : NULL;
}
