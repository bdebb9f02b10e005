/* Owners that say they run, and sleep in the kernel (blocked.c): pair.h. A kthread's thread sleeps, unless it is made
 * to spin or burn. Prints the names of those that passed.
 *
 *   cores_blocked [NAME] */
#ifdef ALLOCATE_C /* with a fault in it: tests/iokernel/cores/test_moves.py */
#include ALLOCATE_C
#else
#include "../../../../iokernel/state/internal.h"
#endif
#include "pair.h"

#define BLOCKED_US 1000
#define LOOK (BLOCKED_US * US)

/* The latency application has the core and says that it runs; the batch one waits. sure: it is guaranteed the core,
 * which under `static` nobody else is given. */
static void pair_beside(struct pair *p, bool sure)
{
    world_new(&p->w, (struct setting){.blocked_us = BLOCKED_US});
    p->lat = app_add(&p->w, (struct wish){.kind = LATENCY, .guaranteed = sure});
    p->bat = app_add(&p->w, (struct wish){.kind = BATCH});
    p->l = &p->lat->k[0];
    p->b = &p->bat->k[0];
    start(&p->w, p->b);
    ready(p->l, 1);
    run(&p->w, 6 * US);
    CHECK(!acts(&p->w, p->b) && acts(&p->w, p->l));
    drain(p->l);
    run(&p->w, 2 * US);
    CHECK(owns(&p->w, p->l));
}

static uint64_t blocked(const struct pair *p)
{
    CHECK(cores_of(&p->w, p->lat).blocked == stats_of(&p->w).blocked && cores_of(&p->w, p->bat).blocked == 0);
    return stats_of(&p->w).blocked;
}

/* Until the latency application has been found so and the batch one runs. Returns how long that took. */
static uint64_t lose(struct pair *p)
{
    uint64_t before = blocked(p), begin = p->w.now;
    while (blocked(p) == before) {
        run(&p->w, 1 * US);
        CHECK(p->w.now - begin < 20 * LOOK);
    }
    uint64_t took = p->w.now - begin;
    run(&p->w, 3 * US);
    CHECK(owns(&p->w, p->b) && acts(&p->w, p->b));
    run(&p->w, 2 * US);
    return took;
}

/* It goes on, looks, and gets its core again. */
static void regain(struct pair *p)
{
    CHECK(!acts(&p->w, p->l));
    run(&p->w, 8 * US);
    CHECK(owns(&p->w, p->l) && !acts(&p->w, p->b) && acts(&p->w, p->l));
    run(&p->w, 2 * US);
}

/* What the log says of the core: it was found so, and then its owner changed, by no step against it. */
static void check_log(struct pair *p)
{
    struct cl_io_move e[64];
    uint32_t n = cl_io_moves(p->w.io, 0, &p->w.log_next, e, 64, &p->w.log_lost), found = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        if (e[i].what == CL_IO_LOG_BLOCKED) {
            found++;
            CHECK(e[i].from == p->l->slot + 1 && e[i].to == p->l->slot + 1);
            CHECK(e[i + 1].what == CL_IO_LOG_WANTED && e[i + 1].step == CL_IO_STEP_PARKED);
            CHECK(e[i + 1].from == p->l->slot + 1 && e[i + 1].to == p->b->slot + 1);
        }
    CHECK(found == 1);
}

static void asleep_it_loses_its_core_and_gets_it_back(void)
{
    struct pair p;
    pair_beside(&p, false);
    uint64_t asked = stats_of(&p.w).asked;
    run(&p.w, LOOK / 2);
    CHECK(owns(&p.w, p.l) && blocked(&p) == 0);
    CHECK(lose(&p) < 4 * LOOK);
    check_log(&p);
    run(&p.w, 20 * LOOK);
    CHECK(owns(&p.w, p.b) && stats_of(&p.w).asked == asked && stats_of(&p.w).interrupted == 0);
    CHECK(seen_signals() == 0 && *p.lat->preempt == 1); /* it was not woken */
    regain(&p);
    run(&p.w, LOOK / 2);
    CHECK(*p.lat->preempt == 0 && blocked(&p) == 1 && stats_of(&p.w).violations == 0);
    world_delete(&p.w);
}

static void one_that_computes_keeps_its_core(void)
{
    struct pair p;
    pair_beside(&p, false);
    spin(p.l);
    run(&p.w, 50 * LOOK);
    CHECK(owns(&p.w, p.l) && blocked(&p) == 0);
    end_spin(p.l);
    world_delete(&p.w);
}

