/* What threads that are no uthreads ask of a UDP socket: whether something waits, what it is, and to be told when it
 * comes. */
#include "netif.h"
#include "queue.h"

#include <errno.h>

uint32_t cl_udp_socket_ready(const struct cl_udp_socket *s)
{
    return cl_udp_ready(&s->watch);
}

void cl_udp_watch(struct cl_udp_socket *s, void (*fn)(void *arg), void *arg)
{
    cl_spin_lock(&s->queue->lock);
    s->queue->told_fn = fn;
    s->queue->told_arg = arg;
    cl_spin_unlock(&s->queue->lock);
}

int cl_udp_take_error(struct cl_udp_socket *s)
{
    /* Relaxed: it is a number, and says all. */
    return cl_likely(!cl_load_relaxed(&s->error)) ? 0 : cl_exchange(&s->error, 0);
}

int64_t cl_udp_peek(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_origin *origin)
{
    struct cl_udp_queue *queue = s->queue;
    int64_t rc = -EAGAIN;
    cl_spin_lock(&queue->lock); /* held while it is copied: whoever takes it frees it */
    if (s->kind == CL_UDP_QUEUE && queue->count) {
        const struct cl_datagram *d = &queue->ring[queue->head];
        if (origin)
            cl_udp_origin_of(d, origin);
        cl_chunks_read(d->chunks, data, (uint64_t)room);
        rc = d->len;
    }
    cl_spin_unlock(&queue->lock);
    return rc;
}
