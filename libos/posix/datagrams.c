/* See datagrams.h. Here: opened, connected, shut; messages.c has what is sent and received. */
#include "datagrams.h"
#include "descriptors.h"
#include "family.h"
#include "inherited.h"
#include "kthreads.h"
#include "linux.h"
#include "names.h"
#include "waits.h"

#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>

int cl_posix_datagram_bytes(const struct cl_posix_socket *s)
{
    struct cl_udp_socket *udp = cl_load_acquire(&s->udp);
    int64_t n = udp ? cl_udp_peek(udp, NULL, 0, NULL) : 0;
    return (int)cl_max(n, (int64_t)0);
}

int cl_posix_datagram_error(struct cl_posix_socket *s)
{
    struct cl_udp_socket *udp = cl_load_acquire(&s->udp);
    return udp ? cl_udp_take_error(udp) : 0;
}

int cl_posix_datagram_ours(struct cl_posix_socket *s, bool waits)
{
    struct cl_runtime *rt;
    int rc = 0;
    if (cl_load_acquire(&s->udp))
        return 0;
    if (cl_load_acquire(&s->state) == CL_POSIX_FRESH)
        rc = cl_posix_bind_ours(s, &(struct cl_tcp_addr){.ipv4 = s->own.ipv4});
    if (rc == 0 && (rt = cl_posix_start_until(&s->object, cl_posix_deadline(waits ? -1 : 0), &rc)))
        rc = cl_posix_datagram_open(s, rt);
    return rc;
}

void cl_posix_datagram_to_linux(int fd, struct cl_posix_socket *s)
{
    struct sockaddr_in6 name;
    socklen_t len = sizeof name;
    if (cl_load_acquire(&s->state) == CL_POSIX_BOUND) {
        cl_posix_say_once(
            "a datagram socket turns to an address that is not the dataplane's: it is Linux' from now on");
        cl_posix_name_write(s->domain, &(struct cl_tcp_addr){0, s->own.port, 0}, (struct sockaddr *)&name, &len);
        (void)cl_linux(SYS_bind, fd, &name, len); /* another one has the port: then by another one */
    }
    cl_posix_give_to_linux(fd, s);
}

static void close_now(void *arg)
{
    (void)cl_udp_close(arg);
}

/* One that nobody has named is given back, unless something waits that came by it, or another thread is in a call on
 * the socket (net/ipv4/udp.c: __udp_disconnect). */
static void give_port_back(struct cl_posix_socket *s)
{
    struct cl_udp_socket *udp = cl_load_acquire(&s->udp);
    if (!s->chosen || (udp && cl_udp_peek(udp, NULL, 0, NULL) >= 0))
        return;
    cl_store_relaxed(&s->udp, NULL);
    cl_fence_seq_cst(); /* who comes from now on finds none */
    if (cl_load_relaxed(&s->object.refs) != cl_load_relaxed(&s->object.fds) + 1) {
        cl_store_release(&s->udp, udp);
        return;
    }
    if (udp)
        (void)cl_posix_run(close_now, udp);
    s->own.port = 0;
    cl_store_release(&s->state, CL_POSIX_FRESH);
}

static int dissolve(int fd, struct cl_posix_socket *s)
{
    if (cl_load_acquire(&s->state) == CL_POSIX_FRESH)
        return (int)cl_linux(SYS_connect, fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
    int rc = s->udp ? cl_udp_connect(s->udp, NULL) : 0;
    cl_spin_lock(&s->lock);
    s->peer = (struct cl_tcp_addr){0};
    if (s->any)
        s->own.ipv4 = INADDR_ANY;
    s->any = false;
    cl_spin_unlock(&s->lock);
    give_port_back(s);
    return rc;
}

static int connect_ours(struct cl_posix_socket *s, const struct cl_tcp_addr *to)
{
    struct cl_udp_addr peer = {to->ipv4, to->port, 0};
    struct cl_runtime_info info;
    int rc = cl_posix_datagram_ours(s, true);
    if (rc || (rc = cl_udp_connect(s->udp, &peer)))
        return rc;
    cl_runtime_info(cl_posix_start(&rc), &info);
    cl_spin_lock(&s->lock);
    s->peer = *to;
    if (s->own.ipv4 == INADDR_ANY) {
        s->any = true;
        s->own.ipv4 = info.ipv4;
    }
    cl_spin_unlock(&s->lock);
    return 0;
}

int cl_posix_datagram_connect(int fd, struct cl_posix_socket *s, const struct sockaddr *addr, socklen_t len)
{
    struct cl_tcp_addr to;
    bool is_ipv4;
    int rc = cl_posix_name_check(addr, len);
    if (rc || len < sizeof addr->sa_family)
        return rc ? rc : -EINVAL;
    if (cl_load_acquire(&s->udp)) /* whom it takes datagrams from changes: what was sent to ourselves comes first */
        cl_posix_turn_all();
    if (addr->sa_family == AF_UNSPEC)
        return dissolve(fd, s);
    rc = cl_posix_name_read(s->domain, addr, len, &to, &is_ipv4);
    bool ours = rc == 0 && is_ipv4 && cl_posix_reaches(to.ipv4);
    if (rc == 0 && is_ipv4)
        cl_posix_trace(fd, "connect", to.ipv4, to.port, ours);
    if (ours) {
        cl_posix_mark(fd, true);
        return connect_ours(s, &to);
    }
    if (rc && cl_load_acquire(&s->state) != CL_POSIX_FRESH)
        return rc;
    rc = (int)cl_linux(SYS_connect, fd, addr, len);
    if (rc)
        return rc;
    if (cl_load_acquire(&s->state) == CL_POSIX_BOUND) { /* once more, by the port that it has */
        (void)cl_linux(SYS_connect, fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
        cl_posix_datagram_to_linux(fd, s);
        return (int)cl_linux(SYS_connect, fd, addr, len);
    }
    cl_posix_give_to_linux(fd, s);
    return 0;
}

int cl_posix_datagram_shutdown(struct cl_posix_socket *s, int how)
{
    uint32_t sides = how == SHUT_RD ? CL_STREAM_READ : how == SHUT_WR ? CL_STREAM_WRITE : 3;
    cl_spin_lock(&s->lock);
    bool connected = s->peer.port;
    cl_spin_unlock(&s->lock);
    __atomic_fetch_or(&s->sides_shut, sides, __ATOMIC_RELAXED);
    cl_posix_told(s);
    return connected ? 0 : -ENOTCONN; /* and shut it is, all the same (net/ipv4/af_inet.c) */
}

int cl_posix_datagram_peer(struct cl_posix_socket *s, struct cl_tcp_addr *out)
{
    cl_spin_lock(&s->lock);
    *out = s->peer;
    cl_spin_unlock(&s->lock);
    return out->port ? 0 : -ENOTCONN;
}
