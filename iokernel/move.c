/* How a core changes hands: docs/cores.md tells the protocol, this is the iokernel's side of it.
 *
 * Order of the words of one change. Where the kthread is to run, whether to wake it and whether to wait hot, then the
 * owner (release), then the kthread's grant (release; it is the futex), then the old owner's look bit (release): who sees
 * one sees what was stored before it. Then a fence and a second look at both park words, against a kthread that changes
 * its mind meanwhile: it stores its park word, fences, and looks at owner and grant. One of the two sees the other.
 *
 * A move ends when the new owner says that it runs (`acted`) and the old one that it does not (park word), or was
 * evicted. Nothing else waits: each step has its time, whatever the application's words say. */
#include "internal.h"

#include <errno.h>

#define MOVE_MEMORY 16 /* moves that view.move_ns remembers, about */
#define MOST_LATE 20   /* times start_us for which a new owner is waited for while the kernel has it in line */
#define HOT_MOVES 6    /* of a core, in which one that is to stay hot for it was part of one */
#define MOST_STALLS 8u /* doublings of the time for which one that did not begin is not considered: 80 ms at most */

static inline uint32_t slot_of(const struct io_kthread *k)
{
    return k ? k->member.slot + 1 : 0;
}

/* Have k run on `core`, at a common priority. False: it is dead. */
static bool place(struct io_loop *loop, struct io_kthread *k, const struct io_core *core)
{
    struct io_member *m = &k->member;
    if (cl_likely(m->pinned == (int32_t)core->cpu && !m->demoted))
        return true;
    if (!io_thread_alive(loop, k))
        return false;
    if (m->demoted) {
        io_thread_policy(loop, k, SCHED_OTHER);
        m->demoted = false;
    }
    if (m->pinned != (int32_t)core->cpu)
        io_affinity_bind(loop, k, core);
    return true;
}

void io_look(struct io_kthread *k)
{
    struct io_allotment *a = &k->app->cores;
    uint64_t bit = 1ull << (k - k->app->kthreads);
    uint64_t look = k->member.look_move || k->member.look_quantum ? a->look | bit : a->look & ~bit;
    if (look == a->look)
        return;
    a->look = look;
    /* Release: who sees the bit sees the owner that it announces. */
    cl_store_release(a->shared_look, look);
}

void io_end_quantum(struct io_cores *c, struct io_kthread *k)
{
    if (!k->member.look_quantum)
        return;
    k->member.look_quantum = false;
    c->n_quantum--;
    io_look(k);
}

static void set_look_move(struct io_kthread *k, bool on)
{
    k->member.look_move = on;
    io_look(k);
}

static void set_hot(struct io_kthread *k, struct io_core *core)
{
    struct io_member *m = &k->member;
    if (!m->hot_core != !core)
        cl_store_relaxed(&m->state->hot, core != NULL);
    m->hot_core = core;
}

static void cool_one(struct io_core *core, unsigned i)
{
    if (core->hot[i]->member.hot_core == core)
        set_hot(core->hot[i], NULL);
    core->hot[i] = NULL;
}

void io_core_cool(struct io_core *core)
{
    for (unsigned i = 0; i < IO_HOT && core->hot[i]; i++)
        cool_one(core, i);
    core->hot_until = 0;
}

void io_core_cool_app(struct io_core *core, const struct io_app *app)
{
    unsigned n = 0;
    for (unsigned i = 0; i < IO_HOT; i++)
        if (core->hot[i] && core->hot[i]->app != app)
            core->hot[n++] = core->hot[i];
    while (n < IO_HOT)
        core->hot[n++] = NULL;
}

static void heat_one(struct io_core *core, struct io_kthread *k)
{
    unsigned i = 0;
    while (i < IO_HOT - 1 && core->hot[i] && core->hot[i] != k)
        i++;
    if (core->hot[i] && core->hot[i] != k)
        cool_one(core, i);
    for (; i > 0; i--)
        core->hot[i] = core->hot[i - 1];
    core->hot[0] = k;
    k->member.hot_move = core->stats.moves;
    set_hot(k, core);
}

/* Those between which the core changes hands wait for it hot for a while. Each one more is one that a yield may run for nothing,
 * which takes a switch, where one that sleeps takes a wake and some more: so not who had the core some moves ago. */
