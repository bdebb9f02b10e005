/* Listening sockets: ports, who takes which connection, accepting. See sockets.h.
 *
 * The machine knows one listener a port, of which `accepts` is set: its backlog is the sum of those of the port's
 * sockets, and `pending` counts what is half open or waits in their queues. So a connection that opens finds one queue
 * at least that has room, but for sockets that were closed meanwhile; then it goes beyond, or is reset if none
 * is left. */
#include "sockets.h"
#include "flows.h"

#include <errno.h>
#include <stdlib.h>

static void no_longer_pending(struct cl_port *port)
{
    __atomic_fetch_sub(&port->listener.waiting, 1, __ATOMIC_RELAXED); /* which is counted from when it opens */
    /* Release: as in cl_tcp_accepted. */
    __atomic_fetch_sub(&port->listener.pending, 1, __ATOMIC_RELEASE);
}

/* Queues. Under the port's lock. */

static void enqueue(struct cl_stream *l, struct cl_stream *s)
{
    s->home = l;
    s->next = NULL;
    s->prev = l->newest;
    *(l->newest ? &l->newest->next : &l->first) = s;
    l->newest = s;
    l->n_queued++;
}

static void dequeue(struct cl_stream *l, struct cl_stream *s)
{
    *(s->prev ? &s->prev->next : &l->first) = s->next;
    *(s->next ? &s->next->prev : &l->newest) = s->prev;
    s->home = s->next = s->prev = NULL;
    if (--l->n_queued == 0)
        cl_store_relaxed(&l->told, l->told & ~(uint32_t)CL_STREAM_DATA);
    no_longer_pending(l->port);
}

bool cl_stream_unqueue(struct cl_stream *s)
{
    if (!s->port)
        return false;
    cl_spin_lock(&s->port->lock);
    bool waits = s->home;
    if (waits)
        dequeue(s->home, s);
    cl_spin_unlock(&s->port->lock);
    return waits;
}

/* The one that its hash names, or the next that has room, or that one after all. NULL: none listens any more. */
static struct cl_stream *choose(const struct cl_port *port, uint32_t hash)
{
    if (!port->listeners)
        return NULL;
    struct cl_stream *named = port->listeners;
    /* By its upper bits: flows of one bucket share the lower ones. */
    for (uint32_t i = (uint32_t)((uint64_t)hash * port->n_listeners >> 32); i; i--)
        named = named->next;
    struct cl_stream *l = named;
    do {
        if (l->n_queued < l->backlog)
            return l;
        l = l->next ? l->next : port->listeners;
    } while (l != named);
    return named;
}

/* A connection has come, inside of its turn. */
static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct cl_port *port = arg;
    const struct cl_flow *flow = cl_tcp_flow(c);
    if (!c->listener) { /* it has opened and ended in this turn */
        cl_tcp_set_user(c, NULL, NULL);
        return;
    }
    struct cl_stream *s = cl_stream_new(port->streams, CL_STREAM_CONNECTION, port, 2); /* its accepter's, and c's */
    if (!s) {
        cl_tcp_abort(c);
        return;
    }
    s->told = CL_STREAM_OPENED | CL_STREAM_ROOM;
    s->conn = c;
    cl_stream_note_ends(s, flow);
    cl_spin_lock(&port->lock);
    struct cl_stream *l = choose(port, flow->hash);
    if (!l) {
        cl_spin_unlock(&port->lock);
        cl_spin_lock(s->guard);
        cl_stream_unref(s, 2);
        cl_tcp_abort(c);
        return;
    }
    cl_tcp_set_user(c, &cl_stream_events, s);
    c->flags |= CL_TCP_ANSWERED_LATER;
    cl_stream_apply(&l->options, c);
    if (l->options.shut)
        cl_store_relaxed(&s->told, s->told | CL_STREAM_WRITE_OFF); /* nobody knows it yet */
    c->listener = NULL;                                            /* it stays pending: the queue gives that back */
    enqueue(l, s);
    cl_stream_tell(l, CL_STREAM_DATA); /* l's guard is the port's lock */
}

