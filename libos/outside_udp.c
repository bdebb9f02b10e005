/* See outside_udp.h. */
#include "outside_udp.h"
#include "internal.h"
#include "net/queue.h"

#include <errno.h>

static void run(void *arg)
{
    struct cl_udp_call *c = arg;
    switch (c->what) {
    case CL_UDP_DO_SEND:
        c->rc = c->peer.port ? cl_udp_sendto(c->s, c->data, c->len, &c->peer) : cl_udp_send(c->s, c->data, c->len);
        break;
    case CL_UDP_DO_RECEIVE:
        c->rc = cl_udp_recvfrom(c->s, c->data, c->len, &c->peer, c->timeout_ns);
        break;
    default:
        c->rc = cl_udp_close(c->s);
    }
}

/* What needs no kthread. */
static int64_t look(struct cl_udp_call *c)
{
    switch (c->what) {
    case CL_UDP_DO_CONNECT:
        return cl_udp_connect(c->s, c->peer.port ? &c->peer : NULL);
    case CL_UDP_DO_PORT:
        return cl_udp_port(c->s);
    case CL_UDP_DO_POLL_ADD:
        return cl_poll_add(c->poll, c->s, (uint32_t)c->value, (uint64_t)(uintptr_t)c->data);
    case CL_UDP_DO_POLL_REMOVE:
        return cl_poll_remove(c->poll, c->s);
    default:
        return -EINVAL;
    }
}

static int64_t on_uthread(struct cl_runtime *rt, struct cl_udp_call *c)
{
    /* On a kthread it is run where it is: a Python handler may send, and is refused what would block. */
    if (cl_sched_self() == rt->sched || (c->what == CL_UDP_DO_CLOSE && !cl_netif_running(rt->nif))) {
        run(c);
        return c->rc;
    }
    int rc = cl_sched_run(rt->sched, run, c);
    return rc ? rc : c->rc;
}

int64_t cl_outside_udp(struct cl_runtime *rt, struct cl_udp_call *c)
{
    struct cl_udp_socket *s = c->s;
    if (!cl_udp_keep(s, c->life))
        return -EBADF;
    int64_t rc = c->what <= CL_UDP_DO_CLOSE ? on_uthread(rt, c) : look(c);
    cl_udp_let_go(s);
    return rc;
}

uint32_t cl_udp_life(const struct cl_udp_socket *s)
{
    return s->queue->life;
}

struct waiting {
    struct cl_poll *set;
    struct cl_poll_event *events;
    int64_t n, timeout_ns, rc;
};

static void wait_for(void *arg)
{
    struct waiting *w = arg;
    w->rc = cl_poll_wait(w->set, w->events, w->n, w->timeout_ns);
}

int64_t cl_outside_poll(struct cl_runtime *rt, struct cl_poll *set, struct cl_poll_event *events, int64_t n,
                        int64_t timeout_ns)
{
    struct waiting w = {set, events, n, timeout_ns, 0};
    int rc = 0;
    if (cl_sched_self() == rt->sched)
        wait_for(&w);
    else
        rc = cl_sched_run(rt->sched, wait_for, &w);
    return rc ? rc : w.rc;
}
