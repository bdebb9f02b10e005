/* A runtime's connections: the state machine on flows, alarms and a NIC.
 *
 *   NIC queue --(../order.c, under the queue's lock)--> put: its flow, in the table --> ready queue --> run: a turn
 *   alarm (a kthread's wheel) --> on_alarm: the flow is ready                                    |
 *   NIC queue <-- emit: a frame of a segment <---------------------------------------------------+
 *
 * A block is a flow, its alarm and its connection. It is in the table from its SYN to its end; who holds the flow holds
 * all of it, and siblings take whole flows that are ready. What comes for it waits in the flow meanwhile, at most
 * QUEUE_MOST segments, which hold buffers of the NIC within the budget of all flows (../ordered.h).
 *
 * Locks: a bucket's, which guards the flow. Nothing is called under it. */
#include <corelane/libos/wheel.h>
#include "cookie.h"
#include "flows.h"
#include "machine.h"
#include "ports.h"
#include "serve.h"
#include "sockets.h"

#include "../../../runtime/csum_copy.h"
#include "../../../runtime/pool.h"
#include "../icmp.h"
#include "../tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define QUEUE_MOST 128 /* segments of a connection that wait */
#define PORTS_TRIED 64
#define KEPT_SHARE 8 /* an eighth of the NIC's buffers may lie in frames that wait or are leased */

struct block {
    struct cl_flow flow; /* first: the ready queue has these */
    struct cl_alarm alarm;
    struct cl_tcp_conn conn;
};
_Static_assert(sizeof(struct block) + sizeof(struct cl_flow_bucket) + sizeof(uint32_t) <= CL_TCP_IDLE_BYTES,
               "an idle connection, with its bucket and its index in the pool");

struct counts {
    struct cl_tcp_counts of CL_ALIGNED(CL_CACHELINE);
};

struct net {
    struct cl_connections connections; /* first: cl_netif.tcp */
    struct cl_netif *nif;
    struct cl_flow_table table;
    struct cl_pool *pool;
    struct block *blocks; /* [CL_TCP_CONNECTIONS] */
    struct counts *counts;
    struct cl_tcp_listener **listeners; /* [65536] by port in network byte order; acquire/release; never freed */
    struct cl_tcp_listener *done;       /* that listen no more: connections may point to them. Pushed by anybody */
    struct cl_tcp_stack stack;
    struct cl_flow_secret port_secret;
    uint32_t next_port;   /* added to by whoever connects */
    uint32_t frames_kept; /* added to and taken from by kthreads */
};

struct turn {
    struct cl_tcp_turn turn; /* first */
    struct net *net;
    struct cl_netq *q;            /* of the kthread */
    bool looked;                  /* at the clock, since the turn before */
    bool asked;                   /* a SYN has come in this turn that makes a connection, ... */
    uint8_t asker[6];             /* ... and from where */
    const struct cl_frame *frame; /* in which the segment of now lies; NULL: it is kept */
};

static struct net *net_of(const struct cl_netif *nif)
{
    return (struct net *)nif->tcp;
}

static struct block *block_of(struct cl_tcp_conn *c)
{
    return cl_container_of(c, struct block, conn);
}

/* Sending. */

static uint64_t swap_halves(uint64_t sum)
{
    uint16_t folded = (uint16_t)~cl_csum_finish(sum);
    return (uint16_t)(folded << 8 | folded >> 8);
}

/* Copy data behind a header, and add it to the checksum. */
static uint64_t copy_data(uint8_t *to, const struct cl_tcp_bytes *data, uint64_t sum)
{
    const struct cl_chunk *chunk = data->chunk;
    uint32_t done = 0, at = data->offset;
    while (done < data->len) {
        uint32_t n = cl_min(data->len - done, (uint32_t)chunk->from + chunk->len - at);
        uint64_t part = cl_csum_copy(0, to + done, chunk->bytes + at, n);
        sum += done & 1 ? swap_halves(part) : part; /* behind an odd number of bytes it stands the other way round */
        done += n;
        chunk = chunk->next;
        at = chunk ? chunk->from : 0;
    }
    return sum;
}

/* The answer to a SYN goes to where that came from, as a cookie does and a reset, if the neighbour's address is not known
 * yet: of many that open at one time ARP would hold some and lose the others for a second. Whatever follows goes where ARP
 * says. So a stranger who speaks in another's name gets no more than that one segment. */
