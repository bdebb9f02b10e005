/* Segments and ICMP errors that come: whose they are, and what those are answered that are nobody's. See net.h. */
#include "cookie.h"
#include "net.h"

#include "../icmp.h"
#include "../tcp.h"
#include "../traced.h"
#include "../../../runtime/pool.h"

#define QUEUE_MOST 128 /* segments of a connection that wait */

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
static struct cl_tcp_block *admitted_block(struct cl_tcp_flow_turn *t, const struct cl_flow_key *key, uint64_t hash,
                                           struct cl_tcp_listener *l)
{
    struct cl_tcp_block *b = cl_tcp_block_new(t, key, hash, l->settings);
    if (b)
        return b;
    cl_count(&t->turn.counts->dropped_table, 1);
    __atomic_fetch_sub(&l->pending, 1, __ATOMIC_RELAXED); /* a number */
    return NULL;
}

/* The block for a SYN to a port where somebody listens. NULL, *l NULL: nobody does, or its backlog is full, and whoever
 * has no connection yet is answered by a cookie. NULL, *l set: there is no place for it. */
static struct cl_tcp_block *block_for_syn(struct cl_tcp_net *net, const struct cl_flow_key *key, uint64_t hash,
                                          struct cl_tcp_listener **l)
{
    struct cl_tcp_flow_turn t;
    cl_tcp_turn_on(net, &t);
    *l = cl_tcp_listener_on(net, key->own_port_be);
    if (!*l)
        return NULL;
    if (!cl_tcp_admit(*l)) {
        if (cl_tcp_takes(*l))
            *l = NULL;
        else
            cl_count(&t.turn.counts->dropped_backlog, 1);
        return NULL;
    }
    struct cl_tcp_block *b = admitted_block(&t, key, hash, *l);
    if (b)
        cl_tcp_listen(&b->conn, *l);
    return b;
}

/* The block for a segment that is of no connection, but answers a cookie. NULL, *l set: there is no place for it. */
static struct cl_tcp_block *block_for_cookie(struct cl_tcp_net *net, const struct cl_rx_item *item,
                                             const struct cl_flow_key *key, uint64_t hash, struct cl_tcp_listener **l)
{
    struct cl_tcp_flow_turn t;
    struct cl_tcp_segment s;
    struct cl_tcp_listener *on = cl_tcp_listener_on(net, key->own_port_be);
    cl_tcp_turn_on(net, &t);
    if (!on || !cl_tcp_segment_read(item->frame.data + item->l4, item->payload_len, &s) ||
        !cl_tcp_cookie_right(&t.turn, key, &s))
        return NULL;
    *l = on;
    if (!cl_tcp_cookie_admit(on)) {
        cl_count(&t.turn.counts->dropped_backlog, 1);
        return NULL;
    }
    struct cl_tcp_block *b = admitted_block(&t, key, hash, on);
    if (!b)
        return NULL;
    cl_tcp_begin(&b->conn, &t.turn);
    cl_tcp_cookie_take(&b->conn, on, &s);
    b->conn.turn = NULL;
    return b;
}

/* A SYN that found no place. After the receive lock: order.c. */
unsigned cl_tcp_flows_answer(struct cl_netq *q, const uint8_t *frame, const struct cl_rx_info *info, uint8_t *out)
{
    struct cl_tcp_net *net = cl_tcp_net_of(q->nif);
    struct cl_tcp_flow_turn t;
    struct cl_tcp_segment syn, answer;
    struct cl_flow_key key;
    uint8_t flags;
    cl_tcp_turn_on(net, &t);
    key_of(frame, info->l4, &key, &flags);
    const struct cl_tcp_listener *l = cl_tcp_listener_on(net, key.own_port_be);
    if (info->broadcast || !l || (flags & (CL_TCP_SYN | CL_TCP_ACK | CL_TCP_RST)) != CL_TCP_SYN ||
        !cl_tcp_segment_read(frame + info->l4, info->l4_len, &syn))
        return 0;
    cl_tcp_cookie_answer(&t.turn, l, &key, &syn, &answer);
    return cl_tcp_answer(&q->nif->self, frame, info, &answer, out);
}

/* Put an item into the flow of its connection, which may be `fresh`. CL_DROP_NONE; CL_DROP_TCP_NO_PORT: there is
 * none. */
static CL_ALWAYS_INLINE unsigned append(struct cl_tcp_net *net, const struct cl_flow_key *key, uint64_t hash,
                                        struct cl_tcp_block **fresh, struct cl_flow_item *item,
                                        struct cl_ready_list *woken)
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
        cl_tcp_fetch_ahead(net, f);
        cl_flow_append(f, item);
        if (cl_flow_wake(f))
            cl_ready_add(woken, f);
    }
    cl_flow_unlock(&net->table, bucket);
    return reason;
}

