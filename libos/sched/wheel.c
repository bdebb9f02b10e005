/* Alarms: see corelane/libos/wheel.h; how they lie: wheel.h.
 *
 * Who holds an alarm and who runs the wheel agree on no more than this. A PLACED alarm is looked at no later than at
 * the first `look_ns` since it was placed, for the holder only raises it. And an alarm that seemed due then is CALLED
 * before its callback begins. So what the holder stored meanwhile is seen at the latest when it asks after the
 * callback.
 *
 * A wheel has one runner at a time, since its timer has. Locks: the wheel's, then that of the heap of its timer.
 * Tests: tests/libos/sched/c/wheel_model.c, wheel_stress.c. */
#include "internal.h"

#include <sched.h>

#define CALLS 64  /* callbacks before the loop polls other things, as of timers; and */
#define LOOKS 256 /* alarms looked at, which mostly are dealt out anew */

static uint64_t tick_of(uint64_t ns)
{
    return (ns >> CL_WHEEL_TICK_BITS) + (ns % CL_ALARM_SLOT_NS != 0); /* the first that is not before it */
}

static uint64_t ns_of(uint64_t tick)
{
    return tick > CL_NEVER >> CL_WHEEL_TICK_BITS ? CL_NEVER : tick << CL_WHEEL_TICK_BITS;
}

void cl_wheel_init(struct cl_kthread *k)
{
    k->wheel.wake_ns = CL_NEVER;
    cl_timer_init(&k->wheel.timer, cl_wheel_run, &k->wheel);
}

void cl_alarm_init(struct cl_alarm *alarm, cl_alarm_fn fn)
{
    *alarm = (struct cl_alarm){.fn = fn, .deadline_ns = CL_ALARM_NONE};
}

static unsigned digit_of(uint64_t tick, unsigned level)
{
    return (unsigned)(tick >> level * CL_WHEEL_BITS) % CL_WHEEL_SLOTS;
}

/* Of the list that is dealt out while the wheel's tick has these digits above its levels'. */
static unsigned side_of(uint64_t tick)
{
    return (unsigned)(tick >> CL_WHEEL_LEVELS * CL_WHEEL_BITS) % 2;
}

static struct cl_alarm **head_of(struct cl_wheel *w, const struct cl_alarm *a)
{
    return a->level < CL_WHEEL_LEVELS ? &w->slots[a->level][a->slot] : &w->beyond[a->slot];
}

/* Put it where it is found at `tick`. */
static void put(struct cl_wheel *w, struct cl_alarm *a, uint64_t tick)
{
    tick = cl_max(tick, w->tick);
    uint64_t differs = tick ^ w->tick;
    unsigned level = differs ? (63u - (unsigned)__builtin_clzll(differs)) / CL_WHEEL_BITS : 0;
    a->level = (uint8_t)cl_min(level, (unsigned)CL_WHEEL_LEVELS);
    a->slot = (uint8_t)(level < CL_WHEEL_LEVELS ? digit_of(tick, level) : !side_of(w->tick));
    if (level < CL_WHEEL_LEVELS)
        w->filled[level] |= 1ull << a->slot;
    struct cl_alarm **head = head_of(w, a);
    a->next = *head;
    a->at = head;
    if (a->next)
        a->next->at = &a->next;
    *head = a;
    w->n++;
}

static void take(struct cl_wheel *w, struct cl_alarm *a)
{
    *a->at = a->next;
    if (a->next)
        a->next->at = a->at;
    if (a->level < CL_WHEEL_LEVELS && !*head_of(w, a))
        w->filled[a->level] &= ~(1ull << a->slot);
    w->n--;
}

/* An alarm to look at next, and at which tick. NULL: none is there. */
static struct cl_alarm *next_of(const struct cl_wheel *w, uint64_t *tick)
{
    *tick = w->tick;
    if (w->n == 0)
        return NULL;
    /* What is still to be dealt out. */
    if (w->beyond[side_of(w->tick)])
        return w->beyond[side_of(w->tick)];
    for (unsigned level = CL_WHEEL_LEVELS; level--;)
        if (w->filled[level] >> digit_of(w->tick, level) & 1)
            return w->slots[level][digit_of(w->tick, level)];
    for (unsigned level = 0; level < CL_WHEEL_LEVELS; level++) {
        unsigned shift = level * CL_WHEEL_BITS, digit = digit_of(w->tick, level);
        uint64_t later = w->filled[level] & ~1ull << digit; /* behind this digit; before it nothing is left */
        if (!later)
            continue;
        unsigned slot = (unsigned)__builtin_ctzll(later);
        *tick = (w->tick >> shift >> CL_WHEEL_BITS << CL_WHEEL_BITS | slot) << shift;
        return w->slots[level][slot];
    }
    *tick = ((w->tick >> CL_WHEEL_LEVELS * CL_WHEEL_BITS) + 1) << CL_WHEEL_LEVELS * CL_WHEEL_BITS;
    return w->beyond[!side_of(w->tick)];
}

