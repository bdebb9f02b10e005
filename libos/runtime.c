/* The runtime: puts scheduler, NIC and network stack together. See runtime.h. */
#include <corelane/libos/runtime.h>
#include "../drivers/port/port.h"
#include "counters.h"
#include "every.h"
#include "net/netif.h"
#include "net/tcp/flows.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REATTACH_MS 100 /* pause between attempts after the iokernel died */

struct cl_runtime {
    struct cl_sched *sched;
    struct cl_netif *nif;
    struct cl_nic *nic;
    bool own_nic; /* attached mode: the port is ours to close */
    bool started, stopped;
    bool stepped; /* by whoever moves its virtual clock: it has no threads */
    int left;     /* what cl_runtime_stop returned */
    /* Attached, and not told which CPUs to use: those are the iokernel's word, of whichever one there is. */
    bool follows;
    pthread_mutex_t place_lock;
    bool placeable; /* under place_lock: the kthreads run */
    struct cl_spin note_lock;
    char note[CL_CONTROL_NOTE_BYTES]; /* under note_lock */
    cl_runtime_event on_event;
    void *event_arg;
    cl_counters_fn more; /* under the port's lock, as the next one */
    void *more_arg;
    struct cl_spin every_lock;
    struct cl_every *every; /* all of them, under every_lock */
};

static int refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

_Static_assert(sizeof(((struct cl_runtime_info *)0)->note) == CL_CONTROL_NOTE_BYTES, "of ACCEPT");

static void keep_note(struct cl_runtime *rt, const char *note)
{
    cl_spin_lock(&rt->note_lock);
    memcpy(rt->note, note, sizeof rt->note);
    cl_spin_unlock(&rt->note_lock);
}

/* Where cores are not managed kthreads run where the iokernel of today puts them, and anywhere while there is none: the
 * next one may put others on the CPUs that the last one gave us. Returns how many kthreads may not run there. *left_out:
 * it moves cores, and we came when nobody did. */
static unsigned place_kthreads(struct cl_runtime *rt, bool *left_out)
{
    struct cl_port_info granted;
    unsigned failed = 0;
    *left_out = false;
    pthread_mutex_lock(&rt->place_lock);
    if (rt->placeable) {
        cl_port_info(rt->nic, &granted);
        keep_note(rt, granted.note);
        *left_out = granted.managed && !rt->nic->cores;
        if (rt->follows && !granted.managed)
            failed = cl_sched_place(rt->sched, granted.state == CL_PORT_GONE ? NULL : granted.cpus);
    }
    pthread_mutex_unlock(&rt->place_lock);
    return failed;
}

static void set_placeable(struct cl_runtime *rt, bool placeable)
{
    pthread_mutex_lock(&rt->place_lock);
    rt->placeable = placeable;
    pthread_mutex_unlock(&rt->place_lock);
}

/* The port's watcher thread tells; its states are our events. */
static void on_port(void *arg, int state, const char *text)
{
    struct cl_runtime *rt = arg;
    char more[512 + 96];
    _Static_assert(CL_EVENT_ATTACHED == CL_PORT_ATTACHED && CL_EVENT_STALLED == CL_PORT_STALLED &&
                       CL_EVENT_GONE == CL_PORT_GONE,
                   "events pass through");
    bool left_out = false;
    unsigned failed = state == CL_PORT_STALLED ? 0 : place_kthreads(rt, &left_out);
    if (failed) {
        snprintf(more, sizeof more, "%s; %u kthreads may not run on the CPUs that it gives them", text, failed);
        text = more;
    } else if (left_out && state == CL_PORT_ATTACHED) {
        snprintf(more, sizeof more, "%s; it moves cores, but not of this application until that is started anew", text);
        text = more;
    }
    if (rt->on_event)
        rt->on_event(rt->event_arg, state, text);
}

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

_Static_assert(CL_RUNTIME_LATENCY == CL_CONTROL_LATENCY && CL_RUNTIME_BATCH == CL_CONTROL_BATCH, "passed through");

