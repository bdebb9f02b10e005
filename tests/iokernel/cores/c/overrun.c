/* Kthreads that use a core which is not theirs (iokernel/cores/overrun.c), one scenario each: world.h, with threads
 * that do use CPU time. Prints the names of those that passed.
 *
 *   cores_overrun [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "world.h"

#define WINDOW (50 * MS)
#define BAN (100 * MS)

/* One core. A latency application runs on it; a batch one had it before, and says that it has ceded. */
struct pair {
    struct world w;
    struct app *lat, *bat;
    struct kthread *l, *b;
};

static void pair_new(struct pair *p, struct setting s)
{
    world_new(&p->w, s);
    p->lat = app_add(&p->w, (struct wish){.kind = CL_POLICY_LATENCY});
    p->bat = app_add(&p->w, (struct wish){.kind = CL_POLICY_BATCH});
    p->l = &p->lat->k[0];
    p->b = &p->bat->k[0];
    start(&p->w, p->b);
    ready(p->l, 1);
    run(&p->w, 10 * US);
    CHECK(!acts(&p->w, p->b) && acts(&p->w, p->l));
    drain(p->l);
    run(&p->w, 10 * US);
    CHECK(owns(&p->w, p->l) && stats_of(&p->w).evicted == 0);
}

/* Windows in which the thread of k uses so much of the CPU. */
static void windows(struct pair *p, struct kthread *k, unsigned n, uint64_t burn_ns)
{
    for (unsigned i = 0; i < n; i++) {
        if (burn_ns)
            burn(k, burn_ns);
        run(&p->w, WINDOW + 2 * MS);
    }
}

static bool is_idle(const struct kthread *k)
{
    return sched_getscheduler(k->tid) == SCHED_IDLE;
}

/* As often as it takes to be caught, and no more. */
static void lie(struct pair *p, struct kthread *k)
{
    uint64_t before = stats_of(&p->w).overruns;
    windows(p, k, 1, 0); /* which the loop begins with */
    for (unsigned i = 0; stats_of(&p->w).overruns == before; i++) {
        CHECK(i < 4 && !is_idle(k));
        windows(p, k, 1, 30 * MS);
    }
    CHECK(stats_of(&p->w).overruns == before + 1 && is_idle(k));
}

/* It says that it waits, or that it runs, or that it has nothing to do: it is the CPU time that counts. */
static void whatever_it_says_it_is_demoted(void)
{
    static const uint32_t words[] = {CL_KTHREAD_CEDED, CL_KTHREAD_CEDED_YIELDING, CL_KTHREAD_PARKED,
                                     CL_KTHREAD_RUNNING};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        struct pair p;
        pair_new(&p, (struct setting){0});
        p.b->line->park = words[i];
        lie(&p, p.b);
        CHECK(cores_of(&p.w, p.bat).overruns == 1 && cores_of(&p.w, p.lat).overruns == 0);
        CHECK(stats_of(&p.w).evicted == 0 && owns(&p.w, p.l));
        CHECK(p.b->state->yield_wait == 0 && p.l->state->yield_wait == 0); /* a yield would run it until the tick */
        uint64_t logged = 0;
        struct cl_io_move m[64];
        for (uint32_t n; (n = cl_io_moves(p.w.io, 0, &p.w.log_next, m, 64, &p.w.log_lost)) > 0;)
            for (uint32_t j = 0; j < n; j++)
                logged += m[j].what == CL_IO_LOG_OVERRUN && m[j].from == p.l->slot + 1 && m[j].to == m[j].from;
        CHECK(logged == 1);
        world_delete(&p.w);
    }
}

static void one_that_was_caught_gets_no_core_for_a_while(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0});
    lie(&p, p.b);
    park(p.l);
    run(&p.w, BAN - WINDOW - 10 * MS);
    CHECK(!owns(&p.w, p.b) && stats_of(&p.w).violations == 0);
    run(&p.w, WINDOW + 20 * MS);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b) && !is_idle(p.b));
    world_delete(&p.w);
}

/* The core's owner changes from l to b and back; b may run until it is asked. */
static void take_turns(struct pair *p)
{
    park(p->l);
    run(&p->w, 5 * US);
    CHECK(owns(&p->w, p->b) && acts(&p->w, p->b));
    run(&p->w, 5 * US);
    ready(p->l, 1);
    run(&p->w, 7 * US);
    CHECK(owns(&p->w, p->l));
    CHECK(!acts(&p->w, p->b) && acts(&p->w, p->l));
    drain(p->l);
    run(&p->w, 5 * US);
}

static void the_while_doubles_and_is_forgiven(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0});
    for (unsigned i = 0; i < 3; i++) {
        lie(&p, p.b);
        uint64_t caught = p.w.now;
        park(p.l);
        while (!owns(&p.w, p.b))
            run(&p.w, 1 * MS);
        CHECK(p.w.now - caught > (BAN << i) - WINDOW - 4 * MS && p.w.now - caught < (BAN << i) + 2 * MS);
        CHECK(acts(&p.w, p.b));
        ready(p.l, 1);
        run(&p.w, 7 * US);
        CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
        drain(p.l);
    }
    p.w.now += 17 * (BAN << 2); /* the loop slept, and b was good */
    run(&p.w, 10 * US);
    lie(&p, p.b);
    uint64_t caught = p.w.now;
    park(p.l);
    while (!owns(&p.w, p.b))
        run(&p.w, 1 * MS);
    CHECK(p.w.now - caught < BAN + 2 * MS);
    world_delete(&p.w);
}

/* What an honest kthread may use: a little while it is off its core, all of its own time, and a core that nobody
 * needs. */
