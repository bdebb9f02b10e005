/* The transmit side of a kthread's queue, and the interface's ARP traffic. */
#include "traced.h"

#include <errno.h>
#include <string.h>

#define STAMPS_TOGETHER 32 /* a look costs as much as some records: what it looks at is in another core's cache */
#define STAMPS_LATE_US 100

/* A doorbell was rung at `now`, and of it or of others before it stamps are to come (nic.h): tell the tracer of those
 * that have. */
static CL_NOINLINE void tell_stamps(struct cl_netq *q, uint64_t now)
{
    struct cl_nic_tx_stamps *s = q->stamps;
    struct cl_nic_tx_stamp known[2 * STAMPS_TOGETHER];
    if (s->stamped)
        s->rang[(s->asked - 1) % CL_NIC_TX_STAMPS] = now;
    s->stamped = 0;
    uint64_t age = now - s->rang[s->told % CL_NIC_TX_STAMPS];
    if (q->trace->pending ||
        (s->asked - s->told < STAMPS_TOGETHER && age < STAMPS_LATE_US * (uint64_t)q->nif->ticks_per_us))
        return;
    unsigned n = q->nic->ops->tx_stamps_read(q->nic, q->index, known, 2 * STAMPS_TOGETHER);
    for (unsigned i = 0; i < n; i++)
        cl_tracer_burst(q->trace, known[i].rang, known[i].taken, known[i].given);
}

/* What is sent leaves one by one while replies are rarer than one a microsecond, and CL_NETQ_FLUSH at a time when they
 * come faster: a doorbell costs a fence, and a reply that waits behind a slow handler would cost that handler's time.
 * Where a doorbell is a system call, handlers and connections decide by what waits: cl_netq_pace. */
void cl_netq_ring(struct cl_netq *q)
{
    struct cl_nic *nic = q->nic;
    if (q->n_tx) {
        struct cl_tracer *trace = q->trace;
        uint64_t from = cl_unlikely(nic->tx_calls) ? cl_stamp(q->time) : 0;
        if (cl_unlikely(trace && trace->n_open))
            cl_tracer_rings(trace, from);
        if (cl_unlikely(q->stamps && trace && cl_tracer_waits(trace)))
            q->stamps->wanted = 1;
        unsigned n = q->n_tx, taken = nic->ops->tx_burst(nic, q->index, q->tx, n);
        cl_count(&q->stats.tx_frames, taken);
        if (cl_unlikely(taken < n))
            memmove(q->tx, q->tx + taken, (n - taken) * sizeof q->tx[0]);
        q->n_tx = n - taken;
        uint64_t now = cl_stamp(q->time), before = q->last_flush_tsc, took = now - before;
        q->last_flush_tsc = now;
        if (cl_likely(trace != NULL)) {
            if (cl_unlikely(cl_tracer_late(trace, trace->oldest, now) && taken))
                cl_netq_late(q, before, from ? from : now, now, taken);
            if (cl_unlikely(cl_tracer_waits(trace) && taken == n))
                cl_tracer_sent(trace, now);
            else if (cl_unlikely(trace->n_open))
                cl_tracer_close_open(trace);
            if (cl_unlikely(q->stamps && q->stamps->asked != q->stamps->told))
                tell_stamps(q, now);
            q->answered.shared = 0;
        }
        if (cl_unlikely(from))
            q->rang_ticks += now - from;
        q->flush_at = took > n * (uint64_t)q->nif->ticks_per_us ? 1 : CL_NETQ_FLUSH;
        if (cl_unlikely(q->n_tx && cl_load_relaxed(&nic->gone))) { /* it will never take them */
            cl_count(&q->stats.tx_dropped_gone, q->n_tx);
            nic->ops->free(nic, q->index, q->tx, q->n_tx);
            q->n_tx = 0;
        }
        if (cl_unlikely(q->n_tx)) {
            q->flush_at = CL_NETQ_TX; /* the NIC's queue is full: do not knock again for each frame */
            if (!q->full_since_tsc)
                q->full_since_tsc = now;
        } else {
            q->full_since_tsc = 0;
        }
    }
    if (q->n_done) {
        nic->ops->free(nic, q->index, q->done, q->n_done);
        q->n_done = 0;
    }
    if (cl_unlikely(q->trace && cl_tracer_waits(q->trace) && q->n_tx == 0)) /* of requests without an answer */
        cl_tracer_sent(q->trace, 0);
}

