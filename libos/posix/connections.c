/* connect, shutdown, and the names of both ends. */
#include "datagrams.h"
#include "descriptors.h"
#include "family.h"
#include "inherited.h"
#include "kthreads.h"
#include "linux.h"
#include "names.h"
#include "waits.h"

#include <netinet/in.h>

struct opening {
    struct cl_runtime *rt;
    struct cl_tcp_addr from, to;
    struct cl_stream *stream;
    int rc;
};

static void open_now(void *arg)
{
    struct opening *o = arg;
    o->rc = cl_stream_connect(o->rt, &o->from, &o->to, 0, &o->stream);
}

/* It is being opened: how far that is. 0: it is open, as is said once. */
static int progress(struct cl_posix_socket *s)
{
    int rc = cl_stream_error(s->stream);
    if (rc == -EINPROGRESS)
        return rc;
    if (rc == 0)
        cl_store_release(&s->state, CL_POSIX_CONNECTED);
    else if (__atomic_exchange_n(&s->error_taken, 1, __ATOMIC_RELAXED))
        return -ECONNABORTED; /* by SO_ERROR (net/ipv4/af_inet.c: __inet_stream_connect) */
    return rc;
}

/* Its port is its own still, if it was bound to that by number, and a name otherwise. */
static int shut_listener(struct cl_posix_socket *s)
{
    int rc = cl_posix_socket_shut(s);
    if (rc)
        return rc;
    cl_store_relaxed(&s->shut_early, 0);
    if (s->chosen)
        cl_store_release(&s->state, CL_POSIX_FRESH);
    cl_posix_told(s);
    return 0;
}

/* It could not be opened, as has been told: it may be bound and connected anew, with the port that it was given by
 * name. */
static int give_up(struct cl_posix_socket *s, int rc)
{
    if (cl_posix_socket_shut(s))
        return rc; /* no memory: it stays what it is */
    cl_store_relaxed(&s->error_taken, 0);
    cl_store_relaxed(&s->shut_early, 0);
    if (!s->placed)
        cl_store_relaxed(&s->own.ipv4, INADDR_ANY); /* who binds another one reads it (bind.c), as what follows */
    if ((s->chosen || s->found) &&
        !s->rebound) { /* the port is its name still, and no more (net/ipv4/tcp.c: tcp_done) */
        cl_store_relaxed(&s->found, false);
        cl_store_release(&s->state, CL_POSIX_FRESH);
    }
    cl_store_relaxed(&s->rebound, false);
    cl_posix_told(s);
    return rc;
}

static int begin(struct cl_posix_socket *s, const struct cl_tcp_addr *to)
{
    struct opening o = {.from = s->own, .to = *to};
    struct cl_tcp_addr own;
    if (cl_load_relaxed(&s->state) == CL_POSIX_FRESH)
        o.from.port = 0; /* that of a name, perhaps */
    if (to->port == 0)
        return -ECONNREFUSED; /* nobody is there; by Linux its peer says so */
    uint64_t deadline_ns = cl_posix_deadline(cl_load_relaxed(&s->non_blocking) ? 0 : s->send_ns);
    if (!(o.rt = cl_posix_start_until(&s->object, deadline_ns, &o.rc)))
        return o.rc;
    int rc = cl_posix_run(open_now, &o);
    rc = rc ? rc : o.rc;
    if (rc && rc != -EINPROGRESS)
        return rc == -EADDRINUSE ? -EADDRNOTAVAIL : rc; /* that pair of ends (net/ipv4/inet_hashtables.c) */
    cl_store_relaxed(&s->left_error, 0);
    if (cl_stream_ends(o.stream, &own, NULL) == 0) {
        cl_store_relaxed(&s->own.ipv4, own.ipv4);
        s->found = cl_load_relaxed(&s->state) == CL_POSIX_FRESH;
        if (s->found)
            s->own.port = own.port;
    }
    cl_posix_socket_has(s, o.stream, CL_POSIX_OPENS);
    return -EINPROGRESS;
}

