/* The network interface of a runtime: its NIC, its addresses, its sockets, and what each kthread owns of it.
 *
 *   NIC queue k --poll (receive.c)--> parse (input.h) --> handler's inbox (inbox.h) --run (handler.c)--> reply --+
 *                                        |                flow (ordered.h)          --run (handler.c)--> reply --+
 *                                        |                queue of a batch (batched.h) --run (handler.c)--> replies +
 *                                        |                socket's queue (socket.c) --> cl_udp_recvfrom          |
 *   frames to ourselves (loop.c) --poll--^ +--> ARP, ICMP answered at once                                       v
 *   NIC queue k <------------------------------------------------------- flush (netq.c) <-- transmit batch <----+
 *
 * Threads: a cl_netq belongs to kthread k. Everything in it is used by that kthread alone but for the inbox (inbox.h)
 * and the receive side of the NIC queue, which siblings may poll under rx_lock. Statistics: writer kthread k, readers
 * anybody. Received buffers are freed, replies sent, on the queue of the kthread that finishes the request, whoever
 * received it.
 *
 * Start reading at receive.c. */
#ifndef CORELANE_LIBOS_NET_NETIF_H
#define CORELANE_LIBOS_NET_NETIF_H

#include <corelane/runtime/clock.h>
#include <corelane/runtime/cores.h>
#include "../../runtime/shm.h"
#include <corelane/libos/sched.h>
#include <corelane/libos/timer.h>
#include <corelane/libos/udp.h>
#include "arp.h"
#include "batched.h"
#include "chunk.h"
#include "icmp.h"
#include "inbox.h"
#include "input.h"
#include "ordered.h"
#include "poll.h"
#include "typed.h"
#include "../trace/trace.h"

#include <pthread.h>
#include <stddef.h>

#define CL_NETQ_TX 64     /* frames that may wait for the NIC's queue */
#define CL_NETQ_SPARE 32  /* empty buffers kept ready */
#define CL_NETQ_FLUSH 8   /* replies a doorbell, when they come faster than one a microsecond */
#define CL_NETQ_STASH 8   /* frames taken by a check, for the next poll */
#define CL_NETQ_LOOP 256  /* frames to ourselves that may wait */
#define CL_NETQ_POLL 32   /* frames a poll */
#define CL_NETQ_ROUTES 16 /* remembered neighbours, direct-mapped */
/* While the NIC's queue is full nothing is received, whose answers would find no room: it waits in the NIC. No longer
 * than this: two interfaces could wait for each other for ever, and one below a rate limit would never cede its
 * core. */
#define CL_NETQ_HOLD_US 10000
#define CL_UDP_PORTS 65536

struct cl_netif;

/* What a runner works on: its cl_runner_local. */
struct cl_running {
    struct cl_udp_req req;       /* of a plain handler; its socket NULL: none runs */
    struct cl_udp_socket *burst; /* whose burst handler runs; NULL: none does */
    struct cl_udp_req *reqs;     /* and its requests */
    unsigned n_reqs;
    bool turns;                 /* turns of connections run */
    uint64_t edge;              /* stamp at which the message before ended, if each is stamped; else 0 */
    struct cl_trace_open trace; /* of the message at hand */
};

/* A neighbour as of cache epoch `epoch`. */
struct cl_route {
    uint32_t ip_be;
    uint32_t epoch;
    uint64_t until_ns;
    uint8_t mac[6];
};

/* Of a queue whose flows are in parts (parts.h). apart: constant; NULL: there are no siblings. */
struct cl_parts {
    struct cl_inbox *apart;
    uint64_t helpers;         /* bit k: kthread k helps. Writers: thieves (or), the kthread (0); relaxed: a hint */
    uint64_t helped;          /* the same of the time before. Writer: the kthread; relaxed */
    uint32_t polls;           /* of this time; the kthread's */
    bool divided;             /* frames were put apart in this time or the one before; relaxed: a hint */
    bool divided_now;         /* in this one; the kthread's */
    uint32_t switches, looks; /* of the kthread as thieves saw it, and looks since it changed. Thieves', relaxed */
};

