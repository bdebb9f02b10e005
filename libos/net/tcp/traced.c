/* See traced.h. */
#include "traced.h"

static const uint16_t waits_for[] = {[CL_TCP_STALL_RESEND] = CL_TRACE_WAITS_RESEND,
                                     [CL_TCP_STALL_WINDOW] = CL_TRACE_WAITS_WINDOW,
                                     [CL_TCP_STALL_HOLE] = CL_TRACE_WAITS_HOLE};

void cl_tcp_trace_stall(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c, enum cl_tcp_stall why, uint64_t begin_ns,
                        uint64_t end_ns, uint32_t n)
{
    struct cl_tcp_flow_turn *t = (struct cl_tcp_flow_turn *)turn;
    const struct cl_flow *flow = cl_tcp_flow(c);
    const struct cl_clock *clock = t->net->nif->clock;
    const struct cl_tcp_listener *l = cl_tcp_listener_on(t->net, flow->key.own_port_be);
    struct cl_trace_stall s = {.end = cl_ns_to_tsc(clock, (int64_t)end_ns),
                               .ticks = (uint64_t)cl_ns_to_ticks(clock, (int64_t)(end_ns - begin_ns)),
                               .n = n,
                               .flow = flow->hash,
                               .service = l ? l->service : 0,
                               .what = waits_for[why]};
    if (t->q->trace)
        cl_tracer_stalled(t->q->trace, &s);
}

void cl_tcp_note_turn(const struct cl_tcp_flow_turn *t, const struct cl_tcp_taken *in, uint64_t start, uint64_t rang,
                      uint32_t n_tx, uint16_t service, struct cl_running *running)
{
    const struct cl_netq *q = t->q;
    struct cl_trace_open *open = &running->trace;
    bool sent = q->last_flush_tsc != rang;
    uint32_t flags =
        (sent || q->n_tx > n_tx ? CL_TRACE_ANSWERED : 0) | (in->since == in->rx_tsc ? CL_TRACE_FROM_KTHREAD : 0);
    uint64_t waited = start - in->since, picked = start - in->rx_tsc;
    if (q->trace->mode == CL_TRACE_FULL && open->drawn && !open->id && !sent && t->tsc - start < CL_TRACER_SOON &&
        cl_trace_is_plain(waited, picked)) {
        open->drawn = false;
        cl_tracer_follow(q->trace, cl_trace_plain(waited, picked, service, flags, in->flow, in->bytes), start, t->tsc);
        return;
    }
    struct cl_trace_end e = {.begin = in->since,
                             .pickup = in->rx_tsc,
                             .start = start,
                             .end = t->tsc,
                             .sent = sent ? q->last_flush_tsc : 0,
                             .flags = flags,
                             .flow = in->flow,
                             .service = service,
                             .bytes = in->bytes,
                             .shared = 1};
    open->guessed = false;
    cl_tracer_message(q->trace, open, &e);
}
