/* Calls through the vtable, for bindings and tests. */
#include <corelane/drivers/nic.h>

unsigned cl_nic_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    return nic->ops->rx_burst(nic, queue, frames, n);
}

unsigned cl_nic_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    return nic->ops->tx_burst(nic, queue, frames, n);
}

unsigned cl_nic_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    return nic->ops->alloc(nic, queue, frames, n);
}

void cl_nic_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    nic->ops->free(nic, queue, frames, n);
}

int cl_nic_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    return nic->ops->wait(nic, queue, timeout_ns);
}

void cl_nic_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    nic->ops->stats(nic, queue, out);
}

uint32_t cl_nic_buffers_free(struct cl_nic *nic)
{
    return nic->ops->buffers_free(nic);
}

void cl_nic_close(struct cl_nic *nic)
{
    nic->ops->close(nic);
}
