/* Who goes first, from whom, and what is left behind: promises of docs/cores.md about moves that concern more than two
 * applications, or two cores. world.h; prints the names of those that passed.
 *
 *   cores_order [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "pair.h"

static struct io_cores *cores(struct world *w)
{
    return &w->io->loops[0].cores;
}

static struct io_kthread *inner(struct world *w, const struct app *a, unsigned k)
{
    const struct io_cores *c = cores(w);
    uint32_t i = 0;
    while (i < c->n_apps && c->apps[i]->id != a->id)
        i++;
    CHECK(i < c->n_apps);
    return &c->apps[i]->kthreads[k];
}

static void set_own(struct world *w, cl_policy_fn fn)
{
    CHECK(cl_io_policy_set(w->io, &(struct cl_policy_setting){.fn = fn}, err) > 0);
    run(w, 1 * US);
}

static void last_row_only(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < view->n_apps; i++)
        apps[i].grant = i + 1 == view->n_apps;
}

/* Both owners have more than they are granted: the batch one's core is taken, although the other one comes first. */
static void batch_loses_its_core_before_latency(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY}), *b = app_add(&w, (struct wish){.kind = BATCH});
    struct app *c = app_add(&w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    start(&w, &a->k[0]);
    start(&w, &b->k[0]);
    CHECK(a->k[0].state->cpu == 0 && b->k[0].state->cpu == 1);
    run(&w, 2 * MS); /* whatever time they are due is over */
    set_own(&w, last_row_only);
    ready(&c->k[0], 1);
    run(&w, 10 * US);
    CHECK(owns(&w, &a->k[0]) && !owns(&w, &b->k[0]) && owns(&w, &c->k[0]));
    world_delete(&w);
}

/* Both could have a core, and one of the two is better for both: who has the guarantee chooses first. */
static void a_guarantee_goes_before_latency(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *g = app_add(&w, (struct wish){.kind = BATCH, .guaranteed = 1});
    struct app *s = app_add(&w, (struct wish){.kind = BATCH}), *l = app_add(&w, (struct wish){.kind = LATENCY});
    start(&w, &g->k[0]);
    start(&w, &s->k[0]);
    park(&g->k[0]);
    run(&w, 10 * US);
    start(&w, &l->k[0]);
    CHECK(g->k[0].state->cpu == 0 && l->k[0].state->cpu == 0 && owns(&w, &l->k[0]));
    park(&l->k[0]);
    park(&s->k[0]);
    run(&w, 10 * US);
    ready(&g->k[0], 1);
    ready(&l->k[0], 1);
    run(&w, 10 * US);
    CHECK(owns(&w, &g->k[0]) && g->k[0].state->cpu == 0 && owns(&w, &l->k[0]) && l->k[0].state->cpu == 1);
    world_delete(&w);
}

/* Of two kthreads that wait for a core, the one that does so in the middle of a uthread, which no sibling can go on
 * with. */
static void who_waits_inside_a_uthread_goes_before_its_sibling(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2});
    struct app *l = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2, .guaranteed = 2});
    for (unsigned i = 2; i-- > 0;) {
        ready(&b->k[i], 1);
        run(&w, 10 * US);
        CHECK(acts(&w, &b->k[i]));
        drain(&b->k[i]);
        run(&w, 2 * US);
    }
    b->k[1].line->signals.in_uthread = 1;
    for (unsigned i = 0; i < 2; i++)
        ready(&l->k[i], 1);
    run(&w, 4 * US);
    for (unsigned i = 0; i < 2; i++)
        CHECK(!acts(&w, &b->k[i]) && b->k[i].line->signals.acted == b->k[i].state->grant);
    run(&w, 4 * US);
    unsigned other = l->k[0].state->cpu == b->k[0].state->cpu ? 0 : 1;
    for (unsigned i = 0; i < 2; i++) {
        CHECK(acts(&w, &l->k[i]));
        drain(&l->k[i]);
    }
    run(&w, 2 * US);
    park(&l->k[other]); /* its core is the other one's last */
    run(&w, 10 * US);
    CHECK(owns(&w, &b->k[1]) && !owns(&w, &b->k[0]));
    world_delete(&w);
}

/* What applications bring about costs the others a decision a microsecond on average, however often it comes. */
static void urgent_decisions_are_a_microsecond_apart_on_average(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    uint64_t before = stats_of(&p.w).decisions;
    for (unsigned i = 0; i < 1000; i++) {
        cores(&p.w)->urgent = true;
        p.w.now += US / 10;
        cl_io_step(p.w.io, 0, p.w.now);
    }
    uint64_t made = stats_of(&p.w).decisions - before;
    CHECK(made >= 90 && made <= 102);
    world_delete(&p.w);
}

