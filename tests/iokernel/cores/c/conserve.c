/* No core idles beside an application that waits for longer than an interval, and what counts as that: pair.h. Prints
 * the names of those that passed. At random and at every instant: random.c; by a loop that runs:
 * test_work_conserving.py.
 *
 *   cores_conserve [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "pair.h"

/* An application is killed, and its threads go one by one: a sibling gets the core at the same decision. */
static void a_sibling_takes_the_place_of_the_dead(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 4});
    for (unsigned i = 0; i < 3; i++)
        end_thread(&a->k[i]);
    for (unsigned i = 0; i < 4; i++)
        ready(&a->k[i], 1);
    run(&w, 6 * US);
    CHECK(owns(&w, &a->k[3]) && acts(&w, &a->k[3]));
    run(&w, 100 * US);
    CHECK(stats_of(&w).violations == 0);
    world_delete(&w);
}

/* What waits in one that is dead altogether waits for no core. */
static void the_dead_want_nothing(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *dead = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 4});
    struct app *bat = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2});
    for (unsigned i = 0; i < 4; i++) {
        end_thread(&dead->k[i]);
        ready(&dead->k[i], 1);
    }
    run(&w, 100 * US);
    CHECK(w.cores[0].owner == 0 && w.cores[1].owner == 0 && stats_of(&w).violations == 0);
    for (unsigned i = 0; i < 2; i++)
        ready(&bat->k[i], 1);
    run(&w, 10 * US);
    CHECK(acts(&w, &bat->k[0]) && acts(&w, &bat->k[1]));
    CHECK(stats_of(&w).violations == 0);
    world_delete(&w);
}

/* One core of two is in use, and at each look something waits there that was not there at the last one. */
static void nothing_waits_where_all_is_new(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2});
    struct kthread *k = &a->k[0];
    start(&w, k);
    for (unsigned i = 0; i < 1000; i++) {
        run(&w, 1 * US);
        drain(k);
        ready(k, 1);
    }
    CHECK(cores_of(&w, a).congested > 150 && cores_of(&w, a).cores == 1 && stats_of(&w).violations == 0);
    world_delete(&w);
}

/* Two things wait, one of them for long, and each look brings a core for one. */
/* It gets two cores, one after the other. */
static void get_both(struct world *w, struct app *a)
{
    a->k[0].line->signals.timer_tsc = w->now - 20 * US;
    ready(&a->k[1], 1);
    run(w, 5 * US);
    CHECK(owns(w, &a->k[0]) + owns(w, &a->k[1]) == 1);
    run(w, 6 * US);
    CHECK(owns(w, &a->k[0]) && owns(w, &a->k[1]) && stats_of(w).violations == 0);
}

static void one_core_at_a_look_is_no_neglect(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay", .cores = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2});
    run(&w, 100 * US);
    get_both(&w, a);
    world_delete(&w);
}

/* What an application lacked in another spell of idle cores is not held against this one. */
static void nor_is_it_the_next_time(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay", .cores = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2});
    run(&w, 100 * US);
    get_both(&w, a);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(acts(&w, &a->k[i]));
        drain(&a->k[i]);
        a->k[i].line->signals.timer_tsc = UINT64_MAX;
        ready(&b->k[i], 1);
    }
    run(&w, 10 * US);
    for (unsigned i = 0; i < 2; i++)
        park(&a->k[i]);
    run(&w, 2 * US);
    for (unsigned i = 0; i < 2; i++) /* no core was idle meanwhile */
        CHECK(acts(&w, &b->k[i]));
    run(&w, 100 * US);
    for (unsigned i = 0; i < 2; i++) {
        drain(&b->k[i]);
        park(&b->k[i]);
    }
    run(&w, 100 * US);
    get_both(&w, a);
    world_delete(&w);
}

/* The policy grants the core to one for which the loop may make no call of the kernel now: it is the other's
 * meanwhile. */
static void who_has_no_calls_left_holds_no_core_back(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *lat = app_add(&w, (struct wish){.kind = LATENCY}), *bat = app_add(&w, (struct wish){.kind = BATCH});
    struct kthread *l = &lat->k[0], *b = &bat->k[0];
    for (struct io_app *app = w.io->apps; app; app = app->next)
        if (app->id == lat->id) {
            cl_bucket_refill(&app->wakes, w.now);
            cl_bucket_take(&app->wakes, 264); /* in 800 us there is one again */
        }
    ready(l, 1);
    ready(b, 1);
    run(&w, 6 * US);
    CHECK(owns(&w, b) && acts(&w, b));
    run(&w, 700 * US);
    CHECK(owns(&w, b));
    run(&w, 200 * US);
    CHECK(owns(&w, l) && !acts(&w, b) && acts(&w, l) && stats_of(&w).violations == 0);
    world_delete(&w);
}

/* One decision in 16 is timed, and before another one reading alone is, which changes nothing. */
static void some_decisions_are_timed_and_before_others_reading_is(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 500 * US);
    uint64_t n = stats_of(&p.w).decisions;
    CHECK(n > 64 && owns(&p.w, p.l) && stats_of(&p.w).violations == 0);
    CHECK(cl_hist_count(cl_io_decision_time(p.w.io, 0)) == (n + 15) / 16);
    CHECK(cl_hist_count(cl_io_reading_time(p.w.io, 0)) == (n + 7) / 16);
    CHECK(cl_io_reading_time(p.w.io, 1) == NULL);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(a_sibling_takes_the_place_of_the_dead), SCENARIO(the_dead_want_nothing),
               SCENARIO(nothing_waits_where_all_is_new), SCENARIO(one_core_at_a_look_is_no_neglect),
               SCENARIO(nor_is_it_the_next_time), SCENARIO(who_has_no_calls_left_holds_no_core_back),
               SCENARIO(some_decisions_are_timed_and_before_others_reading_is))
