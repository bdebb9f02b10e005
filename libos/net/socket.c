/* UDP sockets with a queue that uthreads read.
 *
 * Queue: a ring of datagrams behind a lock, and a semaphore (sync.h) on which readers are served in order of arrival.
 * It is posted for each datagram, for an ICMP error, once for the close, and at the end of the runtime. A reader takes
 * an error first, then a datagram. One that finds neither, because a sender has taken the error, waits again; one that
 * finds the socket closed passes the post on. For errors one post is under way at a time (error_told): there may be
 * many of them, and nobody who reads.
 *
 * A datagram that waits lies in chunks (chunk.h), not in the NIC's buffer. */
#include "netif.h"
#include "queue.h"
#include "../../runtime/csum_copy.h"
#include "../sched/sem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cl_udp_queue_open(struct cl_netif *nif, uint16_t port, bool shared, uint32_t size, struct cl_udp_socket **out)
{
    if (size > CL_UDP_MAX_SOCKET_QUEUE)
        return -EINVAL;
    struct cl_udp_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return -ENOMEM;
    queue->size = size ? size : CL_UDP_SOCKET_QUEUE;
    queue->ring = calloc(queue->size, sizeof *queue->ring);
    int rc = queue->ring ? cl_udp_publish_queue(nif, port, shared, queue, out) : -ENOMEM;
    if (rc < 0)
        cl_udp_queue_delete(queue);
    return rc;
}

/* Something has come: to a reader, and to who polls. Under the lock, which it lets go. The semaphore has its post
 * before the set lists the socket, or who is told of the socket would find nothing there; waking a kthread may take a
 * system call, and comes after the lock. */
static void note_arrival(struct cl_udp_socket *s, bool post)
{
    struct cl_uthread *reader = post ? cl_sem_give(&s->queue->filled) : NULL;
    struct cl_poll *set = cl_pollable_notify(&s->watch);
    if (s->queue->told_fn)
        s->queue->told_fn(s->queue->told_arg);
    cl_spin_unlock(&s->queue->lock);
    if (reader)
        cl_uthread_ready(reader);
    cl_poll_tell(set);
}

static unsigned refusal(const struct cl_udp_socket *s, uint16_t port, uint64_t from)
{
    uint64_t peer = cl_load_relaxed(&s->peer);
    if (s->kind != CL_UDP_QUEUE || s->port != port || (peer && peer != from))
        return CL_DROP_UDP_NO_PORT;
    return s->queue->count < s->queue->size ? CL_DROP_NONE : CL_DROP_UDP_QUEUE_FULL;
}

bool cl_udp_deliver(struct cl_netq *q, struct cl_udp_socket *s, const struct cl_rx_item *item, unsigned *reason)
{
    const struct cl_udp *udp = (const struct cl_udp *)(item->frame.data + item->l4);
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(item->frame.data + CL_ETH_HLEN);
    uint64_t from = cl_udp_flow(ip->src_be, udp->src_port_be);
    if (cl_load_relaxed(&s->kind) == CL_UDP_GROUP) /* which never changes */
        s = cl_udp_group_find(s->group, from);
    *reason = CL_DROP_UDP_NO_PORT;
    if (!s || !s->queue)
        return false;
    *reason = CL_DROP_UDP_QUEUE_FULL;
    struct cl_udp_queue *queue = s->queue;
    if (cl_load_relaxed(&queue->count) >= cl_load_relaxed(&queue->size)) /* a guess, that saves the copy */
        return false;
    *reason = CL_DROP_UDP_NO_CHUNK;
    struct cl_chunk *chunks = cl_chunks_copy(q->nif->chunks, q->index, CL_CHUNKS_UDP, udp + 1, item->payload_len);
    if (!chunks)
        return false;
    cl_spin_lock(&queue->lock);
    *reason = refusal(s, cl_be16(udp->dst_port_be), from);
    if (*reason == CL_DROP_NONE) {
        queue->ring[(queue->head + queue->count) % queue->size] =
            (struct cl_datagram){chunks, from, ip->dst_be, (uint16_t)item->payload_len, ip->ttl, ip->tos};
        cl_store_relaxed(&queue->count, queue->count + 1);
        note_arrival(s, true);
        return true;
    }
    cl_spin_unlock(&queue->lock);
    cl_chunks_free(q->nif->chunks, q->index, CL_CHUNKS_UDP, chunks);
    return false;
}