/* What kthread k owns. Siblings read the first line, which is hardly ever written. What each request writes follows. */
struct cl_netq {
    struct cl_netif *nif;
    struct cl_nic *nic;
    struct cl_inbox *inbox;     /* constant */
    struct cl_typed *typed;     /* queues by type, or NULL: no handler sorts. Set once (release); readers: anybody */
    struct cl_ready *ready;     /* flows of ordered handlers, or NULL: there are none. Set once (release); the same */
    struct cl_signals *signals; /* positions of the inbox are exported there, or to own_signals */
    const uint64_t *time;       /* cl_stamp's, of the interface's clock */
    uint32_t index;
    uint32_t tag; /* of what the NIC received last */
    uint32_t n_tx, n_spare, n_done;
    uint32_t flush_at; /* how many frames make a doorbell: 1, CL_NETQ_FLUSH, or CL_NETQ_TX: all that there will be */
    bool saw_gone;     /* the NIC was gone at the last poll that found nothing */
    uint16_t served;   /* the service of the last request (traced.h) */
    uint32_t alone;    /* so many requests more are answered one by one: see cl_netq_pace */
    uint64_t last_flush_tsc;
    uint64_t rang_ticks;                  /* spent in doorbells, where these are system calls (nic.h, tx_calls) */
    uint64_t served_from;                 /* stats.handled when that one's began */
    struct cl_tracer *trace;              /* of the kthread; NULL: it does not trace. Constant */
    struct cl_nic_tx_stamps *stamps;      /* of the NIC's queue; NULL: it has none (nic.h). Constant */
    uint64_t full_since_tsc;              /* when the NIC's queue was found full; 0: it has taken all since */
    struct cl_frame tx[CL_NETQ_TX];       /* to be sent */
    struct cl_frame spare[CL_NETQ_SPARE]; /* empty */
    struct cl_frame done[CL_NIC_BURST];   /* received, to be given back */
    struct cl_route routes[CL_NETQ_ROUTES];
    struct cl_trace_end answered; /* of the last request, if the next doorbell is its; else `shared` is 0 (traced.h) */
    struct cl_icmp_limit icmp, resets;
    struct cl_net_stats stats;
    uint64_t
        unseen_tsc; /* since when nobody has looked whether frames came, for a batch ran; 0: the last poll found all */
    uint32_t batched_put, batched_taken; /* requests that were due, ever. Writers: anybody, by addition, relaxed */
    struct cl_signals own_signals;
    /* The NIC queue's receive side: owner and thieves, under rx_lock. A NIC cannot be asked whether a frame waits
     * without taking it, so whoever asks puts what it finds into the stash. n_stash is also read without the lock. */
    struct cl_spin rx_lock CL_ALIGNED(CL_CACHELINE);
    uint32_t n_stash;
    uint32_t stash_steering; /* of these frames (order.c) */
    struct cl_frame stash[CL_NETQ_STASH];
    /* Frames that this kthread sent to our own address (loop.c): owner and thieves, under loop_lock. n_loop is also
     * read without it. */
    struct cl_spin loop_lock CL_ALIGNED(CL_CACHELINE);
    uint32_t loop_head, n_loop;
    struct cl_frame loop[CL_NETQ_LOOP];
    struct cl_parts parts CL_ALIGNED(CL_CACHELINE);
} CL_ALIGNED(CL_CACHELINE);
_Static_assert(offsetof(struct cl_netq, n_tx) == CL_CACHELINE, "what is written often has no part of the first line");

enum cl_udp_kind {
    CL_UDP_CLOSED = 0,
    CL_UDP_PLAIN,
    CL_UDP_BURSTS,
    CL_UDP_FOREIGN,
    CL_UDP_QUEUE,
    CL_UDP_TYPED,
    CL_UDP_GROUP,
    CL_UDP_ORDERED,
    CL_UDP_BATCHES
};

