/* Running handlers: from the inbox to the reply.
 *
 * This runs on a runner uthread. A handler may block, and then the runner resumes on any kthread, while the scheduler
 * has started another runner for the rest of the inbox. So nothing of a kthread outlives a call of a handler: the queue
 * is looked up again after each, and the reply leaves through the queue of the kthread on which the handler ended. */
#include "traced.h"

#include <errno.h>

#define FLOW_TURNS 32    /* of flows before the loop looks at the NIC: one that always has more keeps nobody from it */
#define PREPARE_BEFORE 4 /* replies: their headers take the 50 ns that cl_nic_prepare wants */
/* Where a doorbell is a system call of some 1 to 1.5 us: a request that takes longer than this, its doorbell not
 * counted, is slow. Answers shall not wait for slow ones: after one, so many requests are answered one by one. */
#define SLOW_US 2
#define ALONE 64

/* The runner keeps the request at hand in its own frame and says where by a word of the uthread (sched.h). */
struct cl_udp_req *cl_current_request(void)
{
    struct cl_running *running = cl_runner_local();
    return running && running->req.socket ? &running->req : NULL;
}

/* Relaxed: the runner's own words, in a stack that stays mapped. */
const struct cl_udp_socket *cl_netif_socket_of(const void *runner)
{
    const struct cl_running *r = runner;
    const struct cl_udp_socket *burst = r ? cl_load_relaxed(&r->burst) : NULL;
    return burst || !r ? burst : cl_load_relaxed(&r->req.socket);
}

void cl_handler_fault(void)
{
    struct cl_udp_req *req = cl_current_request();
    if (req)
        req->faulted = 1;
}

/* Whether it points into what a handler sees of a request; the end included, where views without bytes begin. */
static bool is_of(const struct cl_udp_req *req, const uint8_t *where)
{
    return (where >= req->data && where <= req->data + req->len) ||
           (req->room && where >= req->reply && where <= req->reply + req->room);
}

void cl_handler_fault_at(const void *where)
{
    struct cl_running *running = cl_runner_local();
    unsigned found = 0;
    if (!running || !running->burst) {
        cl_handler_fault();
        return;
    }
    for (unsigned i = 0; i < running->n_reqs; i++)
        if (is_of(&running->reqs[i], where)) {
            running->reqs[i].faulted = 1;
            found++;
        }
    for (unsigned i = 0; i < running->n_reqs && !found; i++)
        running->reqs[i].faulted = 1;
}

void cl_handler_raised(struct cl_udp_req *reqs, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        reqs[i].reply_len = CL_HANDLER_RAISED;
}

static inline void set_room(const struct cl_netif *nif, struct cl_udp_req *req)
{
    req->reply = req->tx.data + CL_UDP_HEADERS;
    req->room = (int64_t)cl_min((uint32_t)req->tx.room, nif->mtu + CL_ETH_HLEN) - CL_UDP_HEADERS;
}

/* Everything of a request but the reply's buffer. */
static inline void open_request(struct cl_udp_req *req, const struct cl_rx_item *item)
{
    const uint8_t *frame = item->frame.data;
    const struct cl_udp *udp = (const struct cl_udp *)(frame + item->l4);
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    req->data = frame + item->l4 + CL_UDP_HLEN;
    req->len = item->payload_len;
    req->reply_len = 0;
    req->peer.ipv4 = cl_be32(ip->src_be);
    req->peer.port = cl_be16(udp->src_port_be);
    req->port = cl_be16(udp->dst_port_be);
    req->broadcast = item->broadcast;
    req->looped = item->looped;
    req->faulted = 0;
    req->rx_tsc = item->rx_tsc;
    req->socket = item->socket;
    req->rx = item->frame;
}

/* A reply to ourselves comes from the address that was asked, which may be one of 127.0.0.0/8. If as many wait as may,
 * it is dropped and counted. */
static CL_NOINLINE void send_looped(struct cl_netq *q, struct cl_udp_req *req, int64_t len)
{
    struct cl_netif *nif = q->nif;
    const struct cl_ipv4 *asked = (const struct cl_ipv4 *)(req->rx.data + CL_ETH_HLEN);
    cl_udp_fill((struct cl_udp_frame *)req->tx.data, nif->self.mac, nif->self.mac, asked->dst_be, asked->src_be,
                cl_be16(req->port), cl_be16(req->peer.port), (unsigned)len, false);
    req->tx.len = (uint16_t)(CL_UDP_HEADERS + len);
    (void)cl_netq_loop(q, &req->tx);
}