bool cl_udp_tell_error(struct cl_netif *nif, const struct cl_icmp_about *about)
{
    /* Acquire: as in parsed frames. */
    struct cl_udp_socket *s = cl_load_acquire(&nif->ports[about->src_port_be]);
    uint64_t peer = cl_udp_flow(about->dst_be, about->dst_port_be);
    if (s && cl_load_relaxed(&s->kind) == CL_UDP_GROUP)
        s = cl_udp_group_find(s->group, peer);
    if (!s || !s->queue)
        return false;
    cl_spin_lock(&s->queue->lock);
    if (s->kind != CL_UDP_QUEUE || s->port != cl_be16(about->src_port_be) || cl_load_relaxed(&s->peer) != peer ||
        !cl_load_relaxed(&s->has_sent)) {
        cl_spin_unlock(&s->queue->lock);
        return false;
    }
    cl_store_relaxed(&s->error, about->error);
    bool post = !s->queue->error_told;
    s->queue->error_told = true;
    note_arrival(s, post);
    return true;
}

/* The same as -errno. */
static int take_error(struct cl_udp_socket *s)
{
    return -cl_udp_take_error(s);
}

/* What a reader that had a post finds: 1 and the oldest datagram, the error that has come, -ESHUTDOWN: it is closed; 0:
 * nothing. */
static int queue_take(struct cl_udp_socket *s, struct cl_datagram *out)
{
    struct cl_udp_queue *queue = s->queue;
    cl_spin_lock(&queue->lock);
    int rc = s->kind == CL_UDP_QUEUE ? take_error(s) : -ESHUTDOWN;
    if (rc == 0 && queue->count) {
        *out = queue->ring[queue->head];
        queue->head = (queue->head + 1) % queue->size;
        cl_store_relaxed(&queue->count, queue->count - 1);
        rc = 1;
    } else {
        queue->error_told = false; /* the post was the error's, or there are as many as datagrams now */
    }
    cl_spin_unlock(&queue->lock);
    return rc;
}

/* Give back what waits. Under the lock, or nobody runs. */
static void empty(struct cl_udp_queue *queue, struct cl_netq *q)
{
    for (; queue->count; queue->head = (queue->head + 1) % queue->size) {
        cl_chunks_free(q->nif->chunks, q->index, CL_CHUNKS_UDP, queue->ring[queue->head].chunks);
        cl_store_relaxed(&queue->count, queue->count - 1);
    }
}

/* Take the socket out of the table. False: somebody else has closed it. */
static bool shut_one(struct cl_udp_socket *s, struct cl_netq *q)
{
    struct cl_netif *nif = s->nif;
    struct cl_udp_queue *queue = s->queue;
    cl_spin_lock(&nif->table_lock);
    cl_spin_lock(&queue->lock);
    bool open = s->kind == CL_UDP_QUEUE;
    cl_store_relaxed(&s->kind, CL_UDP_CLOSED); /* relaxed: as in cl_udp_queue_take_over */
    empty(queue, q);
    if (open) {
        cl_pollable_remove(&s->watch);
        queue->told_fn = NULL;
    }
    cl_spin_unlock(&queue->lock);
    if (open)
        cl_udp_unpublish(nif, s);
    cl_spin_unlock(&nif->table_lock);
    return open;
}

int cl_udp_close(struct cl_udp_socket *s)
{
    struct cl_netif *nif = s->nif;
    struct cl_udp_queue *queue = s->queue;
    struct cl_netq *q = cl_netq_self(nif);
    if (!q && cl_netif_running(nif))
        return -EPERM;
    if (!queue)
        return -EINVAL; /* a handler's port is bound for good */
    q = q ? q : &nif->queues[0];
    __atomic_fetch_add(&queue->readers, 1, __ATOMIC_ACQUIRE); /* not reused before we have posted */
    bool open = shut_one(s, q);
    if (open)
        cl_sem_post(&queue->filled); /* the first reader; it passes the post on */
    __atomic_fetch_sub(&queue->readers, 1, __ATOMIC_RELEASE);
    return open ? 0 : -EINVAL;
}

uint16_t cl_udp_port(const struct cl_udp_socket *s)
{
    return s->port;
}

static bool can_reach(const struct cl_netif *nif, uint32_t dst_be)
{
    return cl_ipv4_is_own(&nif->self, dst_be) ||
           (cl_be32(dst_be) < 0xe0000000u && cl_ipv4_next_hop(&nif->self, dst_be) != 0);
}

