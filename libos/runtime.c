/* The runtime: puts scheduler, NIC and network stack together, starts, steps and stops them. See runtime.h. */
#include "../drivers/port/port.h"
#include "every.h"
#include "elastic.h"
#include "internal.h"
#include "net/traced.h"
#include "raised.h"

#include <errno.h>
#include <stdlib.h>

static void on_conflict(void *arg)
{
    struct cl_runtime *rt = arg;
    if (rt->on_event)
        rt->on_event(rt->event_arg, CL_EVENT_CONFLICT,
                     "another host answers ARP for this runtime's IPv4 address; give one of them another address");
}

static void on_unfinished(void *arg)
{
    struct cl_runtime *rt = arg;
    if (rt->on_event)
        rt->on_event(
            rt->event_arg, CL_EVENT_UNFINISHED,
            "frames come with checksums that their sender left to its device, as over a veth, and are dropped; "
            "run `ethtool -K IF tx off`, where IF is the sender's interface: of a veth its other end");
}

/* Embedded mode: a port tells of its iokernel itself. */
static void on_gone(void *arg)
{
    struct cl_runtime *rt = arg;
    char text[160];
    snprintf(text, sizeof text,
             "the NIC (%s) is gone: its device was removed, or its other end closed; nothing comes or goes any more",
             rt->nic->ops->name);
    if (rt->on_event)
        rt->on_event(rt->event_arg, CL_EVENT_GONE, text);
}

_Static_assert(CL_RUNTIME_TRACE_OFF == CL_TRACE_OFF + 1 && CL_RUNTIME_TRACE_SAMPLED == CL_TRACE_SAMPLED + 1 &&
                   CL_RUNTIME_TRACE_FULL == CL_TRACE_FULL + 1,
               "0 is the default");

static int make_trace(struct cl_runtime *rt, const struct cl_runtime_config *c, unsigned kthreads, char *err)
{
    uint32_t how = c->trace ? c->trace : CL_RUNTIME_TRACE_SAMPLED;
    struct cl_trace_config config = {.n_rings = kthreads,
                                     .mode = how - 1,
                                     .one_in = c->trace_one_in,
                                     .slowest = c->trace_slowest,
                                     .records = c->trace_records};
    if (how == CL_RUNTIME_TRACE_OFF)
        return 0;
    int rc = cl_trace_new(&config, rt->nif->clock, c->name ? c->name : program_invocation_short_name, &rt->trace, err);
    if (rc == 0)
        cl_netif_trace(rt->nif, rt->trace);
    return rc;
}

int cl_runtime_trace(struct cl_runtime *rt, uint32_t how)
{
    if (!rt->trace)
        return how == 0 ? CL_RUNTIME_TRACE_OFF : -ENOENT;
    int before = (int)cl_trace_mode(rt->trace) + 1, rc = how ? cl_trace_set_mode(rt->trace, how - 1) : 0;
    return rc ? rc : before;
}

int cl_runtime_sample_by_signal(struct cl_runtime *rt)
{
    return rt->trace ? cl_trace_sample_by_signal(rt->trace) : -ENOENT;
}

uint32_t cl_runtime_trace_service(struct cl_runtime *rt, uint32_t kind, uint16_t port)
{
    return cl_trace_service_of(rt->trace, (uint16_t)kind, port);
}

static uint64_t stamp_of(const struct cl_clock *clock, uint64_t ns)
{
    return ns ? (uint64_t)cl_ns_to_tsc(clock, (int64_t)ns) : 0;
}

void cl_runtime_trace_call(struct cl_runtime *rt, const struct cl_runtime_call *call)
{
    const struct cl_clock *clock = rt->nif->clock;
    int k = rt->trace ? cl_kthread_index_in(rt->sched) : -1;
    if (k < 0)
        return;
    struct cl_tracer *t = cl_trace_tracer(rt->trace, (unsigned)k);
    struct cl_trace_call c = {.begin = stamp_of(clock, call->since_ns),
                              .service = (uint16_t)call->service,
                              .what = (uint16_t)call->what,
                              .leaves = call->leaves};
    uint64_t now = cl_tracer_stamp(t);
    if (!cl_tracer_called(t, &c, now))
        return;
    struct cl_call_stages s = {0};
    if (call->stages)
        call->stages(call->arg, &s);
    struct cl_trace_stages at = {.gone = stamp_of(clock, s.gone_ns),
                                 .sent = stamp_of(clock, s.sent_ns),
                                 .flush = stamp_of(clock, s.flush_ns),
                                 .written = stamp_of(clock, s.written_ns),
                                 .durable = stamp_of(clock, s.durable_ns),
                                 .others = stamp_of(clock, s.others_ns),
                                 .agreed = stamp_of(clock, s.agreed_ns),
                                 .index = s.index,
                                 .node = s.node,
                                 .flags = s.flags};
    cl_tracer_put_call(t, &c, call->stages ? &at : NULL, now);
}

