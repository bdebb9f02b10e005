/* How a core changes hands: docs/cores.md tells the protocol, this is the iokernel's side of it.
 *
 * Order of the words of one change. Where the kthread is to run, whether to wake it and whether to yield-wait, then the
 * owner (release), then the kthread's grant (release; it is the futex), then the old owner's preemption flag (release).
 * Who sees one of them sees what was stored before it. Then come a fence and a re-check of both park words, against a
 * kthread that changes its mind meanwhile: it stores its park word, fences, and reads owner and grant. One of the two
 * sees the other.
 *
 * A move ends when the new owner says that it runs (`acted`) and the old one that it does not (park word), or was
 * evicted. Nothing else waits: each step has its time, whatever the application's words say. */
#include "../state/internal.h"

#include <errno.h>

#define MOVE_MEMORY 16 /* moves that view.move_ns remembers, about */

/* Have k run on `core`, at its own priority. False: it is dead. */
static bool place(struct io_loop *loop, struct io_kthread *k, const struct io_core *core)
{
    struct io_member *m = &k->member;
    if (cl_likely(m->pinned == (int32_t)core->cpu && !m->demoted))
        return true;
    if (!io_thread_alive(loop, k))
        return false;
    if (m->demoted) {
        io_thread_restore(loop, k);
        m->demoted = false;
    }
    if (m->pinned != (int32_t)core->cpu)
        io_affinity_bind(loop, k, core);
    return true;
}

void io_preempt_store(struct io_kthread *k)
{
    struct io_allotment *a = &k->app->cores;
    uint64_t bit = 1ull << (k - k->app->kthreads);
    uint64_t preempt = k->member.preempt_move || k->member.preempt_quantum ? a->preempt | bit : a->preempt & ~bit;
    if (preempt == a->preempt)
        return;
    a->preempt = preempt;
    /* Release: who sees the bit sees the owner that it announces. */
    cl_store_release(a->shared_preempt, preempt);
}

void io_preempt_move(struct io_kthread *k, bool on)
{
    k->member.preempt_move = on;
    io_preempt_store(k);
}

void io_move_set_moving(struct io_cores *c, struct io_core *core, bool moving)
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
    /* Relaxed: our own words; with `owner` come these two. */
    cl_store_relaxed(&core->state->before, io_owner_word(core->owner));
    cl_store_relaxed(&core->state->before_tsc, cl_load_relaxed(&core->state->decided_tsc));
    if (core->owner) {
        core->owner->app->cores.stands = false;
        core->owner->member.core = NULL;
        io_overrun_moved(core->owner, NULL);
        io_end_quantum(c, core->owner);
    }
    core->owner = k;
    if (k) {
        k->app->cores.stands = false;
        io_overrun_moved(k, core);
        k->member.core = k->member.last = core;
    }
    cl_store_relaxed(&core->state->moves, core->state->moves + 1);
    cl_store_relaxed(&core->state->decided_tsc, now);
    /* Release: `wake` and the kthread's `cpu` and `yield_wait` come before. */
    cl_store_release(&core->state->owner, io_owner_word(k));
    if (k)
        bump(k); /* at once: a kthread that sees itself as owner reads the grant that goes with it */
    cl_store_relaxed(&core->stats.owner, io_owner_word(k));
    cl_store_relaxed(&core->stats.app, k ? k->app->id : 0);
    cl_store_relaxed(&core->stats.kthread, k ? (uint32_t)(k - k->app->kthreads) : 0);
    io_count(core->stats.moves, 1);
}

/* Since when its core is not its own: for it to read when it has one again, so it comes after what others wait for. */
static void tell_loss(const struct io_kthread *k, uint64_t now)
{
    cl_store_relaxed(&k->member.state->lost_tsc, now);
}

static void begin(struct io_cores *c, struct io_core *core, struct io_kthread *from, unsigned step, uint64_t now)
{
    core->from = from;
    core->step = (uint8_t)step;
    io_steps_begin(core);
    core->begun = core->extended = core->woken = core->turned = false;
    core->crosses = from && from->app->cores.kind != core->owner->app->cores.kind;
    core->dying = NULL;
    core->decided = now;
    io_move_set_moving(c, core, true);
    if (from)
        from->member.leaving = true;
}

bool io_core_settled(const struct io_core *core)
{
    return !core->moving || core->stage == 2;
}

/* Who is to begin finds that the core is not its own, as one does that gets up while its core is taken from it. Once:
 * whoever gets it so has to begin, or all steps to be taken, before it turns again. */
bool io_core_turns(const struct io_core *core)
{
    return core->owner && !core->turned && io_park_of(core->owner) != CL_KTHREAD_RUNNING && !io_in_the_way(core);
}

