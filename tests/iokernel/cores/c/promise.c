/* Shares that are promised to batch work (iokernel/cores/promise.c), under each built-in policy: world.h. Prints the
 * names of those that passed.
 *
 *   cores_promise [NAME] */
#include "world.h"

#define LATENCY CL_POLICY_LATENCY
#define BATCH CL_POLICY_BATCH
#define TURN (200 * US)

static const char *const policies[] = {"delay", "shenango", "fair"};
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

static void promise(struct world *w, const struct app *a, uint32_t ppm)
{
    CHECK(cl_io_app_promise(w->io, a->id, ppm) == 0);
}

/* Core time that an application gets in the next while, in thousandths of a core. */
static uint64_t gets(struct world *w, const struct app *a, uint64_t ns)
{
    uint64_t before = cores_of(w, a).core_ns;
    act_for(w, ns);
    return (cores_of(w, a).core_ns - before) * 1000 / ns;
}

/* A latency application that wants the core for ever, and batch work that is promised 30 % of it, then nothing
 * again. */
static void it_is_kept_beside_one_that_wants_everything(void)
{
    for (unsigned i = 0; i < POLICIES; i++) {
        struct world w;
        world_new(&w, (struct setting){.policy = policies[i]});
        struct app *kv = app_add(&w, (struct wish){.kind = LATENCY});
        struct app *job = app_add(&w, (struct wish){.kind = BATCH});
        always_waits(kv);
        always_waits(job);
        act_for(&w, 10 * MS);
        CHECK(gets(&w, job, 20 * MS) == 0);
        promise(&w, job, 300000);
        act_for(&w, 10 * MS);
        uint64_t moves = cores_of(&w, job).moves_in, got = gets(&w, job, 60 * MS);
        CHECK(got >= 285 && got <= 315);
        CHECK(cores_of(&w, job).moves_in - moves <= 60 * MS * 3 / 10 / TURN + 2); /* in turns */
        uint64_t promised = cores_of(&w, job).promised_ns, had = cores_of(&w, job).core_ns;
        CHECK(promised > 0 && promised + 2 * TURN > had && had + 2 * TURN > promised);
        promise(&w, job, 0);
        act_for(&w, 10 * MS);
        CHECK(gets(&w, job, 20 * MS) == 0);
        CHECK(stats_of(&w).violations == 0);
        world_delete(&w);
    }
}

/* Where the latency class leaves more than was promised, nothing is taken from it. */
static void nothing_is_taken_while_enough_is_left(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay"});
    struct app *kv = app_add(&w, (struct wish){.kind = LATENCY});
    struct app *job = app_add(&w, (struct wish){.kind = BATCH});
    always_waits(job);
    promise(&w, job, 500000);
    act_for(&w, 30 * MS);
    for (unsigned n = 0; n < 100; n++) {
        ready(&kv->k[0], 1);
        uint64_t since = w.now;
        while (!owns(&w, &kv->k[0]))
            act_for(&w, US);
        CHECK(w.now - since <= 30 * US); /* the policy's own target */
        act_for(&w, 300 * US);
        drain(&kv->k[0]);
        park(&kv->k[0]);
        act_for(&w, 700 * US);
    }
    world_delete(&w);
}

/* What it had beyond its promise counts for 20 ms, no more: then it is kept again. */
static void a_gift_counts_for_a_while(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay"});
    struct app *kv = app_add(&w, (struct wish){.kind = LATENCY});
    struct app *job = app_add(&w, (struct wish){.kind = BATCH});
    always_waits(job);
    promise(&w, job, 500000);
    CHECK(gets(&w, job, 200 * MS) >= 990);
    always_waits(kv);
    CHECK(gets(&w, job, 30 * MS) <= 20);
    act_for(&w, 20 * MS);
    uint64_t got = gets(&w, job, 50 * MS);
    CHECK(got >= 480 && got <= 520);
    world_delete(&w);
}

/* Who has no work is owed nothing for that time. */
static void who_rests_is_owed_nothing(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay"});
    struct app *kv = app_add(&w, (struct wish){.kind = LATENCY});
    struct app *job = app_add(&w, (struct wish){.kind = BATCH});
    always_waits(kv);
    promise(&w, job, 200000);
    act_for(&w, 100 * MS);
    CHECK(cores_of(&w, job).promised_ns == 0);
    always_waits(job);
    uint64_t got = gets(&w, job, 20 * MS);
    CHECK(got >= 150 && got <= 220);
    world_delete(&w);
}

/* Two promises of one core, and one of a core and a half of two, of which the second application has the rest. */
static void several_share_what_is_guaranteed_to_nobody(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay"});
    struct app *kv = app_add(&w, (struct wish){.kind = LATENCY});
    struct app *a = app_add(&w, (struct wish){.kind = BATCH}), *b = app_add(&w, (struct wish){.kind = BATCH});
    always_waits(kv);
    always_waits(a);
    always_waits(b);
    promise(&w, a, 300000);
    promise(&w, b, 200000);
    act_for(&w, 20 * MS);
    uint64_t before = cores_of(&w, b).core_ns, got = gets(&w, a, 100 * MS);
    uint64_t other = (cores_of(&w, b).core_ns - before) * 1000 / (100 * MS);
    CHECK(got >= 285 && got <= 315 && other >= 185 && other <= 215);
    world_delete(&w);
    world_new(&w, (struct setting){.policy = "delay", .cores = 2});
    kv = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2});
    a = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2});
    always_waits(kv);
    always_waits(a);
    promise(&w, a, 1500000);
    act_for(&w, 20 * MS);
    got = gets(&w, a, 100 * MS);
    CHECK(got >= 1470 && got <= 1530);
    world_delete(&w);
}

/* A guarantee of another's is not for promises. */
static void a_guarantee_comes_first(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "delay"});
    struct app *kv = app_add(&w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    struct app *job = app_add(&w, (struct wish){.kind = BATCH});
    always_waits(kv);
    always_waits(job);
    promise(&w, job, 500000);
    act_for(&w, 10 * MS);
    CHECK(gets(&w, job, 50 * MS) == 0);
    CHECK(cores_of(&w, job).promised_ns > 20 * MS);              /* that it was not kept can be seen */
    CHECK(cl_io_app_promise(w.io, job->id, 1000001) == -EINVAL); /* more than it may have */
    CHECK(cl_io_app_promise(w.io, 77, 1) == -ENOENT);
    app_remove(&w, job); /* with its promise */
    act_for(&w, MS);
    world_delete(&w);
}

SCENARIOS_MAIN(SCENARIO(it_is_kept_beside_one_that_wants_everything), SCENARIO(nothing_is_taken_while_enough_is_left),
               SCENARIO(a_gift_counts_for_a_while), SCENARIO(who_rests_is_owed_nothing),
               SCENARIO(several_share_what_is_guaranteed_to_nobody), SCENARIO(a_guarantee_comes_first))
