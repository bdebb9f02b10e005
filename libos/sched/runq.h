/* Run queue of one kthread: a ring of 256 uthreads that its owner pushes to and anybody takes from, and an overflow
 * list.
 *
 * First in, first out: while the overflow list is not empty the owner pushes there, so what is in the ring is always
 * older than what is in the list, and a ring that has run empty is refilled from the list.
 *
 *   head   taken up to here. Writers: owner and thieves by CAS; readers: all.
 *   tail   pushed up to here. Writer: owner (release: the slot and the uthread's saved context come before). Readers:
 *          all.
 *   ring   writer: owner, only between tail and head + 256; readers: all. A thief copies slots first, and then wins or
 *          loses them by the CAS on head: a slot can have been overwritten only if head has moved on.
 *   list   guarded by the lock; its length is also read without it.
 * Positions are 32 bits; a thief that sleeps between its load and its CAS while exactly 2^32 uthreads pass would be
 * fooled.
 *
 * With one kthread nobody steals (`shared` false), and taking needs no CAS. The idea of the ring is that of Go's run
 * queues. Tests: tests/libos/sched/c/runq_model.c (against a model), runq_stress.c (TSan). */
#ifndef CORELANE_LIBOS_SCHED_RUNQ_H
#define CORELANE_LIBOS_SCHED_RUNQ_H

#include "internal.h"

#define CL_RUNQ_REFILL 128 /* moved from the overflow list to the ring, or stolen, at most at one time */

/* The slow half of push and pop. */
void cl_runq_overflow(struct cl_runq *q, struct cl_uthread *t);
struct cl_uthread *cl_runq_refill(struct cl_runq *q);
/* Take half of the victim's uthreads, rounded up, the oldest first. The first is returned, the others are pushed to
 * `own`, which belongs to the caller and is empty; *n is the number taken. NULL if there are none. */
struct cl_uthread *cl_runq_steal(struct cl_runq *own, struct cl_runq *victim, unsigned *n);

/* uthreads in the queue. Exact for the owner while nobody steals; else it was so at some time. */
static inline uint32_t cl_runq_len(const struct cl_runq *q)
{
    /* Relaxed: a hint; head is loaded first so that the difference is never negative for the owner. */
    uint32_t head = cl_load_relaxed(&q->head);
    return cl_load_relaxed(&q->tail) - head + cl_load_relaxed(&q->n_overflow);
}

/* Owner. Returns the length after it (at least 1 even if a thief is quick). */
static inline uint32_t cl_runq_push(struct cl_runq *q, struct cl_uthread *t)
{
    uint32_t tail = q->tail; /* only we write it */
    /* Acquire: a thief's copy of the slot that we are about to overwrite happens before. */
    uint32_t used = tail - cl_load_acquire(&q->head);
    if (cl_unlikely(used >= CL_RUNQ_SIZE || cl_load_relaxed(&q->n_overflow))) {
        cl_runq_overflow(q, t);
        return CL_RUNQ_SIZE;
    }
    cl_store_relaxed(&q->ring[tail % CL_RUNQ_SIZE], t); /* published by tail */
    cl_store_release(&q->tail, tail + 1);
    return used + 1;
}

/* Owner. NULL if empty. */
static inline struct cl_uthread *cl_runq_pop(struct cl_runq *q)
{
    /* Relaxed: the slots are our own stores; whether they are still ours the CAS tells. */
    uint32_t head = cl_load_relaxed(&q->head);
    while (head != q->tail) {
        struct cl_uthread *t = cl_load_relaxed(&q->ring[head % CL_RUNQ_SIZE]);
        if (!q->shared) {
            cl_store_relaxed(&q->head, head + 1);
            return t;
        }
        /* Release: pairs with the acquire load in push of a later thief turned owner; costs nothing on x86. */
        if (cl_likely(
                __atomic_compare_exchange_n(&q->head, &head, head + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)))
            return t;
    }
    return cl_unlikely(cl_load_relaxed(&q->n_overflow)) ? cl_runq_refill(q) : NULL;
}

#endif