void io_move_note(struct io_loop *loop, const struct io_core *core, unsigned what, const struct io_kthread *about,
                  uint64_t now)
{
    io_cores_log(loop, now, core, io_owner_word(core->owner), io_owner_word(core->owner), what, core->step, about);
}

void io_move_forget(struct io_core *core)
{
    if (!core->from)
        return;
    core->from->member.leaving = false;
    core->from = NULL;
    core->starved.on = false;
    core->starved.peek = 0;
}

/* k has ceded for a move that has not ended, and is to have a core again: from here on it may run. */
static void came_back(struct io_cores *c, const struct io_kthread *k)
{
    for (uint32_t i = 0; k->member.leaving && i < c->n; i++)
        if (c->core[i].from == k)
            io_move_forget(&c->core[i]);
}

/* The move goes no further: it was overtaken, or the new owner did not begin. */
static void abandon(struct io_cores *c, const struct io_core *core)
{
    io_count(c->stats.evicted_void, core->moving && core->owner && !core->begun && core->step == CL_IO_STEP_EVICT);
}

/* The words of a change lie where the two kthreads poll them: have them come while the loop keeps its books. */
static inline void fetch_words(const struct io_core *core, const struct io_kthread *k)
{
    cl_prefetch_write(core->state);
    cl_prefetch_write(k->member.state);
    if (core->owner)
        cl_prefetch_write(core->owner->app->cores.shared_preempt);
}

/* Have k, whose grant is new, begin; after the fence. It may have got up by itself and read the grant before: then its
 * RUNNING is seen here, and it is to look again. `by_old`: the old owner wakes it. */
static void begin_owner(struct io_loop *loop, struct io_core *core, struct io_kthread *k, bool by_old)
{
    uint32_t park = io_park_of(k);
    if (park == CL_KTHREAD_RUNNING)
        io_preempt_move(k, true);
    else if (!io_park_yields(park) && !by_old)
        core->woken = io_thread_wake(loop, k);
}

bool io_move(struct io_loop *loop, struct io_core *core, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_kthread *old = core->owner;
    core->stamps = (struct io_stamps){.decided = (uint32_t)cl_tsc()};
    fetch_words(core, k);
    if (!place(loop, k, core))
        return false;
    bool turned = !io_core_settled(core); /* one that ceded it and gets up just now sees so by itself */
    if (!turned && core->from != k && io_in_the_way(core)) /* it had ceded, and runs again */
        io_step_evict(loop, core, now);
    io_move_forget(core);
    abandon(c, core);
    if (core->moving && !core->begun && old && old != k)
        io_step_overtaken(loop, core, now);
    struct io_kthread *dying = turned ? core->dying : NULL;
    came_back(c, k);
    bool blocked = old && old->blocked, running = old && !blocked && io_park_of(old) == CL_KTHREAD_RUNNING;
    bool asleep = !io_park_yields(io_park_of(k));
    io_yield_wait_moved(c, core, k, old, now);
    cl_store_relaxed(&k->member.state->cpu, (int32_t)core->cpu);
    cl_store_relaxed(&core->state->wake, asleep && running);
    io_preempt_move(k, false);
    io_core_account(loop, core, now);
    set_owner(c, core, k, now);
    begin(c, core, blocked ? NULL : old, !old ? CL_IO_STEP_IDLE : CL_IO_STEP_PARKED, now);
    core->turned = turned;
    core->dying = dying;
    if (running)
        io_step_request(loop, core);
    if (blocked)
        io_preempt_move(old, true); /* it is to see it when it goes on */
    cl_fence_seq_cst();             /* see the head of this file */
    core->stamps.stored = (uint32_t)cl_tsc_ordered();
    if (core->from && !running && io_park_of(old) == CL_KTHREAD_RUNNING)
        io_step_request(loop, core);
    else if (running && io_park_of(old) != CL_KTHREAD_RUNNING)
        running = false; /* it may have ceded before it could see `wake` */
    begin_owner(loop, core, k, asleep && running);
    io_cores_log(loop, now, core, io_owner_word(old), io_owner_word(k), CL_IO_LOG_WANTED, core->step, NULL);
    io_count(c->stats.moves, 1);
    io_count(k->app->cores.stats.moves_in, 1);
    if (old) {
        tell_loss(old, now);
        io_count(old->app->cores.stats.moves_out, 1);
    }
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
    cl_fence_seq_cst(); /* it stores its park word, fences, and reads the grant; or sleeps on the old one: is woken */
    begin_owner(loop, core, k, false);
    io_move_note(loop, core, CL_IO_LOG_WOKEN, NULL, now);
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
    core->busy = false;
    cl_store_relaxed(&core->stats.busy, 0);
    if (core->starved.on && io_in_the_way(core)) /* its eviction was put off, and the new owner is no more */
        io_step_evict(loop, core, now);
    if (!io_in_the_way(core))
        io_move_forget(core);
    io_cores_log(loop, now, core, io_owner_word(k), 0, what, core->step, NULL);
    abandon(c, core);
    if (!core->from) /* else nobody gets the core before the steps have been taken */
        io_move_set_moving(c, core, false);
    cl_store_relaxed(&core->state->wake, 0);
    set_owner(c, core, NULL, now);
    c->urgent = true;
    if (!k)
        return;
    tell_loss(k, now);
    io_preempt_move(k, true); /* should it run after all, it is to see that it may not */
    io_count(k->app->cores.stats.moves_out, 1);
    if (k->app->cores.held)
        k->app->cores.held--;
    io_steer(loop, k->app);
}

