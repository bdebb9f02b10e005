/* A runtime's connections from the beginning to the end, who listens, and their settings. See net.h. */
#include "net.h"
#include "serve.h"
#include "sockets.h"

#include "../../../runtime/pages.h"
#include "../../../runtime/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS_AHEAD 2048 /* of those in use, whose pages are fetched by who has nothing else to do: 1 MiB */

static void drain(struct cl_netif *nif)
{
    struct cl_tcp_net *net = cl_tcp_net_of(nif);
    struct cl_tcp_flow_turn t = {
        .turn = {.stack = &net->stack, .emit = cl_tcp_emit_nothing, .counts = &net->counts[0].of}, .net = net};
    t.turn.now_ns = cl_sched_now_ns(nif->sched);
    for (uint64_t i = 0; i <= net->table.mask; i++)
        for (struct cl_flow *f; (f = net->table.buckets[i].first);) {
            struct cl_tcp_block *b = (struct cl_tcp_block *)f;
            net->table.buckets[i].first = f->next;
            cl_tcp_items_free(&nif->queues[0], f->taken);
            cl_tcp_items_free(&nif->queues[0], f->first);
            cl_alarm_remove(&b->alarm);
            cl_tcp_begin(&b->conn, &t.turn);
            cl_tcp_end(&b->conn, ESHUTDOWN);
            (void)cl_tcp_finish(&b->conn);
            cl_tcp_block_free(net, 0, b);
        }
}

static void delete_net(struct cl_tcp_net *net)
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
    delete_net(cl_tcp_net_of(nif));
    nif->tcp = NULL;
}

static bool fetch(struct cl_netif *nif)
{
    return cl_ahead_fetch(&cl_tcp_net_of(nif)->ahead);
}

static bool allocate(struct cl_tcp_net *net, unsigned n_kthreads)
{
    /* Pages that are never needed are never touched. */
    void *blocks = mmap(NULL, CL_TCP_CONNECTIONS * sizeof *net->blocks, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    net->blocks = blocks == MAP_FAILED ? NULL : blocks;
    net->pool = cl_pool_new(0, CL_TCP_CONNECTIONS, n_kthreads);
    net->ahead = (struct cl_ahead){
        .pool = net->pool, .base = (uint8_t *)net->blocks, .item_bytes = sizeof *net->blocks, .ahead = BLOCKS_AHEAD};
    /* Each connection touches another page of them, until all are there. */
    net->table.buckets = cl_pages_new(CL_TCP_CONNECTIONS * sizeof *net->table.buckets);
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
    struct cl_tcp_net *net = rc ? NULL : calloc(1, sizeof *net);
    if (!net)
        return rc ? rc : -ENOMEM;
    if (!allocate(net, nif->n_queues)) {
        delete_net(net);
        return -ENOMEM;
    }
    net->table.secret = derive(nif, 1);
    net->stack.secret = derive(nif, 2);
    net->port_secret = derive(nif, 3);
    net->connections = (struct cl_connections){.put = cl_tcp_flows_put,
                                               .answer = cl_tcp_flows_answer,
                                               .complain = cl_tcp_flows_complain,
                                               .run = cl_tcp_flows_run,
                                               .fetch = fetch,
                                               .drain = drain,
                                               .free = free_connections,
                                               .shut = cl_streams_shut};
    net->nif = nif;
    net->stack.chunks = nif->chunks;
    net->chunks = cl_chunks_base(nif->chunks);
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
    return &cl_tcp_net_of(nif)->stack.settings;
}

int cl_tcp_publish(struct cl_netif *nif, uint16_t port, struct cl_tcp_listener *l)
{
    struct cl_tcp_listener *nobody = NULL;
    if (l->user && l->user->ahead)
        cl_store_relaxed(&cl_tcp_net_of(nif)->shows, true);
    l->service = cl_trace_service_of(nif->trace, CL_TRACE_TCP, port);
    /* Release: its fields come first. */
    return __atomic_compare_exchange_n(&cl_tcp_net_of(nif)->listeners[cl_be16(port)], &nobody, l, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED)
               ? 0
               : -EADDRINUSE;
}

void cl_tcp_unpublish(struct cl_netif *nif, uint16_t port)
{
    cl_store_relaxed(&cl_tcp_net_of(nif)->listeners[cl_be16(port)], NULL); /* what it is stays where it is */
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
    struct cl_tcp_net *net = nif->tcp ? cl_tcp_net_of(nif) : NULL;
    struct cl_tcp_listener *l = net ? cl_tcp_listener_on(net, cl_be16(port)) : NULL;
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
    struct cl_tcp_settings *s = &cl_tcp_net_of(nif)->stack.settings;
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
    struct cl_tcp_settings *s = &cl_tcp_net_of(nif)->stack.settings;
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

void cl_tcp_count(const struct cl_netif *nif, struct cl_tcp_counts *out)
{
    const struct cl_tcp_net *net = (const struct cl_tcp_net *)cl_load_acquire(&nif->tcp);
    uint64_t *sum = (uint64_t *)out;
    *out = (struct cl_tcp_counts){0};
    for (unsigned k = 0; net && k < nif->n_queues; k++)
        for (unsigned i = 0; i < sizeof *out / sizeof *sum; i++)
            sum[i] += cl_load_relaxed((const uint64_t *)&net->counts[k].of + i);
}
