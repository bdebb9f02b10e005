/* See serve.h. */
#include "serve.h"
#include <corelane/libos/timer.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_PERIOD_NS 100000000ull
#define SWEEP_ITEMS 1024 /* looked at each time, over all partitions: some 10 us */

struct cl_kv_service {
    struct cl_kv *store;
    struct cl_kv_server *server;
    uint32_t sweep_items;
    struct cl_timer timer;
};

/* Bursts of one kthread come one at a time and nothing below blocks, so the index stays true. */
static void handle(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    struct cl_kv_service *s = arg;
    cl_kv_udp_batch(cl_kv_server_udp(s->server, (uint32_t)cl_kthread_index()), reqs, n);
}

static void sweep(struct cl_timer *timer, void *arg)
{
    struct cl_kv_service *s = arg;
    struct cl_kv_thread *t = cl_kv_thread(s->store, (uint32_t)cl_kthread_index());
    cl_kv_tick(t);
    cl_kv_sweep(t, s->sweep_items);
    cl_timer_arm(timer, cl_sched_now_ns(cl_sched_self()) + SWEEP_PERIOD_NS);
}

/* A timer is armed on a kthread. */
static void first_sweep(void *arg)
{
    struct cl_kv_service *s = arg;
    sweep(&s->timer, s);
}

static int bind_all(struct cl_kv_service *s, struct cl_runtime *rt, uint16_t port, char err[256])
{
    int rc = cl_kv_server_new(s->store, cl_udp_reply_more, &s->server);
    if (!rc)
        rc = port ? cl_runtime_bind_udp_burst(rt, port, handle, s) : 0;
    if (rc) {
        snprintf(err, 256, "cannot serve UDP port %u: %s", port, strerror(-rc));
        return rc;
    }
    cl_timer_init(&s->timer, sweep, s);
    rc = cl_runtime_spawn(rt, first_sweep, s);
    if (rc)
        snprintf(err, 256, "cannot start the sweep of expired items: %s", strerror(-rc));
    return rc;
}

int cl_kv_serve(struct cl_runtime *rt, struct cl_kv *store, uint16_t port, struct cl_kv_service **out, char err[256])
{
    struct cl_runtime_info info;
    struct cl_kv_usage usage;
    cl_runtime_info(rt, &info);
    cl_kv_usage(store, &usage);
    if (usage.threads < info.kthreads) {
        snprintf(err, 256, "the store has %u threads for %u kthreads", usage.threads, info.kthreads);
        return -EINVAL;
    }
    struct cl_kv_service *s = calloc(1, sizeof(*s));
    if (!s) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    s->store = store;
    s->sweep_items = cl_max(SWEEP_ITEMS / usage.partitions, 16u);
    int rc = bind_all(s, rt, port, err);
    if (rc)
        cl_kv_service_delete(s);
    else
        *out = s;
    return rc;
}

void cl_kv_service_delete(struct cl_kv_service *s)
{
    if (!s)
        return;
    cl_kv_server_delete(s->server);
    free(s);
}

const struct cl_kv_udp *cl_kv_service_udp(const struct cl_kv_service *s, uint32_t k)
{
    return cl_kv_server_udp(s->server, k);
}
