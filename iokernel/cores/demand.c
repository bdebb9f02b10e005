/* What an application has to do, by the words of its kthreads: its demand, and its row of the policy's table. Once a
 * decision.
 *
 * Most applications have no core most of the time, and either rest or wait. While none of the words of such an
 * application changes, what the last decision found stands, and what waits in it only grows older (`stands`,
 * io_signals_still). Of sixteen that compute on one core, one is read whole, and two or three lines of each of the
 * others; of one with many kthreads, those of a few of them. Tests of that: tests/iokernel/cores/c/many.c. */
#include "../state/internal.h"

#define LOOKS 4u /* kthreads of an application without a core whose words a decision reads */

/* Whether k could be given a core, or has one; and take notice of what changed about that. */
static bool usable(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_member *m = &k->member;
    bool running = m->signals.park == CL_KTHREAD_RUNNING;
    if (m->evicted && (!running || (int64_t)(now - m->evicted_until) >= 0))
        m->evicted = false;
    if (m->preempt_move && !m->core && !m->leaving && !running) { /* siblings need not poll on its account */
        m->preempt_move = false;
        io_preempt_store(k);
    }
    if (cl_unlikely(k->blocked) && !running)
        io_blocked_over(loop, k, now);
    if (cl_unlikely(m->stalled)) {
        if ((int64_t)(now - m->retry) >= 0 || io_signals_mark(&m->signals, k->park) != m->stall_mark)
            m->stalled = false;
    }
    if (cl_unlikely(m->banned))
        m->banned = (int64_t)(now - m->overrun.banned_until) < 0;
    return !m->dead && !m->stalled && !m->evicted && !m->banned && !k->blocked && !(m->leaving && running);
}

/* When one that is not usable is considered again at the latest, which nobody announces to a loop that sleeps. */
static uint64_t barred_until(const struct io_member *m)
{
    uint64_t until = UINT64_MAX;
    if (m->dead)
        return until;
    if (m->stalled)
        until = cl_min(until, m->retry);
    if (m->evicted)
        until = cl_min(until, m->evicted_until);
    if (m->banned)
        until = cl_min(until, m->overrun.banned_until);
    return until;
}

struct found {
    uint64_t packet, thread, timer, stored; /* ticks */
    uint32_t usable, running, extra;        /* extra: cores beyond those held that it could use */
    uint64_t waiting;
    bool stands; /* and will be found again while no word changes and it has no core, but for the ages */
};

static inline void add_ages(struct found *f, const struct io_signals *s)
{
    f->packet = cl_max(f->packet, s->packet);
    f->thread = cl_max(f->thread, s->thread);
    f->timer = cl_max(f->timer, s->timer);
    f->stored = cl_max(f->stored, s->stored);
    f->waiting += s->waiting;
}

static inline void check_kthread(struct io_loop *loop, struct io_kthread *k, struct found *f, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_member *m = &k->member;
    struct io_signals *s = &m->signals;
    if (k->sampled) {
        io_signals_sample(s, k->sample_tail, k->sample_tsc);
        k->sampled = false;
    }
    uint32_t lies = io_signals_read(s, k->park, k->rx.shared_head, k->rx.tail, k->rx.size, now);
    if (cl_unlikely(lies))
        io_count(k->app->cores.stats.lies, lies);
    bool owns = m->core && m->core->busy;
    m->usable = usable(loop, k, now);
    f->stands &= !(lies || m->dead | m->leaving | m->evicted | m->stalled | m->banned | m->preempt_move | k->blocked);
    if (!m->usable && !owns) { /* nothing that it says gets it a core */
        c->next_due = cl_min(c->next_due, barred_until(m));
        if (cl_likely(!k->blocked))
            return;
        c->next_due = cl_min(c->next_due, s->next_timer);
        if (io_blocked_offers(loop, k, now)) { /* but its siblings, who may take what waits in it */
            add_ages(f, s);
            f->extra += s->waiting;
        }
        return;
    }
    f->usable++;
    add_ages(f, s);
    if (owns) {
        f->running += s->park == CL_KTHREAD_RUNNING && !k->blocked;
        /* One that is still on its way will take one of them. */
        f->extra += s->waiting - (s->waiting && m->core->moving && !m->core->begun);
        if (k->app->cores.quantum_ticks)
            io_check_quantum(loop, k, now);
    } else {
        f->extra += s->waiting != 0;
        c->next_due = cl_min(c->next_due, s->next_timer);
    }
}

