/* Kthreads that somebody else binds (affinity.c): pair.h. Prints the names of those that passed.
 *
 *   cores_affinity [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "pair.h"

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

/* Nobody waits beside it. */
static void an_owner_whose_thread_has_ended_loses_its_core(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    end_thread(p.b);
    run(&p.w, FOUND);
    CHECK(p.w.cores[0].owner == 0 && stats_of(&p.w).died == 1 && stats_of(&p.w).affinities_changed == 0);
    world_delete(&p.w);
}

/* Another process's thread has its number by now: that one is nobody whom the loop may bind. */
static void a_stranger_with_its_number_is_left_alone(void)
{
    for (unsigned owner = 0; owner < 2; owner++) {
        struct pair p;
        cpu_set_t before, after;
        int end[2];
        char byte;
        pair_new(&p, (struct setting){0}, (struct wish){0});
        if (!owner)
            park(p.b);
        struct io_kthread *k = p.w.io->loops[0].cores.core[0].owner;
        CHECK(pipe(end) == 0);
        int32_t own = k->member.tid, stranger = fork();
        if (stranger == 0) {
            close(end[1]);
            _exit(read(end[0], &byte, 1) != 0);
        }
        CHECK(stranger > 0 && sched_getaffinity(stranger, sizeof before, &before) == 0);
        uint64_t binds = stats_of(&p.w).affinities;
        k->member.tid = stranger;
        run(&p.w, 3 * FOUND);
        CHECK(sched_getaffinity(stranger, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
        CHECK(sched_getscheduler(stranger) == sched_getscheduler(0));
        CHECK(stats_of(&p.w).affinities == binds && stats_of(&p.w).affinities_changed == 0);
        CHECK(p.w.cores[0].owner == 0 && stats_of(&p.w).died == 1);
        k->member.tid = own;
        close(end[1]);
        CHECK(waitpid(stranger, NULL, 0) == stranger);
        close(end[0]);
        world_delete(&p.w);
    }
}

SCENARIOS_MAIN(SCENARIO(an_owner_is_bound_again), SCENARIO(one_without_a_core_is_bound_when_it_gets_one),
               SCENARIO(a_bind_that_failed_is_tried_again), SCENARIO(an_owner_whose_thread_has_ended_loses_its_core),
               SCENARIO(a_stranger_with_its_number_is_left_alone))
