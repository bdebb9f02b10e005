/* What of the stack's work is traced: see ../trace/trace.h, and runtime/trace.h for what is recorded.
 *
 * A message is a datagram for a handler, or a turn of a connection in which its user was called. Frames that are to be
 * recorded are marked where they come in (cl_rx_item.traced); whoever handles them, perhaps a thief, stamps them. What
 * is not marked is looked at by each doorbell, whose stamp says whether it was slow. */
#ifndef CORELANE_LIBOS_NET_TRACED_H
#define CORELANE_LIBOS_NET_TRACED_H

#include "netif.h"

/* Trace from now on: before anything is bound, and before kthreads run. trace may be NULL. */
void cl_netif_trace(struct cl_netif *nif, struct cl_trace *trace);
/* cl_work_source.message: what is noted of the message that a runner is in. NULL: it is in none. */
struct cl_trace_open *cl_netif_message(void *arg, unsigned self, void *runner);

/* As cl_trace_tell_latency; those that count at the moment included. */
void cl_netif_tell_latency(const struct cl_netif *nif, void *out, uint32_t n_kthreads);
/* Count what was handled of the service before, and begin with another one. */
void cl_netq_served(struct cl_netq *q, uint16_t next);

/* Mark those of the items that a burst has put, and not published, that are drawn. */
void cl_netq_mark(struct cl_netq *q, unsigned queued);
/* A request is over that has waited, or is drawn from others that are not. flags: cl_netq_flags_of. */
void cl_netq_note_alone(struct cl_netq *q, struct cl_running *r, const struct cl_udp_req *req, uint32_t flags);
/* The same of those of a burst, which has one start and one end. */
void cl_netq_note_burst(struct cl_netq *q, struct cl_running *r, const struct cl_rx_item *items,
                        const struct cl_udp_req *reqs, unsigned n);
/* A burst, none of which was marked, was late: its doorbell is rung. oldest: since when its first one waited; before:
 * the doorbell's stamp before that. */
void cl_netq_note_late_burst(struct cl_netq *q, const struct cl_udp_req *reqs, unsigned n, uint64_t oldest,
                             uint64_t before);
/* n frames were sent, which was late: whether the last request that was answered is to be told, and is not yet. before:
 * as above; end: when the doorbell began. */
void cl_netq_late(struct cl_netq *q, uint64_t before, uint64_t end, uint64_t now, unsigned n);
/* A runner ends whose last answer is not sent yet: keep what cl_netq_late wants to know. */
void cl_netq_note_answered(struct cl_netq *q, const struct cl_udp_req *req);

/* Since when a frame is known, that came in at rx_tsc: its NIC may have its stamp behind it (cl_nic.rx_stamped). */
static inline uint64_t cl_netq_since(const struct cl_netq *q, const struct cl_frame *f, uint64_t rx_tsc)
{
    uint64_t at;
    if (!q->nic->rx_stamped)
        return rx_tsc;
    memcpy(&at, f->data + cl_nic_stamp_offset(f->len), sizeof at);
    return at <= rx_tsc && rx_tsc - at < UINT32_MAX ? at
                                                    : rx_tsc; /* else it has none, and what lies there is anything */
}

/* A marked request begins. Where each is, it begins when the one before it has ended, or when the doorbell after
 * that was rung. */
static inline void cl_netq_note_start(struct cl_netq *q, struct cl_running *r, uint64_t rx_tsc)
{
    struct cl_tracer *t = q->trace;
    r->trace.drawn = true;
    if (t->n_open) /* with those */
        return;
    r->trace.start = r->edge > rx_tsc ? cl_max(r->edge, t->open.ended) : cl_tracer_stamp(t);
    r->edge = t->mode == CL_TRACE_FULL ? r->trace.start : 0;
}

/* Its frame is still ours. */
static inline uint64_t cl_netq_since_of(const struct cl_netq *q, const struct cl_udp_req *req)
{
    return req->looped ? req->rx_tsc : cl_netq_since(q, &req->rx, req->rx_tsc);
}

/* What a request was, beside what end_of says. */
static inline uint32_t cl_netq_flags_of(const struct cl_udp_req *req, bool answered, bool stolen)
{
    return (answered && !req->looped ? CL_TRACE_ANSWERED : 0) | (stolen ? CL_TRACE_STOLEN : 0) |
           (req->faulted ? CL_TRACE_ERROR : 0);
}

/* A request that is marked, or has waited, is handled, and about to be answered. */
static inline void cl_netq_note_end(struct cl_netq *q, struct cl_running *r, const struct cl_udp_req *req,
                                    bool answered, bool stolen)
{
    struct cl_tracer *t = q->trace;
    uint32_t flags = cl_netq_flags_of(req, answered, stolen);
    if (cl_unlikely(t->mode != CL_TRACE_FULL || !r->trace.drawn || r->trace.id)) {
        cl_netq_note_alone(q, r, req, flags);
        return;
    }
    uint64_t since = cl_netq_since_of(q, req);
    uint64_t from = t->n_open ? t->open.start : r->trace.start, start = from - since, picked = from - req->rx_tsc;
    if (cl_unlikely(!cl_trace_is_plain(start, picked))) {
        cl_tracer_close_open(t);
        r->trace.start = from;
        cl_netq_note_alone(q, r, req, flags);
        return;
    }
    flags |= since == req->rx_tsc ? CL_TRACE_FROM_KTHREAD : 0;
    r->trace.drawn = false;
    if (t->n_open == 0) {
        t->open.start = from;
        r->trace.start = 0;
    }
    cl_tracer_open(t, cl_trace_plain(start, picked, req->socket->service, flags, req->rx.hash, (uint16_t)req->len));
}

/* Something else is next than another request of a plain handler. */
static inline void cl_netq_close_traced(struct cl_netq *q)
{
    if (cl_unlikely(q->trace && q->trace->n_open))
        cl_tracer_close_open(q->trace);
}

/* A poll has brought frames. */
static inline void cl_netq_trace_poll(struct cl_netq *q, uint64_t rx_tsc, const struct cl_frame *first)
{
    if (cl_likely(q->trace != NULL))
        cl_tracer_poll(q->trace, rx_tsc, cl_netq_since(q, first, rx_tsc));
}

/* A request of a service is about to be handled, and counted in stats.handled: requests are counted by services as
 * these change. */
static inline void cl_netq_serve(struct cl_netq *q, uint16_t service)
{
    if (cl_unlikely(service != q->served))
        cl_netq_served(q, service);
}

/* Whether all are recorded. */
static inline bool cl_netq_traces_all(const struct cl_netq *q)
{
    return q->trace && q->trace->mode == CL_TRACE_FULL;
}

/* One message more, that goes through no inbox: whether it is to be recorded. */
static inline bool cl_netq_draws(struct cl_netq *q)
{
    return q->trace && cl_tracer_draws(q->trace);
}

#endif
