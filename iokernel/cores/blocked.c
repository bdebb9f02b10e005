/* Owners that say that they run and do not: they sleep in a call of the kernel, wait for a page, or were stopped.
 *
 * The park word says RUNNING all the while, so the core would stay theirs, and idle, for as long as that lasts. So
 * where somebody waits for a core, the loop checks its owner. If the owner has run no uthread since the last check, the
 * loop reads its CPU time (schedstat, 2 us). That tells an owner that computes from one that sleeps. If it had no CPU
 * time for blocked_us, the loop reads its state (status, 15 to 30 us). An owner that is neither on a CPU nor in line
 * for one (state R) is blocked. Its core counts as without work and goes to whoever waits, as that of an owner that has
 * parked. It gets neither a preemption request nor a signal then: a signal would wake it, and would cut short the call.
 * Its siblings may take what waits behind it, so that counts for them (demand.c), and frames go to them (io_steer).
 *
 * An owner whose thread has ended while the process goes on (pthread_exit in a uthread, or on purpose) says RUNNING for
 * ever. The same check finds it, and so does affinity.c. Its core is taken from it as from one that died during a move.
 *
 * A blocked owner that wakes finds its preemption flag set when it polls it. It cedes, and gets a core again as anybody
 * who waits for one in the middle of a uthread. One that does not poll is found by its CPU time, and the three steps
 * are taken for it (io_move_oust). Up to then it shares the core with the new owner, as the kernel divides it.
 *
 * The cost is bounded. Where nobody waits it is a comparison. Else one owner and one blocked kthread are checked at a
 * time, each once in blocked_us at most. A core that is taken so was idle for that long. A blocked owner that wakes
 * sooner than half of the time that it was waited for is waited for twice as long from then on, up to MOST_PATIENCE
 * times. That ends when it was not blocked for FORGIVEN_AFTER times as long, or was blocked for longer.
 *
 * Tests: tests/iokernel/cores/c/blocked.c, tests/iokernel/cores/test_blocked.py. */
#include "../state/internal.h"

#define BUSY_LOOKS 5 /* times blocked_us until one that was found on a CPU, or in line, is checked again */
#define AWAY_LOOKS 4 /* times blocked_us between two checks of one that has been blocked for long, at most */
#define MOST_PATIENCE 8
#define FORGIVEN_AFTER 64
#define MOST_GAP 64 /* times blocked_us for which what siblings left where it was is not offered to them */

/* The kernel brings the CPU time of a running thread up to date at ticks and at the end of a turn only: for one that is
 * asleep it is exact. */
static bool same(const struct io_block *b, const struct io_account *a)
{
    return a->ran_ns == b->ran_ns && a->turns == b->turns;
}

void io_blocked_over(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_block *b = &k->member.block;
    if (!k->blocked)
        return;
    k->blocked = false;
    io_steer(loop, k->app);
    k->app->cores.stands = false;
    c->n_blocked--;
    if (now - b->found < b->patience / 2)
        b->patience = cl_min(2 * b->patience, MOST_PATIENCE * c->blocked);
    else if (now - b->found > b->patience)
        b->patience = c->blocked;
    b->since = 0;
}

static void found(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_kthread *k = core->owner;
    k->blocked = true;
    io_steer(loop, k->app);
    k->app->cores.stands = false;
    k->member.block.found = k->member.block.looked = now;
    k->member.block.next = c->blocked_due = now + c->blocked;
    k->member.block.offered = 0; /* whatever waits behind it is new */
    c->n_blocked++;
    io_count(c->stats.blocked, 1);
    io_count(k->app->cores.stats.blocked, 1);
    io_move_note(loop, core, CL_IO_LOG_BLOCKED, NULL, now);
}

/* What the kernel says of the owner cannot be read: its thread has ended, or the loop may not. */
static void unread(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    if (io_thread_alive(loop, core->owner))
        io_count(loop->cores.stats.blocked_unread, 1);
    else
        io_move_died(loop, core, now);
}

