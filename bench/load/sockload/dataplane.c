/* Connections over corelane's own stack: stream and UDP sockets of a runtime of this process, and a poll set that says
 * what is ready. The worker is a uthread, which yields in every turn of its loop, so that its kthread takes frames from
 * the NIC and rings the doorbell for those that were queued. */
#include "engine.h"

#include <corelane/libos/runtime.h>
#include <corelane/libos/stream.h>

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h>

#define EVENTS 64
#define LOOK_NS 100000 /* a thread of Linux that awaits a uthread looks so often */

static int init(struct cl_worker *w)
{
    return cl_poll_new(w->s->config.runtime, &w->set);
}

static void free_worker(struct cl_worker *w)
{
    cl_poll_delete(w->set); /* which its sockets have left */
}

static struct cl_tcp_addr server(const struct cl_sockload *s)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)&s->server;
    return (struct cl_tcp_addr){.ipv4 = ntohl(four->sin_addr.s_addr), .port = ntohs(four->sin_port)};
}

static void close_conn(struct cl_worker *w, struct cl_conn *c)
{
    if (c->stream && w->s->config.fresh)
        cl_stream_abort(c->stream); /* as over sockets: no port stays in TIME_WAIT */
    else if (c->stream)
        cl_stream_close(c->stream, 0);
    if (c->datagrams)
        cl_udp_close(c->datagrams);
    c->stream = NULL;
    c->datagrams = NULL;
}

static int watch(struct cl_worker *w, struct cl_conn *c, bool room)
{
    return cl_poll_add_stream(w->set, c->stream, CL_POLL_IN | (room ? CL_POLL_OUT : 0), CL_POLL_LEVEL,
                              (uint64_t)(c - w->conns));
}

static int open_stream(struct cl_worker *w, struct cl_conn *c)
{
    struct cl_tcp_addr to = server(w->s);
    int rc = cl_stream_connect(w->s->config.runtime, NULL, &to, 0, &c->stream);
    if (rc && rc != -EINPROGRESS) {
        c->stream = NULL;
        return rc;
    }
    cl_stream_set(c->stream, CL_STREAM_NO_DELAY, 1);
    int watched = watch(w, c, rc == -EINPROGRESS);
    if (watched)
        close_conn(w, c);
    return watched ? watched : rc;
}

static int open_datagrams(struct cl_worker *w, struct cl_conn *c)
{
    struct cl_tcp_addr to = server(w->s);
    struct cl_udp_addr peer = {.ipv4 = to.ipv4, .port = to.port};
    int rc = cl_udp_open(w->s->config.runtime, 0, CL_UDP_MAX_SOCKET_QUEUE, &c->datagrams);
    if (rc) {
        c->datagrams = NULL;
        return rc;
    }
    rc = cl_udp_connect(c->datagrams, &peer);
    rc = rc ? rc : cl_poll_add(w->set, c->datagrams, CL_POLL_LEVEL, (uint64_t)(c - w->conns));
    if (rc)
        close_conn(w, c);
    return rc;
}

static int open_conn(struct cl_worker *w, struct cl_conn *c)
{
    return w->s->stream ? open_stream(w, c) : open_datagrams(w, c);
}

static int opened(struct cl_worker *w, struct cl_conn *c)
{
    (void)w;
    return cl_stream_wait_open(c->stream, 0);
}

static int64_t send_bytes(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    if (!w->s->stream)
        return cl_udp_send(c->datagrams, data, (int64_t)n);
    int64_t sent = cl_stream_write(c->stream, data, (int64_t)n, 0);
    return sent == -EAGAIN ? 0 : sent;
}

static int want_room(struct cl_worker *w, struct cl_conn *c, bool wanted)
{
    int rc = cl_poll_remove_stream(w->set, c->stream);
    return rc ? rc : watch(w, c, wanted);
}

static int64_t receive(struct cl_worker *w, struct cl_conn *c, uint8_t *data, uint64_t room)
{
    int64_t n = cl_stream_read(c->stream, data, (int64_t)room, 0);
    w->came = cl_tsc();
    return n;
}

static int send_together(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, unsigned n, uint32_t each)
{
    (void)w;
    for (unsigned i = 0; i < n; i++) {
        int64_t sent = cl_udp_send(c->datagrams, data + i * each, each);
        if (sent < 0)
            return i ? (int)i : (int)sent;
    }
    return (int)n;
}

static int receive_datagrams(struct cl_worker *w, struct cl_conn *c)
{
    struct cl_inbox *inbox = w->inbox;
    for (int i = 0; i < CL_SOCKLOAD_DATAGRAMS; i++) {
        int64_t n = cl_udp_recvfrom(c->datagrams, inbox->data[i], CL_SOCKLOAD_DATAGRAM_ROOM, NULL, 0);
        if (n < 0)
            return i ? i : (int)n;
        inbox->headers[i].msg_len = (unsigned)n;
        inbox->came[i] = cl_tsc();
    }
    return CL_SOCKLOAD_DATAGRAMS;
}

static void poll_events(struct cl_worker *w, int ms)
{
    struct cl_poll_event events[EVENTS];
    cl_uthread_yield();
    int n = cl_poll_wait(w->set, events, EVENTS, (int64_t)ms * 1000000);
    if (n == -ESHUTDOWN || cl_uthread_stopping())
        cl_sockload_worker_fail(w, -ESHUTDOWN, "the runtime that carries the load stops");
    for (int i = 0; i < n; i++) {
        uint32_t ready = events[i].ready;
        cl_sockload_worker_event(w, &w->conns[events[i].data], ready & CL_POLL_OUT,
                                 ready & (CL_POLL_IN | CL_POLL_ERROR | CL_POLL_END));
    }
}

static void on_uthread(void *arg)
{
    struct cl_worker *w = arg;
    w->main(w);
    cl_store_release(&w->on_uthread, 0); /* release: who sees it reads what it has done */
}

static int start(struct cl_worker *w, void *(*fn)(void *w))
{
    w->main = fn;
    cl_store_relaxed(&w->on_uthread, 1);
    int rc = cl_runtime_spawn(w->s->config.runtime, on_uthread, w);
    if (rc)
        cl_store_relaxed(&w->on_uthread, 0);
    return -rc;
}

static void join(struct cl_worker *w)
{
    const struct timespec look = {0, LOOK_NS};
    while (cl_load_acquire(&w->on_uthread))
        nanosleep(&look, NULL);
}

struct cl_carried_call {
    int (*fn)(struct cl_worker *w, uint64_t arg);
    uint64_t arg;
    int rc;
};

static void *called(void *arg)
{
    struct cl_worker *w = arg;
    struct cl_carried_call *what = w->call;
    what->rc = what->fn(w, what->arg);
    return NULL;
}

/* What a runtime that has stopped leaves to be closed may be closed by any thread. */
static int call(struct cl_worker *w, int (*fn)(struct cl_worker *w, uint64_t arg), uint64_t arg)
{
    struct cl_carried_call what = {fn, arg, 0};
    w->call = &what;
    if (start(w, called))
        return fn(w, arg);
    join(w);
    return what.rc;
}

const struct cl_carrier cl_sockload_dataplane = {
    .init = init,
    .free = free_worker,
    .open = open_conn,
    .opened = opened,
    .close = close_conn,
    .send = send_bytes,
    .want_room = want_room,
    .receive = receive,
    .send_together = send_together,
    .receive_datagrams = receive_datagrams,
    .poll = poll_events,
    .start = start,
    .join = join,
    .call = call,
};
