/* Mutex: see corelane/libos/sync.h for the policy.
 *
 * word = owner | WAITERS | WOKEN. 0 -> owner and owner -> 0 go by one CAS each; everything else, any transition from or
 * to a word with a bit set, happens under the guard. So under the guard, a word that names the holder of the guard as
 * owner or that has a bit set changes only by us. WOKEN says that a waiter was woken and has not yet come: unlock then
 * wakes no second one. */
#include "wait.h"

#define WAITERS 1ull
#define WOKEN 2ull
#define BITS 3ull
#define LOSSES 4 /* after so many an unlock gives the mutex instead of freeing it */

void cl_mutex_init(struct cl_mutex *m)
{
    *m = (struct cl_mutex){0};
}

static inline bool swap(struct cl_mutex *m, uint64_t *old, uint64_t new)
{
    /* Acquire for taking, release for freeing. */
    return __atomic_compare_exchange_n(&m->word, old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Under the guard: take the mutex, or leave it marked as waited for. Returns whether it was taken. */
static bool take_or_mark(struct cl_mutex *m, struct cl_waiter *w, bool was_woken)
{
    uint64_t me = (uint64_t)(uintptr_t)w->t, old = cl_load_relaxed(&m->word);
    for (;;) {
        uint64_t bits = (old & BITS) & ~(was_woken ? WOKEN : 0);
        uint64_t new = old & ~BITS ? (old & ~BITS) | bits | WAITERS : me | bits;
        if (swap(m, &old, new))
            return (old & ~BITS) == 0;
    }
}

static CL_NOINLINE int lock_slow(struct cl_mutex *m, struct cl_kthread *k)
{
    struct cl_waiter w;
    if ((cl_load_relaxed(&m->word) & ~BITS) == (uint64_t)(uintptr_t)k->current)
        return -EDEADLK;
    int rc = cl_wait_begin(&w, k->current, &m->guard);
    if (rc)
        return rc;
    for (bool woken = false;; woken = true) {
        cl_spin_lock(&m->guard);
        bool taken = take_or_mark(m, &w, woken);
        if (taken || w.cancelled) { /* one that was woken has cleared WOKEN: an unlock wakes the next one */
            cl_spin_unlock(&m->guard);
            rc = taken ? 0 : -ECANCELED;
            break;
        }
        cl_wait_push(&m->waiters, &w, woken); /* one that lost goes back to its place at the front */
        if (k->trace)
            cl_waits_for(k, CL_TRACE_WAITS_MUTEX, m, cl_load_relaxed(&m->word) & ~BITS);
        cl_block(k, CL_AFTER_UNLOCK, &m->guard);
        if (w.given || w.result) {
            rc = w.result;
            break;
        }
        w.lost++;
        k = cl_kthread_self();
    }
    cl_wait_end(&w);
    return rc;
}

int cl_mutex_lock(struct cl_mutex *m)
{
    struct cl_kthread *k = cl_kthread_self();
    uint64_t old = 0;
    if (!cl_may_block(k))
        return -EDEADLK;
    if (cl_likely(swap(m, &old, (uint64_t)(uintptr_t)k->current)))
        return 0;
    return lock_slow(m, k);
}

int cl_mutex_trylock(struct cl_mutex *m)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k || !k->current)
        return -EDEADLK;
    uint64_t old = 0, me = (uint64_t)(uintptr_t)k->current;
    if (swap(m, &old, me))
        return 0;
    if (old & ~BITS)
        return -EBUSY;
    cl_spin_lock(&m->guard); /* free, but with bits */
    old = cl_load_relaxed(&m->word);
    bool taken = (old & ~BITS) == 0 && swap(m, &old, me | (old & BITS));
    cl_spin_unlock(&m->guard);
    return taken ? 0 : -EBUSY;
}

static CL_NOINLINE int unlock_slow(struct cl_mutex *m, uint64_t me)
{
    for (;;) {
        uint64_t word = cl_load_relaxed(&m->word);
        if ((word & ~BITS) != me)
            return -EPERM;
        if (word == me && swap(m, &word, 0))
            return 0;
        cl_spin_lock(&m->guard);
        word = cl_load_relaxed(&m->word);
        struct cl_waiter *w = word & WOKEN ? NULL : cl_wait_pop(&m->waiters);
        uint64_t rest = m->waiters.first ? WAITERS : 0;
        if (w) {
            w->given = w->lost >= LOSSES;
            /* Release: our critical section happens before the next one. */
            cl_store_release(&m->word, rest | (w->given ? (uint64_t)(uintptr_t)w->t : WOKEN));
        } else if (word & WOKEN) {
            cl_store_release(&m->word, rest | WOKEN);
        } else {
            /* Nobody is left. Freed by the CAS above, after the guard: the next owner may free the memory. */
            cl_store_relaxed(&m->word, me);
        }
        cl_spin_unlock(&m->guard);
        if (w)
            cl_uthread_ready(w->t);
        if (w || (word & WOKEN))
            return 0;
    }
}

int cl_mutex_unlock(struct cl_mutex *m)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k || !k->current)
        return -EPERM;
    uint64_t me = (uint64_t)(uintptr_t)k->current, old = me;
    if (cl_likely(swap(m, &old, 0)))
        return 0;
    return unlock_slow(m, me);
}
