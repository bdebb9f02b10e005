/* Two latency applications on one core, under each policy that moves cores (iokernel/policies/deal.h): world.h. Prints
 * the names of those that passed.
 *
 *   cores_equals [NAME] */
#include "world.h"

#define LATENCY CL_POLICY_LATENCY
#define INTERVAL (5 * US)

struct rule {
    const char *policy;
    uint64_t turn; /* that an equal has at a time; it comes to a check more at either end */
};

static const struct rule rules[] = {{"delay", 20 * US}, {"shenango", 20 * US}, {"fair", 100 * US}};
#define RULES (sizeof rules / sizeof *rules)

/* How long it lasts until k has the core; the other one cedes when it is asked. */
static uint64_t waits(struct world *w, const struct kthread *k)
{
    uint64_t since = w->now;
    while (!owns(w, k)) {
        run(w, US);
        for (unsigned i = 0; i < w->n_apps; i++)
            acts(w, &w->apps[i].k[0]);
        CHECK(w->now - since < 10 * MS);
    }
    return w->now - since;
}

/* Two that always wait. `later`: the second of the table has the core first. */
static void take_turns(const struct rule *rule, bool later, uint32_t weight)
{
    struct world w;
    world_new(&w, (struct setting){.policy = rule->policy});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .weight = weight});
    struct app *b = app_add(&w, (struct wish){.kind = LATENCY});
    start(&w, later ? &b->k[0] : &a->k[0]);
    ready(&a->k[0], 1000);
    ready(&b->k[0], 1000);
    uint64_t longest = 0, end = w.now + 200 * MS;
    while (w.now < end) {
        longest = cl_max(longest, waits(&w, &a->k[0]));
        waits(&w, &b->k[0]);
    }
    struct cl_io_app_cores ca = cores_of(&w, a), cb = cores_of(&w, b);
    uint64_t turns = ca.moves_in + cb.moves_in, fair = (ca.core_ns + cb.core_ns) * weight / (weight + 1);
    CHECK(ca.core_ns > fair - fair / 50 && ca.core_ns < fair + fair / 50);
    CHECK(turns * rule->turn <= 210 * MS); /* no core thrashes */
    if (weight == 1)
        CHECK(longest <= rule->turn + 3 * INTERVAL);
    CHECK(stats_of(&w).violations == 0);
    world_delete(&w);
}

static void equals_take_turns(void)
{
    for (unsigned i = 0; i < RULES; i++)
        for (unsigned later = 0; later < 2; later++)
            take_turns(&rules[i], later, 1);
}

static void by_weight(void)
{
    for (unsigned i = 0; i < RULES; i++)
        for (unsigned later = 0; later < 2; later++)
            take_turns(&rules[i], later, 3);
}

/* One always waits, the other wants the core for a moment each millisecond: it is owed nothing for what it did not
 * want, and owes nothing for what the other one had meanwhile. */
static void who_seldom_asks_waits_for_a_turn_at_most(void)
{
    for (unsigned i = 0; i < RULES; i++)
        for (unsigned later = 0; later < 2; later++) {
            struct world w;
            world_new(&w, (struct setting){.policy = rules[i].policy});
            struct app *one = app_add(&w, (struct wish){.kind = LATENCY});
            struct app *two = app_add(&w, (struct wish){.kind = LATENCY});
            struct kthread *always = later ? &two->k[0] : &one->k[0], *seldom = later ? &one->k[0] : &two->k[0];
            start(&w, always);
            ready(always, 1000);
            for (unsigned n = 0; n < 100; n++) {
                run(&w, 1 * MS);
                CHECK(owns(&w, always) && acts(&w, always));
                ready(seldom, 1);
                CHECK(waits(&w, seldom) <= rules[i].turn + 3 * INTERVAL);
                acts(&w, seldom);
                run(&w, 2 * US);
                drain(seldom);
                park(seldom);
                CHECK(waits(&w, always) <= INTERVAL);
            }
            world_delete(&w);
        }
}

/* Of two that wait alike, whatever their places in the table: the kernel runs that one next, if both yield. */
static void who_has_rested_longest_goes_first(void)
{
    for (unsigned i = 0; i < RULES; i++)
        for (unsigned later = 0; later < 2; later++) {
            struct world w;
            struct kthread *k[3];
            world_new(&w, (struct setting){.policy = rules[i].policy});
            for (unsigned n = 0; n < 3; n++)
                k[n] = &app_add(&w, (struct wish){.kind = LATENCY})->k[0];
            for (unsigned n = 0; n < 3; n++) {
                start(&w, k[n]);
                run(&w, 30 * US);
                park(k[n]);
                run(&w, 30 * US);
            }
            start(&w, k[2]);
            k[later]->line->signals.left_tsc = (uint32_t)w.now - 2 * US;
            k[!later]->line->signals.left_tsc = (uint32_t)w.now - US;
            ready(k[0], 1);
            ready(k[1], 1);
            park(k[2]);
            run(&w, 15 * US);
            CHECK(owns(&w, k[later]));
            world_delete(&w);
        }
}

SCENARIOS_MAIN(SCENARIO(equals_take_turns), SCENARIO(by_weight), SCENARIO(who_seldom_asks_waits_for_a_turn_at_most),
               SCENARIO(who_has_rested_longest_goes_first))
