/* A runtime's connections: the state machine (conn.h) on flows (../flow.h), alarms and a NIC. See net.h. */
#ifndef CORELANE_LIBOS_NET_TCP_FLOWS_H
#define CORELANE_LIBOS_NET_TCP_FLOWS_H

#include "../netif.h"
#include "listen.h"

/* corelane/libos/tcp.h says what they do, of a runtime. */
int cl_tcp_listen_on(struct cl_netif *nif, uint16_t port, uint32_t backlog, const struct cl_tcp_events *events,
                     void *arg);
int cl_tcp_unlisten(struct cl_netif *nif, uint16_t port);
int cl_tcp_open(struct cl_netif *nif, uint32_t ipv4, uint16_t port, const struct cl_tcp_events *events, void *arg);
int cl_tcp_set_congestion(struct cl_netif *nif, const char *rule, uint32_t ecn);
int cl_tcp_set_keep_alive(struct cl_netif *nif, uint32_t idle_ms, uint32_t interval_ms, uint32_t probes);
void cl_tcp_count(const struct cl_netif *nif, struct cl_tcp_counts *out);

/* A lease comes back (corelane/libos/lease.h): on a kthread, or while none runs from one thread at a time. */
void cl_tcp_take_lease(struct cl_netif *nif, struct cl_lease *lease);

/* For stream sockets (sockets.h). */
struct cl_tcp_addr;
/* Have connections, from now on. -ENOMEM. */
int cl_tcp_ensure(struct cl_netif *nif);
const struct cl_tcp_settings *cl_tcp_default_settings(struct cl_netif *nif);
/* Take connections to a port by a listener that `accepts`, and whose memory stays until the interface is deleted; and
 * no more. -EADDRINUSE. */
int cl_tcp_publish(struct cl_netif *nif, uint16_t port, struct cl_tcp_listener *l);
void cl_tcp_unpublish(struct cl_netif *nif, uint16_t port);
/* As cl_tcp_open, from an own end (NULL, or 0: any). `made` is called when its ends are known, and nobody else can work
 * on it yet. -EADDRINUSE: that pair of ends is in use. */
int cl_tcp_open_from(struct cl_netif *nif, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                     const struct cl_tcp_events *events, void *arg, void (*made)(struct cl_tcp_conn *c, void *arg));
/* Its flow, for its key and hash, which are constant. */
const struct cl_flow *cl_tcp_flow(const struct cl_tcp_conn *c);
/* Take the flow of a connection that the caller does not work on, if it is idle: then a turn has to follow by
 * cl_tcp_visit. False: somebody else works on it or is about to, and a turn will begin after this. The caller keeps the
 * block from going away meanwhile. On a kthread. */
bool cl_tcp_hold(struct cl_tcp_conn *c);
/* The same; but if somebody works on it, or is about to, nothing follows of this. */
bool cl_tcp_try_hold(struct cl_tcp_conn *c);
/* Of one that was taken so: fn is called without a turn, as it leaves nothing for the end of one to do. False: it has
 * done nothing, since it would, and cl_tcp_visit has to follow. */
bool cl_tcp_quietly(struct cl_tcp_conn *c, bool (*fn)(struct cl_tcp_conn *c, void *arg), void *arg);
/* Its home (../flow.h): a kthread's number, and 1; 0: none. The caller keeps the block from going away meanwhile. Any
 * thread. */
void cl_tcp_set_home(struct cl_tcp_conn *c, unsigned home);
/* A turn of one that was taken so, in which fn is called. */
void cl_tcp_visit(struct cl_tcp_conn *c, void (*fn)(struct cl_tcp_conn *c, void *arg), void *arg);

#endif
