/* static: each application has what it was guaranteed, for ever, whether it has work or not; what is guaranteed to
 * nobody goes to batch by weight.
 *
 * The baseline: no core that was guaranteed ever moves on account of load. No settings. memory[1] to [3]: deal.h. */
#include <corelane/iokernel/policy.h>

void cl_policy_static(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < view->n_apps; i++)
        apps[i].grant = cl_min(apps[i].guaranteed, apps[i].maximum);
    cl_policy_share_left(view, apps);
}
