/* Kthreads that use a core which is not theirs.
 *
 * The steps of a move (steps.c) end when the old owner says that it has ceded. One that says so and spins on, or that
 * says later that it runs, keeps half of the core as the kernel sees it, and the new owner is late at each turn. Here
 * no word is believed: the kernel says how long a thread ran, and the loop knows for how long it was entitled to. It is
 * entitled while it has a core, while the steps of a move are not over, and while nobody uses the core that it had
 * last. For each core that it lost it is entitled to the time that it may take to see that.
 *
 * Windows are of time in which it might not run, WINDOW_NS of it, so that a core which seldom has another owner is
 * judged by the same measure. One that ran for more than a quarter of that in two windows on end is demoted as by an
 * eviction, counted and logged, and gets no core for BAN_NS, which doubles each time, and is forgiven when it was good
 * for FORGIVEN_AFTER times as long. A quarter is 12 ms: the kernel brings a running thread's time up to date at its
 * tick, 4 ms as a rule, 10 at most, and an honest kthread that loses its core ten thousand times a second stays under
 * it.
 *
 * A loop that was itself kept from running, without having gone to sleep, does not know when an owner parked meanwhile,
 * with whom kthreads that yield-wait take turns: all of that time counts as time in which nobody used the core.
 *
 * It costs a system call a window and kthread, never more than one a GAP_NS; a loop that would sleep wakes up
 * for it once a window while somebody runs and somebody else could.
 *
 * Tests: tests/iokernel/cores/c/overrun.c, tests/iokernel/cores/test_hostile.py, tests/iokernel/cores/test_soak.py. */
#include "../state/internal.h"

#define WINDOW_NS 50000000
#define GAP_NS 1000000 /* from one check to the next */
#define LOOKS 8        /* kthreads a check at most, of which READS are read of: more after a loop has slept */
#define READS 1
#define STRIKES 2
#define BAN_NS 100000000
#define MOST_DOUBLINGS 7
#define FORGIVEN_AFTER 16

static const struct io_core *home_of(const struct io_cores *c, const struct io_kthread *k)
{
    /* Until it gets a core it is where its application's kthreads were spread when they came (cores.py). */
    return k->member.last ? k->member.last : &c->core[(uint32_t)(k - k->app->kthreads) % c->n];
}

/* Ticks for which it might run, since it came. */
static uint64_t entitled(const struct io_cores *c, const struct io_kthread *k)
{
    return k->member.overrun.entitled + home_of(c, k)->idle - k->member.overrun.idle_mark;
}

/* The owner had work at the last check and has none now, and that check was longer ago than it should be. */
static bool parked_unseen(const struct io_loop *loop, const struct io_core *core, uint64_t now)
{
    uint64_t often = (uint64_t)cl_ns_to_ticks(loop->io->clock, GAP_NS) + loop->cores.interval;
    uint64_t unseen = now - cl_max(core->accounted, loop->woke);
    return (int64_t)(unseen - often) > 0 && !core->moving && cl_load_relaxed(core->owner->park) != CL_KTHREAD_RUNNING;
}

void io_overrun_account(const struct io_loop *loop, struct io_core *core, uint64_t ticks, uint64_t now)
{
    if (!core->busy || !core->owner || parked_unseen(loop, core, now)) {
        core->idle += ticks;
        return;
    }
    core->owner->member.overrun.entitled += ticks;
    if (core->from && !core->starved.on)
        core->from->member.overrun.entitled += ticks;
}

void io_overrun_moved(struct io_kthread *k, const struct io_core *core)
{
    struct io_member *m = &k->member;
    if (!core) {
        m->overrun.lost++;
    } else if (core != m->last) {
        if (m->last)
            m->overrun.entitled += m->last->idle - m->overrun.idle_mark;
        else
            m->overrun.begin = 0; /* what it might before was counted for another core */
        m->overrun.idle_mark = core->idle;
    }
}

static void begin_window(struct io_cores *c, struct io_kthread *k, int64_t ran_ns, uint64_t now)
{
    struct io_overrun *s = &k->member.overrun;
    s->begin = now;
    s->entitled_at_begin = entitled(c, k);
    s->lost_at_begin = s->lost;
    s->ran_ns = ran_ns;
}