static void heat(const struct io_cores *c, struct io_core *core, struct io_kthread *to, struct io_kthread *from,
                 uint64_t now)
{
    if (from)
        heat_one(core, from);
    heat_one(core, to);
    for (unsigned i = 2; i < IO_HOT && core->hot[i]; i++)
        if (core->stats.moves - core->hot[i]->member.hot_move > HOT_MOVES)
            cool_one(core, i);
    core->hot_until = now + c->hot;
}

static void set_moving(struct io_cores *c, struct io_core *core, bool moving)
{
    c->n_moving += moving - core->moving;
    core->moving = moving;
}

static void bump(struct io_kthread *k)
{
    struct io_member *m = &k->member;
    m->grant++;
    cl_store_release(&m->state->grant, m->grant); /* release: the core's owner comes before */
}

static void set_owner(struct io_cores *c, struct io_core *core, struct io_kthread *k, uint64_t now)
{
    if (core->owner) {
        core->owner->app->cores.stands = false;
        core->owner->member.core = NULL;
        io_squat_moved(core->owner, NULL);
        io_end_quantum(c, core->owner);
    }
    core->owner = k;
    if (k) {
        k->app->cores.stands = false;
        io_squat_moved(k, core);
        k->member.core = k->member.last = core;
    }
    cl_store_relaxed(&core->state->moves, core->state->moves + 1);
    cl_store_relaxed(&core->state->decided_tsc, now);
    /* Release: `wake` and the kthread's `cpu` and `hot` come before. */
    cl_store_release(&core->state->owner, slot_of(k));
    if (k)
        bump(k); /* at once: who sees itself as owner looks for the grant that goes with it */
    cl_store_relaxed(&core->stats.owner, slot_of(k));
    cl_store_relaxed(&core->stats.app, k ? k->app->id : 0);
    cl_store_relaxed(&core->stats.kthread, k ? (uint32_t)(k - k->app->kthreads) : 0);
    io_count(core->stats.moves, 1);
}

/* The steps are taken from the first one on. `now` is the beginning of a round, and one that decides after a sleep may have
 * taken as long as a step by now: the time of the first step begins when the next round does. */
static void begin_steps(struct io_core *core)
{
    core->stage = 0;
    core->next_stage = 0;
    core->late = 0;
}

static void begin(struct io_cores *c, struct io_core *core, struct io_kthread *from, unsigned step, uint64_t now)
{
    core->from = from;
    core->step = (uint8_t)step;
    begin_steps(core);
    core->begun = core->extended = false;
    core->dying = NULL;
    core->decided = now;
    set_moving(c, core, true);
    if (from)
        from->member.leaving = true;
}

static void ask(struct io_loop *loop, struct io_core *core)
{
    core->step = CL_IO_STEP_ASK;
    set_look_move(core->from, true);
    io_count(loop->cores.stats.asked, 1);
    io_count(core->from->app->cores.stats.asked, 1);
}

bool io_core_settled(const struct io_core *core)
{
    return !core->moving || core->stage == 2;
}

static inline bool in_the_way(const struct io_core *core)
{
    return core->from && io_park_of(core->from) == CL_KTHREAD_RUNNING;
}

/* An entry of the log that does not change the owner. */
static void note(struct io_loop *loop, const struct io_core *core, unsigned what, uint64_t now)
{
    io_cores_log(loop, now, core, slot_of(core->owner), slot_of(core->owner), what, core->step);
}

void io_move_forget(struct io_core *core)
{
    if (!core->from)
        return;
    core->from->member.leaving = false;
    core->from = NULL;
    core->spare.on = false;
    core->spare.peek = 0;
}

/* k has stepped aside for a move that has not ended, and is to have a core again: from here on it may run. */
static void came_back(struct io_cores *c, const struct io_kthread *k)
{
    for (uint32_t i = 0; k->member.leaving && i < c->n; i++)
        if (c->core[i].from == k)
            io_move_forget(&c->core[i]);
}