static int attach(struct cl_runtime *rt, const struct cl_runtime_config *c, char *err)
{
    struct cl_port_config port = {.socket_path = c->socket_path,
                                  .name = c->name ? c->name : program_invocation_short_name,
                                  .n_kthreads = c->kthreads ? c->kthreads : 1,
                                  .ipv4 = c->ipv4,
                                  .reattach_ms = REATTACH_MS,
                                  .kind = c->kind,
                                  .guaranteed = c->guaranteed,
                                  .maximum = c->max_cores,
                                  .weight = c->weight,
                                  .deadline_us = c->deadline_us,
                                  .quantum_us = c->quantum_us,
                                  .quantum_signal = c->quantum_signal,
                                  .on_change = on_port,
                                  .arg = rt};
    rt->own_nic = true;
    rt->follows = !c->cpus;
    int rc = cl_port_nic_new(&port, &rt->nic, err);
    if (rc < 0)
        return rc;
    struct cl_port_info granted;
    cl_port_info(rt->nic, &granted);
    keep_note(rt, granted.note);
    if (*granted.note && rt->on_event)
        rt->on_event(rt->event_arg, CL_EVENT_LIMITED, granted.note);
    return 0;
}

static int source_wait(void *arg, unsigned k, int64_t timeout_ns)
{
    struct cl_nic *nic = ((struct cl_netif *)arg)->nic;
    return nic->ops->wait(nic, k, timeout_ns);
}

/* Where wakes come from other processes the port hands them on to the parker. */
static int source_fd(void *arg, unsigned k)
{
    struct cl_netif *nif = arg;
    if (!nif->rt->own_nic)
        return nif->nic->ops->fd(nif->nic, k);
    int rc = cl_port_herald(nif->nic);
    return rc ? rc : -1;
}

static void source_parked(void *arg, unsigned k)
{
    struct cl_netif *nif = arg;
    if (nif->rt->own_nic)
        cl_port_parked(nif->nic, k);
}

static int64_t source_unannounced_ns(void *arg, unsigned k)
{
    struct cl_nic *nic = ((struct cl_netif *)arg)->nic;
    uint64_t next = nic->ops->next_tsc ? nic->ops->next_tsc(nic, k) : UINT64_MAX;
    if (next == UINT64_MAX)
        return -1;
    const struct cl_clock *clock = cl_nic_clock(nic);
    uint64_t now = cl_clock_stamp(clock);
    return next > now ? cl_ticks_to_ns(clock, (int64_t)(next - now)) + 1 : 0;
}

static struct cl_parker *source_parker(void *arg, unsigned k)
{
    struct cl_nic *nic = ((struct cl_netif *)arg)->nic;
    return nic->ops->parker(nic, k);
}

static int make_sched(struct cl_runtime *rt, const struct cl_runtime_config *c, unsigned kthreads, char *err)
{
    struct cl_work_source source = {.arg = rt->nif,
                                    .poll = cl_netif_poll,
                                    .ready = cl_netif_ready,
                                    .pending = cl_netif_pending,
                                    .run = cl_netif_run,
                                    .flush = cl_netif_flush,
                                    .parker = source_parker,
                                    .wait = source_wait,
                                    .export_positions = cl_netif_export,
                                    .preempted = cl_netif_preempted,
                                    .takeable = cl_netif_takeable,
                                    .fd = source_fd,
                                    .parked = source_parked,
                                    .unannounced_ns = source_unannounced_ns};
    struct cl_sched_config s;
    struct cl_port_info granted;
    cl_sched_config_init(&s);
    s.n_kthreads = kthreads;
    s.adopted = c->adopted;
    s.source = &source;
    s.cores = rt->nic->cores;
    s.clock = rt->nif->clock;
    s.quantum_ns = c->quantum_us * 1000ull;
    if (c->stop_ms)
        s.stop_ns = c->stop_ms * 1000000ull;
    s.cpus = c->cpus;
    if (c->poll_set)
        s.poll = c->poll;
    if (c->stack_bytes)
        s.stack_bytes = c->stack_bytes;
    else if (c->kind == CL_RUNTIME_BATCH)
        s.stack_bytes = CL_RUNTIME_BATCH_STACK_BYTES;
    if (c->spin_ns)
        s.spin_ns = c->spin_ns;
    if (rt->own_nic) {
        cl_port_info(rt->nic, &granted);
        if (!s.cpus && !granted.managed) /* else the iokernel binds them, and unbinds them when it ends */
            s.cpus = granted.cpus;
        if ((!granted.may_spin || granted.managed) && s.poll == CL_SCHED_SPIN)
            s.poll = CL_SCHED_ADAPTIVE; /* it shares its cores: spinning would take them from others */
    }
    return cl_sched_new(&s, &rt->sched, err);
}

