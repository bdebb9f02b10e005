/* Receiving: frames from a NIC queue to inboxes, sockets, or an answer at once; and what siblings take.
 *
 * Every frame taken from the NIC is counted exactly once, under delivered, answered, handed_on or a reason
 * (reasons.h). */
#include "netif.h"
#include "input.h"
#include "parts.h"
#include "tcp.h"
#include "traced.h"

#include <string.h>

#define STEAL_BURST 16

/* State of one burst: items go into the inbox of `q` and are published together. */
struct burst {
    struct cl_netq *q;
    uint64_t rx_tsc;
    unsigned queued;            /* put into the inbox, not yet published */
    unsigned delivered;         /* the same and to sockets, ... */
    struct cl_ready_list woken; /* flows that got ready, not yet published */
    unsigned frames, waits;     /* frames in it; of these, put into queues of batches */
    bool looped;                /* frames that we sent to ourselves (loop.c) */
    bool traced;                /* all are recorded */
    unsigned parts;             /* that flows are in; 0, 1: they are not */
    unsigned apart, room;       /* put apart, not yet published; how many may be */
};

static void answer_icmp(struct cl_netq *q, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_frame out;
    if (!cl_netq_take(q, &out)) {
        cl_netq_drop(q, CL_DROP_NO_TX_BUFFER);
        return;
    }
    unsigned room = cl_min((unsigned)out.room, q->nif->mtu + CL_ETH_HLEN);
    out.len = (uint16_t)cl_icmp_echo_reply(&q->nif->self, f->data, info, out.data, room);
    if (out.len == 0) { /* a request larger than what we may send */
        cl_netq_untake(q, &out);
        cl_netq_drop(q, CL_DROP_NO_TX_BUFFER);
        return;
    }
    cl_netq_push(q, &out);
    cl_count(&q->stats.answered, 1);
}

/* Whether an error is sent for what nobody is there for. To ourselves always, as by Linux (net/ipv4/icmp.c:
 * icmpv4_xrlim_allow): it is no answer to others, and no more than we have sent. */
static bool may_refuse(const struct burst *b, struct cl_icmp_limit *limit)
{
    return b->looped || cl_icmp_allow(limit, cl_sched_now_ns(b->q->nif->sched));
}

static void refuse_port(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_netq *q = b->q;
    struct cl_frame out;
    cl_netq_drop(q, CL_DROP_UDP_NO_PORT);
    if (info->broadcast)
        return;
    if (!may_refuse(b, &q->icmp) || !cl_netq_take(q, &out)) {
        cl_count(&q->stats.icmp_rate_limited, 1);
        return;
    }
    out.len = (uint16_t)cl_icmp_port_unreachable(&q->nif->self, f->data, info, out.data, out.room);
    if (b->looped)
        (void)cl_netq_loop(q, &out);
    else
        cl_netq_push(q, &out);
    cl_count(&q->stats.icmp_unreachable_sent, 1);
}

/* Send what was written as an answer. */
static void send_answer(struct burst *b, struct cl_frame *out, const uint8_t *bytes, unsigned len)
{
    memcpy(out->data, bytes, len);
    out->len = (uint16_t)len;
    if (b->looped)
        (void)cl_netq_loop(b->q, out);
    else
        cl_netq_push(b->q, out);
}

static void refuse_segment(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_netq *q = b->q;
    uint8_t reset[CL_TCP_ANSWER_MOST];
    struct cl_frame out;
    cl_netq_drop(q, CL_DROP_TCP_NO_PORT);
    unsigned len = cl_tcp_reset(&q->nif->self, f->data, info, reset);
    if (len == 0)
        return;
    if (!may_refuse(b, &q->resets) || !cl_netq_take(q, &out)) {
        cl_count(&q->stats.tcp_rate_limited, 1);
        return;
    }
    send_answer(b, &out, reset, len);
    cl_count(&q->stats.tcp_resets_sent, 1);
}

/* A segment that is of no connection: a SYN may be answered without making one. False: it was left to another member of
 * the group, frame and all. */
static bool answer_segment(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_connections *tcp = cl_load_acquire(&b->q->nif->tcp);
    uint8_t answer[CL_TCP_ANSWER_MOST];
    struct cl_frame out;
    unsigned len = tcp ? tcp->answer(b->q, f->data, info, answer) : 0;
    if (len == 0 && cl_netq_may_be_anothers(b->q, f)) {
        cl_netq_push(b->q, f);
        cl_count(&b->q->stats.handed_on, 1);
        return false;
    }
    if (len == 0) {
        refuse_segment(b, f, info);
    } else if (!cl_netq_take(b->q, &out)) {
        cl_netq_drop(b->q, CL_DROP_NO_TX_BUFFER);
    } else {
        send_answer(b, &out, answer, len);
        cl_count(&b->q->stats.answered, 1);
    }
    return true;
}