/* Headers in front of a reply of `len` bytes: the request's with source and destination exchanged, no ARP look-up. */
static inline void send_reply(struct cl_netq *q, struct cl_udp_req *req, int64_t len)
{
    struct cl_netif *nif = q->nif;
    const struct cl_eth *eth = (const struct cl_eth *)req->rx.data;
    if (cl_unlikely(req->looped)) {
        send_looped(q, req, len);
        return;
    }
    cl_udp_fill((struct cl_udp_frame *)req->tx.data, eth->src, nif->self.mac, nif->self.ip_be, cl_be32(req->peer.ipv4),
                cl_be16(req->port), cl_be16(req->peer.port), (unsigned)len, nif->udp_checksum);
    cl_netq_push_sized(q, &req->tx, (unsigned)(CL_UDP_HEADERS + len));
}

/* The handler has decided: send or not, count, give both buffers back. */
static inline void close_request(struct cl_netq *q, struct cl_udp_req *req, int64_t len)
{
    if (cl_likely(len > 0 && len <= req->room && !req->faulted)) {
        send_reply(q, req, len);
        cl_count(&q->stats.replied, 1);
    } else {
        bool error = len != 0 || req->faulted;
        cl_count(error ? &q->stats.handler_errors : &q->stats.unanswered, 1);
        if (req->faulted || len == CL_HANDLER_RAISED)
            cl_count(&q->stats.handler_faults, 1);
        if (req->room)
            cl_netq_untake(q, &req->tx);
    }
    cl_netq_done(q, &req->rx);
}

/* A buffer for the reply. Without one the handler still runs, with no room: its state changes must happen. */
static inline void give_room(struct cl_netq *q, struct cl_udp_req *req)
{
    if (cl_likely(cl_netq_take(q, &req->tx))) {
        set_room(q->nif, req);
    } else {
        req->reply = NULL;
        req->room = 0;
    }
}

int cl_udp_reply_more(struct cl_udp_req *req, int64_t used)
{
    if (used < 1 || used > req->room)
        return -EINVAL;
    struct cl_netq *q = cl_netq_self(req->socket->nif);
    send_reply(q, req, used);
    cl_count(&q->stats.extra_replies, 1);
    give_room(q, req);
    return req->room ? 0 : -ENOBUFS;
}

static inline struct cl_netq *run_plain(struct cl_netif *nif, struct cl_netq *q, const struct cl_rx_item *item,
                                        struct cl_running *running)
{
    struct cl_udp_socket *s = item->socket;
    struct cl_udp_req *req = &running->req;
    open_request(req, item);
    give_room(q, req);
    if (q->flush_at == 1) /* the reply, if there is one, leaves by itself */
        cl_nic_prepare(q->nic, q->index);
    cl_netq_serve(q, s->service);
    cl_count(&q->stats.handled, 1);
    if (cl_unlikely(item->traced))
        cl_netq_note_start(q, running, item->rx_tsc);
    int64_t len = s->fn.plain(req->data, req->len, req->reply, req->room, s->arg);
    q = cl_netq_self(nif);
    if (cl_unlikely(item->traced || running->trace.id)) /* before its doorbell, which completes it */
        cl_netq_note_end(q, running, req, len > 0 && len <= req->room && !req->faulted, item->stolen);
    else
        req->reply_len = len; /* for cl_netq_late */
    close_request(q, req, len);
    req->socket = NULL;
    return q;
}

/* The next request of those that wait by type. False: the loop is to go on, since there is none, or another uthread
 * is next, or the one that is could wait and the NIC was not polled since something ran (`polled` false): it is chosen
 * among all that have come. */
static CL_NOINLINE bool run_typed(struct cl_netif *nif, struct cl_netq **q, struct cl_running *running, bool polled)
{
    struct cl_typed *typed = (*q)->typed;
    struct cl_rx_item item;
    int type = cl_typed_choose(typed, cl_stamp((*q)->time));
    if (type < 0 || (!polled && cl_typed_can_wait(typed->types, (unsigned)type)))
        return false;
    if (!cl_typed_take(typed, (unsigned)type, &item))
        return true; /* a sibling was faster */
    cl_netq_note_begun(*q);
    if (!item.frame.data) {
        cl_uthread_ready(item.uthread);
        return false;
    }
    running->req.type = (uint32_t)type;
    *q = run_plain(nif, *q, &item, running);
    return true;
}

