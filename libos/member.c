/* A runtime as a member of a group: ready, draining, and the ports that it chooses itself. See docs/groups.md. */
#include "../drivers/port/port.h"
#include "internal.h"

#include <corelane/libos/tcp.h>

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define LOOK_NS 500000      /* between two looks at whether it has drained */
#define FLUSH_NS 1000000000 /* for an iokernel to take the last answers: its loop may be kept from running */

void cl_runtime_take_ports(struct cl_runtime *rt)
{
    struct cl_port_info granted;
    if (!rt->own_nic)
        return;
    cl_port_info(rt->nic, &granted);
    rt->member = granted.member;
    if (granted.member == 0)
        return;
    rt->nif->is_member = true;
    rt->nif->own_first = (uint16_t)(CL_SHM_OWN_PORTS + (granted.member - 1) * CL_SHM_MEMBER_PORTS);
    rt->nif->own_last = (uint16_t)(rt->nif->own_first + CL_SHM_MEMBER_PORTS - 1);
    rt->nif->next_ephemeral = rt->nif->own_first;
}

int cl_runtime_ready(struct cl_runtime *rt, bool replace, char err[256])
{
    if (rt->member == 0)
        return 0;
    if (cl_sched_self() == rt->sched)
        return cl_refuse(err, -EDEADLK, "a kthread cannot wait for the iokernel: call it from another thread");
    int rc = cl_port_say(rt->nic, CL_MEMBER_READY, replace, err);
    return rc == -ENOTCONN ? 0 : rc; /* the next iokernel is told */
}

/* Whether all that came before the flows were dealt anew is with uthreads. What was taken out of a ring and is
 * in no queue yet is not counted in rx_frames yet (receive.c). */
static bool is_quiet(struct cl_runtime *rt)
{
    struct cl_netif *nif = rt->nif;
    uint64_t taken = 0, known = 0;
    if (!cl_port_emptied(rt->nic))
        return false;
    for (unsigned q = 0; q < nif->n_queues; q++) {
        struct cl_nic_stats nic;
        rt->nic->ops->stats(rt->nic, q, &nic);
        taken += nic.rx_frames;
    }
    for (unsigned q = 0; q < nif->n_queues; q++) {
        const struct cl_net_stats *s = &nif->queues[q].stats;
        /* Acquire: where they wait was published before. */
        known += cl_load_acquire(&s->rx_frames) - cl_load_relaxed(&s->looped);
    }
    bool waiting = taken != known;
    for (unsigned q = 0; q < nif->n_queues; q++) {
        struct cl_netq *at = &nif->queues[q];
        waiting |= cl_netq_waiting(at) || cl_load_relaxed(&at->n_stash) || cl_load_relaxed(&at->n_loop);
    }
    const struct cl_batches *batches = cl_load_acquire(&nif->batches);
    return !waiting && !(batches && cl_load_relaxed(&batches->waiting));
}

/* Look until it holds, or timeout_ns are over. */
static bool await(struct cl_runtime *rt, bool (*holds)(struct cl_runtime *), int64_t timeout_ns)
{
    const struct timespec nap = {0, LOOK_NS};
    uint64_t begun = cl_monotonic_raw_ns();
    while (!holds(rt)) {
        if ((int64_t)(cl_monotonic_raw_ns() - begun) >= timeout_ns)
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

int cl_runtime_drain(struct cl_runtime *rt, int64_t timeout_ns, char err[256])
{
    if (rt->member == 0 || !rt->started || rt->stopped)
        return 0;
    if (cl_sched_self() == rt->sched)
        return cl_refuse(err, -EDEADLK, "a kthread cannot wait for itself: call it from another thread");
    rt->drained = true;
    int rc = cl_port_say(rt->nic, CL_MEMBER_DRAINING, false, err);
    if (rc < 0)
        return rc == -ENOTCONN ? 0 : rc;
    if (!await(rt, is_quiet, timeout_ns))
        return cl_refuse(err, -ETIMEDOUT, "requests still come, or wait for handlers: give it longer, or stop it");
    return 0;
}

uint64_t cl_runtime_connections(const struct cl_runtime *rt)
{
    struct cl_tcp_counts n;
    cl_runtime_tcp_counts(rt, &n);
    uint64_t existing = n.begun - n.over, resting = n.rests - n.rested;
    /* Counters of several kthreads, which are read while they grow, and a block is given back after its rest is
     * over. */
    return (int64_t)(existing - resting) > 0 ? existing - resting : 0;
}

static bool is_closed(struct cl_runtime *rt)
{
    return cl_runtime_connections(rt) == 0;
}

int cl_runtime_wait_closed(struct cl_runtime *rt, int64_t timeout_ns, char err[256])
{
    if (!rt->started || rt->stopped)
        return 0;
    if (cl_sched_self() == rt->sched)
        return cl_refuse(err, -EDEADLK, "a kthread cannot wait for its connections: call it from another thread");
    if (await(rt, is_closed, timeout_ns))
        return 0;
    snprintf(err, 256, "%llu connections are still open: close them, or give their peers longer",
             (unsigned long long)cl_runtime_connections(rt));
    return -ETIMEDOUT;
}

static bool is_flushed(struct cl_runtime *rt)
{
    return cl_port_flushed(rt->nic);
}

void cl_runtime_flush(struct cl_runtime *rt)
{
    if (rt->drained)
        (void)await(rt, is_flushed, FLUSH_NS); /* else they are lost with the iokernel that does not take them */
}