static bool emit(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                 const struct cl_tcp_bytes *data)
{
    const struct turn *t = (const struct turn *)turn;
    const struct cl_flow_key *key = &block_of(c)->flow.key;
    struct cl_netq *q = t->q;
    struct cl_frame f;
    if (!cl_netq_take(q, &f))
        return false;
    struct cl_eth *eth = (struct cl_eth *)f.data;
    struct cl_ipv4 *ip = (struct cl_ipv4 *)(f.data + CL_ETH_HLEN);
    uint8_t *tcp = (uint8_t *)(ip + 1);
    uint64_t sum;
    unsigned header = cl_tcp_segment_write_summed(s, key->own_port_be, key->peer_port_be, tcp, &sum);
    unsigned len = header + s->len;
    memcpy(eth->src, q->nif->self.mac, 6); /* its destination is cl_netq_send_ip's */
    eth->type_be = cl_be16(CL_ETHERTYPE_IPV4);
    cl_ipv4_fill(ip, key->own_be, key->peer_be, CL_IPPROTO_TCP, len);
    if (s->ecn)
        cl_ipv4_mark(ip, s->ecn);
    sum += cl_csum_pseudo(key->own_be, key->peer_be, CL_IPPROTO_TCP, (uint16_t)len);
    ((struct cl_tcp *)tcp)->check = cl_csum_finish(copy_data(tcp + header, data, sum));
    f.len = (uint16_t)(CL_ETH_HLEN + CL_IPV4_HLEN + len);
    const uint8_t *asker = t->asked && (s->flags & CL_TCPF_SYN) ? t->asker : NULL;
    /* Without a way it is as if lost. */
    return cl_netq_send_ip(q, &f, key->peer_be, turn->now_ns, asker) != -ENOBUFS;
}

/* Stopped: nothing leaves any more. */
static bool emit_nothing(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                         const struct cl_tcp_bytes *data)
{
    (void)turn, (void)c, (void)s, (void)data;
    return true;
}

/* Frames that outlive their turn. */

struct kept {
    struct cl_chunk_owner owner; /* first */
    struct net *net;
    struct cl_frame frame;
};

static void kept_done(struct cl_chunk_owner *owner, unsigned kthread)
{
    struct kept *k = (struct kept *)owner;
    cl_netq_done(&k->net->nif->queues[kthread], &k->frame);
    __atomic_fetch_sub(&k->net->frames_kept, 1, __ATOMIC_RELAXED); /* a number */
}

static bool keep(struct cl_tcp_turn *turn, struct cl_chunk *chunk)
{
    struct turn *t = (struct turn *)turn;
    uint32_t most = t->net->nif->nic->n_buffers / KEPT_SHARE;
    if (__atomic_fetch_add(&t->net->frames_kept, 1, __ATOMIC_RELAXED) >= most) {
        __atomic_fetch_sub(&t->net->frames_kept, 1, __ATOMIC_RELAXED);
        return false;
    }
    *(struct kept *)cl_chunk_owner(chunk) = (struct kept){{kept_done}, t->net, *t->frame};
    t->frame = NULL;
    return true;
}

/* Turns. */

static const struct cl_flow_key *key_of_conn(const struct cl_tcp_conn *c)
{
    return &cl_tcp_flow(c)->key;
}

static void place(struct cl_tcp_turn *turn)
{
    struct turn *t = (struct turn *)turn;
    struct net *net = t->net;
    t->q = cl_netq_self(net->nif);
    t->looked = true;
    turn->kthread = t->q->index;
    turn->counts = &net->counts[turn->kthread].of;
    turn->now_ns = cl_sched_now_ns(net->nif->sched);
}

static void here(struct cl_tcp_turn *turn)
{
    if (cl_unlikely(cl_netq_self(((struct turn *)turn)->net->nif)->index != turn->kthread))
        place(turn);
}

/* Acquire: a listener's fields were written before it was published. */
static struct cl_tcp_listener *listener_on(const struct net *net, uint16_t port_be)
{
    return cl_load_acquire(&net->listeners[port_be]);
}

/* Of the port of one that opens again. */
static struct cl_tcp_listener *listener_of(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c)
{
    const struct block *b = cl_container_of(c, const struct block, conn);
    struct cl_tcp_listener *l = listener_on(((struct turn *)turn)->net, b->flow.key.own_port_be);
    return l && cl_tcp_admit(l) ? l : NULL;
}

static struct turn turn_on(struct net *net)
{
    struct turn t = {.turn = {.stack = &net->stack,
                              .emit = emit,
                              .listener = listener_of,
                              .key = key_of_conn,
                              .keep = keep,
                              .called = place,
                              .here = here},
                     .net = net};
    place(&t.turn);
    return t;
}

/* What came is an ICMP error; else it is a segment. */
static bool is_error(const struct cl_rx_item *item)
{
    return ((const struct cl_ipv4 *)(item->frame.data + CL_ETH_HLEN))->proto == CL_IPPROTO_ICMP;
}

static void count_item(struct cl_netq *q, const struct cl_rx_item *item)
{
    cl_count(cl_unlikely(is_error(item)) ? &q->stats.icmp_errors : &q->stats.tcp_segments, 1);
}