CL_NOINLINE void cl_netq_pace(struct cl_netq *q, struct cl_pace *p, bool more)
{
    uint64_t now = cl_stamp(q->time), took = now - p->since_tsc - (q->rang_ticks - p->rang_ticks);
    if (p->since_tsc && took > SLOW_US * (uint64_t)q->nif->ticks_per_us)
        q->alone = ALONE;
    else if (q->alone)
        q->alone--;
    *p = (struct cl_pace){now, q->rang_ticks};
    if (!q->full_since_tsc) /* else it waits for room anyway */
        q->flush_at = q->alone == 0 && (more || cl_netq_waiting(q)) ? CL_NETQ_TX : 1;
}

/* Turns of flows, from the first in the ready queue on: of one whose datagrams are handled one after the other, a
 * bounded number, or of connections. *turns counts them down. A handler may block, and the flow is held meanwhile.
 * False: no flow is ready. */
static CL_NOINLINE bool run_flow(struct cl_netif *nif, struct cl_netq **q, struct cl_running *running,
                                 struct cl_pace *at, unsigned *turns)
{
    struct cl_flow *f = cl_ordered_first(*q);
    struct cl_rx_item item;
    unsigned done = 0;
    if (!f)
        return false;
    if (f->key.protocol == CL_IPPROTO_TCP) {
        cl_netq_close_traced(*q);
        running->turns = true;
        running->req.reply_len = 0;
        f = nif->tcp->run(nif, f, at, turns);
        running->turns = false;
        running->edge = 0;
        *q = cl_netq_self(nif);
        if (!f)
            return true;
    }
    *turns -= *turns > 0;
    cl_ordered_hold(*q, f);
    for (; done < CL_FLOW_BURST && cl_ordered_next(*q, f, &item); done++) {
        cl_netq_note_begun(*q);
        if (nif->nic->tx_calls)
            cl_netq_pace(*q, at, f->taken != NULL);
        *q = run_plain(nif, *q, &item, running);
    }
    cl_ordered_release(*q, f, done);
    return true;
}

struct foreign_call {
    struct cl_udp_socket *socket;
    struct cl_udp_req *reqs;
    unsigned n;
};

static void call_foreign(void *arg)
{
    struct foreign_call *call = arg;
    call->socket->fn.burst(call->reqs, call->n, call->socket->arg);
}

static CL_NOINLINE struct cl_netq *run_burst(struct cl_netif *nif, struct cl_netq *q, struct cl_rx_item *items,
                                             unsigned n, struct cl_running *running)
{
    struct cl_udp_socket *s = items[0].socket;
    struct cl_udp_req reqs[CL_UDP_BURST];
    bool traced = false;
    for (unsigned i = 0; i < n; i++) {
        open_request(&reqs[i], &items[i]);
        give_room(q, &reqs[i]);
        traced |= items[i].traced;
    }
    cl_netq_serve(q, s->service);
    cl_count(&q->stats.handled, n);
    if (cl_unlikely(traced)) {
        cl_netq_close_traced(q);
        cl_netq_note_start(q, running, items[n - 1].rx_tsc);
    }
    running->reqs = reqs;
    running->n_reqs = n;
    cl_store_relaxed(&running->burst, s);
    if (s->kind == CL_UDP_FOREIGN || s->foreign) {
        struct foreign_call call = {s, reqs, n};
        if (cl_kthread_call(call_foreign, &call) < 0)
            for (unsigned i = 0; i < n; i++)
                reqs[i].reply_len = CL_HANDLER_ERROR;
    } else {
        s->fn.burst(reqs, n, s->arg);
    }
    cl_store_relaxed(&running->burst, NULL);
    q = cl_netq_self(nif);
    traced |= running->trace.id != 0;
    if (cl_unlikely(traced)) /* before their doorbell, which completes them */
        cl_netq_note_burst(q, running, items, reqs, n);
    uint64_t oldest = q->trace && !traced ? q->trace->oldest : CL_TRACER_NEVER, before = q->last_flush_tsc;
    /* All are ready: one doorbell. Each would have to take the ring's line from a receiver that polls it. */
    bool gather = n > 1 && q->flush_at <= CL_NETQ_FLUSH;
    unsigned prepare_at = n > PREPARE_BEFORE ? n - PREPARE_BEFORE : 0;
    if (gather)
        q->flush_at = CL_NETQ_TX;
    for (unsigned i = 0; i < n; i++) {
        if (i == prepare_at)
            cl_nic_prepare(q->nic, q->index);
        if (n > 1)
            cl_nic_ahead(q->nic, q->index, i); /* one by one: this loop waits for nothing else */
        close_request(q, &reqs[i], reqs[i].reply_len);
    }
    if (gather)
        cl_netq_ring(q);
    cl_netq_close_traced(q); /* what has no doorbell yet */
    if (cl_unlikely(oldest != CL_TRACER_NEVER && cl_tracer_late(q->trace, oldest, q->last_flush_tsc)))
        cl_netq_note_late_burst(q, reqs, n, oldest, before);
    return q;
}