/* A core has arrived that was batch work's, or is so now. What one who is slow to let go of it works for meanwhile is
 * no cost, and what an application can add to it ends there. */
static void note_cost(struct io_loop *loop, const struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    uint64_t ticks = cl_min(now - core->decided, c->cede);
    c->crossing += ticks;
    io_count(c->stats.crossings, 1);
    io_count(c->stats.crossing_ns, io_ns(loop->io, ticks));
}

/* What the two say of when they did it. Relaxed: the new owner stored its stamp before `acted`, which was read with
 * acquire, and the old one its own before it yielded to that one. */
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
    core->turned = false;
    stamp(core);
    k->member.stalls = 0;
    k->member.not_begun = 0;
    io_preempt_move(k, false); /* its preemption flag may still be set */
    uint64_t ns = (uint64_t)cl_ticks_to_ns(loop->io->clock, (int64_t)(now - core->decided));
    cl_hist_record(c->actuation[core->step], ns);
    cl_hist_record(k->app->cores.actuation, ns);
    if (core->crosses)
        note_cost(loop, core, now);
    if (core->step == CL_IO_STEP_REQUEST || core->step == CL_IO_STEP_INTERRUPT) {
        /* What an application can add to it by being slow ends with the time of its steps. */
        uint64_t most = (uint64_t)cl_ticks_to_ns(loop->io->clock, (int64_t)(c->cede + c->interrupt));
        c->view.move_ns = (MOVE_MEMORY - 1) * c->view.move_ns / MOVE_MEMORY + cl_min(ns, most) / MOVE_MEMORY;
    }
}

/* How it goes on with the old owner. `noted`: the log has it already that the new one runs. */
static void poll_old(struct io_loop *loop, struct io_core *core, bool noted, uint64_t now)
{
    struct io_kthread *from = core->from;
    /* It has been asked, and nothing hangs on its answer before the new one begins: to look each round would take the
     * line away from it, just when it is to answer. */
    if (core->owner && !core->begun && from->member.preempt_move && !core->starved.on && !core->starved.peek)
        return;
    if (io_in_the_way(core)) {
        if (core->starved.on && (int64_t)(now - core->starved.next) >= 0)
            io_step_evict_unless_starved(loop, core, now);
        if (!core->from)
            return;
        if (core->starved.peek && (int64_t)(now - core->starved.peek) >= 0)
            io_starved_peek(loop, core, now);
        if (cl_likely(from->member.preempt_move))
            return;
        io_step_request(loop, core); /* it had parked, and went on before it could see that its core had gone */
        io_steps_begin(core);
    } else if (core->begun || !core->owner) {
        io_preempt_move(from, false);
        io_move_forget(core);
        if (noted || !core->owner)
            io_move_note(loop, core, CL_IO_LOG_CEDED, from, now);
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
    if (core->begun && !noted) /* after that check, which says whether the old owner is still there */
        io_cores_log(loop, now, core, io_owner_word(k), io_owner_word(k), CL_IO_LOG_DONE, step, NULL);
    if ((core->begun || !k) && !core->from) {
        io_move_set_moving(&loop->cores, core, false);
        return !k || loop->cores.held_up;
    }
    if (core->next_stage == 0) {
        core->next_stage = now + (core->stage == 0 ? loop->cores.cede : loop->cores.interrupt);
        core->requested = core->stage == 0 ? now : core->requested;
        if (core->stage == 1 && core->from)
            io_starved_begin(loop, core, now);
        return false;
    }
    return (int64_t)(now - core->next_stage) >= 0 && io_steps_escalate(loop, core, now);
}

bool io_moves_poll(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    bool due = false;
    for (uint32_t i = 0, left = c->n_moving; left && i < c->n; i++)
        if (c->core[i].moving) {
            left--;
            due |= poll_move(loop, &c->core[i], now);
        }
    return due;
}