/* Frames go to the kthread that still has a core. */
static void an_application_that_lost_a_core_gets_its_frames_at_the_other(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2});
    struct app *l = app_add(&w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    start(&w, &b->k[0]);
    start(&w, &b->k[1]);
    ready(&l->k[0], 1);
    run(&w, 4 * US);
    struct kthread *loser = owns(&w, &b->k[0]) ? &b->k[1] : &b->k[0];
    CHECK(!acts(&w, loser) && acts(&w, &l->k[0]));
    run(&w, 2 * US);
    for (uint16_t port = 0; port < 20; port++)
        send_frame(l, b, (uint16_t)(7 * port));
    run(&w, 2 * US);
    CHECK(receive(b, (uint32_t)(loser - b->k)) == 0);
    CHECK(receive(b, (uint32_t)(loser == b->k)) == 20);
    world_delete(&w);
}

/* Off the core, where there is another. */
static void who_is_evicted_leaves_the_core(void)
{
    struct world w;
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    if (!CPU_ISSET(0, &set) || !CPU_ISSET(1, &set))
        return;
    world_new(&w, (struct setting){.cores = 2});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH}), *s = app_add(&w, (struct wish){.kind = BATCH});
    struct app *l = app_add(&w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    start(&w, &b->k[0]);
    start(&w, &s->k[0]);
    run(&w, 2 * MS);
    ready(&l->k[0], 1);
    run(&w, 10 * MS); /* it may be spared up to then, if its thread has not had the time to take the signal */
    CHECK(stats_of(&w).evicted == 1);
    struct kthread *gone = owns(&w, &b->k[0]) ? &s->k[0] : &b->k[0];
    CHECK(sched_getaffinity(gone->tid, sizeof set, &set) == 0);
    CHECK(!CPU_ISSET(l->k[0].state->cpu, &set) && CPU_COUNT(&set) == 1);
    world_delete(&w);
}

/* Policy, nice value, priority and slice: struct sched_attr of sched_setattr(2), first version. */
struct sched {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static struct sched sched_of(const struct kthread *k)
{
    struct sched s = {0};
    CHECK(syscall(SYS_sched_getattr, k->tid, &s, sizeof s, 0) == 0);
    return s;
}

/* Slices as kthreads ask for them (older kernels have none), another policy of the user's, and one that takes a
 * right. */
static void who_was_evicted_gets_back_what_it_had(void)
{
    const struct sched wanted[] = {{.policy = SCHED_OTHER, .runtime = 100000},
                                   {.policy = SCHED_BATCH, .nice = 5, .runtime = 200000},
                                   {.policy = SCHED_RR, .priority = 1}};
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct pair p;
        struct sched s = wanted[i];
        s.size = sizeof s;
        pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
        bool allowed = syscall(SYS_sched_setattr, p.b->tid, &s, 0) == 0;
        CHECK(allowed || s.policy == SCHED_RR);
        s = sched_of(p.b);
        for (unsigned evictions = 1; allowed && evictions <= 2; evictions++) {
            ready(p.l, 1);
            run(&p.w, 10 * MS);
            CHECK(stats_of(&p.w).evicted == evictions && sched_getscheduler(p.b->tid) == SCHED_IDLE);
            CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
            drain(p.l);
            park(p.l);
            ready(p.b, 1);
            run(&p.w, 10 * US);
            CHECK(acts(&p.w, p.b));
            drain(p.b);
            struct sched now = sched_of(p.b);
            CHECK(memcmp(&now, &s, sizeof s) == 0);
            run(&p.w, 2 * US);
        }
        world_delete(&p.w);
    }
}

/* It ceded, the new owner has not begun, and it is given another core: it is not in that one's way any more. */
static void who_gets_another_core_meanwhile_is_not_evicted(void)
{
    struct world w;
    world_new(&w, (struct setting){.cores = 2});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH}), *s = app_add(&w, (struct wish){.kind = LATENCY});
    struct app *l = app_add(&w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    start(&w, &b->k[0]);
    start(&w, &s->k[0]);
    run(&w, 2 * MS);
    ready(&l->k[0], 1);
    run(&w, 4 * US);
    CHECK(owns(&w, &l->k[0]) && !acts(&w, &b->k[0]));
    park(&s->k[0]);
    run(&w, 4 * US);
    CHECK(acts(&w, &b->k[0]));
    run(&w, 1 * MS);
    CHECK(owns(&w, &b->k[0]) && stats_of(&w).evicted == 0 && stats_of(&w).interrupted == 0);
    CHECK(sched_getscheduler(b->k[0].tid) == SCHED_OTHER);
    world_delete(&w);
}

/* As long as the steps of its move go on its CPU time is nobody else's: overrun.c does not hold it against it. */
static void who_is_made_to_leave_may_run_meanwhile(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.cede_us = 5000}, (struct wish){0});
    const struct io_member *m = &inner(&p.w, p.bat, 0)->member;
    ready(p.l, 1);
    while (!owns(&p.w, p.l))
        run(&p.w, 1 * US);
    uint64_t before = m->overrun.entitled;
    run(&p.w, 4 * MS);
    uint64_t more = m->overrun.entitled - before;
    CHECK(m->leaving && more >= 4 * MS - 10 * US && more <= 4 * MS + 10 * US);
    world_delete(&p.w);
}

