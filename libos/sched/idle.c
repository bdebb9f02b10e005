/* A kthread without work: it spins, checks its siblings, and goes to sleep; and how it is woken.
 *
 * Two shared words, both changed by read-modify-write with sequentially consistent order:
 *   parked     bit k: kthread k sleeps or is about to. Set by k after its park word; taken by k or by the one who wakes
 *   it. searching  how many kthreads are awake and search for work, including ones just woken.
 *
 * Whoever publishes work that others should take calls cl_wake_one after it: a full fence, then, only if nobody
 * searches already, one sleeper is counted as searching and woken. Whoever searches and goes to sleep stops searching
 * first, says that it parks, and after a full fence re-checks all work. So of publisher and sleeper at least one sees
 * the other (the argument of park.h, with `searching` as a second flag on which the same argument holds): no wake-up is
 * lost, and a burst of work wakes siblings one after another, each when the one before has found something, not all at
 * once.
 *
 * Not covered by this: work that appears behind a kthread's back while it is inside a long handler (frames in its
 * queue, a lone ready uthread). Siblings that are awake notice that it is stuck (steal.c); for the case that all sleep,
 * none sleeps longer than watch_ns, doubling up to 64 times that while nothing happens.
 *
 * Tests: tests/libos/sched/c/park_wake.c (lost wake-ups, watch_ns = 0). */
#include "runq.h"
#include "wakefd.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLOCK_EVERY 16  /* turns without work between two reads of the clock */
#define LOOK_EVERY 8    /* turns without work between two checks of siblings: their lines are theirs */
#define SEARCH_AFTER 16 /* turns without work before one counts as searching, so that short gaps touch nothing shared */
#define YIELD_EVERY 32  /* mode spin with more kthreads than CPUs: turns between two sched_yield() */
#define IDLE_YIELD_NS 50000        /* managed: time without work between two yields of the owner */
#define IN_FLIGHT_SPIN_NS 200000   /* adaptive, with completions to come: time without work before sleeping */
#define IN_FLIGHT_SLEEP_NS 5000000 /* longest sleep then: finds what a device did not announce */
#define PROMISING_TURNS 64         /* how long something not yet worth stealing keeps one awake */
#define LONE_WAKE_NS 50000         /* a spawn of one uthread wakes a sibling at most so often */

static void wake(struct cl_sched *s, struct cl_kthread *waker, unsigned k)
{
    cl_park_wake(s->kthreads[k].parker);
    if (waker)
        cl_count(&waker->stats.wakes_sent, 1);
}

/* The parked kthread nearest to the waker. An adopted one only if there is no other: its thread may be busy with
 * something else, and would count as searching all the while. */
static unsigned choose(const struct cl_sched *s, const struct cl_kthread *waker, uint64_t parked)
{
    if (parked & ~s->adopted)
        parked &= ~s->adopted;
    for (uint32_t i = 0; waker && i + 1 < s->n_kthreads; i++)
        if (parked & 1ull << waker->order[i])
            return waker->order[i];
    return (unsigned)__builtin_ctzll(parked);
}

/* Where cores are managed the iokernel decides who runs: it is told that there is more work than runs, once until a
 * kthread comes; work from foreign threads each time, since no kthread's signals tell of that. */
static void ask_for_help(struct cl_sched *s, struct cl_kthread *waker)
{
    /* Relaxed: hints. The iokernel sees what waits in run queues and inboxes without it. */
    if (waker && (!cl_load_relaxed(&s->parked) || cl_load_relaxed(&s->searching) || cl_load_relaxed(&s->help_asked)))
        return;
    cl_store_relaxed(&s->help_asked, 1);
    s->cores->ops->help(s->cores);
    if (waker)
        cl_count(&waker->stats.wakes_sent, 1);
}