/* It did not step aside: the new owner need not share the core with it as with an equal. */
static void evict(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_kthread *from = core->from;
    bool alive = io_move_demote(loop, from, core);
    io_dying_begin(loop, core, now); /* if it is */
    io_move_forget(core);
    if (!alive)
        return;
    io_count(c->stats.evicted, 1);
    io_count(from->app->cores.stats.evicted, 1);
    from->member.evicted = true;
    from->member.evicted_until = now + c->start;
    if (core->begun || !core->owner)
        io_count(c->stats.evicted_late, 1);
    else
        core->step = CL_IO_STEP_EVICT;
    note(loop, core, CL_IO_LOG_EVICTED, now);
}

static void evict_unless_spared(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    if (!io_spare(loop, core, now) && in_the_way(core)) /* it may have stepped aside while the kernel was asked */
        evict(loop, core, now);
}

/* The move goes no further: it was overtaken, or the new owner did not begin. */
static void abandon(struct io_cores *c, const struct io_core *core)
{
    io_count(c->stats.evicted_void, core->moving && core->owner && !core->begun && core->step == CL_IO_STEP_EVICT);
}

bool io_move(struct io_loop *loop, struct io_core *core, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_kthread *old = core->owner;
    core->stamps = (struct io_stamps){.decided = (uint32_t)cl_tsc()};
    if (!place(loop, k, core))
        return false;
    if (core->from != k && in_the_way(core)) /* it had stepped aside, and runs again */
        evict(loop, core, now);
    io_move_forget(core);
    abandon(c, core);
    came_back(c, k);
    bool blocked = old && old->blocked, running = old && !blocked && io_park_of(old) == CL_KTHREAD_RUNNING;
    bool cold = !io_park_is_hot(io_park_of(k));
    heat(c, core, k, old, now);
    cl_store_relaxed(&k->member.state->cpu, (int32_t)core->cpu);
    cl_store_relaxed(&core->state->wake, cold && running);
    set_look_move(k, false);
    io_core_account(loop, core, now);
    set_owner(c, core, k, now);
    begin(c, core, blocked ? NULL : old, !old ? CL_IO_STEP_IDLE : CL_IO_STEP_PARKED, now);
    if (running)
        ask(loop, core);
    if (blocked)
        set_look_move(old, true); /* it is to see it when it goes on */
    cl_fence_seq_cst();           /* see the head of this file */
    core->stamps.stored = (uint32_t)cl_tsc_ordered();
    if (core->from && !running && io_park_of(old) == CL_KTHREAD_RUNNING)
        ask(loop, core);
    else if (running && io_park_of(old) != CL_KTHREAD_RUNNING)
        running = false; /* it may have stepped aside before it could see `wake` */
    if (!io_park_is_hot(io_park_of(k)) && !(cold && running))
        io_thread_wake(loop, k);
    io_cores_log(loop, now, core, slot_of(old), slot_of(k), CL_IO_LOG_WANTED, core->step);
    io_count(c->stats.moves, 1);
    io_count(k->app->cores.stats.moves_in, 1);
    if (old)
        io_count(old->app->cores.stats.moves_out, 1);
    k->app->cores.last_run = k;
    if (old && old->app != k->app)
        io_steer(loop, old->app);
    io_steer(loop, k->app);
    return true;
}

bool io_move_wake(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_core *core = k->member.core;
    cl_bucket_refill(&k->app->wakes, now);
    if (!cl_bucket_open(&k->app->wakes)) {
        io_count(k->app->stats.wakes_delayed, 1);
        return false;
    }
    bump(k);
    begin(c, core, NULL, CL_IO_STEP_WAKE, now);
    k->app->cores.last_run = k;
    if (!core->busy) {
        io_core_account(loop, core, now);
        core->busy = true;
        k->app->cores.held++;
    }
    cl_fence_seq_cst(); /* it stores its park word, fences, and looks at the grant; or sleeps on the old one, and is woken */
    if (!io_park_is_hot(io_park_of(k)))
        io_thread_wake(loop, k);
    note(loop, core, CL_IO_LOG_WOKEN, now);
    io_count(k->app->stats.wakes, 1);
    io_count(k->app->cores.stats.wakes, 1);
    io_count(c->stats.wakes, 1);
    return true;
}

