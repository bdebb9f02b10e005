/* Which application gets a core, which of its kthreads, and which core, one scenario each: pair.h. Prints the names of
 * those that passed.
 *
 *   cores_choice [NAME] */
#include "pair.h"

/* The uthread that it waits in may hold a lock: whatever its siblings have ready, it comes first. */
static void kthread_inside_a_uthread_comes_first(void)
{
    for (unsigned stuck = 0; stuck < 2; stuck++) {
        struct pair p;
        pair_new(&p, (struct setting){0}, (struct wish){.kthreads = 2});
        ready(p.b, 1); /* another uthread, so that each kthread has one and the sibling ran last */
        ready(p.l, 1);
        run(&p.w, 5 * US);
        CHECK(owns(&p.w, p.l));
        CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
        p.b->line->signals.in_uthread = stuck;
        drain(p.b);
        struct kthread *sibling = &p.bat->k[1];
        ready(sibling, 5);
        drain(p.l);
        run(&p.w, 2 * US);
        sibling->line->park = CL_KTHREAD_CEDED; /* it has ceded, too, but its uthread can be taken */
        p.b->line->park = stuck ? CL_KTHREAD_CEDED : CL_KTHREAD_PARKED;
        run(&p.w, 10 * US);
        park(p.l);
        run(&p.w, 5 * US);
        CHECK(stuck ? owns(&p.w, p.b) : owns(&p.w, sibling));
        world_delete(&p.w);
    }
}

static void frame_for_an_application_without_core(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    run(&p.w, 2 * US); /* in the middle of an interval */
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).urgent > 0);
    world_delete(&p.w);
}

static void help_gets_a_core(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    p.l->line->help++;
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    park(p.l);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.b)); /* heeded: it does not get another for that */
    acts(&p.w, p.b);
    run(&p.w, 100 * US);
    CHECK(owns(&p.w, p.b));
    world_delete(&p.w);
}

/* What was asked for when the kthread that was meant for an earlier call was seen to run may be too late for that
 * one. */
static void help_that_comes_while_a_kthread_begins_is_not_lost(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    p.l->line->help++;
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b));
    uint32_t grant = p.l->state->grant;
    CHECK(acts(&p.w, p.l));
    park(p.l);
    p.l->line->help++;
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l) && p.l->state->grant != grant);
    CHECK(acts(&p.w, p.l));
    world_delete(&p.w);
}

/* The kthread that was to come did not begin: the work still waits. */
static void help_outlives_a_kthread_that_does_not_begin(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    p.l->line->help++;
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b));
    run(&p.w, 5100 * US);
    CHECK(cores_of(&p.w, p.lat).not_started == 1);
    run(&p.w, 500 * US);
    CHECK(owns(&p.w, p.l)); /* tried once more */
    CHECK(acts(&p.w, p.l));
    world_delete(&p.w);
}

/* Nor is the work still there for the loop when it is another one than had a core last, woken where it had parked. */
/* The old owner is still in the way of one that has its core already, and has parked: that one looks for nothing. */
static void help_is_not_left_to_one_that_has_parked(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && acts(&p.w, p.l));
    drain(p.l);
    park(p.l);
    run(&p.w, 1 * US);
    uint32_t grant = p.l->state->grant;
    p.l->line->help++;
    run(&p.w, 30 * US); /* p.b goes on as if it had its core */
    CHECK(owns(&p.w, p.l) && p.l->state->grant == grant);
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l) && p.l->state->grant != grant); /* woken */
    CHECK(acts(&p.w, p.l));
    world_delete(&p.w);
}

static void help_is_heeded_by_one_that_had_kept_its_core(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2});
    struct kthread *stopped = &a->k[0], *k = &a->k[1];
    start(&w, k);
    park(k);
    ready(stopped, 1);
    run(&w, 5200 * US);
    CHECK(cores_of(&w, a).not_started == 1 && !owns(&w, stopped) && owns(&w, k));
    drain(stopped);
    run(&w, 10 * US);
    uint64_t wakes = cores_of(&w, a).wakes;
    a->k[0].line->help++;
    for (unsigned i = 0; i < 20; i++) { /* each time it is woken it finds nothing */
        run(&w, 3 * US);
        if (k->state->grant != k->line->signals.acted)
            acts(&w, k);
        run(&w, 1 * US);
        park(k);
    }
    CHECK(cores_of(&w, a).wakes == wakes + 1);
    world_delete(&w);
}