void cl_wake_one(struct cl_sched *s, struct cl_kthread *waker)
{
    cl_fence_seq_cst(); /* after the work was published, before the check for sleepers */
    if (cl_managed(s)) {
        ask_for_help(s, waker);
        return;
    }
    while (cl_load_relaxed(&s->parked) && cl_load_relaxed(&s->searching) == 0) {
        uint32_t none = 0;
        if (!__atomic_compare_exchange_n(&s->searching, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return;
        uint64_t parked;
        while ((parked = cl_load_relaxed(&s->parked))) {
            unsigned k = choose(s, waker, parked);
            if (__atomic_fetch_and(&s->parked, ~(1ull << k), __ATOMIC_SEQ_CST) & 1ull << k) {
                wake(s, waker, k); /* it takes over our count in `searching` */
                return;
            }
        }
        /* All woke by themselves. One that parked in between saw us searching: so re-check. */
        __atomic_fetch_sub(&s->searching, 1, __ATOMIC_SEQ_CST);
    }
}

void cl_wake_for_lone(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    if (!cl_load_relaxed(&s->parked) || cl_load_relaxed(&s->searching)) /* relaxed: a hint; the watch covers a miss */
        return;
    uint64_t now = cl_sched_clock(s);
    if (now - k->last_lone_wake_ns < k->lone_wake_ns)
        return;
    /* Wakes that lead to no theft are made more and more rarely. Relaxed: the flag orders nothing. */
    k->lone_wake_ns = cl_load_relaxed(&k->stolen_from) ? LONE_WAKE_NS : cl_min(2 * k->lone_wake_ns, 100 * LONE_WAKE_NS);
    cl_store_relaxed(&k->stolen_from, 0);
    k->last_lone_wake_ns = now;
    cl_wake_one(s, k);
}

void cl_sched_wake_kthread(struct cl_sched *s, unsigned k)
{
    if (k < s->n_kthreads && !cl_managed(s))
        cl_park_wake(s->kthreads[k].parker); /* begins with a full fence; k looks at its source again after its word */
}

void cl_wake_all(struct cl_sched *s)
{
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        cl_park_wake(s->kthreads[k].parker); /* begins with a full fence */
}

/* Work that this kthread could do at once and that nobody would wake it for. */
bool cl_work_visible(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    if (cl_load_relaxed(&k->front) || cl_load_relaxed(&s->n_inject) || cl_load_relaxed(&s->ending) ||
        cl_runq_len(&k->runq))
        return true;
    if (s->has_source && (s->source.pending(s->source.arg, k->index) || s->source.ready(s->source.arg, k->index)))
        return true;
    for (uint32_t i = 0; i < s->n_kthreads; i++) {
        struct cl_kthread *v = &s->kthreads[i];
        uint32_t enough = cl_load_relaxed(&v->ceded) ? 0 : 1;
        if (i != k->index && (cl_runq_len(&v->runq) > enough || cl_load_relaxed(&v->front)))
            return true;
        if (i != k->index && s->has_source && s->source.takeable && s->source.takeable(s->source.arg, i))
            return true;
    }
    return false;
}

static void stop_searching(struct cl_kthread *k)
{
    if (!k->searching)
        return;
    k->searching = false;
    __atomic_fetch_sub(&k->sched->searching, 1, __ATOMIC_SEQ_CST);
}

void cl_idle_over(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    if (k->trace)
        k->trace->idle_at = 0;
    bool was_idle = k->idle_turns != 0 || k->searching;
    k->idle_turns = 0;
    if (cl_unlikely(k->linger.until)) /* else the clock need not be read */
        cl_linger_over(&k->linger, cl_clock_stamp(s->clock));
    k->watch_ns = s->watch_ns;
    if (cl_likely(!was_idle) || !s->sleeps || s->n_kthreads == 1)
        return;
    stop_searching(k);
    /* Pass the search on, if there is more than we took: pushes that saw us searching woke nobody. */
    if (cl_load_relaxed(&s->parked)) {
        cl_fence_seq_cst(); /* after the end of our search, before the re-check of the queues */
        if (cl_work_visible(k))
            cl_wake_one(s, k);
    }
}

/* How long to sleep: to the next timer, not longer than the watch, and briefly while frames wait to be sent. < 0: for
 * ever; 0: not at all. `managed`: the iokernel watches. An adopted kthread does not: an event loop without work is not
 * to wake again and again. */
static int64_t sleep_ns(struct cl_kthread *k, bool managed)
{
    const struct cl_sched *s = k->sched;
    bool watches = k->watch_ns && !managed && !k->wakefd;
    uint64_t next_ns = cl_load_relaxed(&k->timers.next_ns), ns = watches ? k->watch_ns : CL_NEVER;
    if (k->ran)
        ns = cl_min(ns, k->retry_ns);
    if (cl_load_relaxed(&k->in_flight))
        ns = cl_min(ns, IN_FLIGHT_SLEEP_NS);
    if (next_ns != CL_NEVER) {
        uint64_t now = cl_sched_clock(s);
        ns = next_ns <= now ? 0 : cl_min(ns, next_ns - now);
    }
    return ns > INT64_MAX ? -1 : (int64_t)ns;
}

static void sleep_on(struct cl_kthread *k, int64_t ns)
{
    const struct cl_work_source *source = &k->sched->source;
    cl_count(&k->stats.parks, 1);
    if (!source->wait)
        cl_park_wait(k->parker, ns);
    else if (source->wait(source->arg, k->index, ns) < 0)
        cl_count(&k->stats.wait_errors, 1);
    if (k->watch_ns && k->watch_ns < 64 * k->sched->watch_ns)
        k->watch_ns *= 2;
}

/* Work was seen at the re-check: do not sleep. Managed: the core may be gone meanwhile, and there is work. */
static void cancel(struct cl_kthread *k, bool managed)
{
    struct cl_cores *c = k->sched->cores;
    cl_count(&k->stats.parks_cancelled, 1);
    if (!managed) {
        cl_park_cancel(k->parker);
        return;
    }
    cl_store_relaxed(&k->ceded, 1);
    if (c->ops->lost(c, k->index))
        c->ops->help(c); /* what was seen may be in nobody's signals */
    c->ops->park_cancel(c, k->index);
    cl_store_relaxed(&k->ceded, 0);
}

static void core_came(struct cl_kthread *k)
{
    k->let_go_tsc = cl_clock_stamp(k->sched->clock); /* who has waited for a core has let others go first */
    cl_store_relaxed(&k->sched->help_asked, 0);
    cl_export(k);
}

/* Wait for a core and, if `polled` is not NULL, for completions meanwhile. */
static void sleep_for_core(struct cl_kthread *k, int64_t ns, const struct cl_park_poll *polled)
{
    struct cl_cores *c = k->sched->cores;
    cl_count(&k->stats.parks, 1);
    c->ops->park_wait(c, k->index, ns, polled);
    core_came(k);
}

/* Say that k sleeps, and look at all work again. Returns for how long to sleep as sleep_ns; 0: there is work. */
static int64_t park_begin(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    struct cl_sleep *sleep = &k->sleep;
    stop_searching(k);
    k->linger.until = 0; /* what comes while it sleeps says nothing of lingering */
    if (s->cores)
        cl_export(k);
    /* Before the park word: a core that another has by then is to come back for them, which the loop must know before
     * it sleeps. */
    if (cl_unlikely(k->ran) && s->cores)
        cl_timers_resend(k, cl_sched_clock(s) + k->retry_ns);
    k->away = true;
    sleep->managed = s->cores && s->cores->ops->park_begin(s->cores, k->index);
    if (sleep->managed && k->trace)
        cl_taken_begin(k, &sleep->taken);
    if (!sleep->managed)
        cl_park_begin(k->parker); /* before the bit: who takes the bit must find the word parked */
    __atomic_fetch_or(&s->parked, 1ull << k->index, __ATOMIC_SEQ_CST);
    if (k->wakefd)
        cl_wakefd_parked(k);
    cl_fence_seq_cst(); /* before the re-check */
    bool in_flight = cl_load_relaxed(&k->in_flight);
    bool itself = in_flight && sleep->managed && !k->wakefd; /* sees them come */
    sleep->flights = (struct cl_flights){.kthread = k, .only = itself ? cl_completions_only(k) : NULL};
    if (in_flight && !sleep->flights.only) {
        sleep->flights.armed = true;
        cl_completions_arm(k, true);
        cl_completions_poll(k, k); /* whom it makes ready is seen below */
    }
    if (cl_unlikely(cl_load_relaxed(&s->stopping)))
        cl_drain_check(s); /* of those that ended the last uthreads and now sleep, the last sees all ends */
    int64_t ns = sleep_ns(k, sleep->managed);
    return ns != 0 && !cl_work_visible(k) ? ns : 0;
}

/* It has a core again. Whether that was another's while k slept: since k lost it, or lay down without it. If that is
 * not told, as long as the one had it whom it was taken from for k: there may have been others before that one. */
static void note_taken(struct cl_kthread *k)
{
    struct cl_cores *c = k->sched->cores;
    struct cl_trace_taken taken = k->sleep.taken;
    struct cl_core_owners o;
    if (!c->ops->owners || !c->ops->owners(c, k->index, &o) || !o.mine)
        return;
    if (!taken.by) {
        if (!o.before || o.before == o.owner || o.decided_tsc < taken.begin)
            return; /* it has been its own, or nobody's */
        taken.by = o.before;
        taken.cpu = o.cpu + 1;
        bool told = o.lost_tsc > taken.begin && o.lost_tsc <= o.before_tsc;
        taken.begin = told ? o.lost_tsc : cl_max(taken.begin, o.before_tsc);
    }
    taken.end = cl_tracer_stamp(k->trace);
    taken.parked = true;
    if (taken.end > taken.begin)
        cl_tracer_taken(k->trace, &taken);
}

/* k is up again. */
static void park_end(struct cl_kthread *k, bool slept)
{
    struct cl_sched *s = k->sched;
    uint64_t bit = 1ull << k->index;
    k->away = false;
    if (k->sleep.managed && k->trace)
        note_taken(k);
    if (cl_unlikely(k->resend_ns))
        cl_timers_resend(k, 0);
    if (slept && k->ran && k->retry_ns < 16 * CL_RETRY_NS)
        k->retry_ns *= 2;
    if (k->sleep.flights.armed)
        cl_completions_arm(k, false);
    /* If somebody else took the bit, he counted us as searching. */
    k->searching = !(__atomic_fetch_and(&s->parked, ~bit, __ATOMIC_SEQ_CST) & bit);
    k->idle_turns = 1; /* still idle, see cl_idle_over; and adaptive does not spin anew for nothing */
}

/* Have a core again, without waiting for one. False: it is another's, or has no use for us yet. */
static bool core_is_back(struct cl_kthread *k, bool called)
{
    struct cl_cores *c = k->sched->cores;
    if (!c->ops->park_try(c, k->index, called))
        return false;
    core_came(k);
    return true;
}

/* Sleep by the descriptor, until cl_rise. Managed: whether there is work or not, if the core is another's. The iokernel
 * sees it in the signals, or is asked for help. */
static void park_adopted(struct cl_kthread *k, int64_t ns)
{
    struct cl_cores *c = k->sched->cores;
    bool managed = k->sleep.managed, work = ns == 0;
    if (work && (!managed || core_is_back(k, true))) {
        cl_count(&k->stats.parks_cancelled, 1);
        if (!managed)
            cl_park_cancel(k->parker);
        park_end(k, false);
        return;
    }
    if (work)
        c->ops->help(c); /* what was seen may be in nobody's signals */
    if (managed)
        c->ops->park_leave(c, k->index);
    cl_count(&k->stats.parks, 1);
    cl_wakefd_set(k, work ? -1 : ns);
    k->asleep = true;
}

void cl_park_kthread(struct cl_kthread *k)
{
    if (k->wakefd)
        cl_wakefd_settle(k);
    int64_t ns = park_begin(k);
    if (k->wakefd) {
        park_adopted(k, ns);
        return;
    }
    bool managed = k->sleep.managed;
    uint64_t from = k->trace ? cl_tracer_stamp(k->trace) : 0;
    struct cl_park_poll polled = {&k->sleep.flights, k->sched->poll == CL_SCHED_BLOCK ? 0 : IN_FLIGHT_SPIN_NS,
                                  cl_flights_done, cl_flights_sleep};
    if (ns == 0)
        cancel(k, managed);
    else if (managed)
        sleep_for_core(k, ns, k->sleep.flights.only ? &polled : NULL);
    else
        sleep_on(k, ns);
    if (k->trace)
        cl_tracer_rested(k->trace, from);
    park_end(k, ns != 0);
}

void cl_get_up(struct cl_kthread *k)
{
    cl_wakefd_up(k);
    k->asleep = false;
    if (k->trace)
        cl_tracer_forget(k->trace);
    park_end(k, true);
}

bool cl_rise(struct cl_kthread *k)
{
    bool called =
        cl_wakefd_look(k) || cl_wakefd_due(k) || cl_work_visible(k) || (!k->sleep.managed && cl_wakefd_called(k));
    if (!called && !k->sleep.managed)
        return false;
    if (k->sleep.managed && !core_is_back(k, called)) {
        cl_wakefd_too_early(k);
        return false;
    }
    cl_get_up(k);
    return true;
}

/* Let others have the CPU. */
static void give_way(struct cl_kthread *k)
{
    uint64_t from = k->trace ? cl_tracer_stamp(k->trace) : 0;
    sched_yield();
    if (k->trace)
        cl_tracer_rested(k->trace, from);
}

/* Whether it is time to sleep. */
static bool tired(struct cl_kthread *k)
{
    const struct cl_sched *s = k->sched;
    if (s->cores && s->cores->ops->wanted(s->cores, k->index))
        return true; /* what would be spun away here somebody else could use */
    if (s->poll != CL_SCHED_ADAPTIVE)
        return s->poll == CL_SCHED_BLOCK;
    if (cl_unlikely(cl_load_relaxed(&k->in_flight)) && s->cores && cl_completions_only(k) && cl_managed(s))
        return true; /* it sees completions while it is parked, and others may have the core meanwhile */
    /* Reading the clock takes longer than a turn: not each time. */
    if (k->idle_turns % CLOCK_EVERY != 1)
        return false;
    uint64_t now = cl_sched_clock(s);
    /* Whoever yield-waits for this core forfeits a slice with each yield. If the owner, which spins, gets far ahead of
     * it, the kernel runs those some times each before the owner, once that has given the core away and is to have it
     * again. */
    if (s->cores && now - k->idle_yield_ns >= IDLE_YIELD_NS) {
        k->idle_yield_ns = now;
        give_way(k);
    }
    bool longer = cl_load_relaxed(&k->in_flight) && !s->oversubscribed;
    uint64_t spin_ns = longer ? cl_max(s->spin_ns, IN_FLIGHT_SPIN_NS) : s->spin_ns;
    if (k->idle_turns == 1)
        k->idle_since_ns = now;
    if (now - k->idle_since_ns >= spin_ns)
        return true;
    /* After the first half rest more between polls: less power, and more for the other hyper-thread. */
    for (unsigned i = 0; i < 8 && now - k->idle_since_ns >= spin_ns / 2; i++)
        cl_relax();
    return false;
}

static void search(struct cl_kthread *k)
{
    if (k->sched->sleeps && !k->searching && k->idle_turns >= SEARCH_AFTER) {
        k->searching = true;
        __atomic_fetch_add(&k->sched->searching, 1, __ATOMIC_SEQ_CST);
    }
}

/* Whether to linger before the CPU is let go. Not while something is in flight: what it waits for may need the CPU. */
static bool lingers(struct cl_kthread *k)
{
    if (cl_load_relaxed(&k->in_flight))
        return false;
    uint64_t now = cl_clock_stamp(k->sched->clock);
    if (k->idle_turns == 1)
        cl_linger_begin(&k->linger, now, k->sched->linger_ticks);
    return cl_linger_on(&k->linger, now);
}

void cl_idle(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    bool promising = false;
    if (s->source.idle && s->source.idle(s->source.arg, k->index))
        return; /* perhaps something has come meanwhile */
    k->idle_turns++;
    cl_count(&k->stats.idle_turns, 1);
    if (k->trace && k->idle_turns % CLOCK_EVERY == 1)
        cl_tracer_idle(k->trace);
    bool sleep = tired(k);
    if (s->n_kthreads > 1) {
        search(k);
        if ((sleep || k->idle_turns % LOOK_EVERY == 1) && cl_steal(k, &promising)) {
            cl_idle_over(k);
            return;
        }
    }
    if (sleep && !(promising && k->idle_turns < PROMISING_TURNS))
        cl_park_kthread(k);
    else if (cl_unlikely(cl_load_relaxed(&s->completions) != NULL)) {
        if (!lingers(k))
            give_way(k); /* what it, or another of this core, waits for may need the CPU to get done, see complete.h */
    } else if (cl_unlikely(s->oversubscribed) && !s->sleeps && k->idle_turns % YIELD_EVERY == 0)
        give_way(k);
    else if (s->smt)
        cl_relax(); /* for the other hyper-thread; without one it only makes us see work later */
}

void cl_drain_check(struct cl_sched *s)
{
    if (cl_load_relaxed(&s->drained) || cl_sched_live(s))
        return;
    cl_store_release(&s->drained, 1); /* release: what the uthreads did happens before cl_sched_stop returns */
    syscall(SYS_futex, &s->drained, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}
