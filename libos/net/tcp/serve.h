/* Handlers of byte streams (corelane/libos/stream.h): on the event form (serve.c), and in bursts (bursts.c). */
#ifndef CORELANE_LIBOS_NET_TCP_SERVE_H
#define CORELANE_LIBOS_NET_TCP_SERVE_H

#include <corelane/libos/stream.h>
#include "../netif.h"

int cl_tcp_serve_on(struct cl_netif *nif, uint16_t port, uint32_t backlog, uint32_t window, cl_tcp_handler fn,
                    void *arg);
int cl_tcp_serve_bursts_on(struct cl_netif *nif, uint16_t port, uint32_t backlog, uint32_t window,
                           cl_tcp_burst_handler fn, void *arg);
void cl_tcp_serving_delete(struct cl_tcp_serving *all);

#endif