static void one_that_runs_uthreads_keeps_its_core(void)
{
    struct pair p;
    pair_beside(&p, false);
    for (unsigned i = 0; i < 20; i++) {
        ready(p.l, 1);
        drain(p.l);
        run(&p.w, LOOK / 2);
    }
    CHECK(owns(&p.w, p.l) && blocked(&p) == 0);
    world_delete(&p.w);
}

static void beside_nobody_it_keeps_its_core(void)
{
    struct pair p;
    pair_beside(&p, false);
    park(p.b);
    run(&p.w, 20 * LOOK);
    CHECK(owns(&p.w, p.l) && blocked(&p) == 0);
    world_delete(&p.w);
}

/* It has no probes: the signal makes it leave when it was seen to have had the CPU. */
static void one_that_goes_on_without_a_look_is_made_to_leave(void)
{
    struct pair p;
    pair_beside(&p, false);
    lose(&p);
    uint64_t asked = stats_of(&p.w).asked;
    burn(p.l, 1000);
    run(&p.w, 2 * LOOK);
    CHECK(stats_of(&p.w).asked == asked + 1 && stats_of(&p.w).interrupted == 1 &&
          cores_of(&p.w, p.lat).interrupted == 1);
    while (seen_signals() == 0)
        sched_yield();
    world_delete(&p.w);
}

static void made_to_leave_it_gets_its_core_back(void)
{
    struct pair p;
    pair_beside(&p, false);
    lose(&p);
    uint64_t asked = stats_of(&p.w).asked;
    burn(p.l, 1000);
    while (stats_of(&p.w).asked == asked)
        run(&p.w, 1 * US);
    regain(&p);
    CHECK(stats_of(&p.w).interrupted == 0 && stats_of(&p.w).evicted == 0 && blocked(&p) == 1);
    world_delete(&p.w);
}

/* One that is back soon is waited for twice as long each time, up to a bound, until it was away for long. */
static void one_that_is_back_soon_is_waited_for(void)
{
    struct pair p;
    uint64_t took, before = 0;
    pair_beside(&p, false);
    for (unsigned i = 0; i < 3; i++) {
        took = lose(&p);
        CHECK(took > before + LOOK / 2);
        before = took;
        regain(&p);
    }
    for (unsigned i = 0; i < 3; i++) {
        CHECK(lose(&p) < 12 * LOOK);
        regain(&p);
    }
    lose(&p);
    run(&p.w, 20 * LOOK);
    regain(&p);
    CHECK(lose(&p) < 4 * LOOK);
    world_delete(&p.w);
}

/* And so it is when it has not been found for long. */
static void a_while_without_it_is_forgiven(void)
{
    struct pair p;
    pair_beside(&p, false);
    for (unsigned i = 0; i < 4; i++) {
        lose(&p);
        regain(&p);
    }
    CHECK(lose(&p) > 8 * LOOK);
    regain(&p);
    p.w.now += 600 * LOOK;
    p.l->line->signals.switches++;
    CHECK(lose(&p) < 4 * LOOK);
    world_delete(&p.w);
}

/* On two cores, each is looked at as often as on one. */
static void owners_of_all_cores_are_found(void)
{
    struct world w;
    struct app *lat[2];
    world_new(&w, (struct setting){.blocked_us = BLOCKED_US, .cores = 2});
    for (unsigned i = 0; i < 2; i++) {
        lat[i] = app_add(&w, (struct wish){.kind = LATENCY});
        start(&w, &lat[i]->k[0]);
    }
    struct app *bat = app_add(&w, (struct wish){.kind = BATCH, .kthreads = 2});
    ready(&bat->k[0], 1);
    ready(&bat->k[1], 1);
    run(&w, 4 * LOOK);
    CHECK(stats_of(&w).blocked == 2);
    for (unsigned i = 0; i < 2; i++)
        CHECK(cores_of(&w, lat[i]).blocked == 1 && owns(&w, &bat->k[i]));
    world_delete(&w);
}

/* The state of one that was found on a CPU, or in line, takes long to read, and is not asked for again at once. */
static void one_that_computes_is_seldom_looked_at(void)
{
    struct pair p;
    pair_beside(&p, false);
    spin(p.l);
    const struct io_block *b = NULL;
    for (const struct io_app *a = p.w.io->apps; a; a = a->next)
        if (a->id == p.lat->id)
            b = &a->kthreads->member.block;
    CHECK(b);
    for (uint64_t begin = p.w.now; b->next < p.w.now + 4 * LOOK;) {
        run(&p.w, LOOK / 4);
        CHECK(p.w.now - begin < 2000 * LOOK);
    }
    uint64_t next = b->next;
    run(&p.w, next - p.w.now - LOOK / 4);
    CHECK(b->next == next && b->since == 0);
    end_spin(p.l);
    world_delete(&p.w);
}