struct cl_udp_queue; /* queue.h */
struct cl_udp_group; /* ports.c */

/* A bound port. Its memory is recycled but never freed while the runtime exists, so that a stale pointer finds a
 * socket, perhaps closed. Handlers are never unbound. */
struct cl_udp_socket {
    uint16_t port;
    uint16_t
        kind; /* enum cl_udp_kind; set before the socket is published (release); QUEUE and CLOSED, which may follow each
                    * other, under queue->lock */
    uint16_t first_type, n_types; /* TYPED */
    uint16_t service;             /* of a handler: its entry in the trace */
    bool foreign;                 /* BATCHES: as FOREIGN */
    union {
        cl_udp_handler plain;
        cl_udp_burst_handler burst;
    } fn;
    void *arg;
    cl_udp_classifier classify; /* TYPED */
    void *classify_arg;
    struct cl_batched *batched; /* BATCHES */
    struct cl_netif *nif;
    struct cl_udp_queue *queue;
    struct cl_udp_socket *next_free;
    /* QUEUE: */
    struct cl_udp_group *group; /* of its port, which it shares; NULL: it has it alone. Set before it is published */
    struct cl_udp_socket *next_flow; /* of the same port and hash; under the group's lock */
    /* cl_udp_flow of whom it is connected to; 0: nobody. Changes under queue->lock, and the group's if it has one. */
    uint64_t peer;
    uint32_t has_sent;        /* to its peer; relaxed: for ICMP errors, which come later */
    int32_t error;            /* errno that came by ICMP, for the next call; 0: none. Exchanged */
    struct cl_pollable watch; /* under queue->lock, see poll.h */
};

struct cl_pace; /* below */

/* Connections, as the rest of the stack sees them: it puts segments into their flows and runs those. The room tcp/ uses
 * this one, and not the other way; so it fills this in when the first one listens or connects (tcp/flows.c). */
struct cl_connections {
    /* Put a segment into the flow of its connection, and take the frame; as cl_ordered_put. False: it is of none. */
    bool (*put)(struct cl_netq *q, const struct cl_frame *frame, const struct cl_rx_info *info, uint64_t rx_tsc,
                struct cl_ready_list *woken);
    /* Write an answer, which is no reset, to a segment that is of none, into out (CL_TCP_ANSWER_MOST bytes). Returns
     * the length of the frame; 0: there is none. */
    unsigned (*answer)(struct cl_netq *q, const uint8_t *frame, const struct cl_rx_info *info, uint8_t *out);
    /* Put an ICMP error about a segment into the flow of its connection, and take the frame; as `put`. */
    bool (*complain)(struct cl_netq *q, const struct cl_rx_item *item, const struct cl_icmp_about *about,
                     struct cl_ready_list *woken);
    /* A turn of a flow that was taken out of the ready queue of the calling kthread, and of those behind it, as long as
     * they are connections, nothing waits in the inbox and *turns, which counts down, is not 0. The caller has paced
     * the first (cl_netq_pace); each is a request. Returns a flow that it has taken out and not run, or NULL. */
    struct cl_flow *(*run)(struct cl_netif *nif, struct cl_flow *f, struct cl_pace *at, unsigned *turns);
    /* As cl_chunks_fetch, of connections. */
    bool (*fetch)(struct cl_netif *nif);
    /* No kthread runs: end all, and give back what they have. */
    void (*drain)(struct cl_netif *nif);
    void (*free)(struct cl_netif *nif);
    /* Nothing comes any more (sockets_shut is set): wake whoever waits. Any thread. */
    void (*shut)(struct cl_netif *nif);
    struct cl_streams *streams;     /* tcp/sockets.h; NULL: there are none. Set once (release) under types_lock */
    struct cl_tcp_serving *serving; /* tcp/serve.c: handlers, to be freed. Under types_lock */
};

