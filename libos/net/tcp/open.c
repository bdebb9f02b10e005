/* Connections that are opened from here. See net.h. */
#include <corelane/libos/stream.h>
#include "net.h"
#include "ports.h"

#include <errno.h>

#define PORTS_TRIED 64 /* of all who connect, one after the other; then, if it is worth it, all */
#define PORTS_AGAIN_NS 100000000ull

/* Enter a block under its key, if nobody has that. */
static bool enter_as(struct cl_tcp_net *net, struct cl_tcp_block *b)
{
    b->flow.hash = (uint32_t)cl_flow_hash_in(&net->table.secret, &b->flow.key);
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    cl_flow_lock(&net->table, bucket);
    bool is_free = !cl_flow_find(bucket, &b->flow.key);
    if (is_free)
        cl_flow_enter(bucket, &b->flow);
    cl_flow_unlock(&net->table, bucket);
    return is_free;
}

/* Enter a block under the n-th port, if it is free and nobody listens there. */
static bool enter_at(struct cl_tcp_net *net, struct cl_tcp_block *b, uint32_t n, uint32_t from, uint32_t ports)
{
    struct cl_flow_key *key = &b->flow.key;
    key->own_port_be = cl_be16(cl_tcp_port_for(&net->port_secret, key, n, from, ports));
    return !cl_load_relaxed(&net->listeners[key->own_port_be]) && enter_as(net, b);
}

/* Enter a block under a free port of ours. Where nearly all are taken one is found by a look at all of them, which
 * takes some ms; so if there was none it is a while until somebody looks again. */
static bool enter(struct cl_tcp_net *net, struct cl_tcp_block *b, uint64_t now_ns)
{
    const struct cl_netif *nif = net->nif;
    uint32_t from = nif->is_member ? nif->own_first : CL_TCP_FIRST_PORT, n = 0;
    uint32_t ports = nif->is_member ? nif->own_last - nif->own_first + 1u : CL_TCP_PORTS;
    for (uint32_t i = 0; i < PORTS_TRIED; i++) {
        n = __atomic_fetch_add(&net->next_port, 1, __ATOMIC_RELAXED); /* a number */
        if (enter_at(net, b, n, from, ports))
            return true;
    }
    if (now_ns < cl_load_relaxed(&net->no_port_until_ns)) /* relaxed: a hint */
        return false;
    for (uint32_t i = 1; i <= ports; i++)
        if (enter_at(net, b, n + i, from, ports))
            return true;
    cl_store_relaxed(&net->no_port_until_ns, now_ns + PORTS_AGAIN_NS);
    return false;
}

/* The ends of a new connection, as far as they are known. */
static int key_for(const struct cl_netif *nif, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                   struct cl_flow_key *key)
{
    uint32_t peer_be = cl_be32(to->ipv4), own_be = from ? cl_be32(from->ipv4) : 0;
    if (to->port == 0 || to->ipv4 == 0)
        return -EINVAL;
    if (!cl_ipv4_is_own(&nif->self, peer_be) && (to->ipv4 >= 0xe0000000u || !cl_ipv4_next_hop(&nif->self, peer_be)))
        return -EHOSTUNREACH;
    if (own_be && !cl_ipv4_is_own(&nif->self, own_be))
        return -EADDRNOTAVAIL;
    *key = (struct cl_flow_key){.peer_be = peer_be,
                                .own_be = own_be ? own_be : cl_ipv4_source(&nif->self, peer_be),
                                .peer_port_be = cl_be16(to->port),
                                .own_port_be = from ? cl_be16(from->port) : 0,
                                .protocol = CL_IPPROTO_TCP};
    return 0;
}

int cl_tcp_open_from(struct cl_netif *nif, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                     const struct cl_tcp_events *events, void *arg, void (*made)(struct cl_tcp_conn *c, void *arg))
{
    struct cl_flow_key key;
    if (!cl_netq_self(nif))
        return -EPERM;
    int rc = key_for(nif, from, to, &key);
    if (rc || (rc = cl_tcp_ensure(nif)))
        return rc;
    struct cl_tcp_net *net = cl_tcp_net_of(nif);
    struct cl_tcp_flow_turn t;
    cl_tcp_turn_on(net, &t);
    struct cl_tcp_block *b = cl_tcp_block_new(&t, &key, 0, &net->stack.settings);
    if (!b)
        return -ENOBUFS;
    b->flow.state = CL_FLOW_RUNNING; /* ours from the moment that others can find it */
    if (!(key.own_port_be ? enter_as(net, b) : enter(net, b, t.turn.now_ns))) {
        cl_tcp_block_unmake(net, t.turn.kthread, b);
        return key.own_port_be ? -EADDRINUSE : -EADDRNOTAVAIL;
    }
    cl_tcp_init(&b->conn, &t.turn, &b->flow.key, &net->stack.settings); /* its port is known now */
    cl_tcp_connect(&b->conn, events, arg);
    if (made)
        made(&b->conn, arg);
    (void)cl_tcp_finish(&b->conn); /* a SYN leaves, or is tried again: it lives */
    cl_tcp_turn_let_go(&t, b, 0);
    cl_netq_ring(t.q);
    return 0;
}

int cl_tcp_open(struct cl_netif *nif, uint32_t ipv4, uint16_t port, const struct cl_tcp_events *events, void *arg)
{
    struct cl_tcp_addr to = {ipv4, port, 0};
    return events ? cl_tcp_open_from(nif, NULL, &to, events, arg, NULL) : -EINVAL;
}

const struct cl_flow *cl_tcp_flow(const struct cl_tcp_conn *c)
{
    return &cl_container_of(c, const struct cl_tcp_block, conn)->flow;
}

void cl_tcp_ends(const struct cl_tcp_conn *c, uint32_t *peer, uint16_t *peer_port, uint16_t *own_port)
{
    const struct cl_flow_key *key = &cl_container_of(c, const struct cl_tcp_block, conn)->flow.key;
    *peer = cl_be32(key->peer_be);
    *peer_port = cl_be16(key->peer_port_be);
    *own_port = cl_be16(key->own_port_be);
}

void cl_tcp_addresses(const struct cl_tcp_conn *c, struct cl_tcp_addr *own, struct cl_tcp_addr *peer)
{
    const struct cl_flow_key *key = &cl_tcp_flow(c)->key;
    *own = (struct cl_tcp_addr){cl_be32(key->own_be), cl_be16(key->own_port_be), 0};
    *peer = (struct cl_tcp_addr){cl_be32(key->peer_be), cl_be16(key->peer_port_be), 0};
}
