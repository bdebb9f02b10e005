/* What commands waited for, into the runtime's trace: one message a command, from when it came to its answer, with the
 * stages that the node has noted (../node/stages.h). */
#include "internal.h"
#include <corelane/libos/log.h>
#include <corelane/runtime/clock.h>
#include "../../../runtime/trace.h"

static uint32_t number_of(struct cl_raft_service *s, uint16_t port)
{
    return port ? cl_runtime_trace_service(s->rt, CL_TRACE_RAFT, port) : 0;
}

void serve_trace(struct cl_raft_service *s)
{
    const struct cl_raft_serve_config *c = &s->config;
    s->traced.port = number_of(s, c->port);
    s->traced.kv = number_of(s, c->kv_port);
    s->traced.kv_tcp = number_of(s, c->kv_tcp_port);
    s->traced.resp = number_of(s, c->resp.port);
    if (!s->traced.port)
        return;
    s->config.node.stages = 1;
    if (c->node.log)
        cl_log_stamped(c->node.log, s->clock);
}

static uint64_t ns_of(const struct cl_raft_service *s, uint64_t stamp)
{
    return stamp ? (uint64_t)cl_tsc_to_ns(s->clock, stamp) : 0;
}

static void stages(void *arg, struct cl_call_stages *out)
{
    struct cl_raft_service *s = arg;
    struct cl_raft_stages of;
    cl_raft_node_stages(s->node, &of);
    *out = (struct cl_call_stages){.gone_ns = of.gone_ns,
                                   .sent_ns = of.sent_ns,
                                   .flush_ns = ns_of(s, of.log[0]),
                                   .written_ns = ns_of(s, of.log[1]),
                                   .durable_ns = of.durable_ns,
                                   .others_ns = of.others_ns,
                                   .agreed_ns = of.agreed_ns,
                                   .index = of.index,
                                   .node = of.node,
                                   .flags = (of.read ? CL_TRACE_COMMAND_READ : 0u) |
                                            (of.forwarded ? CL_TRACE_COMMAND_FORWARDED : 0u)};
}

void serve_traced(struct cl_raft_service *s, uint32_t traced, uint64_t since_ns, bool leaves)
{
    if (!traced || !since_ns)
        return;
    cl_runtime_trace_call(s->rt, &(struct cl_runtime_call){.since_ns = since_ns,
                                                           .service = traced,
                                                           .what = CL_TRACE_WAITS_COMMIT,
                                                           .leaves = leaves,
                                                           .stages = stages,
                                                           .arg = s});
}

void serve_passed(void *arg, uint64_t since_ns)
{
    struct cl_raft_service *s = arg;
    serve_traced(s, s->traced.port, since_ns, true);
}
