/* UDP ports: who has one, alone or with others.
 *
 * A socket's memory is never freed while its interface exists, only reused, so that the receive path may follow a
 * pointer from the table without a reference: it takes the queue's lock and checks whether the socket is still what the
 * frame was for. The same holds for a group, the entry of a port that several sockets share.
 *
 * A group knows its sockets by what they are connected to. A datagram goes to the socket that is connected to its peer,
 * else to one of those that are connected to nobody, chosen by its flow: all datagrams of a flow go to one socket for
 * as long as the sockets stay the same.
 *
 * Locks: table_lock, then a group's, then a queue's. */
#include "netif.h"
#include "queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256 /* of a group's connected sockets */

struct cl_udp_group {
    struct cl_spin lock;
    const struct cl_flow_secret *secret; /* constant */
    uint32_t n_sockets;                  /* under table_lock */
    uint32_t n_open;
    struct cl_udp_socket *open[CL_UDP_MAX_SOCKETS]; /* connected to nobody */
    struct cl_udp_socket *flows[BUCKETS];
};

/* Spread of flows over buckets and sockets, by the upper bits and the lower ones. Secret: no peer can choose ports that
 * meet in one bucket, or at one socket. */
static uint64_t spread(const struct cl_udp_group *g, uint64_t flow)
{
    struct cl_flow_key key = {
        .peer_be = (uint32_t)flow, .peer_port_be = (uint16_t)(flow >> 32), .protocol = CL_IPPROTO_UDP};
    return cl_flow_hash(g->secret, &key);
}

static struct cl_udp_socket **flow_at(struct cl_udp_group *g, uint64_t flow, uint64_t hash)
{
    struct cl_udp_socket **at = &g->flows[hash % BUCKETS];
    while (*at && (*at)->peer != flow)
        at = &(*at)->next_flow;
    return at;
}

struct cl_udp_socket *cl_udp_group_find(struct cl_udp_group *g, uint64_t flow)
{
    uint64_t hash = spread(g, flow);
    cl_spin_lock(&g->lock);
    struct cl_udp_socket *s = *flow_at(g, flow, hash);
    if (!s && g->n_open)
        s = g->open[cl_rss_queue((uint32_t)(hash >> 32), g->n_open)];
    cl_spin_unlock(&g->lock);
    return s;
}

/* Under the group's lock. */
static void group_leave(struct cl_udp_group *g, struct cl_udp_socket *s)
{
    if (s->peer) {
        struct cl_udp_socket **at = flow_at(g, s->peer, spread(g, s->peer));
        if (*at == s)
            *at = s->next_flow;
        return;
    }
    for (uint32_t i = 0; i < g->n_open; i++)
        if (g->open[i] == s) {
            g->open[i] = g->open[--g->n_open];
            return;
        }
}

static int group_enter(struct cl_udp_group *g, struct cl_udp_socket *s, uint64_t peer)
{
    if (!peer) {
        g->open[g->n_open++] = s;
        return 0;
    }
    struct cl_udp_socket **at = flow_at(g, peer, spread(g, peer));
    if (*at)
        return -EADDRINUSE;
    s->next_flow = NULL;
    *at = s;
    return 0;
}

int cl_udp_group_move(struct cl_udp_socket *s, uint64_t peer)
{
    struct cl_udp_group *g = s->group;
    cl_spin_lock(&g->lock);
    cl_spin_lock(&s->queue->lock);              /* both in one step: where it is in the group follows from its peer */
    int rc = cl_udp_is_queued(s) ? 0 : -EINVAL; /* closed: it has left the group, or is about to */
    if (rc == 0 && peer != s->peer) {
        uint64_t before = s->peer;
        group_leave(g, s);
        rc = group_enter(g, s, peer);
        if (rc)
            group_enter(g, s, before); /* where it was there is room */
    }
    if (rc == 0)
        cl_udp_queue_set_peer(s, peer);
    cl_spin_unlock(&s->queue->lock);
    cl_spin_unlock(&g->lock);
    return rc;
}

/* Under table_lock: a socket to fill in, new or recycled. Recycled are sockets with a queue, for another queue: whoever
 * still has a pointer to one asks the queue first (cl_udp_deliver), while a handler would just be called. */
