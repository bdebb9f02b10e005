/* Whether an old owner was starved: it did not have the CPU for the time of a step.
 *
 * The last step demotes an old owner that has not ceded in that time. A starved one could not: work of the kernel's own
 * came first (a disk's interrupts, and the workers that complete its writes), or other processes. To demote it helps
 * nobody then, and costs an honest one milliseconds. Its words are not believed here; the kernel's are.
 *
 * The kernel counts the CPU time of a thread and the turns in which it had a CPU (schedstat). It brings the time up to
 * date when a turn ends, and at ticks. The length of a turn that goes on is not known, but for when a check saw it
 * first. A check that finds the same turn as the one before asks the kernel whether it goes on. (A status takes 30
 * times as long to read, so once a turn.) If it does, the thread ran all the time in between. If not, the thread cannot
 * go on without another turn. The new owner should not wait for that as well, so a first check is made in the middle of
 * the step. A turn that went on then has not ended while the kernel has not brought the thread's time up to date. So a
 * thread that runs, in turns however short, has had its time by the second check at the latest, and is demoted. No
 * eviction is put off for longer than start_us. A thread that sleeps or was stopped is evicted at once: it does not
 * wait for the CPU.
 *
 * Tests: tests/iokernel/cores/c/starved.c. */
#include "../state/internal.h"

void io_starved_begin(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_starved *s = &core->starved;
    struct io_account a;
    *s = (struct io_starved){.since = now, .until = now, .seen_ns = -1};
    if (!io_thread_account(loop, core->from, &a))
        return;
    s->begin_ns = s->ran_ns = a.ran_ns;
    s->turns = a.turns;
    s->until = now + loop->cores.start;
    s->peek = now + loop->cores.interrupt / 2;
}

/* Whether the turn that the account counted last goes on. False, too: the thread has none to wait for (*gone). */
static bool goes_on(struct io_loop *loop, struct io_core *core, const struct io_account *a, bool *gone)
{
    struct io_starved *s = &core->starved;
    struct io_thread_status status;
    if (s->ended || a->ran_ns == s->seen_ns)
        return !s->ended;
    *gone = !io_thread_status(loop, core->from, &status) || (status.state != 'R' && status.state != 'D');
    if (*gone)
        return false;
    s->ended = status.left == a->turns;
    s->seen_ns = s->ended ? -1 : a->ran_ns;
    return !s->ended;
}

/* CPU time that it has had since io_starved_begin, at least. -1: it has none to wait for. */
static int64_t had_ns(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_starved *s = &core->starved;
    struct io_account a;
    bool gone = false;
    if (!io_thread_account(loop, core->from, &a))
        return -1;
    if (a.turns != s->turns) { /* it was off the CPU in between, and its turn began when nobody checked */
        if (!s->counted)       /* of the first turn it is not known how much of it was before the interrupt */
            s->begin_ns = a.ran_ns;
        s->counted = true;
        s->turns = a.turns;
        s->ran_ns = a.ran_ns;
        s->since = now;
        s->ended = false;
        s->seen_ns = -1;
    } else if (goes_on(loop, core, &a, &gone)) {
        return s->ran_ns - s->begin_ns + cl_ticks_to_ns(loop->io->clock, (int64_t)(now - s->since));
    }
    return gone ? -1 : a.ran_ns - s->begin_ns;
}

void io_starved_peek(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    core->starved.peek = 0;
    had_ns(loop, core, now);
}

bool io_starved(struct io_loop *loop, struct io_core *core, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    struct io_starved *s = &core->starved;
    int64_t step_ns = cl_ticks_to_ns(loop->io->clock, (int64_t)c->interrupt), had = -1;
    if ((int64_t)(now - s->until) < 0)
        had = had_ns(loop, core, now);
    if (cl_load_relaxed(&core->from->member.signals.shared->in_call)) /* relaxed: advice, and a lie gains a step */
        step_ns *= 2;
    bool spared = had >= 0 && had < step_ns, first = spared && !s->on;
    s->next = now + (uint64_t)cl_ns_to_ticks(loop->io->clock, step_ns - had);
    s->on = spared;
    io_count(c->stats.starved, first);
    io_count(core->from->app->cores.stats.starved, first);
    return spared;
}
