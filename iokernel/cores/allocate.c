/* Who should have which core. Once an interval, and at once when a frame comes for an application without a core or an
 * owner parks, the applications' signals fill the policy's table, the policy says how many cores each should have, and
 * what differs is moved (move.c).
 *
 * What an application demands is what it could use at this moment: kthreads that run, and those that would find work. A
 * core that it is granted beyond that stays with whoever has it until somebody takes it to whom it is granted and who
 * has work. And two of one class do not take cores from each other faster than HOLD_*: a policy that compares attained
 * times would have them alternate every interval.
 *
 * Work conservation is not left to the policy: what it grants nobody goes to whoever waits for longer than an interval,
 * or has no core; except under `static`, which is there to show what happens without. */
#include "../state/internal.h"

#include <string.h>

#define ANSWER_MEMORY 16      /* first answers that answer_ns remembers, about */
#define ANSWER_MOST_NS 100000 /* one that takes longer is about what the application does */

/* A loop that sleeps accounts for nothing, so who reads adds the time since (cores.c). What was accounted, and up to
 * when, must fit: while they change, `accounted` is 0. */
void io_core_account(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    uint64_t ticks = now - core->accounted;
    struct io_allotment *a = core->owner && core->busy ? &core->owner->app->cores : NULL;
    if (core->accounted && (int64_t)ticks > 0)
        io_overrun_account(loop, core, ticks, now);
    if (a && (int64_t)ticks > 0) {
        cl_store_relaxed(&core->accounted, 0);
        __atomic_thread_fence(__ATOMIC_RELEASE); /* the 0 before what changes */
        a->core_ticks += ticks;
        loop->cores.batch += a->kind == CL_POLICY_BATCH ? ticks : 0;
        cl_store_relaxed(&a->stats.core_ns, (uint64_t)cl_ticks_to_ns(loop->io->clock, (int64_t)a->core_ticks));
        io_count(core->stats.busy_ns, (uint64_t)cl_ticks_to_ns(loop->io->clock, (int64_t)ticks));
    }
    cl_store_release(&core->accounted, now); /* release: after what changed */
}

static inline void fetch(const struct io_kthread *k)
{
    const struct cl_arena_kthread *lines = io_lines_of(k);
    cl_prefetch(&lines->signals);
    cl_prefetch(&lines->park);
    cl_prefetch(&lines->rx_head);
}

/* The words of kthreads that run, or did a moment ago, are in other cores' caches: have them come all at once. */
void io_fetch_words(const struct io_cores *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct io_core *core = &c->core[i];
        if (core->owner)
            fetch(core->owner);
        for (unsigned h = 0; h < IO_YIELD_WAITERS && core->yield_waiters[h]; h++)
            if (core->yield_waiters[h] != core->owner)
                fetch(core->yield_waiters[h]);
    }
}

static void account(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    for (uint32_t i = 0; i < c->n_apps; i++)
        c->apps[i]->cores.held = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        struct io_core *core = &c->core[i];
        io_core_account(loop, core, now);
        core->busy = io_core_has_work(core);
        if (core->busy) {
            core->owner->app->cores.held++;
            core->idle_since = 0;
        }
        cl_store_relaxed(&core->stats.busy, core->busy);
        if (core->yield_wait_until && (int64_t)(now - core->yield_wait_until) >= 0)
            io_yield_wait_clear(core);
        if (core->yield_wait_until)
            c->next_due = cl_min(c->next_due, core->yield_wait_until);
    }
}

/* The kernel may be called for it, as is done for most cores that it is given. */
static bool may_be_served(struct io_app *app, uint64_t now)
{
    cl_bucket_refill(&app->wakes, now);
    return cl_bucket_open(&app->wakes);
}

/* What the policy grants nobody who can take it now, to those that wait. */
static void share_idle(struct io_loop *loop)
{
    struct io_cores *c = &loop->cores;
    struct cl_policy_setting now;
    uint32_t granted = 0;
    for (uint32_t i = 0; i < c->n_apps && granted < c->n; i++) {
        const struct io_allotment *a = &c->apps[i]->cores;
        uint32_t usable = cl_min(c->table[i].grant, a->demand);
        granted += usable > a->held && may_be_served(c->apps[i], loop->now) ? usable : a->held;
    }
    if (granted >= c->n)
        return;
    cl_policy_host_current(c->host, &now);
    if (now.fn == cl_policy_static)
        return;
    for (uint32_t kind = CL_POLICY_LATENCY; kind <= CL_POLICY_BATCH; kind++)
        for (uint32_t i = 0; i < c->n_apps && granted < c->n; i++) {
            struct cl_policy_app *row = &c->table[i];
            const struct io_allotment *a = &c->apps[i]->cores;
            if (row->kind != kind || !io_wants_more(c->apps[i]) || row->grant > a->held)
                continue;
            if (a->held && cl_policy_oldest_ns(row) < c->view.interval_ns)
                continue;
            row->grant = a->held + 1;
            granted++;
        }
}

