/* Every transition of a core's move, one scenario each: cores_world.h. Prints the names of those that passed.
 *
 *   cores_steps [NAME] */
#include "cores_world.h"

#define LATENCY CL_POLICY_LATENCY
#define BATCH CL_POLICY_BATCH

/* One core; a batch application runs on it; a latency one has parked. */
struct pair {
    struct world w;
    struct app *lat, *bat;
    struct kthread *l, *b;
};

static void pair_new(struct pair *p, struct setting s, struct wish batch)
{
    batch.kind = BATCH;
    world_new(&p->w, s);
    p->lat = app_add(&p->w, (struct wish){.kind = LATENCY});
    p->bat = app_add(&p->w, batch);
    p->l = &p->lat->k[0];
    p->b = &p->bat->k[0];
    start(&p->w, p->b);
    CHECK(owns(&p->w, p->b));
}

static void nothing_without_threads(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.mute = true});
    ready(&a->k[0], 1);
    run(&w, 100 * US);
    CHECK(w.cores[0].owner == 0);
    tell_threads(&w, a);
    run(&w, 10 * US);
    CHECK(owns(&w, &a->k[0]) && a->k[0].state->cpu == 0 && a->k[0].state->grant == 1);
    int32_t tid = a->k[0].tid;
    CHECK(cl_io_app_threads(w.io, a->id, getpid(), &tid, 1, SIGNAL, err) < 0);
    CHECK(acts(&w, &a->k[0]));
    run(&w, 10 * US);
    CHECK(moves_by(&w, CL_IO_STEP_IDLE) == 1 && cores_of(&w, a).moves_in == 1);
    world_delete(&w);
}

static void ask_answered(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && *p.bat->look == 1 && p.w.cores[0].wake == 1 && p.w.cores[0].moves == 2);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    drain(p.l);
    run(&p.w, 5 * US);
    CHECK(*p.bat->look == 0 && moves_by(&p.w, CL_IO_STEP_ASK) == 1 && cores_of(&p.w, p.bat).asked == 1);
    CHECK(cl_hist_count(cl_io_detection(p.w.io, p.lat->id)) == 1);
    CHECK(p.w.cores[0].wanted == 1); /* the batch application waits */
    park(p.l);
    run(&p.w, 1 * US); /* its heir at once, not at the next interval */
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    run(&p.w, 10 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_PARKED) == 1 && p.w.cores[0].wanted == 0);
    CHECK(signals_seen == 0 && stats_of(&p.w).violations == 0);
    world_delete(&p.w);
}

static void interrupt_answered(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 12 * US);
    CHECK(owns(&p.w, p.l) && signals_seen == 0);
    run(&p.w, 6 * US);
    while (sem_wait(&signalled) < 0)
        continue;
    CHECK(signals_seen == 1);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_INTERRUPT) == 1 && cores_of(&p.w, p.bat).interrupted == 1 && *p.bat->look == 0);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER);
    world_delete(&p.w);
}

static void evicted(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    ready(p.l, 1);
    run(&p.w, 70 * US);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_IDLE && signals_seen == 0 && owns(&p.w, p.l));
    CHECK(acts(&p.w, p.l));
    drain(p.l);
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_EVICT) == 1 && cores_of(&p.w, p.bat).evicted == 1);
    park(p.l); /* and the one that does not listen gets nothing before it does */
    run(&p.w, 200 * US);
    CHECK(!owns(&p.w, p.b) && *p.bat->look == 1);
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b) && *p.bat->look == 0);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER);
    world_delete(&p.w);
}

static void old_owner_dies(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    end_thread(p.b); /* in the middle: its word says for ever that it runs */
    run(&p.w, 15 * US);
    CHECK(owns(&p.w, p.l) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(stats_of(&p.w).evicted == 0 && stats_of(&p.w).interrupted == 0);
    drain(p.l);
    park(p.l);
    run(&p.w, 100 * US);
    CHECK(!owns(&p.w, p.b));
    world_delete(&p.w);
}

static void new_owner_is_stopped(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 4990 * US);
    CHECK(owns(&p.w, p.l)); /* it may take start_us */
    run(&p.w, 20 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b) && *p.lat->look == 0 && cores_of(&p.w, p.lat).not_started == 1);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER);
    run(&p.w, 200 * US);
    CHECK(owns(&p.w, p.b));
    p.l->line->signals.switches++; /* it moves: considered again */
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b));
    run(&p.w, 5100 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    run(&p.w, 200 * MS); /* and after a while though it does not */
    CHECK(cores_of(&p.w, p.lat).not_started == 3);
    world_delete(&p.w);
}

static void new_owner_dies(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    end_thread(p.l);
    run(&p.w, 5 * US);
    run(&p.w, 100 * US);
    acts(&p.w, p.b);
    run(&p.w, 100 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    world_delete(&p.w);
}

static const struct {
    const char *name;
    void (*fn)(void);
} scenarios[] = {
    {"nothing_without_threads", nothing_without_threads},
    {"ask_answered", ask_answered},
    {"interrupt_answered", interrupt_answered},
    {"evicted", evicted},
    {"old_owner_dies", old_owner_dies},
    {"new_owner_is_stopped", new_owner_is_stopped},
    {"new_owner_dies", new_owner_dies},
};

int main(int argc, char **argv)
{
    alarm(60);
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) != 0)
            continue;
        scenario = scenarios[i].name;
        scenarios[i].fn();
        printf("passed %s\n", scenario);
    }
    return 0;
}
