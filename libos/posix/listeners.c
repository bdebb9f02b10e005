/* bind, listen, accept. */
#include "descriptors.h"
#include "kthreads.h"
#include "linux.h"
#include "names.h"
#include "waits.h"

#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>

#define FIRST_PORT 32768 /* of those that Linux gives by itself, too */
#define LAST_PORT 60999

/* Who of ours has a port: asked by bind and listen, seldom. */
struct holder {
    const struct cl_posix_socket *s; /* that asks */
    bool listening, shared, found;   /* look for those that listen; that do not share; there is one */
};

static pthread_mutex_t binding =
    PTHREAD_MUTEX_INITIALIZER;        /* from a look at who has a port to the state that says so */
static __thread struct holder *asked; /* of cl_posix_each, which has no argument */

static void look_at(struct cl_posix_object *o)
{
    const struct cl_posix_socket *other = (const struct cl_posix_socket *)o;
    uint32_t state = cl_load_acquire(&other->state);
    if (other == asked->s || other->datagram != asked->s->datagram ||
        (state != CL_POSIX_BOUND && state != CL_POSIX_LISTENS))
        return;
    if (other->own.port != asked->s->own.port) /* which a socket that is bound keeps */
        return;
    bool both_share = (other->reuse_port && asked->s->reuse_port) ||
                      (other->datagram && other->reuse_address && asked->s->reuse_address);
    if (!both_share && (state == CL_POSIX_LISTENS || !asked->listening))
        asked->found = true;
}

static bool is_taken(const struct cl_posix_socket *s, bool listening)
{
    struct holder h = {.s = s, .listening = listening};
    asked = &h;
    cl_posix_each(CL_POSIX_SOCKET, look_at);
    asked = NULL;
    return h.found;
}

static bool only_ipv6(int fd)
{
    int on = 0;
    socklen_t len = sizeof on;
    return cl_linux(SYS_getsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, &len) == 0 && on;
}

/* Whether it listens here, or is Linux'. */
static bool is_ours(int fd, const struct cl_posix_socket *s, const struct cl_tcp_addr *at, bool is_ipv4)
{
    if (!is_ipv4 || !cl_posix_listens_at(at->ipv4, at->port))
        return false;
    if (s->domain == AF_INET)
        return true;
    if (only_ipv6(fd)) {
        cl_posix_say_once("a socket bound to IPv6 alone stays Linux': there is no IPv6 here");
        return false;
    }
    cl_posix_say_once("a socket bound to IPv6 and IPv4 is taken for IPv4 alone: there is no IPv6 here");
    return true;
}

static int choose_port(struct cl_posix_socket *s)
{
    static uint32_t next; /* a number */
    for (uint32_t i = FIRST_PORT; i <= LAST_PORT; i++) {
        uint32_t n = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % (LAST_PORT - FIRST_PORT + 1);
        s->own.port = (uint16_t)(FIRST_PORT + n);
        if (!is_taken(s, false))
            return 0;
    }
    return -EADDRINUSE;
}

int cl_posix_bind_ours(struct cl_posix_socket *s, const struct cl_tcp_addr *at)
{
    pthread_mutex_lock(&binding);
    if (cl_load_relaxed(&s->state) != CL_POSIX_FRESH) {
        pthread_mutex_unlock(&binding);
        return s->datagram ? 0 : -EINVAL; /* by another thread: a datagram that it sends has its port */
    }
    s->own = *at;
    s->chosen = at->port == 0;
    int rc = at->port == 0 ? choose_port(s) : is_taken(s, false) ? -EADDRINUSE : 0;
    if (rc == 0)
        cl_store_release(&s->state, CL_POSIX_BOUND);
    else
        s->own = (struct cl_tcp_addr){0};
    pthread_mutex_unlock(&binding);
    return rc;
}

static int bind_here(struct cl_posix_socket *s, const struct cl_tcp_addr *at)
{
    int rc = cl_posix_bind_ours(s, at);
    if (rc || !s->datagram)
        return rc;
    cl_fence_seq_cst(); /* as in listen_ours */
    return cl_posix_started() ? cl_posix_datagram_open(s, cl_posix_start(&rc)) : 0;
}

int cl_posix_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct cl_tcp_addr at;
    bool is_ipv4;
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s)
        return cl_posix_no_socket(fd);
    int rc = cl_posix_name_read(s->domain, addr, len, &at, &is_ipv4);
    if (rc == 0 && cl_load_relaxed(&s->state) != CL_POSIX_FRESH)
        rc = -EINVAL;
    else if (rc == 0) {
        bool ours = is_ours(fd, s, &at, is_ipv4);
        cl_posix_trace(fd, "bind", at.ipv4, at.port, ours);
        rc = ours ? bind_here(s, &at) : (int)cl_linux(SYS_bind, fd, addr, len);
        if (rc == 0 && !ours)
            cl_posix_give_to_linux(fd, s);
    }
    cl_posix_socket_put(s);
    return rc;
}

