/* fair: core by core to whoever has attained least for its weight, latency applications before batch.
 *
 * A latency application wants one core more than it holds if something waits, and no more than it uses otherwise; a batch
 * application always wants all that it could use. Guarantees come first, then the latency applications among themselves, then batch:
 * weighted max-min fairness among equals over the length of the credit (deal.h).
 *
 * params[0]: slice, ns: a core stays until its holder is so far ahead (default 50 us). params[1]: credit, ns: how far
 * behind an application can fall and be owed it (default 10 ms). memory[1] to [3]: deal.h. */
#include "deal.h"

#define DEFAULT_SLICE_NS 50000
#define DEFAULT_CREDIT_NS 10000000

static uint32_t wanted(const struct cl_policy_app *a)
{
    if (a->kind == CL_POLICY_BATCH)
        return a->demand;
    uint32_t busy = a->cores - cl_min(a->idle, a->cores);
    return cl_min(a->demand, cl_policy_oldest_ns(a) ? a->cores + 1 : busy);
}

void cl_policy_fair(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    double slice_ns = (double)(view->params[0] ? view->params[0] : DEFAULT_SLICE_NS);
    double credit_ns = (double)(view->params[1] ? view->params[1] : DEFAULT_CREDIT_NS);
    uint32_t left = view->n_cores;
    for (uint32_t kind = CL_POLICY_LATENCY; kind <= CL_POLICY_BATCH; kind++)
        for (uint32_t i = 0; i < view->n_apps; i++) {
            struct cl_policy_app *a = &apps[i];
            if (a->kind != kind)
                continue;
            a->grant = cl_min(cl_min(wanted(a), a->guaranteed), left);
            left -= a->grant;
        }
    for (uint32_t kind = CL_POLICY_LATENCY; kind <= CL_POLICY_BATCH; kind++)
        left = cl_policy_deal(view, apps, kind, wanted, left, slice_ns, credit_ns);
}