/* What is told of a connection afterwards that is given up now: why it was over, or that it was reset; 0: nothing. */
static int left_by(const struct cl_posix_socket *s)
{
    struct cl_tcp_info info;
    int error = -cl_stream_error(s->stream);
    if (error)
        return error == EINPROGRESS ? ECONNRESET : cl_load_relaxed(&s->error_taken) ? 0 : error;
    if (cl_posix_socket_info(s, &info))
        return 0;
    switch (info.state) {
    case CL_POSIX_TCP_ESTABLISHED:
    case CL_POSIX_TCP_FIN_WAIT_1:
    case CL_POSIX_TCP_FIN_WAIT_2:
    case CL_POSIX_TCP_CLOSE_WAIT:
        return ECONNRESET;
    case CL_POSIX_TCP_CLOSING:
    case CL_POSIX_TCP_LAST_ACK:
        return info.unsent ? ECONNRESET : 0;
    default:
        return 0;
    }
}

/* To nobody, by AF_UNSPEC: a connection is reset, a listener is closed, and the socket may be used anew
 * (net/ipv4/tcp.c: tcp_disconnect). */
static int dissolve(struct cl_posix_socket *s)
{
    uint32_t state = cl_load_acquire(&s->state), resets = cl_load_relaxed(&s->resets);
    if (state == CL_POSIX_LISTENS)
        return shut_listener(s);
    if (state <= CL_POSIX_BOUND) {
        cl_store_relaxed(&s->shut_early, 0);
        cl_posix_told(s);
        return 0;
    }
    int left = left_by(s);
    cl_store_relaxed(&s->resets, 1);
    cl_store_relaxed(&s->left_error, (uint32_t)left);
    cl_store_relaxed(&s->sides_shut, 0);
    int rc = give_up(s, 0);
    cl_store_relaxed(&s->resets, resets);
    return rc;
}

static int connect_ours(struct cl_posix_socket *s, const struct cl_tcp_addr *to)
{
    int rc;
    switch (cl_load_acquire(&s->state)) {
    case CL_POSIX_LISTENS:
    case CL_POSIX_CONNECTED:
        return -EISCONN;
    case CL_POSIX_OPENS:
        rc = progress(s);
        if (rc != -EINPROGRESS)
            return rc ? give_up(s, rc) : 0;
        if (cl_load_relaxed(&s->non_blocking))
            return -EALREADY;
        break;
    default:
        if ((rc = begin(s, to)) != -EINPROGRESS || cl_load_relaxed(&s->non_blocking))
            return rc;
    }
    uint64_t deadline_ns = cl_posix_deadline(s->send_ns);
    while ((rc = progress(s)) == -EINPROGRESS)
        if ((rc = cl_posix_wait(s, EPOLLOUT, deadline_ns)))
            return rc == -EAGAIN ? -EINPROGRESS : rc;
    return rc ? give_up(s, rc) : 0;
}

static bool is_ours(const struct cl_tcp_addr *to)
{
    return cl_posix_reaches(to->ipv4) || (cl_posix_loops(to->ipv4) && cl_posix_has_listener(to));
}

int cl_posix_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct cl_tcp_addr to;
    bool is_ipv4;
    if (cl_posix_is_child())
        return -ECHILD;
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s)
        return cl_posix_no_socket(fd);
    if (s->datagram) {
        int done = cl_posix_datagram_connect(fd, s, addr, len);
        cl_posix_socket_put(s);
        return done;
    }
    bool has_family = cl_posix_name_check(addr, len) == 0 && len >= sizeof addr->sa_family;
    if (has_family && addr->sa_family == AF_UNSPEC) {
        int done = dissolve(s);
        cl_posix_socket_put(s);
        return done;
    }
    int rc = cl_posix_name_read(s->domain, addr, len, &to, &is_ipv4);
    bool fresh = cl_load_acquire(&s->state) == CL_POSIX_FRESH;
    bool ours = rc == 0 && is_ipv4 && is_ours(&to);
    if (rc == 0 && is_ipv4)
        cl_posix_trace(fd, "connect", to.ipv4, to.port, ours || !fresh);
    if (fresh && !ours) {
        rc = (int)cl_linux(SYS_connect, fd, addr, len);
        if (rc == 0 || rc == -EINPROGRESS || rc == -EINTR)
            cl_posix_give_to_linux(fd, s);
    } else if (rc == 0) {
        cl_posix_mark(fd, true);
        rc = connect_ours(s, &to);
        if ((rc == 0 || rc == -EINPROGRESS) && (to.ipv4 == cl_posix_address() || cl_posix_loops(to.ipv4)))
            cl_posix_deliver(); /* so connections are accepted in the order in which they were opened */
    }
    cl_posix_socket_put(s);
    return rc;
}