/* Take the item's frame apart, and give it to the connection. */
static void take_item(struct turn *t, struct cl_tcp_conn *c, const struct cl_rx_item *item)
{
    const uint8_t *bytes = item->frame.data + item->l4;
    struct cl_tcp_segment s;
    struct cl_netq *q = t->q;
    if (cl_unlikely(item->frame.tag != q->tag))
        cl_netq_look_at_tag(q, &item->frame);
    count_item(q, item);
    if (cl_unlikely(is_error(item))) {
        struct cl_icmp_about about;
        cl_icmp_read(bytes, &about); /* which ../icmp.c has looked at */
        cl_tcp_complain(c, &about);
    } else if (cl_tcp_segment_read(bytes, item->payload_len, &s)) { /* which ../tcp.c has looked at */
        s.ecn = ((const struct cl_ipv4 *)(item->frame.data + CL_ETH_HLEN))->tos & 3;
        if (cl_unlikely(c->state == CL_TCP_LISTEN)) {
            t->asked = true;
            memcpy(t->asker, ((const struct cl_eth *)item->frame.data)->src, 6);
        }
        t->frame = &item->frame;
        cl_tcp_input(c, &s, bytes + s.header_len);
        if (cl_unlikely(!t->frame))
            return;
    }
    cl_netq_done(t->q, &item->frame); /* another one, perhaps: a callback may have moved us */
}

static void free_items(struct cl_netq *q, struct cl_flow_item *item)
{
    struct cl_flows *flows = q->nif->flows;
    while (item) {
        uint32_t index = (uint32_t)(item - flows->items);
        struct cl_flow_item *next = item->next;
        count_item(q, &item->rx);
        cl_netq_done(q, &item->rx.frame);
        cl_pool_put_one(flows->item_pool, q->index, index);
        item = next;
    }
}

static void free_block(struct net *net, unsigned kthread, const struct block *b)
{
    uint32_t index = (uint32_t)(b - net->blocks);
    cl_count(&net->counts[kthread].of.over, 1);
    cl_pool_put_one(net->pool, kthread, index);
}

/* The connection is over: the block leaves the table and is free. Its holder. */
static void retire(const struct turn *t, struct block *b)
{
    struct net *net = t->net;
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    struct cl_netq *q = t->q;
    cl_alarm_remove(&b->alarm);
    cl_flow_lock(&net->table, bucket);
    cl_flow_remove(bucket, &b->flow);
    cl_flow_unlock(&net->table, bucket);
    free_items(q, b->flow.taken);
    free_items(q, b->flow.first);
    free_block(net, q->index, b);
}

/* The holder has done its turn. */
static void let_go(const struct turn *t, struct block *b, unsigned done)
{
    struct net *net = t->net;
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    uint64_t due_ns = cl_tcp_due_ns(&b->conn);
    struct cl_ready_list one = {0};
    if (due_ns == CL_TCP_NEVER)
        cl_alarm_cancel(&b->alarm);
    else if (due_ns != cl_alarm_deadline_ns(&b->alarm))
        (void)cl_alarm_arm(&b->alarm, due_ns); /* on a kthread */
    cl_flow_lock(&net->table, bucket);
    bool more = cl_flow_release(&b->flow, done);
    cl_flow_unlock(&net->table, bucket);
    if (more) {
        cl_ready_add(&one, &b->flow);
        cl_ordered_publish(t->q, &one);
    }
}

static void begin(struct block *b, struct turn *t)
{
    cl_tcp_begin(&b->conn, &t->turn);
    if (!cl_alarm_quiet(&b->alarm, t->turn.now_ns))
        (void)cl_alarm_due(&b->alarm, t->turn.now_ns); /* it says when to look, the timers say what for */
    cl_tcp_timers(&b->conn);
}

static void tell_woken(struct cl_tcp_conn *c)
{
    if (!c->user || !c->user->woken || (c->flags & CL_TCP_TOLD))
        return;
    c->user->woken(c, c->arg);
    c->turn->called(c->turn);
}

/* The end of a turn in which `done` items were taken. */
static void finish(struct turn *t, struct block *b, unsigned done)
{
    if (cl_tcp_finish(&b->conn))
        let_go(t, b, done);
    else
        retire(t, b);
}

static void run_one(struct turn *t, struct block *b)
{
    struct net *net = t->net;
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    struct cl_flow_item *items = net->nif->flows->items;
    unsigned done = 0;
    t->asked = false;
    cl_netq_note_begun(t->q);
    cl_flow_lock(&net->table, bucket);
    cl_flow_hold(&b->flow);
    bool woken = b->flow.woken;
    b->flow.woken = false;
    cl_flow_unlock(&net->table, bucket);
    begin(b, t);
    for (struct cl_flow_item *item; done < CL_FLOW_BURST && (item = cl_flow_next(&b->flow)); done++) {
        uint32_t index = (uint32_t)(item - items);
        take_item(t, &b->conn, &item->rx);
        cl_pool_put_one(net->nif->flows->item_pool, t->turn.kthread, index);
    }
    if (b->conn.user == &cl_stream_events)
        cl_streams_turn(&b->conn);
    if (cl_unlikely(woken))
        tell_woken(&b->conn);
    finish(t, b, done);
}

/* The block of a flow whose turn comes after the one that begins now: by then its lines are there. */
static void prefetch(const struct cl_flow *f)
{
    for (unsigned i = 0; f && i < sizeof(struct block); i += CL_CACHELINE)
        cl_prefetch_write((const char *)f + i);
}

