/* Counting semaphore and wait group: see corelane/libos/sync.h.
 *
 * Both words are count << 1 | WAITERS. A semaphore with waiters has the count 0 (a post gives to a waiter directly); a
 * wait group with waiters has a count above 0. Setting WAITERS happens under the guard by CAS from a word that
 * justifies it. A waker touches the object no more once it has changed the word, or, with waiters, released the
 * guard. */
#include "sem.h"
#include "wait.h"

#define WAITERS 1ull
#define MAX_COUNT 0x7fffffffll

static inline bool swap(uint64_t *word, uint64_t *old, uint64_t new)
{
    /* Acquire for taking, release for giving. */
    return __atomic_compare_exchange_n(word, old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void cl_sem_init(struct cl_sem *s, uint32_t count)
{
    *s = (struct cl_sem){.word = (uint64_t)count << 1};
}

int cl_sem_trywait(struct cl_sem *s)
{
    uint64_t word = cl_load_relaxed(&s->word);
    while (word >> 1)
        if (swap(&s->word, &word, word - 2))
            return 0;
    return -EAGAIN;
}

/* Under the guard: take one, or leave the semaphore marked as waited for. Returns whether one was taken. */
static bool take_one_or_mark(struct cl_sem *s)
{
    uint64_t word = cl_load_relaxed(&s->word);
    for (;;) {
        bool take = word >> 1 != 0;
        if (swap(&s->word, &word, take ? word - 2 : WAITERS))
            return take;
    }
}

static int sem_wait_slow(struct cl_sem *s, struct cl_kthread *k, uint64_t deadline_ns, uint16_t what,
                         const void *object)
{
    struct cl_waiter w;
    bool timed = deadline_ns != CL_NEVER;
    int rc = cl_wait_begin(&w, k->current, &s->guard);
    if (rc)
        return rc;
    cl_spin_lock(&s->guard);
    if (take_one_or_mark(s)) {
        cl_spin_unlock(&s->guard);
        cl_wait_end(&w);
        return 0;
    }
    cl_wait_push(&s->waiters, &w, false);
    rc = w.cancelled ? -ECANCELED : timed ? cl_wait_arm(k, &w, deadline_ns) : 0;
    bool armed = timed && rc == 0;
    if (rc == 0) {
        cl_waits_for(k, what, object, 0);
        cl_block(k, CL_AFTER_UNLOCK, &s->guard);
        rc = w.result;
    } else {
        cl_wait_remove(&w); /* WAITERS may stay set: a post then finds nobody, and clears it */
        cl_spin_unlock(&s->guard);
    }
    if (armed)
        cl_wait_disarm(&w);
    cl_wait_end(&w);
    return rc;
}

int cl_sem_wait_as(struct cl_sem *s, uint64_t deadline_ns, uint16_t what, const void *object)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    return cl_sem_trywait(s) == 0 ? 0 : sem_wait_slow(s, k, deadline_ns, what, object);
}

int cl_sem_wait(struct cl_sem *s)
{
    return cl_sem_wait_as(s, CL_NEVER, CL_TRACE_WAITS_SEM, s);
}

int cl_sem_wait_until(struct cl_sem *s, uint64_t deadline_ns)
{
    return cl_sem_wait_as(s, deadline_ns, CL_TRACE_WAITS_SEM, s);
}

struct cl_uthread *cl_sem_give(struct cl_sem *s)
{
    for (;;) {
        uint64_t word = cl_load_relaxed(&s->word);
        while (!(word & WAITERS))
            if (swap(&s->word, &word, word + 2))
                return NULL;
        cl_spin_lock(&s->guard);
        if (!(cl_load_relaxed(&s->word) & WAITERS)) { /* others have posted since, and may have left a count */
            cl_spin_unlock(&s->guard);
            continue;
        }
        struct cl_waiter *w = cl_wait_pop(&s->waiters);
        if (!s->waiters.first)
            cl_store_release(&s->word, 0); /* under the guard a word with WAITERS changes only by us */
        cl_spin_unlock(&s->guard);
        if (w)
            return w->t; /* it sleeps until it is made ready, and w with it */
        /* The last waiter's time was up: give to the count, in one step that leaves nothing to touch afterwards. */
    }
}

void cl_sem_post(struct cl_sem *s)
{
    struct cl_uthread *t = cl_sem_give(s);
    if (t)
        cl_uthread_ready(t);
}

uint32_t cl_sem_value(const struct cl_sem *s)
{
    return (uint32_t)(cl_load_relaxed(&s->word) >> 1);
}

void cl_wait_group_init(struct cl_wait_group *g)
{
    *g = (struct cl_wait_group){0};
}

static void wake_group(struct cl_wait_group *g)
{
    cl_spin_lock(&g->guard);
    struct cl_waiter *w = g->waiters.first;
    for (struct cl_waiter *each = w; each; each = each->next)
        each->list = NULL; /* so that a cancel leaves them alone */
    g->waiters = (struct cl_wait_list){0};
    __atomic_fetch_and(&g->word, ~WAITERS, __ATOMIC_RELEASE);
    cl_spin_unlock(&g->guard);
    while (w) {
        struct cl_waiter *next = w->next; /* before it may go */
        cl_uthread_ready(w->t);
        w = next;
    }
}

int cl_wait_group_add(struct cl_wait_group *g, int32_t n)
{
    uint64_t word = cl_load_relaxed(&g->word), new;
    do {
        int64_t count = (int64_t)(word >> 1) + n;
        if (count < 0 || count > MAX_COUNT)
            return -ERANGE;
        new = (uint64_t)count << 1 | (word & WAITERS);
    } while (!swap(&g->word, &word, new));
    if (new == WAITERS)
        wake_group(g); /* a waiter sleeps until we wake it, so g is still there */
    return 0;
}

int cl_wait_group_done(struct cl_wait_group *g)
{
    return cl_wait_group_add(g, -1);
}

int cl_wait_group_wait(struct cl_wait_group *g)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    if (cl_load_acquire(&g->word) == 0) /* acquire: what was done before the last done */
        return 0;
    struct cl_waiter w;
    int rc = cl_wait_begin(&w, k->current, &g->guard);
    if (rc)
        return rc;
    cl_spin_lock(&g->guard);
    uint64_t word = cl_load_acquire(&g->word);
    bool over = false;
    while (!(over = word >> 1 == 0) && !swap(&g->word, &word, word | WAITERS))
        ;
    if (over || w.cancelled) { /* WAITERS may stay set: the last done then finds nobody */
        cl_spin_unlock(&g->guard);
        rc = over ? 0 : -ECANCELED;
    } else {
        cl_wait_push(&g->waiters, &w, false);
        cl_waits_for(k, CL_TRACE_WAITS_JOIN, g, 0);
        cl_block(k, CL_AFTER_UNLOCK, &g->guard);
        rc = w.result;
    }
    cl_wait_end(&w);
    return rc;
}
