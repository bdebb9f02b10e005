/* Echo: every datagram goes back as it came. The least that a server can do, so what it costs is what corelane
 * costs. */
#ifndef CORELANE_APPS_ECHO_H
#define CORELANE_APPS_ECHO_H

#include <corelane/libos/udp.h>

// cffi: begin
/* A cl_udp_handler. A request larger than the room for a reply is an error; one from a server (cl_udp_from_server) gets
 * no reply. */
CL_API int64_t cl_echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg);
/* A cl_udp_burst_handler that does the same. */
CL_API void cl_echo_burst(struct cl_udp_req *reqs, unsigned n, void *arg);
// cffi: end

#endif
