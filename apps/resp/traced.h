/* What the port's clients wait for, into the runtime's trace: each a message from when the wait began until its reply
 * was given to TCP. Replies that are held (durable.h), by a portion; commands that block on keys (block.h). What a
 * burst of commands itself takes is a message of the connection's turn (libos/net/tcp/traced.h). */
#ifndef CORELANE_APPS_RESP_TRACED_H
#define CORELANE_APPS_RESP_TRACED_H

#include <corelane/libos/runtime.h>
#include "engine.h"

/* Of a service. */
struct cl_resp_traced {
    struct cl_runtime *rt;
    uint16_t port;
    uint16_t held_for;       /* CL_TRACE_WAITS_LOG, CL_TRACE_WAITS_COMMIT */
    uint32_t held, blocking; /* numbers in the trace; 0: not named yet */
};

/* Of a client. Zero at first. Times by the scheduler's clock; 0: it does not wait. */
struct cl_resp_since {
    uint64_t opened;     /* as of the last look */
    uint64_t held_ns[2]; /* of its portions, the older first */
    uint64_t blocked_ns;
};

/* A client was called into. Under the service's lock, on a kthread. */
void cl_resp_trace(struct cl_resp_traced *t, struct cl_resp_since *since, const struct cl_resp_client *c);

#endif