/* Its application is removed while it sleeps, without its core: when it goes on it is in nobody's way. */
/* The loop that forgets it demotes it, as one that has not ceded; then it has back what it had. */
static void one_that_goes_is_an_ordinary_thread(void)
{
    struct pair p;
    pair_beside(&p, false);
    lose(&p);
    struct cl_io_app_final final;
    CHECK(sched_getscheduler(p.l->tid) == SCHED_OTHER);
    CHECK(cl_io_app_remove(p.w.io, p.lat->id, &final, err) == 0);
    CHECK(sched_getscheduler(p.l->tid) == SCHED_OTHER && owns(&p.w, p.b));
    end_thread(p.l);
    munmap(p.lat->base, p.lat->l.total_bytes);
    p.lat->id = 0;
    world_delete(&p.w);
}

/* Nobody is given the core: it is the owner's again when it goes on, and until then idle beside one that waits. */
static void a_core_that_nobody_is_given_is_counted(void)
{
    struct pair p;
    pair_beside(&p, true);
    set_policy(&p.w, "static", (uint64_t[8]){0});
    CHECK(stats_of(&p.w).violations == 0);
    run(&p.w, 4 * LOOK);
    CHECK(owns(&p.w, p.l) && blocked(&p) == 1 && stats_of(&p.w).violations > 0);
    burn(p.l, 1000);
    spin(p.l);
    run(&p.w, 2 * LOOK);
    uint64_t before = stats_of(&p.w).violations;
    run(&p.w, 10 * LOOK);
    CHECK(owns(&p.w, p.l) && blocked(&p) == 1 && stats_of(&p.w).violations == before);
    end_spin(p.l);
    world_delete(&p.w);
}

/* It went on after it was found, and nobody has looked since: it is asked for the core like anybody. */
static void one_that_went_on_is_not_passed_over(void)
{
    struct pair p;
    pair_beside(&p, true);
    set_policy(&p.w, "static", (uint64_t[8]){0});
    while (blocked(&p) == 0)
        run(&p.w, 1 * US);
    burn(p.l, 1000);
    spin(p.l);
    set_policy(&p.w, "shenango", (uint64_t[8]){0});
    run(&p.w, LOOK / 2);
    CHECK(owns(&p.w, p.l) && blocked(&p) == 1);
    end_spin(p.l);
    world_delete(&p.w);
}

static void a_sibling_goes_on_in_its_place(void)
{
    struct world w;
    world_new(&w, (struct setting){.blocked_us = BLOCKED_US});
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY, .kthreads = 2});
    start(&w, &a->k[0]);
    struct kthread *first = owns(&w, &a->k[0]) ? &a->k[0] : &a->k[1], *second = &a->k[first == a->k];
    ready(second, 1);
    run(&w, 4 * LOOK);
    CHECK(owns(&w, second) && acts(&w, second) && stats_of(&w).blocked == 1 && stats_of(&w).violations == 0);
    world_delete(&w);
}

static void it_goes_while_it_is_blocked(void)
{
    for (unsigned owner = 0; owner < 2; owner++) {
        struct pair p;
        pair_beside(&p, owner);
        const struct io_cores *c = &p.w.io->loops[0].cores;
        if (owner) {
            set_policy(&p.w, "static", (uint64_t[8]){0});
            run(&p.w, 4 * LOOK);
        } else {
            lose(&p);
        }
        CHECK(c->n_blocked == 1);
        app_remove(&p.w, p.lat);
        CHECK(c->n_blocked == 0);
        set_policy(&p.w, "shenango", (uint64_t[8]){0});
        run(&p.w, 10 * LOOK);
        CHECK(owns(&p.w, p.b));
        world_delete(&p.w);
    }
}

/* The loop sleeps while nobody waits, and wakes up for the looks at one that is blocked, which become rarer. */
static void the_loop_sleeps_no_longer_than_it_looks(void)
{
    struct pair p;
    pair_beside(&p, false);
    lose(&p);
    const struct io_cores *c = &p.w.io->loops[0].cores;
    run(&p.w, 100 * LOOK);
    CHECK(!c->awake && c->next_due - p.w.now <= 4 * LOOK);
    burn(p.l, 1000);
    p.w.now = c->next_due;
    run(&p.w, 8 * US);
    CHECK(cores_of(&p.w, p.lat).asked == 1);
    world_delete(&p.w);
}

