/* Turns of connections: by kthreads that take ready flows, and by visits of others. See net.h. */
#include "sockets.h"
#include "traced.h"

#include "../icmp.h"
#include "../tcp.h"
#include "../../../runtime/pool.h"

#include <corelane/libos/adopt.h>

#include <errno.h>
#include <string.h>

#define USER_BYTES (3 * CL_CACHELINE) /* of what a user has of a connection, that are sent for when its turn begins */
#define GATHER_NS 16000               /* that an answer waits for those of the same burst */
#define CLOCK_EVERY 8                 /* connections that are called one after the other, between two looks at it */

static const struct cl_flow_key *key_of_conn(const struct cl_tcp_conn *c)
{
    return &cl_tcp_flow(c)->key;
}

static void place(struct cl_tcp_turn *turn)
{
    struct cl_tcp_flow_turn *t = (struct cl_tcp_flow_turn *)turn;
    struct cl_tcp_net *net = t->net;
    unsigned k = (unsigned)cl_kthread_index_in(net->nif->sched);
    if (cl_unlikely(!t->q || k != turn->kthread)) {
        t->q = &net->nif->queues[k];
        turn->kthread = k;
        turn->counts = &net->counts[k].of;
    }
    t->looked = true;
    t->tsc = cl_clock_stamp(net->nif->clock);
    turn->now_ns = (uint64_t)cl_tsc_to_ns(net->nif->clock, t->tsc); /* the scheduler's, too */
}

static void here(struct cl_tcp_turn *turn)
{
    if (cl_unlikely(cl_netq_self(((struct cl_tcp_flow_turn *)turn)->net->nif)->index != turn->kthread))
        place(turn);
}

/* Of the port of one that opens again. */
static struct cl_tcp_listener *listener_of(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c)
{
    const struct cl_tcp_block *b = cl_container_of(c, const struct cl_tcp_block, conn);
    struct cl_tcp_listener *l = cl_tcp_listener_on(((struct cl_tcp_flow_turn *)turn)->net, b->flow.key.own_port_be);
    return l && cl_tcp_admit(l) ? l : NULL;
}

