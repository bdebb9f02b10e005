/* What NICs of one queue share whose buffers are memory of this process: the buffers, the counters, the parker. Such a
 * NIC begins with this struct and fills in the rest of the vtable. */
#ifndef CORELANE_DRIVERS_NIC_SINGLE_H
#define CORELANE_DRIVERS_NIC_SINGLE_H

#include <corelane/drivers/nic.h>

#include <corelane/runtime/clock.h>
#include "../../runtime/pool.h"

struct cl_single_nic {
    struct cl_nic nic;
    struct cl_pool *pool;
    uint8_t *base;
    size_t stride, base_len;   /* bytes from one buffer to the next: an odd number of lines (memory.h says why) */
    struct cl_nic_stats stats; /* writer: the thread that uses the queue; readers: anybody (relaxed) */
    struct cl_parker parker;
    uint32_t word CL_ALIGNED(CL_CACHELINE); /* the parker's */
};

/* Make the buffers that nic.n_buffers and nic.buffer_bytes ask for, and a parker without an event_fd. 0 or -ENOMEM; the
 * rest of *s is zero or the caller's, who calls cl_single_exit in either case. */
int cl_single_init(struct cl_single_nic *s);
void cl_single_exit(struct cl_single_nic *s);

static inline uint8_t *cl_single_buffer(const struct cl_single_nic *s, uint32_t index)
{
    return s->base + index * s->stride;
}

/* Up to n buffers, CL_NIC_BURST at most, as alloc gives them; nothing is counted. */
unsigned cl_single_get(struct cl_single_nic *s, struct cl_frame *frames, unsigned n);

/* Of the vtable. */
unsigned cl_single_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
void cl_single_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
struct cl_parker *cl_single_parker(struct cl_nic *nic, unsigned queue);
void cl_single_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out);
uint32_t cl_single_buffers_free(struct cl_nic *nic);
int cl_single_no_fd(struct cl_nic *nic, unsigned queue);
/* Sleep for timeout_ns, and not beyond next_tsc (by the NIC's clock; UINT64_MAX: nothing is due). The parker has no
 * event_fd. */
int cl_single_wait_until(struct cl_single_nic *s, uint64_t next_tsc, int64_t timeout_ns);

#endif
