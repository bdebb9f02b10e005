/* A server with synthetic service times: each request keeps its kthread busy for a time drawn beforehand, then is
 * echoed.
 *
 * It probes (corelane/libos/probe.h) all the time, so it lets others go first, another application or at the end of a
 * quantum. Or it has no probes, and may be interrupted at any instruction instead (docs/cores.md). What it waits then
 * is not counted as service.
 *
 * Times are drawn once, from a seed, into a table of ticks of the time-stamp counter, which the kthreads walk from
 * places of their own. Drawing at run time would cost what short services last. */
#ifndef CORELANE_APPS_SPIN_H
#define CORELANE_APPS_SPIN_H

#include <corelane/libos/udp.h>

// cffi: begin
#define CL_SPINNER_CONSTANT 0
#define CL_SPINNER_EXPONENTIAL 1
#define CL_SPINNER_BIMODAL 2
#define CL_SPINNER_REQUEST 3   /* as the request says: ns, 4 bytes in the machine's order, up to a second ... */
#define CL_SPINNER_AT 8        /* ... at this place */
#define CL_SPINNER_TIMES 65536 /* in the table */

struct cl_spinner_config {
    uint32_t distribution;
    double mean_ns;   /* constant, exponential: the mean; bimodal: the short one; 0 to 1e9 */
    double long_ns;   /* bimodal: the long one */
    double long_part; /* bimodal: part of the requests that take long, 0..1 */
    uint64_t seed;
    uint32_t boundary_ns; /* between the two types of requests, for cl_spinner_classify */
    uint32_t no_probes;
};

struct cl_spinner;

/* Draw the table. -EINVAL with a reason in err; -ENOMEM. */
CL_API int cl_spinner_new(const struct cl_spinner_config *config, struct cl_spinner **out, char err[256]);
CL_API void cl_spinner_delete(struct cl_spinner *spin);
/* A handler (corelane/libos/udp.h); arg is the cl_spinner. */
CL_API int64_t cl_spinner_handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg);
/* A classifier (corelane/libos/udp.h) for CL_SPINNER_REQUEST: 0 for requests that ask for `boundary_ns` or less, else
 * 1. */
CL_API int64_t cl_spinner_classify(const uint8_t *request, int64_t len, void *arg);
/* The table, in ticks. */
CL_API const uint64_t *cl_spinner_times(const struct cl_spinner *spin);
/* Requests handled and ticks spun, by all kthreads. */
CL_API void cl_spinner_stats(const struct cl_spinner *spin, uint64_t *requests, uint64_t *ticks);
// cffi: end

#endif
