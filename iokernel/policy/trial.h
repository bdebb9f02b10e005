/* Trying a policy before it is installed: in a process of its own (trial.py), on thousands of generated tables.
 *
 * A trial finds what a policy does on the tables that it meets: faults, writes beyond the table, fields that it may not
 * write, grants that are missing or no number of cores, answers that are not the same for the same history, and a time
 * beyond the bound. Of what it does not meet (a loop that starts after an hour) the host takes care (host.h).
 *
 * Tests: tests/iokernel/policy/test_trial.py. */
#ifndef CORELANE_IOKERNEL_POLICY_TRIAL_H
#define CORELANE_IOKERNEL_POLICY_TRIAL_H

#include "host.h"

// cffi: begin
#define CL_POLICY_TRIAL_NS 20000 /* for a decision over CL_POLICY_MAX_APPS applications */

/* What a trial found; the host's CL_POLICY_LATE and so on besides. */
#define CL_POLICY_FINE 0
#define CL_POLICY_BEFORE 7    /* wrote before apps[0] */
#define CL_POLICY_OVERWROTE 8 /* wrote what it may only read */
#define CL_POLICY_UNSTEADY 9  /* gave another answer to the same history of tables */
#define CL_POLICY_SLOW 10

struct cl_policy_verdict {
    uint32_t found;  /* CL_POLICY_FINE, ... */
    uint32_t signal; /* of CL_POLICY_FAULT and _OUTSIDE */
    uint32_t n_apps; /* of the table on which */
    uint32_t app;    /* and the first row concerned */
    uint32_t grant;  /* that was written there */
    uint32_t pad;
    int64_t offset;  /* CL_POLICY_OUTSIDE, _OVERWROTE: from apps[0], bytes */
    double ns;       /* of a decision over CL_POLICY_MAX_APPS applications, the least of many */
    uint64_t tables; /* tried */
};

/* A table in which as much is strange as can occur, from a seed: n rows. */
CL_API void cl_policy_generate(uint64_t seed, struct cl_policy_view *view, struct cl_policy_app *apps, uint32_t n,
                               uint32_t n_cores);
/* Try a policy on `tables` tables. A call that takes longer than limit_ns is left (0: the default of the host). Returns
 * what was found, or -errno with a reason in err[256] if it could not be tried. */
CL_API int cl_policy_trial(cl_policy_fn fn, const uint64_t *params, uint64_t seed, uint64_t tables, uint64_t limit_ns,
                           struct cl_policy_verdict *out, char *err);

/* Time of each of `rounds` decisions over n_apps and n_cores through a host of its own: out[rounds], in ns, what
 * reading the clock costs taken off. Tables are generated beforehand; after each decision the cores are as it
 * granted. */
CL_API int cl_policy_measure(const struct cl_policy_setting *setting, uint32_t n_apps, uint32_t n_cores, uint64_t seed,
                             uint32_t rounds, double *out, char *err);
// cffi: end

#endif