/* What the port's watcher publishes. */
static unsigned count_all(void *arg, struct cl_counter *out, unsigned room)
{
    struct cl_runtime *rt = arg;
    unsigned n = cl_runtime_counters(rt, out, room);
    return n + (rt->more ? rt->more(rt->more_arg, out + n, room - n) : 0);
}

void cl_runtime_publish(struct cl_runtime *rt, cl_counters_fn more, void *arg)
{
    if (!rt->own_nic)
        return;
    cl_port_publish(rt->nic, NULL, NULL); /* nobody reads them meanwhile */
    rt->more = more;
    rt->more_arg = arg;
    cl_port_publish(rt->nic, count_all, rt);
}

static int build(struct cl_runtime *rt, const struct cl_runtime_config *c, char *err)
{
    int rc;
    if (!c->nic == !c->socket_path)
        return refuse(err, -EINVAL, "give either a NIC (embedded mode) or the socket of an iokernel, and not both");
    if (c->nic && c->quantum_signal)
        return refuse(
            err, -EINVAL,
            "an iokernel sends the signal at the end of a quantum: attach to one, or leave quantum_signal out");
    if (c->kthreads > CL_SCHED_MAX_KTHREADS)
        return refuse(err, -EINVAL, "a runtime has at most 64 kthreads");
    rt->on_event = c->on_event;
    rt->event_arg = c->event_arg;
    rt->nic = c->nic;
    if (!rt->nic && (rc = attach(rt, c, err)) < 0)
        return rc;
    unsigned kthreads = c->kthreads ? c->kthreads : rt->own_nic ? 1 : rt->nic->n_queues;
    uint32_t ipv4 = c->ipv4 && !rt->own_nic ? c->ipv4 : rt->nic->ipv4;
    uint32_t prefix = c->ipv4_prefix ? c->ipv4_prefix : rt->nic->ipv4_prefix ? rt->nic->ipv4_prefix : 24;
    if (kthreads < rt->nic->n_queues)
        return refuse(err, -EINVAL,
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
    rt->nif->udp_checksum = !c->no_udp_checksum;
    rt->nif->steal = !c->no_steal;
    rt->nif->on_conflict = on_conflict;
    rt->nif->conflict_arg = rt;
    rt->nif->on_unfinished = on_unfinished;
    rt->nif->on_gone = rt->own_nic ? NULL : on_gone;
    rt->nif->gone_arg = rt;
    if ((rc = make_sched(rt, c, kthreads, err)) < 0)
        return rc;
    rt->nif->sched = rt->sched;
    cl_runtime_publish(rt, NULL, NULL);
    return 0;
}

int cl_runtime_new(const struct cl_runtime_config *config, struct cl_runtime **out, char err[256])
{
    struct cl_runtime *rt = calloc(1, sizeof *rt);
    if (!rt)
        return refuse(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&rt->place_lock, NULL);
    int rc = build(rt, config, err);
    if (rc < 0) {
        cl_runtime_delete(rt);
        return rc;
    }
    *out = rt;
    return 0;
}

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

int cl_runtime_connect_tcp(struct cl_runtime *rt, uint32_t ipv4, uint16_t port, const struct cl_tcp_events *events,
                           void *arg)
{
    return cl_tcp_open(rt->nif, ipv4, port, events, arg);
}

void cl_runtime_tcp_counts(const struct cl_runtime *rt, struct cl_tcp_counts *out)
{
    cl_tcp_count(rt->nif, out);
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
        return refuse(err, -EALREADY, "this runtime was started before; make a new one");
    if (!rt->nif->clock->word)
        return refuse(err, -EINVAL, "only a runtime on a NIC with a virtual clock is stepped; start this one");
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
        return refuse(err, -EINVAL, "its NIC lives by a virtual clock: step the runtime (a Stepper does) instead");
    if (rt->started)
        return refuse(err, -EALREADY, "this runtime was started before; make a new one");
    cl_store_relaxed(&rt->nif->running, 1);
    (void)cl_sched_report_overflow(); /* without it the process dies all the same, and says less */
    int rc = cl_sched_start(rt->sched, err);
    if (rc < 0) {
        cl_store_relaxed(&rt->nif->running, 0);
        return rc;
    }
    rt->started = true;
    cl_sched_spawn(rt->sched, announce, rt->nif);
    if (rt->own_nic) {
        bool left_out;
        set_placeable(rt, true);
        (void)place_kthreads(rt, &left_out); /* another iokernel may have come since cl_runtime_new; that said so */
    }
    return 0;
}

int cl_runtime_stop(struct cl_runtime *rt, int64_t timeout_ns)
{
    if (!rt->started || rt->stopped)
        return rt->left;
    if (cl_sched_self() == rt->sched)
        return -EDEADLK;
    set_placeable(rt, false);
    if (!cl_load_relaxed(&rt->nif->stopping))
        cl_udp_sockets_shut(rt->nif);
    cl_store_relaxed(&rt->nif->stopping, 1);
    rt->left = cl_sched_stop(rt->sched, timeout_ns);
    if (rt->left < 0)
        return rt->left;
    rt->stopped = true;
    cl_store_relaxed(&rt->nif->running, 0);
    cl_netif_drain(rt->nif);
    return rt->left;
}

int cl_runtime_name_udp(struct cl_runtime *rt, uint16_t port, const char *name)
{
    return cl_udp_name(rt->nif, port, name);
}

static void describe(const struct cl_sched_running *k, struct cl_runtime_stuck *out, char text[256])
{
    const struct cl_udp_socket *s = cl_netif_socket_of(k->runner);
    const char *name = s ? cl_load_acquire(&s->name) : NULL;
    Dl_info symbol = {0};
    char at[96];
    *out = (struct cl_runtime_stuck){.kthread = k->kthread, .tid = k->tid, .port = s ? s->port : 0};
    out->fn = s ? (void *)(uintptr_t)s->fn.plain : (void *)(uintptr_t)k->fn;
    out->arg = s ? s->arg : k->arg;
    if (!name && out->fn && dladdr(out->fn, &symbol))
        name = symbol.dli_sname;
    snprintf(at, sizeof at, "%.60s at %p", name ? name : "a function", out->fn);
    if (s)
        snprintf(text, 256, "kthread %u (thread %d) in the handler of UDP port %u, %s,", k->kthread, k->tid, s->port,
                 at);
    else if (k->fn)
        snprintf(text, 256, "kthread %u (thread %d) in a uthread, %s,", k->kthread, k->tid, at);
    else
        snprintf(text, 256, "kthread %u (thread %d) in the scheduler's loop", k->kthread, k->tid);
}

unsigned cl_runtime_stuck(const struct cl_runtime *rt, struct cl_runtime_stuck *out, char text[256])
{
    struct cl_sched_running running, worst = {0};
    unsigned n = 0;
    for (unsigned k = 0; k < rt->nif->n_queues; k++)
        if (cl_sched_running(rt->sched, k, &running) && (n++ == 0 || (running.fn && !worst.fn)))
            worst = running;
    if (n)
        describe(&worst, out, text);
    return n;
}

void cl_runtime_delete(struct cl_runtime *rt)
{
    if (!rt)
        return;
    if (rt->started && cl_runtime_stop(rt, 0) == -ETIMEDOUT)
        return;
    if (!rt->started && rt->nif)
        cl_netif_drain(rt->nif);
    if (rt->own_nic && rt->nic)
        cl_port_publish(rt->nic, NULL, NULL); /* what is counted goes now */
    cl_sched_delete(rt->sched);
    for (struct cl_every *e; (e = rt->every); free(e))
        rt->every = e->next;
    if (rt->nif)
        cl_netif_delete(rt->nif);
    if (rt->own_nic && rt->nic)
        cl_nic_close(rt->nic);
    pthread_mutex_destroy(&rt->place_lock);
    free(rt);
}

static void add_words(uint64_t *sum, const uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += cl_load_relaxed(&words[i]);
}

int cl_runtime_net_stats(const struct cl_runtime *rt, int k, struct cl_net_stats *out)
{
    *out = (struct cl_net_stats){0};
    if (k < -1 || k >= (int)rt->nif->n_queues)
        return -EINVAL;
    for (unsigned i = 0; i < rt->nif->n_queues; i++)
        if (k == -1 || k == (int)i)
            add_words((uint64_t *)out, (const uint64_t *)&rt->nif->queues[i].stats, sizeof *out / sizeof(uint64_t));
    return 0;
}

int cl_runtime_chunk_stats(const struct cl_runtime *rt, unsigned holder, struct cl_chunk_stats *out)
{
    if (holder >= CL_CHUNKS_HOLDERS)
        return -EINVAL;
    cl_chunks_stats(rt->nif->chunks, holder, out);
    return 0;
}

int cl_runtime_sched_stats(const struct cl_runtime *rt, int k, struct cl_sched_stats *out)
{
    struct cl_sched_stats one;
    *out = (struct cl_sched_stats){0};
    if (k < -1 || k >= (int)rt->nif->n_queues)
        return -EINVAL;
    for (unsigned i = 0; i < rt->nif->n_queues; i++) {
        if (k != -1 && k != (int)i)
            continue;
        cl_sched_stats(rt->sched, i, &one);
        add_words((uint64_t *)out, (const uint64_t *)&one, sizeof one / sizeof(uint64_t));
    }
    return 0;
}

unsigned cl_runtime_counters(const struct cl_runtime *rt, struct cl_counter *out, unsigned room)
{
    struct cl_net_stats net;
    struct cl_sched_stats sched;
    struct cl_chunk_stats chunks[CL_CHUNKS_HOLDERS];
    cl_runtime_net_stats(rt, -1, &net);
    cl_runtime_sched_stats(rt, -1, &sched);
    for (unsigned h = 0; h < CL_CHUNKS_HOLDERS; h++)
        cl_chunks_stats(rt->nif->chunks, h, &chunks[h]);
    return cl_counters_by_name(&net, &sched, chunks, out, room);
}

void cl_runtime_info(struct cl_runtime *rt, struct cl_runtime_info *out)
{
    *out = (struct cl_runtime_info){.kthreads = (uint16_t)rt->nif->n_queues,
                                    .ipv4 = cl_be32(rt->nif->self.ip_be),
                                    .ipv4_prefix = (uint32_t)__builtin_popcount(rt->nif->self.mask_be),
                                    .mtu = rt->nif->mtu,
                                    .attached = rt->own_nic,
                                    .running = cl_netif_running(rt->nif),
                                    .gone = cl_load_relaxed(&rt->nic->gone)};
    memcpy(out->mac, rt->nif->self.mac, 6);
    cl_spin_lock(&rt->note_lock);
    memcpy(out->note, rt->note, sizeof out->note);
    cl_spin_unlock(&rt->note_lock);
}

struct cl_nic *cl_runtime_nic(struct cl_runtime *rt)
{
    return rt->nic;
}

struct cl_sched *cl_runtime_sched(struct cl_runtime *rt)
{
    return rt->sched;
}
