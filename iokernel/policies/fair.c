/* fair: core by core to whoever has attained least for its weight, latency applications before batch.
 *
 * Guarantees come first, then the latency applications among themselves, then batch: weighted max-min fairness among
 * equals over the length of the credit (deal.h).
 *
 * params[0]: slice, ns: a core stays until its holder is so far ahead (default 50 us). params[1]: credit, ns: how far
 * behind an application can fall and be owed it (default 10 ms). memory[1] to [3]: deal.h. */
#include "deal.h"

#define DEFAULT_SLICE_NS 50000
#define DEFAULT_CREDIT_NS 10000000

void cl_policy_fair(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    double slice_ns = (double)(view->params[0] ? view->params[0] : DEFAULT_SLICE_NS);
    double credit_ns = (double)(view->params[1] ? view->params[1] : DEFAULT_CREDIT_NS);
    uint32_t left = cl_policy_latency_first(view, apps, slice_ns, credit_ns);
    cl_policy_deal(view, apps, CL_POLICY_BATCH, cl_policy_wanted, left, slice_ns, credit_ns);
}
