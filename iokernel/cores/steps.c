/* The steps by which an old owner is made to cede its core, and what is done about a new one that does not begin.
 *
 * Preemption request, interrupt, eviction: each has its time. It begins anew with each step and runs only while
 * something is waited for (move.c checks that once a round). docs/cores.md tells the steps.
 *
 * Tests: tests/iokernel/cores/c/steps.c, tests/iokernel/cores/c/late.c. */
#include "../state/internal.h"

#include <errno.h>

#define MOST_LATE 20   /* times start_us for which a new owner is waited for while the kernel has it in line */
#define MOST_STALLS 8u /* doublings of the time for which one that did not begin is not considered: 80 ms at most */

/* The steps are taken from the first one on. `now` is the beginning of a round, and one that decides after a sleep may
 * have taken as long as a step by now: the time of the first step begins when the next round does. */
void io_steps_begin(struct io_core *core)
{
    core->stage = 0;
    core->next_stage = 0;
    core->late = 0;
}

void io_step_request(struct io_loop *loop, struct io_core *core)
{
    core->step = CL_IO_STEP_REQUEST;
    io_preempt_move(core->from, true);
    io_count(loop->cores.stats.asked, 1);
    io_count(core->from->app->cores.stats.asked, 1);
}

/* It did not cede: the new owner need not share the core with it as with an equal. */
void io_step_evict(struct io_loop *loop, struct io_core *core, uint64_t now)
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
    io_move_note(loop, core, CL_IO_LOG_EVICTED, from, now);
}

void io_step_evict_unless_starved(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    if (!io_starved(loop, core, now) && io_in_the_way(core)) /* it may have ceded during the system call */
        io_step_evict(loop, core, now);
}

/* The new owner has not begun in time. Were the core taken from it while it is in line, it would find nothing when its
 * turn comes, and so each time where that takes longer than start_us. Who may have the core by the policy gets it all
 * the same. */
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
    io_steps_begin(core);
    io_move_set_moving(&loop->cores, core, true);
    io_step_request(loop, core);
}

/* The signal ends a sleep wherever it is. */
static void rouse(struct io_loop *loop, struct io_kthread *k)
{
    struct io_allotment *a = &k->app->cores;
    if (a->signal == 0 || io_thread_signal(loop, k, a->signal) < 0)
        return;
    io_count(loop->cores.stats.roused, 1);
    io_count(a->stats.roused, 1);
}

/* The new owner did not begin. It is not considered again until it does anything, or, since one that was only stopped
 * has nothing to do when it goes on, after a while that doubles each time; but not for one that was in line all the
 * time. */
static void pass_over(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_member *m = &k->member;
    m->stalled = true;
    m->stall_mark = io_signals_mark(&m->signals, k->park);
    m->retry = now + (loop->cores.start / 16 << cl_min(m->stalls, MOST_STALLS));
    m->stalls++;
    io_count(loop->cores.stats.not_started, 1);
    io_count(k->app->cores.stats.not_started, 1);
}

void io_step_overtaken(struct io_loop *loop, const struct io_core *core, uint64_t now)
{
    struct io_kthread *k = core->owner;
    k->member.not_begun += now - core->decided;
    if (k->member.not_begun < loop->cores.start)
        return;
    k->member.not_begun = 0;
    if (io_thread_in_line(loop, k))
        return;
    rouse(loop, k); /* it may sleep where no wake reaches it */
    pass_over(loop, k, now);
    k->member.usable = false; /* at this decision, too */
}

static void stalled(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_kthread *k = core->owner;
    if (core->late == MOST_LATE)
        k->member.stalls = 0;
    pass_over(loop, k, now);
    io_move_release(loop, core, CL_IO_LOG_STALLED, now);
    cl_fence_seq_cst(); /* it stores RUNNING, fences, and reads the owner; one of the two sees the other */
    if (io_park_of(k) != CL_KTHREAD_RUNNING)
        return;
    io_move_forget(core);        /* who says since a moment ago that it runs again is for overrun.c to find */
    io_move_oust(loop, core, k); /* it got up by itself, and runs on without reading its grant: now it must cede */
}