struct cl_netif {
    struct cl_net_self self; /* constant while running */
    struct cl_nic *nic;
    struct cl_sched *sched; /* set before the kthreads start */
    struct cl_runtime *rt;
    uint32_t n_queues;
    uint32_t mtu;
    uint32_t ticks_per_us;
    const struct cl_clock *clock; /* the NIC's, and so the scheduler's */
    struct cl_trace *trace;       /* NULL: it does not trace. Set before anything is bound (cl_netif_trace) */
    bool udp_checksum, steal;
    uint32_t running;  /* writer: start and stop; readers: any thread, relaxed: it guards against misuse, not races */
    uint32_t stopping; /* writer: stop; readers: kthreads, relaxed: nothing is received any more */
    struct cl_udp_socket **ports; /* [65536] by port in network byte order; acquire/release */
    struct cl_spin table_lock;    /* of what follows */
    uint32_t n_sockets;
    uint16_t next_ephemeral;
    uint16_t own_first, own_last; /* ports to choose from: of a member of a group its own. Set before it is used */
    bool is_member;               /* it is of a group */
    struct cl_udp_socket *free_sockets, *free_groups;
    struct cl_poll *polls;
    uint32_t sockets_shut;      /* nothing comes any more. Writer: stop (release); readers: anybody (acquire) */
    uint32_t polls_shut;        /* the same, and all sockets in sets have been listed there for it */
    struct cl_chunks *chunks;   /* constant */
    struct cl_udp_socket **all; /* [CL_UDP_MAX_SOCKETS] */
    struct cl_arp_cache *arp;
    struct cl_flows *flows;     /* of ordered handlers; NULL: there are none. Set once (release) under types_lock */
    struct cl_connections *tcp; /* NULL: nobody has listened or connected. Set once (release) under types_lock */
    pthread_mutex_t types_lock; /* of binding handlers that sort, or are ordered, and of connections */
    struct cl_types *types;     /* NULL: none does */
    struct cl_batches *batches; /* NULL: nobody's requests wait for each other. Set once (release) under types_lock */
    struct cl_timer arp_timer;
    uint32_t arp_timer_armed; /* exchanged by whoever asks first */
    void (*on_conflict)(void *arg);
    void *conflict_arg;
    void (*on_unfinished)(void *arg); /* checksums were left to a device; its argument is conflict_arg */
    void (*on_gone)(void *arg);       /* the NIC's device went away; NULL: the NIC tells itself */
    void *gone_arg;
    uint32_t gone_told;       /* exchanged by whoever finds it first */
    uint32_t unfinished_told; /* the same of on_unfinished */
    struct cl_netq *queues;
    struct cl_flow_secret secret; /* of what hashes flows; constant while it runs */
};

/* New interface on `nic`, with n kthreads. -errno with a reason. */
int cl_netif_new(struct cl_nic *nic, unsigned n, uint32_t ipv4, unsigned prefix, uint32_t gateway, uint64_t chunk_bytes,
                 struct cl_netif **out, char *err);
/* The secret of its hashes, before anything is bound or opened: of a seed, so that a run can be repeated, or (seed 0)
 * of the kernel's random numbers. -EIO: it has none. */
int cl_netif_seed(struct cl_netif *nif, uint64_t seed);
/* Free everything but the NIC. No kthread runs. */
void cl_netif_delete(struct cl_netif *nif);
/* Give every buffer back to the NIC that is not held by a uthread. No kthread runs. */
void cl_netif_drain(struct cl_netif *nif);

/* Frames come unfinished: call on_unfinished, once. Kthreads. */
void cl_netif_tell_unfinished(struct cl_netif *nif);

/* The NIC is gone: call on_gone, once. Kthreads. */
void cl_netif_tell_gone(struct cl_netif *nif);

