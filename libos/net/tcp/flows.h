/* A runtime's connections: the state machine (conn.h) on flows (../flow.h), alarms and a NIC. See flows.c. */
#ifndef CORELANE_LIBOS_NET_TCP_FLOWS_H
#define CORELANE_LIBOS_NET_TCP_FLOWS_H

#include "../netif.h"
#include "listen.h"

/* corelane/libos/tcp.h says what they do, of a runtime. */
int cl_tcp_listen_on(struct cl_netif *nif, uint16_t port, uint32_t backlog, const struct cl_tcp_events *events,
                     void *arg);
int cl_tcp_open(struct cl_netif *nif, uint32_t ipv4, uint16_t port, const struct cl_tcp_events *events, void *arg);
int cl_tcp_set_congestion(struct cl_netif *nif, const char *rule, uint32_t ecn);
void cl_tcp_count(const struct cl_netif *nif, struct cl_tcp_counts *out);

#endif