static struct cl_udp_socket *socket_new(struct cl_netif *nif, bool queued)
{
    struct cl_udp_socket **at = &nif->free_sockets;
    for (; queued && *at; at = &(*at)->next_free) {
        struct cl_udp_socket *s = *at;
        if (cl_udp_queue_unused(s->queue)) {
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

/* Under table_lock: port 0 means any free one. 0: none. */
static uint16_t choose_port(struct cl_netif *nif, uint16_t port, bool shared)
{
    if (port) {
        const struct cl_udp_socket *there = nif->ports[cl_be16(port)];
        return there && !(shared && there->kind == CL_UDP_GROUP) ? 0 : port;
    }
    for (unsigned tries = nif->own_last - nif->own_first + 1u; tries > 0; tries--) {
        port = nif->next_ephemeral;
        nif->next_ephemeral = port == nif->own_last ? nif->own_first : (uint16_t)(port + 1);
        if (!nif->ports[cl_be16(port)])
            return port;
    }
    return 0;
}

static int too_many(const struct cl_netif *nif)
{
    return nif->n_sockets == CL_UDP_MAX_SOCKETS ? -EMFILE : -ENOMEM;
}

/* Under table_lock. Enter a handler's socket into the table; its fields are written before it can be found
 * (release). */
static int publish_locked(struct cl_netif *nif, uint16_t port, const struct cl_udp_socket *fields)
{
    if (!choose_port(nif, port, false))
        return -EADDRINUSE;
    struct cl_udp_socket *s = socket_new(nif, false);
    if (!s)
        return too_many(nif);
    *s = *fields;
    s->port = port;
    s->nif = nif;
    cl_store_release(&nif->ports[cl_be16(port)], s);
    return 0;
}

static int publish(struct cl_netif *nif, uint16_t port, struct cl_udp_socket *fields)
{
    fields->service = cl_trace_service_of(nif->trace, CL_TRACE_UDP, port);
    cl_spin_lock(&nif->table_lock);
    int rc = publish_locked(nif, port, fields);
    cl_spin_unlock(&nif->table_lock);
    return rc;
}

int cl_udp_bind(struct cl_netif *nif, uint16_t port, unsigned kind, void (*fn)(void), void *arg)
{
    struct cl_udp_socket fields = {.kind = (uint16_t)kind, .arg = arg};
    if (port == 0 || !fn)
        return -EINVAL;
    if (kind == CL_UDP_PLAIN || kind == CL_UDP_ORDERED)
        fields.fn.plain = (cl_udp_handler)fn;
    else
        fields.fn.burst = (cl_udp_burst_handler)fn;
    return publish(nif, port, &fields);
}

int cl_udp_publish_typed(struct cl_netif *nif, uint16_t port, cl_udp_handler fn, void *arg,
                         const struct cl_udp_types *types, uint16_t first_type)
{
    struct cl_udp_socket fields = {.kind = CL_UDP_TYPED,
                                   .first_type = first_type,
                                   .n_types = (uint16_t)types->n,
                                   .fn.plain = fn,
                                   .arg = arg,
                                   .classify = types->classify,
                                   .classify_arg = types->arg};
    return port && fn ? publish(nif, port, &fields) : -EINVAL;
}

int cl_udp_publish_batched(struct cl_netif *nif, uint16_t port, cl_udp_burst_handler fn, void *arg, bool foreign,
                           struct cl_batched *batched)
{
    struct cl_udp_socket fields = {
        .kind = CL_UDP_BATCHES, .fn.burst = fn, .arg = arg, .foreign = foreign, .batched = batched};
    return publish(nif, port, &fields);
}

/* Under table_lock: the entry of a port that is shared, which may be there already. NULL: no memory. */
static struct cl_udp_socket *group_of(struct cl_netif *nif, uint16_t port)
{
    struct cl_udp_socket *entry = nif->ports[cl_be16(port)];
    if (entry)
        return entry;
    entry = nif->free_groups;
    if (entry) {
        nif->free_groups = entry->next_free;
    } else {
        entry = socket_new(nif, false);
        if (entry && !(entry->group = calloc(1, sizeof *entry->group))) {
            nif->n_sockets--;
            free(entry);
            entry = NULL;
        }
        if (!entry)
            return NULL;
        entry->group->secret = &nif->secret;
        entry->kind = CL_UDP_GROUP;
        entry->nif = nif;
    }
    entry->port = port;
    cl_store_release(&nif->ports[cl_be16(port)], entry); /* release: its fields, as of any */
    return entry;
}

/* Under table_lock: nobody shares the port any more. */
static void group_over(struct cl_netif *nif, struct cl_udp_socket *entry)
{
    cl_store_release(&nif->ports[cl_be16(entry->port)], NULL);
    entry->next_free = nif->free_groups;
    nif->free_groups = entry;
}

/* Under table_lock. */
static int publish_queue(struct cl_netif *nif, uint16_t port, bool shared, struct cl_udp_queue *queue,
                         struct cl_udp_socket **out)
{
    uint16_t chosen = choose_port(nif, port, shared);
    if (!chosen)
        return -EADDRINUSE;
    struct cl_udp_socket *entry = shared ? group_of(nif, chosen) : NULL;
    if (shared && !entry)
        return too_many(nif);
    struct cl_udp_group *g = shared ? entry->group : NULL;
    struct cl_udp_socket *s = socket_new(nif, true);
    if (!s) {
        if (g && !g->n_sockets)
            group_over(nif, entry);
        return too_many(nif);
    }
    if (!s->nif)
        s->nif = nif;
    cl_udp_queue_take_over(s, queue, chosen, g);
    *out = s;
    if (!g) {
        cl_store_release(&nif->ports[cl_be16(chosen)], s); /* release: its fields */
        return 0;
    }
    g->n_sockets++;
    cl_spin_lock(&g->lock);
    group_enter(g, s, 0);
    cl_spin_unlock(&g->lock);
    return 0;
}

int cl_udp_publish_queue(struct cl_netif *nif, uint16_t port, bool shared, struct cl_udp_queue *queue,
                         struct cl_udp_socket **out)
{
    cl_spin_lock(&nif->table_lock);
    int rc = publish_queue(nif, port, shared, queue, out);
    cl_spin_unlock(&nif->table_lock);
    return rc;
}

void cl_udp_unpublish(struct cl_netif *nif, struct cl_udp_socket *s)
{
    struct cl_udp_socket *entry = nif->ports[cl_be16(s->port)];
    struct cl_udp_group *g = s->group;
    if (g) {
        cl_spin_lock(&g->lock);
        group_leave(g, s);
        cl_spin_unlock(&g->lock);
        if (--g->n_sockets == 0)
            group_over(nif, entry);
    } else {
        cl_store_release(&nif->ports[cl_be16(s->port)], NULL); /* release: for symmetry; a late finder checks kind */
    }
    s->next_free = nif->free_sockets;
    nif->free_sockets = s;
}

void cl_udp_ports_delete(struct cl_netif *nif)
{
    for (unsigned i = 0; i < nif->n_sockets; i++) {
        struct cl_udp_socket *s = nif->all[i];
        cl_udp_queue_delete(s->queue);
        if (s->kind == CL_UDP_GROUP)
            free(s->group);
        free(s);
    }
}
