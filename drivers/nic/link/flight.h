/* Frames on their way: each takes its delay, and comes in the order in which it left, unless it is held back so that
 * others pass it. A frame that is held back goes on behind the reorder_by-th that left after it; if so many do not
 * come, 10 ms after it would have come. So it is passed by at most reorder_by frames (the reordering extent of RFC
 * 4737, section 4.2). */
#ifndef CORELANE_DRIVERS_NIC_LINK_FLIGHT_H
#define CORELANE_DRIVERS_NIC_LINK_FLIGHT_H

#include "../../random.h"
#include "link.h"
#include "store.h"

#define CL_LINK_OVERTAKE_NS 10000000

struct cl_link_flight {
    struct cl_link_list flying; /* `at` grows */
    struct cl_link_list held;   /* the same */
    uint64_t last_tsc;          /* `at` of the one that left last */
    uint32_t passed;            /* frames that ever entered `flying`, modulo 2^32 */
    uint32_t reorder_by;
    double reorder;
    uint64_t delay_ticks, jitter_ticks, overtake_ticks;
    struct cl_random random;
};

void cl_link_flight_init(struct cl_link_flight *f, const struct cl_link_config *c, const struct cl_clock *clock);
/* A frame has left at left_tsc, which grows from call to call. Returns whether it is held back. */
bool cl_link_leave(struct cl_link_flight *f, struct cl_link_store *s, uint32_t slot, uint64_t left_tsc);
/* The next that has come by now. CL_LINK_NONE: none has. */
uint32_t cl_link_come(struct cl_link_flight *f, struct cl_link_store *s, uint64_t now);
/* When the next one comes, as things are; UINT64_MAX: none is on its way. */
uint64_t cl_link_flight_next(const struct cl_link_flight *f, const struct cl_link_store *s);

#endif
