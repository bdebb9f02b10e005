/* The iokernel's side of the model: a loop with one worker core, and all of its own code that decides about the core
 * and moves it.
 *
 * Its own: demand.c, quantum.c, allocate.c, move.c, steps.c, yield_wait.c, flows.c, thread.c but for what it reads of
 * the kernel, signals.c, wake.c, idle.c, and io_cores_remove of cores.c. The model's: the policy (latency first, or
 * either), what comes from outside (a frame, the end of a process), and the times. The clock stands still during a
 * round; which times are over in it is a choice, made anew each round, so what holds here holds for every duration.
 * Left out: limits on system calls, statistics, the accounts of CPU times (overrun.c; starved.c: nobody is spared;
 * dying.c; blocked.c: nobody is), more cores and kthreads than one. */
#ifndef CORELANE_TESTS_IOKERNEL_CORES_C_HANDOVER_IOKERNEL_H
#define CORELANE_TESTS_IOKERNEL_CORES_C_HANDOVER_IOKERNEL_H

#include "handover_words.h"

#include "interleave_reach.h"

#include "iokernel/state/internal.h"

#undef io_count
#define io_count(field, n) ((void)&(field), (void)(n))

#define LOOP 0
#define LATENCY 1 /* threads; application LATENCY - 1 has slot LATENCY - 1 */
#define BATCH 2
#define SHORT_US 10  /* beyond the times of ask and interrupt */
#define LONG_US 1000 /* beyond all times */

/* Words of several processes. */
static struct {
    struct cl_state_core core;
    struct cl_state_kthread slot[2];
    struct cl_state_loop loop;
    struct arena {
        struct cl_arena_preempt preempt;
        struct cl_arena_kthread line;
    } arena[2];
    uint32_t frames; /* descriptors that the loop has put into the ring of the latency application */
} shared;

/* il.m.user[] */
enum {
    INSIDE,   /* bit i: the kthread of application i runs uthreads, or looks for some */
    DOORBELL, /* was rung */
    REMOVED,  /* bit i: the loop knows that the process has ended */
    SENT,     /* frames */
    DEMOTED,  /* bit i: to what the kernel gives it */
    ENDLESS,  /* the latency application computes, and looks at nothing but its probes */
};

static struct {
    unsigned frames;  /* that come */
    bool sleeps;      /* the loop, when it knows of nothing to do */
    bool timer;       /* the latency application also gets up by itself */
    bool fickle;      /* the policy puts either first, as it likes */
    bool endless;     /* the latency application may begin to compute without end */
    bool outside;     /* requests come from a thread of the latency application that is no kthread; there is no batch */
    bool stolen_from; /* whoever sleeps on a futex is moved away from it: no wake reaches anybody */
    unsigned manner;  /* of the batch application */
} setting;

static struct cl_io io;
static struct io_loop loop;
static struct io_core core;
static struct io_app apps[2];
static struct io_kthread members[2];
static struct io_kthread *touched[2];
static struct cl_policy_app table[2];
static uint32_t log_owner; /* by the entries of the log */

static void model_log(struct io_loop *l, uint64_t now, const struct io_core *c, uint32_t from, uint32_t to,
                      unsigned what, unsigned step, const struct io_kthread *about)
{
    (void)l, (void)now, (void)c, (void)what, (void)step, (void)about;
    if (from != log_owner)
        il_fail("the log names another owner than the entry before");
    log_owner = to;
}

static unsigned model_policy(struct cl_policy_host *h, struct cl_policy_view *view, struct cl_policy_app *rows)
{
    uint32_t left = view->n_cores, first = setting.fickle ? il_choose(2, 0) : CL_POLICY_LATENCY;
    (void)h;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < view->n_apps; i++)
            if (rows[i].kind == (first ^ pass)) {
                rows[i].grant = cl_min(rows[i].demand, left);
                left -= rows[i].grant;
            }
    return 0;
}

/* Marks are only compared. Not of `acted` and `switches`, which the graph counts anew. */
static uint32_t model_mark(const struct io_signals *s, const uint32_t *park)
{
    (void)s;
    return cl_load_relaxed(park);
}

static bool model_in_line(struct io_loop *l, const struct io_kthread *k);

static void model_current(const struct cl_policy_host *h, struct cl_policy_setting *out)
{
    (void)h;
    *out = (struct cl_policy_setting){0};
}

