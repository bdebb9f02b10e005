/* The doorbell of a call for help: who rings gets a decision at once, and who rings for ever, or writes there what he
 * likes, costs the others no more than that is bounded to. Prints the names of those that passed.
 *
 *   cores_rung [NAME] */
#include "pair.h"

#define INTERVAL (5 * US)
#define PER_MS 200 /* iokernel/cores/rung.c: heeded, of one application */
#define AT_ONCE 4

static uint32_t *bell(const struct app *a)
{
    return &cl_arena_doorbell_of(a->base)->help_rung;
}

static void call(struct app *a)
{
    a->k[0].line->help++;
    cl_help_ring(cl_arena_doorbell_of(a->base));
}

/* Rounds up to the first one after a decision. */
static void just_decided(struct world *w)
{
    for (uint64_t was = stats_of(w).decisions; stats_of(w).decisions == was;)
        run(w, 1 * US);
}

/* Microseconds until k has a core. */
static uint64_t us_to_core(struct world *w, const struct kthread *k)
{
    uint64_t since = w->now;
    while (!owns(w, k) && w->now - since < 100 * US)
        run(w, 1 * US);
    return (w->now - since) / US;
}

static void serve(struct pair *p)
{
    CHECK(!acts(&p->w, p->b) && acts(&p->w, p->l));
    run(&p->w, 2 * US);
    park(p->l);
    run(&p->w, 10 * US);
    CHECK(owns(&p->w, p->b) && acts(&p->w, p->b));
    run(&p->w, 20 * US);
}

static void who_rings_gets_a_core_in_that_round(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    for (unsigned i = 0; i < 20; i++) {
        just_decided(&p.w);
        call(p.lat);
        CHECK(us_to_core(&p.w, p.l) == 1 && *bell(p.lat) == 0);
        serve(&p);
    }
    struct cl_io_app_cores s = cores_of(&p.w, p.lat);
    CHECK(s.rings == 20 && s.rings_delayed == 0);
    world_delete(&p.w);
}

static void who_does_not_ring_waits_for_the_scan(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    just_decided(&p.w);
    p.l->line->help++;
    CHECK(us_to_core(&p.w, p.l) == 5);
    CHECK(cores_of(&p.w, p.lat).rings == 0);
    world_delete(&p.w);
}

static void a_loop_that_is_told_to_scan_only_does_not_heed_it(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.scan_only = true}, (struct wish){0});
    just_decided(&p.w);
    call(p.lat);
    CHECK(us_to_core(&p.w, p.l) == 5);
    CHECK(cores_of(&p.w, p.lat).rings == 0);
    world_delete(&p.w);
}

/* Also to one that has cores, whose work is more than they can do: `delay` gives it one that nobody wants. */
static void a_sibling_comes_to_who_rings_beside_a_free_core(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay", .cores = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2});
    start(&w, &a->k[0]);
    just_decided(&w);
    call(a);
    CHECK(us_to_core(&w, &a->k[1]) == 1);
    world_delete(&w);
}

/* Without a call, and whatever it writes. */
static void a_ring_for_nothing_gets_nobody_a_core(void)
{
    static const uint32_t words[] = {1, 2, 0x80000000, UINT32_MAX};
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    uint64_t moves = stats_of(&p.w).moves;
    for (unsigned i = 0; i < 400; i++) {
        *bell(p.lat) = words[i % 4];
        run(&p.w, 3 * US);
        CHECK(owns(&p.w, p.b));
    }
    struct cl_io_app_cores s = cores_of(&p.w, p.lat);
    CHECK(stats_of(&p.w).moves == moves && s.waiting == 0 && s.rings > 100 && s.lies == 0);
    world_delete(&p.w);
}

/* A decision more for each interval, whatever it says; and whoever else rings is heard at once. */
static void who_rings_for_ever_is_bounded(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    struct app *hostile = app_add(&p.w, (struct wish){.kind = LATENCY, .maximum = 1});
    run(&p.w, 100 * US);
    struct cl_io_cores_stats before = stats_of(&p.w);
    uint64_t begin = p.w.now;
    for (unsigned turn = 0; turn < 50; turn++) {
        for (unsigned i = 0; i < 200; i++) {
            *bell(hostile) = turn + 1;
            run(&p.w, 1 * US);
        }
        *bell(hostile) = UINT32_MAX;
        call(p.lat);
        CHECK(us_to_core(&p.w, p.l) <= 2);
        serve(&p);
    }
    uint64_t ms = (p.w.now - begin) / MS + 1;
    struct cl_io_app_cores s = cores_of(&p.w, hostile);
    CHECK(s.rings <= ms * PER_MS + AT_ONCE && s.rings >= (ms - 1) * PER_MS / 2);
    CHECK(s.rings_delayed > 0 && s.rings_delayed <= s.rings + 1);
    CHECK(cores_of(&p.w, p.lat).rings == 50 && cores_of(&p.w, p.lat).rings_delayed == 0);
    /* The scan's, the hostile one's, and three or so for each turn of the honest ones. */
    CHECK(stats_of(&p.w).decisions - before.decisions <= ms * (PER_MS + PER_MS) + AT_ONCE + 50 * 8);
    world_delete(&p.w);
}

/* As many as there may be on this loop: together a decision a microsecond. */
static void all_together_are_bounded(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *apps[MAX_APPS];
    for (unsigned i = 0; i < MAX_APPS; i++)
        apps[i] = app_add(&w, (struct wish){.kind = LATENCY});
    run(&w, 100 * US);
    uint64_t before = stats_of(&w).decisions, begin = w.now;
    for (unsigned i = 0; i < 10000; i++) {
        for (unsigned a = 0; a < MAX_APPS; a++)
            *bell(apps[a]) = i + 1;
        w.now += US / 10;
        cl_io_step(w.io, 0, w.now);
    }
    CHECK(stats_of(&w).decisions - before <= (w.now - begin) / US + 2);
    world_delete(&w);
}

/* It may ring before its threads are known: that is for later. */
static void who_is_not_told_yet_is_heard_once_it_is(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .mute = true});
    call(a);
    run(&w, 100 * US);
    CHECK(*bell(a) == 1 && cores_of(&w, a).rings == 0);
    tell_threads(&w, a);
    CHECK(us_to_core(&w, &a->k[0]) <= 2);
    run(&w, 2 * US);
    CHECK(*bell(a) == 0 && cores_of(&w, a).rings == 1);
    world_delete(&w);
}

SCENARIOS_MAIN(SCENARIO(who_rings_gets_a_core_in_that_round), SCENARIO(who_does_not_ring_waits_for_the_scan),
               SCENARIO(a_loop_that_is_told_to_scan_only_does_not_heed_it),
               SCENARIO(a_sibling_comes_to_who_rings_beside_a_free_core),
               SCENARIO(a_ring_for_nothing_gets_nobody_a_core), SCENARIO(who_rings_for_ever_is_bounded),
               SCENARIO(all_together_are_bounded), SCENARIO(who_is_not_told_yet_is_heard_once_it_is))
