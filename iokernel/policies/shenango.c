/* shenango: one core more for an application in which something was queued at two consecutive checks.
 *
 * After Shenango (NSDI 2019): what waited at the last check and still waits is at least one interval old; a
 * core at a time, and cores without work go back at once. Batch gets the rest. No settings: the interval is the
 * view's. */
#include <corelane/iokernel/policy.h>

void cl_policy_shenango(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < view->n_apps; i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->kind == CL_POLICY_BATCH)
            continue;
        uint64_t oldest_ns = cl_policy_oldest_ns(a);
        /* Without a core nobody will dequeue it: the first sight is enough. */
        bool congested = oldest_ns >= view->interval_ns || (oldest_ns && a->cores == 0);
        a->grant = cl_min(congested ? a->cores + 1 : a->cores - cl_min(a->idle, a->cores), a->demand);
    }
    cl_policy_share(view, apps);
}