struct shutting {
    struct cl_stream *stream;
    int sides, rc;
};

static void shut_now(void *arg)
{
    struct shutting *s = arg;
    s->rc = cl_stream_shutdown(s->stream, s->sides);
}

static int sides_of(int how)
{
    return how == SHUT_RD ? CL_STREAM_READ : how == SHUT_WR ? CL_STREAM_WRITE : CL_STREAM_READ | CL_STREAM_WRITE;
}

static int shut_early(struct cl_posix_socket *s, int how)
{
    __atomic_fetch_or(&s->shut_early, (uint32_t)sides_of(how), __ATOMIC_RELAXED);
    cl_posix_told(s);
    return -ENOTCONN;
}

/* Reading that is shut is over when nothing is left to be read: no matter of the stream (net/ipv4/tcp.c:
 * tcp_recvmsg). */
static int shut_reading(struct cl_posix_socket *s)
{
    __atomic_fetch_or(&s->shut_early, CL_STREAM_READ, __ATOMIC_RELAXED);
    cl_posix_told(s);
    return 0;
}

static int shut_writing(struct cl_posix_socket *s)
{
    struct shutting sh = {s->stream, CL_STREAM_WRITE, 0};
    int rc;
    /* Somebody works on it: finish that. */
    while ((rc = cl_posix_run(shut_now, &sh)) == 0 && sh.rc == -EDEADLK)
        cl_posix_turn_all();
    rc = rc ? rc : sh.rc;
    if (rc == 0)
        __atomic_fetch_or(&s->sides_shut, (uint32_t)sh.sides, __ATOMIC_RELAXED);
    return rc;
}

static int shut_connection(struct cl_posix_socket *s, int how)
{
    int sides = sides_of(how), rc = 0;
    if (cl_posix_socket_is_over(s))
        return -ENOTCONN;
    if (cl_stream_error(s->stream) == -EINPROGRESS)
        return dissolve(s); /* net/ipv4/af_inet.c: inet_shutdown */
    if (sides & CL_STREAM_WRITE)
        rc = shut_writing(s);
    return rc == 0 && sides & CL_STREAM_READ ? shut_reading(s) : rc;
}

int cl_posix_shutdown(int fd, int how)
{
    if (cl_posix_is_child())
        return -ECHILD;
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s)
        return cl_posix_no_socket(fd);
    uint32_t state = cl_load_acquire(&s->state);
    int rc = how < SHUT_RD || how > SHUT_RDWR ? -EINVAL
             : s->datagram                    ? cl_posix_datagram_shutdown(s, how)
             : state <= CL_POSIX_BOUND        ? shut_early(s, how)
             : state > CL_POSIX_LISTENS       ? shut_connection(s, how)
             : how != SHUT_WR                 ? shut_listener(s)
                                              : 0;
    cl_posix_socket_put(s);
    return rc;
}

int cl_posix_name(int fd, struct sockaddr *addr, socklen_t *len, bool peer)
{
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s)
        return cl_posix_no_socket(fd);
    struct cl_tcp_addr a = s->own, other;
    uint32_t state = cl_load_acquire(&s->state);
    int rc = 0;
    if (peer && s->datagram) {
        rc = cl_posix_datagram_peer(s, &a);
    } else if (peer) {
        uint32_t ready = cl_posix_socket_ready(s);
        bool open = state == CL_POSIX_CONNECTED || (state == CL_POSIX_OPENS && cl_stream_error(s->stream) == 0);
        if (!open || ready & CL_POLL_ERROR || cl_posix_socket_is_over(s) || cl_stream_ends(s->stream, NULL, &other))
            rc = -ENOTCONN;
        else
            a = other;
    }
    if (rc == 0)
        rc = cl_posix_name_write(s->domain, &a, addr, len);
    cl_posix_socket_put(s);
    return rc;
}
