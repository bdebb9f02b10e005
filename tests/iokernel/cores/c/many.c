/* Applications with many kthreads and without a core: a decision reads the words of few of them, and nothing that waits
 * in any is missed. Prints the names of those that passed.
 *
 *   cores_many [NAME] */
#include "world.h"

#include <corelane/runtime/clock.h>

#define INTERVAL (5 * US)
#define LOOKS 4                                 /* iokernel/cores/demand.c */
#define TURN (MOST_KTHREADS / LOOKS * INTERVAL) /* until each was looked at */
#define CROWD 15

/* One that rests, as the loop knows. */
static struct app *rests(struct world *w)
{
    world_new(w, (struct setting){0});
    struct app *a = app_add(w, (struct wish){.kthreads = MOST_KTHREADS});
    run(w, 2 * TURN);
    return a;
}

static void serve(struct world *w, struct kthread *k)
{
    CHECK(owns(w, k) && acts(w, k));
    drain(k);
    run(w, 2 * INTERVAL);
    park(k);
    run(w, 2 * TURN);
}

static void what_waits_in_any_of_them_is_found(void)
{
    struct world w;
    struct app *a = rests(&w);
    for (unsigned i = 0; i < MOST_KTHREADS; i++) {
        ready(&a->k[i], 1); /* without a word */
        run(&w, TURN + INTERVAL);
        serve(&w, &a->k[i]);
    }
    world_delete(&w);
}

static void a_call_for_help_is_heard_at_once(void)
{
    struct world w;
    struct app *a = rests(&w);
    for (unsigned i = 0; i < 5; i++) {
        a->k[0].line->help++;
        run(&w, INTERVAL);
        struct kthread *k = NULL;
        for (unsigned j = 0; j < MOST_KTHREADS; j++)
            k = owns(&w, &a->k[j]) ? &a->k[j] : k;
        CHECK(k != NULL);
        serve(&w, k);
    }
    world_delete(&w);
}

static void a_timer_of_any_of_them_is_due_at_once(void)
{
    struct world w;
    struct app *a = rests(&w);
    for (unsigned i = 0; i < MOST_KTHREADS; i++) {
        struct kthread *k = &a->k[i];
        uint64_t due = w.now + 10 * TURN;
        k->line->signals.timer_tsc = due;
        run(&w, 10 * TURN - INTERVAL);
        CHECK(!owns(&w, k));
        run(&w, 2 * INTERVAL);
        k->line->signals.timer_tsc = UINT64_MAX;
        serve(&w, k);
    }
    world_delete(&w);
}

/* The shortest decision of many, in ticks. */
static uint64_t shortest(struct world *w)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 2000; i++) {
        w->now += INTERVAL;
        uint64_t begin = cl_tsc();
        cl_io_step(w->io, 0, w->now);
        least = cl_min(least, cl_tsc() - begin);
    }
    return least;
}

/* All of these are one thread of another process, which sleeps. */
static void crowd(struct world *w, uint32_t kthreads, int pid)
{
    int32_t tids[CL_SHM_MAX_KTHREADS];
    for (uint32_t k = 0; k < kthreads; k++)
        tids[k] = pid;
    for (uint8_t i = 0; i < CROWD; i++) {
        struct cl_io_app_config c = {
            .layout = {kthreads, 16, 16, 16, 16, 512}, .mac = {2, 0, 0, 0, 1, i}, .ipv4 = 0x0a4d0100u + i};
        struct cl_io_app_grant g;
        CHECK(cl_io_app_add(w->io, &c, &g, err) == 0);
        CHECK(cl_io_app_threads(w->io, g.app, pid, tids, kthreads, 0, err) == 0);
    }
}

static void idle_kthreads_cost_little(void)
{
    uint64_t ticks[2];
    int pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    for (unsigned many = 0; many < 2; many++) {
        struct world w;
        world_new(&w, (struct setting){0});
        crowd(&w, many ? CL_SHM_MAX_KTHREADS : LOOKS, pid);
        ticks[many] = shortest(&w);
        world_delete(&w); /* and with it the crowd */
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    printf("a decision: %llu ticks beside %d idle applications of %d kthreads each, %llu of %d\n",
           (unsigned long long)ticks[0], CROWD, LOOKS, (unsigned long long)ticks[1], CL_SHM_MAX_KTHREADS);
    CHECK(ticks[1] < 5 * ticks[0]); /* some 1.5; a look at each makes it some 10 */
}

SCENARIOS_MAIN(SCENARIO(what_waits_in_any_of_them_is_found), SCENARIO(a_call_for_help_is_heard_at_once),
               SCENARIO(a_timer_of_any_of_them_is_due_at_once), SCENARIO(idle_kthreads_cost_little))
