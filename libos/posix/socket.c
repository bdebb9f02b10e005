/* See socket.h. */
#include "socket.h"
#include "counts.h"
#include "family.h"
#include "kthreads.h"
#include "waits.h"

#include <corelane/libos/udp.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define LINUX_BYTES 768 /* that Linux counts for a small datagram, of SO_RCVBUF (net/core/skbuff.c, truesize) */

struct stream_end {
    struct cl_stream *stream;
    bool resets;
};

static void end_now(void *arg)
{
    const struct stream_end *e = arg;
    if (e->resets)
        (void)cl_stream_abort(e->stream);
    else
        (void)cl_stream_close(e->stream, 0);
}

static void on_closed(struct cl_posix_object *o)
{
    cl_posix_forget_socket((struct cl_posix_socket *)o);
}

static void close_now(void *arg)
{
    (void)cl_udp_close(arg);
}

/* Nobody is in a call on it any more. */
static void on_end(struct cl_posix_object *o)
{
    struct cl_posix_socket *s = (struct cl_posix_socket *)o;
    struct cl_posix_shut *shut;
    __atomic_fetch_add(&cl_posix_counts()->gone[s->datagram], 1, __ATOMIC_RELAXED);
    cl_posix_socket_end(s);
    if (s->udp) {
        cl_posix_turn_all(); /* what we have sent to ourselves comes first, as by Linux, where it has come already */
        (void)cl_posix_run(close_now, s->udp);
    }
    if (s->stream)
        cl_stream_let_go(s->stream);
    cl_posix_begins_end(s);
    while ((shut = s->shut)) {
        s->shut = shut->next;
        cl_stream_let_go(shut->stream);
        free(shut);
    }
}

void cl_posix_socket_sent(const struct cl_posix_socket *s)
{
    if (cl_load_relaxed(&s->within))
        cl_posix_deliver();
}

void cl_posix_socket_end(struct cl_posix_socket *s)
{
    /* Acquire: after the stream of it. */
    struct stream_end e = {cl_load_acquire(&s->stream), cl_load_relaxed(&s->resets)};
    if (!e.stream || __atomic_exchange_n(&s->ended, 1, __ATOMIC_ACQ_REL))
        return;
    if (cl_load_relaxed(&s->within)) /* what others have sent to it is there: unread, it makes the end a reset */
        cl_posix_deliver();
    (void)cl_posix_run(end_now, &e);
    cl_posix_socket_sent(s);
}

int cl_posix_socket_shut(struct cl_posix_socket *s)
{
    struct cl_posix_shut *shut = malloc(sizeof *shut);
    if (!shut)
        return -ENOMEM;
    cl_store_release(&s->state, CL_POSIX_BOUND);
    cl_posix_socket_end(s);
    cl_spin_lock(&s->lock);
    shut->stream = __atomic_exchange_n(&s->stream, NULL, __ATOMIC_ACQ_REL);
    if (shut->stream) {
        shut->next = s->shut;
        s->shut = shut;
        shut = NULL;
    }
    cl_store_relaxed(&s->ended, 0);
    cl_spin_unlock(&s->lock);
    cl_store_release(&s->claimed, 0);
    free(shut); /* it had none */
    return 0;
}

