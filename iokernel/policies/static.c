/* static: each application has what it was guaranteed, for ever; what is left over goes to batch by weight.
 *
 * The baseline: no core ever moves on account of load. No settings. */
#include "../policy.h"

void cl_policy_static(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < view->n_apps; i++)
        apps[i].grant = cl_min(apps[i].guaranteed, apps[i].maximum);
    cl_policy_share_rest(view, apps);
}