void io_move_release(struct io_loop *loop, struct io_core *core, unsigned what, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_kthread *k = core->owner;
    io_core_account(loop, core, now);
    if (core->spare.on && in_the_way(core)) /* it was spared for the sake of an owner that is no more */
        evict(loop, core, now);
    if (!in_the_way(core))
        io_move_forget(core);
    io_cores_log(loop, now, core, slot_of(k), 0, what, core->step);
    abandon(c, core);
    if (!core->from) /* else nobody gets the core before the steps have been taken */
        set_moving(c, core, false);
    cl_store_relaxed(&core->state->wake, 0);
    set_owner(c, core, NULL, now);
    c->urgent = true;
    if (!k)
        return;
    set_look_move(k, true); /* should it run after all, it is to see that it may not */
    io_count(k->app->cores.stats.moves_out, 1);
    if (k->app->cores.held)
        k->app->cores.held--;
    io_steer(loop, k->app);
}

/* The new owner has not begun in time. Were the core taken from it while it is in line, it would find nothing when its turn
 * comes, and so each time where that takes longer than start_us. Who may have the core by the policy gets it all the same. */
static bool wait_on(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    if (core->late == MOST_LATE || io_park_of(core->owner) == CL_KTHREAD_RUNNING ||
        !io_thread_in_line(loop, core->owner))
        return false;
    core->late++;
    core->next_stage = now + c->start;
    io_count(c->stats.late, 1);
    io_count(core->owner->app->cores.stats.late, 1);
    return true;
}

void io_move_oust(struct io_loop *loop, struct io_core *core, struct io_kthread *k)
{
    core->from = k;
    k->member.leaving = true;
    begin_steps(core);
    set_moving(&loop->cores, core, true);
    ask(loop, core);
}

/* The new owner did not begin. It is not considered again until it does anything, or, since one that was only stopped has
 * nothing to do when it goes on, after a while that doubles each time; but not for one that was in line all the time. */
static void stalled(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_kthread *k = core->owner;
    struct io_member *m = &k->member;
    m->stalled = true;
    m->stall_mark = io_signals_mark(&m->signals, k->park);
    if (core->late == MOST_LATE)
        m->stalls = 0;
    m->retry = now + (loop->cores.start / 16 << cl_min(m->stalls, MOST_STALLS));
    m->stalls++;
    io_count(loop->cores.stats.not_started, 1);
    io_count(k->app->cores.stats.not_started, 1);
    io_move_release(loop, core, CL_IO_LOG_STALLED, now);
    cl_fence_seq_cst(); /* it stores RUNNING, fences, and looks at the owner; one of the two sees the other */
    if (io_park_of(k) != CL_KTHREAD_RUNNING)
        return;
    io_move_forget(core);        /* who says since a moment ago that it runs again is for squat.c to find */
    io_move_oust(loop, core, k); /* it got up by itself, and runs on without a look at its grant: now it must go */
}

static void died(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    core->owner->member.dead = true;
    io_count(loop->cores.stats.died, 1);
    io_move_release(loop, core, CL_IO_LOG_DIED, now);
}

static void interrupt(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_kthread *from = core->from;
    int signal = from->app->cores.signal;
    if (signal == 0)
        return; /* it registered none: that step is left out */
    cl_bucket_refill(&from->app->wakes, loop->now);
    if (!cl_bucket_open(&from->app->wakes)) {
        io_count(loop->cores.stats.interrupts_spared, 1);
        return; /* the next step comes all the same */
    }
    int rc = io_thread_signal(loop, from, signal);
    if (rc == -ESRCH) {
        io_dying_begin(loop, core, now);
        io_move_forget(core);
    } else if (rc < 0) {
        io_count(loop->cores.stats.interrupts_failed, 1);
    } else {
        if (!core->begun)
            core->step = CL_IO_STEP_INTERRUPT;
        io_count(loop->cores.stats.interrupted, 1);
        io_count(from->app->cores.stats.interrupted, 1);
        note(loop, core, CL_IO_LOG_INTERRUPTED, now);
    }
}

bool io_move_demote(struct io_loop *loop, struct io_kthread *k, const struct io_core *off)
{
    struct io_cores *c = &loop->cores;
    if (!io_thread_alive(loop, k))
        return false;
    int rc = io_thread_policy(loop, k, SCHED_IDLE);
    if (rc < 0)
        io_count(c->stats.evictions_failed, 1);
    k->member.demoted = rc == 0;
    if (k->member.hot_core) /* a yield to it would last until the tick: whoever is woken preempts it at once */
        io_core_cool(k->member.hot_core);
    if (c->n > 1) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (uint32_t i = 0; i < c->n; i++)
            if (&c->core[i] != off)
                CPU_SET(c->core[i].cpu, &set);
        io_thread_bind(loop, k, &set);
        k->member.pinned = -1;
    }
    return true;
}