static void take_arp(struct cl_netq *q, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_netif *nif = q->nif;
    const struct cl_arp *arp = (const struct cl_arp *)(f->data + info->l4);
    struct cl_arp_todo todo;
    cl_arp_input(nif->arp, &nif->self, arp, cl_sched_now_ns(nif->sched), &todo);
    for (unsigned i = 0; i < todo.n_out; i++) {
        memcpy(todo.out[i].data, todo.mac, 6);
        cl_netq_push(q, &todo.out[i]);
    }
    if (todo.announce)
        cl_netq_arp_reply(q, NULL);
    if (todo.conflict) {
        cl_count(&q->stats.arp_conflicts, 1);
        cl_netq_drop(q, CL_DROP_ARP_CONFLICT);
        if (nif->on_conflict && todo.announce) /* as rarely as we defend the address */
            nif->on_conflict(nif->conflict_arg);
    } else if (todo.reply && cl_netq_arp_reply(q, arp)) {
        cl_count(&q->stats.answered, 1);
    } else if (todo.reply) {
        cl_netq_drop(q, CL_DROP_NO_TX_BUFFER);
    } else if (todo.learned) {
        cl_count(&q->stats.learned, 1);
        cl_count(&q->stats.delivered, 1);
    } else {
        cl_netq_drop(q, todo.unsolicited ? CL_DROP_ARP_UNSOLICITED : CL_DROP_ARP_NOT_OURS);
    }
}

/* A datagram for a socket's queue, which copies it. */
static CL_NOINLINE void to_socket(struct burst *b, const struct cl_rx_item *item, const struct cl_rx_info *info)
{
    unsigned reason;
    if (cl_udp_deliver(b->q, item->socket, item, &reason)) {
        cl_count(&b->q->stats.to_sockets, 1);
        b->delivered++;
    } else if (reason == CL_DROP_UDP_NO_PORT) {
        refuse_port(b, &item->frame, info);
    } else {
        cl_netq_drop(b->q, reason);
    }
    cl_netq_done(b->q, &item->frame);
}

/* True: a connection has the frame. */
static bool take_icmp_error(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_connections *tcp = cl_load_acquire(&b->q->nif->tcp);
    struct cl_rx_item item = {.frame = *f, .rx_tsc = b->rx_tsc, .l4 = info->l4, .looped = b->looped};
    struct cl_icmp_about about;
    cl_icmp_read(f->data + info->l4, &about);
    if (about.protocol == CL_IPPROTO_TCP && tcp && tcp->complain(b->q, &item, &about, &b->woken))
        return true;
    if (about.protocol == CL_IPPROTO_UDP && cl_udp_tell_error(b->q->nif, &about)) {
        cl_count(&b->q->stats.icmp_errors, 1);
        b->delivered++;
    } else {
        cl_netq_drop(b->q, CL_DROP_ICMP_ERROR);
    }
    return false;
}

/* A request for the queue of its type. */
static CL_NOINLINE void to_type(struct burst *b, const struct cl_rx_item *item)
{
    struct cl_netq *q = b->q;
    const struct cl_udp_socket *s = item->socket;
    const uint8_t *data = item->frame.data + item->l4 + CL_UDP_HLEN;
    int64_t type = s->classify(data, item->payload_len, s->classify_arg);
    if (cl_unlikely(type < 0 || type >= s->n_types)) {
        cl_count(&q->stats.type_errors, 1);
        type = s->n_types - 1;
    }
    if (cl_likely(cl_typed_put(q->typed, s->first_type + (unsigned)type, item))) {
        b->delivered++;
        cl_netq_note_inbox(q);
    } else { /* it does not wait in the NIC's queue, where it would hold up other types */
        cl_netq_drop(q, CL_DROP_TYPE_FULL);
        cl_netq_done(q, &item->frame);
    }
}

/* When a frame came: as its NIC says, else at its share of the time in which nobody could look; else now. */
static uint64_t came_at(const struct burst *b, const struct cl_frame *f)
{
    const struct cl_netq *q = b->q;
    if (b->looped)
        return b->rx_tsc;
    if (q->nic->rx_stamped)
        return cl_netq_since(q, f, b->rx_tsc);
    if (!q->unseen_tsc || b->rx_tsc < q->unseen_tsc)
        return b->rx_tsc;
    return q->unseen_tsc + (b->rx_tsc - q->unseen_tsc) / (b->frames + 1) * (b->waits + 1);
}