static void ban(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_overrun *s = &k->member.overrun;
    const struct io_core *home = home_of(c, k);
    uint64_t first = (uint64_t)cl_ns_to_ticks(loop->io->clock, BAN_NS);
    if (s->bans && (int64_t)(now - s->banned_until) > (int64_t)(FORGIVEN_AFTER * (first << (s->bans - 1))))
        s->bans = 0;
    if (!io_move_demote(loop, k, home))
        return;
    k->member.banned = true;
    k->app->cores.stands = false;
    s->banned_until = now + (first << s->bans);
    s->bans = cl_min(s->bans + 1, MOST_DOUBLINGS);
    io_count(c->stats.overruns, 1);
    io_count(k->app->cores.stats.overruns, 1);
    io_move_note(loop, home, CL_IO_LOG_OVERRUN, k, now);
}

/* Whether it used more than it might in a window that is over. */
static bool used_more(const struct io_loop *loop, const struct io_kthread *k, int64_t ran_ns, uint64_t might,
                      uint64_t might_not)
{
    const struct io_overrun *s = &k->member.overrun;
    uint64_t to_see = (uint64_t)(s->lost - s->lost_at_begin) * loop->cores.cede;
    int64_t more = ran_ns - s->ran_ns - cl_ticks_to_ns(loop->io->clock, (int64_t)(might + to_see));
    return more > cl_ticks_to_ns(loop->io->clock, (int64_t)might_not) / 4;
}

/* Returns whether its CPU time was read. */
static bool look(struct io_loop *loop, struct io_kthread *k, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_member *m = &k->member;
    struct io_overrun *s = &m->overrun;
    if (m->dead || m->demoted)
        s->begin = s->strikes = 0;
    if (m->dead || m->demoted || m->core || m->leaving)
        return false; /* it may run at this moment, or runs where it disturbs nobody */
    uint64_t might = entitled(c, k) - s->entitled_at_begin, might_not = now - s->begin - might;
    uint64_t window = (uint64_t)cl_ns_to_ticks(loop->io->clock, WINDOW_NS);
    if (s->begin && (int64_t)(might_not - window) < 0)
        return false;
    struct io_account a;
    if (!io_thread_account(loop, k, &a)) {
        s->begin = 0;
        io_count(c->stats.overrun_unread, io_thread_alive(loop, k));
        return true;
    }
    if (s->begin) {
        s->strikes = used_more(loop, k, a.ran_ns, might, might_not) ? s->strikes + 1 : 0;
        if (s->strikes == STRIKES)
            ban(loop, k, now);
    }
    begin_window(c, k, a.ran_ns, now);
    return true;
}

/* The kthread whose turn it is; NULL: the last one's turn is over. */
static struct io_kthread *next_kthread(struct io_cores *c)
{
    if (c->overrun_app >= c->n_apps) {
        c->overrun_app = c->overrun_kthread = 0;
        return NULL;
    }
    struct io_app *app = c->apps[c->overrun_app];
    if (c->overrun_kthread >= app->n_kthreads) { /* another application than last time, perhaps */
        c->overrun_app++;
        c->overrun_kthread = 0;
        return next_kthread(c);
    }
    return &app->kthreads[c->overrun_kthread++];
}

void io_overrun_round(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    uint64_t gap = (uint64_t)cl_ns_to_ticks(loop->io->clock, GAP_NS), late = now - c->next_overrun;
    if (cl_likely((int64_t)late < 0))
        return;
    uint32_t reads = READS + (uint32_t)cl_min(late / gap, (uint64_t)LOOKS);
    c->next_overrun = now + gap;
    for (uint32_t i = 0; i < LOOKS && reads; i++) {
        struct io_kthread *k = next_kthread(c);
        if (!k)
            break;
        reads -= look(loop, k, now);
        io_affinity_check(loop, k, now);
    }
}

uint64_t io_overrun_due(const struct io_loop *loop)
{
    return loop->cores.next_overrun + (uint64_t)cl_ns_to_ticks(loop->io->clock, WINDOW_NS);
}
