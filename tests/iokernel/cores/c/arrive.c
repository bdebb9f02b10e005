/* What waits for a core while that is on its way to another application: pair.h. Prints the names of those that passed.
 *
 *   cores_arrive [NAME] */
#include "pair.h"

#define INTERVAL (5 * US)

/* The latency application has served a frame and parked, and the other one is to have the core. */
static void on_its_way_back(struct pair *p)
{
    send_frame(p->bat, p->lat, 1);
    while (!owns(&p->w, p->l))
        run(&p->w, 1 * US);
    CHECK(!acts(&p->w, p->b) && acts(&p->w, p->l));
    run(&p->w, 2 * INTERVAL);
    receive(p->lat, 0);
    park(p->l);
    while (!owns(&p->w, p->b))
        run(&p->w, 1 * US);
}

/* It is taken from there with the round that sees it arrive, and not with the next look, up to an interval later. */
static void who_waits_gets_it_as_soon_as_it_has_arrived(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    on_its_way_back(&p);
    p.b->line->park = CL_KTHREAD_RUNNING; /* but has not said so of this grant: too late to turn back */
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.b));
    uint64_t decisions = stats_of(&p.w).decisions;
    CHECK(acts(&p.w, p.b));
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).decisions == decisions + 1);
    world_delete(&p.w);
}

/* Where nobody waits, its arrival is nothing to decide about. */
static void an_arrival_that_nobody_waits_for_costs_nothing(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    on_its_way_back(&p);
    CHECK(acts(&p.w, p.b));
    uint64_t urgent = stats_of(&p.w).urgent;
    run(&p.w, 4 * INTERVAL);
    CHECK(owns(&p.w, p.b) && stats_of(&p.w).urgent == urgent);
    world_delete(&p.w);
}

/* Who let go of it has it again before the batch application begins, which cedes without being asked. */
static void it_turns_back_to_who_let_go_of_it(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    on_its_way_back(&p);
    uint64_t asked = stats_of(&p.w).asked;
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).asked == asked);
    CHECK(acts(&p.w, p.l) && !acts(&p.w, p.b));
    run(&p.w, 20 * INTERVAL);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).asked == asked && seen_signals() == 0 && stats_of(&p.w).evicted == 0);
    receive(p.lat, 0);
    park(p.l);
    run(&p.w, 2 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    run(&p.w, 20 * INTERVAL);
    CHECK(owns(&p.w, p.b) && stats_of(&p.w).violations == 0 && stats_of(&p.w).not_started == 0);
    world_delete(&p.w);
}

/* The batch application said that it runs in the same moment, and goes on without a look: it is asked like any
 * owner. */
static void who_begins_meanwhile_is_asked(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    on_its_way_back(&p);
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.l));
    p.b->line->park = CL_KTHREAD_RUNNING;
    run(&p.w, 1 * US);
    CHECK(*p.bat->preempt == 1);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).evicted == 0);
    world_delete(&p.w);
}

/* It may turn to anybody who goes before, but not while the old owner is asked for it: that one has its steps. */
static void it_does_not_turn_while_the_old_owner_is_there(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    struct app *sure = app_add(&p.w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    struct kthread *s = &sure->k[0];
    send_frame(p.bat, p.lat, 1);
    while (!owns(&p.w, p.l))
        run(&p.w, 1 * US);
    ready(s, 1);
    run(&p.w, INTERVAL + 1 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).evicted == 0);
    acts(&p.w, p.b);
    run(&p.w, INTERVAL);
    CHECK(owns(&p.w, s) && stats_of(&p.w).evicted == 0 && stats_of(&p.w).interrupted == 0);
    CHECK(!acts(&p.w, p.l) && acts(&p.w, s));
    run(&p.w, 20 * INTERVAL);
    CHECK(owns(&p.w, s) && stats_of(&p.w).evicted == 0);
    world_delete(&p.w);
}

static void first_that_wants(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0, left = 1; i < view->n_apps; i++) {
        apps[i].grant = left && apps[i].demand;
        left -= apps[i].grant;
    }
}

/* Its equals keep what they are given for a while, and their turn is not taken from them before it begins. */
static void it_does_not_turn_among_equals(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    struct app *other = app_add(&p.w, (struct wish){.kind = LATENCY});
    struct kthread *o = &other->k[0];
    struct cl_policy_setting first = {.fn = first_that_wants};
    CHECK(cl_io_policy_set(p.w.io, &first, err) > 0);
    start(&p.w, p.l);
    ready(o, 1);
    run(&p.w, 2 * INTERVAL);
    park(p.l);
    while (!owns(&p.w, o))
        run(&p.w, 1 * US);
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, o));
    uint64_t urgent = stats_of(&p.w).urgent;
    CHECK(acts(&p.w, o)); /* they have it for a while: nothing to decide about */
    run(&p.w, INTERVAL);
    CHECK(owns(&p.w, o) && stats_of(&p.w).urgent == urgent);
    world_delete(&p.w);
}

/* Who gets it so has to begin before it turns again: else nobody need ever. */
static void it_turns_once(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    struct app *sure = app_add(&p.w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    struct kthread *s = &sure->k[0];
    on_its_way_back(&p);
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.l));
    ready(s, 1);
    run(&p.w, INTERVAL + 1 * US);
    CHECK(owns(&p.w, p.l));
    CHECK(acts(&p.w, p.l));
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, s) && *p.lat->preempt == 1);
    CHECK(!acts(&p.w, p.l) && acts(&p.w, s));
    run(&p.w, 20 * INTERVAL);
    CHECK(owns(&p.w, s) && stats_of(&p.w).evicted == 0 && stats_of(&p.w).interrupted == 0);
    world_delete(&p.w);
}

/* A batch application that is stopped never begins, and the latency one has the core back each time before anybody
 * could tell, `wait` after it let go of it: that does not keep it from a batch application that would run. */
static void never_begins(uint64_t wait)
{
    struct pair p;
    pair_new(&p, (struct setting){.start_us = 300}, (struct wish){0});
    struct kthread *other = &app_add(&p.w, (struct wish){.kind = BATCH})->k[0];
    ready(other, 1);
    on_its_way_back(&p); /* from here on p.b is stopped */
    for (unsigned i = 0; i < 40; i++) {
        if (owns(&p.w, other))
            CHECK(acts(&p.w, other));
        run(&p.w, wait);
        send_frame(p.bat, p.lat, 1);
        run(&p.w, 2 * US);
        acts(&p.w, other);
        CHECK(owns(&p.w, p.l) && acts(&p.w, p.l));
        run(&p.w, 2 * US);
        receive(p.lat, 0);
        park(p.l);
        run(&p.w, 2 * US);
    }
    CHECK(stats_of(&p.w).not_started > 0 && cores_of(&p.w, &p.w.apps[2]).moves_in > 20);
    world_delete(&p.w);
}

static void one_that_never_begins_is_passed_over(void)
{
    never_begins(20 * US);
}

static void so_is_one_that_has_been_waited_for(void)
{
    never_begins(100 * US);
}

SCENARIOS_MAIN(SCENARIO(who_waits_gets_it_as_soon_as_it_has_arrived),
               SCENARIO(an_arrival_that_nobody_waits_for_costs_nothing), SCENARIO(it_turns_back_to_who_let_go_of_it),
               SCENARIO(who_begins_meanwhile_is_asked), SCENARIO(it_does_not_turn_while_the_old_owner_is_there),
               SCENARIO(it_does_not_turn_among_equals), SCENARIO(it_turns_once),
               SCENARIO(one_that_never_begins_is_passed_over), SCENARIO(so_is_one_that_has_been_waited_for))