void io_move_died(struct io_loop *loop, struct io_core *core, uint64_t now)
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
        io_count(loop->cores.stats.interrupts_limited, 1);
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
        io_move_note(loop, core, CL_IO_LOG_INTERRUPTED, from, now);
    }
}

/* Wake the new owner once more. If nobody slept on its futex, at the wake before either, another process may have moved
 * it away from there or been woken in its place: FUTEX_REQUEUE and FUTEX_WAIT take no right to write. The signal ends
 * its sleep wherever that is, and it reads its words. At the last step the signal is sent anyhow. */
static void wake_again(struct io_loop *loop, struct io_core *core)
{
    struct io_kthread *k = core->owner;
    uint32_t park = io_park_of(k);
    core->woken |= io_thread_wake(loop, k);
    if ((core->woken && core->stage < 2) || park == CL_KTHREAD_RUNNING || io_park_yields(park))
        return; /* it was woken a moment ago, or is awake by its word */
    rouse(loop, k);
}

bool io_move_demote(struct io_loop *loop, struct io_kthread *k, const struct io_core *off)
{
    struct io_cores *c = &loop->cores;
    if (!io_thread_alive(loop, k))
        return false;
    if (loop->io->given_back) /* it has back what it had, and keeps it */
        return true;
    int rc = io_thread_demote(loop, k);
    if (rc < 0)
        io_count(c->stats.evictions_failed, 1);
    k->member.demoted = rc == 0;
    if (k->member.yield_wait_core) /* a yield to it would last until the tick: whoever is woken preempts it at once */
        io_yield_wait_clear(k->member.yield_wait_core);
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

/* Whether the old owner gets more time to cede. It may be in a call of the kernel in which no signal reaches it, and
 * polls when it comes back: then for as long as the next step takes at most. Or it has stamped since the decision that
 * it saw the request, and is on its way out: code and words that it has not touched for long take it more than the
 * interval, and a signal would come on top of that. Then once a move. So lies gain one step and one interval. An old
 * stamp that seems young, being a low word, gains no more than a lie. Relaxed: advice. */
static bool extend(const struct io_cores *c, struct io_core *core, uint64_t now)
{
    const struct cl_signals *s = core->from->member.signals.shared;
    core->next_stage = now + c->cede;
    if (cl_load_relaxed(&s->in_call) && now - core->requested < c->interrupt)
        return true;
    uint32_t since = (uint32_t)cl_tsc() - core->stamps.decided;
    uint32_t seen = cl_load_relaxed(&s->lost_tsc) - core->stamps.decided;
    if (core->extended || seen > since)
        return false;
    core->extended = true;
    return true;
}

/* A step's time is over. Returns whether the core came free. */
bool io_steps_escalate(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    bool waits_for_old = io_in_the_way(core), nobody = core->begun || !core->owner; /* nobody who is to begin */
    if (core->stage == 2 && waits_for_old) /* its eviction was put off, or it said that it had ceded, and runs again */
        io_step_evict(loop, core, now);
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
        io_step_evict_unless_starved(loop, core, now);
    if (nobody)
        return false;
    if (core->stage == 2 && !io_thread_alive(loop, core->owner)) {
        io_move_died(loop, core, now);
        return true;
    }
    if (core->stage == 1 && io_park_of(core->owner) == CL_KTHREAD_RUNNING) {
        /* It got up by itself before it could see this grant. Busy as it is, it need not poll for longer than
         * start_us. */
        io_preempt_move(core->owner, true);
        return false;
    }
    if (!waits_for_old || core->stage == 2) /* who should have woken it has died, or lies; or it was nobody's duty */
        wake_again(loop, core);
    return false;
}
