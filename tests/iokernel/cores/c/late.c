/* New owners that are late, and how long whoever was refused a core for it, or for an eviction, waits: pair.h. A
 * kthread's thread sleeps, as one does that was stopped, unless it is made to spin: then the kernel has it in line.
 * Prints the names of those that passed.
 *
 *   cores_late [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "pair.h"

#define START (5 * MS)
#define FIRST (START / 16) /* for which one that did not begin is not considered, at first */

/* l is given the core, and b has ceded. */
static void grant_to_l(struct pair *p)
{
    ready(p->l, 1);
    run(&p->w, 5 * US);
    CHECK(owns(&p->w, p->l) && !acts(&p->w, p->b));
}

static uint64_t not_started(const struct pair *p)
{
    CHECK(cores_of(&p->w, p->lat).not_started == stats_of(&p->w).not_started);
    return stats_of(&p->w).not_started;
}

static void one_in_line_keeps_its_core(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    spin(p.l);
    grant_to_l(&p);
    run(&p.w, 3 * START + 20 * US);
    CHECK(owns(&p.w, p.l) && not_started(&p) == 0);
    CHECK(stats_of(&p.w).late == 3 && cores_of(&p.w, p.lat).late == 3 && cores_of(&p.w, p.bat).late == 0);
    CHECK(acts(&p.w, p.l));
    drain(p.l);
    run(&p.w, 5 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_REQUEST) == 1 && stats_of(&p.w).evicted == 0);
    end_spin(p.l);
    world_delete(&p.w);
}

/* One whose word says that it waits while it computes something else has a hundred milliseconds. What it is refused
 * then does not become more from one time to the next. */
static void but_not_for_ever(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    spin(p.l);
    grant_to_l(&p);
    for (unsigned i = 1; i < 4; i++) {
        run(&p.w, 20 * START - 20 * US);
        CHECK(owns(&p.w, p.l) && not_started(&p) == i - 1);
        run(&p.w, START + 100 * US);
        CHECK(owns(&p.w, p.b) && acts(&p.w, p.b) && not_started(&p) == i);
        run(&p.w, FIRST);
        CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b));
    }
    end_spin(p.l);
    world_delete(&p.w);
}

/* Others may have what the policy gives them while it is waited for. */
static void one_that_is_late_keeps_nobody_from_its_core(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    struct app *sure = app_add(&p.w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    spin(p.l);
    grant_to_l(&p);
    run(&p.w, START + 100 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).late == 1);
    ready(&sure->k[0], 1);
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, &sure->k[0]) && acts(&p.w, &sure->k[0]) && not_started(&p) == 0);
    end_spin(p.l);
    world_delete(&p.w);
}

/* The loop was kept from running in the middle of a move: the new owner is woken by the last step, and gets its
 * time. */
static void a_loop_that_was_away_gives_time_to_begin(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l));
    p.w.now += 3 * START;
    while (stats_of(&p.w).evicted == 0)
        run(&p.w, 1 * US);
    run(&p.w, 40 * US);
    CHECK(owns(&p.w, p.l) && not_started(&p) == 0);
    CHECK(acts(&p.w, p.l));
    run(&p.w, 5 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_EVICT) == 1);
    world_delete(&p.w);
}

/* Nobody tells a loop that sleeps when the time is over for which one that waits was refused a core. */
static void the_loop_sleeps_no_longer_than_it_refuses(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    const struct io_cores *c = &p.w.io->loops[0].cores;
    park(p.b);
    run(&p.w, 10 * US);
    ready(p.l, 1);
    uint64_t refused = FIRST;
    for (unsigned i = 1; i < 12; i++) {
        while (not_started(&p) < i)
            run(&p.w, 1 * US);
        uint64_t until = p.w.now + refused;
        run(&p.w, 6 * US);
        CHECK(!owns(&p.w, p.l));
        while (!owns(&p.w, p.l)) { /* it sleeps as long as it may: for something else first, perhaps */
            CHECK(!c->awake && c->next_due > p.w.now - 6 * US && c->next_due <= until);
            p.w.now = cl_max(p.w.now, c->next_due);
            run(&p.w, 6 * US);
        }
        CHECK(p.w.now > until);
        refused = cl_min(2 * refused, FIRST << 8); /* 80 ms */
    }
    CHECK(acts(&p.w, p.l)); /* it goes on, and all is forgotten */
    run(&p.w, 6 * US);
    park(p.l);
    run(&p.w, 6 * US);
    while (not_started(&p) < 12)
        run(&p.w, 1 * US);
    run(&p.w, 6 * US);
    CHECK(c->next_due <= p.w.now + FIRST);
    world_delete(&p.w);
}

/* One that was in a long call of the kernel when it was asked, and has hardly any of the CPU since it was demoted: it
 * need not cede before it may run on. */
static void one_that_was_evicted_waits_no_longer_than_start_us(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    const struct io_cores *c = &p.w.io->loops[0].cores;
    ready(p.b, 1);
    ready(p.l, 1);
    run(&p.w, 70 * US);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_IDLE && owns(&p.w, p.l) && acts(&p.w, p.l));
    drain(p.l);
    run(&p.w, 2 * US);
    park(p.l);
    run(&p.w, 6 * US);
    CHECK(!c->awake && c->next_due <= p.w.now + START);
    run(&p.w, START - 100 * US);
    CHECK(!owns(&p.w, p.b));
    run(&p.w, 200 * US);
    CHECK(owns(&p.w, p.b) && sched_getscheduler(p.b->tid) == SCHED_OTHER && *p.bat->preempt == 1);
    CHECK(acts(&p.w, p.b));
    run(&p.w, 2 * US);
    CHECK(*p.bat->preempt == 0 && stats_of(&p.w).evicted == 1 && stats_of(&p.w).not_started == 0);
    world_delete(&p.w);
}

/* Its thread is gone, which nobody knows before the last step asks: the core is given back then, and it gets none
 * again. */
static void one_that_died_loses_its_core(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    grant_to_l(&p);
    CHECK(acts(&p.w, p.l));
    drain(p.l);
    park(p.l);
    run(&p.w, 10 * US);
    CHECK(acts(&p.w, p.b));
    run(&p.w, 2 * US);
    end_thread(p.l);
    grant_to_l(&p);
    run(&p.w, START - 100 * US);
    CHECK(stats_of(&p.w).died == 1 && not_started(&p) == 0);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    run(&p.w, 10 * START);
    CHECK(owns(&p.w, p.b) && stats_of(&p.w).died == 1 && not_started(&p) == 0);
    struct cl_io_move e[64];
    uint32_t n = cl_io_moves(p.w.io, 0, &p.w.log_next, e, 64, &p.w.log_lost), found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += e[i].what == CL_IO_LOG_DIED && e[i].from == p.l->slot + 1 && e[i].to == 0;
    CHECK(found == 1);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(one_that_died_loses_its_core), SCENARIO(one_in_line_keeps_its_core), SCENARIO(but_not_for_ever),
               SCENARIO(one_that_is_late_keeps_nobody_from_its_core),
               SCENARIO(a_loop_that_was_away_gives_time_to_begin), SCENARIO(the_loop_sleeps_no_longer_than_it_refuses),
               SCENARIO(one_that_was_evicted_waits_no_longer_than_start_us))