static void inspect_owner(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_kthread *k = core->owner;
    if (!k || core->moving || k->blocked || cl_load_relaxed(k->park) != CL_KTHREAD_RUNNING)
        return;
    struct io_block *b = &k->member.block;
    struct io_account a;
    struct io_thread_status status;
    uint32_t mark = io_signals_mark(&k->member.signals, k->park);
    if (mark != b->mark) {
        b->mark = mark;
        b->since = 0;
        return;
    }
    if ((int64_t)(now - b->next) < 0)
        return;
    if (!io_thread_account(loop, k, &a)) {
        unread(loop, core, now);
        return;
    }
    if (b->patience == 0 || now - b->found > FORGIVEN_AFTER * b->patience)
        b->patience = c->blocked;
    if (b->since == 0 || !same(b, &a)) {
        b->ran_ns = a.ran_ns;
        b->turns = a.turns;
        b->since = now;
        return;
    }
    if (now - b->since < b->patience)
        return;
    if (!io_thread_status(loop, k, &status)) {
        unread(loop, core, now);
        return;
    }
    if (status.state != 'R') {
        found(loop, core, now);
        return;
    }
    b->since = 0;
    b->next = now + BUSY_LOOKS * c->blocked;
}

bool io_blocked_offers(const struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    const struct io_allotment *a = &k->app->cores;
    struct io_block *b = &k->member.block;
    uint32_t mark = io_signals_waiting_mark(&k->member.signals);
    uint64_t runs = a->stats.moves_in + a->stats.wakes;
    if (mark != b->offered) {
        b->offered = mark;
        b->runs = runs;
        b->offer = b->gap = 0;
        return true;
    }
    if (b->offer) {
        if ((int64_t)(now - b->offer) < 0)
            return false;
        b->offer = 0;
        b->runs = runs;
    }
    if (a->held || runs == b->runs)
        return true;
    b->gap = cl_min(cl_max(2 * b->gap, loop->cores.blocked), MOST_GAP * loop->cores.blocked);
    b->offer = now + b->gap;
    return false;
}

bool io_blocked_still(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_member *m = &k->member;
    struct io_block *b = &m->block;
    struct io_account a;
    bool gone = !io_thread_account(loop, k, &a); /* what follows is for whoever removes it */
    if (!gone && cl_load_relaxed(k->park) == CL_KTHREAD_RUNNING && same(b, &a)) {
        b->looked = now;
        b->next = now + cl_min(cl_max((now - b->found) / 16, c->blocked), AWAY_LOOKS * c->blocked);
        return true;
    }
    io_blocked_over(loop, k, now);
    if (gone || m->core || cl_load_relaxed(k->park) != CL_KTHREAD_RUNNING)
        return false;
    m->overrun.entitled += now - b->looked; /* it got no preemption request since it woke up */
    io_move_oust(loop, m->last, k);
    return false;
}

/* One of them, and when the next one is due. */
static void check_blocked(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    bool looked = false;
    c->blocked_due = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_apps; i++)
        for (uint32_t j = 0; j < c->apps[i]->n_kthreads; j++) {
            struct io_kthread *k = &c->apps[i]->kthreads[j];
            if (!k->blocked)
                continue;
            bool may = k->member.core || !k->member.last->moving; /* a core has the steps of one move at a time */
            if (!looked && may && (int64_t)(now - k->member.block.next) >= 0) {
                looked = true;
                if (!io_blocked_still(loop, k, now))
                    continue;
            }
            c->blocked_due = cl_min(c->blocked_due, k->member.block.next);
        }
}

void io_blocked_round(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    if (cl_likely(!c->contested && !c->n_blocked))
        return;
    if (cl_unlikely((int64_t)(now - c->next_blocked) >= 0)) {
        c->next_blocked = now + c->blocked / c->n;
        if (c->contested)
            inspect_owner(loop, &c->core[c->blocked_core++ % c->n], now);
        if (c->n_blocked)
            check_blocked(loop, now);
    }
    if (c->n_blocked)
        c->next_due = cl_min(c->next_due, cl_max(c->blocked_due, c->next_blocked));
}