/* An application at rest is looked at again as soon as any of its words changes. */
static void rest_ends_with_any_word(void)
{
    for (unsigned word = 0; word < 8; word++) {
        struct pair p;
        pair_new(&p, (struct setting){0}, (struct wish){0});
        p.l->line->signals.timer_tsc = p.w.now + 120 * US;
        run(&p.w, 100 * US);
        CHECK(!owns(&p.w, p.l) && cores_of(&p.w, p.lat).congested == 0 && cores_of(&p.w, p.lat).checks > 15);
        struct cl_signals *s = &p.l->line->signals;
        uint32_t *const words[] = {&s->runq_tail, &s->inbox_tail, &s->storage_done, &p.l->line->help};
        if (word < 4)
            ++*words[word];
        else if (word == 4)
            p.l->line->park = CL_KTHREAD_CEDED;
        else if (word == 5)
            send_frame(p.bat, p.lat, 1);
        else if (word == 6)
            s->timer_tsc = p.w.now; /* another one, which is due */
        /* else the one that it had becomes due */
        run(&p.w, word < 7 ? 12 * US : 30 * US);
        CHECK(owns(&p.w, p.l) && cores_of(&p.w, p.lat).congested > 0);
        world_delete(&p.w);
    }
}

/* What waits without a core is looked at once, and from then on it only grows older and is counted; until a word
 * changes. */
static void what_waits_stands_until_a_word_changes(void)
{
    for (unsigned word = 0; word < 6; word++) {
        struct pair p;
        pair_new(&p, (struct setting){0}, (struct wish){0});
        struct app *w = app_add(&p.w, (struct wish){.kind = BATCH}); /* its equal keeps the core for a millisecond */
        struct cl_signals *s = &w->k[0].line->signals;
        s->timer_tsc = p.w.now + 300 * US;
        ready(&w->k[0], 1);
        run(&p.w, 50 * US);
        struct cl_io_app_cores before = cores_of(&p.w, w), after;
        CHECK(before.waiting == 1 && before.thread_age_ns >= 45 * US && before.thread_age_ns <= 50 * US);
        run(&p.w, 100 * US);
        after = cores_of(&p.w, w);
        CHECK(after.waiting == 1 && after.thread_age_ns == before.thread_age_ns + 100 * US);
        CHECK(after.checks == before.checks + 20 && after.congested == before.congested + 20);
        uint32_t *const words[] = {&s->runq_tail, &s->inbox_tail, &s->storage_done, &w->k[0].line->help};
        if (word < 4)
            ++*words[word];
        else if (word == 4)
            send_frame(p.bat, w, 1);
        run(&p.w, word == 5 ? 160 * US : 10 * US); /* 5: its timer becomes due */
        CHECK(cores_of(&p.w, w).waiting == 2 && cores_of(&p.w, w).thread_age_ns > after.thread_age_ns);
        drain(&w->k[0]);
        receive(w, 0);
        s->timer_tsc = UINT64_MAX;
        before = cores_of(&p.w, w);
        run(&p.w, 50 * US);
        after = cores_of(&p.w, w);
        CHECK(!owns(&p.w, &w->k[0]) && after.checks >= before.checks + 10);
        if (word != 3) /* the word for help waits until it is heeded */
            CHECK(after.waiting == 0 && after.thread_age_ns == 0 && after.congested == before.congested);
        world_delete(&p.w);
    }
}

