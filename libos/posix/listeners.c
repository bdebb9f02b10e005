/* listen, accept. */
#include "descriptors.h"
#include "family.h"
#include "inherited.h"
#include "kthreads.h"
#include "linux.h"
#include "names.h"
#include "waits.h"

#include <netinet/in.h>

static int listen_ours(struct cl_posix_socket *s, int backlog)
{
    int rc = 0;
    uint32_t state = cl_load_acquire(&s->state);
    if (state == CL_POSIX_LISTENS)
        return 0; /* with the backlog that it has */
    if (state > CL_POSIX_LISTENS)
        return -EINVAL;
    if (state == CL_POSIX_FRESH && (rc = cl_posix_bind_ours(s, &(struct cl_tcp_addr){.ipv4 = s->own.ipv4})))
        return rc;
    s->backlog = backlog <= 0 ? 1 : cl_min((uint32_t)backlog, 65535u);
    if ((rc = cl_posix_bind_listener(s)))
        return rc;
    cl_store_relaxed(&s->within, true);
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
    if (rc == 0)
        cl_posix_mark(fd, true);
    cl_posix_socket_put(s);
    return rc;
}

struct accepted {
    struct cl_stream *listener, *stream;
    uint32_t ipv4; /* INADDR_ANY: all */
    int rc;
};

/* The stack has one listener a port, whatever the address: what comes to another one than it was bound to is
 * nobody's. */
static void accept_now(void *arg)
{
    struct accepted *a = arg;
    struct cl_tcp_addr own;
    while ((a->rc = cl_stream_accept(a->listener, 0, &a->stream)) == 0) {
        if (a->ipv4 == INADDR_ANY || cl_stream_ends(a->stream, &own, NULL) || own.ipv4 == a->ipv4)
            return;
        (void)cl_stream_abort(a->stream);
        a->stream = NULL;
        cl_posix_say_once("a connection to an address at which the program does not listen, though at that port, was "
                          "reset: Linux would not have opened it");
    }
}

/* The connection has a descriptor from now on, which is returned. */
static int give_descriptor(struct cl_posix_socket *l, struct cl_stream *stream, int fd, int flags)
{
    struct cl_posix_socket *s;
    struct cl_tcp_addr own, peer;
    int rc = cl_posix_socket_new(fd, l->domain, SOCK_STREAM | (flags & SOCK_NONBLOCK), &s);
    if (rc)
        return rc;
    if (cl_stream_ends(stream, &own, &peer) == 0) {
        s->own = own;
        s->within = cl_posix_is_own(peer.ipv4);
    }
    cl_posix_inherit(l, fd, s);
    cl_posix_mark(fd, true);
    s->shut_early = cl_load_relaxed(&l->shut_early);
    s->placed = l->placed;
    s->chosen = true; /* whatever the listener's is: it gives it back (net/core/sock.c: sk_clone_lock) */
    cl_posix_socket_has(s, stream, CL_POSIX_CONNECTED);
    cl_posix_socket_put(s);
    return fd;
}

static int accept_one(struct cl_posix_socket *l, int flags)
{
    struct accepted a = {.listener = cl_load_acquire(&l->stream), .ipv4 = l->own.ipv4};
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
    uint64_t deadline_ns = cl_posix_deadline(cl_load_relaxed(&l->non_blocking) ? 0 : l->receive_ns);
    if (!cl_posix_start_until(&l->object, deadline_ns, &rc))
        return rc;
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
    int told = rc >= 0 && addr ? cl_posix_name(rc, addr, len, true) : 0;
    if (told == -EINVAL || told == -EFAULT) { /* the connection is lost (net/socket.c: do_accept) */
        (void)cl_posix_close(rc);
        return told;
    }
    return rc;
}
