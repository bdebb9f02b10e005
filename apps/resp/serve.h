/* The engine as an application on a runtime: its TCP port, and the clock that looks for what is over. */
#ifndef CORELANE_APPS_RESP_SERVE_H
#define CORELANE_APPS_RESP_SERVE_H

#include <corelane/libos/runtime.h>
#include <corelane/libos/log_shared.h>
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
 * log: what the engine's writes go to, recovered and lent to the runtime; NULL: none. in_call: 1: a kthread that is
 * alone may wait for it in the kernel (writer.h). -EADDRINUSE, -EINVAL, -ENOMEM, with a reason in err. */
CL_API int cl_resp_serve(struct cl_runtime *rt, struct cl_resp *r, uint16_t port, uint32_t backlog,
                         struct cl_log_shared *log, uint32_t in_call, struct cl_resp_service **out, char err[256]);
/* Have `after` called whenever the engine was called into, under the service's lock: it may have units, or replies to
 * confirm. Before the runtime starts. */
CL_API void cl_resp_service_after(struct cl_resp_service *s, void (*after)(void *arg), void *arg);
/* Serve another engine from here on: all connections end, those that wait for replies without them. The engine before
 * is the caller's to delete. On a kthread of a runtime that has one, and in no call from this service. */
CL_API void cl_resp_service_become(struct cl_resp_service *s, struct cl_resp *r);
/* Free what cl_resp_serve made. The runtime must have stopped, or never started. The engine stays the caller's. */
CL_API void cl_resp_service_delete(struct cl_resp_service *s);
/* Of the writing of its log, by its uthreads; read by anybody (relaxed). */
struct cl_resp_writer_counts {
    uint64_t batches, records, units, bytes; /* durable: what went together, its pieces, units in all, their bytes */
    uint64_t in_call, call_ns;               /* writes that the kthread waited for in the kernel; how long, in all */
    uint64_t rewrites, aborted;              /* passes: complete, given up for want of room */
};
/* NULL: it has no log. */
CL_API const struct cl_resp_writer_counts *cl_resp_service_writer(const struct cl_resp_service *s);
CL_API const struct cl_resp_port *cl_resp_service_port(const struct cl_resp_service *s);
// cffi: end

#endif
