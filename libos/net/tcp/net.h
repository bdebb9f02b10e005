/* A runtime's connections, as the files share them that make them of the state machine: on flows (../flow.h), alarms
 * and a NIC.
 *
 *   NIC queue --(../order.c, under the queue's lock)--> put (arrive.c): its flow, in the table
 *     --> ready queue --> run (turns.c): a turn --> emit (frames.c): a frame of a segment --> NIC queue
 *   alarm (a kthread's wheel) --> its flow is ready (turns.c)
 *   who connects (open.c) --> a turn of his own
 *
 * A block is a flow, its alarm and its connection. It is in the table from its SYN to its end; who holds the flow holds
 * all of it, and siblings take whole flows that are ready. What comes for it waits in the flow meanwhile, a bounded
 * number of segments, which hold buffers of the NIC within the budget of all flows (../ordered.h).
 *
 * Locks: a bucket's, which guards the flow. Nothing is called under it. */
#ifndef CORELANE_LIBOS_NET_TCP_NET_H
#define CORELANE_LIBOS_NET_TCP_NET_H

#include <corelane/libos/wheel.h>
#include "flows.h"
#include "machine.h"

#include "../../../runtime/ahead.h"

struct cl_tcp_block {
    struct cl_flow flow; /* first: the ready queue has these */
    struct cl_alarm alarm;
    struct cl_tcp_conn conn;
};
_Static_assert(sizeof(struct cl_tcp_block) + sizeof(struct cl_flow_bucket) + sizeof(uint32_t) <= CL_TCP_IDLE_BYTES,
               "an idle connection, with its bucket and its index in the pool");

struct cl_tcp_kthread_counts {
    struct cl_tcp_counts of CL_ALIGNED(CL_CACHELINE);
};

struct cl_tcp_net {
    struct cl_connections connections; /* first: cl_netif.tcp */
    struct cl_netif *nif;
    struct cl_flow_table table;
    struct cl_pool *pool;
    struct cl_tcp_block *blocks; /* [CL_TCP_CONNECTIONS] */
    struct cl_ahead ahead;       /* of the blocks */
    struct cl_tcp_kthread_counts *counts;
    const uint8_t *chunks;              /* cl_chunks_base */
    struct cl_tcp_listener *done;       /* that listen no more: connections may point to them. Pushed by anybody */
    struct cl_tcp_listener **listeners; /* [65536] by port in network byte order; acquire/release; never freed */
    bool shows; /* somebody listens who looks ahead. Set once (relaxed: a hint) by whoever does */
    struct cl_tcp_stack stack;
    struct cl_flow_secret port_secret;
    uint64_t no_port_until_ns; /* open.c; by whoever found none */
    uint32_t next_port;        /* added to by whoever connects */
    uint32_t frames_kept;      /* added to and taken from by kthreads */
};

struct cl_tcp_flow_turn {
    struct cl_tcp_turn turn; /* first */
    struct cl_tcp_net *net;
    struct cl_netq *q;            /* of the kthread */
    uint64_t tsc;                 /* the stamp of now_ns */
    bool looked;                  /* at the clock, since the turn before */
    bool asked;                   /* a SYN has come in this turn that makes a connection, ... */
    uint8_t asker[6];             /* ... and from where */
    const struct cl_frame *frame; /* in which the segment of now lies; NULL: it is kept */
};

static inline struct cl_tcp_net *cl_tcp_net_of(const struct cl_netif *nif)
{
    return (struct cl_tcp_net *)nif->tcp;
}

static inline struct cl_tcp_block *cl_tcp_block_of(struct cl_tcp_conn *c)
{
    return cl_container_of(c, struct cl_tcp_block, conn);
}

/* What its next turn begins with: to drop what that acknowledges, and to write the answer in its place. Its holder says
 * so as it lets go, under the bucket's lock; whoever has something for it, under the same lock, sends for it. Counted
 * in cache lines, from 1 on. */
static inline void cl_tcp_note_ahead(const struct cl_tcp_net *net, struct cl_tcp_block *b)
{
    const struct cl_chunk *chunk = b->conn.send.first;
    b->flow.ahead = chunk ? (uint32_t)(((uintptr_t)chunk - (uintptr_t)net->chunks) / CL_CACHELINE + 1) : 0;
}

static inline void cl_tcp_fetch_ahead(const struct cl_tcp_net *net, const struct cl_flow *f)
{
    if (f->ahead == 0)
        return;
    const uint8_t *at = net->chunks + (uint64_t)(f->ahead - 1) * CL_CACHELINE;
    cl_prefetch_write(at);
    cl_prefetch_write(at + CL_CACHELINE);
}

/* Acquire: a listener's fields were written before it was published. */
static inline struct cl_tcp_listener *cl_tcp_listener_on(const struct cl_tcp_net *net, uint16_t port_be)
{
    return cl_load_acquire(&net->listeners[port_be]);
}

/* frames.c: what a turn sends by, and, once all has stopped, does not; how a frame stays (cl_tcp_turn.keep). */
bool cl_tcp_emit_frame(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                       const struct cl_tcp_bytes *data);
bool cl_tcp_emit_nothing(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                         const struct cl_tcp_bytes *data);
bool cl_tcp_keep_frame(struct cl_tcp_turn *turn, struct cl_chunk *chunk);

/* turns.c. What a turn on this kthread has. */
void cl_tcp_turn_on(struct cl_tcp_net *net, struct cl_tcp_flow_turn *t);
/* The holder of a block has done its turn, in which it took `done` items. */
void cl_tcp_turn_let_go(const struct cl_tcp_flow_turn *t, struct cl_tcp_block *b, unsigned done);
/* cl_connections.run */
struct cl_flow *cl_tcp_flows_run(struct cl_netif *nif, struct cl_flow *f, struct cl_pace *at, unsigned *turns);
/* A block that nobody else can find yet. NULL: as many exist as may. */
struct cl_tcp_block *cl_tcp_block_new(struct cl_tcp_flow_turn *t, const struct cl_flow_key *key, uint64_t hash,
                                      const struct cl_tcp_settings *settings);
/* Nobody finds it any more; its alarm is removed. */
void cl_tcp_block_free(struct cl_tcp_net *net, unsigned kthread, const struct cl_tcp_block *b);
/* What was made for a SYN, and never found by anybody, is not needed. */
void cl_tcp_block_unmake(struct cl_tcp_net *net, unsigned kthread, struct cl_tcp_block *b);
/* What waits of a flow is dropped. */
void cl_tcp_items_free(struct cl_netq *q, struct cl_flow_item *item);

/* arrive.c: cl_connections.put, .answer and .complain */
bool cl_tcp_flows_put(struct cl_netq *q, const struct cl_frame *frame, const struct cl_rx_info *info, uint64_t rx_tsc,
                      struct cl_ready_list *woken);
unsigned cl_tcp_flows_answer(struct cl_netq *q, const uint8_t *frame, const struct cl_rx_info *info, uint8_t *out);
bool cl_tcp_flows_complain(struct cl_netq *q, const struct cl_rx_item *item, const struct cl_icmp_about *about,
                           struct cl_ready_list *woken);

#endif