static int connect_alone(struct cl_udp_socket *s, uint64_t peer)
{
    cl_spin_lock(&s->queue->lock);
    bool open = s->kind == CL_UDP_QUEUE;
    if (open)
        cl_udp_queue_set_peer(s, peer);
    cl_spin_unlock(&s->queue->lock);
    return open ? 0 : -EINVAL;
}

int cl_udp_connect(struct cl_udp_socket *s, const struct cl_udp_addr *to)
{
    uint64_t peer = to ? cl_udp_flow(cl_be32(to->ipv4), cl_be16(to->port)) : 0;
    if (!s->queue || (to && (to->port == 0 || to->ipv4 == 0)))
        return -EINVAL;
    if (to && !can_reach(s->nif, cl_be32(to->ipv4)))
        return -EHOSTUNREACH;
    __atomic_fetch_add(&s->queue->readers, 1, __ATOMIC_ACQUIRE); /* not reused meanwhile */
    int rc = s->group ? cl_udp_group_move(s, peer) : connect_alone(s, peer);
    __atomic_fetch_sub(&s->queue->readers, 1, __ATOMIC_RELEASE);
    return rc;
}

static int64_t send_to(struct cl_udp_socket *s, const void *data, int64_t len, uint32_t dst_be, uint16_t port_be)
{
    struct cl_netif *nif = s->nif;
    struct cl_netq *q = cl_netq_self(nif);
    struct cl_frame f;
    int rc;
    if (!q)
        return -EPERM;
    if (len < 0 || port_be == 0)
        return -EINVAL;
    if (len > (int64_t)nif->mtu - CL_IPV4_HLEN - CL_UDP_HLEN)
        return -EMSGSIZE;
    if ((rc = take_error(s)))
        return rc;
    if (!cl_netq_take(q, &f))
        return -ENOBUFS;
    if (len > (int64_t)f.room - CL_UDP_HEADERS) {
        cl_netq_untake(q, &f);
        return -EMSGSIZE;
    }
    struct cl_udp_frame *frame = (struct cl_udp_frame *)f.data;
    static const uint8_t unresolved[6];
    bool summed = nif->udp_checksum && !cl_ipv4_is_own(&nif->self, dst_be);
    uint64_t sum = 0;
    if (summed)
        sum = cl_csum_copy(0, frame->payload, data, (size_t)len);
    else
        memcpy(frame->payload, data, (size_t)len);
    cl_udp_fill_summed(frame, unresolved, nif->self.mac, cl_ipv4_source(&nif->self, dst_be), dst_be, cl_be16(s->port),
                       port_be, (unsigned)len, summed, sum);
    f.len = (uint16_t)(CL_UDP_HEADERS + len);
    if (!cl_load_relaxed(&s->has_sent) && cl_load_relaxed(&s->peer) == cl_udp_flow(dst_be, port_be))
        cl_store_relaxed(&s->has_sent, 1); /* before it: a sibling may take in at once what is looped */
    rc = cl_netq_send_ip(q, &f, dst_be, cl_sched_now_ns(nif->sched), NULL);
    cl_netq_ring(q);
    if (rc < 0)
        return rc;
    cl_count(&q->stats.sent, 1);
    return len;
}

int64_t cl_udp_sendto(struct cl_udp_socket *s, const void *data, int64_t len, const struct cl_udp_addr *to)
{
    return send_to(s, data, len, cl_be32(to->ipv4), cl_be16(to->port));
}

int64_t cl_udp_send(struct cl_udp_socket *s, const void *data, int64_t len)
{
    uint64_t peer = cl_load_relaxed(&s->peer);
    if (!peer)
        return -EDESTADDRREQ;
    return send_to(s, data, len, (uint32_t)peer, (uint16_t)(peer >> 32));
}

/* Wait for a post. 0, -EAGAIN, -ETIMEDOUT, -EDEADLK. */
static int wait_filled(struct cl_udp_socket *s, int64_t timeout_ns, uint64_t deadline_ns)
{
    struct cl_sem *filled = &s->queue->filled;
    int rc = cl_sem_trywait(filled);
    if (rc == 0 || timeout_ns == 0)
        return rc;
    return cl_sem_wait_as(filled, timeout_ns < 0 ? UINT64_MAX : deadline_ns, CL_TRACE_WAITS_READ, s);
}