static void quantum(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2, .maximum = 1, .quantum_us = 20});
    struct kthread *k = &a->k[0];
    start(&w, k);
    run(&w, 100 * US);
    CHECK(*a->preempt == 0); /* nobody waits */
    ready(k, 1);
    run(&w, 6 * US);
    CHECK(*a->preempt == 1 && cores_of(&w, a).quantum == 1);
    k->line->signals.switches++;
    run(&w, 1 * US);
    CHECK(*a->preempt == 0);
    run(&w, 15 * US);
    CHECK(*a->preempt == 0);
    run(&w, 15 * US);
    CHECK(*a->preempt == 1);
    k->line->signals.in_uthread = 0;
    drain(k);
    run(&w, 10 * US);
    CHECK(*a->preempt == 0);
    k->line->signals.in_uthread = 1;
    ready(k, 1);
    run(&w, 40 * US);
    CHECK(*a->preempt == 1);
    app_remove(&w, a);
    world_delete(&w);
}

static uint64_t quantum_signals(const struct world *w, const struct app *a)
{
    CHECK((uint64_t)seen_signals() <= cores_of(w, a).quantum_signals);
    return cores_of(w, a).quantum_signals;
}

/* One signal a quantum, and none while one has not been seen by its handler: whatever waits, and for how long. */
static void quantum_by_signal(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a =
        app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2, .maximum = 1, .quantum_us = 20, .quantum_signal = 1});
    struct kthread *k = &a->k[0];
    start(&w, k);
    run(&w, 100 * US);
    CHECK(quantum_signals(&w, a) == 0); /* nobody waits */
    ready(k, 1);
    run(&w, 6 * US);
    CHECK(quantum_signals(&w, a) == 1 && k->state->quantum_signals == 1);
    CHECK(*a->preempt == 1 && k->state->quantum_over == k->line->signals.switches);
    run(&w, 500 * US);
    CHECK(quantum_signals(&w, a) == 1); /* its handler has not said that it ran */
    k->line->quantum_seen = 1;
    run(&w, 18 * US);
    CHECK(quantum_signals(&w, a) == 1); /* it is about to switch */
    run(&w, 12 * US);
    CHECK(quantum_signals(&w, a) == 2 && k->state->quantum_signals == 2); /* and the same still runs */
    k->line->quantum_seen = 2;
    run(&w, 10 * US);
    CHECK(quantum_signals(&w, a) == 2);
    run(&w, 20 * US);
    CHECK(quantum_signals(&w, a) == 3);
    k->line->quantum_seen = 3;
    k->line->signals.switches++; /* the next one has its own quantum */
    run(&w, 18 * US);
    CHECK(quantum_signals(&w, a) == 3 && *a->preempt == 0);
    run(&w, 12 * US);
    CHECK(quantum_signals(&w, a) == 4 && k->state->quantum_over == k->line->signals.switches);
    CHECK(cores_of(&w, a).quantum == 2);
    k->line->quantum_seen = 77; /* a lie costs who tells it */
    run(&w, 500 * US);
    CHECK(quantum_signals(&w, a) == 4);
    app_remove(&w, a);
    world_delete(&w);
}

/* One that has not asked for it gets none. */
static void quantum_without_signal(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .quantum_us = 20});
    start(&w, &a->k[0]);
    ready(&a->k[0], 1);
    run(&w, 200 * US);
    CHECK(*a->preempt == 1 && quantum_signals(&w, a) == 0);
    app_remove(&w, a);
    world_delete(&w);
}

static void classes(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *best = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2});
    struct app *burst = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2, .guaranteed = 1});
    struct app *lat = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2, .maximum = 1, .guaranteed = 1});
    start(&w, &best->k[0]);
    start(&w, &best->k[1]);
    CHECK(cores_of(&w, best).cores == 2);
    ready(&burst->k[0], 1);
    ready(&burst->k[1], 1);
    run(&w, 10 * US); /* one of them at once, since it is guaranteed */
    CHECK(owns(&w, &burst->k[0]) + owns(&w, &burst->k[1]) == 1);
    for (unsigned i = 0; i < 2; i++)
        acts(&w, &best->k[i]), acts(&w, &burst->k[i]);
    run(&w, 10 * US);
    ready(&lat->k[0], 3);
    run(&w, 10 * US); /* from the one that is over its guarantee, and one only, which is its maximum */
    CHECK(owns(&w, &lat->k[0]) && owns(&w, &burst->k[0]) + owns(&w, &burst->k[1]) == 1);
    for (unsigned i = 0; i < 2; i++)
        acts(&w, &best->k[i]), acts(&w, &burst->k[i]), acts(&w, &lat->k[i]);
    run(&w, 200 * US);
    CHECK(cores_of(&w, lat).cores == 1 && cores_of(&w, burst).cores == 1 && cores_of(&w, best).cores == 0);
    CHECK(stats_of(&w).violations == 0);
    world_delete(&w);
}

