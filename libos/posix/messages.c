/* What datagram sockets send and receive. */
#include "datagrams.h"
#include "kthreads.h"
#include "linux.h"
#include "memory.h"
#include "names.h"
#include "waits.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define DATAGRAM_BYTES 16384 /* more than the MTU of any interface of ours */
#define BUSY_MOST 256        /* times that a datagram to ourselves finds as many waiting as may */

struct reception {
    struct cl_udp_socket *udp;
    void *data;
    int64_t room, rc; /* rc: the datagram's length */
    struct cl_udp_origin origin;
};

static void receive_now(void *arg)
{
    struct reception *r = arg;
    r->rc = cl_udp_receive(r->udp, r->data, r->room, &r->origin);
}

static int64_t peek(struct reception *r)
{
    int error = cl_udp_take_error(r->udp);
    return error ? -error : cl_udp_peek(r->udp, r->data, r->room, &r->origin);
}

/* What has come. -EAGAIN: nothing has. */
static int64_t receive_one(const struct cl_posix_socket *s, struct reception *r, bool stays)
{
    r->udp = cl_load_acquire(&s->udp);
    for (bool again = false;; again = true) {
        if (r->udp && cl_udp_socket_ready(r->udp)) {
            if (stays)
                return peek(r);
            int rc = cl_posix_run(receive_now, r);
            if (rc || r->rc != -EAGAIN)
                return rc == -EDEADLK ? -EAGAIN : rc ? rc : r->rc;
        }
        if (again)
            return -EAGAIN;
        (void)cl_posix_turn(false);
    }
}

/* Between one piece and those of the caller. */
static void spread(const struct msghdr *m, char *data, int64_t len, bool out)
{
    for (size_t i = 0; i < m->msg_iovlen && len > 0; i++) {
        int64_t part = cl_min(len, (int64_t)m->msg_iov[i].iov_len);
        if (out)
            memcpy(m->msg_iov[i].iov_base, data, (size_t)part);
        else
            memcpy(data, m->msg_iov[i].iov_base, (size_t)part);
        data += part;
        len -= part;
    }
}

static bool may_wait(const struct cl_posix_socket *s, int flags)
{
    return !cl_load_relaxed(&s->non_blocking) && !(flags & MSG_DONTWAIT);
}

static int64_t wait_for_one(struct cl_posix_socket *s, struct reception *r, int flags)
{
    bool waits = may_wait(s, flags);
    uint64_t deadline_ns = waits ? cl_posix_deadline(s->receive_ns) : 0;
    for (;;) {
        int64_t rc = receive_one(s, r, flags & MSG_PEEK);
        if (rc != -EAGAIN || !waits)
            return rc;
        if (cl_load_relaxed(&s->sides_shut) & CL_STREAM_READ)
            return -ESHUTDOWN;
        if ((rc = cl_posix_wait(s, EPOLLIN, deadline_ns)))
            return rc;
    }
}

/* One piece for all of the caller's: his own if he has one, else DATAGRAM_BYTES on the heap, as of the size of his
 * stack nothing is known. NULL: there is no memory. */
static char *in_one_piece(const struct msghdr *m, bool in_place)
{
    return in_place ? m->msg_iov[0].iov_base : malloc(DATAGRAM_BYTES);
}

static int64_t receive_into(struct cl_posix_socket *s, struct msghdr *m, int flags, char *data, bool in_place)
{
    int64_t room = cl_linux_bytes(m->msg_iov, (int64_t)m->msg_iovlen);
    struct reception r = {.data = data, .room = in_place ? room : cl_min(room, (int64_t)DATAGRAM_BYTES)};
    int rc = 0;
    if (cl_load_acquire(&s->state) == CL_POSIX_BOUND && (rc = cl_posix_datagram_ours(s, may_wait(s, flags))))
        return rc;
    int64_t len = wait_for_one(s, &r, flags);
    if (len == -ESHUTDOWN) {
        if (m->msg_name)
            m->msg_namelen = 0;
        m->msg_flags = 0;
        return 0;
    }
    if (len < 0)
        return len;
    int64_t copied = cl_min(len, room);
    struct cl_tcp_addr from = {r.origin.from.ipv4, r.origin.from.port, 0};
    if (!in_place && cl_posix_pieces_writable(m->msg_iov, (int64_t)m->msg_iovlen, copied) < copied)
        return -EFAULT; /* it is gone (net/ipv4/udp.c: udp_recvmsg) */
    if (!in_place)
        spread(m, data, copied, true);
    if (m->msg_name && (rc = cl_posix_name_write(s->domain, &from, m->msg_name, &m->msg_namelen)))
        return rc;
    m->msg_flags = len > room ? MSG_TRUNC : 0;
    cl_posix_control_tell(s, m, &r.origin);
    return flags & MSG_TRUNC ? len : copied;
}

static bool can_take_any(const struct iovec *piece)
{
    return cl_posix_can_write(piece->iov_base, cl_min(piece->iov_len, (size_t)DATAGRAM_BYTES));
}

int64_t cl_posix_datagram_receive(struct cl_posix_socket *s, struct msghdr *m, int flags)
{
    bool in_place = m->msg_iovlen == 1 && can_take_any(&m->msg_iov[0]);
    char *data = in_one_piece(m, in_place);
    int64_t rc = data || in_place ? receive_into(s, m, flags, data, in_place) : -ENOMEM;
    if (!in_place)
        free(data);
    return rc;
}

