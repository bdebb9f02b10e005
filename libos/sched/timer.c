/* Timers: see corelane/libos/timer.h. One 4-ary heap a kthread, behind a spinlock, since siblings run the timers of a
 * kthread that is busy and cancel timers armed elsewhere.
 *
 * A timer that is taken out of the heap to be run is noted, under the lock, in `firing` of the kthread that runs it.
 * The timer itself is not touched any more once its callback has begun, so the callback may free it; cl_timer_cancel
 * waits until that kthread no longer points to it. No other kthread runs it before that.
 *
 * tests/libos/sched/c/timer_model.c runs this file through the interleavings of two kthreads and one that cancels. */
#include "wait.h"

#include <corelane/libos/uthread.h>

#include <sched.h>
#include <sys/mman.h>

#define CL_TIMER_RUNNERS 128u /* of cl_timer.fired: more than kthreads */
#define BATCH 64              /* timers run before the loop polls other things */

int cl_timers_new(struct cl_timers *h)
{
    void *p = mmap(NULL, CL_TIMERS_MAX * sizeof(struct cl_timer_slot), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    h->heap = p;
    h->next_ns = CL_NEVER;
    return 0;
}

void cl_timers_delete(struct cl_timers *h)
{
    if (h->heap)
        munmap(h->heap, CL_TIMERS_MAX * sizeof(struct cl_timer_slot));
}

static void place(struct cl_timers *h, uint32_t i, struct cl_timer_slot slot)
{
    h->heap[i] = slot;
    slot.timer->pos = i + 1;
}

/* Put `slot` where it belongs at or above the hole i. */
static void sift_up(struct cl_timers *h, uint32_t i, struct cl_timer_slot slot)
{
    while (i > 0 && slot.deadline_ns < h->heap[(i - 1) / 4].deadline_ns) {
        place(h, i, h->heap[(i - 1) / 4]);
        i = (i - 1) / 4;
    }
    place(h, i, slot);
}

/* The same, at or below. */
static void sift_down(struct cl_timers *h, uint32_t i, struct cl_timer_slot slot)
{
    for (;;) {
        uint32_t first = 4 * i + 1, last = cl_min(first + 4, h->n), least = first;
        if (first >= h->n)
            break;
        for (uint32_t c = first + 1; c < last; c++)
            if (h->heap[c].deadline_ns < h->heap[least].deadline_ns)
                least = c;
        if (slot.deadline_ns <= h->heap[least].deadline_ns)
            break;
        place(h, i, h->heap[least]);
        i = least;
    }
    place(h, i, slot);
}

void cl_timers_export(struct cl_kthread *k)
{
    uint64_t next_ns = cl_load_relaxed(&k->timers.next_ns);
    if (cl_unlikely(k->resend_ns))
        next_ns = cl_min(next_ns, k->resend_ns);
    if (k->sched && k->sched->cores)
        cl_store_relaxed(&k->signals->timer_tsc,
                         next_ns >= INT64_MAX ? CL_NEVER : cl_ns_to_tsc(cl_clock_default(), (int64_t)next_ns));
}

void cl_timers_resend(struct cl_kthread *k, uint64_t at_ns)
{
    cl_spin_lock(&k->timers.lock); /* siblings take timers of a parked kthread, and export what is left */
    k->resend_ns = at_ns;
    cl_timers_export(k);
    cl_spin_unlock(&k->timers.lock);
}

static void publish(struct cl_timers *h)
{
    uint64_t next_ns = h->n ? h->heap[0].deadline_ns : CL_NEVER;
    if (next_ns == h->next_ns)
        return;
    cl_store_relaxed(&h->next_ns, next_ns);
    cl_timers_export(cl_container_of(h, struct cl_kthread, timers));
}

static void remove_locked(struct cl_timers *h, struct cl_timer *t)
{
    uint32_t i = t->pos - 1;
    struct cl_timer_slot last = h->heap[--h->n];
    t->pos = 0;
    if (last.timer != t) {
        if (i > 0 && last.deadline_ns < h->heap[(i - 1) / 4].deadline_ns)
            sift_up(h, i, last);
        else
            sift_down(h, i, last);
    }
    publish(h);
}

void cl_timer_init(struct cl_timer *timer, cl_timer_fn fn, void *arg)
{
    *timer = (struct cl_timer){.fn = fn, .arg = arg};
}

/* Take it out of the heap it is in; `move`: it is about to enter another. Returns whether it was in one, or -1: it is
 * just being moved. *fired is as of that moment.
 *
 * `home` leaves a heap only under that heap's lock, so that one who holds the lock and finds it there may trust
 * `pos`. */
static int disarm(struct cl_timer *timer, bool move, uint32_t *fired)
{
    for (;;) {
        /* Acquire: pairs with the release in arm. */
        struct cl_kthread *home = cl_load_acquire(&timer->home);
        if (!home)
            return -1;
        cl_spin_lock(&home->timers.lock);
        bool here = cl_load_relaxed(&timer->home) == home, armed = here && timer->pos != 0;
        if (here)
            *fired = timer->fired;
        if (armed)
            remove_locked(&home->timers, timer);
        if (here && move)
            cl_store_release(&timer->home, NULL);
        cl_spin_unlock(&home->timers.lock);
        if (here)
            return armed;
    }
}

int cl_timer_arm_locked(struct cl_kthread *k, struct cl_timer *timer, uint64_t deadline_ns)
{
    struct cl_timers *h = &k->timers;
    uint32_t fired = 0, most = CL_TIMERS_MAX - (timer->fn == cl_wheel_run ? 0 : CL_SCHED_MAX_KTHREADS);
    if (cl_load_relaxed(&timer->home) != k) /* relaxed: a timer is armed by one thread at a time */
        disarm(timer, true, &fired);
    cl_spin_lock(&h->lock);
    if (timer->pos)
        remove_locked(h, timer);
    cl_store_relaxed(&timer->kthreads, k->sched->kthreads); /* the same each time; published by home */
    cl_store_release(&timer->home,
                     k); /* also if there is no room: NULL means that it is on its way, or never was armed */
    if (h->n >= most) {
        cl_spin_unlock(&h->lock);
        return -ENOSPC;
    }
    timer->deadline_ns = deadline_ns;
    sift_up(h, h->n++, (struct cl_timer_slot){deadline_ns, timer});
    publish(h);
    return 0;
}

int cl_timer_arm(struct cl_timer *timer, uint64_t deadline_ns)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k)
        return -EPERM;
    int rc = cl_timer_arm_locked(k, timer, deadline_ns);
    if (rc == 0)
        cl_spin_unlock(&k->timers.lock);
    return rc;
}