static void batch_takes_turns(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "fair"});
    struct app *a = app_add(&w, (struct wish){.kind = BATCH, .weight = 3});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH});
    for (unsigned i = 0; i < 2; i++)
        ready(&w.apps[i].k[0], 1000);
    for (unsigned i = 0; i < 40000; i++) {
        run(&w, 5 * US);
        acts(&w, &a->k[0]);
        acts(&w, &b->k[0]);
    }
    struct cl_io_app_cores ca = cores_of(&w, a), cb = cores_of(&w, b);
    CHECK(ca.core_ns > 140 * MS && cb.core_ns > 45 * MS && ca.core_ns < 155 * MS); /* three to one */
    CHECK(ca.moves_in > 20 && ca.moves_in < 210);                                  /* not every interval */
    CHECK(stats_of(&w).violations == 0);
    world_delete(&w);
}

static void last_core(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 4});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 4});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 4});
    int32_t cpu[4];
    for (unsigned i = 0; i < 4; i++) {
        start(&w, &a->k[i]);
        cpu[i] = a->k[i].state->cpu;
    }
    for (unsigned i = 0; i < 4; i++) {
        drain(&a->k[i]);
        park(&a->k[i]);
        start(&w, &b->k[i]);
    }
    uint64_t affinities = stats_of(&w).affinities;
    CHECK(affinities == 8 && cores_of(&w, b).cores == 4); /* each kthread once */
    CHECK(stats_of(&w).affinities_failed == 8 - 2 * (uint64_t)cl_min(sysconf(_SC_NPROCESSORS_ONLN), 4));
    for (int i = 3; i >= 0; i--) {
        ready(&a->k[i], 1);
        run(&w, 12 * US); /* with a core already, only what waits for an interval counts */
        CHECK(owns(&w, &a->k[i]) && a->k[i].state->cpu == cpu[i]);
        for (unsigned j = 0; j < 4; j++)
            acts(&w, &b->k[j]);
        CHECK(acts(&w, &a->k[i]));
        drain(&a->k[i]);
        run(&w, 2 * US);
    }
    CHECK(stats_of(&w).affinities == affinities);
    world_delete(&w);
}

/* Two loops with two cores each: an application gets cores of its home loop, and of no other, whatever waits in it. */
static void loops_keep_to_their_own_cores(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 4, .loops = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 4, .loop = 0});
    struct app *b = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 4, .loop = 1});
    for (unsigned i = 0; i < 4; i++)
        ready(&a->k[i], 3);
    run(&w, 50 * US);
    CHECK(cores_of(&w, a).cores == 2 && w.cores[0].owner && w.cores[2].owner && !w.cores[1].owner && !w.cores[3].owner);
    send_frame(a, b, 1); /* from a running kthread of one loop to an application of the other that has no core */
    run(&w, 10 * US);
    CHECK(cores_of(&w, b).cores == 1 && (w.cores[1].owner || w.cores[3].owner));
    for (unsigned i = 0; i < 4; i++)
        acts(&w, &a->k[i]), acts(&w, &b->k[i]);
    run(&w, 10 * US);
    CHECK(cores_of(&w, a).cores == 2 && cores_of(&w, a).asked == 0 && cores_of(&w, b).asked == 0);
    struct app *c = app_add(&w, (struct wish){.kind = LATENCY, .guaranteed = 1, .loop = 0});
    set_policy(&w, "fair", (uint64_t[8]){0}); /* of both */
    ready(&c->k[0], 1);
    run(&w, 10 * US);
    CHECK(owns(&w, &c->k[0]) && c->k[0].state->cpu % 2 == 0 && cores_of(&w, a).asked == 1);
    app_remove(&w, a);
    run(&w, 10 * US);
    CHECK(cores_of(&w, b).cores && acts(&w, &c->k[0]));
    for (uint32_t l = 0; l < 2; l++) {
        uint64_t next = 0, lost = 0;
        struct cl_io_move moves[64];
        uint32_t n = cl_io_moves(w.io, l, &next, moves, 64, &lost);
        CHECK(n > 0 && lost == 0);
        for (uint32_t i = 0; i < n; i++)
            CHECK(moves[i].core % 2 == l);
    }
    world_delete(&w);
}

