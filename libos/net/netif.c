/* The interface: making it, draining it, and what the scheduler calls. */
#include "parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void cl_netif_export(void *arg, unsigned self)
{
    cl_netq_note_inbox(&((struct cl_netif *)arg)->queues[self]);
}

static int refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

static void free_queues(struct cl_netq *queues, unsigned n)
{
    for (unsigned k = 0; queues && k < n; k++) {
        free(queues[k].inbox);
        free(queues[k].parts.apart);
    }
    free(queues);
}

/* n queues with their inboxes, or NULL. */
static struct cl_netq *make_queues(unsigned n)
{
    struct cl_netq *queues = aligned_alloc(2 * CL_CACHELINE, (n * sizeof *queues + 127) & ~(size_t)127);
    if (!queues)
        return NULL;
    memset(queues, 0, n * sizeof *queues);
    for (unsigned k = 0; k < n; k++) {
        queues[k].inbox = cl_inbox_new(CL_INBOX_ITEMS);
        queues[k].parts.apart = n > 1 ? cl_inbox_new(CL_PARTS_ITEMS) : NULL;
        if (queues[k].inbox && (queues[k].parts.apart || n == 1))
            continue;
        free_queues(queues, n);
        return NULL;
    }
    return queues;
}

static void free_tables(struct cl_netif *nif)
{
    free_queues(nif->queues, nif->n_queues);
    free(nif->arp);
    cl_chunks_delete(nif->chunks);
    free(nif->ports);
    free(nif->all);
    free(nif);
}

int cl_netif_new(struct cl_nic *nic, unsigned n, uint32_t ipv4, unsigned prefix, uint32_t gateway, uint64_t chunk_bytes,
                 struct cl_netif **out, char *err)
{
    if (ipv4 == 0 || ipv4 >= 0xe0000000u || ipv4 >> 24 == 127)
        return refuse(err, -EINVAL, "the runtime needs a unicast IPv4 address: the NIC brings none, so give one");
    if (prefix < 1 || prefix > 32)
        return refuse(err, -EINVAL, "the prefix of the IPv4 address must be from 1 to 32 bits");
    if (n < 1 || n > nic->n_queues)
        return refuse(err, -EINVAL, "each kthread needs a queue of its own: the NIC has fewer queues than kthreads");
    if (nic->mtu < 68 || nic->buffer_bytes < CL_UDP_HEADERS + 1)
        return refuse(err, -EINVAL, "the NIC's MTU or buffers are too small for IPv4 (68 bytes, RFC 791)");
    struct cl_netif *nif = calloc(1, sizeof *nif);
    if (!nif)
        return refuse(err, -ENOMEM, "out of memory");
    nif->queues = make_queues(n);
    nif->n_queues = n;
    nif->arp = calloc(1, sizeof *nif->arp);
    /* Untouched pages of the tables cost nothing. */
    nif->ports = calloc(CL_UDP_PORTS, sizeof(*nif->ports));
    nif->all = calloc(CL_UDP_MAX_SOCKETS, sizeof(*nif->all));
    nif->chunks = cl_chunks_new(chunk_bytes, n);
    if (!nif->queues || !nif->arp || !nif->ports || !nif->all || !nif->chunks) {
        free_tables(nif);
        return refuse(err, -ENOMEM, "out of memory for the interface's tables");
    }
    nif->nic = nic;
    nif->mtu = nic->mtu;
    nif->udp_checksum = true;
    nif->steal = true;
    nif->next_ephemeral = nif->own_first = CL_SHM_OWN_PORTS;
    nif->own_last = 65535;
    nif->clock = cl_nic_clock(nic);
    nif->ticks_per_us = (uint32_t)cl_ns_to_ticks(nif->clock, 1000);
    cl_net_self_set(&nif->self, nic->mac, ipv4, prefix, gateway);
    cl_timer_init(&nif->arp_timer, cl_netq_arp_timer, nif);
    pthread_mutex_init(&nif->types_lock, NULL);
    for (unsigned k = 0; k < n; k++) {
        struct cl_netq *q = &nif->queues[k];
        q->nif = nif;
        q->nic = nic;
        q->index = k;
        q->flush_at = 1;
        q->time = nif->clock->word;
        q->stamps = nic->ops->tx_stamps ? nic->ops->tx_stamps(nic, k) : NULL;
        q->signals = nic->cores ? nic->cores->ops->signals(nic->cores, k) : &q->own_signals;
    }
    *out = nif;
    return 0;
}