/* The kthread inside the timer's callback, or NULL, for a value of `fired`. */
static struct cl_kthread *firing_on(const struct cl_timer *timer, struct cl_kthread *kthreads, uint32_t fired)
{
    uint32_t runner = fired % CL_TIMER_RUNNERS;
    /* Acquire: what the callback did happens before the caller goes on. */
    if (!runner || cl_load_acquire(&kthreads[runner - 1].firing) != timer)
        return NULL;
    return &kthreads[runner - 1];
}

/* A callback that runs may arm the timer again, so "not armed, then no callback seen" proves nothing: it may have armed
 * it and ended in between. "Not armed, no callback, not armed, and not fired between the two" does: a callback that was
 * there at the first check was over at the second one, and what it had armed would be armed still. */
int cl_timer_cancel(struct cl_timer *timer)
{
    struct cl_kthread *self = cl_kthread_self();
    struct cl_kthread *kthreads = cl_load_relaxed(&timer->kthreads); /* the caller knows of the first arming */
    uint32_t fired = 0, fired_before = 0;
    bool looked =
        false; /* it was not armed, nor did a callback run after that, when it had fired `fired_before` times */
    int cancelled = 0;
    if (!kthreads)
        return 0;
    for (unsigned i = 1;; i++) {
        int armed = disarm(timer, false, &fired);
        cancelled |= armed > 0;
        if (armed >= 0) {
            struct cl_kthread *runner = firing_on(timer, kthreads, fired);
            if (runner == self && self)
                return cancelled;
            if (!runner && (!fired || (looked && !armed && fired == fired_before)))
                return cancelled;
            looked = !runner;
            fired_before = fired;
            if (looked)
                continue;
        }
        if (i % 128)
            cl_relax();
        else
            sched_yield();
    }
}