static const struct cl_tcp_events listening = {.opened = on_opened};

/* Listening. */

static struct cl_port *port_of(struct cl_streams *all, uint16_t number)
{
    struct cl_port *port = cl_load_acquire(&all->ports[number]), *nobody = NULL;
    if (port || !(port = calloc(1, sizeof *port)))
        return port;
    port->streams = all;
    port->number = number;
    port->listener =
        (struct cl_tcp_listener){.settings = cl_tcp_default_settings(all->nif), .user = &listening, .accepts = true};
    port->listener.arg = port;
    if (__atomic_compare_exchange_n(&all->ports[number], &nobody, port, false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
        return port;
    free(port);
    return nobody;
}

/* Under the port's lock: connections may come to l. */
static int join(struct cl_port *port, struct cl_stream *l)
{
    uint32_t sum = cl_load_relaxed(&port->listener.backlog);
    if (l->backlog > UINT32_MAX / 2 - cl_min(sum, UINT32_MAX / 2))
        return -EINVAL;
    cl_store_relaxed(&port->listener.backlog, sum + l->backlog);
    int rc = port->listeners ? 0 : cl_tcp_publish(port->streams->nif, port->number, &port->listener);
    if (rc) {
        cl_store_relaxed(&port->listener.backlog, sum);
        return rc;
    }
    l->next = port->listeners;
    port->listeners = l;
    port->n_listeners++;
    return 0;
}

int cl_streams_listen(struct cl_netif *nif, uint16_t number, uint32_t backlog, struct cl_stream **out)
{
    struct cl_streams *all;
    if (number == 0 || backlog == 0)
        return -EINVAL;
    int rc = cl_streams_ensure(nif, &all);
    struct cl_port *port = rc ? NULL : port_of(all, number);
    if (!port)
        return rc ? rc : -ENOMEM;
    struct cl_stream *l = cl_stream_new(all, CL_STREAM_LISTENER, port, 1);
    if (!l)
        return -EMFILE;
    l->backlog = backlog;
    cl_spin_lock(&port->lock);
    if ((rc = join(port, l))) {
        cl_stream_unref(l, 1);
        return rc;
    }
    cl_spin_unlock(&port->lock);
    *out = l;
    return 0;
}

int cl_stream_accept(struct cl_stream *l, int64_t timeout_ns, struct cl_stream **out)
{
    struct cl_stream_until until = cl_stream_until(l, timeout_ns);
    int rc = cl_stream_enter(l, CL_STREAM_LISTENER);
    if (rc)
        return rc;
    while (rc == 0 && !l->first)
        rc = l->told & CL_STREAM_CLOSED ? -EBADF : cl_stream_wait(l, CL_STREAM_IN, CL_TRACE_WAITS_ACCEPT, &until);
    if (rc == 0) {
        *out = l->first;
        dequeue(l, l->first);
    }
    cl_stream_leave(l);
    return rc;
}

int cl_stream_close_listener(struct cl_stream *l)
{
    struct cl_port *port = l->port;
    struct cl_stream **at = &port->listeners, *left;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    port->n_listeners--;
    cl_store_relaxed(&port->listener.backlog, port->listener.backlog - l->backlog);
    if (!port->listeners)
        cl_tcp_unpublish(port->streams->nif, port->number);
    l->refs++; /* this call's */
    cl_stream_end(l, CL_STREAM_CLOSES);
    cl_spin_lock(&port->lock);
    while ((left = l->first)) {
        dequeue(l, left); /* and the queue's reference is ours */
        cl_spin_unlock(&port->lock);
        cl_spin_lock(left->guard);
        cl_stream_end(left, CL_STREAM_ABORTS);
        cl_spin_lock(left->guard);
        cl_stream_unref(left, 1);
        cl_spin_lock(&port->lock);
    }
    cl_stream_unref(l, 2);
    return 0;
}
