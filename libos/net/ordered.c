/* See ordered.h. */
#include "netif.h"
#include "../../runtime/pool.h"

#include <errno.h>
#include <stdlib.h>

#define ITEMS_A_KTHREAD 256
#define ITEMS_LEAST 32

static void delete (struct cl_flows *flows)
{
    if (!flows)
        return;
    cl_pool_delete(flows->flow_pool);
    cl_pool_delete(flows->item_pool);
    free(flows->table.buckets);
    free(flows->flows);
    free(flows->items);
    free(flows->ready);
    free(flows);
}

static bool allocate(struct cl_flows *flows, const struct cl_netif *nif)
{
    unsigned n = nif->n_queues;
    uint32_t items = cl_min(n * ITEMS_A_KTHREAD, nif->nic->n_buffers / 4);
    items = cl_max(items, (uint32_t)ITEMS_LEAST);
    flows->flow_pool = cl_pool_new(0, CL_UDP_FLOWS, n);
    flows->item_pool = cl_pool_new(0, items, n);
    /* Pages that are never needed are never touched. */
    flows->table.buckets = calloc(CL_UDP_FLOWS, sizeof *flows->table.buckets);
    flows->table.mask = CL_UDP_FLOWS - 1;
    flows->flows = calloc(CL_UDP_FLOWS, sizeof *flows->flows);
    flows->items = calloc(items, sizeof *flows->items);
    flows->ready = aligned_alloc(CL_CACHELINE, n * sizeof *flows->ready);
    if (!flows->flow_pool || !flows->item_pool || !flows->table.buckets || !flows->flows || !flows->items ||
        !flows->ready)
        return false;
    memset(flows->ready, 0, n * sizeof *flows->ready);
    flows->table.shared = n > 1;
    for (unsigned k = 0; k < n; k++)
        flows->ready[k].shared = n > 1;
    return true;
}

/* Wait until nobody is in the middle of taking a burst. */
static void pass_receivers(struct cl_netif *nif)
{
    for (unsigned k = 0; k < nif->n_queues; k++) {
        cl_spin_lock(&nif->queues[k].rx_lock);
        cl_spin_unlock(&nif->queues[k].rx_lock);
    }
}

int cl_flows_make(struct cl_netif *nif)
{
    struct cl_flows *flows;
    if (nif->flows)
        return 0;
    if (!(flows = calloc(1, sizeof *flows)) || !allocate(flows, nif)) {
        delete (flows);
        return -ENOMEM;
    }
    flows->table.secret = nif->secret;
    for (unsigned k = 0; k < nif->n_queues; k++)
        cl_store_release(&nif->queues[k].ready, &flows->ready[k]); /* release: kthreads may run already */
    cl_store_release(&nif->flows, flows);
    pass_receivers(nif); /* before a port is bound: order.c */
    return 0;
}

int cl_udp_bind_ordered(struct cl_netif *nif, uint16_t port, cl_udp_handler fn, void *arg)
{
    pthread_mutex_lock(&nif->types_lock);
    int rc = cl_flows_make(nif);
    pthread_mutex_unlock(&nif->types_lock);
    return rc ? rc : cl_udp_bind(nif, port, CL_UDP_ORDERED, (void (*)(void))fn, arg);
}

static void key_of(const struct cl_rx_item *item, struct cl_flow_key *key)
{
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(item->frame.data + CL_ETH_HLEN);
    const struct cl_udp *udp = (const struct cl_udp *)(item->frame.data + item->l4);
    *key = (struct cl_flow_key){.peer_be = ip->src_be,
                                .own_be = ip->dst_be,
                                .peer_port_be = udp->src_port_be,
                                .own_port_be = udp->dst_port_be,
                                .protocol = CL_IPPROTO_UDP};
}

/* Under the bucket's lock. NULL: as many as may be exist. */
static struct cl_flow *new_flow(struct cl_flows *flows, unsigned cache, struct cl_flow_bucket *bucket,
                                const struct cl_flow_key *key, uint64_t hash, struct cl_udp_socket *socket)
{
    uint32_t index;
    if (!cl_pool_get_one(flows->flow_pool, cache, &index))
        return NULL;
    struct cl_flow *f = &flows->flows[index];
    *f = (struct cl_flow){.key = *key, .hash = (uint32_t)hash, .socket = socket};
    cl_flow_enter(bucket, f);
    return f;
}

/* What becomes of a datagram: 0, or the reason for its drop. */
static unsigned append(struct cl_flows *flows, unsigned cache, const struct cl_rx_item *item, struct cl_flow_item *to,
                       struct cl_ready_list *woken)
{
    struct cl_flow_key key;
    key_of(item, &key);
    uint64_t hash = cl_flow_hash(&flows->table.secret, &key);
    struct cl_flow_bucket *bucket = cl_flow_bucket(&flows->table, hash);
    unsigned reason = CL_DROP_NONE;
    to->rx = *item;
    cl_flow_lock(&flows->table, bucket);
    struct cl_flow *f = cl_flow_find(bucket, &key);
    if (!f)
        f = new_flow(flows, cache, bucket, &key, hash, item->socket);
    if (!f) {
        reason = CL_DROP_FLOW_TABLE;
    } else if (f->waiting >= CL_UDP_FLOW_QUEUE) {
        reason = CL_DROP_FLOW_FULL;
    } else {
        cl_flow_append(f, to);
        if (cl_flow_wake(f))
            cl_ready_add(woken, f);
    }
    cl_flow_unlock(&flows->table, bucket);
    return reason;
}

