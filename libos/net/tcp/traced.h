/* What a kthread's trace hears of the turns of its connections: see ../traced.h. A turn in which segments came and the
 * user was called is a message. */
#ifndef CORELANE_LIBOS_NET_TCP_TRACED_H
#define CORELANE_LIBOS_NET_TCP_TRACED_H

#include "net.h"

#include "../traced.h"

/* What a turn is about to take in: when the oldest was picked up, and seen first. */
struct cl_tcp_taken {
    uint64_t rx_tsc, since;
    uint32_t flow;
    uint16_t bytes, own_port_be;
};

static inline void cl_tcp_trace_item(const struct cl_netq *q, struct cl_tcp_taken *in, const struct cl_tcp_block *b,
                                     const struct cl_rx_item *item, bool first, struct cl_running *running)
{
    if (first)
        *in = (struct cl_tcp_taken){.rx_tsc = item->rx_tsc,
                                    .since = cl_netq_since(q, &item->frame, item->rx_tsc),
                                    .flow = b->flow.hash,
                                    .bytes = item->payload_len,
                                    .own_port_be = b->flow.key.own_port_be};
    if (cl_unlikely(item->traced))
        running->trace.drawn = true; /* now: its handler's waits are told, too */
}

/* cl_tcp_turn.stalled: a connection goes on, and what for it did not. */
void cl_tcp_trace_stall(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c, enum cl_tcp_stall why, uint64_t begin_ns,
                        uint64_t end_ns, uint32_t n);
/* A turn is over in which its user was called, and was drawn, or late, or has waited. rang: the doorbell's stamp at its
 * end, n_tx: what waited for one then. service: of what listens, 0: of nothing. */
void cl_tcp_note_turn(const struct cl_tcp_flow_turn *t, const struct cl_tcp_taken *in, uint64_t start, uint64_t rang,
                      uint32_t n_tx, uint16_t service, struct cl_running *running);

/* A turn in which its user was called is a request of what listens. Returns the service. */
static inline uint16_t cl_tcp_count_turn(const struct cl_tcp_flow_turn *t, uint16_t own_port_be)
{
    const struct cl_tcp_listener *l = cl_tcp_listener_on(t->net, own_port_be);
    if (!l)
        return 0;
    cl_tracer_served(t->q->trace, l->service, 1);
    return l->service;
}

/* A turn is over that began at `start`; in: what it took, NULL: nothing had come. rang, n_tx: as above. */
static inline void cl_tcp_trace_turn(const struct cl_tcp_flow_turn *t, const struct cl_tcp_taken *in, uint64_t start,
                                     uint64_t rang, uint32_t n_tx, struct cl_running *running)
{
    bool called = in && t->looked && t->q->trace, noted = running->trace.drawn || running->trace.id;
    uint16_t service = called ? cl_tcp_count_turn(t, in->own_port_be) : 0;
    if (called && cl_unlikely(noted || cl_tracer_late(t->q->trace, in->since, t->tsc)))
        cl_tcp_note_turn(t, in, start, rang, n_tx, service, running);
    else if (cl_unlikely(noted))
        cl_trace_forget(&running->trace); /* nothing had come, or its user was not called */
}

#endif
