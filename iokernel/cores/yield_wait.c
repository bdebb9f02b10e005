/* Which kthreads yield-wait for a core, instead of asleep: those that were part of its last moves.
 *
 * Tests: tests/iokernel/cores/c/steps.c. */
#include "../state/internal.h"

#define YIELD_WAIT_MOVES 6 /* a kthread yield-waits for a core if it was part of one of so many last moves */

static void set_yield_wait(struct io_kthread *k, struct io_core *core)
{
    struct io_member *m = &k->member;
    if (!m->yield_wait_core != !core)
        cl_store_relaxed(&m->state->yield_wait, core != NULL);
    m->yield_wait_core = core;
}

static void yield_wait_drop(struct io_core *core, unsigned i)
{
    if (core->yield_waiters[i]->member.yield_wait_core == core)
        set_yield_wait(core->yield_waiters[i], NULL);
    core->yield_waiters[i] = NULL;
}

void io_yield_wait_clear(struct io_core *core)
{
    for (unsigned i = 0; i < IO_YIELD_WAITERS && core->yield_waiters[i]; i++)
        yield_wait_drop(core, i);
    core->yield_wait_until = 0;
}

void io_yield_wait_forget(struct io_core *core, const struct io_app *app)
{
    unsigned n = 0;
    for (unsigned i = 0; i < IO_YIELD_WAITERS; i++)
        if (core->yield_waiters[i] && core->yield_waiters[i]->app != app)
            core->yield_waiters[n++] = core->yield_waiters[i];
    while (n < IO_YIELD_WAITERS)
        core->yield_waiters[n++] = NULL;
}

static void yield_wait_add(struct io_core *core, struct io_kthread *k)
{
    unsigned i = 0;
    while (i < IO_YIELD_WAITERS - 1 && core->yield_waiters[i] && core->yield_waiters[i] != k)
        i++;
    if (core->yield_waiters[i] && core->yield_waiters[i] != k)
        yield_wait_drop(core, i);
    for (; i > 0; i--)
        core->yield_waiters[i] = core->yield_waiters[i - 1];
    core->yield_waiters[0] = k;
    k->member.yield_wait_move = core->stats.moves;
    set_yield_wait(k, core);
}

/* The kthreads between which the core changes hands yield-wait for it for a while. A yield may run each further one for
 * nothing, which takes a switch; to wake one that sleeps takes some more. So a kthread that had the core some moves ago
 * does not yield-wait. */
void io_yield_wait_moved(const struct io_cores *c, struct io_core *core, struct io_kthread *to, struct io_kthread *from,
                         uint64_t now)
{
    if (from)
        yield_wait_add(core, from);
    yield_wait_add(core, to);
    for (unsigned i = 2; i < IO_YIELD_WAITERS && core->yield_waiters[i]; i++)
        if (core->stats.moves - core->yield_waiters[i]->member.yield_wait_move > YIELD_WAIT_MOVES)
            yield_wait_drop(core, i);
    core->yield_wait_until = now + c->yield_wait;
}
