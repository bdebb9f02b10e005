/* HTTP on connections of libos (corelane/libos/tcp.h, the event form): a handler runs where its segment came in. */
#ifndef CORELANE_APPS_HTTP_WIRE_H
#define CORELANE_APPS_HTTP_WIRE_H

#include "service.h"

#include <corelane/libos/tcp.h>

/* As cl_runtime_listen_tcp; tls: connections begin with a handshake. The service must live until the runtime has
 * stopped. */
int cl_http_wire_listen(struct cl_http_service *s, struct cl_runtime *rt, uint16_t port, uint32_t backlog, bool tls);

#endif