/* The clock is read once for a connection: when its callbacks return, which is when the next one begins; or now. */
static struct cl_flow *run(struct cl_netif *nif, struct cl_flow *f, struct cl_pace *at, unsigned *turns)
{
    struct turn t = turn_on(net_of(nif));
    const struct cl_flow *next;
    while (f && f->key.protocol == CL_IPPROTO_TCP) {
        if (!t.looked)
            place(&t.turn);
        t.looked = false;
        run_one(&t, (struct block *)f);
        *turns -= *turns > 0;
        f = NULL;
        if (*turns && cl_inbox_count(t.q->inbox) == 0 && (f = cl_ready_pop(t.q->ready, &next)))
            prefetch(next);
        if (f && cl_unlikely(t.q->nic->tx_calls))
            cl_netq_pace(t.q, at, false);
    }
    return f;
}

bool cl_tcp_hold(struct cl_tcp_conn *c)
{
    struct block *b = block_of(c);
    struct net *net = net_of(b->flow.nif);
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    cl_flow_lock(&net->table, bucket);
    bool idle = b->flow.state == CL_FLOW_IDLE;
    if (idle)
        cl_flow_hold(&b->flow);
    else
        (void)cl_flow_wake(&b->flow); /* false: it is not idle */
    cl_flow_unlock(&net->table, bucket);
    return idle;
}

void cl_tcp_visit(struct cl_tcp_conn *c, void (*fn)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    struct block *b = block_of(c);
    struct net *net = net_of(b->flow.nif);
    struct turn t = turn_on(net);
    begin(b, &t);
    fn(c, arg);
    finish(&t, b, 0);
    /* The uthread may go on for long. Where answers come fast, and others are about to send, too, they leave together, as
     * those of handlers (cl_netq_ring). */
    if (t.q->n_tx && (t.q->flush_at == 1 || !cl_uthread_others_ready()))
        cl_netq_ring(t.q);
}

static void hold_for_lease(struct cl_tcp_conn *c, void *arg)
{
    struct cl_tcp_conn **held = arg;
    if (cl_tcp_hold(c))
        *held = c;
}

static void look_at_window(struct cl_tcp_conn *c, void *arg)
{
    (void)c, (void)arg; /* the turn's end does */
}

/* By a kthread; or by nobody else, while none runs. */
void cl_tcp_take_lease(struct cl_netif *nif, struct cl_lease *lease)
{
    struct net *net = net_of(nif);
    struct cl_tcp_conn *held = NULL;
    struct cl_netq *q = cl_netq_self(nif);
    unsigned k = q ? q->index : 0;
    cl_tcp_lease_end(&net->stack, k, &net->counts[k].of, lease, hold_for_lease, &held);
    if (held)
        cl_tcp_visit(held, look_at_window, NULL);
    else if (!q)
        cl_netq_ring(&nif->queues[0]);
}

/* Have somebody hold the flow, on a kthread. tell: and call `woken`. */
static void wake(struct net *net, struct block *b, bool tell)
{
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    struct cl_ready_list one = {0};
    cl_flow_lock(&net->table, bucket);
    b->flow.woken |= tell;
    bool woke = cl_flow_wake(&b->flow);
    cl_flow_unlock(&net->table, bucket);
    if (!woke)
        return;
    cl_ready_add(&one, &b->flow);
    cl_ordered_publish(cl_netq_self(net->nif), &one);
}

/* In a kthread's loop: the flow is ready, and whoever holds it next looks at what is due. */
static void on_alarm(struct cl_alarm *alarm)
{
    struct block *b = cl_container_of(alarm, struct block, alarm);
    wake(net_of(b->flow.nif), b, false);
}

int cl_tcp_wake(struct cl_tcp_conn *c)
{
    struct block *b = block_of(c);
    if (!cl_netq_self(b->flow.nif))
        return -EPERM;
    wake(net_of(b->flow.nif), b, true);
    return 0;
}

/* Segments that come. */

/* A block that nobody else can find yet. NULL: as many exist as may. */
static struct block *new_block(struct turn *t, const struct cl_flow_key *key, uint64_t hash,
                               const struct cl_tcp_settings *settings)
{
    struct net *net = t->net;
    uint32_t index;
    if (!cl_pool_get_one(net->pool, t->turn.kthread, &index))
        return NULL;
    struct block *b = &net->blocks[index];
    cl_count(&t->turn.counts->begun, 1);
    b->flow = (struct cl_flow){.key = *key, .hash = hash, .nif = net->nif};
    cl_alarm_init(&b->alarm, on_alarm);
    cl_tcp_init(&b->conn, &t->turn, key, settings);
    b->conn.turn = NULL;
    return b;
}

/* Of the frame of a segment, which begins at l4. */
static void key_of(const uint8_t *frame, unsigned l4, struct cl_flow_key *key, uint8_t *flags)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    const struct cl_tcp *tcp = (const struct cl_tcp *)(frame + l4);
    *flags = tcp->flags;
    *key = (struct cl_flow_key){.peer_be = ip->src_be,
                                .own_be = ip->dst_be,
                                .peer_port_be = tcp->src_port_be,
                                .own_port_be = tcp->dst_port_be,
                                .protocol = CL_IPPROTO_TCP};
}