/* In a call that no signal ends. */
static void one_in_a_call_that_nothing_ends_loses_its_core(void)
{
    static struct in_call call;
    struct world w;
    world_new(&w, (struct setting){.blocked_us = BLOCKED_US});
    struct app *l = app_add(&w, (struct wish){.kind = LATENCY, .mute = true});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH});
    int32_t own = l->k[0].tid;
    begin_call(&call, &l->k[0]);
    tell_threads(&w, l);
    start(&w, &l->k[0]);
    ready(&b->k[0], 1);
    run(&w, 4 * LOOK);
    CHECK(stats_of(&w).blocked == 1 && owns(&w, &b->k[0]));
    end_call(&call);
    l->k[0].tid = own;
    world_delete(&w);
}

/* It may be used to run when it has lost the core for sleeping, and nobody has looked since: from then on, and not for
 * longer. */
static void what_it_may_run_unseen_is_no_more_than_the_time_since_the_last_look(void)
{
    struct pair p;
    pair_beside(&p, false);
    struct io_core *core = &p.w.io->loops[0].cores.core[0];
    const struct io_member *m = &core->owner->member;
    spin(p.l);
    run(&p.w, 20 * LOOK);
    end_spin(p.l);
    await_sleep(p.l->tid);
    lose(&p);
    run(&p.w, LOOK / 2);
    uint64_t might = m->overrun.entitled + core->idle - m->overrun.idle_mark;
    burn(p.l, 1000);
    run(&p.w, 2 * LOOK); /* it is seen to run, and made to leave */
    uint64_t more = m->overrun.entitled + core->idle - m->overrun.idle_mark - might;
    CHECK(stats_of(&p.w).asked == 2);
    CHECK(more >= LOOK / 2 && more <= 3 * LOOK);
    while (seen_signals() == 0)
        sched_yield();
    world_delete(&p.w);
}

/* A core has the steps of one move at a time: one that woke up without its core is made to leave when they are over. */
static void one_that_goes_on_during_a_move_is_made_to_leave_after_it(void)
{
    struct pair p;
    world_new(&p.w, (struct setting){.blocked_us = BLOCKED_US, .cede_us = 10 * BLOCKED_US, .interrupt_us = 10});
    p.bat = app_add(&p.w, (struct wish){.kind = BATCH});
    p.lat = app_add(&p.w, (struct wish){.kind = LATENCY});
    struct app *other = app_add(&p.w, (struct wish){.kind = LATENCY});
    p.l = &p.lat->k[0];
    p.b = &p.bat->k[0];
    start(&p.w, p.l);
    ready(p.b, 1);
    lose(&p);
    struct io_core *core = &p.w.io->loops[0].cores.core[0];
    const struct io_kthread *b = core->owner;
    run(&p.w, 2 * MS);
    ready(&other->k[0], 1);
    while (!owns(&p.w, &other->k[0]))
        run(&p.w, 1 * US);
    CHECK(core->from == b);
    burn(p.l, 1000);
    run(&p.w, 5 * LOOK);
    CHECK(core->from == b && stats_of(&p.w).asked == 1);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, &other->k[0]));
    run(&p.w, 5 * LOOK);
    CHECK(stats_of(&p.w).asked == 2 && core->from && core->from->member.tid == p.l->tid);
    world_delete(&p.w);
}

/* A new owner that got up by itself, and has not seen its grant: the steps of its move go on, and it is no sleeper. */
static void who_is_to_begin_is_not_found(void)
{
    struct pair p;
    world_new(&p.w, (struct setting){.blocked_us = BLOCKED_US, .start_us = 50 * BLOCKED_US});
    p.bat = app_add(&p.w, (struct wish){.kind = BATCH});
    p.lat = app_add(&p.w, (struct wish){.kind = LATENCY});
    ready(&p.bat->k[0], 1);
    ready(&p.lat->k[0], 1);
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, &p.lat->k[0]));
    p.lat->k[0].line->park = CL_KTHREAD_RUNNING;
    run(&p.w, 10 * LOOK);
    CHECK(stats_of(&p.w).blocked == 0 && owns(&p.w, &p.lat->k[0]));
    world_delete(&p.w);
}

/* Neither schedstat nor status can be read: nobody is found, and that is counted. */
static void what_cannot_be_read_is_counted(void)
{
    for (unsigned status = 0; status < 2; status++) {
        struct pair p;
        pair_beside(&p, false);
        struct io_member *m = &p.w.io->loops[0].cores.core[0].owner->member;
        int *fd = status ? &m->status_fd : &m->account_fd, was = *fd;
        CHECK(stats_of(&p.w).blocked_unread == 0);
        *fd = -1;
        run(&p.w, 10 * LOOK);
        CHECK(owns(&p.w, p.l) && blocked(&p) == 0 && stats_of(&p.w).blocked_unread >= 5);
        *fd = was;
        lose(&p);
        world_delete(&p.w);
    }
}