/* Field by field: to clear it all first costs more than to write it, and so does a copy of what was just written. */
void cl_tcp_turn_on(struct cl_tcp_net *net, struct cl_tcp_flow_turn *t)
{
    struct cl_tcp_turn *turn = &t->turn;
    turn->stack = &net->stack;
    turn->emit = cl_tcp_emit_frame;
    turn->listener = listener_of;
    turn->key = key_of_conn;
    turn->keep = cl_tcp_keep_frame;
    turn->called = place;
    turn->here = here;
    turn->stalled = cl_tcp_trace_stall;
    turn->twice = (struct cl_tcp_range){0};
    turn->leased = false;
    t->net = net;
    t->q = NULL;
    t->asked = false;
    t->frame = NULL;
    place(turn);
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

/* A SYN that came twice, while the flow's member changed: the peer acknowledges the other member's answer. */
static bool acks_another(const struct cl_tcp_conn *c, const struct cl_tcp_segment *s)
{
    return c->state == CL_TCP_SYN_RECEIVED && (s->flags & CL_TCPF_ACK) && s->ack != c->nxt;
}

static CL_NOINLINE void take_error(struct cl_tcp_flow_turn *t, struct cl_tcp_conn *c, const struct cl_rx_item *item)
{
    struct cl_icmp_about about;
    cl_icmp_read(item->frame.data + item->l4, &about); /* which ../icmp.c has looked at */
    cl_count(&t->q->stats.icmp_errors, 1);
    cl_tcp_complain(c, &about);
    cl_netq_done(t->q, &item->frame);
}

/* Take the item's frame apart, and give it to the connection. */
static inline void take_item(struct cl_tcp_flow_turn *t, struct cl_tcp_conn *c, const struct cl_rx_item *item)
{
    const uint8_t *bytes = item->frame.data + item->l4;
    struct cl_tcp_segment s;
    struct cl_netq *q = t->q;
    if (cl_unlikely(item->frame.tag != q->tag))
        cl_netq_look_at_tag(q, &item->frame);
    if (cl_unlikely(is_error(item))) {
        take_error(t, c, item);
        return;
    }
    cl_count(&q->stats.tcp_segments, 1);
    if (cl_likely(cl_tcp_segment_take(bytes, item->payload_len, &s))) { /* which ../tcp.c has looked at */
        s.ecn = ((const struct cl_ipv4 *)(item->frame.data + CL_ETH_HLEN))->tos & 3;
        if (cl_unlikely(c->state == CL_TCP_LISTEN)) {
            t->asked = true;
            memcpy(t->asker, ((const struct cl_eth *)item->frame.data)->src, 6);
        }
        if (cl_unlikely(acks_another(c, &s) && cl_netq_may_be_anothers(q, &item->frame))) {
            cl_netq_push(q, &item->frame);
            return;
        }
        t->frame = &item->frame;
        cl_tcp_input(c, &s, bytes + s.header_len);
        if (cl_unlikely(!t->frame))
            return;
    }
    cl_netq_done(t->q, &item->frame); /* another one, perhaps: a callback may have moved us */
}

void cl_tcp_items_free(struct cl_netq *q, struct cl_flow_item *item)
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

void cl_tcp_block_free(struct cl_tcp_net *net, unsigned kthread, const struct cl_tcp_block *b)
{
    uint32_t index = (uint32_t)(b - net->blocks);
    cl_count(&net->counts[kthread].of.over, 1);
    cl_pool_put_one(net->pool, kthread, index);
}

/* The connection is over: the block leaves the table and is free. Its holder. */
static void retire(const struct cl_tcp_flow_turn *t, struct cl_tcp_block *b)
{
    struct cl_tcp_net *net = t->net;
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    struct cl_netq *q = t->q;
    cl_alarm_remove(&b->alarm);
    cl_flow_lock(&net->table, bucket);
    cl_flow_remove(bucket, &b->flow);
    cl_flow_unlock(&net->table, bucket);
    cl_tcp_items_free(q, b->flow.taken);
    cl_tcp_items_free(q, b->flow.first);
    cl_tcp_block_free(net, q->index, b);
}

/* Its holder works on it no more. */
static inline void release(const struct cl_tcp_net *net, struct cl_netq *q, struct cl_tcp_block *b, unsigned done)
{
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    struct cl_ready_list one = {0};
    cl_flow_lock(&net->table, bucket);
    cl_tcp_note_ahead(net, b);
    bool more = cl_flow_release(&b->flow, done);
    cl_flow_unlock(&net->table, bucket);
    if (more) {
        cl_ready_add(&one, &b->flow);
        cl_ordered_wake(q, &one); /* a thief has it for one turn */
    }
}

/* The holder has done its turn. */
static inline void let_go(const struct cl_tcp_flow_turn *t, struct cl_tcp_block *b, unsigned done)
{
    uint64_t due_ns = cl_tcp_due_ns(&b->conn);
    if (due_ns == CL_TCP_NEVER)
        cl_alarm_cancel(&b->alarm);
    else if (due_ns != cl_alarm_deadline_ns(&b->alarm))
        (void)cl_alarm_arm(&b->alarm, due_ns); /* on a kthread */
    release(t->net, t->q, b, done);
}

void cl_tcp_turn_let_go(const struct cl_tcp_flow_turn *t, struct cl_tcp_block *b, unsigned done)
{
    let_go(t, b, done);
}

static inline void begin(struct cl_tcp_block *b, struct cl_tcp_flow_turn *t)
{
    cl_tcp_begin(&b->conn, &t->turn);
    if (cl_likely(cl_alarm_quiet(&b->alarm, t->turn.now_ns))) /* no timer is sooner: cl_tcp_turn_let_go */
        return;
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
static inline void finish(struct cl_tcp_flow_turn *t, struct cl_tcp_block *b, unsigned done)
{
    if (cl_likely(cl_tcp_finish(&b->conn)))
        let_go(t, b, done);
    else
        retire(t, b);
}

static void run_one(struct cl_tcp_flow_turn *t, struct cl_tcp_block *b, struct cl_running *running)
{
    struct cl_tcp_net *net = t->net;
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    struct cl_flow_item *items = net->nif->flows->items;
    struct cl_tcp_taken in;
    unsigned done = 0;
    uint64_t start = t->tsc;
    t->asked = false;
    cl_netq_note_begun(t->q);
    cl_flow_lock(&net->table, bucket);
    cl_flow_hold(&b->flow);
    bool woken = b->flow.woken;
    b->flow.woken = false;
    cl_flow_unlock(&net->table, bucket);
    cl_prefetch_span(b->conn.arg, USER_BYTES); /* to be read: it may be of many connections, on other kthreads, too */
    begin(b, t);
    for (struct cl_flow_item *item; done < CL_FLOW_BURST && (item = cl_flow_next(&b->flow)); done++) {
        uint32_t index = (uint32_t)(item - items);
        cl_tcp_trace_item(t->q, &in, b, &item->rx, done == 0, running);
        take_item(t, &b->conn, &item->rx);
        cl_pool_put_one(net->nif->flows->item_pool, t->turn.kthread, index);
    }
    if (b->conn.user == &cl_stream_events)
        cl_streams_turn(&b->conn);
    if (cl_unlikely(woken))
        tell_woken(&b->conn);
    uint64_t rang = t->q->last_flush_tsc;
    uint32_t n_tx = t->q->n_tx;
    finish(t, b, done);
    cl_tcp_trace_turn(t, done ? &in : NULL, start, rang, n_tx, running);
}

/* The block of a flow whose turn comes after the one that begins now: by then its lines are there. */
static void prefetch(const struct cl_flow *f)
{
    if (!f)
        return;
#pragma GCC unroll 8
    for (unsigned i = 0; i < sizeof(struct cl_tcp_block); i += CL_CACHELINE)
        cl_prefetch_write((const char *)f + i);
}

static bool gathers(const struct cl_netq *q)
{
    return q->flush_at == CL_NETQ_TX && !q->full_since_tsc && !q->nic->tx_calls;
}

/* More turns follow at once, as a rule of a burst that has come together: what they answer leaves together, when the
 * last of them is made, or GATHER_NS after the first. Each doorbell would have to take the ring's line from a receiver
 * that polls it. Not where answers are slow: those leave one by one. `next`: whose turn comes after the one that begins
 * now. */
static void gather(const struct cl_tcp_flow_turn *t, const struct cl_flow *next, uint64_t *since_ns)
{
    struct cl_netq *q = t->q;
    if (q->flush_at == CL_NETQ_FLUSH && next) {
        q->flush_at = CL_NETQ_TX;
        *since_ns = t->turn.now_ns;
    } else if (gathers(q) && !next) {
        q->flush_at = 1;
    } else if (gathers(q) && q->n_tx && t->turn.now_ns - *since_ns > GATHER_NS) {
        cl_netq_ring(q);
    }
}

/* No more turns: what was gathered leaves, if the last of them did not send it. */
static void settle(struct cl_netq *q)
{
    if (gathers(q) && q->n_tx)
        cl_netq_ring(q);
    else if (gathers(q))
        q->flush_at = CL_NETQ_FLUSH;
}

/* The clock is read once for a connection: when its callbacks return, which is when the next one begins; or now. */
struct cl_flow *cl_tcp_flows_run(struct cl_netif *nif, struct cl_flow *f, struct cl_pace *at, unsigned *turns)
{
    struct cl_tcp_flow_turn t;
    const struct cl_flow *next;
    struct cl_running *running = cl_runner_local();
    cl_tcp_turn_on(cl_tcp_net_of(nif), &t);
    uint64_t since_ns = t.turn.now_ns;
    while (f && f->key.protocol == CL_IPPROTO_TCP) {
        if (!t.looked)
            place(&t.turn);
        t.looked = false;
        run_one(&t, (struct cl_tcp_block *)f, running);
        *turns -= *turns > 0;
        f = NULL;
        if (*turns && cl_inbox_count(t.q->inbox) == 0 && (f = cl_ready_pop(t.q->ready, &next)))
            prefetch(next);
        if (f && cl_unlikely(t.q->nic->tx_calls))
            cl_netq_pace(t.q, at, false);
        else if (f)
            gather(&t, next, &since_ns);
    }
    settle(t.q);
    cl_netq_close_traced(t.q); /* what has no doorbell yet */
    return f;
}

/* wake: else, whoever works on it takes one turn more. */
static inline bool hold(struct cl_tcp_conn *c, bool wake)
{
    struct cl_tcp_block *b = cl_tcp_block_of(c);
    struct cl_tcp_net *net = cl_tcp_net_of(b->flow.nif);
    struct cl_flow_bucket *bucket = cl_flow_bucket(&net->table, b->flow.hash);
    cl_flow_lock(&net->table, bucket);
    bool idle = b->flow.state == CL_FLOW_IDLE;
    if (idle)
        cl_flow_hold(&b->flow);
    else if (wake)
        (void)cl_flow_wake(&b->flow); /* false: it is not idle */
    cl_flow_unlock(&net->table, bucket);
    return idle;
}

bool cl_tcp_hold(struct cl_tcp_conn *c)
{
    return hold(c, true);
}

bool cl_tcp_try_hold(struct cl_tcp_conn *c)
{
    return hold(c, false);
}

/* No clock is read, no timer looked at, and nothing sent: what a turn ends with is as it was. */
bool cl_tcp_quietly(struct cl_tcp_conn *c, bool (*fn)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    struct cl_tcp_block *b = cl_tcp_block_of(c);
    struct cl_tcp_net *net = cl_tcp_net_of(b->flow.nif);
    struct cl_netq *q = cl_netq_self(b->flow.nif);
    struct cl_tcp_turn none = {.stack = &net->stack, .kthread = q->index};
    c->turn = &none;
    bool done = fn(c, arg);
    c->turn = NULL;
    if (done)
        release(net, q, b, 0);
    return done;
}

/* Around visits of one who may have more to send soon (`more`), or of many, one after the other: what they send leaves
 * together. */
struct visiting {
    struct cl_netq *q;
    uint32_t flush_at;
    bool more, gathers;
};

static struct visiting arrive(const struct cl_tcp_flow_turn *t, bool many)
{
    bool more = cl_kthread_more_follows();
    struct visiting v = {t->q, t->q->flush_at, more, more || many};
    if (v.gathers)
        v.q->flush_at = CL_NETQ_TX;
    return v;
}

static void leave(const struct visiting *v)
{
    struct cl_netq *q = v->q;
    if (v->gathers && !q->full_since_tsc)
        q->flush_at = v->flush_at;
    /* The uthread may go on for long. Where answers come fast, and others are about to send, too, they leave together,
     * as those of handlers (cl_netq_ring). */
    if (!v->more && q->n_tx && (q->flush_at == 1 || !cl_uthread_others_ready()))
        cl_netq_ring(q);
}

static void visit(struct cl_tcp_flow_turn *t, struct cl_tcp_conn *c, void (*fn)(struct cl_tcp_conn *c, void *arg),
                  void *arg)
{
    struct cl_tcp_block *b = cl_tcp_block_of(c);
    begin(b, t);
    fn(c, arg);
    finish(t, b, 0);
}

void cl_tcp_visit(struct cl_tcp_conn *c, void (*fn)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    struct cl_tcp_flow_turn t;
    cl_tcp_turn_on(cl_tcp_net_of(cl_tcp_block_of(c)->flow.nif), &t);
    struct visiting v = arrive(&t, false);
    visit(&t, c, fn, arg);
    leave(&v);
}

void cl_tcp_call_each(struct cl_tcp_conn *(*next)(void *arg), void (*fn)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    struct cl_tcp_conn *c = next(arg);
    if (!c)
        return;
    struct cl_tcp_flow_turn t;
    cl_tcp_turn_on(cl_tcp_net_of(cl_tcp_block_of(c)->flow.nif), &t);
    struct visiting v = arrive(&t, true);
    for (unsigned n = 1; c; c = next(arg), n++) {
        if (n % CLOCK_EVERY == 0)
            place(&t.turn);
        if (cl_tcp_hold(c))
            visit(&t, c, fn, arg);
        else
            (void)cl_tcp_wake(c); /* on a kthread */
    }
    leave(&v);
}

bool cl_tcp_call(struct cl_tcp_conn *c, void (*fn)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    if (!cl_tcp_hold(c))
        return false;
    cl_tcp_visit(c, fn, arg);
    return true;
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
    struct cl_tcp_net *net = cl_tcp_net_of(nif);
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
static void wake(struct cl_tcp_net *net, struct cl_tcp_block *b, bool tell)
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
    cl_ordered_wake(cl_netq_self(net->nif), &one);
}

/* In a kthread's loop: the flow is ready, and whoever holds it next looks at what is due. */
static void on_alarm(struct cl_alarm *alarm)
{
    struct cl_tcp_block *b = cl_container_of(alarm, struct cl_tcp_block, alarm);
    wake(cl_tcp_net_of(b->flow.nif), b, false);
}

void cl_tcp_set_home(struct cl_tcp_conn *c, unsigned home)
{
    struct cl_flow *flow = &cl_tcp_block_of(c)->flow;
    cl_store_relaxed(&flow->home, (uint8_t)home);
    if (home)
        cl_store_relaxed(&flow->nif->flows->homes,
                         1); /* who does not see it yet puts the flow where it was put before */
}

int cl_tcp_wake(struct cl_tcp_conn *c)
{
    struct cl_tcp_block *b = cl_tcp_block_of(c);
    if (!cl_netq_self(b->flow.nif))
        return -EPERM;
    wake(cl_tcp_net_of(b->flow.nif), b, true);
    return 0;
}

/* Blocks. */

/* A block that nobody else can find yet. NULL: as many exist as may. */
struct cl_tcp_block *cl_tcp_block_new(struct cl_tcp_flow_turn *t, const struct cl_flow_key *key, uint64_t hash,
                                      const struct cl_tcp_settings *settings)
{
    struct cl_tcp_net *net = t->net;
    uint32_t index;
    if (!cl_pool_get_one(net->pool, t->turn.kthread, &index))
        return NULL;
    struct cl_tcp_block *b = &net->blocks[index];
    cl_count(&t->turn.counts->begun, 1);
    b->flow = (struct cl_flow){.key = *key, .hash = (uint32_t)hash, .nif = net->nif};
    cl_alarm_init(&b->alarm, on_alarm);
    cl_tcp_init(&b->conn, &t->turn, key, settings);
    b->conn.turn = NULL;
    return b;
}

/* What was made for a SYN is not needed. */
void cl_tcp_block_unmake(struct cl_tcp_net *net, unsigned kthread, struct cl_tcp_block *b)
{
    cl_tcp_accepted(&b->conn);
    cl_tcp_block_free(net, kthread, b);
}