static void the_log_has_the_signal(void)
{
    struct pair p;
    struct cl_io_move e[64];
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 30 * US);
    CHECK(stats_of(&p.w).interrupted == 1);
    uint32_t n = cl_io_moves(p.w.io, 0, &p.w.log_next, e, 64, &p.w.log_lost), found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += e[i].what == CL_IO_LOG_INTERRUPTED && e[i].to == p.l->slot + 1;
    CHECK(found == 1);
    world_delete(&p.w);
}

/* A loop that sleeps gets up for a timer of an application at rest, at which no decision has looked for long. */
static void the_loop_sleeps_no_longer_than_until_a_timer_at_rest(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.yield_wait_us = 1}, (struct wish){0});
    park(p.b);
    uint64_t due = p.w.now + 100 * MS;
    p.l->line->signals.timer_tsc = due;
    run(&p.w, 1 * MS);
    CHECK(!cores(&p.w)->awake && cores(&p.w)->next_due <= due);
    p.w.now = due;
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l));
    world_delete(&p.w);
}

/* Nor than until one that did not begin is to be tried again. */
static void the_loop_sleeps_no_longer_than_until_one_is_considered_again(void)
{
    struct world w;
    world_new(&w, (struct setting){.yield_wait_us = 1});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY});
    ready(&a->k[0], 1);
    for (unsigned i = 0; stats_of(&w).not_started == 0; i++) {
        CHECK(i < 20000);
        run(&w, 10 * US);
    }
    CHECK(!owns(&w, &a->k[0]));
    for (unsigned i = 0; !owns(&w, &a->k[0]); i++) {
        CHECK(i < 10 && !cores(&w)->awake && cores(&w)->next_due - w.now <= 80 * MS);
        w.now = cores(&w)->next_due;
        run(&w, 10 * US);
    }
    world_delete(&w);
}

/* A ban ends by time: no word of the application changes then. */
static void who_waits_while_it_is_banned_gets_a_core_afterwards(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY});
    run(&w, 10 * US);
    struct io_member *m = &inner(&w, a, 0)->member;
    m->banned = true;
    m->overrun.banned_until = w.now + 20 * MS;
    ready(&a->k[0], 1);
    run(&w, 19 * MS);
    CHECK(!owns(&w, &a->k[0]));
    run(&w, 2 * MS);
    CHECK(owns(&w, &a->k[0]));
    world_delete(&w);
}

static struct cl_io_core_stats core_stats(const struct world *w)
{
    struct cl_io_core_stats s;
    CHECK(cl_io_core_stats(w->io, 0, &s) == 0);
    return s;
}

/* Its owner goes while it has work. */
static void a_core_that_nobody_owns_is_not_busy(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.kind = BATCH}), *b = app_add(&w, (struct wish){.kind = BATCH});
    start(&w, &a->k[0]);
    run(&w, 1 * MS);
    CHECK(core_stats(&w).busy == 1 && core_stats(&w).app == a->id);
    app_remove(&w, a);
    uint64_t busy_ns = core_stats(&w).busy_ns;
    CHECK(core_stats(&w).busy == 0 && core_stats(&w).owner == 0 && busy_ns >= 1 * MS);
    run(&w, 5 * MS);
    CHECK(core_stats(&w).busy == 0 && core_stats(&w).busy_ns == busy_ns);
    start(&w, &b->k[0]);
    CHECK(core_stats(&w).busy == 1 && core_stats(&w).busy_ns >= busy_ns);
    CHECK(core_stats(&w).busy_ns < busy_ns + 1 * MS);
    world_delete(&w);
}

SCENARIOS_MAIN(SCENARIO(batch_loses_its_core_before_latency), SCENARIO(a_guarantee_goes_before_latency),
               SCENARIO(who_waits_inside_a_uthread_goes_before_its_sibling),
               SCENARIO(urgent_decisions_are_a_microsecond_apart_on_average),
               SCENARIO(an_application_that_lost_a_core_gets_its_frames_at_the_other),
               SCENARIO(who_is_evicted_leaves_the_core), SCENARIO(who_was_evicted_gets_back_what_it_had),
               SCENARIO(who_gets_another_core_meanwhile_is_not_evicted),
               SCENARIO(who_is_made_to_leave_may_run_meanwhile), SCENARIO(the_log_has_the_signal),
               SCENARIO(the_loop_sleeps_no_longer_than_until_a_timer_at_rest),
               SCENARIO(the_loop_sleeps_no_longer_than_until_one_is_considered_again),
               SCENARIO(who_waits_while_it_is_banned_gets_a_core_afterwards),
               SCENARIO(a_core_that_nobody_owns_is_not_busy))
