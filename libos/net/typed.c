/* See typed.h: making queues by type, what siblings take of them, and what the scheduler puts back. */
#include "netif.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(char *err, int rc, const char *why)
{
    snprintf(err, 256, "%s", why);
    return rc;
}

static int check(const struct cl_netif *nif, uint16_t port, cl_udp_handler fn, const struct cl_udp_types *types,
                 char err[256])
{
    uint32_t used = nif->types ? nif->types->n : 0;
    if (port == 0 || !fn)
        return refuse(err, -EINVAL, port ? "the handler is NULL" : "port 0: UDP ports are 1 to 65535");
    if (cl_load_relaxed(&nif->ports[cl_be16(port)])) {
        snprintf(err, 256, "UDP port %u is in use", port);
        return -EADDRINUSE;
    }
    if (!types->classify)
        return refuse(err, -EINVAL, "the classifier is NULL: give a function that returns a request's type");
    if (types->n < 1 || types->n > CL_UDP_TYPES) {
        snprintf(err, 256, "%u types: a handler has 1 to %u, with a target each", types->n, CL_UDP_TYPES);
        return -EINVAL;
    }
    for (uint32_t i = 0; i < types->n; i++)
        if (types->target_us[i] == 0) {
            snprintf(err, 256, "the target of type %u is 0: give the microseconds that its requests may wait", i);
            return -EINVAL;
        }
    if (types->n > CL_UDP_TYPES - used) {
        snprintf(err, 256, "%u types, and the runtime has %u left: all its handlers together have at most %u", types->n,
                 CL_UDP_TYPES - used, CL_UDP_TYPES);
        return -ENOSPC;
    }
    return 0;
}

/* The queues themselves, once a runtime, and the rings of the types from `first` on. */
static int make_queues(struct cl_netif *nif, uint32_t first, uint32_t n)
{
    if (!nif->types && !(nif->types = calloc(1, sizeof *nif->types)))
        return -ENOMEM;
    for (unsigned k = 0; k < nif->n_queues; k++) {
        struct cl_typed *typed = nif->queues[k].typed;
        if (!typed) {
            typed = aligned_alloc(CL_CACHELINE, sizeof *typed);
            if (!typed)
                return -ENOMEM;
            memset(typed, 0, sizeof *typed);
            typed->types = nif->types;
            cl_store_release(&nif->queues[k].typed, typed); /* release: kthreads may run already */
        }
        for (uint32_t i = first; i < first + n; i++) {
            if (typed->ring[i])
                continue; /* of an attempt that failed */
            if (!(typed->ring[i] = cl_inbox_new(CL_UDP_TYPE_QUEUE)))
                return -ENOMEM;
        }
    }
    return 0;
}

int cl_udp_bind_typed(struct cl_netif *nif, uint16_t port, cl_udp_handler fn, void *arg,
                      const struct cl_udp_types *types, char err[256])
{
    pthread_mutex_lock(&nif->types_lock);
    int rc = check(nif, port, fn, types, err);
    uint32_t first = nif->types ? nif->types->n : 0;
    if (rc == 0 && (rc = make_queues(nif, first, types->n)))
        refuse(err, rc, "out of memory for the queues by type");
    if (rc == 0) {
        for (uint32_t i = 0; i < types->n; i++)
            nif->types->target_ticks[first + i] = (uint64_t)cl_ns_to_ticks(nif->clock, types->target_us[i] * 1000ll);
        /* Stays counted if the port turns out to be taken in between: kthreads may have seen it. */
        cl_store_release(&nif->types->n, first + types->n);
        rc = cl_udp_publish_typed(nif, port, fn, arg, types, (uint16_t)first);
        if (rc)
            snprintf(err, 256, "UDP port %u: %s", port, strerror(-rc));
    }
    pthread_mutex_unlock(&nif->types_lock);
    return rc;
}

void cl_typed_drain(struct cl_netif *nif)
{
    struct cl_rx_item item;
    for (unsigned k = 0; k < nif->n_queues; k++) {
        struct cl_netq *q = &nif->queues[k];
        for (uint32_t i = 0; q->typed && i < nif->types->n; i++)
            while (cl_typed_take(q->typed, i, &item))
                if (item.frame.data) { /* else a uthread, which still holds its datagram */
                    cl_count(&q->stats.unhandled, 1);
                    cl_netq_done(q, &item.frame);
                }
    }
}

void cl_typed_delete(struct cl_netif *nif)
{
    for (unsigned k = 0; k < nif->n_queues; k++) {
        struct cl_typed *typed = nif->queues[k].typed;
        for (uint32_t i = 0; typed && i < CL_UDP_TYPES; i++)
            free(typed->ring[i]);
        free(typed);
    }
    free(nif->types);
    pthread_mutex_destroy(&nif->types_lock);
}

bool cl_netif_preempted(void *arg, unsigned self, struct cl_uthread *t, void *runner)
{
    struct cl_netq *q = &((struct cl_netif *)arg)->queues[self];
    const struct cl_udp_req *req = &((const struct cl_running *)runner)->req;
    if (!req->socket || req->socket->kind != CL_UDP_TYPED)
        return false;
    struct cl_rx_item item = {.uthread = t, .rx_tsc = cl_stamp(q->time)}; /* it has not waited while it ran */
    if (!cl_typed_put(q->typed, req->type, &item)) {
        cl_count(&q->stats.requeue_full, 1);
        return false;
    }
    cl_count(&q->stats.requeued, 1);
    cl_netq_note_inbox(q);
    return true;
}
