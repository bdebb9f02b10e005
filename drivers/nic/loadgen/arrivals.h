/* Gaps between requests, drawn beforehand. A table holds gaps with mean exactly 1 as fixed-point numbers; the engine
 * multiplies them by the mean gap of the phase, so one table serves every rate. */
#ifndef CORELANE_DRIVERS_NIC_LOADGEN_ARRIVALS_H
#define CORELANE_DRIVERS_NIC_LOADGEN_ARRIVALS_H

#include <corelane/runtime/base.h>

#define CL_GAPS (1u << 20) /* entries of a drawn table */

struct cl_gaps {
    uint32_t *table;
    uint32_t mask;  /* entries - 1 */
    uint32_t shift; /* binary places of an entry */
};

/* -ENOMEM, or -EINVAL for an unknown kind, a burst of 0 or a duty outside 0..1. */
int cl_gaps_draw(struct cl_gaps *g, uint32_t arrivals, uint64_t seed, uint32_t burst, double duty);
void cl_gaps_free(struct cl_gaps *g);

#endif