#ifndef SIGNALS_C
#define SIGNALS_C "iokernel/state/signals.c"
#endif
#ifndef CORES_C
#define CORES_C "iokernel/cores/cores.c"
#endif
#ifndef THREAD_C
#define THREAD_C "iokernel/cores/thread.c"
#endif
#ifndef YIELD_WAIT_C
#define YIELD_WAIT_C "iokernel/cores/yield_wait.c"
#endif
#ifndef FLOWS_C
#define FLOWS_C "iokernel/cores/flows.c"
#endif
#ifndef STEPS_C
#define STEPS_C "iokernel/cores/steps.c"
#endif
#ifndef MOVE_C
#define MOVE_C "iokernel/cores/move.c"
#endif
#ifndef QUANTUM_C
#define QUANTUM_C "iokernel/cores/quantum.c"
#endif
#ifndef DEMAND_C
#define DEMAND_C "iokernel/cores/demand.c"
#endif
#ifndef ALLOCATE_C
#define ALLOCATE_C "iokernel/cores/allocate.c"
#endif
#ifndef WAKE_C
#define WAKE_C "iokernel/loop/wake.c"
#endif
#ifndef IOKERNEL_IDLE_C
#define IOKERNEL_IDLE_C "iokernel/loop/idle.c"
#endif

/* clang-format off */
#include SIGNALS_C
#include CORES_C
#define io_cores_log model_log
#define io_signals_mark model_mark
#define cl_policy_run model_policy
#define cl_policy_host_current model_current
#include THREAD_C
#define io_thread_in_line model_in_line
#include YIELD_WAIT_C
#include FLOWS_C
#include STEPS_C
#include MOVE_C
#include QUANTUM_C
#include DEMAND_C
#define act allocate_act
#include ALLOCATE_C
#undef act
#include WAKE_C
#define io_commands_pending(l) ((void)(l), false)
#include IOKERNEL_IDLE_C
/* clang-format on */

/* starved.c */
void io_starved_begin(struct io_loop *l, struct io_core *c, uint64_t now)
{
    (void)l, (void)c, (void)now;
}

void io_starved_peek(struct io_loop *l, struct io_core *c, uint64_t now)
{
    (void)l, (void)c, (void)now;
}

bool io_starved(struct io_loop *l, struct io_core *c, uint64_t now)
{
    (void)l, (void)c, (void)now;
    return false;
}

/* dying.c: who is killed has ended */
void io_dying_begin(const struct io_loop *l, struct io_core *c, uint64_t now)
{
    (void)l, (void)c, (void)now;
}

/* Nor is anything given back to threads of an application that goes: here there are none. */
bool io_dying_exits(const struct io_kthread *k)
{
    (void)k;
    return true;
}

void io_dying_round(struct io_loop *l, struct io_core *c, uint64_t now)
{
    (void)l, (void)c, (void)now;
}

/* blocked.c: nobody is */
void io_blocked_round(struct io_loop *l, uint64_t now)
{
    (void)l, (void)now;
}

bool io_blocked_offers(const struct io_loop *l, struct io_kthread *k, uint64_t now)
{
    (void)l, (void)k, (void)now;
    return true;
}

bool io_blocked_still(struct io_loop *l, struct io_kthread *k, uint64_t now)
{
    (void)l, (void)k, (void)now;
    return false;
}

void io_blocked_over(struct io_loop *l, struct io_kthread *k, uint64_t now)
{
    (void)l, (void)k, (void)now;
}

/* overrun.c */
void io_overrun_account(const struct io_loop *l, struct io_core *c, uint64_t ticks, uint64_t now)
{
    (void)l, (void)c, (void)ticks, (void)now;
}

void io_overrun_moved(struct io_kthread *k, const struct io_core *c)
{
    (void)k, (void)c;
}

void io_overrun_round(struct io_loop *l, uint64_t now)
{
    (void)l, (void)now;
}

uint64_t io_overrun_due(const struct io_loop *l)
{
    (void)l;
    return UINT64_MAX;
}

/* The kernel has a thread in line that is neither asleep nor stopped. */
static bool model_in_line(struct io_loop *l, const struct io_kthread *k)
{
    int t = k->member.tid;
    (void)l;
    il_call();
    return !il.m.dead[t] && !il.m.frozen[t] && !il.m.asleep[t];
}