static int build(struct cl_runtime *rt, const struct cl_runtime_config *c, char *err)
{
    int rc;
    if (!c->nic == !c->socket_path)
        return cl_refuse(err, -EINVAL, "give either a NIC (embedded mode) or the socket of an iokernel, and not both");
    if (c->nic && c->quantum_signal)
        return cl_refuse(
            err, -EINVAL,
            "an iokernel sends the signal at the end of a quantum: attach to one, or leave quantum_signal out");
    if (c->kthreads > CL_SCHED_MAX_KTHREADS)
        return cl_refuse(err, -EINVAL, "a runtime has at most 64 kthreads");
    rt->on_event = c->on_event;
    rt->event_arg = c->event_arg;
    rt->nic = c->nic;
    if (!(rt->raises = cl_raises_new(c->on_event, c->event_arg)))
        return cl_refuse(err, -ENOMEM, "out of memory");
    if (!rt->nic && (rc = cl_runtime_attach(rt, c, err)) < 0)
        return rc;
    unsigned kthreads = c->kthreads ? c->kthreads : rt->own_nic ? 1 : rt->nic->n_queues;
    uint32_t ipv4 = c->ipv4 && !rt->own_nic ? c->ipv4 : rt->nic->ipv4;
    uint32_t prefix = c->ipv4_prefix ? c->ipv4_prefix : rt->nic->ipv4_prefix ? rt->nic->ipv4_prefix : 24;
    if (kthreads < rt->nic->n_queues)
        return cl_refuse(err, -EINVAL,
                         "the NIC has more queues than the runtime kthreads: frames would wait in the others");
    uint32_t gateway = c->gateway;
    if (!gateway && rt->own_nic) {
        struct cl_port_info granted;
        cl_port_info(rt->nic, &granted);
        gateway = granted.gateway;
    }
    uint64_t chunk_bytes = c->chunk_bytes ? c->chunk_bytes : CL_RUNTIME_CHUNK_BYTES;
    rc = cl_netif_new(rt->nic, kthreads, ipv4, prefix, gateway, chunk_bytes, &rt->nif, err);
    if (rc < 0)
        return rc;
    rt->nif->rt = rt;
    if ((rc = make_trace(rt, c, kthreads, err)) < 0)
        return rc;
    cl_runtime_take_ports(rt);
    if ((rc = cl_netif_seed(rt->nif, c->seed ? c->seed : rt->nif->clock->word ? 1 : 0)) < 0)
        return cl_refuse(err, rc, "the kernel has no random numbers (getrandom)");
    rt->nif->udp_checksum = !c->no_udp_checksum;
    rt->nif->steal = !c->no_steal;
    rt->nif->on_conflict = on_conflict;
    rt->nif->conflict_arg = rt;
    rt->nif->on_unfinished = on_unfinished;
    rt->nif->on_gone = rt->own_nic ? NULL : on_gone;
    rt->nif->gone_arg = rt;
    if ((rc = cl_runtime_make_sched(rt, c, kthreads, err)) < 0)
        return rc;
    rt->nif->sched = rt->sched;
    cl_runtime_publish(rt, NULL, NULL);
    return 0;
}

int cl_runtime_new(const struct cl_runtime_config *config, struct cl_runtime **out, char err[256])
{
    struct cl_runtime *rt = calloc(1, sizeof *rt);
    if (!rt)
        return cl_refuse(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&rt->place_lock, NULL);
    int rc = build(rt, config, err);
    if (rc < 0) {
        cl_runtime_delete(rt);
        return rc;
    }
    *out = rt;
    return 0;
}

/* First thing on the wire: who we are, so that switches and neighbours learn it (RFC 5227, section 2.3). */
static void announce(void *arg)
{
    struct cl_netif *nif = arg;
    struct cl_netq *q = cl_netq_self(nif);
    cl_netq_arp_reply(q, NULL);
    cl_netq_ring(q);
}