/* Whether `app` may take this core from an owner that has work. */
static bool may_take(struct io_cores *c, const struct io_app *app, const struct io_core *core, uint64_t now)
{
    const struct io_app *has = core->owner->app;
    const struct io_allotment *a = &app->cores, *b = &has->cores;
    if (has == app || b->held <= io_row_of(c, has)->grant)
        return false;
    bool equal = a->kind == b->kind && a->held >= io_row_of(c, app)->guaranteed;
    if (!io_core_settled(core) && (equal || !io_core_turns(core))) {
        c->held_up |= !equal; /* an equal will be held off for longer than that takes */
        return false;
    }
    if (!equal || core->moving)
        return true;
    return now - core->decided >= (a->kind == CL_POLICY_BATCH ? c->hold_batch : c->hold_latency);
}

/* How good a core is for k; 0: it may not have it. */
static uint32_t merit(struct io_cores *c, const struct io_kthread *k, const struct io_core *core, uint64_t now)
{
    bool last = core == k->member.last;
    if (!io_core_has_work(core))
        return core->moving ? 0 : 1000000 + 2 * last + (core->owner == NULL);
    if (!may_take(c, k->app, core, now))
        return 0;
    const struct io_allotment *b = &core->owner->app->cores;
    uint32_t over = cl_min(b->held - io_row_of(c, core->owner->app)->grant, 1000u);
    return 1 + last + 4 * over + (b->kind == CL_POLICY_BATCH) * 10000;
}

static struct io_core *best_core(struct io_cores *c, const struct io_kthread *k, uint64_t now)
{
    struct io_core *best = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t m = merit(c, k, &c->core[i], now);
        if (m > most) {
            most = m;
            best = &c->core[i];
        }
    }
    return best;
}

/* Whether k waits for a core in the middle of a uthread. That one may hold locks, and no sibling can go on with it. */
static bool is_stuck(const struct io_member *m)
{
    return io_park_is_ceded(m->signals.park) && cl_load_relaxed(&m->signals.shared->in_uthread) == 1;
}

/* The kthread that should get a core: one that waits inside a uthread, one with work of its own, that has a core and
 * parked, that ran last; in this order. */
static struct io_kthread *best_kthread(struct io_app *app)
{
    struct io_kthread *best = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < app->n_kthreads; i++) {
        struct io_kthread *k = &app->kthreads[i];
        struct io_member *m = &k->member;
        if (!m->usable || (m->core && io_core_has_work(m->core)))
            continue;
        bool free = m->last && !m->core && !io_core_has_work(m->last);
        uint32_t merit = 1 + 16 * is_stuck(m) + 8 * (m->signals.waiting != 0) + 4 * (m->core != NULL) + 2 * free +
                         (k == app->cores.last_run);
        if (merit > most) {
            most = merit;
            best = k;
        }
    }
    return best;
}

static void note_detection(struct io_loop *loop, struct io_app *app)
{
    const struct cl_policy_app *row = io_row_of(&loop->cores, app);
    uint64_t oldest = cl_policy_oldest_ns(row);
    if (oldest && app->cores.kind == CL_POLICY_LATENCY)
        cl_hist_record(app->cores.detection, oldest);
}

void io_cores_answered(struct io_loop *loop, struct io_app *app)
{
    struct io_allotment *a = &app->cores;
    uint64_t ns = cl_min(io_ns(loop->io, loop->now - a->given), (uint64_t)ANSWER_MOST_NS);
    a->given = 0;
    a->stands = false; /* its row is to say so */
    a->answer_ns = a->answer_ns ? a->answer_ns - a->answer_ns / ANSWER_MEMORY + ns / ANSWER_MEMORY : ns;
}

/* k, which was to get a core, turns out to be dead: a sibling may have it, or somebody else, and at this decision. */
static void lose_kthread(struct io_cores *c, struct io_kthread *k)
{
    struct io_allotment *a = &k->app->cores;
    c->lost_one = true;
    k->member.usable = false;
    a->usable--;
    a->demand = cl_max(cl_min(a->demand, a->usable), a->held);
}