static void static_lets_cores_idle(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "static"});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY});
    ready(&a->k[0], 1);
    run(&w, 1000 * US);
    CHECK(w.cores[0].owner == 0 && stats_of(&w).violations > 50); /* one in two intervals */
    uint64_t before = stats_of(&w).violations;
    set_policy(&w, "delay", (uint64_t[8]){0});
    run(&w, 10 * US);
    CHECK(owns(&w, &a->k[0]) && acts(&w, &a->k[0])); /* though it has not waited for as long as the target */
    drain(&a->k[0]);
    run(&w, 1000 * US);
    CHECK(stats_of(&w).violations == before);
    world_delete(&w);
}

/* Nobody looked while the core idled: that is not the policy's doing, and is counted apart. */
static void looks_that_come_late_are_told_apart(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY});
    struct kthread *k = &a->k[0];
    start(&w, k);
    park(k);
    run(&w, 100 * US);
    CHECK(stats_of(&w).late_decisions == 0);
    ready(k, 1);
    w.now += 300 * US;
    run(&w, 2 * US);
    CHECK(stats_of(&w).late_decisions == 1 && stats_of(&w).violations_late == 1 && stats_of(&w).violations == 0);
    CHECK(owns(&w, k) && acts(&w, k)); /* at that look */
    run(&w, 100 * US);
    w.now += 300 * US;
    run(&w, 100 * US);
    CHECK(stats_of(&w).late_decisions == 2 && stats_of(&w).violations_late == 1); /* the core was not idle */
    CHECK(stats_of(&w).violations == 0);
    const struct cl_hist *gaps = cl_io_late_decision(w.io, 0); /* how long nobody looked */
    CHECK(cl_hist_count(gaps) == 2 && gaps->min >= 300 * US && gaps->max < 310 * US);
    world_delete(&w);
}

/* Help is as old as it says, as long as it was said since the last look. */
static void help_is_as_old_as_its_stamp(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY});
    struct kthread *k = &a->k[0];
    start(&w, k);
    park(k);
    run(&w, 100 * US);
    uint64_t said[] = {w.now + 100 * US, w.now, w.now + 10 * MS};
    for (unsigned i = 0; i < 3; i++) {
        k->line->help_tsc = said[i];
        k->line->help++;
        w.now += 300 * US;
        run(&w, 1 * US);
        CHECK(cores_of(&w, a).thread_age_ns == (i == 0 ? 201 * US : 1)); /* else it was seen just now */
        CHECK(owns(&w, k) && acts(&w, k));
        run(&w, 20 * US);
        park(k);
        run(&w, 20 * US);
    }
    CHECK(cl_hist_percentile(cl_io_detection(w.io, a->id), 100) >= 201 * US);
    world_delete(&w);
}

/* A policy that leaves it so has it counted, however many looks come late; but not the time in which nobody looked. */
static void late_decisions_hide_no_policy(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "static"});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY});
    ready(&a->k[0], 1);
    for (unsigned i = 0; i < 20; i++) {
        w.now += 300 * US;
        run(&w, 20 * US);
    }
    CHECK(stats_of(&w).late_decisions >= 19 && stats_of(&w).violations_late == stats_of(&w).late_decisions);
    CHECK(stats_of(&w).violations >= 20 && stats_of(&w).violations <= 2 * 20);
    world_delete(&w);
}

