/* An old owner that says that it has seen the ask gets one interval more before it is interrupted, and no second one:
 * pair.h. Its stamp is one of cl_tsc(), which the loop's moves are stamped with, too, whatever clock it is stepped
 * on. */
#include "pair.h"

#include <corelane/runtime/clock.h>

#define CEDE_US 10u /* the first of them begin with the round after the one that decides */
#define INTERRUPT_US 50u

static void sees(struct kthread *k)
{
    k->line->signals.lost_tsc = (uint32_t)cl_tsc();
}

/* How long after the decision the counter reaches 1, in rounds of a microsecond. `lies`: p->b says at each that it has
 * seen that its core is lost. */
static unsigned rounds_until(struct pair *p, uint64_t (*counter)(const struct world *), bool lies)
{
    unsigned n = 0;
    for (; n < 1000 && counter(&p->w) == 0; n++) {
        if (lies)
            sees(p->b);
        run(&p->w, 1 * US);
    }
    return n;
}

static uint64_t interrupted(const struct world *w)
{
    return stats_of(w).interrupted;
}

static uint64_t evicted(const struct world *w)
{
    return stats_of(w).evicted;
}

static void decided(struct pair *p, struct wish batch)
{
    pair_new(p, (struct setting){.cede_us = CEDE_US, .interrupt_us = INTERRUPT_US}, batch);
    ready(p->l, 1);
    while (!owns(&p->w, p->l))
        run(&p->w, 1 * US);
}

static void slow_way_out_is_an_ask(void)
{
    struct pair p;
    decided(&p, (struct wish){0});
    sees(p.b);
    run(&p.w, (2 * CEDE_US - 1) * US);
    CHECK(interrupted(&p.w) == 0);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_REQUEST) == 1 && seen_signals() == 0);
    world_delete(&p.w);
}

static void seen_too_late_is_interrupted(void)
{
    struct pair p;
    decided(&p, (struct wish){0});
    CHECK(rounds_until(&p, interrupted, false) == 1 + CEDE_US);
    sees(p.b);
    run(&p.w, 1 * US);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_INTERRUPT) == 1 && interrupted(&p.w) == 1);
    world_delete(&p.w);
}

static void stamp_of_the_last_move_does_not_count(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.cede_us = CEDE_US}, (struct wish){0});
    sees(p.b);
    ready(p.l, 1);
    while (!owns(&p.w, p.l))
        run(&p.w, 1 * US);
    CHECK(rounds_until(&p, interrupted, false) == 1 + CEDE_US);
    world_delete(&p.w);
}

/* Whatever it says, and however often: one interval. */
static void liar_gains_one_interval(void)
{
    struct pair p;
    decided(&p, (struct wish){.blocks = true});
    CHECK(rounds_until(&p, interrupted, true) == 1 + 2 * CEDE_US);
    CHECK(rounds_until(&p, evicted, true) == 1 + INTERRUPT_US);
    CHECK(interrupted(&p.w) == 1 && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_EVICT) == 1 && stats_of(&p.w).violations == 0);
    world_delete(&p.w);
}

/* Nor another one by parking and going on, before the decision and after. */
static void asked_again_it_gains_no_more(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.cede_us = CEDE_US}, (struct wish){.blocks = true});
    p.b->line->park = CL_KTHREAD_PARKED;
    ready(p.l, 1);
    while (!owns(&p.w, p.l))
        run(&p.w, 1 * US);
    p.b->line->park = CL_KTHREAD_RUNNING;
    run(&p.w, 1 * US);
    CHECK(*p.bat->preempt == 1); /* asked here */
    for (unsigned i = 0; i < 2 * CEDE_US; i++) {
        sees(p.b);
        p.b->line->park = i % 4 == 2 ? CL_KTHREAD_PARKED : CL_KTHREAD_RUNNING;
        CHECK(interrupted(&p.w) == 0);
        run(&p.w, 1 * US);
    }
    CHECK(interrupted(&p.w) == 1);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(slow_way_out_is_an_ask), SCENARIO(seen_too_late_is_interrupted),
               SCENARIO(stamp_of_the_last_move_does_not_count), SCENARIO(liar_gains_one_interval),
               SCENARIO(asked_again_it_gains_no_more))
