/* A server without a network and without threads, for tests: connections are numbers, bytes go in and come out, and
 * time passes when its owner says so. What runs is the machine of conn.h. */
#ifndef CORELANE_APPS_HTTP_HOST_H
#define CORELANE_APPS_HTTP_HOST_H

#include "serve.h"

// cffi: begin
struct cl_http_host;

/* How a connection stands. */
#define CL_HTTP_HOST_OPEN 0
#define CL_HTTP_HOST_SHUT 1    /* the server sends no more */
#define CL_HTTP_HOST_CLOSED 2  /* nor does it read */
#define CL_HTTP_HOST_ABORTED 3 /* by a reset */

/* New host of a service, which stays the caller's. room: bytes that a connection can hold until they are read. NULL: no
 * memory. */
CL_API struct cl_http_host *cl_http_host_new(struct cl_http_service *s, uint64_t room);
CL_API void cl_http_host_delete(struct cl_http_host *h);
/* Open the host's connection, in place of the one before; tls: it begins with a handshake. -ENOBUFS: the server refuses
 * it. */
CL_API int cl_http_host_open(struct cl_http_host *h, bool tls);
/* Bytes come in. Returns how many were taken; the rest is the caller's to offer again. */
CL_API int64_t cl_http_host_send(struct cl_http_host *h, const uint8_t *data, int64_t len);
/* The peer sends no more. */
CL_API void cl_http_host_end(struct cl_http_host *h);
/* Take what has come out, up to `room` bytes; the server then goes on. */
CL_API int64_t cl_http_host_read(struct cl_http_host *h, uint8_t *data, int64_t room);
/* So many ticks pass. date_s: seconds since 1970 then. */
CL_API void cl_http_host_pass(struct cl_http_host *h, uint32_t ticks, int64_t date_s);
CL_API int cl_http_host_state(const struct cl_http_host *h);
// cffi: end

#endif
