/* Swapping policies under a loop that decides without a pause, under the sanitizers.
 *
 * Each setting carries its own number in its params, and one of two functions; the function checks that they belong
 * together. Once the host says that a setting was taken, the retired ones are marked, and calling one of them fails the
 * program. Some settings are withdrawn before the loop sees them, some fault.
 *
 * Usage: policy_swap SWAPS */
#include "../../../../iokernel/policy/host.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t retired; /* tickets below are over; written by the controlling thread, release; read by the policies */
static uint32_t failed, stop;
static struct cl_policy_host *host;

#define FAIL(...) (printf(__VA_ARGS__), cl_store_relaxed(&failed, 1))

static void decide(const struct cl_policy_view *view, struct cl_policy_app *apps, uint64_t which)
{
    /* A ticket is not known to the one that sets it before it is set: params[0] is the one it will get. */
    if (view->params[1] != which || view->params[2] != (view->params[0] ^ which))
        FAIL("params %lu %lu %lu with function %lu\n", view->params[0], view->params[1], view->params[2], which);
    if (view->params[0] < cl_load_acquire(&retired))
        FAIL("setting %lu is called after %lu was taken\n", view->params[0], cl_load_acquire(&retired));
    for (uint32_t i = 0; i < view->n_apps; i++) {
        if (apps[i].memory[0] != 0 && apps[i].memory[0] != view->params[0])
            FAIL("memory of setting %lu is left to %lu\n", apps[i].memory[0], view->params[0]);
        apps[i].memory[0] = view->params[0];
        apps[i].grant = 1;
    }
}

static void even(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    decide(view, apps, 0);
}

static void odd(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    decide(view, apps, 1);
    if (view->params[3])
        __builtin_trap();
}

static void *loop_main(void *arg)
{
    static struct cl_policy_app apps[3];
    struct cl_policy_view view = {.n_apps = 3, .n_cores = 3, .interval_ns = 5000};
    uint64_t *decisions = arg;
    for (unsigned i = 0; i < 3; i++)
        apps[i].maximum = apps[i].weight = 1;
    while (!cl_load_relaxed(&stop)) {
        cl_policy_run(host, &view, apps);
        ++*decisions;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    uint64_t swaps = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, decisions = 0, faults = 0;
    char err[256];
    if (cl_policy_host_new(0, 0, &host, err) < 0)
        return printf("%s\n", err), 1;
    pthread_t loop;
    pthread_create(&loop, NULL, loop_main, &decisions);
    for (uint64_t i = 1; i <= swaps && !cl_load_relaxed(&failed); i++) {
        uint64_t which = i / 3 & 1, fault = which && i % 16 == 4;
        struct cl_policy_setting s = {
            .fn = which ? odd : even, .params = {i, which, i ^ which, fault}, .guarded = fault || i % 5 == 0};
        int64_t ticket = cl_policy_host_set(host, &s, err);
        if (ticket != (int64_t)i)
            FAIL("ticket %ld for setting %lu: %s\n", (long)ticket, i, err);
        if (i % 3 == 0)
            continue; /* replaced at once: the loop may see it or not */
        while (!cl_policy_host_taken(host, ticket))
            cl_relax();
        cl_store_release(&retired, i);
        faults += fault;
    }
    struct cl_policy_stats stats;
    while (cl_policy_host_stats(host, &stats), stats.ejected < faults && !failed)
        cl_relax();
    cl_store_relaxed(&stop, 1);
    pthread_join(loop, NULL);
    cl_policy_host_stats(host, &stats);
    printf("%lu swaps, %lu taken, %lu put aside, %lu decisions\n", swaps, stats.swaps, stats.ejected, decisions);
    if (stats.decisions != decisions || stats.swaps < swaps / 2 || stats.swaps > swaps)
        FAIL("they do not add up\n");
    cl_policy_host_delete(host);
    return failed;
}