bool cl_netq_refill(struct cl_netq *q)
{
    q->n_spare = q->nic->ops->alloc(q->nic, q->index, q->spare, CL_NETQ_SPARE / 2);
    if (cl_likely(q->n_spare))
        return true;
    cl_netq_ring(q); /* what is done or sent may be what is missing */
    q->n_spare = q->nic->ops->alloc(q->nic, q->index, q->spare, CL_NETQ_SPARE / 2);
    return q->n_spare != 0;
}

void cl_netq_push_slow(struct cl_netq *q, const struct cl_frame *f)
{
    cl_netq_ring(q);
    if (q->n_tx == CL_NETQ_TX) {
        cl_count(cl_load_relaxed(&q->nic->gone) ? &q->stats.tx_dropped_gone : &q->stats.tx_dropped_full, 1);
        cl_netq_done(q, f);
        return;
    }
    q->tx[q->n_tx++] = *f;
}

bool cl_netif_flush(void *arg, unsigned self)
{
    struct cl_netq *q = &((struct cl_netif *)arg)->queues[self];
    if ((q->n_tx | q->n_done) || (q->trace && cl_tracer_waits(q->trace)))
        cl_netq_ring(q);
    return q->n_tx != 0;
}

bool cl_netif_idle(void *arg, unsigned self)
{
    struct cl_netif *nif = arg;
    struct cl_connections *tcp = cl_load_acquire(&nif->tcp);
    (void)self;
    return cl_chunks_fetch(nif->chunks) || (tcp && tcp->fetch(nif));
}

CL_NOINLINE struct cl_netq *cl_netq_self(struct cl_netif *nif)
{
    int k = cl_kthread_index_in(nif->sched);
    return k >= 0 ? &nif->queues[k] : NULL;
}

static void send_arp(struct cl_netq *q, uint16_t op, const uint8_t *eth_dst, const uint8_t *target_mac,
                     uint32_t target_be)
{
    struct cl_frame f;
    if (!cl_netq_take(q, &f))
        return; /* a request is asked again; the peer asks again for a reply */
    cl_arp_fill(&q->nif->self, f.data, op, eth_dst, target_mac, target_be);
    f.len = CL_ARP_FRAME_BYTES;
    cl_netq_push(q, &f);
}

static const uint8_t broadcast_mac[6] = {255, 255, 255, 255, 255, 255};
static const uint8_t zero_mac[6];

void cl_netq_arp_timer(struct cl_timer *timer, void *arg)
{
    (void)timer;
    struct cl_netif *nif = arg;
    struct cl_netq *q = cl_netq_self(nif);
    uint64_t now_ns = cl_sched_now_ns(nif->sched);
    struct cl_arp_todo todo;
    uint32_t resolve_be;
    while (cl_arp_tick(nif->arp, now_ns, &resolve_be, &todo)) {
        if (resolve_be)
            cl_netq_arp_request(q, resolve_be, NULL);
        for (unsigned i = 0; i < todo.n_out; i++) {
            cl_count(&q->stats.tx_dropped_arp, 1);
            cl_netq_done(q, &todo.out[i]);
        }
    }
    bool again = cl_load_relaxed(&nif->arp->n_pending) != 0;
    if (!again) {
        /* Of "say not armed, look at pending" here and "make pending, look at armed" in cl_netq_arp_request at least
         * one sees the other: the fences on both sides are sequentially consistent (the argument of
         * corelane/runtime/park.h). */
        cl_store_relaxed(&nif->arp_timer_armed, 0);
        cl_fence_seq_cst();
        again = cl_load_relaxed(&nif->arp->n_pending) && !cl_exchange(&nif->arp_timer_armed, 1);
    }
    if (again)
        cl_timer_arm(&nif->arp_timer, now_ns + CL_ARP_RETRY_NS / 4);
    cl_netq_ring(q);
}

