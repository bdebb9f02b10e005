/* fair: applications that want more share the cores by attained time over weight; the least served first.
 *
 * A latency application wants one core more than it holds if something waits, and no more than it uses otherwise; a batch
 * application always wants its maximum. Cores are then dealt one by one to whoever wants one and has attained least for
 * its weight (max-min fairness over the long run; latency class breaks ties only by its guarantee, which is dealt first).
 *
 * memory[0]: cores dealt in this call. No settings. */
#include "../policy.h"

static uint32_t wanted(const struct cl_policy_app *a)
{
    if (a->kind == CL_POLICY_BATCH)
        return a->maximum;
    uint32_t busy = a->cores - cl_min(a->idle, a->cores);
    return cl_min(a->maximum, cl_policy_oldest_ns(a) ? a->cores + 1 : busy);
}

void cl_policy_fair(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    uint32_t left = view->n_cores;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        struct cl_policy_app *a = &apps[i];
        a->grant = cl_min(cl_min(wanted(a), a->guaranteed), left);
        left -= a->grant;
    }
    while (left) {
        struct cl_policy_app *next = NULL;
        double least = 0;
        for (uint32_t i = 0; i < view->n_apps; i++) {
            struct cl_policy_app *a = &apps[i];
            if (a->grant >= wanted(a))
                continue;
            /* What it will have attained by the next check with one core more. */
            double served =
                ((double)a->attained_ns + (double)(a->grant + 1) * (double)view->interval_ns) / cl_max(a->weight, 1u);
            if (!next || served < least) {
                next = a;
                least = served;
            }
        }
        if (!next)
            return;
        next->grant++;
        left--;
    }
}