static int model_affinity(int tid, size_t bytes, const cpu_set_t *set)
{
    (void)tid, (void)bytes, (void)set;
    return 0;
}

static int model_scheduler(int tid, int policy, const struct sched_param *p)
{
    uint8_t bit = (uint8_t)(1u << (tid - 1));
    (void)p;
    il.m.user[DEMOTED] = (uint8_t)(policy == SCHED_IDLE ? il.m.user[DEMOTED] | bit : il.m.user[DEMOTED] & ~bit);
    errno = ESRCH;
    return il.m.dead[tid] ? -1 : 0;
}

/* What must be so between two rounds, whatever the applications do. */
static void check_owner(void)
{
    uint32_t owner = core.owner ? core.owner->member.slot + 1 : 0;
    if (il_peek(&shared.core.owner, 4) != owner || log_owner != owner)
        il_fail("word, log and loop do not name the same owner");
    for (unsigned i = 0; i < 2; i++) {
        const struct io_kthread *k = &members[i];
        if ((k->member.core == &core) != (core.owner == k))
            il_fail("a kthread and its core do not know of each other");
        bool removed = il.m.user[REMOVED] >> i & 1, late = core.moving && core.from == k;
        if (il.m.user[INSIDE] >> i & 1 && core.owner != k && !late && !k->member.demoted && !k->member.dead && !removed)
            il_fail("a kthread runs uthreads beside the owner, and nobody makes it stop");
    }
}

/* A stamp that lies ahead: soon or late. One that is over stays so. */
static uint64_t settled(uint64_t stamp, uint64_t now)
{
    if ((int64_t)(stamp - now) <= 0 || stamp == UINT64_MAX)
        return stamp == UINT64_MAX ? stamp : cl_min(stamp, NOW);
    return stamp - now <= SHORT_US ? NOW + 1 : NOW + 100;
}

static void settle_ages(struct io_ages *a)
{
    struct io_ages was = *a;
    *a = (struct io_ages){0};
    if (was.n)
        *a = (struct io_ages){.n = 1, .tail = was.tail, .pos = {was.pos[was.first]}, .tsc = {NOW}};
}

/* `decided` of the core is NOW - 1, and a word for help that came later NOW: all that is asked of the two. */
static void settle_app(struct io_app *app, uint64_t now)
{
    struct io_allotment *a = &app->cores;
    struct io_kthread *k = app->kthreads;
    struct io_member *m = &k->member;
    m->retry = m->stalled ? settled(m->retry, now) : 0;
    m->evicted_until = m->evicted ? settled(m->evicted_until, now) : 0;
    m->stall_mark = m->stalled ? m->stall_mark : 0;
    m->stalls = cl_min(m->stalls, 1u);
    m->not_begun = 0; /* a sum of times, which end as the others do or not at all */
    m->signals.ceded_since = m->signals.ceded_since ? NOW : 0;
    m->signals.packet = m->signals.thread = 0;
    settle_ages(&m->signals.queue[IO_RX]);
    k->sample_tsc = NOW;
    a->help_last = a->help_since ? NOW - 2 * ((int64_t)(core.decided - a->help_last) >= 0) : 0;
    a->help_since = a->help_since ? NOW : 0;
    uint32_t *help = &shared.arena[k->member.slot].line.help;
    if (il_peek(help, 4) == a->help) {
        cl_store_relaxed(help, 0);
        a->help = 0;
    }
    uint64_t *const since[] = {&a->packet_since, &a->thread_since, &a->timer_since, &a->stored_since};
    for (unsigned i = 0; i < 4; i++)
        *since[i] = *since[i] ? NOW : 0;
    a->looked_at = 0;
    memset(&table[a->row], 0, offsetof(struct cl_policy_app, attained_ns)); /* ages: the next decision writes them */
    if (a->stands)
        return; /* what the last look found is compared with what the next one does */
    a->waits = false;
    m->signals.due = 0;
    memset(m->signals.position, 0, sizeof m->signals.position);
    m->signals.park = m->signals.waiting = 0;
    m->usable = false;
    a->demand = a->usable = 0;
    table[a->row] = (struct cl_policy_app){.kind = a->kind, .weight = a->weight, .maximum = a->maximum};
}