static void honest_ones_are_left_alone(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0});
    windows(&p, p.b, 6, 6 * MS); /* switches, and yields on end */
    windows(&p, p.l, 4, 50 * MS);
    for (unsigned i = 0; i < 4; i++) { /* runs for half of the time: 50 ms, and then 50 of the other */
        park(p.l);
        run(&p.w, 5 * US);
        CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
        burn(p.b, 50 * MS);
        run(&p.w, 50 * MS);
        ready(p.l, 1);
        run(&p.w, 7 * US);
        CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
        drain(p.l);
        run(&p.w, 50 * MS);
    }
    for (unsigned i = 0; i < 4; i++) { /* loses its core a thousand times a window, and takes some time to see it */
        for (unsigned j = 0; j < 1000; j++) {
            take_turns(&p);
            run(&p.w, 50 * US);
        }
        burn(p.b, 20 * MS);
    }
    p.b->line->park = CL_KTHREAD_PARKED;
    park(p.l);
    windows(&p, p.b, 6, 40 * MS); /* the owner has nothing to do */
    CHECK(stats_of(&p.w).overruns == 0 && stats_of(&p.w).overrun_unread == 0 && !is_idle(p.b) && !is_idle(p.l));
    world_delete(&p.w);
}

/* The steps of a move see to one that does not answer: it may run until these are over. */
static void one_that_is_being_evicted_is_not_caught_as_well(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.cede_us = 400000, .interrupt_us = 400000});
    park(p.l);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    ready(p.l, 1);
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l));
    for (unsigned i = 0; i < 6; i++) {
        burn(p.b, 40 * MS);
        run(&p.w, WINDOW);
    }
    CHECK(stats_of(&p.w).overruns == 0 && stats_of(&p.w).evicted == 0);
    world_delete(&p.w);
}

/* The owner has parked by the time that a loop which was kept from running looks again: since when, nobody knows, and
 * others may have taken turns with it as long. */
static void while_the_loop_was_away_nobody_is_to_blame(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0});
    park(p.b);
    windows(&p, p.b, 1, 0);
    for (unsigned i = 0; i < 6; i++) {
        burn(p.b, 30 * MS);
        p.w.now += WINDOW;
        park(p.l);
        run(&p.w, 2 * MS);
        CHECK(owns(&p.w, p.l));
        p.l->line->park = CL_KTHREAD_RUNNING;
        run(&p.w, 1 * MS);
    }
    CHECK(stats_of(&p.w).overruns == 0);
    lie(&p, p.b); /* but for what it sees */
    world_delete(&p.w);
}

static struct io_member *member_of(const struct pair *p, const struct kthread *k)
{
    const struct io_cores *c = &p->w.io->loops[0].cores;
    for (uint32_t i = 0; i < c->n_apps; i++)
        for (uint32_t j = 0; j < c->apps[i]->n_kthreads; j++)
            if (c->apps[i]->kthreads[j].member.tid == k->tid)
                return &c->apps[i]->kthreads[j].member;
    CHECK(false);
    return NULL;
}

/* A thread that does not exist any more has no CPU time: it is done with. One of which the kernel does not say is
 * counted. */
static void one_whose_time_cannot_be_read(void)
{
    for (unsigned lives = 0; lives < 2; lives++) {
        struct pair p;
        pair_new(&p, (struct setting){0});
        struct io_member *m = member_of(&p, p.b);
        int fd = m->account_fd;
        m->next_affinity = p.w.now + 100 * WINDOW; /* which would find it, too */
        windows(&p, p.b, 1, 0);
        if (lives)
            m->account_fd = -1;
        else
            end_thread(p.b);
        windows(&p, p.b, 4, 0);
        CHECK(stats_of(&p.w).overruns == 0 && m->dead == !lives);
        CHECK(lives ? stats_of(&p.w).overrun_unread >= 3 : stats_of(&p.w).overrun_unread == 0);
        m->account_fd = fd;
        world_delete(&p.w);
    }
}

/* On two cores: it is the core that it had last which it must leave alone, and it may go to the other one. */
static void demoted_it_may_go_to_another_core(void)
{
    struct pair p;
    world_new(&p.w, (struct setting){.cores = 2});
    p.lat = app_add(&p.w, (struct wish){.kind = CL_POLICY_LATENCY, .kthreads = 2});
    p.bat = app_add(&p.w, (struct wish){.kind = CL_POLICY_BATCH});
    p.b = &p.bat->k[0];
    start(&p.w, &p.lat->k[0]);
    start(&p.w, p.b);
    int32_t cpu = p.b->state->cpu;
    ready(&p.lat->k[1], 1);
    run(&p.w, 12 * US);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, &p.lat->k[1]) && p.lat->k[1].state->cpu == cpu);
    drain(&p.lat->k[1]);
    run(&p.w, 10 * US);
    lie(&p, p.b);
    cpu_set_t set;
    CPU_ZERO(&set);
    CHECK(sched_getaffinity(p.b->tid, sizeof set, &set) == 0);
    CHECK(sysconf(_SC_NPROCESSORS_ONLN) < 2 || !CPU_ISSET(cpu, &set));
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(whatever_it_says_it_is_demoted), SCENARIO(one_that_was_caught_gets_no_core_for_a_while),
               SCENARIO(the_while_doubles_and_is_forgiven), SCENARIO(honest_ones_are_left_alone),
               SCENARIO(one_that_is_being_evicted_is_not_caught_as_well),
               SCENARIO(while_the_loop_was_away_nobody_is_to_blame), SCENARIO(one_whose_time_cannot_be_read),
               SCENARIO(demoted_it_may_go_to_another_core))