/* A request that waits for others. It is counted as delivered when a handler gets it. */
static CL_NOINLINE void to_batch(struct burst *b, const struct cl_rx_item *item)
{
    cl_batched_put(b->q, item->socket->batched, item, came_at(b, &item->frame));
    b->waits++;
}

/* A segment goes to its connection. False: it is of none. */
static inline bool to_connection(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_netif *nif = b->q->nif;
    struct cl_connections *tcp = cl_load_acquire(&nif->tcp);
    /* With several kthreads the others were put before the lock was dropped (order.c). */
    if (!tcp || (nif->n_queues > 1 && !b->looped))
        return false;
    return tcp->put(b->q, f, info, b->rx_tsc, &b->woken);
}

static CL_NOINLINE void slow_frame(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    switch (info->verdict) {
    case CL_RX_ARP:
        take_arp(b->q, f, info);
        break;
    case CL_RX_ICMP:
        answer_icmp(b->q, f, info);
        break;
    case CL_RX_ICMP_ERROR:
        if (take_icmp_error(b, f, info))
            return;
        break;
    case CL_RX_UDP:
        refuse_port(b, f, info);
        break;
    case CL_RX_TCP:
        if (!answer_segment(b, f, info))
            return;
        break;
    default:
        if (cl_rx_unfinished(f->data, info))
            cl_netif_tell_unfinished(b->q->nif);
        cl_netq_drop(b->q, info->reason);
    }
    cl_netq_done(b->q, f);
}

static inline struct cl_rx_item item_of(const struct burst *b, const struct cl_frame *f, struct cl_udp_socket *s,
                                        const struct cl_rx_info *info)
{
    return (struct cl_rx_item){.frame = *f,
                               .socket = s,
                               .rx_tsc = b->rx_tsc,
                               .l4 = info->l4,
                               .payload_len = info->payload_len,
                               .broadcast = info->broadcast,
                               .looped = b->looped,
                               .traced = b->traced};
}

/* Other kinds than those whose datagrams go to the inbox. */
static CL_NOINLINE void to_other(struct burst *b, const struct cl_frame *f, struct cl_udp_socket *s, unsigned kind,
                                 const struct cl_rx_info *info)
{
    struct cl_rx_item item = item_of(b, f, s, info);
    if (kind == CL_UDP_TYPED || kind == CL_UDP_ORDERED || kind == CL_UDP_BATCHES)
        item.traced = cl_netq_draws(b->q);
    if (kind == CL_UDP_TYPED)
        to_type(b, &item);
    else if (kind == CL_UDP_BATCHES)
        to_batch(b, &item);
    else if (kind == CL_UDP_ORDERED && !b->looped && b->q->nif->n_queues == 1)
        cl_ordered_put(b->q, &item, &b->woken); /* there is nobody else */
    else if (kind == CL_UDP_ORDERED)
        slow_frame(b, f, info); /* taken, or looped, before the port was bound (order.c): nobody listened */
    else
        to_socket(b, &item, info);
}

/* A request of a burst in parts. False: it is of the kthread's own. */
static CL_NOINLINE bool put_apart(struct burst *b, const struct cl_frame *f, struct cl_udp_socket *s,
                                  const struct cl_rx_info *info)
{
    struct cl_netq *q = b->q;
    if (b->apart == b->room || cl_parts_is_own(q, f, info->l4, b->parts))
        return false;
    struct cl_rx_item item = item_of(b, f, s, info);
    item.traced = cl_netq_draws(q);
    cl_inbox_put(q->parts.apart, b->apart++, &item);
    return true;
}