/* A block for a connection that its listener has admitted. NULL: as many exist as may. */
static struct block *admitted_block(struct turn *t, const struct cl_flow_key *key, uint64_t hash,
                                    struct cl_tcp_listener *l)
{
    struct block *b = new_block(t, key, hash, l->settings);
    if (b)
        return b;
    cl_count(&t->turn.counts->dropped_table, 1);
    __atomic_fetch_sub(&l->pending, 1, __ATOMIC_RELAXED); /* a number */
    return NULL;
}

/* The block for a SYN to a port where somebody listens. NULL, *l NULL: nobody does, or its backlog is full, and whoever
 * has no connection yet is answered by a cookie. NULL, *l set: there is no place for it. */
static struct block *block_for_syn(struct net *net, const struct cl_flow_key *key, uint64_t hash,
                                   struct cl_tcp_listener **l)
{
    struct turn t = turn_on(net);
    *l = listener_on(net, key->own_port_be);
    if (!*l)
        return NULL;
    if (!cl_tcp_admit(*l)) {
        if (cl_tcp_takes(*l))
            *l = NULL;
        else
            cl_count(&t.turn.counts->dropped_backlog, 1);
        return NULL;
    }
    struct block *b = admitted_block(&t, key, hash, *l);
    if (b)
        cl_tcp_listen(&b->conn, *l);
    return b;
}

/* The block for a segment that is of no connection, but answers a cookie. NULL, *l set: there is no place for it. */
static struct block *block_for_cookie(struct net *net, const struct cl_rx_item *item, const struct cl_flow_key *key,
                                      uint64_t hash, struct cl_tcp_listener **l)
{
    struct turn t = turn_on(net);
    struct cl_tcp_segment s;
    struct cl_tcp_listener *on = listener_on(net, key->own_port_be);
    if (!on || !cl_tcp_segment_read(item->frame.data + item->l4, item->payload_len, &s) ||
        !cl_tcp_cookie_right(&t.turn, key, &s))
        return NULL;
    *l = on;
    if (!cl_tcp_cookie_admit(on)) {
        cl_count(&t.turn.counts->dropped_backlog, 1);
        return NULL;
    }
    struct block *b = admitted_block(&t, key, hash, on);
    if (!b)
        return NULL;
    cl_tcp_begin(&b->conn, &t.turn);
    cl_tcp_cookie_take(&b->conn, on, &s);
    b->conn.turn = NULL;
    return b;
}

/* A SYN that found no place. After the receive lock: order.c. */
static unsigned answer(struct cl_netq *q, const uint8_t *frame, const struct cl_rx_info *info, uint8_t *out)
{
    struct net *net = net_of(q->nif);
    struct turn t = turn_on(net);
    struct cl_tcp_segment syn, answer;
    struct cl_flow_key key;
    uint8_t flags;
    key_of(frame, info->l4, &key, &flags);
    const struct cl_tcp_listener *l = listener_on(net, key.own_port_be);
    if (info->broadcast || !l || (flags & (CL_TCP_SYN | CL_TCP_ACK | CL_TCP_RST)) != CL_TCP_SYN ||
        !cl_tcp_segment_read(frame + info->l4, info->l4_len, &syn))
        return 0;
    cl_tcp_cookie_answer(&t.turn, l, &key, &syn, &answer);
    return cl_tcp_answer(&q->nif->self, frame, info, &answer, out);
}

/* What was made for a SYN is not needed. */
static void unmake(struct net *net, unsigned kthread, struct block *b)
{
    cl_tcp_accepted(&b->conn);
    free_block(net, kthread, b);
}

/* Put an item into the flow of its connection, which may be `fresh`. CL_DROP_NONE; CL_DROP_TCP_NO_PORT: there is
 * none. */
static unsigned append(struct net *net, const struct cl_flow_key *key, uint64_t hash, struct block **fresh,
                       struct cl_flow_item *item, struct cl_ready_list *woken)
{
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, hash);
    unsigned reason = CL_DROP_NONE;
    cl_flow_lock(&net->table, bucket);
    struct cl_flow *f = cl_flow_find(bucket, key);
    if (!f && *fresh) {
        f = &(*fresh)->flow;
        cl_flow_enter(bucket, f);
        *fresh = NULL;
    }
    if (!f) {
        reason = CL_DROP_TCP_NO_PORT;
    } else if (f->waiting >= QUEUE_MOST) {
        reason = CL_DROP_FLOW_FULL;
    } else {
        cl_flow_append(f, item);
        if (cl_flow_wake(f))
            cl_ready_add(woken, f);
    }
    cl_flow_unlock(&net->table, bucket);
    return reason;
}

