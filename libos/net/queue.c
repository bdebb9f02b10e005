/* See queue.h. */
#include "queue.h"
#include "netif.h"

#include <stdlib.h>

void cl_udp_origin_of(const struct cl_datagram *d, struct cl_udp_origin *out)
{
    *out = (struct cl_udp_origin){.from = {cl_be32((uint32_t)d->from), cl_be16((uint16_t)(d->from >> 32)), 0},
                                  .to = cl_be32(d->to_be),
                                  .ttl = d->ttl,
                                  .tos = d->tos};
}

bool cl_udp_is_queued(const struct cl_udp_socket *s)
{
    return cl_load_relaxed(&s->kind) == CL_UDP_QUEUE;
}

bool cl_udp_queue_unused(const struct cl_udp_queue *queue)
{
    return cl_load_acquire(&queue->readers) == 0; /* acquire: the last reader has left */
}

bool cl_udp_keep(struct cl_udp_socket *s, uint32_t life)
{
    cl_spin_lock(&s->nif->table_lock); /* under which it would be opened anew */
    bool lives = s->queue->life == life && cl_udp_is_queued(s);
    if (lives)
        __atomic_fetch_add(&s->queue->readers, 1, __ATOMIC_ACQUIRE);
    cl_spin_unlock(&s->nif->table_lock);
    return lives;
}

void cl_udp_let_go(struct cl_udp_socket *s)
{
    __atomic_fetch_sub(&s->queue->readers, 1, __ATOMIC_RELEASE); /* release: what we read comes before the reuse */
}

void cl_udp_queue_delete(struct cl_udp_queue *queue)
{
    if (queue)
        free(queue->ring);
    free(queue);
}

uint32_t cl_udp_ready(const struct cl_pollable *member)
{
    const struct cl_udp_socket *s = cl_container_of(member, struct cl_udp_socket, watch);
    /* Relaxed: who makes it ready lists it afterwards, see poll.c. */
    uint32_t what = cl_load_relaxed(&s->queue->count) ? CL_POLL_IN : 0;
    what |= cl_load_relaxed(&s->error) ? CL_POLL_ERROR : 0;
    return what | (cl_load_relaxed(&s->nif->sockets_shut) ? CL_POLL_END : 0);
}

void cl_udp_queue_set_peer(struct cl_udp_socket *s, uint64_t peer)
{
    cl_store_relaxed(&s->peer, peer);
    cl_store_relaxed(&s->has_sent, 0);
    cl_store_relaxed(&s->error, 0);
}

/* A recycled socket keeps its queue object, since a late frame may be at its lock, and gets a new
 * ring. */
void cl_udp_queue_take_over(struct cl_udp_socket *s, struct cl_udp_queue *fresh, uint16_t port,
                            struct cl_udp_group *group)
{
    bool recycled = s->queue != NULL;
    struct cl_udp_queue *queue = recycled ? s->queue : fresh;
    struct cl_datagram *old = recycled ? queue->ring : NULL;
    if (!recycled)
        s->queue = queue;
    cl_spin_lock(&queue->lock);
    if (recycled) {
        queue->ring = fresh->ring;
        cl_store_relaxed(&queue->size, fresh->size);
        queue->head = 0;
        cl_store_relaxed(&queue->count, 0);
        queue->error_told = false;
        queue->told_fn = NULL;
        cl_sem_init(&queue->filled, 0);
    }
    queue->life++;
    s->port = port;
    s->group = group;
    cl_udp_queue_set_peer(s, 0);
    s->watch.ready = cl_udp_ready;
    cl_store_relaxed(&s->kind, CL_UDP_QUEUE); /* relaxed: who acts on it re-checks under the lock */
    cl_spin_unlock(&queue->lock);
    free(old);
    if (recycled)
        free(fresh);
}