/* The core is the latency application's, whether it has work or not; under another policy the batch job borrows it. */
static void static_keeps_a_guaranteed_core(void)
{
    struct world w;
    world_new(&w, (struct setting){.policy = "static"});
    struct app *lat = app_add(&w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    struct app *bat = app_add(&w, (struct wish){.kind = BATCH});
    struct kthread *l = &lat->k[0], *b = &bat->k[0];
    ready(b, 1);
    run(&w, 1000 * US);
    CHECK(!owns(&w, b) && cores_of(&w, bat).core_ns == 0);
    set_policy(&w, "delay", (uint64_t[8]){0});
    run(&w, 10 * US);
    CHECK(owns(&w, b) && acts(&w, b));
    set_policy(&w, "static", (uint64_t[8]){0});
    run(&w, 100 * US);
    CHECK(owns(&w, b)); /* which nobody would use */
    for (unsigned i = 0; i < 3; i++) {
        ready(l, 1);
        run(&w, 10 * US);
        CHECK(owns(&w, l) && !acts(&w, b) && acts(&w, l));
        drain(l);
        run(&w, 10 * US);
        park(l);
        run(&w, 1000 * US);
        CHECK(owns(&w, l) && cores_of(&w, lat).cores == 0 && cores_of(&w, bat).cores == 0);
    }
    world_delete(&w);
}

static void flows_go_to_those_that_run(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *from = app_add(&w, (struct wish){.kind = LATENCY});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 3});
    start(&w, &a->k[1]);
    for (uint16_t port = 0; port < 40; port++) {
        send_frame(from, a, port);
        run(&w, 1 * US);
        CHECK(receive(a, 0) == 0 && receive(a, 1) == 1 && receive(a, 2) == 0);
    }
    start(&w, &a->k[2]);
    for (uint16_t port = 0; port < 20; port++)
        send_frame(from, a, port);
    run(&w, 8 * US);
    unsigned one = receive(a, 1), two = receive(a, 2);
    CHECK(receive(a, 0) == 0 && one > 0 && two > 0 && one + two == 20);
    world_delete(&w);
}

/* A frame's age counts from its push; a queue's from the look that saw it. */
static void ages_are_from_below(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.policy = "delay", .params = {30 * US}}, (struct wish){0});
    for (unsigned i = 0; i < 8; i++) { /* one comes each 10 us, one goes each 10 us: none is older than 20 */
        ready(p.l, 1);
        run(&p.w, 10 * US);
        if (i)
            p.l->line->signals.runq_head++;
    }
    CHECK(owns(&p.w, p.b));
    uint64_t began = p.w.now;
    while (!owns(&p.w, p.l))
        run(&p.w, 1 * US);
    CHECK(p.w.now - began >= 20 * US - 5 * US && p.w.now - began <= 35 * US);
    const struct cl_hist *h = cl_io_detection(p.w.io, p.lat->id);
    /* The last check before the target: without a core it would only grow older (policies/delay.c). */
    CHECK(h->max > 20 * US && h->max <= 31 * US);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(kthread_inside_a_uthread_comes_first), SCENARIO(frame_for_an_application_without_core),
               SCENARIO(help_gets_a_core), SCENARIO(help_that_comes_while_a_kthread_begins_is_not_lost),
               SCENARIO(help_outlives_a_kthread_that_does_not_begin), SCENARIO(help_is_not_left_to_one_that_has_parked),
               SCENARIO(help_is_heeded_by_one_that_had_kept_its_core), SCENARIO(rest_ends_with_any_word),
               SCENARIO(what_waits_stands_until_a_word_changes), SCENARIO(quantum), SCENARIO(quantum_by_signal),
               SCENARIO(quantum_without_signal), SCENARIO(classes), SCENARIO(batch_takes_turns), SCENARIO(last_core),
               SCENARIO(loops_keep_to_their_own_cores), SCENARIO(static_lets_cores_idle),
               SCENARIO(looks_that_come_late_are_told_apart), SCENARIO(late_decisions_hide_no_policy),
               SCENARIO(help_is_as_old_as_its_stamp), SCENARIO(static_keeps_a_guaranteed_core),
               SCENARIO(flows_go_to_those_that_run), SCENARIO(ages_are_from_below))
