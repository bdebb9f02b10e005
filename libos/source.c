/* The scheduler of a runtime: its settings, and the network as its work source (corelane/libos/sched.h). */
#include "../drivers/port/port.h"
#include "internal.h"
#include "net/traced.h"

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

int cl_runtime_make_sched(struct cl_runtime *rt, const struct cl_runtime_config *c, unsigned kthreads, char *err)
{
    struct cl_work_source source = {.arg = rt->nif,
                                    .poll = cl_netif_poll,
                                    .ready = cl_netif_ready,
                                    .pending = cl_netif_pending,
                                    .run = cl_netif_run,
                                    .flush = cl_netif_flush,
                                    .idle = cl_netif_idle,
                                    .parker = source_parker,
                                    .wait = source_wait,
                                    .export_positions = cl_netif_export,
                                    .preempted = cl_netif_preempted,
                                    .takeable = cl_netif_takeable,
                                    .fd = source_fd,
                                    .parked = source_parked,
                                    .unannounced_ns = source_unannounced_ns,
                                    .message = cl_netif_message};
    struct cl_sched_config s;
    struct cl_port_info granted;
    cl_sched_config_init(&s);
    s.n_kthreads = kthreads;
    s.adopted = c->adopted_unless_managed && rt->nic->cores ? 0 : c->adopted;
    rt->threaded = s.adopted < kthreads;
    s.source = &source;
    s.cores = rt->nic->cores;
    s.clock = rt->nif->clock;
    s.trace = rt->trace;
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