/* 1: a datagram; or what there is instead of one. */
static int receive(struct cl_udp_socket *s, struct cl_datagram *out, int64_t timeout_ns)
{
    uint64_t deadline_ns = timeout_ns > 0 ? cl_sched_now_ns(s->nif->sched) + (uint64_t)timeout_ns : 0;
    for (;;) {
        int rc = wait_filled(s, timeout_ns, deadline_ns);
        if (rc < 0)
            return rc;
        rc = queue_take(s, out);
        /* Acquire: pairs with the release in cl_udp_sockets_shut. */
        if (rc == 0 && cl_load_acquire(&s->nif->sockets_shut))
            rc = -ESHUTDOWN;
        if (rc == -ESHUTDOWN)
            cl_sem_post(&s->queue->filled); /* for the next reader */
        if (rc)
            return rc;
    }
}

static int64_t receive_one(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_origin *origin,
                           int64_t timeout_ns)
{
    struct cl_udp_queue *queue = s->queue;
    struct cl_datagram d = {0};
    if (!queue || room < 0)
        return -EINVAL;
    if (!cl_netq_self(s->nif))
        return -EPERM;
    __atomic_fetch_add(&queue->readers, 1, __ATOMIC_ACQUIRE);
    int rc = receive(s, &d, timeout_ns);
    __atomic_fetch_sub(&queue->readers, 1, __ATOMIC_RELEASE); /* release: our reads come before the reuse */
    if (rc < 0)
        return rc;
    cl_udp_origin_of(&d, origin);
    cl_chunks_read(d.chunks, data, (uint64_t)room);
    struct cl_netq *q = cl_netq_self(s->nif); /* looked up again: we may have slept */
    cl_chunks_free(q->nif->chunks, q->index, CL_CHUNKS_UDP, d.chunks);
    return d.len;
}

int64_t cl_udp_recvfrom(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_addr *from, int64_t timeout_ns)
{
    struct cl_udp_origin origin;
    int64_t rc = receive_one(s, data, room, &origin, timeout_ns);
    if (rc >= 0 && from)
        *from = origin.from;
    return rc;
}

int64_t cl_udp_receive(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_origin *origin)
{
    struct cl_udp_origin unwanted;
    return receive_one(s, data, room, origin ? origin : &unwanted, 0);
}

int cl_poll_add(struct cl_poll *set, struct cl_udp_socket *s, uint32_t how, uint64_t data)
{
    struct cl_poll *tell_set = NULL;
    if (!s->queue || how > CL_POLL_EDGE || s->nif != cl_poll_netif(set))
        return -EINVAL;
    cl_spin_lock(&s->queue->lock);
    int rc = s->kind == CL_UDP_QUEUE ? cl_pollable_add(&s->watch, set, how, data) : -EINVAL;
    if (rc == 0 && cl_udp_ready(&s->watch))
        tell_set = cl_pollable_notify(&s->watch);
    cl_spin_unlock(&s->queue->lock);
    cl_poll_tell(tell_set);
    return rc;
}

int cl_poll_remove(struct cl_poll *set, struct cl_udp_socket *s)
{
    int rc = -ENOENT;
    if (!s->queue)
        return rc;
    cl_spin_lock(&s->queue->lock);
    if (s->watch.set == set) {
        cl_pollable_remove(&s->watch);
        rc = 0;
    }
    cl_spin_unlock(&s->queue->lock);
    return rc;
}

void cl_udp_sockets_shut(struct cl_netif *nif)
{
    cl_store_release(&nif->sockets_shut, 1); /* release: whoever is told below sees it */
    cl_fence_seq_cst();                      /* a first connection made just now: who waits for it finds the flag */
    struct cl_connections *tcp = cl_load_acquire(&nif->tcp);
    if (tcp)
        tcp->shut(nif);
    cl_spin_lock(&nif->table_lock);
    for (unsigned i = 0; i < nif->n_sockets; i++) {
        struct cl_udp_socket *s = nif->all[i];
        if (!s->queue)
            continue;
        cl_spin_lock(&s->queue->lock);
        if (s->kind == CL_UDP_QUEUE)
            note_arrival(s, true);
        else
            cl_spin_unlock(&s->queue->lock);
    }
    cl_polls_shut(nif);
    cl_spin_unlock(&nif->table_lock);
}

void cl_udp_sockets_drain(struct cl_netif *nif)
{
    for (unsigned i = 0; i < nif->n_sockets; i++)
        if (nif->all[i]->queue)
            empty(nif->all[i]->queue, &nif->queues[0]);
}
