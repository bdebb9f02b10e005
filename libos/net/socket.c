/* UDP sockets: the table of ports, and sockets with a queue that uthreads read.
 *
 * A socket's memory is never freed while its interface exists, only reused, so that the receive path may follow a
 * pointer from the table without a reference: it takes the queue's lock and checks whether the socket is still what the
 * frame was for.
 *
 * Queue: a ring of datagrams behind a lock, and a semaphore that counts them (sync.h), so that readers are served in
 * order of arrival. Closing posts once more, and so does the end of the runtime; each reader that finds no datagram
 * behind its post passes it on. */
#include "netif.h"
#include <corelane/libos/sync.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cl_udp_queue {
    struct cl_spin lock; /* of the ring, and of the socket's kind */
    uint32_t size;       /* datagrams at most */
    uint32_t head, count;
    uint32_t readers; /* inside recvfrom, close, or about to post; the socket is reused when none is */
    struct cl_sem filled;
    struct cl_rx_item *items;
};

/* Under table_lock: a socket to fill in, new or recycled. Recycled are sockets with a queue, for another queue: whoever
 * still has a pointer to one asks the queue first (cl_udp_deliver), while a handler would just be called. */
static struct cl_udp_socket *socket_new(struct cl_netif *nif, bool queued)
{
    struct cl_udp_socket **at = &nif->free_sockets;
    for (; queued && *at; at = &(*at)->next_free) {
        struct cl_udp_socket *s = *at;
        if (cl_load_acquire(&s->queue->readers) == 0) { /* acquire: the last reader has left */
            *at = s->next_free;
            return s;
        }
    }
    if (nif->n_sockets == CL_UDP_MAX_SOCKETS)
        return NULL;
    struct cl_udp_socket *s = calloc(1, sizeof *s);
    if (s)
        nif->all[nif->n_sockets++] = s;
    return s;
}

static void queue_delete(struct cl_udp_queue *queue)
{
    if (queue)
        free(queue->items);
    free(queue);
}

/* Under table_lock: port 0 means any free one. 0: none. */
static uint16_t choose_port(struct cl_netif *nif, uint16_t port)
{
    if (port)
        return nif->ports[cl_be16(port)] ? 0 : port;
    for (unsigned tries = 0; tries < 65536 - 49152; tries++) {
        port = nif->next_ephemeral;
        nif->next_ephemeral = port == 65535 ? 49152 : (uint16_t)(port + 1);
        if (!nif->ports[cl_be16(port)])
            return port;
    }
    return 0;
}

/* Under table_lock. A recycled socket keeps its queue object, since a late frame may be at its lock, and gets a new
 * ring. */
static void fill_in(struct cl_netif *nif, struct cl_udp_socket *s, uint16_t port, const struct cl_udp_socket *fields,
                    struct cl_udp_queue *queue)
{
    struct cl_udp_queue *old = s->queue;
    if (!old) {
        *s = *fields;
        s->port = port;
        s->nif = nif;
        s->queue = queue;
        return;
    }
    cl_spin_lock(&old->lock);
    struct cl_rx_item *items = old->items;
    old->items = queue->items;
    old->size = queue->size;
    old->head = old->count = 0;
    cl_sem_init(&old->filled, 0);
    s->port = port;
    cl_store_relaxed(&s->kind, CL_UDP_QUEUE); /* relaxed: who acts on it re-checks under the lock */
    cl_spin_unlock(&old->lock);
    free(items);
    free(queue);
}

/* Enter a socket into the table. The fields are written before it can be found (release). */
static int publish(struct cl_netif *nif, uint16_t port, const struct cl_udp_socket *fields, struct cl_udp_queue *queue,
                   struct cl_udp_socket **out)
{
    int rc = 0;
    cl_spin_lock(&nif->table_lock);
    uint16_t chosen = choose_port(nif, port);
    struct cl_udp_socket *s = chosen ? socket_new(nif, queue != NULL) : NULL;
    if (!chosen) {
        rc = -EADDRINUSE;
    } else if (!s) {
        rc = nif->n_sockets == CL_UDP_MAX_SOCKETS ? -EMFILE : -ENOMEM;
    } else {
        fill_in(nif, s, chosen, fields, queue);
        cl_store_release(&nif->ports[cl_be16(chosen)], s);
        *out = s;
    }
    cl_spin_unlock(&nif->table_lock);
    return rc;
}

int cl_udp_bind(struct cl_netif *nif, uint16_t port, unsigned kind, void (*fn)(void), void *arg)
{
    struct cl_udp_socket fields = {.kind = (uint16_t)kind, .arg = arg}, *s;
    if (port == 0 || !fn)
        return -EINVAL;
    if (kind == CL_UDP_PLAIN || kind == CL_UDP_ORDERED)
        fields.fn.plain = (cl_udp_handler)fn;
    else
        fields.fn.burst = (cl_udp_burst_handler)fn;
    return publish(nif, port, &fields, NULL, &s);
}

