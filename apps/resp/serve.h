/* The engine as an application on a runtime: its TCP port, and the clock that looks for what is over. */
#ifndef CORELANE_APPS_RESP_SERVE_H
#define CORELANE_APPS_RESP_SERVE_H

#include <corelane/libos/runtime.h>
#include "engine.h"

// cffi: begin
struct cl_resp_service;

/* Written under the service's lock; read by anybody (relaxed). */
struct cl_resp_port {
    uint64_t accepted, refused, closed; /* connections; refused: there were maxclients */
    uint64_t woken;                     /* turns that another client, or the time, has caused */
    uint64_t yields;                    /* times that a client's bytes waited for others' turns */
    uint64_t held_back;                 /* times that a client's bytes were left waiting: it does not read, or blocks */
};

/* Serve an engine on a TCP port of a runtime that has not started. backlog: connections that may be half open.
 * -EADDRINUSE, -EINVAL, -ENOMEM, with a reason in err. */
CL_API int cl_resp_serve(struct cl_runtime *rt, struct cl_resp *r, uint16_t port, uint32_t backlog,
                         struct cl_resp_service **out, char err[256]);
/* Free what cl_resp_serve made. The runtime must have stopped, or never started. The engine stays the caller's. */
CL_API void cl_resp_service_delete(struct cl_resp_service *s);
CL_API const struct cl_resp_port *cl_resp_service_port(const struct cl_resp_service *s);
// cffi: end

#endif