/* "There is work for more kthreads than run": counts as one uthread that waits, until one that got a core since it was
 * said last has begun, or nothing is seen to wait where some run, who look for such work before they park. One that has
 * parked counts as holding its core while the old owner is in the way, and looks for nothing. Not while one is on its
 * way: it may never begin. */
static void check_help(struct io_loop *loop, struct io_app *app, struct found *f, uint64_t now)
{
    struct io_allotment *a = &app->cores;
    const struct cl_arena_kthread *first = io_lines_of(&a->kthreads[0]);
    uint32_t help = cl_load_acquire(&first->help); /* acquire: its stamp */
    if (help != a->help) {
        uint64_t said = cl_load_relaxed(&first->help_tsc), last = loop->cores.last_check;
        a->help = help;
        a->help_last = now;
        if (a->help_since == 0) /* one that was not said since the last decision is no honest stamp, or another's */
            a->help_since = said - last <= now - last ? said : now;
    }
    if (cl_likely(a->help_since == 0))
        return;
    const struct io_core *last = a->last_run ? a->last_run->member.core : NULL;
    bool came = last && last->begun && (int64_t)(last->decided - a->help_last) >= 0;
    bool under_way = last && !last->begun, some_run = f->running && f->waiting == 0 && !under_way;
    if (came || (some_run && now - a->help_last > loop->cores.interval)) {
        a->help_since = 0;
        return;
    }
    f->thread = cl_max(f->thread, cl_max(now - a->help_since, 1u));
    f->extra++;
    f->waiting++;
}

/* What it found, for readers who take part in nothing: see congested_of in cores.c. `looked_at` is 0 while that
 * changes. */
static void publish(struct io_loop *loop, struct io_allotment *a, uint64_t waiting)
{
    uint64_t this = loop->cores.stats.decisions + 1, stood = a->waits ? this - a->looked_at - 1 : 0;
    cl_store_relaxed(&a->looked_at, 0);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the 0 before what changes */
    cl_store_relaxed(&a->waits, waiting != 0);
    io_count(a->stats.congested, stood + (waiting != 0));
    cl_store_relaxed(&a->stats.waiting, waiting);
    cl_store_release(&a->looked_at, this); /* release: after what changed */
}

/* Readers: anybody, for statistics (relaxed). */
static void keep_since(uint64_t *since, uint64_t now, uint64_t age)
{
    cl_store_relaxed(since, age ? now - age : 0);
}

/* Where it yield-waits it says so each time that the kernel runs it for nothing. A low word, which may lie: that
 * decides between equals, and no more. */
static inline uint32_t rested_ns(const struct io_loop *loop, const struct io_allotment *a)
{
    if (a->held || !a->last_run || a->kind != CL_POLICY_LATENCY)
        return 0;
    uint32_t ticks = (uint32_t)loop->now - cl_load_relaxed(&a->last_run->member.signals.shared->left_tsc);
    return ticks >> 28 == 15 ? 1 : (uint32_t)cl_min(io_ns(loop->io, cl_max(ticks, 1u)), (uint64_t)UINT32_MAX);
}

static inline void tell_ages(const struct io_loop *loop, const struct io_allotment *a, struct cl_policy_app *row)
{
    row->packet_delay_ns = io_age_ns(loop, a->packet_since, loop->now);
    row->thread_delay_ns = io_age_ns(loop, a->thread_since, loop->now);
    row->timer_delay_ns = io_age_ns(loop, a->timer_since, loop->now);
    row->storage_delay_ns = io_age_ns(loop, a->stored_since, loop->now);
    row->rested_ns = rested_ns(loop, a);
}

