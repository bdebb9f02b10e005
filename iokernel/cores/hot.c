/* Who waits for a core hot, by yields instead of asleep: those that were part of its last moves.
 *
 * Tests: tests/iokernel/cores/c/steps.c. */
#include "../state/internal.h"

#define HOT_MOVES 6 /* of a core, in which one that is to stay hot for it was part of one */

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
void io_core_heat(const struct io_cores *c, struct io_core *core, struct io_kthread *to, struct io_kthread *from,
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