/* The socket whose handler a runner is in; NULL: none. For another thread than its own. */
const struct cl_udp_socket *cl_netif_socket_of(const void *runner);

/* The work source's callbacks; `arg` is the netif. */
unsigned cl_netif_poll(void *arg, unsigned self, unsigned queue);
bool cl_netif_ready(void *arg, unsigned queue);
unsigned cl_netif_pending(void *arg, unsigned queue);
void cl_netif_run(void *arg, unsigned self);
bool cl_netif_flush(void *arg, unsigned self);
bool cl_netif_idle(void *arg, unsigned self);
void cl_netif_export(void *arg, unsigned self);
bool cl_netif_preempted(void *arg, unsigned self, struct cl_uthread *t, void *runner);
unsigned cl_netif_takeable(void *arg, unsigned queue);

/* The calling kthread's queue. Not inlined: the answer changes across a call that may block, and a compiler that sees a
 * thread-local would keep it. NULL off this interface's kthreads. */
struct cl_netq *cl_netq_self(struct cl_netif *nif);

/* order.c. */
struct cl_order {
    struct cl_netq *q; /* of the calling kthread */
    unsigned room;     /* for the rest, at most CL_NETQ_POLL */
    unsigned n, came;  /* of the rest; in all */
    uint64_t rx_tsc;
    struct cl_ready_list woken;            /* flows that got ready */
    struct cl_frame frames[CL_NETQ_POLL];  /* the rest, ... */
    struct cl_rx_info infos[CL_NETQ_POLL]; /* ... and what the parser says of it */
};
/* Field by field: an initializer would write the rest's frames, too, 1.5 KiB for each poll, also for one that finds
 * nothing. */
static inline void cl_order_begin(struct cl_order *o, struct cl_netq *q, unsigned room)
{
    o->q = q;
    o->room = room;
    o->n = o->came = 0;
    o->rx_tsc = cl_stamp(q->time);
    o->woken = (struct cl_ready_list){0};
}
/* Take a burst of victim's queue, whose lock is held: what is of flows is put there, the rest is left to the caller. */
void cl_order_receive(struct cl_order *o, struct cl_netq *victim);
/* Whether frames wait in a queue whose lock is held. They may be in its stash then. */
bool cl_order_look(struct cl_netq *q);

/* A frame is next: the lines behind those that its NIC has sent for. Where many frames follow each other, each at
 * another place, the hardware's own prefetcher begins anew for each. */
#define CL_NETQ_AHEAD 2048
static inline void cl_netq_fetch_frame(const struct cl_frame *f)
{
    for (uint32_t i = CL_PREFETCH_BYTES; cl_unlikely(i < f->len) && i < CL_NETQ_AHEAD; i += CL_CACHELINE)
        cl_prefetch(f->data + i);
}

/* Owner's calls. */
void cl_netq_ring(struct cl_netq *q);   /* send what waits, give back what is done */
bool cl_netq_refill(struct cl_netq *q); /* get empty buffers; false: there are none */
void cl_netq_push_slow(struct cl_netq *q, const struct cl_frame *f);
/* What arp_timer calls; `arg` is the netif. */
void cl_netq_arp_timer(struct cl_timer *timer, void *arg);
/* Ask who has an address; mac NULL: by broadcast. */
void cl_netq_arp_request(struct cl_netq *q, uint32_t ip_be, const uint8_t *mac);
/* Send an ARP reply to a request, or (request NULL) announce our address. */
bool cl_netq_arp_reply(struct cl_netq *q, const struct cl_arp *request);
/* Send a frame whose headers are complete but for the destination MAC. Takes the frame. now_ns: the scheduler's time,
 * or what the caller read of it a moment ago. asker: NULL, or the MAC from which the frame came that this one answers,
 * where the answer may go while ARP is still asked for a better one. -EHOSTUNREACH: no route; -ENOBUFS: to ourselves,
 * and as many wait as may. */
