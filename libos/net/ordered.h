/* UDP handlers whose datagrams are handled in order: those of one flow one after the other, as the NIC gave them.
 *
 *   NIC queue --(order.c, under the queue's lock)--> flow (flow.h) --ready queue (ready.h)--> handler, on a runner
 *   sender in this runtime --(loop.c)---------------^
 *
 * A flow exists while it has something: it is made for the first datagram, and removed with the last one handled, since
 * one without any has nothing to remember. So the table holds no more than there is to do, and a peer that invents
 * addresses leaves nothing behind.
 *
 * Bounds, each with a reason under which datagrams are dropped: of one flow CL_UDP_FLOW_QUEUE wait (flow_queue_full);
 * CL_UDP_FLOWS flows exist (flow_table_full); datagrams in all flows hold at most a quarter of the NIC's buffers, since
 * those are everybody's, and 256 a kthread (flow_budget). Of flows and datagrams up to one half may lie unused in other
 * kthreads' caches (runtime/pool.h) when a bound is met.
 *
 * One struct cl_flows a runtime, made when the first ordered handler is bound, and never taken away again. */
#ifndef CORELANE_LIBOS_NET_ORDERED_H
#define CORELANE_LIBOS_NET_ORDERED_H

#include "flow_table.h"
#include "ready.h"

struct cl_netif;
struct cl_netq;
struct cl_pool;

struct cl_flows {
    struct cl_flow_table table;
    struct cl_pool *flow_pool, *item_pool; /* a cache for each kthread */
    struct cl_flow *flows;                 /* [CL_UDP_FLOWS] */
    struct cl_flow_item *items;
    struct cl_ready *ready; /* of each kthread */
    uint32_t homes;         /* some flow has a home, or had. Set once; readers: kthreads, relaxed: a hint */
    /* The steering number up to which all is put (order.c). Writer: who holds the receive locks of all queues; reader:
     * who holds one of them. */
    uint32_t settled;
};

/* Have flows, from now on. Under types_lock. -ENOMEM. */
int cl_flows_make(struct cl_netif *nif);
/* A handler whose datagrams are handled in order. -EADDRINUSE, -EINVAL, -EMFILE, -ENOMEM. */
int cl_udp_bind_ordered(struct cl_netif *nif, uint16_t port, cl_udp_handler fn, void *arg);
/* Put a datagram at the end of its flow; a flow that gets ready by it goes to `woken`. Takes the frame. The calling
 * kthread's queue is q, and it holds the lock under which the frame was received; or it sends the frame (loop.c). */
void cl_ordered_put(struct cl_netq *q, const struct cl_rx_item *item, struct cl_ready_list *woken);
/* Make those visible that the calling kthread has from a sibling, or goes on with. */
void cl_ordered_publish(struct cl_netq *q, const struct cl_ready_list *ready);
/* The same of those that got ready: each at its home if it has one (flow.h). With no lock held. */
void cl_ordered_wake(struct cl_netq *q, const struct cl_ready_list *woken);
/* Take the flow that is first in q's ready queue out. NULL: there is none. */
struct cl_flow *cl_ordered_first(struct cl_netq *q);
/* Hold it. */
void cl_ordered_hold(struct cl_netq *q, struct cl_flow *f);
/* Its next datagram. False: none that it may handle in this turn. */
bool cl_ordered_next(struct cl_netq *q, struct cl_flow *f, struct cl_rx_item *out);
/* The holder has handled `done` datagrams, and is on q now. */
void cl_ordered_release(struct cl_netq *q, struct cl_flow *f, unsigned done);
/* Half of the flows that are ready at a sibling, to q. Returns how many. */
unsigned cl_ordered_steal(struct cl_netq *q, struct cl_netq *victim, unsigned most);
/* Give what waits back to the NIC. No kthread runs. */
void cl_flows_drain(struct cl_netif *nif);
void cl_flows_delete(struct cl_netif *nif);

#endif