/* Until b runs, the owner of a core having been found dead. */
static void inherit(struct pair *p, struct kthread *b)
{
    uint64_t begin = p->w.now;
    while (!owns(&p->w, b)) {
        run(&p->w, 1 * US);
        CHECK(p->w.now - begin < 4 * LOOK);
    }
    CHECK(acts(&p->w, b));
    run(&p->w, 2 * US);
    struct cl_io_move e[64], died = {0};
    uint32_t n = cl_io_moves(p->w.io, 0, &p->w.log_next, e, 64, &p->w.log_lost);
    for (uint32_t i = 0; i < n; i++)
        if (e[i].what == CL_IO_LOG_DIED)
            died = e[i];
    CHECK(died.what == CL_IO_LOG_DIED && died.from == p->l->slot + 1 && died.to == 0);
    CHECK(stats_of(&p->w).died == 1 && stats_of(&p->w).blocked_unread == 0 && blocked(p) == 0);
    drain(b);
    run(&p->w, 20 * LOOK);
    CHECK(owns(&p->w, b) && stats_of(&p->w).died == 1 && stats_of(&p->w).violations == 0);
}

/* Its process lives on, and its word says that it runs. */
static void one_whose_thread_has_ended_loses_its_core(void)
{
    struct pair p;
    pair_beside(&p, false);
    end_thread(p.l);
    inherit(&p, p.b);
    world_delete(&p.w);
}

static void its_sibling_gets_the_core(void)
{
    struct pair p = {0};
    world_new(&p.w, (struct setting){.blocked_us = BLOCKED_US});
    p.lat = app_add(&p.w, (struct wish){.kind = LATENCY, .kthreads = 2});
    p.bat = app_add(&p.w, (struct wish){.kind = BATCH});
    p.l = &p.lat->k[0];
    start(&p.w, p.l);
    end_thread(p.l);
    ready(&p.lat->k[1], 1);
    inherit(&p, &p.lat->k[1]);
    world_delete(&p.w);
}

/* Its number is another thread's by now, of the same process at that. */
static void whoever_has_its_number(void)
{
    struct pair p;
    pair_beside(&p, false);
    struct io_member *m = &p.w.io->loops[0].cores.core[0].owner->member;
    end_thread(p.l);
    m->tid = getpid();
    inherit(&p, p.b);
    world_delete(&p.w);
}

/* For a loop with a fault in it, too: what is counted where one waits beside one that sleeps. */
static void count(void)
{
    struct pair p;
    pair_beside(&p, false);
    run(&p.w, 20 * LOOK);
    printf("%llu blocked, %s has the core, %llu violations\n", (unsigned long long)blocked(&p),
           owns(&p.w, p.l) ? "it" : "the other", (unsigned long long)stats_of(&p.w).violations);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(asleep_it_loses_its_core_and_gets_it_back), SCENARIO(one_that_computes_keeps_its_core),
               SCENARIO(one_that_runs_uthreads_keeps_its_core), SCENARIO(beside_nobody_it_keeps_its_core),
               SCENARIO(one_that_goes_on_without_a_look_is_made_to_leave),
               SCENARIO(made_to_leave_it_gets_its_core_back), SCENARIO(one_that_is_back_soon_is_waited_for),
               SCENARIO(a_core_that_nobody_is_given_is_counted), SCENARIO(one_that_went_on_is_not_passed_over),
               SCENARIO(a_while_without_it_is_forgiven), SCENARIO(owners_of_all_cores_are_found),
               SCENARIO(one_that_computes_is_seldom_looked_at), SCENARIO(one_that_goes_is_an_ordinary_thread),
               SCENARIO(a_sibling_goes_on_in_its_place), SCENARIO(it_goes_while_it_is_blocked),
               SCENARIO(the_loop_sleeps_no_longer_than_it_looks),
               SCENARIO(one_in_a_call_that_nothing_ends_loses_its_core),
               SCENARIO(what_it_may_run_unseen_is_no_more_than_the_time_since_the_last_look),
               SCENARIO(one_that_goes_on_during_a_move_is_made_to_leave_after_it),
               SCENARIO(who_is_to_begin_is_not_found), SCENARIO(what_cannot_be_read_is_counted),
               SCENARIO(one_whose_thread_has_ended_loses_its_core), SCENARIO(its_sibling_gets_the_core),
               SCENARIO(whoever_has_its_number), SCENARIO(count))
