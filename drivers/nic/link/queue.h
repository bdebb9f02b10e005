/* The queue in front of a line of a certain rate: one FIFO for each priority, of which the highest that holds a frame
 * is served first. A frame that finds its FIFO full is dropped. What is served when follows from when frames came, not
 * from when it is asked: `now` may only grow, and cl_link_serve is called until nothing begins before a frame is put
 * in. */
#ifndef CORELANE_DRIVERS_NIC_LINK_QUEUE_H
#define CORELANE_DRIVERS_NIC_LINK_QUEUE_H

#include "link.h"
#include "store.h"

struct cl_link_queue {
    struct cl_link_list waiting[CL_LINK_PRIORITIES];
    uint64_t bytes[CL_LINK_PRIORITIES];
    uint32_t priorities, overhead_bytes;
    uint64_t limit_bytes, ecn_bytes; /* ecn_bytes 0: never */
    uint64_t rate_bps, hz;           /* rate 0: no limit */
    uint64_t free_tsc;               /* the line is free from then on ... */
    uint64_t rest;                   /* ... and this much later, in ticks / rate_bps: no rounding error adds up */
};

void cl_link_queue_init(struct cl_link_queue *q, const struct cl_link_config *c, uint64_t hz);
/* Let a frame wait that came at slot->at, with its priority set and its bytes in place: they may be marked, which
 * *marked says. False: the queue is full. */
bool cl_link_wait(struct cl_link_queue *q, struct cl_link_store *s, uint32_t slot, bool *marked);
/* The next frame that begins to be sent at or before `now`, and when its last bit has left. CL_LINK_NONE: none does. */
uint32_t cl_link_serve(struct cl_link_queue *q, struct cl_link_store *s, uint64_t now, uint64_t *left_tsc);
/* When the next one begins, UINT64_MAX: none waits. */
uint64_t cl_link_queue_next(const struct cl_link_queue *q);

#endif