void cl_ordered_put(struct cl_netq *q, const struct cl_rx_item *item, struct cl_ready_list *woken)
{
    struct cl_flows *flows = q->nif->flows;
    uint32_t index;
    unsigned reason = CL_DROP_FLOW_BUDGET;
    if (cl_likely(cl_pool_get_one(flows->item_pool, q->index, &index))) {
        reason = append(flows, q->index, item, &flows->items[index], woken);
        if (cl_likely(reason == CL_DROP_NONE)) {
            cl_count(&q->stats.delivered, 1);
            return;
        }
        cl_pool_put_one(flows->item_pool, q->index, index);
    }
    cl_netq_drop(q, reason);
    cl_netq_done(q, &item->frame);
}

void cl_ordered_publish(struct cl_netq *q, const struct cl_ready_list *ready)
{
    if (ready->n == 0)
        return;
    cl_ready_push(q->ready, ready);
    cl_netq_note_inbox(q);
}

/* Those whose home is another kthread go there, in their order; `here` gets the rest. */
static CL_NOINLINE void send_home(struct cl_netq *q, const struct cl_ready_list *woken, struct cl_ready_list *here)
{
    struct cl_netif *nif = q->nif;
    uint64_t homes = 0;
    for (struct cl_flow *f = woken->first, *next; f; f = next) {
        unsigned home = cl_load_relaxed(&f->home);
        struct cl_ready_list one = {0};
        next = f->next_ready; /* before another one has it */
        if (home == 0 || home - 1 == q->index) {
            cl_ready_add(here, f);
            continue;
        }
        cl_ready_add(&one, f);
        cl_ready_push(nif->queues[home - 1].ready, &one);
        cl_count(&q->stats.flows_sent_home, 1);
        homes |= 1ull << (home - 1);
    }
    for (; homes; homes &= homes - 1) {
        unsigned k = (unsigned)__builtin_ctzll(homes);
        cl_netq_note_inbox(&nif->queues[k]);
        cl_sched_wake_kthread(nif->sched, k);
    }
}

void cl_ordered_wake(struct cl_netq *q, const struct cl_ready_list *woken)
{
    struct cl_ready_list here = {0};
    if (cl_likely(!cl_load_relaxed(&q->nif->flows->homes))) {
        cl_ordered_publish(q, woken);
        return;
    }
    send_home(q, woken, &here);
    cl_ordered_publish(q, &here);
}

struct cl_flow *cl_ordered_first(struct cl_netq *q)
{
    const struct cl_flow *next;
    struct cl_flow *f = cl_ready_pop(q->ready, &next);
    if (f)
        cl_netq_note_inbox(q);
    return f;
}

void cl_ordered_hold(struct cl_netq *q, struct cl_flow *f)
{
    struct cl_flow_table *table = &q->nif->flows->table;
    struct cl_flow_bucket *bucket = cl_flow_bucket(table, f->hash);
    cl_flow_lock(table, bucket);
    cl_flow_hold(f);
    cl_flow_unlock(table, bucket);
}

bool cl_ordered_next(struct cl_netq *q, struct cl_flow *f, struct cl_rx_item *out)
{
    struct cl_flows *flows = q->nif->flows;
    struct cl_flow_item *item = cl_flow_next(f);
    if (!item)
        return false;
    *out = item->rx;
    uint32_t index = (uint32_t)(item - flows->items);
    cl_pool_put_one(flows->item_pool, q->index, index);
    if (cl_unlikely(out->frame.tag != q->tag)) /* a sibling may have received it */
        cl_netq_look_at_tag(q, &out->frame);
    return true;
}

void cl_ordered_release(struct cl_netq *q, struct cl_flow *f, unsigned done)
{
    struct cl_flows *flows = q->nif->flows;
    struct cl_flow_bucket *bucket = cl_flow_bucket(&flows->table, f->hash);
    struct cl_ready_list one = {0};
    cl_flow_lock(&flows->table, bucket);
    bool more = cl_flow_release(f, done);
    if (!more)
        cl_flow_remove(bucket, f);
    cl_flow_unlock(&flows->table, bucket);
    if (more) {
        cl_ready_add(&one, f);
        cl_ordered_publish(q, &one);
    } else { /* out of the table: nobody else can have it */
        uint32_t index = (uint32_t)(f - flows->flows);
        cl_pool_put_one(flows->flow_pool, q->index, index);
    }
}

unsigned cl_ordered_steal(struct cl_netq *q, struct cl_netq *victim, unsigned most)
{
    struct cl_ready *own = cl_load_acquire(&q->ready), *theirs = cl_load_acquire(&victim->ready);
    struct cl_ready_list half;
    if (cl_likely(!own || !theirs))
        return 0;
    cl_ready_take(theirs, cl_min((cl_ready_count(theirs) + 1) / 2, most), &half);
    if (half.n == 0)
        return 0;
    cl_netq_note_inbox(victim);
    cl_ordered_publish(q, &half);
    cl_count(&q->stats.flows_stolen, half.n);
    return half.n;
}

static void drain_list(struct cl_netq *q, struct cl_flow_item *item)
{
    for (; item; item = item->next) {
        cl_count(&q->stats.unhandled, 1);
        cl_netq_done(q, &item->rx.frame);
    }
}

void cl_flows_drain(struct cl_netif *nif)
{
    struct cl_flows *flows = nif->flows;
    for (uint32_t i = 0; flows && i < CL_UDP_FLOWS; i++)
        for (struct cl_flow *f = flows->table.buckets[i].first; f; f = f->next) {
            drain_list(&nif->queues[0], f->taken);
            drain_list(&nif->queues[0], f->first);
            f->taken = f->first = f->last = NULL;
        }
}

void cl_flows_delete(struct cl_netif *nif)
{
    delete (nif->flows);
    nif->flows = NULL;
}