static bool put(struct cl_netq *q, const struct cl_rx_item *item, struct cl_ready_list *woken)
{
    struct net *net = net_of(q->nif);
    struct cl_flows *flows = q->nif->flows;
    struct cl_flow_key key;
    struct cl_tcp_listener *l = NULL;
    struct block *fresh = NULL;
    uint32_t index;
    uint8_t flags;
    if (item->broadcast)
        return false;
    key_of(item->frame.data, item->l4, &key, &flags);
    uint64_t hash = cl_flow_hash(&net->table.secret, &key);
    if ((flags & (CL_TCP_SYN | CL_TCP_ACK | CL_TCP_RST)) == CL_TCP_SYN)
        fresh = block_for_syn(net, &key, hash, &l);
    else if (!(flags & CL_TCP_ACK)) /* where somebody listens it is dropped (RFC 9293, section 3.10.7.2) */
        l = listener_on(net, key.own_port_be);
    unsigned reason = CL_DROP_FLOW_BUDGET;
    if (cl_likely(cl_pool_get_one(flows->item_pool, q->index, &index))) {
        flows->items[index].rx = *item;
        reason = append(net, &key, hash, &fresh, &flows->items[index], woken);
        if (reason == CL_DROP_TCP_NO_PORT && (flags & CL_TCP_ACK) &&
            (fresh = block_for_cookie(net, item, &key, hash, &l)))
            reason = append(net, &key, hash, &fresh, &flows->items[index], woken);
        if (reason != CL_DROP_NONE)
            cl_pool_put_one(flows->item_pool, q->index, index);
    }
    if (cl_unlikely(fresh != NULL))
        unmake(net, q->index, fresh);
    if (reason == CL_DROP_TCP_NO_PORT && !l)
        return false;
    if (reason == CL_DROP_NONE) {
        cl_count(&q->stats.delivered, 1);
        return true;
    }
    cl_netq_drop(q, reason == CL_DROP_TCP_NO_PORT ? CL_DROP_FLOW_TABLE : reason);
    cl_netq_done(q, &item->frame);
    return true;
}

static bool complain(struct cl_netq *q, const struct cl_rx_item *item, const struct cl_icmp_about *about,
                     struct cl_ready_list *woken)
{
    struct net *net = net_of(q->nif);
    struct cl_flows *flows = q->nif->flows;
    struct cl_flow_key key = {.peer_be = about->dst_be,
                              .own_be = about->src_be,
                              .peer_port_be = about->dst_port_be,
                              .own_port_be = about->src_port_be,
                              .protocol = CL_IPPROTO_TCP};
    struct block *none = NULL;
    uint32_t index;
    if (!cl_pool_get_one(flows->item_pool, q->index, &index))
        return false;
    flows->items[index].rx = *item;
    if (append(net, &key, cl_flow_hash(&net->table.secret, &key), &none, &flows->items[index], woken) == CL_DROP_NONE) {
        cl_count(&q->stats.delivered, 1);
        return true;
    }
    cl_pool_put_one(flows->item_pool, q->index, index);
    return false;
}

/* From the beginning to the end. */

static void drain(struct cl_netif *nif)
{
    struct net *net = net_of(nif);
    struct turn t = {.turn = {.stack = &net->stack, .emit = emit_nothing, .counts = &net->counts[0].of}, .net = net};
    t.turn.now_ns = cl_sched_now_ns(nif->sched);
    for (uint64_t i = 0; i <= net->table.mask; i++)
        for (struct cl_flow *f; (f = net->table.buckets[i].first);) {
            struct block *b = (struct block *)f;
            net->table.buckets[i].first = f->next;
            free_items(&nif->queues[0], f->taken);
            free_items(&nif->queues[0], f->first);
            cl_alarm_remove(&b->alarm);
            cl_tcp_begin(&b->conn, &t.turn);
            cl_tcp_end(&b->conn, ESHUTDOWN);
            (void)cl_tcp_finish(&b->conn);
            free_block(net, 0, b);
        }
}

static void delete_net(struct net *net)
{
    if (!net)
        return;
    for (unsigned i = 0; net->listeners && i < CL_UDP_PORTS; i++)
        if (net->listeners[i] && !net->listeners[i]->accepts) /* else it is one of the sockets', which free it */
            free(net->listeners[i]);
    for (struct cl_tcp_listener *l; (l = net->done);) {
        net->done = l->next;
        free(l);
    }
    cl_streams_delete(net->connections.streams);
    cl_tcp_serving_delete(net->connections.serving);
    if (net->blocks)
        munmap(net->blocks, CL_TCP_CONNECTIONS * sizeof *net->blocks);
    cl_pool_delete(net->pool);
    free(net->table.buckets);
    free(net->listeners);
    free(net->counts);
    free(net);
}

static void free_connections(struct cl_netif *nif)
{
    delete_net(net_of(nif));
    nif->tcp = NULL;
}

