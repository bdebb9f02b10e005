/* Spinlock for sections of a few instructions, and the list of waiting uthreads that such a lock guards.
 *
 * The holder may be preempted by the kernel (more kthreads than cores, a foreign thread posting a semaphore), so a
 * waiter that has spun for about a microsecond gives its core away with sched_yield() instead of burning the holder's
 * time. A lock held by a uthread that is being switched out is released by the context switched to, on the same
 * kthread. */
#ifndef CORELANE_LIBOS_SPIN_H
#define CORELANE_LIBOS_SPIN_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* Zero is an unlocked lock. */
struct cl_spin {
    uint32_t word; /* writers and readers: anybody; 0 free, 1 held */
};
// cffi: end

/* Spinlocks that the calling thread holds. A kthread that holds one is not made to wait for its core by an interrupt:
 * its siblings would spin. A lock is released on the thread that took it. */
extern CL_API __thread uint32_t cl_spins_held __attribute__((tls_model("initial-exec")));

/* Relaxed: only the thread's own interrupts read it. Atomic, since uthreads of one kthread share it, which TSan takes
 * for threads that race. */
static inline void cl_spins_count(uint32_t add)
{
    cl_store_relaxed(&cl_spins_held, cl_load_relaxed(&cl_spins_held) + add);
}

/* The slow half of cl_spin_lock. */
CL_API void cl_spin_wait(struct cl_spin *l);

static inline bool cl_spin_try(struct cl_spin *l)
{
    cl_spins_count(1); /* before: an interrupt may come in between */
    /* Acquire: the previous holder's writes happen before ours. */
    if (__atomic_exchange_n(&l->word, 1, __ATOMIC_ACQUIRE) == 0)
        return true;
    cl_spins_count(-1u);
    return false;
}

static inline void cl_spin_lock(struct cl_spin *l)
{
    if (cl_unlikely(!cl_spin_try(l)))
        cl_spin_wait(l);
}

static inline void cl_spin_unlock(struct cl_spin *l)
{
    cl_store_release(&l->word, 0); /* release: our writes happen before the next holder's */
    cl_spins_count(-1u);
}

/* Of a lock that nobody but this kthread ever takes (shared false): nothing is exchanged, but the section is still one
 * that no interrupt ends early, and in which nothing may block. */
static inline void cl_spin_lock_if(struct cl_spin *l, bool shared)
{
    if (shared)
        cl_spin_lock(l);
    else
        cl_spins_count(1);
}

static inline void cl_spin_unlock_if(struct cl_spin *l, bool shared)
{
    if (shared)
        cl_spin_unlock(l);
    else
        cl_spins_count(-1u);
}

CL_EXTERN_C_END
#endif
