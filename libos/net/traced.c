/* See traced.h. */
#include "traced.h"

void cl_netif_trace(struct cl_netif *nif, struct cl_trace *trace)
{
    nif->trace = trace;
    for (unsigned k = 0; k < nif->n_queues; k++)
        nif->queues[k].trace = cl_trace_tracer(trace, k);
}

void cl_netq_served(struct cl_netq *q, uint16_t next)
{
    cl_netq_close_traced(q);
    if (q->trace)
        cl_tracer_served(q->trace, q->served, q->stats.handled - q->served_from);
    /* Relaxed, as the counter is: who looks meanwhile sees a little more or less (cl_trace_tell_latency). */
    cl_store_relaxed(&q->served_from, q->stats.handled);
    cl_store_relaxed(&q->served, next);
}

void cl_netif_tell_latency(const struct cl_netif *nif, void *out, uint32_t n_kthreads)
{
    struct cl_trace_serving now[CL_SCHED_MAX_KTHREADS];
    if (!nif->trace)
        return;
    for (unsigned k = 0; k < nif->n_queues; k++) {
        const struct cl_netq *q = &nif->queues[k];
        uint64_t handled = cl_load_relaxed(&q->stats.handled), from = cl_load_relaxed(&q->served_from);
        now[k] = (struct cl_trace_serving){handled > from ? handled - from : 0, cl_load_relaxed(&q->served)};
    }
    cl_trace_tell_latency(nif->trace, out, n_kthreads, now);
}

void cl_netq_mark(struct cl_netq *q, unsigned queued)
{
    struct cl_tracer *t = q->trace;
    for (; t->left < 0; t->left += cl_tracer_gap(t))
        cl_inbox_mark(q->inbox, (unsigned)((int64_t)queued + t->left));
}

struct cl_trace_open *cl_netif_message(void *arg, unsigned self, void *runner)
{
    struct cl_running *r = runner;
    struct cl_netq *q = &((struct cl_netif *)arg)->queues[self];
    if (!r || !q->trace || !(r->req.socket || r->burst || r->turns))
        return NULL;
    if (!r->trace.id)
        r->trace.id = cl_tracer_id(q->trace);
    if (q->trace->n_open) { /* it began with them, as far as is known */
        r->trace.guessed = true;
        r->trace.start = q->trace->open.start;
        cl_tracer_close_open(q->trace);
    }
    if (!r->trace.start) { /* not before this kthread's last doorbell: that was somebody else's */
        r->trace.start = cl_max(r->req.rx_tsc, q->last_flush_tsc);
        r->trace.guessed = true;
    }
    return &r->trace;
}

/* What a request says of itself, which has been known since then. */
static struct cl_trace_end end_of(const struct cl_udp_req *req, const struct cl_udp_socket *s, uint64_t since)
{
    return (struct cl_trace_end){.begin = since,
                                 .pickup = req->rx_tsc,
                                 .flags = since == req->rx_tsc ? CL_TRACE_FROM_KTHREAD : 0,
                                 .flow = req->rx.hash,
                                 .service = s ? s->service : 0,
                                 .bytes = (uint16_t)req->len,
                                 .shared = 1};
}

/* One that has waited, or is drawn from others that are not. */
void cl_netq_note_alone(struct cl_netq *q, struct cl_running *r, const struct cl_udp_req *req, uint32_t flags)
{
    struct cl_trace_end e = end_of(req, req->socket, cl_netq_since_of(q, req));
    e.start = r->trace.start;
    e.end = cl_tracer_stamp(q->trace);
    e.flags |= flags;
    r->edge = q->trace->mode == CL_TRACE_FULL ? e.end : 0;
    cl_tracer_message(q->trace, &r->trace, &e);
}

_Static_assert(CL_UDP_BURST <= CL_TRACER_TOGETHER, "the end of a burst is a stamp");

/* All of a burst are recorded, and it has not waited. False: one of them is odd, and nothing is noted. */
static bool note_all(struct cl_netq *q, struct cl_running *r, const struct cl_rx_item *items,
                     const struct cl_udp_req *reqs, unsigned n)
{
    struct cl_tracer *t = q->trace;
    struct cl_trace_plain *out = t->open.of;
    uint64_t from = r->trace.start;
    bool plain = true;
    uint16_t service = reqs[0].socket->service; /* all are of one socket */
    for (unsigned i = 0; i < n; i++) {
        const struct cl_udp_req *req = &reqs[i];
        uint64_t since = cl_netq_since_of(q, req), start = from - since, picked = from - req->rx_tsc;
        uint32_t flags = cl_netq_flags_of(req, req->reply_len > 0, items[i].stolen) |
                         (since == req->rx_tsc ? CL_TRACE_FROM_KTHREAD : 0) | (req->reply_len < 0 ? CL_TRACE_ERROR : 0);
        plain &= cl_trace_is_plain(start, picked);
        out[i] = cl_trace_plain(start, picked, service, flags, req->rx.hash, (uint16_t)req->len);
    }
    if (cl_unlikely(!plain))
        return false;
    t->n_open = (uint16_t)n;
    t->open.start = from;
    cl_tracer_end_open(t, cl_tracer_stamp(t));
    r->edge = t->open.ended;
    r->trace.drawn = false;
    r->trace.start = 0;
    return true;
}