int cl_netq_send_ip(struct cl_netq *q, struct cl_frame *f, uint32_t dst_be, uint64_t now_ns, const uint8_t *asker);

/* loop.c. A frame to our own address: it comes in again, on this kthread as a rule. Takes it. -ENOBUFS: as many wait as
 * may. */
int cl_netq_loop(struct cl_netq *q, struct cl_frame *f);
/* Take frames of victim's that came so. */
unsigned cl_netq_unloop(struct cl_netq *victim, struct cl_frame *frames, unsigned n);

/* ports.c. */
int cl_udp_bind(struct cl_netif *nif, uint16_t port, unsigned kind, void (*fn)(void), void *arg);
int cl_udp_publish_typed(struct cl_netif *nif, uint16_t port, cl_udp_handler fn, void *arg,
                         const struct cl_udp_types *types, uint16_t first_type);
int cl_udp_publish_batched(struct cl_netif *nif, uint16_t port, cl_udp_burst_handler fn, void *arg, bool foreign,
                           struct cl_batched *batched);
/* A socket with a queue gets its port, alone or with others. The queue is the socket's then, or that of the one that it
 * is recycled from stays (cl_udp_queue_take_over). */
int cl_udp_publish_queue(struct cl_netif *nif, uint16_t port, bool shared, struct cl_udp_queue *queue,
                         struct cl_udp_socket **out);
/* Under table_lock: the port is no longer its own. */
void cl_udp_unpublish(struct cl_netif *nif, struct cl_udp_socket *s);
/* The socket of a shared port that gets a datagram of this flow; NULL: none. */
struct cl_udp_socket *cl_udp_group_find(struct cl_udp_group *group, uint64_t flow);
/* It is connected to another peer (0: to nobody) from now on. -EADDRINUSE, -EINVAL (closed). */
int cl_udp_group_move(struct cl_udp_socket *s, uint64_t peer);
void cl_udp_ports_delete(struct cl_netif *nif);

/* socket.c. */
/* Copy a datagram into the queue of its socket. False: the socket is closed or full, ... (*reason). */
bool cl_udp_deliver(struct cl_netq *q, struct cl_udp_socket *s, const struct cl_rx_item *item, unsigned *reason);
/* Tell the socket that an ICMP error is about. False: there is none that has sent such a datagram. */
bool cl_udp_tell_error(struct cl_netif *nif, const struct cl_icmp_about *about);
/* Nothing will come any more: readers take what waits, then get -ESHUTDOWN, now and later. Any thread, once. */
void cl_udp_sockets_shut(struct cl_netif *nif);
void cl_udp_sockets_drain(struct cl_netif *nif);
int cl_udp_queue_open(struct cl_netif *nif, uint16_t port, bool shared, uint32_t size, struct cl_udp_socket **out);

/* poll.c. */
int cl_poll_open(struct cl_netif *nif, struct cl_poll **out);
/* Under table_lock, after all sockets have been told: wake all that wait. */
void cl_polls_shut(struct cl_netif *nif);

/* A peer as one number, never 0 for a real one. In network byte order, as in a frame. */
static inline uint64_t cl_udp_flow(uint32_t peer_ip_be, uint16_t peer_port_be)
{
    return peer_ip_be | (uint64_t)peer_port_be << 32;
}

/* An empty buffer. False: none. */
static inline bool cl_netq_take(struct cl_netq *q, struct cl_frame *out)
{
    if (cl_unlikely(q->n_spare == 0) && !cl_netq_refill(q))
        return false;
    *out = q->spare[--q->n_spare];
    return true;
}

/* Give an empty buffer back: it is warm, so it is the next to be used. */
static inline void cl_netq_untake(struct cl_netq *q, const struct cl_frame *f)
{
    if (cl_likely(q->n_spare < CL_NETQ_SPARE))
        q->spare[q->n_spare++] = *f;
    else
        q->nic->ops->free(q->nic, q->index, (struct cl_frame *)f, 1);
}