static int listen_ours(struct cl_posix_socket *s, int backlog)
{
    int rc = 0;
    uint32_t state = cl_load_acquire(&s->state);
    if (state == CL_POSIX_LISTENS)
        return 0; /* with the backlog that it has */
    if (state > CL_POSIX_LISTENS)
        return -EINVAL;
    if (state == CL_POSIX_FRESH && (rc = cl_posix_bind_ours(s, &(struct cl_tcp_addr){0})))
        return rc;
    s->backlog = backlog <= 0 ? 1 : cl_min((uint32_t)backlog, 65535u);
    pthread_mutex_lock(&binding);
    bool taken = is_taken(s, true);
    if (!taken)
        cl_store_release(&s->state, CL_POSIX_LISTENS);
    pthread_mutex_unlock(&binding);
    if (taken)
        return -EADDRINUSE;
    cl_fence_seq_cst(); /* before the look for a runtime: who makes it looks for listeners after one */
    if (cl_posix_started())
        rc = cl_posix_listener_open(s, cl_posix_start(&rc));
    if (rc)
        cl_store_release(&s->state, CL_POSIX_BOUND);
    return rc;
}

int cl_posix_listen(int fd, int backlog)
{
    if (cl_posix_is_child())
        return -ECHILD;
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s)
        return cl_posix_no_socket(fd);
    int rc = s->datagram ? -EOPNOTSUPP : listen_ours(s, backlog);
    cl_posix_socket_put(s);
    return rc;
}

struct accepted {
    struct cl_stream *listener, *stream;
    int rc;
};

static void accept_now(void *arg)
{
    struct accepted *a = arg;
    a->rc = cl_stream_accept(a->listener, 0, &a->stream);
}

/* The connection has a descriptor from now on, which is returned. */
static int give_descriptor(const struct cl_posix_socket *l, struct cl_stream *stream, int fd, int flags)
{
    struct cl_posix_socket *s;
    struct cl_tcp_addr own;
    int rc = cl_posix_socket_new(fd, l->domain, SOCK_STREAM | (flags & SOCK_NONBLOCK), &s);
    if (rc)
        return rc;
    if (cl_stream_ends(stream, &own, NULL) == 0)
        s->own = own;
    cl_posix_socket_has(s, stream, CL_POSIX_CONNECTED);
    cl_posix_socket_put(s);
    return fd;
}

static int accept_one(struct cl_posix_socket *l, int flags)
{
    struct accepted a = {.listener = cl_load_acquire(&l->stream)};
    if (!a.listener || !(cl_stream_ready(a.listener) & CL_POLL_IN))
        return -EAGAIN;
    int fd = (int)cl_linux(SYS_socket, l->domain, SOCK_STREAM | (flags & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0);
    if (fd < 0)
        return fd; /* it waits on */
    int rc = cl_posix_run(accept_now, &a);
    rc = rc ? rc : a.rc;
    if (rc == 0 && (rc = give_descriptor(l, a.stream, fd, flags)) >= 0)
        return rc;
    if (rc != -EAGAIN && a.stream)
        cl_posix_say_once("a connection is given up: there is no memory for its socket");
    (void)cl_linux(SYS_close, fd);
    return rc;
}

static int accept_ours(struct cl_posix_socket *l, int flags)
{
    int rc;
    if (cl_load_acquire(&l->state) != CL_POSIX_LISTENS || flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK))
        return -EINVAL;
    if (!cl_posix_start(&rc))
        return rc;
    uint64_t deadline_ns = cl_posix_deadline(l->receive_ns);
    while ((rc = accept_one(l, flags)) == -EAGAIN && !cl_load_relaxed(&l->non_blocking))
        if ((rc = cl_posix_wait(l, EPOLLIN, deadline_ns)))
            break;
    return rc;
}

int cl_posix_accept(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    if (cl_posix_is_child())
        return -ECHILD;
    struct cl_posix_socket *l = cl_posix_socket_of(fd);
    if (!l)
        return cl_posix_no_socket(fd);
    int rc = l->datagram ? -EOPNOTSUPP : accept_ours(l, flags);
    cl_posix_socket_put(l);
    if (rc >= 0 && addr && len)
        (void)cl_posix_name(rc, addr, len, true);
    return rc;
}
