/* A policy that behaves, on a machine that gives the core to others: computes for params[0] ns, then has no CPU for
 * params[1] ns. Beside bad_policies.c, since a policy that is loaded may call nothing. */
#include <corelane/iokernel/policy.h>

#include <time.h>

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

CL_API void without_the_core(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    int64_t until = now_ns() + (int64_t)view->params[0], left;
    while (now_ns() < until)
        continue;
    until += (int64_t)view->params[1];
    while ((left = until - now_ns()) > 0) /* signals end a sleep */
        nanosleep(&(struct timespec){0, left}, NULL);
    for (uint32_t i = 0; i < view->n_apps; i++)
        apps[i].grant = apps[i].cores;
}