static bool allocate(struct net *net, unsigned n_kthreads)
{
    /* Pages that are never needed are never touched. */
    void *blocks = mmap(NULL, CL_TCP_CONNECTIONS * sizeof *net->blocks, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    net->blocks = blocks == MAP_FAILED ? NULL : blocks;
    net->pool = cl_pool_new(0, CL_TCP_CONNECTIONS, n_kthreads);
    net->table.buckets = calloc(CL_TCP_CONNECTIONS, sizeof *net->table.buckets);
    net->table.mask = CL_TCP_CONNECTIONS - 1;
    net->table.shared = n_kthreads > 1;
    net->listeners = calloc(CL_UDP_PORTS, sizeof *net->listeners);
    net->counts = aligned_alloc(CL_CACHELINE, n_kthreads * sizeof *net->counts);
    if (net->counts)
        memset(net->counts, 0, n_kthreads * sizeof *net->counts);
    return net->blocks && net->pool && net->table.buckets && net->listeners && net->counts;
}
_Static_assert((CL_TCP_CONNECTIONS & (CL_TCP_CONNECTIONS - 1)) == 0, "a bucket for each");

/* Another secret of the runtime's: who finds one out knows nothing of the others. */
static struct cl_flow_secret derive(const struct cl_netif *nif, uint64_t which)
{
    return (struct cl_flow_secret){cl_sip_two(&nif->secret, 2 * which, 8ull << 56),
                                   cl_sip_two(&nif->secret, 2 * which + 1, 8ull << 56)};
}

/* Under types_lock. */
static int make(struct cl_netif *nif)
{
    if (nif->tcp)
        return 0;
    int rc = cl_flows_make(nif);
    struct net *net = rc ? NULL : calloc(1, sizeof *net);
    if (!net)
        return rc ? rc : -ENOMEM;
    if (!allocate(net, nif->n_queues)) {
        delete_net(net);
        return -ENOMEM;
    }
    net->table.secret = derive(nif, 1);
    net->stack.secret = derive(nif, 2);
    net->port_secret = derive(nif, 3);
    net->connections = (struct cl_connections){.put = put,
                                               .answer = answer,
                                               .complain = complain,
                                               .run = run,
                                               .drain = drain,
                                               .free = free_connections,
                                               .shut = cl_streams_shut};
    net->nif = nif;
    net->stack.chunks = nif->chunks;
    cl_tcp_settings_default(&net->stack.settings, nif->mtu);
    cl_store_release(&nif->tcp, &net->connections); /* release: kthreads may run already */
    return 0;
}

int cl_tcp_ensure(struct cl_netif *nif)
{
    if (cl_load_acquire(&nif->tcp))
        return 0;
    pthread_mutex_lock(&nif->types_lock);
    int rc = make(nif);
    pthread_mutex_unlock(&nif->types_lock);
    return rc;
}

const struct cl_tcp_settings *cl_tcp_default_settings(struct cl_netif *nif)
{
    return &net_of(nif)->stack.settings;
}

int cl_tcp_publish(struct cl_netif *nif, uint16_t port, struct cl_tcp_listener *l)
{
    struct cl_tcp_listener *nobody = NULL;
    /* Release: its fields come first. */
    return __atomic_compare_exchange_n(&net_of(nif)->listeners[cl_be16(port)], &nobody, l, false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED)
               ? 0
               : -EADDRINUSE;
}

void cl_tcp_unpublish(struct cl_netif *nif, uint16_t port)
{
    cl_store_relaxed(&net_of(nif)->listeners[cl_be16(port)], NULL); /* what it is stays where it is */
}

int cl_tcp_listen_on(struct cl_netif *nif, uint16_t port, uint32_t backlog, const struct cl_tcp_events *events,
                     void *arg)
{
    if (port == 0 || backlog == 0 || !events)
        return -EINVAL;
    int rc = cl_tcp_ensure(nif);
    struct cl_tcp_listener *l = rc ? NULL : calloc(1, sizeof *l);
    if (!l)
        return rc ? rc : -ENOMEM;
    *l = (struct cl_tcp_listener){
        .settings = cl_tcp_default_settings(nif), .user = events, .arg = arg, .backlog = backlog};
    if ((rc = cl_tcp_publish(nif, port, l)))
        free(l);
    return rc;
}

int cl_tcp_unlisten(struct cl_netif *nif, uint16_t port)
{
    struct net *net = net_of(nif);
    struct cl_tcp_listener *l = net ? listener_on(net, cl_be16(port)) : NULL;
    /* Relaxed: what it is stays where it is. */
    if (!l || l->accepts ||
        !__atomic_compare_exchange_n(&net->listeners[cl_be16(port)], &l, NULL, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return -ENOENT;
    l->next = cl_load_relaxed(&net->done);
    while (!__atomic_compare_exchange_n(&net->done, &l->next, l, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return 0;
}

int cl_tcp_set_congestion(struct cl_netif *nif, const char *rule, uint32_t ecn)
{
    const struct cl_tcp_cc_ops *cc = cl_tcp_cc_find(rule);
    if (!cc || ecn > CL_TCP_ECN_TAKE)
        return -EINVAL;
    int rc = cl_tcp_ensure(nif);
    if (rc)
        return rc;
    struct cl_tcp_settings *s = &net_of(nif)->stack.settings;
    s->cc = cc;
    s->ecn = (uint8_t)ecn;
    return 0;
}

int cl_tcp_set_keep_alive(struct cl_netif *nif, uint32_t idle_ms, uint32_t interval_ms, uint32_t probes)
{
    if (idle_ms && (interval_ms == 0 || probes == 0))
        return -EINVAL;
    int rc = cl_tcp_ensure(nif);
    if (rc)
        return rc;
    struct cl_tcp_settings *s = &net_of(nif)->stack.settings;
    if (idle_ms == 0) {
        s->flags &= ~(uint32_t)CL_TCP_KEEP_ALIVE;
        return 0;
    }
    s->flags |= CL_TCP_KEEP_ALIVE;
    s->keep_idle_ms = idle_ms;
    s->keep_interval_ms = interval_ms;
    s->keep_probes = probes;
    return 0;
}

/* Enter a block under its key, if nobody has that. */
static bool enter_as(struct net *net, struct block *b)
{
    b->flow.hash = cl_flow_hash(&net->table.secret, &b->flow.key);
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    cl_flow_lock(&net->table, bucket);
    bool is_free = !cl_flow_find(bucket, &b->flow.key);
    if (is_free)
        cl_flow_enter(bucket, &b->flow);
    cl_flow_unlock(&net->table, bucket);
    return is_free;
}

/* Enter a block under a free port of ours, where nobody listens. */
static bool enter(struct net *net, struct block *b)
{
    struct cl_flow_key *key = &b->flow.key;
    for (unsigned i = 0; i < PORTS_TRIED; i++) {
        uint32_t n = __atomic_fetch_add(&net->next_port, 1, __ATOMIC_RELAXED); /* a number */
        key->own_port_be = cl_be16(cl_tcp_port_for(&net->port_secret, key, n));
        if (!cl_load_relaxed(&net->listeners[key->own_port_be]) && enter_as(net, b))
            return true;
    }
    return false;
}

/* The ends of a new connection, as far as they are known. */
static int key_for(const struct cl_netif *nif, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                   struct cl_flow_key *key)
{
    uint32_t peer_be = cl_be32(to->ipv4), own_be = from ? cl_be32(from->ipv4) : 0;
    if (to->port == 0 || to->ipv4 == 0)
        return -EINVAL;
    if (!cl_ipv4_is_own(&nif->self, peer_be) && (to->ipv4 >= 0xe0000000u || !cl_ipv4_next_hop(&nif->self, peer_be)))
        return -EHOSTUNREACH;
    if (own_be && !cl_ipv4_is_own(&nif->self, own_be))
        return -EADDRNOTAVAIL;
    *key = (struct cl_flow_key){.peer_be = peer_be,
                                .own_be = own_be ? own_be : cl_ipv4_source(&nif->self, peer_be),
                                .peer_port_be = cl_be16(to->port),
                                .own_port_be = from ? cl_be16(from->port) : 0,
                                .protocol = CL_IPPROTO_TCP};
    return 0;
}

int cl_tcp_open_from(struct cl_netif *nif, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                     const struct cl_tcp_events *events, void *arg, void (*made)(struct cl_tcp_conn *c, void *arg))
{
    struct cl_flow_key key;
    if (!cl_netq_self(nif))
        return -EPERM;
    int rc = key_for(nif, from, to, &key);
    if (rc || (rc = cl_tcp_ensure(nif)))
        return rc;
    struct net *net = net_of(nif);
    struct turn t = turn_on(net);
    struct block *b = new_block(&t, &key, 0, &net->stack.settings);
    if (!b)
        return -ENOBUFS;
    b->flow.state = CL_FLOW_RUNNING; /* ours from the moment that others can find it */
    if (!(key.own_port_be ? enter_as(net, b) : enter(net, b))) {
        unmake(net, t.turn.kthread, b);
        return key.own_port_be ? -EADDRINUSE : -EADDRNOTAVAIL;
    }
    cl_tcp_init(&b->conn, &t.turn, &b->flow.key, &net->stack.settings); /* its port is known now */
    cl_tcp_connect(&b->conn, events, arg);
    if (made)
        made(&b->conn, arg);
    (void)cl_tcp_finish(&b->conn); /* a SYN leaves, or is tried again: it lives */
    let_go(&t, b, 0);
    cl_netq_ring(t.q);
    return 0;
}

int cl_tcp_open(struct cl_netif *nif, uint32_t ipv4, uint16_t port, const struct cl_tcp_events *events, void *arg)
{
    struct cl_tcp_addr to = {ipv4, port, 0};
    return events ? cl_tcp_open_from(nif, NULL, &to, events, arg, NULL) : -EINVAL;
}

const struct cl_flow *cl_tcp_flow(const struct cl_tcp_conn *c)
{
    return &cl_container_of(c, const struct block, conn)->flow;
}

void cl_tcp_ends(const struct cl_tcp_conn *c, uint32_t *peer, uint16_t *peer_port, uint16_t *own_port)
{
    const struct cl_flow_key *key = &cl_container_of(c, const struct block, conn)->flow.key;
    *peer = cl_be32(key->peer_be);
    *peer_port = cl_be16(key->peer_port_be);
    *own_port = cl_be16(key->own_port_be);
}

void cl_tcp_count(const struct cl_netif *nif, struct cl_tcp_counts *out)
{
    const struct net *net = (const struct net *)cl_load_acquire(&nif->tcp);
    uint64_t *sum = (uint64_t *)out;
    *out = (struct cl_tcp_counts){0};
    for (unsigned k = 0; net && k < nif->n_queues; k++)
        for (unsigned i = 0; i < sizeof *out / sizeof *sum; i++)
            sum[i] += cl_load_relaxed((const uint64_t *)&net->counts[k].of + i);
}
