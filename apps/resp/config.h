/* CONFIG: settings under Redis' names. */
#ifndef CORELANE_APPS_RESP_CONFIG_H
#define CORELANE_APPS_RESP_CONFIG_H

#include "resp.h"

#define CL_RCONFIG_ROOM 512 /* for a value as text */

void cl_rconfig_default(struct cl_rconfig *f);
/* Set one; false: why not is in `why`, NULL if there is none of that name. */
bool cl_rconfig_set(struct cl_resp *r, struct cl_slice name, struct cl_slice value, const char **why);
/* Write the names that match one of the patterns, and their values: pairs. Returns how many. */
int64_t cl_rconfig_show(struct cl_resp_client *c, const struct cl_slice *patterns, uint32_t n);
/* The name of the policy. */
const char *cl_rconfig_policy(const struct cl_resp *r);

#endif