static CL_NOINLINE void check_app(struct io_loop *loop, struct io_app *app, struct cl_policy_app *row)
{
    struct io_allotment *a = &app->cores;
    struct found f = {.stands = a->held == 0};
    a->next_timer = UINT64_MAX;
    for (uint32_t k = 0; k < app->n_kthreads; k++) {
        check_kthread(loop, &app->kthreads[k], &f, loop->now);
        a->next_timer = cl_min(a->next_timer, app->kthreads[k].member.signals.next_timer);
    }
    check_help(loop, app, &f, loop->now);
    a->stands = f.stands && a->help_since == 0;
    a->usable = f.usable;
    a->demand = cl_min(cl_min(a->held + f.extra, a->maximum), f.usable);
    a->demand = cl_max(a->demand, a->held);
    if (a->demand > a->held &&
        a->last_run) { /* if it gets a core it is this one as a rule, for which these are written */
        cl_prefetch_write(a->last_run->member.state);
        cl_prefetch_write(a->last_run->member.last->state);
    }
    keep_since(&a->packet_since, loop->now, f.packet);
    keep_since(&a->thread_since, loop->now, f.thread);
    keep_since(&a->timer_since, loop->now, f.timer);
    keep_since(&a->stored_since, loop->now, f.stored);
    tell_ages(loop, a, row);
    row->answer_ns = a->answer_ns;
    row->cores = a->held;
    row->demand = a->demand;
    row->attained_ns = io_ns(loop->io, a->core_ticks);
    cl_store_relaxed(&a->stats.cores, a->held);
    publish(loop, a, f.waiting);
}

/* The same of one with many kthreads, LOOKS of which are looked at, and at the next decision others: or an application
 * would cost each decision the more the more kthreads it has that do nothing. A kthread without a core does nothing,
 * what is put into its ring is known, a timer is, too, and who else has work for it calls for help, which the first
 * kthread's word says. What remains, as a write that one sees done while it waits for its core, is seen some decisions
 * later. */
static bool many_stand(struct io_allotment *a, uint64_t now, uint64_t *next_due)
{
    if ((a->next_timer != UINT64_MAX && (int64_t)(now - a->next_timer) >= 0) ||
        !io_signals_still(&a->kthreads[0].member.signals, now))
        return false;
    for (uint32_t i = 0; i < LOOKS; i++) {
        if (!io_signals_still(&a->kthreads[a->next_look].member.signals, now))
            return false;
        a->next_look = a->next_look + 1u == a->n_kthreads ? 0 : a->next_look + 1u;
    }
    *next_due = cl_min(*next_due, a->next_timer);
    return true;
}

/* Whether what the last decision found still stands, but for the ages. */
static inline bool stands(const struct io_loop *loop, struct io_allotment *a, uint64_t now, uint64_t *next_due)
{
    if (!a->stands || a->held)
        return false;
    /* The last decision before a sleep leaves nothing out. */
    if (cl_unlikely(a->n_kthreads > LOOKS) && !cl_load_relaxed(&loop->state->sleeping))
        return many_stand(a, now, next_due);
    for (uint32_t i = 0; i < a->n_kthreads; i++) {
        const struct io_signals *s = &a->kthreads[i].member.signals;
        if (!io_signals_still(s, now))
            return false;
        *next_due = cl_min(*next_due, s->next_timer);
    }
    return true;
}

void io_demand_changes(struct io_loop *loop)
{
    struct io_cores *c = &loop->cores;
    uint64_t now = loop->now, next_due = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_apps; i++) {
        struct io_allotment *a = &c->apps[i]->cores;
        a->stands = stands(loop, a, now, &next_due);
    }
    c->next_due = next_due;
}

void io_demand_apps(struct io_loop *loop)
{
    struct io_cores *c = &loop->cores;
    uint32_t n_active = 0, n_resting = 0;
    for (uint32_t i = 0; i < c->n_apps; i++) {
        struct io_app *app = c->apps[i];
        struct io_allotment *a = &app->cores;
        if (cl_unlikely(!a->stands || a->held)) {
            check_app(loop, app, &c->table[i]);
        } else if (!a->waits) {
            n_resting += a->usable;
            continue;
        } else {
            tell_ages(loop, a, &c->table[i]);
        }
        c->active[n_active++] = app;
    }
    c->n_active = n_active;
    c->n_resting = n_resting;
}