/* Have the timer come when there is something to look at. On a kthread, in whose heap it then is. */
static int wake_for_next(struct cl_wheel *w)
{
    uint64_t tick;
    uint64_t wake_ns = next_of(w, &tick) ? ns_of(tick) : CL_NEVER;
    if (wake_ns >= w->wake_ns)
        return 0;
    int rc = cl_timer_arm(&w->timer, wake_ns);
    if (rc == 0)
        w->wake_ns = wake_ns;
    return rc;
}

/* The holder takes it out of whatever wheel it is in. */
static void leave(struct cl_alarm *a)
{
    struct cl_wheel *w = &((struct cl_kthread *)a->home)->wheel;
    cl_spin_lock(&w->lock);
    if (cl_load_relaxed(&a->state) == CL_ALARM_PLACED)
        take(w, a);
    cl_store_relaxed(&a->state, CL_ALARM_IDLE);
    cl_spin_unlock(&w->lock);
}

/* The holder has stored deadline_ns. An alarm that is IDLE no wheel knows of. */
int cl_alarm_place(struct cl_alarm *a)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!k)
        return -EPERM;
    struct cl_wheel *w = &k->wheel;
    if (cl_load_acquire(&a->state) != CL_ALARM_IDLE) /* acquire: pairs with the release in take_due */
        leave(a);
    cl_spin_lock(&w->lock);
    if (w->n == 0)
        w->tick = cl_max(w->tick, cl_sched_clock(k->sched) >> CL_WHEEL_TICK_BITS);
    a->home = k;
    cl_store_relaxed(&a->look_ns, a->deadline_ns);
    put(w, a, tick_of(a->deadline_ns));
    cl_store_relaxed(&a->state, CL_ALARM_PLACED); /* published by the unlock */
    int rc = wake_for_next(w);
    cl_spin_unlock(&w->lock);
    return rc;
}

bool cl_alarm_due(struct cl_alarm *a, uint64_t now_ns)
{
    bool due = a->deadline_ns <= now_ns && a->deadline_ns != CL_ALARM_NONE;
    if (due)
        a->deadline_ns = CL_ALARM_NONE;
    /* Acquire: pairs with the release in take_due. */
    if (cl_load_acquire(&a->state) != CL_ALARM_CALLED)
        return due;
    if (a->deadline_ns == CL_ALARM_NONE)
        cl_store_relaxed(&a->state, CL_ALARM_IDLE); /* no wheel knows it any more */
    else
        (void)cl_alarm_place(a); /* on a kthread; and the heap has room for our timer */
    return due;
}

/* The kthread inside its callback; NULL: none is. */
static struct cl_kthread *caller_of(const struct cl_alarm *a, const struct cl_kthread *any)
{
    struct cl_kthread *runner = a->runner ? &any->sched->kthreads[a->runner - 1] : NULL;
    /* Acquire: what the callback did happens before what the caller does next. */
    return runner && cl_load_acquire(&runner->wheel.calling) == a ? runner : NULL;
}

void cl_alarm_remove(struct cl_alarm *a)
{
    const struct cl_kthread *self = cl_kthread_self(), *home = a->home, *runner;
    a->deadline_ns = CL_ALARM_NONE;
    if (!home)
        return;
    leave(a);
    for (unsigned i = 1; (runner = caller_of(a, home)) && runner != self; i++) {
        if (i % 128)
            cl_relax();
        else
            sched_yield();
    }
}

/* Take an alarm out that seems due, to be called by k. NULL: none is, or *looks is used up. */
static struct cl_alarm *take_due(struct cl_kthread *k, struct cl_wheel *w, uint64_t now_tick, unsigned *looks)
{
    while (*looks) {
        uint64_t tick;
        struct cl_alarm *a = next_of(w, &tick);
        if (!a || tick > now_tick)
            return NULL;
        (*looks)--;
        w->tick = tick;
        take(w, a);
        uint64_t look_tick = tick_of(cl_load_relaxed(&a->look_ns));
        if (look_tick > now_tick) {
            put(w, a, look_tick);
        } else if (caller_of(a, k)) { /* a callback of it is at its end elsewhere, and it has been placed since */
            put(w, a, now_tick + 1);
        } else {
            a->runner = (uint16_t)(k->index + 1);
            cl_store_relaxed(&k->wheel.calling, a); /* published by the next one, and by the unlock */
            cl_store_release(&a->state, CL_ALARM_CALLED);
            return a;
        }
    }
    return NULL;
}

void cl_wheel_run(struct cl_timer *timer, void *arg)
{
    struct cl_kthread *k = cl_kthread_self();
    struct cl_wheel *w = arg;
    uint64_t now_tick = cl_sched_clock(k->sched) >> CL_WHEEL_TICK_BITS;
    unsigned looks = LOOKS;
    (void)timer;
    cl_spin_lock(&w->lock);
    w->wake_ns = CL_NEVER;
    for (unsigned calls = 0; calls < CALLS; calls++) {
        struct cl_alarm *a = take_due(k, w, now_tick, &looks);
        if (!a)
            break;
        cl_alarm_fn fn = a->fn;
        cl_spin_unlock(&w->lock);
        fn(a);
        cl_count(&k->stats.alarms, 1);
        cl_store_release(&k->wheel.calling, NULL); /* release: what the callback did, for cl_alarm_remove */
        cl_spin_lock(&w->lock);
    }
    (void)wake_for_next(w);
    cl_spin_unlock(&w->lock);
}