static CL_ALWAYS_INLINE void to_its_place(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    struct cl_netif *nif = b->q->nif;
    if (cl_likely(info->verdict == CL_RX_UDP)) {
        const struct cl_udp *udp = (const struct cl_udp *)(f->data + info->l4);
        /* Acquire: the socket's fields were written before it was published. */
        struct cl_udp_socket *s = cl_load_acquire(&nif->ports[udp->dst_port_be]);
        if (cl_likely(s != NULL)) {
            /* Relaxed: a handler's kind never changes, and to a queue's socket its lock says what it is now. */
            unsigned kind = cl_load_relaxed(&s->kind);
            if (cl_unlikely(kind < CL_UDP_PLAIN || kind > CL_UDP_FOREIGN)) {
                to_other(b, f, s, kind, info);
                return;
            }
            b->delivered++;
            if (cl_unlikely(b->parts > 1) && put_apart(b, f, s, info))
                return;
            uint64_t words[CL_RX_ITEM_WORDS];
            cl_rx_words(words, f, s, b->rx_tsc,
                        cl_rx_about(info->l4, info->payload_len, info->broadcast, b->looped, b->traced, false));
            cl_inbox_put_words(b->q->inbox, b->queued++, words);
            return;
        }
    } else if (info->verdict == CL_RX_TCP && to_connection(b, f, info)) {
        return;
    }
    slow_frame(b, f, info);
}

/* Of a burst that nothing orders: inline, so that what was parsed stays in registers. */
static inline void one_frame(struct burst *b, const struct cl_frame *f)
{
    struct cl_rx_info info;
    cl_rx_parse(&b->q->nif->self, f->data, f->len, &info);
    to_its_place(b, f, &info);
}

static CL_NOINLINE void parsed_frame(struct burst *b, const struct cl_frame *f, const struct cl_rx_info *info)
{
    to_its_place(b, f, info);
}

static inline void publish(struct burst *b)
{
    struct cl_netq *q = b->q;
    if (b->queued) {
        if (cl_unlikely(q->trace && !b->traced && (q->trace->left -= b->queued) < 0))
            cl_netq_mark(q, b->queued);
        cl_inbox_publish(q->inbox, b->queued);
        cl_netq_note_inbox(q);
    }
    if (cl_unlikely(b->apart)) {
        cl_inbox_publish(q->parts.apart, b->apart);
        cl_parts_divided(q);
        cl_netq_note_inbox(q);
    }
    if (cl_unlikely(b->woken.n))
        cl_ordered_wake(q, &b->woken);
    cl_count(&q->stats.delivered, b->delivered);
    if (cl_unlikely(q->nic->tx_calls))
        q->flush_at = 1;
    if (cl_unlikely(b->queued == 0) && (q->n_tx | q->n_done))
        cl_netq_ring(q); /* answers made here wait for no handler */
}

/* What a burst of n frames that begins now is answered by at once shall leave together, where a doorbell is a system
 * call; until `publish`. */
static inline struct burst begin(struct cl_netq *q, uint64_t rx_tsc, unsigned n)
{
    if (cl_unlikely(q->nic->tx_calls) && n > 1)
        q->flush_at = CL_NETQ_TX;
    return (struct burst){.q = q, .rx_tsc = rx_tsc, .frames = n, .traced = cl_netq_traces_all(q)};
}

/* A burst of n frames of a queue; of the kthread's own perhaps in parts. */
static inline void divide(struct burst *b, const struct cl_netq *of, unsigned n)
{
    if (b->q != of || !of->parts.apart || (b->parts = cl_parts(b->q, n)) <= 1)
        return;
    b->room = cl_inbox_space(of->parts.apart);
}

/* n frames are where they wait, or done with. Release: who reads this count sees them there (is_quiet in
 * ../member.c). */
static inline void came_in(struct cl_netq *q, unsigned n)
{
    cl_store_release(&q->stats.rx_frames, q->stats.rx_frames + n);
}

/* Take frames of a queue in for kthread self. There is room for n in its inbox. */
static unsigned take_in(struct cl_netq *q, const struct cl_netq *of, struct cl_frame *frames, unsigned n)
{
    uint64_t rx_tsc = cl_stamp(q->time);
    cl_netq_trace_poll(q, rx_tsc, &frames[0]);
    struct burst b = begin(q, rx_tsc, n);
    divide(&b, of, n);
    cl_netq_look_at_tag(q, &frames[0]);
    for (unsigned i = 0; i < n; i++) {
        if (i + 1 < n)
            cl_netq_fetch_frame(&frames[i + 1]);
        one_frame(&b, &frames[i]);
    }
    publish(&b);
    came_in(q, n);
    return n;
}

/* The same where handlers are ordered: what is of flows goes there before the queue's lock is let go (order.c). It is
 * held, and released here. */