void cl_netq_note_burst(struct cl_netq *q, struct cl_running *r, const struct cl_rx_item *items,
                        const struct cl_udp_req *reqs, unsigned n)
{
    if (q->trace->mode == CL_TRACE_FULL && r->trace.drawn && !r->trace.id && note_all(q, r, items, reqs, n))
        return;
    struct cl_trace_open all = r->trace;
    uint64_t now = cl_tracer_stamp(q->trace);
    bool noted = false;
    for (unsigned i = 0; i < n; i++) {
        if (!items[i].traced &&
            (noted || !all.id || i + 1 < n)) /* one that has waited stands for all, if none is drawn */
            continue;
        struct cl_trace_end e = end_of(&reqs[i], reqs[i].socket, cl_netq_since_of(q, &reqs[i]));
        int64_t len = reqs[i].reply_len;
        e.start = all.start;
        e.end = now;
        e.shared = (uint16_t)n;
        e.flags |= (len > 0 && !reqs[i].looped ? CL_TRACE_ANSWERED : 0) | (items[i].stolen ? CL_TRACE_STOLEN : 0);
        e.flags |= (n > 1 ? CL_TRACE_SHARED : 0) | (len < 0 || reqs[i].faulted ? CL_TRACE_ERROR : 0);
        if (noted) {
            r->trace = all;
            r->trace.id = 0; /* its waits are told of the first */
        }
        r->trace.drawn = items[i].traced;
        cl_tracer_message(q->trace, &r->trace, &e);
        noted = true;
    }
    r->edge = q->trace->mode == CL_TRACE_FULL ? now : 0;
}

/* Of n requests whose moments are not known apart from `before`, `end` and `now`, when they were sent. */
static void note_late(struct cl_netq *q, struct cl_trace_end *e, unsigned n, uint64_t before, uint64_t end,
                      uint64_t now)
{
    struct cl_trace_open nothing = {0};
    e->start = cl_max(before, e->pickup);
    e->end = end;
    e->sent = now;
    e->shared = (uint16_t)n;
    e->flags |= CL_TRACE_ANSWERED | CL_TRACE_GUESSED | (n > 1 ? CL_TRACE_SHARED : 0);
    cl_tracer_message(q->trace, &nothing, e);
}

void cl_netq_note_late_burst(struct cl_netq *q, const struct cl_udp_req *reqs, unsigned n, uint64_t oldest,
                             uint64_t before)
{
    struct cl_trace_end e = end_of(&reqs[0], reqs[0].socket, cl_min(oldest, reqs[0].rx_tsc));
    note_late(q, &e, n, before, q->last_flush_tsc, q->last_flush_tsc);
}

/* Acquire: its fields. */
static const struct cl_udp_socket *socket_on(const struct cl_netif *nif, uint16_t port)
{
    return cl_load_acquire(&nif->ports[cl_be16(port)]);
}

void cl_netq_note_answered(struct cl_netq *q, const struct cl_udp_req *req)
{
    bool ours = q->n_done && q->done[q->n_done - 1].data == req->rx.data; /* else it is given back already */
    q->answered = end_of(req, socket_on(q->nif, req->port), ours ? cl_netq_since_of(q, req) : req->rx_tsc);
}

void cl_netq_late(struct cl_netq *q, uint64_t before, uint64_t end, uint64_t now, unsigned n)
{
    struct cl_running *r = cl_runner_local();
    struct cl_trace_end e = q->answered;
    /* Else nobody was answered, or who is noted anyway; or one in the middle, or a connection, whose turns have
     * stamps. */
    bool at_hand = r && r->req.reply_len > 0;
    if (q->trace->pending || !(at_hand || e.shared)) {
        q->trace->oldest = CL_TRACER_NEVER;
        return;
    }
    if (at_hand) {
        e = end_of(&r->req, socket_on(q->nif, r->req.port),
                   cl_netq_since_of(q, &r->req)); /* close_request has its frame */
        r->req.reply_len = 0;
    }
    note_late(q, &e, n, before, end, now);
}