/* After a round at `now`: stamps that mean the same become the same. A new owner that is in line is waited for twenty
 * times, of which the model lets all but the first and the last pass at once. */
static void settle(uint64_t now)
{
    struct io_cores *c = &loop.cores;
    for (unsigned i = 0; i < c->n_apps; i++)
        settle_app(c->apps[i], now);
    core.decided = NOW - 1;
    core.next_stage = core.next_stage && core.moving ? settled(core.next_stage, now) : 0;
    core.yield_wait_until = core.yield_wait_until ? settled(core.yield_wait_until, now) : 0;
    core.accounted = NOW;
    core.requested = loop.woke = 0; /* not looked at here */
    core.late = core.late ? cl_max(core.late, MOST_LATE - 1) : 0;
    core.step = 0; /* what it is counted as */
    c->next_due = c->next_due == UINT64_MAX ? UINT64_MAX : settled(c->next_due, now);
    c->next_check = c->last_check = c->next_urgent = NOW;
    c->n_active = 0;
    c->active[0] = c->active[1] = NULL;
    loop.now = NOW;
}

bool io_round(struct io_loop *l, uint64_t now)
{
    l->now = now;
    io_wake(l, !l->was_busy);
    io_cores_round(l, now);
    return l->was_busy;
}

void *io_loop_main(void *arg)
{
    return arg;
}

/* A frame for the latency application, as io_deliver does it. */
static void deliver(void)
{
    struct io_kthread *k = &members[0];
    cl_store_release(&shared.frames, ++il.m.user[SENT]);
    k->rx.tail++;
    k->sampled = true;
    k->app->cores.stands = false;
    k->sample_tail = k->rx.tail;
    if (!k->touched) {
        k->touched = true;
        loop.touched[loop.n_touched++] = k;
    }
}

/* The control socket has ended: as app.c does it. */
static void removal(unsigned at)
{
    il.m.user[REMOVED] |= (uint8_t)(1 << at);
    if (loop.n_touched && loop.touched[0]->app == &apps[at])
        loop.n_touched = 0;
    io_cores_remove(&loop, &apps[at]);
    apps[at].cores.told = false;
}

static bool ended(unsigned at)
{
    return il.m.dead[1 + at] && !(il.m.user[REMOVED] >> at & 1);
}

enum event { PLAIN, FRAME, COOL, SHORT, LONG, REMOVE };

/* What the next round finds. */
static enum event next_event(unsigned *at)
{
    enum event events[8] = {PLAIN};
    unsigned n = 1, timed = 0, gone = ended(0) ? 0 : 1;
    if (il.m.user[SENT] < setting.frames)
        events[n++] = FRAME;
    if (ended(0) || ended(1))
        events[n++] = REMOVE;
    if (core.yield_wait_until)
        events[n++] = COOL;
    if (core.moving) {
        timed |= 1u << n;
        events[n++] = SHORT;
    }
    if (core.moving || members[0].member.stalled || members[1].member.stalled || members[0].member.evicted ||
        members[1].member.evicted) {
        timed |= 1u << n;
        events[n++] = LONG;
    }
    *at = gone;
    return events[il_choose(n, timed)];
}

static void loop_main(void)
{
    static const char *const said[] = {"nothing new",        "a frame",
                                       "no longer yields",   "short times are over",
                                       "all times are over", "an application has ended"};
    for (;;) {
        unsigned at;
        check_owner();
        enum event event = next_event(&at);
        il_say("begins a round:", said[event], 0);
        uint64_t now = event == SHORT ? NOW + SHORT_US : event == LONG ? NOW + LONG_US : NOW;
        core.accounted = now;
        loop.was_busy = event == FRAME;
        if (event == FRAME)
            deliver();
        if (event == REMOVE)
            removal(at);
        if (event == COOL)
            core.yield_wait_until = NOW;
        bool busy = io_round(&loop, now);
        settle(now);
        loop.was_busy = false; /* should it sleep */
        loop.slept = 0;        /* which sleep it is says nothing to who rings each time (drivers/port/cores.c) */
        if (setting.sleeps)
            io_idle(&loop, busy);
        settle(NOW);
    }
}

