/* What the floors' servers send with. */
#ifndef CORELANE_BENCH_HARNESS_SEND_H
#define CORELANE_BENCH_HARNESS_SEND_H

#include <corelane/drivers/nic.h>

/* Send n frames on queue 0: what finds no place in it waits for one, until *stop is set (relaxed), and is freed
 * then. */
static inline void cl_bench_send_all(struct cl_nic *nic, struct cl_frame *frames, unsigned n, const uint32_t *stop)
{
    unsigned done = 0;
    while (done < n && !cl_load_relaxed(stop))
        done += nic->ops->tx_burst(nic, 0, frames + done, n - done);
    nic->ops->free(nic, 0, frames + done, n - done);
}

#endif