int cl_posix_socket_new(int fd, int domain, int type, struct cl_posix_socket **out)
{
    struct cl_posix_socket *s = (struct cl_posix_socket *)cl_posix_new(CL_POSIX_SOCKET, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->domain = domain;
    s->non_blocking = (type & SOCK_NONBLOCK) != 0;
    s->datagram = (type & CL_POSIX_TYPE_MASK) == SOCK_DGRAM;
    s->receive_ns = s->send_ns = -1;
    s->object.closed = on_closed;
    s->object.end = on_end;
    *out = s;
    cl_posix_counts_share();
    cl_posix_family_begin();
    __atomic_fetch_add(&cl_posix_counts()->made[s->datagram], 1, __ATOMIC_RELAXED);
    int rc = cl_posix_enter(fd, &s->object);
    if (rc)
        cl_posix_put(&s->object);
    return rc;
}

struct cl_posix_socket *cl_posix_socket_of(int fd)
{
    return (struct cl_posix_socket *)cl_posix_get(fd, CL_POSIX_SOCKET);
}

int cl_posix_no_socket(int fd)
{
    return cl_posix_kind(fd) == CL_POSIX_EPOLL ? -ENOTSOCK : -EBADF;
}

void cl_posix_socket_put(struct cl_posix_socket *s)
{
    cl_posix_put(&s->object);
}

static void on_told(void *arg)
{
    uint32_t home = cl_load_relaxed(&((struct cl_posix_socket *)arg)->home);
    if (home)
        cl_posix_count_told(home);
    cl_posix_told(arg);
}

struct looking {
    struct cl_stream *stream;
    struct cl_tcp_info *info;
    int rc;
};

static void look_now(void *arg)
{
    struct looking *l = arg;
    l->rc = cl_stream_info(l->stream, l->info);
}

int cl_posix_socket_info(const struct cl_posix_socket *s, struct cl_tcp_info *out)
{
    struct looking l = {.stream = cl_load_acquire(&s->stream), .info = out};
    int rc;
    if (!l.stream)
        return -ENOTCONN;
    while ((rc = cl_posix_run(look_now, &l)) == 0 && l.rc == -EDEADLK) /* whoever works on it is helped to get done */
        cl_posix_turn_all();
    return rc ? rc : l.rc;
}

int cl_posix_socket_error(const struct cl_posix_socket *s)
{
    struct cl_stream *stream = cl_load_acquire(&s->stream);
    return stream ? cl_stream_error(stream) : -ENOTCONN;
}

bool cl_posix_socket_is_over(struct cl_posix_socket *s)
{
    struct cl_tcp_info info;
    if (cl_load_acquire(&s->state) <= CL_POSIX_LISTENS || !(cl_posix_socket_ready(s) & CL_STREAM_READY_OVER))
        return false;
    return cl_posix_socket_info(s, &info) || info.state == CL_POSIX_TCP_CLOSED || info.state == CL_POSIX_TCP_TIME_WAIT;
}

struct options {
    struct cl_posix_socket *s;
    struct cl_stream *stream;
};

static void apply_now(void *arg)
{
    const struct options *o = arg;
    for (int option = 0; option < CL_STREAM_OPTIONS; option++)
        if (o->s->options & 1u << option)
            (void)cl_stream_set(o->stream, option, o->s->option[option]); /* of one that is over: nothing */
    if (o->s->congestion[0])
        (void)cl_stream_set_congestion(o->stream, o->s->congestion);
    if (cl_load_relaxed(&o->s->state) == CL_POSIX_LISTENS && cl_load_relaxed(&o->s->shut_early) & CL_STREAM_WRITE)
        (void)cl_stream_shutdown(o->stream, CL_STREAM_WRITE);
}

void cl_posix_socket_has(struct cl_posix_socket *s, struct cl_stream *stream, enum cl_posix_state state)
{
    struct options o = {s, stream};
    cl_stream_hold(stream); /* until the socket ends */
    cl_store_relaxed(&s->home, 0);
    cl_store_release(&s->stream, stream);
    cl_store_release(&s->state, state); /* release: who sees the state finds the stream */
    if (s->options || s->congestion[0] || (state == CL_POSIX_LISTENS && cl_load_relaxed(&s->shut_early)))
        (void)cl_posix_run(apply_now, &o);
    cl_stream_watch(stream, on_told, s);
    cl_posix_told(s); /* what was told before */
}

int cl_posix_listener_open(struct cl_posix_socket *s, struct cl_runtime *rt)
{
    struct cl_stream *stream;
    if (__atomic_exchange_n(&s->claimed, 1, __ATOMIC_ACQ_REL)) /* by listen, and by who makes the runtime */
        return 0;
    int rc = cl_stream_listen(rt, s->own.port, s->backlog, &stream);
    if (rc == 0)
        cl_posix_socket_has(s, stream, CL_POSIX_LISTENS);
    return rc;
}

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* by who binds, and by who makes the runtime */

/* How many may wait, for the buffer that was asked. */
static uint32_t queue_of(const struct cl_posix_socket *s)
{
    if (!(s->options & 1u << CL_STREAM_RECEIVE_BUFFER))
        return 0;
    int32_t n = s->option[CL_STREAM_RECEIVE_BUFFER] / LINUX_BYTES;
    return (uint32_t)cl_max(8, cl_min(n, CL_UDP_MAX_SOCKET_QUEUE));
}

int cl_posix_datagram_open(struct cl_posix_socket *s, struct cl_runtime *rt)
{
    struct cl_udp_socket *udp;
    int rc = 0;
    pthread_mutex_lock(&opening);
    if (!s->udp) {
        bool shared = s->reuse_port || s->reuse_address;
        rc = (shared ? cl_udp_open_shared : cl_udp_open)(rt, s->own.port, queue_of(s), &udp);
        if (rc == 0) {
            cl_udp_watch(udp, on_told, s);
            cl_store_release(&s->udp, udp);
        }
    }
    pthread_mutex_unlock(&opening);
    return rc;
}