/* Give `app` one core more. */
static bool give_one(struct io_loop *loop, struct io_app *app, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    if (!may_be_served(app, now)) {
        io_count(app->cores.stats.delayed, 1);
        return false;
    }
    struct io_kthread *k = best_kthread(app);
    if (!k)
        return false;
    if (k->member.core) { /* parked, and nobody has taken its core */
        if (!io_move_wake(loop, k, now))
            return false;
    } else {
        struct io_core *core = best_core(c, k, now);
        struct io_app *loser = core && core->owner && io_core_has_work(core) ? core->owner->app : NULL;
        if (!core || (core->owner && core->owner->blocked && !io_blocked_still(loop, core->owner, now)))
            return false;
        if (!io_move(loop, core, k, now)) {
            lose_kthread(c, k);
            return false;
        }
        if (loser && loser->cores.held)
            cl_store_relaxed(&loser->cores.stats.cores, --loser->cores.held);
        core->busy = true;
        app->cores.given = loser && app->cores.held == 0 ? now : 0;
        app->cores.held++;
    }
    note_detection(loop, app);
    return true;
}

/* Guarantees first, then latency, then batch. Who gets none before it gets none later: only one with more than its
 * grant loses a core to another, and has no less than its grant then. */
static void act(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_app *due[CL_IO_MAX_APPS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        struct io_app *app = c->active[i];
        due[n] = app;
        n += (unsigned)io_wants_more(app) & (unsigned)(app->cores.held < io_row_of(c, app)->grant);
    }
    for (uint32_t pass = 0; n && pass < 3; pass++)
        for (uint32_t i = 0; i < n; i++) {
            const struct cl_policy_app *row = io_row_of(c, due[i]);
            uint32_t until = pass == 0 ? cl_min(row->guaranteed, row->grant) : row->grant;
            if (pass && row->kind != pass - 1)
                continue;
            while (io_wants_more(due[i]) && due[i]->cores.held < until)
                if (!give_one(loop, due[i], now))
                    break;
        }
}

static void set_wanted(struct io_core *core, bool wanted)
{
    if (core->wanted == wanted)
        return;
    core->wanted = wanted;
    cl_store_relaxed(&core->state->wanted, wanted); /* advice: orders nothing */
}

/* Whether the application said that it waits more than an interval before the loop's sleep ended, and rang for nothing
 * in that sleep: after a ring it is the kernel that lets the loop run late. */
static bool was_slept_through(const struct io_loop *loop, const struct io_allotment *a)
{
    const struct io_cores *c = &loop->cores;
    uint64_t rung = cl_load_relaxed(&io_lines_of(&a->kthreads[0])->rung_tsc), slept = loop->woke - c->last_check;
    if (a->help_since - c->last_check > slept || rung - c->last_check <= slept)
        return false;
    return loop->woke - a->help_since > c->interval;
}

/* Whether this decision is late: it comes after a sleep, or otherwise more than an interval late. If a core idled
 * beside an application that waited meanwhile, nobody had decided so: that is counted apart. So is sleep beside an
 * application that waited. Called once the signals are read, before anything is done about them. */
static bool late_decision(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    bool slept = (int64_t)(loop->woke - c->last_check) > 0, waits = false, through = false, idle = false;
    uint64_t gap = now - (slept ? loop->woke : c->last_check);
    bool late = (int64_t)(gap - 2 * c->interval) > 0;
    if (cl_likely(!late && !slept) || c->last_check == 0)
        return false;
    if (late)
        cl_hist_record(c->late_decision, io_ns(loop->io, gap));
    for (uint32_t i = 0; i < c->n_active; i++) {
        waits |= io_wants_more(c->active[i]);
        through |= slept && io_wants_more(c->active[i]) && was_slept_through(loop, &c->active[i]->cores);
    }
    for (uint32_t i = 0; i < c->n; i++)
        idle |= !io_core_has_work(&c->core[i]) && !c->core[i].moving;
    io_count(c->stats.late_decisions, late);
    io_count(c->stats.violations_late, late && waits && idle);
    io_count(c->stats.violations_asleep, through && idle);
    return late || slept;
}

/* How long the oldest thing waits in an application that might be served. It could use more cores at each decision for
 * more than an interval while one was idle: it may get one core after the other, one at a decision. */
static uint64_t longest_wait_ns(struct io_cores *c, bool late, uint64_t now)
{
    uint64_t waits_ns = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        struct io_allotment *a = &c->active[i]->cores;
        bool starves = io_wants_more(c->active[i]) && cl_bucket_open(&c->active[i]->wakes);
        if (!starves || a->starves_since == 0 || a->starves_spell != c->idle_spell || late)
            a->starves_since = starves ? now : 0;
        a->starves_spell = c->idle_spell;
        if (starves && now - a->starves_since > c->interval)
            waits_ns = cl_max(waits_ns, cl_policy_oldest_ns(io_row_of(c, c->active[i])));
    }
    return waits_ns;
}

/* Who still waits, and what follows: owners without work park at once, and the loop watches them. It is a violation if
 * a core was idle at each decision for more than an interval, beside something that waits for as long and might be
 * served. */
