/* Kthreads that somebody else binds (affinity.c): cores_pair.h. Prints the names of those that passed.
 *
 *   cores_affinity [NAME] */
#include "../../../iokernel/internal.h"
#include "cores_pair.h"

#define FOUND (60 * MS)

static bool bound_to(const struct kthread *k, int cpu)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(k->tid, sizeof set, &set) == 0);
    return CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set);
}

/* Wherever the machine lets it run. */
static void unbind(const struct kthread *k)
{
    cpu_set_t set;
    memset(&set, 0xff, sizeof set);
    CHECK(sched_setaffinity(k->tid, sizeof set, &set) == 0);
}

static void an_owner_is_bound_again(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    CHECK(bound_to(p.b, 0));
    run(&p.w, FOUND);
    uint64_t binds = stats_of(&p.w).affinities;
    CHECK(stats_of(&p.w).affinities_changed == 0);
    for (unsigned i = 1; i <= 3; i++) {
        unbind(p.b);
        CHECK(!bound_to(p.b, 0));
        run(&p.w, FOUND);
        CHECK(bound_to(p.b, 0));
        CHECK(stats_of(&p.w).affinities_changed == i && stats_of(&p.w).affinities == binds + i);
    }
    CHECK(stats_of(&p.w).affinities_failed == 0);
    world_delete(&p.w);
}

static void one_without_a_core_is_bound_when_it_gets_one(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    start(&p.w, p.l);
    park(p.l);
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 10 * US);
    CHECK(acts(&p.w, p.b) && bound_to(p.l, 0));
    unbind(p.l);
    run(&p.w, FOUND);
    CHECK(!bound_to(p.l, 0) && stats_of(&p.w).affinities_changed == 1);
    run(&p.w, FOUND);
    CHECK(stats_of(&p.w).affinities_changed == 1);
    ready(p.l, 1);
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l) && bound_to(p.l, 0));
    world_delete(&p.w);
}

/* The kernel refuses: there is no such CPU. It is tried again, and nobody is said to have changed anything. */
static void a_bind_that_failed_is_tried_again(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    w.io->loops[0].cores.core[0].cpu = CL_SHM_MAX_CORES - 1;
    struct app *a = app_add(&w, (struct wish){.kind = LATENCY});
    ready(&a->k[0], 1);
    run(&w, 10 * US);
    CHECK(stats_of(&w).affinities == 1 && stats_of(&w).affinities_failed == 1);
    a->k[0].line->signals.acted = a->k[0].state->grant;
    a->k[0].line->park = CL_KTHREAD_RUNNING;
    run(&w, 2 * FOUND);
    CHECK(stats_of(&w).affinities_failed >= 2 && stats_of(&w).affinities_changed == 0);
    w.io->loops[0].cores.core[0].cpu = 0;
    run(&w, FOUND);
    CHECK(bound_to(&a->k[0], 0) && stats_of(&w).affinities_changed == 0);
    world_delete(&w);
}

SCENARIOS_MAIN(SCENARIO(an_owner_is_bound_again), SCENARIO(one_without_a_core_is_bound_when_it_gets_one),
               SCENARIO(a_bind_that_failed_is_tried_again))