/* The user of the port sees the data of a segment before its connection does, and before others may have it. */
static CL_NOINLINE void show_ahead(const struct cl_tcp_net *net, const struct cl_rx_item *item,
                                   const struct cl_flow_key *key)
{
    const struct cl_tcp_listener *l = cl_tcp_listener_on(net, key->own_port_be);
    if (!l || !l->user || !l->user->ahead)
        return;
    const uint8_t *segment = item->frame.data + item->l4;
    unsigned header = 4u * (((const struct cl_tcp *)segment)->offset >> 4); /* which ../tcp.c has looked at */
    if (item->payload_len > header)
        l->user->ahead(segment + header, item->payload_len - header, l->arg);
}

/* The same of a segment that is of no connection, and may answer a cookie. */
static CL_NOINLINE unsigned append_to_cookie(struct cl_netq *q, const struct cl_flow_key *key, uint64_t hash,
                                             struct cl_tcp_block **fresh, struct cl_flow_item *item,
                                             struct cl_tcp_listener **l, struct cl_ready_list *woken)
{
    struct cl_tcp_net *net = cl_tcp_net_of(q->nif);
    *fresh = block_for_cookie(net, &item->rx, key, hash, l);
    return *fresh ? append(net, key, hash, fresh, item, woken) : CL_DROP_TCP_NO_PORT;
}

/* It has found no place. Whether it is dropped here. */
static CL_NOINLINE bool refused(struct cl_netq *q, const struct cl_frame *frame, unsigned reason, bool listens)
{
    if (reason == CL_DROP_TCP_NO_PORT && !listens)
        return false;
    cl_netq_drop(q, reason == CL_DROP_TCP_NO_PORT ? CL_DROP_FLOW_TABLE : reason);
    cl_netq_done(q, frame);
    return true;
}

bool cl_tcp_flows_put(struct cl_netq *q, const struct cl_frame *frame, const struct cl_rx_info *info, uint64_t rx_tsc,
                      struct cl_ready_list *woken)
{
    struct cl_tcp_net *net = cl_tcp_net_of(q->nif);
    struct cl_flows *flows = q->nif->flows;
    struct cl_flow_key key;
    struct cl_tcp_listener *l = NULL;
    struct cl_tcp_block *fresh = NULL;
    uint32_t index;
    uint8_t flags;
    if (info->broadcast)
        return false;
    key_of(frame->data, info->l4, &key, &flags);
    uint64_t hash = cl_flow_hash_in(&net->table.secret, &key);
    if (cl_unlikely((flags & (CL_TCP_SYN | CL_TCP_ACK | CL_TCP_RST)) == CL_TCP_SYN))
        fresh = block_for_syn(net, &key, hash, &l);
    else if (cl_unlikely(!(flags & CL_TCP_ACK)) && !cl_netq_may_be_anothers(q, frame))
        /* Where somebody listens it is dropped (RFC 9293, section 3.10.7.2). */
        l = cl_tcp_listener_on(net, key.own_port_be);
    unsigned reason = CL_DROP_FLOW_BUDGET;
    if (cl_likely(cl_pool_get_one(flows->item_pool, q->index, &index))) {
        struct cl_flow_item *item = &flows->items[index];
        item->rx = (struct cl_rx_item){
            .frame = *frame, .rx_tsc = rx_tsc, .l4 = info->l4, .payload_len = info->l4_len, .traced = cl_netq_draws(q)};
        if (cl_unlikely(cl_load_relaxed(&net->shows))) /* relaxed: who has just begun to listen sees the next */
            show_ahead(net, &item->rx, &key);
        reason = append(net, &key, hash, &fresh, item, woken);
        if (cl_unlikely(reason == CL_DROP_TCP_NO_PORT && (flags & CL_TCP_ACK)))
            reason = append_to_cookie(q, &key, hash, &fresh, item, &l, woken);
        if (cl_unlikely(reason != CL_DROP_NONE))
            cl_pool_put_one(flows->item_pool, q->index, index);
    }
    if (cl_unlikely(fresh != NULL))
        cl_tcp_block_unmake(net, q->index, fresh);
    if (cl_unlikely(reason != CL_DROP_NONE))
        return refused(q, frame, reason, l != NULL);
    cl_count(&q->stats.delivered, 1);
    return true;
}

bool cl_tcp_flows_complain(struct cl_netq *q, const struct cl_rx_item *item, const struct cl_icmp_about *about,
                           struct cl_ready_list *woken)
{
    struct cl_tcp_net *net = cl_tcp_net_of(q->nif);
    struct cl_flows *flows = q->nif->flows;
    struct cl_flow_key key = {.peer_be = about->dst_be,
                              .own_be = about->src_be,
                              .peer_port_be = about->dst_port_be,
                              .own_port_be = about->src_port_be,
                              .protocol = CL_IPPROTO_TCP};
    struct cl_tcp_block *none = NULL;
    uint32_t index;
    if (!cl_pool_get_one(flows->item_pool, q->index, &index))
        return false;
    flows->items[index].rx = *item;
    if (append(net, &key, cl_flow_hash_in(&net->table.secret, &key), &none, &flows->items[index], woken) ==
        CL_DROP_NONE) {
        cl_count(&q->stats.delivered, 1);
        return true;
    }
    cl_pool_put_one(flows->item_pool, q->index, index);
    return false;
}