/* The old owner is in a call of the kernel, in which a signal does not reach it, and looks when it comes back. Or it said since
 * the decision that it had seen it, and is on its way out: code and words that it has not touched for long take it more than
 * the interval, and a signal would come on top of that. The one for as long as the next step takes at most, the other once a
 * move, so that lies gain that and one interval; and an old stamp that looks young, being a low word, no more than a lie.
 * Relaxed: advice. */
static bool extend(const struct io_cores *c, struct io_core *core, uint64_t now)
{
    const struct cl_signals *s = core->from->member.signals.shared;
    core->next_stage = now + c->ask;
    if (cl_load_relaxed(&s->in_call) && now - core->asked < c->interrupt)
        return true;
    uint32_t since = (uint32_t)cl_tsc() - core->stamps.decided;
    uint32_t seen = cl_load_relaxed(&s->lost_tsc) - core->stamps.decided;
    if (core->extended || seen > since)
        return false;
    core->extended = true;
    return true;
}

/* A step's time is over. Returns whether the core came free. */
static bool escalate(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    bool waits_for_old = in_the_way(core), nobody = core->begun || !core->owner; /* nobody who is to begin */
    if (core->stage == 2 &&
        waits_for_old) /* it was spared up to now, or said that it had stepped aside, and runs again */
        evict(loop, core, now);
    if (core->stage == 2) {
        if (nobody || wait_on(loop, core, now))
            return false;
        stalled(loop, core, now);
        return true;
    }
    if (core->stage == 0 && waits_for_old && extend(c, core, now))
        return false;
    core->stage++;
    /* The last step takes its time also where the loop itself was kept from running since the decision. */
    core->next_stage = now + c->interrupt;
    if (core->stage == 2 && (int64_t)(core->decided + c->start - core->next_stage) > 0)
        core->next_stage = core->decided + c->start;
    if (waits_for_old && core->stage == 1) {
        interrupt(loop, core, now);
        waits_for_old = core->from != NULL;
        core->next_stage = 0;
    }
    if (waits_for_old && core->stage == 2)
        evict_unless_spared(loop, core, now);
    if (nobody)
        return false;
    if (core->stage == 2 && !io_thread_alive(loop, core->owner)) {
        died(loop, core, now);
        return true;
    }
    if (core->stage == 1 && io_park_of(core->owner) == CL_KTHREAD_RUNNING) {
        /* It got up by itself before it could see this grant. Busy as it is, it need not look for longer than start_us. */
        set_look_move(core->owner, true);
        return false;
    }
    if (!waits_for_old || core->stage == 2) /* who should have woken it has died, or lies; or it was nobody's duty */
        io_thread_wake(loop, core->owner);
    return false;
}

/* What the two say of when they did it. Relaxed: the new owner stored its stamp before `acted`, which was read with acquire, and
 * the old one its own before it yielded to that one. */
static void stamp(struct io_core *core)
{
    core->stamps.back = cl_load_relaxed(&core->owner->member.signals.shared->back_tsc);
    if (!core->from)
        return;
    core->stamps.lost = cl_load_relaxed(&core->from->member.signals.shared->lost_tsc);
    core->stamps.left = cl_load_relaxed(&core->from->member.signals.shared->left_tsc);
}

static void done(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_kthread *k = core->owner;
    core->begun = true;
    stamp(core);
    k->member.stalls = 0;
    set_look_move(k, false); /* if it was told to look at this grant */
    uint64_t ns = (uint64_t)cl_ticks_to_ns(loop->io->clock, (int64_t)(now - core->decided));
    cl_hist_record(c->actuation[core->step], ns);
    cl_hist_record(k->app->cores.actuation, ns);
    if (core->step == CL_IO_STEP_ASK || core->step == CL_IO_STEP_INTERRUPT) {
        /* What an application can add to it by being slow ends with the time of its steps. */
        uint64_t most = (uint64_t)cl_ticks_to_ns(loop->io->clock, (int64_t)(c->ask + c->interrupt));
        c->view.move_ns = (MOVE_MEMORY - 1) * c->view.move_ns / MOVE_MEMORY + cl_min(ns, most) / MOVE_MEMORY;
    }
}