static CL_NOINLINE unsigned receive_ordered(struct cl_netq *q, struct cl_netq *victim, unsigned n)
{
    struct cl_order o;
    cl_order_begin(&o, q, n);
    cl_order_receive(&o, victim);
    cl_spin_unlock(&victim->rx_lock);
    if (o.came == 0)
        return 0;
    struct burst b = begin(q, o.rx_tsc, o.n);
    b.woken = o.woken;
    divide(&b, victim, o.n);
    for (unsigned i = 0; i < o.n; i++)
        parsed_frame(&b, &o.frames[i], &o.infos[i]);
    publish(&b);
    came_in(q, o.came);
    return o.came;
}

static unsigned nothing_came(struct cl_netq *q)
{
    bool gone = cl_load_relaxed(&q->nic->gone);
    if (cl_unlikely(gone || q->saw_gone)) {
        cl_netq_renew(q); /* a kthread that only sends would not notice otherwise; all are woken when it goes */
        if (gone)
            cl_netif_tell_gone(q->nif);
        q->saw_gone = gone; /* what is taken after this poll is of before, too: once more when the NIC is there again */
    }
    return 0;
}

/* What a kthread sent to itself; half of the room at most, so that it does not keep the NIC's frames out. */
static CL_NOINLINE unsigned receive_looped(struct cl_netq *q, struct cl_netq *victim, unsigned n)
{
    struct cl_frame frames[CL_NETQ_POLL];
    n = cl_netq_unloop(victim, frames, (cl_min(n, (unsigned)CL_NETQ_POLL) + 1) / 2);
    uint64_t rx_tsc = cl_stamp(q->time);
    if (cl_likely(q->trace != NULL))
        cl_tracer_poll(q->trace, rx_tsc, rx_tsc);
    struct burst b = begin(q, rx_tsc, n);
    b.looped = true;
    for (unsigned i = 0; i < n; i++) {
        struct cl_rx_info info;
        cl_rx_parse_looped(&q->nif->self, frames[i].data, frames[i].len, &info);
        parsed_frame(&b, &frames[i], &info);
    }
    cl_count(&q->stats.looped, n);
    cl_count(&q->stats.rx_frames, n);
    publish(&b);
    return n;
}

static unsigned receive(struct cl_netq *q, struct cl_netq *victim, unsigned n)
{
    struct cl_frame frames[CL_NETQ_POLL];
    bool shared = q->nif->n_queues > 1; /* with one kthread there are no thieves */
    if (shared && !cl_netq_lock_rx(victim))
        return 0;
    /* Relaxed: who binds the first such handler has held this lock since (order.c). */
    if (cl_unlikely(cl_load_relaxed(&q->nif->flows) != NULL) && shared) {
        n = receive_ordered(q, victim, n);
        return n ? n : nothing_came(q);
    }
    n = cl_netq_rx(victim, frames, n);
    if (shared)
        cl_spin_unlock(&victim->rx_lock);
    return n ? take_in(q, victim, frames, n) : nothing_came(q);
}

bool cl_netif_ready(void *arg, unsigned queue)
{
    struct cl_netif *nif = arg;
    struct cl_netq *q = &nif->queues[queue];
    if (cl_load_relaxed(&nif->stopping))
        return false;
    if (cl_netq_waiting(q) || cl_load_relaxed(&q->n_stash) || cl_load_relaxed(&q->n_loop))
        return true;
    if (!cl_netq_lock_rx(q))
        return true; /* owner or thief is taking what there is: of these two the owner must not sleep on a guess */
    bool found = cl_order_look(q);
    cl_spin_unlock(&q->rx_lock);
    return found;
}

/* Half of what waits by type at a sibling, in the order of the rule. */
static unsigned steal_typed(struct cl_netq *q, struct cl_netq *victim)
{
    struct cl_typed *own = cl_load_acquire(&q->typed), *theirs = cl_load_acquire(&victim->typed);
    struct cl_rx_item item;
    unsigned n = 0;
    if (cl_likely(!own || !theirs))
        return 0;
    unsigned most = cl_min((cl_typed_count(theirs) + 1) / 2, (unsigned)STEAL_BURST);
    for (int type; n < most && (type = cl_typed_choose(theirs, cl_stamp(q->time))) >= 0; n++) {
        /* Only we put into our rings: the room stays. */
        if (cl_inbox_space(own->ring[type]) == 0 || !cl_typed_take(theirs, (unsigned)type, &item))
            break;
        if (item.frame.data)
            cl_netq_look_at_tag(q, &item.frame);
        item.stolen = true;
        cl_typed_put(own, (unsigned)type, &item);
    }
    if (n) {
        cl_netq_note_inbox(q);
        cl_netq_note_inbox(victim);
    }
    return n;
}