/* Take the first timer of h out of it, to be run by k, if it is due and no callback of it is at its end elsewhere. */
static struct cl_timer *take_due(struct cl_kthread *k, struct cl_timers *h, uint64_t now_ns)
{
    if (h->n == 0 || h->heap[0].deadline_ns > now_ns)
        return NULL;
    struct cl_timer *timer = h->heap[0].timer;
    if (firing_on(timer, k->sched->kthreads, timer->fired))
        return NULL;
    remove_locked(h, timer);
    timer->fired = (timer->fired | (CL_TIMER_RUNNERS - 1)) + 1 + (k->index + 1);
    cl_store_relaxed(&k->firing, timer); /* published by the unlock */
    return timer;
}

unsigned cl_timers_run(struct cl_kthread *k, struct cl_kthread *owner, uint64_t now_ns)
{
    struct cl_timers *h = &owner->timers;
    unsigned n = 0;
    for (; n < BATCH; n++) {
        cl_spin_lock(&h->lock);
        struct cl_timer *timer = take_due(k, h, now_ns);
        cl_timer_fn fn = timer ? timer->fn : NULL;
        void *arg = timer ? timer->arg : NULL;
        cl_spin_unlock(&h->lock);
        if (!timer)
            break;
        fn(timer, arg);
        cl_store_release(&k->firing, NULL); /* release: what the callback did, for cl_timer_cancel */
    }
    k->ran |= n != 0;
    cl_count(&k->stats.timers, n);
    if (owner != k)
        cl_count(&k->stats.stolen_timers, n);
    return n;
}

static void wake(struct cl_timer *timer, void *arg)
{
    (void)timer;
    cl_uthread_ready(arg);
}

/* A sleep that is armed later sees under the lock that the scheduler stops. Going up the heap, what moves down into the
 * place at hand was looked at before. */
void cl_timers_end_sleeps(struct cl_timers *h)
{
    cl_spin_lock(&h->lock);
    for (uint32_t i = 0; i < h->n; i++) {
        struct cl_timer *timer = h->heap[i].timer;
        if (timer->fn != wake && timer->fn != cl_wait_sleep_over)
            continue;
        timer->deadline_ns = 0;
        sift_up(h, i, (struct cl_timer_slot){0, timer});
    }
    publish(h);
    cl_spin_unlock(&h->lock);
}

int cl_uthread_sleep_until_ns(uint64_t deadline_ns)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    if (deadline_ns <= cl_sched_clock(k->sched))
        return 0;
    if (cl_unlikely(k->current->scope))
        return cl_wait_sleep(k, deadline_ns);
    /* On this stack: nobody touches it after the callback has begun, and we do not return before that. */
    struct cl_timer timer;
    cl_timer_init(&timer, wake, k->current);
    int rc = cl_timer_arm_locked(k, &timer, deadline_ns);
    if (rc)
        return rc;
    if (cl_unlikely(cl_load_relaxed(&k->sched->stopping))) { /* relaxed: under the lock of cl_timers_end_sleeps */
        remove_locked(&k->timers, &timer);
        cl_spin_unlock(&k->timers.lock);
        cl_uthread_yield(); /* one that sleeps in a loop gives way all the same */
        return -ESHUTDOWN;
    }
    cl_waits_for(k, CL_TRACE_WAITS_SLEEP, NULL, 0);
    rc = cl_block(k, CL_AFTER_UNLOCK, &k->timers.lock);
    return rc ? rc : timer.deadline_ns == deadline_ns ? 0 : -ESHUTDOWN;
}

int cl_uthread_sleep_ns(uint64_t ns)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    uint64_t now = cl_sched_clock(k->sched);
    return cl_uthread_sleep_until_ns(ns < CL_NEVER - now ? now + ns : CL_NEVER);
}