static void survey(struct io_loop *loop, bool late, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    const struct io_app *one = NULL;
    bool below = false, quanta = false, others = c->n_resting > 0;
    uint32_t idle = 0;
    uint64_t idles = 0;
    c->n_waiting = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        struct io_app *app = c->active[i];
        struct io_allotment *a = &app->cores;
        if (a->held) {
            cl_store_relaxed(&a->stats.cores, a->held);
            below |= a->held < cl_min(cl_min(a->maximum, a->usable), c->n);
            quanta |= a->quantum_ticks != 0;
        }
        others |= a->usable > a->held;
        if (!io_wants_more(app))
            continue;
        one = app;
        c->n_waiting++;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        struct io_core *core = &c->core[i];
        bool is_idle = !io_core_has_work(core) && !core->moving; /* moving without owner: the old one is there */
        idle += is_idle;
        if (!is_idle || core->idle_since == 0 || late) /* in between nobody decided */
            core->idle_since = is_idle ? now : 0;
        idles = cl_max(idles, is_idle ? now - core->idle_since : 0);
        set_wanted(core, c->n_waiting > 1 || (one && (!core->owner || core->owner->app != one)));
    }
    if (others && idle < c->n)
        c->next_due = cl_min(c->next_due, io_overrun_due(loop));
    c->contested = c->n_waiting > 0;
    c->awake = c->n_waiting || c->n_moving || below || quanta;
    c->idle_spell += idle == 0;
    if (idle == 0 || longest_wait_ns(c, late, now) <= c->view.interval_ns || idles <= c->interval)
        return;
    io_count(c->stats.violations, 1);
    for (uint32_t i = 0; i < c->n; i++)
        c->core[i].idle_since = 0;
}

/* What moves cost batch work lately. */
static inline void tell_cost(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    if (cl_unlikely(now - c->halved >= c->crossed_memory)) {
        uint64_t times = cl_min((now - c->halved) / c->crossed_memory, (uint64_t)63);
        c->batch >>= times;
        c->crossing >>= times;
        c->halved = now;
    }
    c->view.batch_ns = io_ns(loop->io, c->batch);
    c->view.moving_ns = io_ns(loop->io, c->crossing);
}

static void decide(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    uint64_t turn = c->stats.decisions % IO_TIMED;
    if (cl_unlikely(turn == IO_TIMED / 2))
        io_lines_time(loop);
    bool timed = turn == 0;
    uint64_t begin = timed ? cl_tsc_ordered() : 0;
    io_fetch_words(c);
    io_demand_changes(loop);
    account(loop, now);
    io_demand_apps(loop);
    io_promises_keep(loop, now);
    io_denied_keep(loop, now);
    bool late = late_decision(loop, now);
    c->view.now_ns = (uint64_t)cl_tsc_to_ns(loop->io->clock, now);
    c->held_up = false;
    tell_cost(loop, now);
    cl_policy_run(c->host, &c->view, c->table);
    do {
        c->lost_one = false;
        share_idle(loop);
        act(loop, now);
    } while (cl_unlikely(c->lost_one)); /* each time it is another one */
    survey(loop, late, now);
    io_overrun_round(loop, now);
    io_blocked_round(loop, now);
    cl_store_relaxed(&c->last_check, now);
    io_count(c->stats.decisions, 1);
    if (timed) {
        uint64_t ns = (uint64_t)cl_ticks_to_ns(cl_clock_default(), (int64_t)(cl_tsc_ordered() - begin));
        io_count(c->stats.decisions_timed, 1);
        io_count(c->stats.decision_ns, ns);
        cl_hist_record(c->decision, ns);
    }
}

/* An owner has no work any more while others wait for a core. */
static bool owner_parked(const struct io_cores *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->core[i].busy && !io_core_has_work(&c->core[i]))
            return true;
    return false;
}

CL_HOT void io_cores_round(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    if (c->n_apps == 0) {
        c->awake = false;
        cl_store_relaxed(&c->last_check, now);
        return;
    }
    if (c->n_moving && io_moves_poll(loop, now))
        c->urgent = true;
    if (cl_unlikely(c->n_quantum))
        io_watch_quanta(c);
    if (c->contested && owner_parked(c))
        c->urgent = true;
    if (cl_likely((int64_t)(now - c->next_check) < 0)) {
        /* What an application can bring about by its words costs the others a decision a microsecond, no more; but two
         * in a row, since a frame that comes just before its sender parks would keep that one's core idle for a
         * microsecond. */
        if (cl_likely(!c->urgent) || (int64_t)(now + c->urgent_gap - c->next_urgent) < 0)
            return;
        io_count(c->stats.urgent, 1);
    }
    c->urgent = false;
    decide(loop, now);
    c->next_check = now + c->interval;
    c->next_urgent = ((int64_t)(now - c->next_urgent) < 0 ? c->next_urgent : now) + c->urgent_gap;
}