/* A received frame is no longer needed. */
static inline void cl_netq_done(struct cl_netq *q, const struct cl_frame *f)
{
    q->done[q->n_done++] = *f;
    if (cl_unlikely(q->n_done == CL_NIC_BURST)) {
        q->nic->ops->free(q->nic, q->index, q->done, q->n_done);
        q->n_done = 0;
    }
}

/* A segment that is of no connection here may be of another user's of our address: then send it back as it came. */
static inline bool cl_netq_may_be_anothers(const struct cl_netq *q, const struct cl_frame *f)
{
    return q->nic->ops->may_be_anothers && q->nic->ops->may_be_anothers(f);
}

/* Give the empty buffers back, for those of a NIC that went away and came again can be sent no more. */
static inline void cl_netq_renew(struct cl_netq *q)
{
    if (q->n_spare)
        q->nic->ops->free(q->nic, q->index, q->spare, q->n_spare);
    q->n_spare = 0;
}

/* Where the way to a neighbour is remembered, ... */
static inline struct cl_route *cl_netq_route(struct cl_netq *q, uint32_t hop_be)
{
    return &q->routes[(hop_be * 0x9e3779b1u) >> 28];
}

/* ... if it is this one's, and no older than may be. */
static inline bool cl_netq_route_right(const struct cl_netif *nif, const struct cl_route *route, uint32_t hop_be,
                                       uint64_t now_ns)
{
    /* Acquire: pairs with the release of a changed mapping; an entry of an older epoch is asked for again. */
    return route->ip_be == hop_be && route->epoch == cl_load_acquire(&nif->arp->epoch) && now_ns < route->until_ns;
}

/* The way to a neighbour to whom something was sent just now; NULL: cl_netq_send_ip finds one. There is no route to
 * ourselves, or to all, so a neighbour that has one needs no other look. */
static inline const struct cl_route *cl_netq_neighbour(struct cl_netq *q, uint32_t dst_be, uint64_t now_ns)
{
    const struct cl_net_self *self = &q->nif->self;
    const struct cl_route *route = cl_netq_route(q, dst_be);
    bool near = ((dst_be ^ self->ip_be) & self->mask_be) == 0;
    return near && cl_netq_route_right(q->nif, route, dst_be, now_ns) ? route : NULL;
}

/* Send a frame with the next doorbell. */
static inline void cl_netq_push(struct cl_netq *q, const struct cl_frame *f)
{
    if (cl_unlikely(q->n_tx == CL_NETQ_TX)) {
        cl_netq_push_slow(q, f);
        return;
    }
    q->tx[q->n_tx++] = *f;
    if (q->n_tx >= q->flush_at)
        cl_netq_ring(q);
}

/* The same of a frame that is `len` bytes long. The length is written last: a copy of what was just written in part
 * would wait for that. */
static inline void cl_netq_push_sized(struct cl_netq *q, struct cl_frame *f, unsigned len)
{
    if (cl_unlikely(q->n_tx == CL_NETQ_TX)) {
        f->len = (uint16_t)len;
        cl_netq_push_slow(q, f);
        return;
    }
    struct cl_frame *to = &q->tx[q->n_tx++];
    *to = *f;
    to->len = (uint16_t)len;
    if (q->n_tx >= q->flush_at)
        cl_netq_ring(q);
}

static inline bool cl_netif_running(const struct cl_netif *nif)
{
    return cl_load_relaxed(&nif->running) != 0;
}

/* The inbox of q has changed, or what waits apart, or its queues by type, or its flows, which are exported as a part of
 * it. Relaxed: see cl_signals; a thief's store may come late, the owner's before it sleeps is right. */
