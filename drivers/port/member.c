/* What a member of a group tells its iokernel, and is told (docs/groups.md). Nothing here is on the data path. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>

bool port_is_to_drain(const struct port_arena *a)
{
    const struct cl_arena_preempt *line = (const void *)(a->base + CL_ARENA_PREEMPT_OFFSET);
    return cl_load_relaxed(&line->drain);
}

/* Say what port->state is. Under `lock`, which is let go of while the answer is waited for, as telling.c
 * says: meanwhile the attachment stays. */
static int say(struct port *port, bool others, char *err)
{
    struct cl_control_state message = {.state = port->state, .others = others};
    int fd = port_begin_telling(port, err);
    if (fd < 0)
        return fd;
    uint64_t delivered = 0;
    int rc = cl_control_state(fd, &message, &delivered, (int)port->timeout_ms, err);
    port_end_telling(port);
    port->said = port->current;
    port->delivered = delivered;
    return rc;
}

int port_say_again(struct port *port, char *err)
{
    int rc = say(port, false, err);
    return rc < 0 ? rc : 0;
}

int cl_port_say(struct cl_nic *nic, uint32_t state, bool others, char *err)
{
    struct port *port = port_of(nic);
    int rc = port_lock_to_tell(port, err);
    if (rc == 0) {
        port->state = state;
        rc = -ENOTCONN;
        if (port->control_fd >= 0)
            rc = say(port, others, err);
        else
            snprintf(err, CL_CONTROL_ERR_BYTES, "no iokernel is there: the next one is told");
    }
    pthread_mutex_unlock(&port->lock);
    return rc;
}

bool cl_port_emptied(struct cl_nic *nic)
{
    struct port *port = port_of(nic);
    uint64_t taken = 0;
    pthread_mutex_lock(&port->lock);
    struct port_arena *a = port->said;
    bool gone = a != port->current || port->control_fd < 0;
    for (unsigned q = 0; q < nic->n_queues && !gone; q++)
        taken += cl_load_relaxed(&a->counts[q].received); /* relaxed: a number that only grows */
    bool emptied = gone || taken >= port->delivered;
    pthread_mutex_unlock(&port->lock);
    return emptied;
}

bool cl_port_flushed(struct cl_nic *nic)
{
    struct port *port = port_of(nic);
    for (unsigned q = 0; q < nic->n_queues; q++) {
        const struct port_tx *tx = &port->tx[q];
        /* Acquire: the queue's own positions were written before it moved on to this arena. */
        if (cl_load_acquire(&tx->arena) == port->current && cl_load_acquire(tx->ring.shared_head) != tx->ring.tail)
            return cl_load_relaxed(&nic->gone);
    }
    return true;
}