int cl_udp_name(struct cl_netif *nif, uint16_t port, const char *name)
{
    struct cl_udp_socket *s = cl_load_acquire(&nif->ports[cl_be16(port)]);
    char *copy = s ? strdup(name) : NULL, *none = NULL;
    if (!copy)
        return s ? -ENOMEM : -ENOENT;
    if (__atomic_compare_exchange_n(&s->name, &none, copy, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return 0;
    free(copy);
    return -EALREADY;
}

int cl_udp_publish_typed(struct cl_netif *nif, uint16_t port, cl_udp_handler fn, void *arg,
                         const struct cl_udp_types *types, uint16_t first_type)
{
    struct cl_udp_socket *s, fields = {.kind = CL_UDP_TYPED,
                                       .first_type = first_type,
                                       .n_types = (uint16_t)types->n,
                                       .fn.plain = fn,
                                       .arg = arg,
                                       .classify = types->classify,
                                       .classify_arg = types->arg};
    return port && fn ? publish(nif, port, &fields, NULL, &s) : -EINVAL;
}

int cl_udp_queue_open(struct cl_netif *nif, uint16_t port, uint32_t size, struct cl_udp_socket **out)
{
    struct cl_udp_socket fields = {.kind = CL_UDP_QUEUE};
    if (size > CL_UDP_MAX_SOCKET_QUEUE)
        return -EINVAL;
    struct cl_udp_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return -ENOMEM;
    queue->size = size ? size : CL_UDP_SOCKET_QUEUE;
    queue->items = calloc(queue->size, sizeof *queue->items);
    int rc = queue->items ? publish(nif, port, &fields, queue, out) : -ENOMEM;
    if (rc < 0)
        queue_delete(queue);
    return rc;
}

bool cl_udp_deliver(struct cl_udp_socket *s, const struct cl_rx_item *item, unsigned *reason)
{
    struct cl_udp_queue *queue = s->queue;
    const struct cl_udp *udp = (const struct cl_udp *)(item->frame.data + item->l4);
    bool taken = false;
    *reason = CL_DROP_UDP_NO_PORT;
    if (!queue)
        return false;
    cl_spin_lock(&queue->lock);
    if (s->kind == CL_UDP_QUEUE && cl_be16(udp->dst_port_be) == s->port) {
        *reason = CL_DROP_UDP_QUEUE_FULL;
        if (queue->count < queue->size) {
            queue->items[(queue->head + queue->count++) % queue->size] = *item;
            /* A reader until it has posted, for the post must not count in the socket's next life. Relaxed: the lock
             * orders it before the close, and so before the check of socket_new. */
            __atomic_fetch_add(&queue->readers, 1, __ATOMIC_RELAXED);
            taken = true;
        }
    }
    cl_spin_unlock(&queue->lock);
    if (taken) {
        cl_sem_post(&queue->filled); /* without the lock: waking a kthread may take a system call */
        __atomic_fetch_sub(&queue->readers, 1, __ATOMIC_RELEASE); /* release: the post comes before the reuse */
    }
    return taken;
}

/* Take the oldest datagram. False: there is none, or the socket is closed (*closed). */
static bool queue_take(struct cl_udp_socket *s, struct cl_rx_item *item, bool *closed)
{
    struct cl_udp_queue *queue = s->queue;
    cl_spin_lock(&queue->lock);
    *closed = s->kind != CL_UDP_QUEUE;
    bool found = !*closed && queue->count;
    if (found) {
        *item = queue->items[queue->head];
        queue->head = (queue->head + 1) % queue->size;
        queue->count--;
    }
    cl_spin_unlock(&queue->lock);
    return found;
}

/* Give back what waits, and take the socket out of the table. False: somebody else has closed it. */
static bool unpublish(struct cl_udp_socket *s, struct cl_netq *q)
{
    struct cl_netif *nif = s->nif;
    struct cl_udp_queue *queue = s->queue;
    cl_spin_lock(&nif->table_lock);
    cl_spin_lock(&queue->lock);
    bool open = s->kind == CL_UDP_QUEUE;
    cl_store_relaxed(&s->kind, CL_UDP_CLOSED); /* relaxed: as in fill_in */
    for (; open && queue->count; queue->count--, queue->head = (queue->head + 1) % queue->size)
        cl_netq_done(q, &queue->items[queue->head].frame);
    cl_spin_unlock(&queue->lock);
    if (open) {
        cl_store_release(&nif->ports[cl_be16(s->port)], NULL); /* release: for symmetry; a late finder checks kind */
        s->next_free = nif->free_sockets;
        nif->free_sockets = s;
    }
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
    bool open = unpublish(s, q);
    if (open)
        cl_sem_post(&queue->filled); /* the first reader; it passes the post on */
    __atomic_fetch_sub(&queue->readers, 1, __ATOMIC_RELEASE);
    cl_netq_ring(q);
    return open ? 0 : -EINVAL;
}

uint16_t cl_udp_port(const struct cl_udp_socket *s)
{
    return s->port;
}

int64_t cl_udp_sendto(struct cl_udp_socket *s, const void *data, int64_t len, const struct cl_udp_addr *to)
{
    struct cl_netif *nif = s->nif;
    struct cl_netq *q = cl_netq_self(nif);
    struct cl_frame f;
    if (!q)
        return -EPERM;
    if (len < 0 || to->port == 0)
        return -EINVAL;
    if (len > (int64_t)nif->mtu - CL_IPV4_HLEN - CL_UDP_HLEN)
        return -EMSGSIZE;
    if (!cl_netq_take(q, &f))
        return -ENOBUFS;
    if (len > (int64_t)f.room - CL_UDP_HEADERS) {
        cl_netq_untake(q, &f);
        return -EMSGSIZE;
    }
    struct cl_udp_frame *frame = (struct cl_udp_frame *)f.data;
    static const uint8_t unresolved[6];
    memcpy(frame->payload, data, (size_t)len);
    cl_udp_fill(frame, unresolved, nif->self.mac, nif->self.ip_be, cl_be32(to->ipv4), cl_be16(s->port),
                cl_be16(to->port), (unsigned)len, nif->udp_checksum);
    f.len = (uint16_t)(CL_UDP_HEADERS + len);
    int rc = cl_netq_send_ip(q, &f, frame->ip.dst_be);
    cl_netq_ring(q);
    if (rc < 0)
        return rc;
    cl_count(&q->stats.sent, 1);
    return len;
}

/* Wait for a datagram or the close. 0, -EAGAIN, -ETIMEDOUT, -EDEADLK. */
static int wait_filled(struct cl_udp_socket *s, int64_t timeout_ns)
{
    struct cl_sem *filled = &s->queue->filled;
    int rc = cl_sem_trywait(filled);
    if (rc == 0 || timeout_ns == 0)
        return rc;
    if (timeout_ns < 0)
        return cl_sem_wait(filled);
    return cl_sem_wait_until(filled, cl_sched_now_ns(s->nif->sched) + (uint64_t)timeout_ns);
}

int64_t cl_udp_recvfrom(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_addr *from, int64_t timeout_ns)
{
    struct cl_udp_queue *queue = s->queue;
    struct cl_rx_item item = {0};
    bool closed = false;
    if (!queue || room < 0)
        return -EINVAL;
    if (!cl_netq_self(s->nif))
        return -EPERM;
    __atomic_fetch_add(&queue->readers, 1, __ATOMIC_ACQUIRE);
    int64_t rc = wait_filled(s, timeout_ns);
    if (rc == 0 && !queue_take(s, &item, &closed)) { /* a post without a datagram is that of the close */
        cl_sem_post(&queue->filled);
        rc = -ESHUTDOWN;
    }
    __atomic_fetch_sub(&queue->readers, 1, __ATOMIC_RELEASE); /* release: our reads come before the reuse */
    if (rc < 0)
        return rc;
    const uint8_t *frame = item.frame.data;
    const struct cl_udp *udp = (const struct cl_udp *)(frame + item.l4);
    if (from)
        *from = (struct cl_udp_addr){cl_be32(((const struct cl_ipv4 *)(frame + CL_ETH_HLEN))->src_be),
                                     cl_be16(udp->src_port_be), 0};
    memcpy(data, udp + 1, (size_t)cl_min(room, (int64_t)item.payload_len));
    cl_netq_done(cl_netq_self(s->nif), &item.frame); /* looked up again: we may have slept */
    return item.payload_len;
}

void cl_udp_sockets_shut(struct cl_netif *nif)
{
    cl_spin_lock(&nif->table_lock);
    for (unsigned i = 0; i < nif->n_sockets; i++) {
        struct cl_udp_socket *s = nif->all[i];
        if (s->queue && nif->ports[cl_be16(s->port)] == s)
            cl_sem_post(&s->queue->filled);
    }
    cl_spin_unlock(&nif->table_lock);
}

void cl_udp_sockets_drain(struct cl_netif *nif)
{
    struct cl_netq *q = &nif->queues[0];
    for (unsigned i = 0; i < nif->n_sockets; i++) {
        struct cl_udp_queue *queue = nif->all[i]->queue;
        for (; queue && queue->count; queue->count--, queue->head = (queue->head + 1) % queue->size)
            cl_netq_done(q, &queue->items[queue->head].frame);
    }
}

void cl_udp_sockets_delete(struct cl_netif *nif)
{
    for (unsigned i = 0; i < nif->n_sockets; i++) {
        queue_delete(nif->all[i]->queue);
        free(nif->all[i]->name);
        free(nif->all[i]);
    }
}