void cl_netq_arp_request(struct cl_netq *q, uint32_t ip_be, const uint8_t *mac)
{
    cl_count(&q->stats.arp_requests_sent, 1);
    send_arp(q, CL_ARP_REQUEST, mac ? mac : broadcast_mac, zero_mac, ip_be);
    if (mac)
        return;
    cl_fence_seq_cst(); /* after the entry was made pending; see cl_netq_arp_timer */
    if (!cl_exchange(&q->nif->arp_timer_armed, 1))
        cl_timer_arm(&q->nif->arp_timer, cl_sched_now_ns(q->nif->sched) + CL_ARP_RETRY_NS / 4);
}

bool cl_netq_arp_reply(struct cl_netq *q, const struct cl_arp *request)
{
    if (q->n_spare == 0 && !cl_netq_refill(q))
        return false;
    if (request) {
        send_arp(q, CL_ARP_REPLY, request->sender_mac, request->sender_mac, request->sender_ip_be);
    } else { /* RFC 5227, section 2.3: an announcement is a request for our own address */
        send_arp(q, CL_ARP_REQUEST, broadcast_mac, zero_mac, q->nif->self.ip_be);
    }
    return true;
}

static void send_to(struct cl_netq *q, struct cl_frame *f, const uint8_t *mac)
{
    memcpy(f->data, mac, 6);
    cl_netq_push(q, f);
}

/* To whom nothing was sent just now, or who is no neighbour. */
static CL_NOINLINE int send_ip_slowly(struct cl_netq *q, struct cl_frame *f, uint32_t dst_be, uint64_t now_ns,
                                      const uint8_t *asker)
{
    struct cl_netif *nif = q->nif;
    if (dst_be == 0xffffffffu || (dst_be == nif->self.broadcast_be && dst_be)) {
        send_to(q, f, broadcast_mac);
        return 0;
    }
    if (cl_ipv4_is_own(&nif->self, dst_be))
        return cl_netq_loop(q, f);
    uint32_t hop_be = cl_ipv4_next_hop(&nif->self, dst_be);
    if (hop_be == 0 || cl_be32(dst_be) >= 0xe0000000u) {
        cl_netq_untake(q, f);
        return -EHOSTUNREACH;
    }
    struct cl_route *route = cl_netq_route(q, hop_be);
    if (cl_netq_route_right(nif, route, hop_be, now_ns)) {
        send_to(q, f, route->mac);
        return 0;
    }
    uint32_t epoch = cl_load_acquire(&nif->arp->epoch); /* acquire: what is looked up is of this epoch or a later one */
    struct cl_frame evicted;
    bool dropped;
    uint8_t mac[6];
    switch (cl_arp_lookup(nif->arp, hop_be, now_ns, mac, asker ? NULL : f, &evicted, &dropped)) {
    case CL_ARP_RESOLVE_UNICAST:
        cl_netq_arp_request(q, hop_be, mac);
        /* fallthrough */
    case CL_ARP_FOUND:
        *route = (struct cl_route){.ip_be = hop_be, .epoch = epoch, .until_ns = now_ns + CL_ARP_RETRY_NS};
        memcpy(route->mac, mac, 6);
        send_to(q, f, mac);
        break;
    case CL_ARP_RESOLVE:
        cl_netq_arp_request(q, hop_be, NULL);
        /* fallthrough */
    case CL_ARP_WAIT:
        if (dropped) {
            cl_count(&q->stats.tx_dropped_arp, 1);
            cl_netq_done(q, &evicted);
        }
        if (asker)
            send_to(q, f, asker);
        break;
    }
    return 0;
}

int cl_netq_send_ip(struct cl_netq *q, struct cl_frame *f, uint32_t dst_be, uint64_t now_ns, const uint8_t *asker)
{
    const struct cl_route *route = cl_netq_neighbour(q, dst_be, now_ns);
    if (cl_likely(route != NULL)) {
        send_to(q, f, route->mac);
        return 0;
    }
    return send_ip_slowly(q, f, dst_be, now_ns, asker);
}