struct sending {
    struct cl_udp_socket *udp;
    const void *data;
    int64_t len, rc;
    struct cl_udp_addr to;
};

static void send_now(void *arg)
{
    struct sending *d = arg;
    d->rc = d->to.port ? cl_udp_sendto(d->udp, d->data, d->len, &d->to) : cl_udp_send(d->udp, d->data, d->len);
}

static int64_t send_one(struct cl_posix_socket *s, struct sending *d)
{
    d->udp = s->udp;
    for (unsigned i = 0;; i++) {
        int rc = cl_posix_run_sender(send_now, d, d->udp);
        if (rc)
            return rc == -EDEADLK ? -EAGAIN : rc;
        if (d->rc == -EMSGSIZE)
            cl_posix_say_once("a datagram longer than the interface's MTU is not sent: there is no fragmentation here");
        if (d->rc != -ENOBUFS || i == BUSY_MOST)
            return d->rc;
        cl_posix_turn_all(); /* to ourselves as many wait as may */
    }
}

static bool is_to_us(struct cl_posix_socket *s, const struct cl_tcp_addr *to)
{
    struct cl_tcp_addr peer = *to;
    return (to->port || cl_posix_datagram_peer(s, &peer) == 0) && peer.ipv4 == cl_posix_address();
}

static int64_t send_whole(struct cl_posix_socket *s, const struct msghdr *m, int64_t len, const struct cl_tcp_addr *to)
{
    bool in_place = m->msg_iovlen == 1;
    if (!in_place && len > DATAGRAM_BYTES)
        return -EMSGSIZE;
    if (cl_posix_pieces_readable(m->msg_iov, (int64_t)m->msg_iovlen, len) < len) {
        int error = cl_posix_datagram_error(s); /* of one before it that was refused: first */
        return error ? -error : -EFAULT;
    }
    char *data = in_one_piece(m, in_place);
    if (!data && !in_place)
        return -ENOMEM;
    struct sending d = {.data = data, .len = len, .to = {to->ipv4, to->port, 0}};
    if (!in_place)
        spread(m, data, len, false);
    int64_t rc = send_one(s, &d);
    if (rc >= 0 && is_to_us(s, to))
        cl_posix_deliver();
    if (!in_place)
        free(data);
    return rc;
}

/* To whom, if it is said. `ours` false: nobody whom the dataplane reaches. */
static int read_name(const struct cl_posix_socket *s, const struct msghdr *m, struct cl_tcp_addr *to, bool *ours)
{
    const struct sockaddr *name = m->msg_name;
    socklen_t len = cl_min(m->msg_namelen, (socklen_t)sizeof(struct sockaddr_storage));
    *ours = true;
    if (!name || !len)
        return 0;
    bool plain = len >= sizeof(struct sockaddr_in) && name->sa_family == AF_INET;
    int rc = cl_posix_name_read(plain ? AF_INET : s->domain, name, len, to, ours);
    if (rc)
        return rc;
    *ours = *ours && cl_posix_reaches(to->ipv4);
    return to->port ? 0 : -EINVAL;
}

static int64_t send_by_linux(int fd, struct cl_posix_socket *s, const struct msghdr *m, int flags,
                             const struct cl_tcp_addr *to)
{
    if (s->chosen || cl_load_acquire(&s->state) == CL_POSIX_FRESH) {
        cl_posix_trace(fd, "sendto", to->ipv4, to->port, false);
        cl_posix_datagram_to_linux(fd, s);
    } else
        cl_posix_say_once(
            "a datagram to an address that is not the dataplane's goes by Linux: no answer to it is received");
    return cl_linux(SYS_sendmsg, fd, m, flags);
}

/* It fails, and has a port from now on all the same (net/ipv4/af_inet.c: inet_send_prepare). */
static void have_port(struct cl_posix_socket *s)
{
    if (cl_load_acquire(&s->state) == CL_POSIX_FRESH)
        (void)cl_posix_bind_ours(s, &(struct cl_tcp_addr){.ipv4 = s->own.ipv4});
}

int64_t cl_posix_datagram_send(int fd, struct cl_posix_socket *s, const struct msghdr *m, int flags)
{
    struct cl_tcp_addr to = {0}, peer;
    bool ours;
    int64_t len = cl_linux_bytes(m->msg_iov, (int64_t)m->msg_iovlen);
    int64_t rc = len > UINT16_MAX ? -EMSGSIZE : flags & MSG_OOB ? -EOPNOTSUPP : read_name(s, m, &to, &ours);
    if (rc == 0 && ours && !to.port && cl_posix_datagram_peer(s, &peer))
        rc = -EDESTADDRREQ;
    if (rc) {
        have_port(s);
        return rc;
    }
    if (!ours)
        return send_by_linux(fd, s, m, flags, &to);
    if (cl_load_relaxed(&s->sides_shut) & CL_STREAM_WRITE) {
        have_port(s);
        int error = cl_posix_datagram_error(s);
        return error ? -error : -EPIPE; /* net/core/sock.c: sock_alloc_send_pskb */
    }
    if ((rc = cl_posix_control_check(m)) || (rc = cl_posix_datagram_ours(s, may_wait(s, flags))))
        return rc;
    return send_whole(s, m, len, &to);
}