static void own_all_of_the_loop(void)
{
    struct io_cores *c = &loop.cores;
    il_own(LOOP, &loop.now, sizeof loop.now);
    il_own(LOOP, &loop.was_busy, sizeof loop.was_busy);
    il_own(LOOP, &loop.n_touched, sizeof loop.n_touched);
    il_own(LOOP, touched, sizeof touched);
    il_own(LOOP, &c->n, offsetof(struct io_cores, core) - offsetof(struct io_cores, n));
    il_own(LOOP, c->apps, 2 * sizeof *c->apps);
    il_own(LOOP, &c->n_active, sizeof c->n_active);
    il_own(LOOP, c->active, 2 * sizeof *c->active);
    il_own(LOOP, &c->n_resting, sizeof c->n_resting);
    il_own(LOOP, table, sizeof table);
    il_own(LOOP, &c->view.n_apps, sizeof c->view.n_apps);
    il_own(LOOP, &c->urgent, offsetof(struct io_cores, interval) - offsetof(struct io_cores, urgent));
    il_own(LOOP, &core, offsetof(struct io_core, stamps));
    il_own(LOOP, &core.accounted, sizeof core.accounted);
    il_own(LOOP, &log_owner, sizeof log_owner);
    for (unsigned i = 0; i < 2; i++) {
        struct io_allotment *a = &apps[i].cores;
        il_own(LOOP, &members[i], sizeof members[i]);
        il_own(LOOP, a, offsetof(struct io_allotment, core_ticks));
        il_own(LOOP, &a->last_run, sizeof a->last_run);
    }
}

static uint32_t no_frames;

static void begin_app(unsigned i)
{
    struct io_allotment *a = &apps[i].cores;
    struct io_kthread *k = &members[i];
    struct arena *arena = &shared.arena[i];
    apps[i] = (struct io_app){.id = i + 1, .n_kthreads = 1, .kthreads = k};
    a->pid = a->signal = 1;
    a->kind = i ? CL_POLICY_BATCH : CL_POLICY_LATENCY;
    a->maximum = a->weight = 1;
    a->shared_preempt = &arena->preempt.preempt;
    a->kthreads = k;
    a->n_kthreads = 1;
    *k = (struct io_kthread){.park = &arena->line.park, .app = &apps[i]};
    k->rx.shared_head = setting.outside ? &no_frames : &arena->line.rx_head;
    k->rx.size = 16;
    k->member.state = &shared.slot[i];
    k->member.signals.shared = &arena->line.signals;
    k->member.signals.next_timer = UINT64_MAX;
    k->member.slot = i;
    k->member.tid = (int32_t)i + 1;
    k->member.pinned = 0;
    k->member.grant = shared.slot[i].grant = arena->line.signals.acted = (uint32_t)ip.upper[i] << 16 | 1;
    arena->line.signals.timer_tsc = UINT64_MAX;
    arena->line.signals.in_uthread = i == 1;
    if (i == 0 || !setting.outside)
        io_cores_add(&loop, &apps[i]);
}

/* The batch application has the core and runs, if there is one; the latency one is about to park without it. */
static void begin_iokernel(void)
{
    struct io_cores *c = &loop.cores;
    io.clock = model_clock();
    io.config.poll = CL_IO_BLOCK;
    io.config.n_loops = 1;
    io.fence_ticks = 1u << 30;
    loop.idle_since = loop.last_fence = NOW;
    loop.io = &io;
    loop.touched = touched;
    loop.state = &shared.loop;
    loop.event_fd = -1;
    c->n = 1;
    c->core = &core;
    c->table = table;
    c->view.n_cores = 1;
    c->cede = c->interrupt = 1;
    c->crossed_memory = UINT64_MAX; /* what moves cost is not of the model */
    c->start = c->yield_wait = 500;
    for (unsigned i = 0; i < 2; i++)
        begin_app(i);
    core.state = &shared.core;
    core.begun = core.busy = true;
    core.step = CL_IO_STEP_IDLE;
    if (setting.outside) {
        il.m.user[SENT] = (uint8_t)setting.frames; /* none comes by the loop */
    } else {
        core.owner = &members[1];
        members[1].member.core = members[1].member.last = &core;
        apps[1].cores.last_run = &members[1];
        shared.core.owner = log_owner = 2;
    }
    shared.arena[0].line.park = CL_KTHREAD_PARKED;
    core.stamps.decided = (uint32_t)NOW;
    settle(NOW);
    own_all_of_the_loop();
}

#endif