int cl_runtime_begin_steps(struct cl_runtime *rt, char err[256])
{
    if (rt->started)
        return cl_refuse(err, -EALREADY, "this runtime was started before; make a new one");
    if (!rt->nif->clock->word)
        return cl_refuse(err, -EINVAL, "only a runtime on a NIC with a virtual clock is stepped; start this one");
    cl_store_relaxed(&rt->nif->running, 1);
    rt->started = rt->stepped = true;
    return cl_sched_spawn(rt->sched, announce, rt->nif);
}

int cl_runtime_step(struct cl_runtime *rt)
{
    int done = 0;
    if (!rt->stepped || rt->stopped)
        return rt->stepped ? 0 : -EINVAL;
    for (unsigned k = 0; k < rt->nif->n_queues; k++) {
        int n = cl_sched_step(rt->sched, k);
        if (n < 0)
            return n;
        done += n;
    }
    return done;
}

uint64_t cl_runtime_next_ns(struct cl_runtime *rt)
{
    const struct cl_nic *nic = rt->nic;
    if (rt->stopped)
        return UINT64_MAX;
    uint64_t next = cl_sched_next_ns(rt->sched);
    for (unsigned q = 0; nic->ops->next_tsc && q < rt->nif->n_queues; q++)
        next = cl_min(next, nic->ops->next_tsc(rt->nic, q)); /* a virtual clock's stamps are its time */
    return next;
}

int cl_runtime_start(struct cl_runtime *rt, char err[256])
{
    if (rt->nif->clock->word)
        return cl_refuse(err, -EINVAL, "its NIC lives by a virtual clock: step the runtime (a Stepper does) instead");
    if (rt->started)
        return cl_refuse(err, -EALREADY, "this runtime was started before; make a new one");
    cl_store_relaxed(&rt->nif->running, 1);
    if (rt->threaded)
        cl_trace_measure_clocks(rt->trace, rt->nif->clock);
    (void)cl_sched_report_overflow(); /* without it the process dies all the same, and says less */
    int rc = cl_sched_start(rt->sched, err);
    if (rc < 0) {
        cl_store_relaxed(&rt->nif->running, 0);
        return rc;
    }
    rt->started = true;
    cl_sched_spawn(rt->sched, announce, rt->nif);
    if (rt->own_nic)
        cl_runtime_follow(rt, true);
    return 0;
}

int cl_runtime_stop(struct cl_runtime *rt, int64_t timeout_ns)
{
    if (!rt->started || rt->stopped)
        return rt->left;
    if (cl_sched_self() == rt->sched)
        return -EDEADLK;
    cl_runtime_follow(rt, false);
    if (!cl_load_relaxed(&rt->nif->stopping))
        cl_udp_sockets_shut(rt->nif);
    cl_store_relaxed(&rt->nif->stopping, 1);
    rt->left = cl_sched_stop(rt->sched, timeout_ns);
    if (rt->left < 0)
        return rt->left;
    rt->stopped = true;
    cl_store_relaxed(&rt->nif->running, 0);
    cl_netif_drain(rt->nif);
    cl_runtime_flush(rt);
    return rt->left;
}

void cl_runtime_delete(struct cl_runtime *rt)
{
    if (!rt)
        return;
    if (rt->started && cl_runtime_stop(rt, 0) == -ETIMEDOUT)
        return;
    if (!rt->started && rt->nif)
        cl_netif_drain(rt->nif);
    if (rt->own_nic && rt->nic) { /* what is counted goes now */
        cl_port_publish(rt->nic, NULL, NULL);
        cl_port_publish_latency(rt->nic, NULL, NULL);
        cl_port_on_trace(rt->nic, NULL, NULL);
    }
    cl_elastic_leave(rt);
    cl_raises_delete(rt->raises); /* while those may be asked who are told */
    cl_sched_delete(rt->sched);
    for (struct cl_every *e; (e = rt->every); free(e))
        rt->every = e->next;
    cl_names_delete(rt->names);
    if (rt->nif)
        cl_netif_delete(rt->nif);
    cl_trace_delete(rt->trace);
    if (rt->own_nic && rt->nic)
        cl_nic_close(rt->nic);
    pthread_mutex_destroy(&rt->place_lock);
    free(rt);
}

struct cl_nic *cl_runtime_nic(struct cl_runtime *rt)
{
    return rt->nic;
}

struct cl_sched *cl_runtime_sched(struct cl_runtime *rt)
{
    return rt->sched;
}