int cl_netif_seed(struct cl_netif *nif, uint64_t seed)
{
    struct cl_flow_secret *secret = &nif->secret;
    if (seed == 0)
        return getrandom(secret, sizeof *secret, 0) == sizeof *secret ? 0 : -EIO;
    static const struct cl_flow_secret none;
    *secret = (struct cl_flow_secret){cl_sip_two(&none, seed, 0), cl_sip_two(&none, seed, 1)};
    return 0;
}

void cl_netif_tell_unfinished(struct cl_netif *nif)
{
    /* Relaxed: the exchange decides who tells. */
    if (nif->on_unfinished && !cl_load_relaxed(&nif->unfinished_told) && !cl_exchange(&nif->unfinished_told, 1))
        nif->on_unfinished(nif->conflict_arg);
}

void cl_netif_tell_gone(struct cl_netif *nif)
{
    /* Relaxed: the exchange decides. */
    if (nif->on_gone && !cl_load_relaxed(&nif->gone_told) && !cl_exchange(&nif->gone_told, 1))
        nif->on_gone(nif->gone_arg);
}

unsigned cl_netif_takeable(void *arg, unsigned queue)
{
    const struct cl_netq *q = &((struct cl_netif *)arg)->queues[queue];
    const struct cl_typed *typed = cl_load_acquire(&q->typed);
    return (typed ? cl_typed_count(typed) : 0) + (q->parts.apart ? cl_inbox_count(q->parts.apart) : 0);
}

void cl_netif_drain(struct cl_netif *nif)
{
    struct cl_nic *nic = nif->nic;
    struct cl_netq *first = &nif->queues[0];
    struct cl_frame f;
    struct cl_rx_item item;
    while (cl_arp_drain(nif->arp, &f)) {
        cl_count(&first->stats.tx_dropped_arp, 1);
        nic->ops->free(nic, 0, &f, 1);
    }
    if (nif->tcp)
        nif->tcp->drain(nif);
    cl_udp_sockets_drain(nif);
    cl_typed_drain(nif);
    cl_flows_drain(nif);
    cl_batched_drain(nif);
    for (unsigned k = 0; k < nif->n_queues; k++) {
        struct cl_netq *q = &nif->queues[k];
        while (cl_inbox_take_one(q->inbox, &item) || (q->parts.apart && cl_inbox_take_one(q->parts.apart, &item))) {
            cl_count(&q->stats.unhandled, 1);
            cl_netq_done(q, &item.frame);
        }
        for (unsigned i = 0; i < q->n_stash; i++) {
            cl_count(&q->stats.rx_frames, 1);
            cl_count(&q->stats.dropped[CL_DROP_STOPPED], 1);
            cl_netq_done(q, &q->stash[i]);
        }
        q->n_stash = 0;
        while (cl_netq_unloop(q, &f, 1)) {
            cl_count(&q->stats.rx_frames, 1);
            cl_netq_drop(q, CL_DROP_STOPPED);
            cl_netq_done(q, &f);
        }
        cl_netq_ring(q);
        if (q->n_tx) {
            cl_count(&q->stats.tx_dropped_full, q->n_tx);
            nic->ops->free(nic, k, q->tx, q->n_tx);
            q->n_tx = 0;
        }
        cl_netq_renew(q);
    }
}

void cl_netif_delete(struct cl_netif *nif)
{
    cl_udp_ports_delete(nif);
    cl_typed_delete(nif);
    if (nif->tcp)
        nif->tcp->free(nif);
    cl_flows_delete(nif);
    cl_batched_delete(nif);
    free_tables(nif);
}
