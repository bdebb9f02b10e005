/* What kthreads had before the iokernel managed them (iokernel/cores/before.c): pair.h. Prints the names of those that
 * passed.
 *
 *   cores_before [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "../../../../runtime/scheduling.h"
#include "pair.h"

#include <sys/resource.h>

static bool same_cpus(const struct kthread *k, const cpu_set_t *set)
{
    cpu_set_t now;
    CHECK(sched_getaffinity(k->tid, sizeof now, &now) == 0);
    return CPU_EQUAL(&now, set);
}

static struct io_kthread *managed(const struct pair *p, const struct app *a)
{
    for (struct io_app *app = p->w.io->apps; app; app = app->next)
        if (app->id == a->id)
            return app->kthreads;
    CHECK(false);
    return NULL;
}

/* The old owner blocks the signal, and is evicted. */
static void evict(struct pair *p)
{
    ready(p->l, 1);
    run(&p->w, 70 * US);
    CHECK(owns(&p->w, p->l) && cores_of(&p->w, p->bat).evicted == 1);
}

static void demoted_and_bound_they_get_back_what_they_had(void)
{
    struct pair p;
    cpu_set_t all;
    int nice = getpriority(PRIO_PROCESS, 0);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    evict(&p);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_IDLE && !same_cpus(p.l, &all));
    cl_io_give_back(p.w.io);
    cl_io_give_back(p.w.io);
    for (struct kthread *k = p.b; k; k = k == p.b ? p.l : NULL)
        CHECK(sched_getscheduler(k->tid) == SCHED_OTHER && same_cpus(k, &all) &&
              getpriority(PRIO_PROCESS, (id_t)k->tid) == nice);
    CHECK(cl_io_app_remove(p.w.io, p.bat->id, NULL, err) ==
          0); /* it says that it runs: nothing is done to it for that */
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER && same_cpus(p.b, &all));
    end_thread(p.b);
    p.bat->id = 0;
    world_delete(&p.w);
}

/* A thread that a program lends to a kthread goes on when its application has left: it was demoted, and is again as it
 * leaves, since it says that it runs. */
static void one_whose_application_leaves_gets_it_back(void)
{
    struct pair p;
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    evict(&p);
    CHECK(cl_io_app_remove(p.w.io, p.bat->id, NULL, err) == 0);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER && same_cpus(p.b, &all));
    CHECK(owns(&p.w, p.l));
    CHECK(cl_io_app_remove(p.w.io, p.lat->id, NULL, err) == 0);
    CHECK(sched_getscheduler(p.l->tid) == SCHED_OTHER && same_cpus(p.l, &all));
    end_thread(p.b);
    end_thread(p.l);
    p.bat->id = p.lat->id = 0;
    world_delete(&p.w);
}

static void one_whose_process_runs_in_idle_goes_back_to_it(void)
{
    struct pair p;
    struct sched_param none = {0};
    pair_new(&p, (struct setting){0}, (struct wish){0});
    CHECK(sched_setscheduler(getpid(), SCHED_IDLE, &none) == 0);
    struct app *a = app_add(&p.w, (struct wish){.kind = BATCH}); /* its thread begins as we are */
    CHECK(sched_getscheduler(a->k[0].tid) == SCHED_OTHER);
    cl_io_give_back(p.w.io);
    CHECK(sched_getscheduler(a->k[0].tid) == SCHED_IDLE);
    CHECK(sched_setscheduler(getpid(), SCHED_OTHER, &none) == 0);
    world_delete(&p.w);
}

static void one_that_was_left_in_idle_goes_back_to_its_process_class(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    struct app *a = app_add(&p.w, (struct wish){.kind = BATCH, .mute = true});
    CHECK(sched_setscheduler(a->k[0].tid, SCHED_IDLE, &(struct sched_param){0}) == 0);
    tell_threads(&p.w, a);
    CHECK(sched_getscheduler(a->k[0].tid) == SCHED_OTHER);
    cl_io_give_back(p.w.io);
    CHECK(sched_getscheduler(a->k[0].tid) == SCHED_OTHER);
    world_delete(&p.w);
}

/* As for an iokernel without rights, whose applications have RLIMIT_NICE 0. */
static void one_that_nobody_could_bring_back_is_not_demoted(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    managed(&p, p.bat)->member.stays_classed = true;
    evict(&p);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER && stats_of(&p.w).evictions_failed == 1);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(demoted_and_bound_they_get_back_what_they_had),
               SCENARIO(one_whose_application_leaves_gets_it_back),
               SCENARIO(one_whose_process_runs_in_idle_goes_back_to_it),
               SCENARIO(one_that_was_left_in_idle_goes_back_to_its_process_class),
               SCENARIO(one_that_nobody_could_bring_back_is_not_demoted))
