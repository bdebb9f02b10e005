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
    int rc = cl_posix_socket_error(s);
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
    cl_store_relaxed(&s->stuck, 0);
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
    cl_store_relaxed(&s->within, cl_posix_is_own(to->ipv4));
    cl_store_relaxed(&s->stuck, 0); /* a shutdown may have been about the connection before */
    cl_posix_socket_has(s, o.stream, CL_POSIX_OPENS);
    cl_posix_socket_sent(s);
    return -EINPROGRESS;
}

/* What is told of a connection afterwards that is given up now: why it was over, or that it was reset; 0: nothing. */
static int left_by(const struct cl_posix_socket *s)
{
    struct cl_tcp_info info;
    int error = -cl_posix_socket_error(s);
    if (error == ENOTCONN) /* another thread gives it up, and has said what is told */
        return (int)cl_load_relaxed(&s->left_error);
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
        if (cl_load_relaxed(&s->stuck))
            return -EINVAL;
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
 * tcp_recvmsg), while writing is not shut. */
static void shut_reading(struct cl_posix_socket *s)
{
    __atomic_fetch_or(&s->shut_early, CL_STREAM_READ, __ATOMIC_RELAXED);
    cl_posix_told(s);
}

/* With both sides: what comes resets the connection (net/ipv4/tcp_input.c: tcp_rcv_state_process). */
static int shut_stream(struct cl_posix_socket *s)
{
    bool both = cl_load_relaxed(&s->shut_early) & CL_STREAM_READ;
    struct shutting sh = {cl_load_acquire(&s->stream), both ? CL_STREAM_RESET : CL_STREAM_WRITE, 0};
    int rc;
    if (!sh.stream) /* another thread has given it up */
        return -ENOTCONN;
    /* Somebody works on it: finish that. */
    while ((rc = cl_posix_run(shut_now, &sh)) == 0 && sh.rc == -EDEADLK)
        cl_posix_turn_all();
    rc = rc ? rc : sh.rc;
    if (rc == 0) {
        __atomic_fetch_or(&s->sides_shut, CL_STREAM_WRITE, __ATOMIC_RELAXED);
        cl_posix_told(s); /* the stream has not known of it */
        cl_posix_socket_sent(s);
    }
    return rc;
}

static int shut_connection(struct cl_posix_socket *s, int how)
{
    uint32_t sides = (uint32_t)sides_of(how);
    bool opens = cl_load_acquire(&s->state) == CL_POSIX_OPENS;
    if (cl_posix_socket_is_over(s)) {
        if (opens)
            cl_store_relaxed(&s->stuck, 1);
        cl_posix_told(s); /* who waits is woken all the same */
        return -ENOTCONN;
    }
    int error = cl_posix_socket_error(s);
    if (error == -ENOTCONN) /* another thread has given it up */
        return error;
    if (error == -EINPROGRESS)
        return dissolve(s); /* net/ipv4/af_inet.c: inet_shutdown */
    /* The same: that it is open is not told by a connect any more. Unless one has given it up meanwhile. */
    uint32_t was = CL_POSIX_OPENS;
    if (opens &&
        !__atomic_compare_exchange_n(&s->state, &was, CL_POSIX_CONNECTED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
        was != CL_POSIX_CONNECTED)
        return -ENOTCONN;
    if (sides & CL_STREAM_READ)
        shut_reading(s);
    return (sides | cl_load_relaxed(&s->sides_shut)) & CL_STREAM_WRITE ? shut_stream(s) : 0;
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
        struct cl_stream *stream = cl_load_acquire(&s->stream); /* NULL: another thread has given it up */
        uint32_t ready = cl_posix_socket_ready(s);
        bool open = state == CL_POSIX_CONNECTED || (state == CL_POSIX_OPENS && cl_posix_socket_error(s) == 0);
        if (!open || !stream || ready & CL_POLL_ERROR || cl_posix_socket_is_over(s) ||
            cl_stream_ends(stream, NULL, &other))
            rc = -ENOTCONN;
        else
            a = other;
    }
    if (rc == 0)
        rc = cl_posix_name_write(s->domain, &a, addr, len);
    cl_posix_socket_put(s);
    return rc;
}