/* How it goes on with the old owner. `noted`: the log has it already that the new one runs. */
static void poll_old(struct io_loop *loop, struct io_core *core, bool noted, uint64_t now)
{
    struct io_kthread *from = core->from;
    if (in_the_way(core)) {
        if (core->spare.on && (int64_t)(now - core->spare.next) >= 0)
            evict_unless_spared(loop, core, now);
        if (!core->from)
            return;
        if (core->spare.peek && (int64_t)(now - core->spare.peek) >= 0)
            io_spare_peek(loop, core, now);
        if (cl_likely(from->member.look_move))
            return;
        ask(loop, core); /* it had parked, and went on before it could see that its core had gone */
        begin_steps(core);
    } else if (core->begun || !core->owner) {
        set_look_move(from, false);
        io_move_forget(core);
        if (noted || !core->owner)
            note(loop, core, CL_IO_LOG_ASIDE, now);
    }
}

static bool poll_move(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_kthread *k = core->owner;
    bool noted = core->begun;
    /* Acquire: what it stored before, its park word among it, is seen by what we load next. */
    if (k && !core->begun && cl_load_acquire(&k->member.signals.shared->acted) == k->member.grant)
        done(loop, core, now);
    unsigned step = core->step;
    if (core->from)
        poll_old(loop, core, noted, now);
    if (cl_unlikely(core->dying != NULL) && !core->begun && k)
        io_dying_round(loop, core, now);
    if (core->begun && !noted) /* after that look, which says whether the old owner is still there */
        io_cores_log(loop, now, core, slot_of(k), slot_of(k), CL_IO_LOG_DONE, step);
    if ((core->begun || !k) && !core->from) {
        set_moving(&loop->cores, core, false);
        return !k;
    }
    if (core->next_stage == 0) {
        core->next_stage = now + (core->stage == 0 ? loop->cores.ask : loop->cores.interrupt);
        core->asked = core->stage == 0 ? now : core->asked;
        if (core->stage == 1 && core->from)
            io_spare_begin(loop, core, now);
        return false;
    }
    return (int64_t)(now - core->next_stage) >= 0 && escalate(loop, core, now);
}

bool io_moves_poll(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    bool freed = false;
    for (uint32_t i = 0, left = c->n_moving; left && i < c->n; i++)
        if (c->core[i].moving) {
            left--;
            freed |= poll_move(loop, &c->core[i], now);
        }
    return freed;
}

static inline bool may_take_frames(const struct io_kthread *k)
{
    return k->member.core && !k->blocked;
}

/* Where none may take frames: the one that ran last runs next as a rule, unless it is known that it cannot. */
static uint8_t next_to_run(const struct io_app *app)
{
    const struct io_kthread *last = app->cores.last_run ? app->cores.last_run : app->kthreads, *k = last;
    for (uint32_t i = 0; (k->blocked || k->member.dead) && i < app->n_kthreads; i++)
        k = &app->kthreads[i];
    return (uint8_t)((k->blocked || k->member.dead ? last : k) - app->kthreads);
}

void io_steer(struct io_loop *loop, struct io_app *app)
{
    struct io_allotment *a = &app->cores;
    uint8_t active[CL_SHM_MAX_KTHREADS];
    uint32_t n = 0;
    if (app->n_kthreads == 1)
        return;
    for (uint32_t k = 0; k < app->n_kthreads; k++)
        if (may_take_frames(&app->kthreads[k]))
            active[n++] = (uint8_t)k;
    if (n == 0)
        active[n++] = next_to_run(app);
    for (uint32_t i = 0; i < IO_STEER; i++) {
        /* A flow stays with its kthread as long as that one has a core. */
        uint32_t home = i * app->n_kthreads / IO_STEER;
        a->steer[i] = may_take_frames(&app->kthreads[home]) ? (uint8_t)home : active[i % n];
    }
    a->steered = true;
    io_count(loop->cores.stats.steers, 1);
}