/* The next batch of requests that waited for each other. False: none is due any more. */
static CL_NOINLINE bool run_batch(struct cl_netif *nif, struct cl_netq **q, struct cl_running *running)
{
    struct cl_rx_item items[CL_UDP_BURST];
    struct cl_batched *of;
    unsigned n = cl_batched_take(*q, items, &of);
    if (n == 0)
        return false;
    uint64_t begin = cl_stamp((*q)->time);
    (*q)->unseen_tsc = begin;
    cl_netq_look_at_tag(*q, &items[0].frame);
    cl_netq_note_begun(*q);
    cl_count(&(*q)->stats.batches, 1);
    cl_count(&(*q)->stats.batched, n);
    *q = run_burst(nif, *q, items, n, running);
    cl_netq_ring(*q); /* what is left of the answers: they are in time when they are out */
    cl_batched_took(of, n, cl_stamp((*q)->time) - begin);
    return true;
}

CL_HOT void cl_netif_run(void *arg, unsigned self)
{
    struct cl_netif *nif = arg;
    struct cl_netq *q = &nif->queues[self];
    struct cl_rx_item items[CL_UDP_BURST];
    struct cl_running running;
    running.req.socket = NULL;
    running.burst = NULL;
    running.turns = false;
    running.req.rx_tsc = running.edge = 0;
    running.req.reply_len = 0;
    cl_trace_forget(&running.trace);
    bool polled = true; /* nothing has run since the loop polled the NIC */
    bool batch = true;  /* no batch has: the next one is chosen among all that have come meanwhile */
    bool paced = nif->nic->tx_calls;
    struct cl_pace at = {0, 0};
    unsigned flow_turns = FLOW_TURNS;
    cl_runner_set_local(&running);
again:
    /* One at a time, so that siblings can take the others; a burst handler asked for more. */
    while (cl_inbox_take_one(q->inbox, &items[0])) {
        unsigned kind = items[0].socket->kind;
        cl_netq_note_begun(q);
        polled = false;
        if (cl_unlikely(paced))
            cl_netq_pace(q, &at, false);
        if (cl_likely(kind == CL_UDP_PLAIN)) {
            q = run_plain(nif, q, &items[0], &running);
            continue;
        }
        unsigned more = cl_inbox_take_of(q->inbox, items + 1, CL_UDP_BURST - 1, items[0].socket);
        q = run_burst(nif, q, items, 1 + more, &running);
    }
    if (cl_unlikely(paced))
        cl_netq_pace(q, &at, false);
    if (cl_unlikely(cl_load_acquire(&q->typed) != NULL) && run_typed(nif, &q, &running, polled)) {
        polled = false;
        goto again;
    }
    if (cl_unlikely(cl_load_acquire(&q->ready) != NULL) && flow_turns &&
        run_flow(nif, &q, &running, &at, &flow_turns)) {
        polled = false;
        goto again;
    }
    if (cl_unlikely(cl_load_acquire(&nif->batches) != NULL) && batch && run_batch(nif, &q, &running)) {
        batch = polled = false;
        goto again;
    }
    if (cl_unlikely(paced))
        q->flush_at = 1; /* for what uthreads send */
    cl_netq_close_traced(q);
    if (q->n_tx && running.req.reply_len > 0 && q->trace)
        cl_netq_note_answered(q, &running.req); /* the loop rings its doorbell, and knows nothing of it */
    cl_runner_set_local(NULL);
}
