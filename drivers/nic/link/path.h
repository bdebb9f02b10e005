/* One direction of a link: queue, line, loss and flight put together (link.h). One user at a time. */
#ifndef CORELANE_DRIVERS_NIC_LINK_PATH_H
#define CORELANE_DRIVERS_NIC_LINK_PATH_H

#include "flight.h"
#include "loss.h"
#include "queue.h"

struct cl_path {
    uint64_t next_tsc; /* when something is to be moved on, UINT64_MAX: nothing is on its way */
    bool has_come;     /* frames wait in `come` */
    struct cl_link_store store;
    struct cl_link_queue queue;
    struct cl_link_loss loss;
    struct cl_link_flight flight;
    struct cl_link_list come[CL_NIC_MAX_QUEUES]; /* to be delivered, by the queue of the NIC */
    struct cl_link_counts counts;
    uint32_t longest; /* frame, bytes */
};

/* Whether a configuration is one. 0, or -EINVAL with a reason in err[256]. */
int cl_path_check(const struct cl_link_config *c, char *err);
/* A path for a checked configuration, to `to`, by `clock`. `salt` tells apart the random numbers of paths of one seed.
 * NULL: out of memory. */
struct cl_path *cl_path_new(const struct cl_link_config *c, const struct cl_nic *to, const struct cl_clock *clock,
                            uint64_t salt);
void cl_path_delete(struct cl_path *p);
/* Take copies of n frames that come at `now`, for queue `queue` of `to`. The frames stay the caller's. */
void cl_path_offer(struct cl_path *p, const struct cl_frame *frames, unsigned n, unsigned queue, uint64_t now);
void cl_path_advance_slow(struct cl_path *p, uint64_t now);
/* Copy up to n frames that have come for `queue` into fresh buffers of that queue of `to`. They stay in the path until
 * cl_path_delivered says how many of them went on. */
unsigned cl_path_fill(struct cl_path *p, struct cl_nic *to, unsigned queue, struct cl_frame *frames, unsigned n);
void cl_path_delivered(struct cl_path *p, unsigned queue, unsigned n);
/* Send what has come for `queue` by `to`. Returns how many frames that took. */
unsigned cl_path_send(struct cl_path *p, struct cl_nic *to, unsigned queue);
void cl_path_counts(const struct cl_path *p, struct cl_link_counts *out);

/* Move on what is due. */
static inline void cl_path_advance(struct cl_path *p, uint64_t now)
{
    if (now >= p->next_tsc)
        cl_path_advance_slow(p, now);
}

/* Whether frames have come for that queue. */
static inline bool cl_path_has(const struct cl_path *p, unsigned queue)
{
    return p->has_come && p->come[queue].first != CL_LINK_NONE;
}

#endif