static inline void cl_netq_note_inbox(struct cl_netq *q)
{
    const struct cl_typed *typed = cl_load_relaxed(&q->typed);
    const struct cl_ready *ready = cl_load_relaxed(&q->ready);
    uint32_t put = 0, taken = 0;
    if (cl_unlikely(typed != NULL)) {
        put = cl_load_relaxed(&typed->put);
        taken = cl_load_relaxed(&typed->taken);
    }
    if (cl_unlikely(ready != NULL)) {
        put += cl_load_relaxed(&ready->put);
        taken += cl_load_relaxed(&ready->taken);
    }
    if (q->parts.apart) {
        put += cl_load_relaxed(&q->parts.apart->tail);
        taken += cl_load_relaxed(&q->parts.apart->head);
    }
    put += cl_load_relaxed(&q->batched_put);
    taken += cl_load_relaxed(&q->batched_taken);
    cl_store_relaxed(&q->signals->inbox_tail, cl_load_relaxed(&q->inbox->tail) + put);
    cl_store_relaxed(&q->signals->inbox_head, cl_load_relaxed(&q->inbox->head) + taken);
}

/* A request has been taken, and its handler is next: what runs is another than before. Writer: the kthread, as of
 * `switches` elsewhere. */
static inline void cl_netq_note_begun(struct cl_netq *q)
{
    cl_netq_note_inbox(q);
    cl_store_relaxed(&q->signals->switches, q->signals->switches + 1);
}

/* Anybody: what waits for a handler, and could be handled now. */
static inline unsigned cl_netq_waiting(const struct cl_netq *q)
{
    const struct cl_typed *typed = cl_load_acquire(&q->typed);
    const struct cl_ready *ready = cl_load_acquire(&q->ready);
    const struct cl_batches *batches = cl_load_acquire(&q->nif->batches);
    return (cl_unlikely(batches != NULL) ? cl_load_relaxed(&batches->due) : 0) + cl_inbox_count(q->inbox) +
           (cl_unlikely(typed != NULL) ? cl_typed_count(typed) : 0) +
           (cl_unlikely(ready != NULL) ? cl_ready_count(ready) : 0) +
           (q->parts.apart ? cl_inbox_count(q->parts.apart) : 0);
}

/* When the request at hand began, and how long the queue had sent until then; since_tsc 0: there was none before. */
struct cl_pace {
    uint64_t since_tsc, rang_ticks;
};

/* Before a request, where a doorbell is a system call (nic.h, tx_calls): its answer waits for the next one's if that is
 * here already, so one call sends all that a burst answers, and a lone answer leaves at once. `more`: it is in hand. */
void cl_netq_pace(struct cl_netq *q, struct cl_pace *p, bool more);

/* A NIC that has come again (drivers/port/port.h) gives frames of another tag, and takes none of the buffers it gave
 * before. */
static inline void cl_netq_look_at_tag(struct cl_netq *q, const struct cl_frame *f)
{
    if (cl_unlikely(f->tag != q->tag)) {
        q->tag = f->tag;
        cl_netq_renew(q);
    }
}

/* The plain load keeps a loser from taking the line away. */
static inline bool cl_netq_lock_rx(struct cl_netq *victim)
{
    return cl_load_relaxed(&victim->rx_lock.word) == 0 && cl_spin_try(&victim->rx_lock);
}

/* Frames of a queue whose lock is held: those of the stash came first. */
static inline unsigned cl_netq_rx(struct cl_netq *victim, struct cl_frame *frames, unsigned n)
{
    unsigned got = 0;
    if (cl_unlikely(victim->n_stash)) {
        if (n < CL_NETQ_STASH)
            return 0; /* a corner of the inbox: the next poll has room */
        got = victim->n_stash;
        memcpy(frames, victim->stash, got * sizeof frames[0]);
        cl_store_relaxed(&victim->n_stash, 0);
    }
    return got + victim->nic->ops->rx_burst(victim->nic, victim->index, frames + got, n - got);
}

static inline void cl_netq_drop(struct cl_netq *q, unsigned reason)
{
    cl_count(&q->stats.dropped[reason], 1);
}

#endif
