/* Applications that are denied cores (iokernel/cores/denied.c), under each built-in policy: world.h. Prints the names
 * of those that passed.
 *
 *   cores_denied [NAME] */
#include "world.h"

#define LATENCY CL_POLICY_LATENCY
#define BATCH CL_POLICY_BATCH

static const char *const policies[] = {"delay", "shenango", "fair", "attained"};
#define POLICIES (sizeof policies / sizeof *policies)

/* All act on what they see, each microsecond. */
static void act_for(struct world *w, uint64_t ns)
{
    for (uint64_t end = w->now + ns; w->now < end;) {
        run(w, US);
        for (uint32_t i = 0; i < w->n_apps; i++)
            for (uint32_t k = 0; w->apps[i].id && k < w->apps[i].n; k++)
                acts(w, &w->apps[i].k[k]);
    }
}

static void always_waits(struct app *a)
{
    for (uint32_t k = 0; k < a->n; k++)
        ready(&a->k[k], 1000);
}

static void deny(struct world *w, const struct app *a, bool denied)
{
    CHECK(cl_io_app_deny(w->io, a->id, denied) == 0);
}

/* Core time that an application gets in the next while, in thousandths of a core. */
static uint64_t gets(struct world *w, const struct app *a, uint64_t ns)
{
    uint64_t before = cores_of(w, a).core_ns;
    act_for(w, ns);
    return (cores_of(w, a).core_ns - before) * 1000 / ns;
}

/* Two batch jobs share a core; one is denied, and has a turn now and then; then it is an equal again. */
static void it_goes_last_with_a_turn_now_and_then(void)
{
    for (unsigned i = 0; i < POLICIES; i++) {
        struct world w;
        world_new(&w, (struct setting){.policy = policies[i]});
        struct app *good = app_add(&w, (struct wish){.kind = BATCH});
        struct app *deaf = app_add(&w, (struct wish){.kind = BATCH});
        always_waits(good);
        always_waits(deaf);
        act_for(&w, 10 * MS);
        deny(&w, deaf, true);
        act_for(&w, 40 * MS);
        uint64_t got = gets(&w, deaf, 160 * MS);
        CHECK(got >= 10 && got <= 100);
        uint64_t moves = cores_of(&w, deaf).moves_in;
        act_for(&w, 80 * MS);
        CHECK(cores_of(&w, deaf).moves_in - moves <= 6); /* in turns */
        deny(&w, deaf, false);
        act_for(&w, 40 * MS);
        CHECK(gets(&w, deaf, 100 * MS) >= 300);
        CHECK(stats_of(&w).violations == 0);
        world_delete(&w);
    }
}

/* What nobody else wants it has, and gives up when somebody does, whatever it was guaranteed or promised. */
static void it_has_what_nobody_else_wants(void)
{
    for (unsigned i = 0; i < POLICIES; i++) {
        struct world w;
        world_new(&w, (struct setting){.policy = policies[i]});
        struct app *other = app_add(&w, (struct wish){.kind = BATCH});
        struct app *deaf = app_add(&w, (struct wish){.kind = BATCH, .guaranteed = 1});
        always_waits(deaf);
        deny(&w, deaf, true);
        act_for(&w, 20 * MS);
        CHECK(gets(&w, deaf, 200 * MS) >= 980);
        always_waits(other);
        act_for(&w, 20 * MS);
        CHECK(gets(&w, other, 19 * MS) >= 900);
        deny(&w, deaf, false);
        act_for(&w, 20 * MS);
        CHECK(gets(&w, deaf, 20 * MS) >= 980); /* its guarantee is what it was */
        CHECK(stats_of(&w).violations == 0);
        world_delete(&w);
    }
}

/* A share that was promised is not kept meanwhile, and is owed still. */
static void a_promise_is_put_off(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay"});
    struct app *kv = app_add(&w, (struct wish){.kind = LATENCY}), *job = app_add(&w, (struct wish){.kind = BATCH});
    always_waits(kv);
    always_waits(job);
    CHECK(cl_io_app_promise(w.io, job->id, 300000) == 0);
    deny(&w, job, true);
    act_for(&w, 10 * MS);
    CHECK(gets(&w, job, 20 * MS) == 0);
    deny(&w, job, false);
    act_for(&w, 20 * MS);
    CHECK(gets(&w, job, 60 * MS) >= 285);
    world_delete(&w);
}

static void what_cannot_be_is_refused(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay"});
    struct app *kv = app_add(&w, (struct wish){.kind = LATENCY}), *deaf = app_add(&w, (struct wish){.kind = BATCH});
    CHECK(cl_io_app_deny(w.io, 77, true) == -ENOENT);
    deny(&w, deaf, true);
    always_waits(deaf);
    act_for(&w, MS);
    app_remove(&w, deaf); /* while it is denied */
    always_waits(kv);
    act_for(&w, MS);
    CHECK(gets(&w, kv, MS) >= 980);
    world_delete(&w);
}

SCENARIOS_MAIN(SCENARIO(it_goes_last_with_a_turn_now_and_then), SCENARIO(it_has_what_nobody_else_wants),
               SCENARIO(a_promise_is_put_off), SCENARIO(what_cannot_be_is_refused))
