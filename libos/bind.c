/* What a runtime serves and opens: handlers of ports, sockets, neighbours, uthreads, periodic work. */
#include "every.h"
#include "internal.h"
#include "net/tcp/flows.h"
#include "net/tcp/serve.h"
#include "net/tcp/sockets.h"

int cl_runtime_bind_udp(struct cl_runtime *rt, uint16_t port, cl_udp_handler fn, void *arg)
{
    return cl_udp_bind(rt->nif, port, CL_UDP_PLAIN, (void (*)(void))fn, arg);
}

int cl_runtime_bind_udp_burst(struct cl_runtime *rt, uint16_t port, cl_udp_burst_handler fn, void *arg)
{
    return cl_udp_bind(rt->nif, port, CL_UDP_BURSTS, (void (*)(void))fn, arg);
}

int cl_runtime_bind_udp_ordered(struct cl_runtime *rt, uint16_t port, cl_udp_handler fn, void *arg)
{
    return cl_udp_bind_ordered(rt->nif, port, fn, arg);
}

int cl_runtime_bind_udp_typed(struct cl_runtime *rt, uint16_t port, cl_udp_handler fn, void *arg,
                              const struct cl_udp_types *types, char err[256])
{
    return cl_udp_bind_typed(rt->nif, port, fn, arg, types, err);
}

int cl_runtime_bind_udp_foreign(struct cl_runtime *rt, uint16_t port, cl_udp_burst_handler fn, void *arg)
{
    return cl_udp_bind(rt->nif, port, CL_UDP_FOREIGN, (void (*)(void))fn, arg);
}

int cl_runtime_bind_udp_batched(struct cl_runtime *rt, uint16_t port, cl_udp_burst_handler fn, void *arg,
                                uint32_t foreign, const struct cl_udp_batching *how, char err[256])
{
    return cl_udp_bind_batched(rt->nif, port, fn, arg, foreign != 0, how, err);
}

int cl_runtime_set_batching(struct cl_runtime *rt, uint16_t port, const struct cl_udp_batching *how, char err[256])
{
    return cl_batched_set(rt->nif, port, how, err);
}

int cl_runtime_batch_profile(const struct cl_runtime *rt, uint16_t port, struct cl_udp_batch_profile *out)
{
    return cl_batched_profile(rt->nif, port, out);
}

int cl_udp_open(struct cl_runtime *rt, uint16_t port, uint32_t queue, struct cl_udp_socket **out)
{
    return cl_udp_queue_open(rt->nif, port, false, queue, out);
}

int cl_udp_open_shared(struct cl_runtime *rt, uint16_t port, uint32_t queue, struct cl_udp_socket **out)
{
    return cl_udp_queue_open(rt->nif, port, true, queue, out);
}

int cl_runtime_listen_tcp(struct cl_runtime *rt, uint16_t port, uint32_t backlog, const struct cl_tcp_events *events,
                          void *arg)
{
    return cl_tcp_listen_on(rt->nif, port, backlog, events, arg);
}

int cl_runtime_unlisten_tcp(struct cl_runtime *rt, uint16_t port)
{
    return cl_tcp_unlisten(rt->nif, port);
}

int cl_runtime_tcp_congestion(struct cl_runtime *rt, const char *rule, uint32_t ecn)
{
    return cl_tcp_set_congestion(rt->nif, rule, ecn);
}

int cl_runtime_tcp_keep_alive(struct cl_runtime *rt, uint32_t idle_ms, uint32_t interval_ms, uint32_t probes)
{
    return cl_tcp_set_keep_alive(rt->nif, idle_ms, interval_ms, probes);
}

int cl_runtime_connect_tcp(struct cl_runtime *rt, uint32_t ipv4, uint16_t port, const struct cl_tcp_events *events,
                           void *arg)
{
    return cl_tcp_open(rt->nif, ipv4, port, events, arg);
}

int cl_runtime_open_tcp(struct cl_runtime *rt, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                        const struct cl_tcp_events *events, void *arg, void (*made)(struct cl_tcp_conn *c, void *arg))
{
    return events ? cl_tcp_open_from(rt->nif, from, to, events, arg, made) : -EINVAL;
}

void cl_runtime_tcp_counts(const struct cl_runtime *rt, struct cl_tcp_counts *out)
{
    cl_tcp_count(rt->nif, out);
}

int cl_stream_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog, struct cl_stream **out)
{
    return cl_streams_listen(rt->nif, port, backlog, out);
}

int cl_stream_connect(struct cl_runtime *rt, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                      int64_t timeout_ns, struct cl_stream **out)
{
    return cl_streams_connect(rt->nif, from, to, timeout_ns, out);
}

int cl_runtime_serve_tcp(struct cl_runtime *rt, uint16_t port, uint32_t backlog, uint32_t window, cl_tcp_handler fn,
                         void *arg)
{
    return cl_tcp_serve_on(rt->nif, port, backlog, window, fn, arg);
}

int cl_runtime_serve_tcp_foreign(struct cl_runtime *rt, uint16_t port, uint32_t backlog, uint32_t window,
                                 cl_tcp_burst_handler fn, void *arg)
{
    return cl_tcp_serve_bursts_on(rt->nif, port, backlog, window, fn, arg);
}

struct returning {
    struct cl_netif *nif;
    struct cl_lease *lease;
};

static void return_lease(void *arg)
{
    struct returning *r = arg;
    cl_tcp_take_lease(r->nif, r->lease);
}

int cl_lease_return(struct cl_runtime *rt, struct cl_lease *lease)
{
    struct returning r = {rt->nif, lease};
    if (!lease->chunk)
        return -EINVAL;
    if (cl_sched_self() == rt->sched) {
        return_lease(&r);
        return 0;
    }
    if (cl_netif_running(rt->nif))
        return cl_sched_run(rt->sched, return_lease, &r);
    pthread_mutex_lock(&rt->nif->types_lock); /* one thread at a time */
    return_lease(&r);
    pthread_mutex_unlock(&rt->nif->types_lock);
    return 0;
}

int cl_poll_new(struct cl_runtime *rt, struct cl_poll **out)
{
    return cl_poll_open(rt->nif, out);
}

int cl_runtime_add_neighbour(struct cl_runtime *rt, uint32_t ipv4, const uint8_t *mac)
{
    return cl_arp_add_static(rt->nif->arp, cl_be32(ipv4), mac);
}

int cl_runtime_spawn(struct cl_runtime *rt, cl_uthread_fn fn, void *arg)
{
    return cl_sched_spawn(rt->sched, fn, arg);
}

int cl_runtime_every(struct cl_runtime *rt, uint64_t period_ns, cl_every_fn fn, void *arg, uint32_t foreign,
                     const struct cl_every **out)
{
    struct cl_every *e;
    int rc = cl_every_new(rt->sched, period_ns, fn, arg, foreign, &e);
    if (rc)
        return rc;
    cl_spin_lock(&rt->every_lock);
    e->next = rt->every;
    rt->every = e;
    cl_spin_unlock(&rt->every_lock);
    *out = e;
    return 0;
}