/* Up to n items of an inbox, or of what waits apart: into ours, which has room for them. */
static unsigned take_over(struct cl_netq *q, struct cl_netq *of, struct cl_inbox *from, unsigned n)
{
    struct cl_rx_item items[STEAL_BURST];
    unsigned got = n ? cl_inbox_take_of(from, items, cl_min(n, (unsigned)STEAL_BURST), NULL) : 0;
    for (unsigned i = 0; i < got; i++) {
        items[i].stolen = q != of;
        cl_inbox_put(q->inbox, i, &items[i]);
    }
    if (got) {
        cl_netq_look_at_tag(q, &items[0].frame);
        cl_inbox_publish(q->inbox, got);
        cl_netq_note_inbox(q);
        cl_netq_note_inbox(of);
    }
    return got;
}

/* From a sibling: first what waits apart for us; then, unless it gets on with that, half of its inbox, and at last what
 * its NIC's queue has. Flows and queues by type have parts of their own. */
static unsigned steal(struct cl_netq *q, unsigned queue)
{
    struct cl_netif *nif = q->nif;
    struct cl_netq *victim = &nif->queues[queue];
    if (!nif->steal || cl_inbox_space(q->inbox) < STEAL_BURST)
        return 0;
    bool helps = victim->parts.apart && cl_parts_help(victim, q->index);
    unsigned got = helps ? take_over(q, victim, victim->parts.apart, STEAL_BURST) : 0;
    bool leaves = !got && helps && !cl_sched_has_ceded(nif->sched, queue) && cl_parts_leaves(victim);
    if (!got && !leaves)
        got = take_over(q, victim, victim->inbox, (cl_inbox_count(victim->inbox) + 1) / 2);
    if (!got && (got = steal_typed(q, victim)) == 0) {
        if (cl_unlikely(cl_load_relaxed(&victim->n_loop)) && (got = receive_looped(q, victim, STEAL_BURST)))
            return got;
        if ((got = cl_ordered_steal(q, victim, STEAL_BURST)))
            return got;
        got = leaves ? 0 : receive(q, victim, STEAL_BURST);
    }
    cl_count(&q->stats.stolen, got);
    return got;
}

/* Whether answers wait for room in the NIC's queue, and have not waited too long: see CL_NETQ_HOLD_US. */
static CL_NOINLINE bool held(const struct cl_netq *q)
{
    return cl_stamp(q->time) - q->full_since_tsc < (uint64_t)CL_NETQ_HOLD_US * q->nif->ticks_per_us;
}

/* All that came, for the next batch is chosen among them: up to a queue's worth. */
static CL_NOINLINE unsigned receive_all(struct cl_netq *q)
{
    unsigned space, got = 0, n = 0;
    do {
        if ((space = cl_inbox_space(q->inbox)))
            got += n = receive(q, q, cl_min(space, (unsigned)CL_NETQ_POLL));
    } while (space && n >= CL_NETQ_POLL - CL_NETQ_STASH && got < CL_UDP_BATCH_QUEUE);
    q->unseen_tsc = 0;
    return got;
}

CL_HOT unsigned cl_netif_poll(void *arg, unsigned self, unsigned queue)
{
    struct cl_netif *nif = arg;
    struct cl_netq *q = &nif->queues[self];
    /* Relaxed: frames that come while we stop stay in the NIC. */
    if (cl_unlikely(cl_load_relaxed(&nif->stopping)))
        return 0;
    if (cl_unlikely(q->full_since_tsc) && held(q))
        return 0;
    if (cl_unlikely(queue != self))
        return steal(q, queue);
    unsigned space = cl_inbox_space(q->inbox), looped = 0;
    if (cl_unlikely(cl_load_relaxed(&q->n_loop)) && space)
        space -= looped = receive_looped(q, q, space);
    if (cl_unlikely(cl_load_relaxed(&nif->batches) != NULL)) /* relaxed: only whether there are any */
        looped += receive_all(q);
    else if (space)
        looped += receive(q, q, cl_min(space, (unsigned)CL_NETQ_POLL));
    if (q->parts.apart && cl_unlikely(cl_parts_takes_back(q, cl_inbox_count(q->inbox)))) /* they have been counted */
        take_over(q, q, q->parts.apart, cl_min(cl_inbox_space(q->inbox), (cl_inbox_count(q->parts.apart) + 1) / 2));
    return looped;
}

unsigned cl_netif_pending(void *arg, unsigned queue)
{
    return cl_netq_waiting(&((struct cl_netif *)arg)->queues[queue]);
}
