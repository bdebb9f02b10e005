/* Options of sockets, fcntl and ioctl. Linux checks each option on the placeholder, and keeps it; what has a meaning
 * here is set here, too. Of an option that has none one sentence is said. */
#include "datagrams.h"
#include "inherited.h"
#include "kthreads.h"
#include "linux.h"
#include "memory.h"
#include "waits.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#define INFO_BYTES 512 /* more than TCP_INFO has */

struct question {
    struct cl_stream *stream;
    int option;
    int64_t value, rc;
    const char *name;
};

static void set_now(void *arg)
{
    struct question *q = arg;
    q->rc = q->name ? cl_stream_set_congestion(q->stream, q->name) : cl_stream_set(q->stream, q->option, q->value);
}

/* Whoever works on the connection is helped to get done. */
static int64_t ask(struct question *q)
{
    int rc;
    while ((rc = cl_posix_run(set_now, q)) == 0 && q->rc == -EDEADLK)
        cl_posix_turn_all();
    return rc ? rc : q->rc;
}

static int set_option(struct cl_posix_socket *s, int option, int64_t value)
{
    struct question q = {.stream = cl_load_acquire(&s->stream), .option = option, .value = value};
    s->options |= 1u << option;
    s->option[option] = (int32_t)value;
    if (q.stream && ask(&q) == -ENOBUFS) /* of a connection that is over: nothing */
        cl_posix_say_once("times of keep-alive (TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT) have no effect on a socket: "
                          "others have 32 different ones; use one set of times");
    cl_posix_socket_sent(s); /* what an option has let out */
    return 0;
}

void cl_posix_no_more(int fd)
{
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (s && s->stream) /* corked it stays so */
        (void)set_option(s, CL_STREAM_CORK, s->option[CL_STREAM_CORK]);
    if (s)
        cl_posix_socket_put(s);
}

static int set_buffer(struct cl_posix_socket *s, int option, int64_t bytes)
{
    /* As Linux, which doubles it for what it keeps beside, and takes what is out of its limits for the nearest. */
    int64_t most = CL_STREAM_BUFFER_MOST / 2, least = CL_STREAM_BUFFER_LEAST / 2;
    return set_option(s, option, 2 * cl_max(least, cl_min(bytes, most)));
}

static int64_t time_of(const void *value)
{
    struct timeval t;
    memcpy(&t, value, sizeof t);
    return t.tv_sec > 0 || (t.tv_sec == 0 && t.tv_usec > 0) ? cl_posix_ns(t.tv_sec, (int64_t)t.tv_usec * 1000) : -1;
}

/* What Linux has taken. */
static int set_socket_option(struct cl_posix_socket *s, int name, const void *value)
{
    int number;
    struct linger l;
    memcpy(&number, value, sizeof number);
    switch (name) {
    case SO_KEEPALIVE:
        return set_option(s, CL_STREAM_KEEP_ALIVE, number != 0);
    case SO_SNDBUF:
        return set_buffer(s, CL_STREAM_SEND_BUFFER, number);
    case SO_RCVBUF:
        return set_buffer(s, CL_STREAM_RECEIVE_BUFFER, number);
    case SO_REUSEPORT:
        cl_store_relaxed(&s->reuse_port, number != 0); /* others read it as they bind */
        return 0;
    case SO_RCVTIMEO:
        s->receive_ns = time_of(value);
        return 0;
    case SO_SNDTIMEO:
        s->send_ns = time_of(value);
        return 0;
    case SO_LINGER:
        memcpy(&l, value, sizeof l);
        cl_store_relaxed(&s->resets, l.l_onoff && l.l_linger == 0);
        s->lingers = l.l_onoff;
        s->linger_ns = l.l_onoff ? (int64_t)l.l_linger * 1000000000 : 0;
        return 0;
    case SO_REUSEADDR:
        cl_store_relaxed(&s->reuse_address, number != 0);
        return 0;
    case SO_RCVLOWAT:
        if (number > 1)
            cl_posix_say_once(
                "SO_RCVLOWAT has no effect on sockets of the dataplane: one is ready from the first byte on");
        return 0;
    case SO_BROADCAST:
    case SO_PRIORITY:
    case SO_OOBINLINE:
    case SO_ZEROCOPY: /* off */
        return 0;
    default:
        cl_posix_say_once("an option of SOL_SOCKET has no effect on sockets of the dataplane");
        return 0;
    }
}

static int set_tcp_option(struct cl_posix_socket *s, int name, const void *value)
{
    int number;
    memcpy(&number, value, sizeof number);
    switch (name) {
    case TCP_NODELAY:
        return set_option(s, CL_STREAM_NO_DELAY, number != 0);
    case TCP_USER_TIMEOUT:
        return set_option(s, CL_STREAM_USER_TIMEOUT_MS, number);
    case TCP_KEEPIDLE:
        return set_option(s, CL_STREAM_KEEP_IDLE_S, number);
    case TCP_KEEPINTVL:
        return set_option(s, CL_STREAM_KEEP_INTERVAL_S, number);
    case TCP_KEEPCNT:
        return set_option(s, CL_STREAM_KEEP_PROBES, number);
    case TCP_CORK:
        return set_option(s, CL_STREAM_CORK, number != 0);
    case TCP_QUICKACK:
    case TCP_DEFER_ACCEPT:
        return 0; /* they change when segments leave, not what is read */
    default:
        if (number) /* 0: off, or as it is */
            cl_posix_say_once("an option of TCP has no effect on sockets of the dataplane");
        return 0;
    }
}

/* Without a stream it waits for one (socket.c). */
static int set_congestion(struct cl_posix_socket *s, const char *name, socklen_t len)
{
    char text[sizeof s->congestion] = "";
    struct question q = {.stream = cl_load_acquire(&s->stream), .name = s->congestion};
    memcpy(text, name, cl_posix_readable(name, cl_min((size_t)len, sizeof text - 1))); /* it ends before, perhaps */
    if (strcmp(text, "reno") == 0)
        strcpy(text, "newreno");
    if (strcmp(text, "newreno") != 0 && strcmp(text, "cubic") != 0 && strcmp(text, "dctcp") != 0)
        cl_posix_say_once("TCP_CONGESTION has no effect on sockets of the dataplane but for reno, cubic and dctcp");
    memcpy(s->congestion, text, sizeof text);
    return q.stream ? (int)ask(&q) : 0;
}

/* Of IPv4, and of IPv6, whose addresses are those of IPv4 in disguise here. */
static void set_ip_option(int fd, struct cl_posix_socket *s, int level, int name)
{
    if (level == IPPROTO_IPV6) {
        bool joins = name == IPV6_JOIN_GROUP || name == MCAST_JOIN_GROUP || name == MCAST_JOIN_SOURCE_GROUP;
        if (joins && s->datagram)
            cl_posix_datagram_to_linux(fd, s);
        return;
    }
    switch (name) {
    case IP_ADD_MEMBERSHIP:
    case IP_ADD_SOURCE_MEMBERSHIP:
    case MCAST_JOIN_GROUP:
    case MCAST_JOIN_SOURCE_GROUP:
        if (s->datagram)
            cl_posix_datagram_to_linux(fd, s);
        break;
    case IP_PKTINFO:
    case IP_RECVTTL:
    case IP_RECVTOS:
    case IP_RECVORIGDSTADDR: /* control.c */
    case IP_MTU_DISCOVER:    /* nothing is fragmented */
    case IP_BIND_ADDRESS_NO_PORT:
    case IP_FREEBIND:
    case IP_MULTICAST_TTL:
        s->first_ttl = 0;
        break;
    case IP_MULTICAST_IF:
    case IP_MULTICAST_LOOP:
    case IP_MULTICAST_ALL: /* of groups, which are Linux' */
        break;
    default:
        cl_posix_say_once("an option of IP (IP_TOS, IP_TTL, IP_OPTIONS, IP_TRANSPARENT, IP_RECVERR, ...) has no effect "
                          "on sockets of the dataplane");
        break;
    }
}

/* Options of a connection that take any number, and that servers change for each answer: Linux is not asked, and does
 * not keep them. */
static bool keeps_alone(const struct cl_posix_socket *s, int level, int name)
{
    return level == IPPROTO_TCP && (name == TCP_NODELAY || name == TCP_CORK) && !s->datagram &&
           cl_load_acquire(&s->state) == CL_POSIX_CONNECTED;
}

/* As Linux' TCP_CLOSE. */
static bool is_closed(struct cl_posix_socket *s)
{
    return cl_load_acquire(&s->state) <= CL_POSIX_BOUND || cl_posix_socket_is_over(s);
}

/* What Linux takes of a socket in some states alone (net/ipv4/tcp.c: do_tcp_setsockopt): its placeholder has no port,
 * listens nowhere and is never connected. -errno; 0: that may say. */
static int not_now(struct cl_posix_socket *s, int name, int number)
{
    bool listens = cl_load_acquire(&s->state) == CL_POSIX_LISTENS;
    switch (name) {
    case TCP_FASTOPEN:
    case TCP_FASTOPEN_NO_COOKIE:
        return listens || is_closed(s) ? 0 : -EINVAL;
    case TCP_FASTOPEN_CONNECT:
        return is_closed(s) ? 0 : -EINVAL;
    case TCP_WINDOW_CLAMP:
        return number || is_closed(s) ? 0 : -EINVAL;
    case TCP_QUEUE_SEQ:
        return is_closed(s) ? 0 : -EPERM;
    case TCP_REPAIR:
        return listens ? -EPERM : 0;
    default:
        return 0;
    }
}

static int is_wrong_now(struct cl_posix_socket *s, int level, int name, int number)
{
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
        return s->domain == AF_INET6 && cl_load_acquire(&s->state) != CL_POSIX_FRESH ? -EINVAL : 0;
    return level == IPPROTO_TCP && !s->datagram ? not_now(s, name, number) : 0;
}

/* What a program would rely on, and this stack does not do. -errno; 0: it is none of that. */
static int refuse_option(int level, int name, int number)
{
    if (level == IPPROTO_UDP && name == UDP_SEGMENT)
        return (int)cl_posix_refuse(
            "UDP_SEGMENT is not to be had of sockets of the dataplane: send each datagram by itself", ENOPROTOOPT);
    if (level == IPPROTO_UDP && name == UDP_CORK && number)
        return (int)cl_posix_refuse(
            "UDP_CORK is not to be had of sockets of the dataplane: make one datagram of several pieces by sendmsg",
            ENOPROTOOPT);
    if (level == SOL_SOCKET && name == SO_ZEROCOPY && number)
        return (int)cl_posix_refuse(
            "SO_ZEROCOPY is not to be had of sockets of the dataplane: send without MSG_ZEROCOPY", EOPNOTSUPP);
    if (level == IPPROTO_TCP && name == TCP_REPAIR && number == TCP_REPAIR_ON)
        return (int)cl_posix_refuse(
            "TCP_REPAIR is not to be had of sockets of the dataplane: connections of theirs are not moved", EPERM);
    if (level == IPPROTO_TCP && (name == TCP_MD5SIG || name == TCP_MD5SIG_EXT))
        return (int)cl_posix_refuse(
            "TCP_MD5SIG is not to be had of sockets of the dataplane: have the program listen at Linux' (--listen)",
            ENOPROTOOPT);
    return 0;
}

int cl_posix_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    int number = 0;
    if (cl_posix_is_child())
        return -ECHILD;
    bool is_number = len >= sizeof number && len <= INT_MAX && cl_posix_can_read(value, sizeof number);
    if (is_number)
        memcpy(&number, value, sizeof number);
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    int rc = s && is_number ? is_wrong_now(s, level, name, number) : 0;
    if (rc == 0)
        rc = refuse_option(level, name, number);
    if (rc == 0 && !(s && is_number && keeps_alone(s, level, name)))
        rc = (int)cl_linux(SYS_setsockopt, fd, level, name, value, len);
    if (rc || !s) {
        if (s)
            cl_posix_socket_put(s);
        return rc;
    }
    if (!s->datagram && cl_load_acquire(&s->state) <= CL_POSIX_LISTENS &&
        cl_posix_begins_with(s, level, name, value, len))
        cl_posix_say_once("an option of a listener is not told of its connections: there is no memory");
    if (level == IPPROTO_TCP && name == TCP_CONGESTION)
        rc = set_congestion(s, value, len);
    else if (level == SOL_SOCKET)
        rc = set_socket_option(s, name, len >= sizeof number ? value : &number);
    else if (level == IPPROTO_TCP)
        rc = set_tcp_option(s, name, len >= sizeof number ? value : &number);
    else if (level == IPPROTO_IP || level == IPPROTO_IPV6)
        set_ip_option(fd, s, level, name);
    if (s->datagram)
        cl_posix_control_set(fd, s, level, name);
    cl_posix_socket_put(s);
    return rc;
}

/* As much of it as the caller has room for. */
static int give(const void *value, socklen_t bytes, void *out, socklen_t *len)
{
    socklen_t room = cl_min(*len, bytes);
    if (!cl_posix_can_write(out, room) || !cl_posix_can_write(len, sizeof *len))
        return -EFAULT;
    *len = room;
    memcpy(out, value, room);
    return 0;
}

/* Why it is over, once; of one that is being opened that is how it went. */
static int take_error(struct cl_posix_socket *s)
{
    if (s->datagram)
        return cl_posix_datagram_error(s);
    int left = cl_posix_socket_left(s);
    if (left)
        return left;
    struct cl_stream *stream = cl_load_acquire(&s->stream);
    int error = stream ? cl_stream_error(stream) : 0;
    if (error == 0 || error == -EINPROGRESS)
        return 0;
    return __atomic_exchange_n(&s->error_taken, 1, __ATOMIC_RELAXED) ? 0 : -error;
}

/* The longest segment that is sent by a connection, where Linux tells that of the placeholder otherwise. */
static bool segment_of(struct cl_posix_socket *s, int *bytes)
{
    struct cl_tcp_info info;
    if (s->datagram || cl_load_acquire(&s->state) <= CL_POSIX_LISTENS || cl_posix_socket_info(s, &info))
        return false;
    *bytes = (int)info.snd_mss;
    return true;
}

/* The longest packet to its peer. */
static bool packet_of(struct cl_posix_socket *s, int *bytes)
{
    struct cl_tcp_addr peer;
    struct cl_runtime_info info;
    struct cl_runtime *rt;
    int rc;
    bool connected = s->datagram ? cl_posix_datagram_peer(s, &peer) == 0 : segment_of(s, bytes);
    if (!connected || !(rt = cl_posix_start(&rc)))
        return false;
    cl_runtime_info(rt, &info);
    *bytes = (int)info.mtu;
    return true;
}

/* Options that are a number, and of which the placeholder does not know. */
static bool is_known_here(struct cl_posix_socket *s, int level, int name, int *number)
{
    if (level == SOL_SOCKET && name == SO_ERROR)
        *number = take_error(s);
    else if (level == SOL_SOCKET && name == SO_ACCEPTCONN)
        *number = cl_load_acquire(&s->state) == CL_POSIX_LISTENS;
    else if (level == SOL_SOCKET && name == SO_REUSEADDR)
        *number = s->reuse_address; /* a listener's, too: Linux has not been told */
    else if (level == SOL_SOCKET && name == SO_REUSEPORT)
        *number = s->reuse_port;
    else if (level == IPPROTO_TCP && name == TCP_NODELAY && s->options & 1u << CL_STREAM_NO_DELAY)
        *number = s->option[CL_STREAM_NO_DELAY];
    else if (level == IPPROTO_TCP && name == TCP_CORK && s->options & 1u << CL_STREAM_CORK)
        *number = s->option[CL_STREAM_CORK];
    else if (level == IPPROTO_IP && name == IP_MULTICAST_TTL && s->first_ttl)
        *number = (int)s->first_ttl;
    else
        return (level == IPPROTO_TCP && name == TCP_MAXSEG && segment_of(s, number)) ||
               (((level == IPPROTO_IP && name == IP_MTU) || (level == IPPROTO_IPV6 && name == IPV6_MTU)) &&
                packet_of(s, number));
    return true;
}

/* SO_PEERNAME: all of the room is to be had of the name (net/core/sock.c: sk_getsockopt). */
static int peer_name(int fd, void *value, socklen_t *len)
{
    struct sockaddr_storage name;
    socklen_t whole = sizeof name;
    int rc = cl_posix_name(fd, (struct sockaddr *)&name, &whole, true);
    return rc ? rc : whole < *len ? -EINVAL : give(&name, whole, value, len);
}

int cl_posix_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    int number;
    if (cl_posix_is_child())
        return -ECHILD;
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s)
        return cl_posix_no_socket(fd);
    int rc;
    bool has_room = cl_posix_can_read(len, sizeof *len) && *len <= INT_MAX; /* otherwise Linux says what is wrong */
    if (has_room && is_known_here(s, level, name, &number))
        rc = give(&number, sizeof number, value, len);
    else if (has_room && level == SOL_SOCKET && name == SO_PEERNAME)
        rc = peer_name(fd, value, len);
    else if (has_room && level == IPPROTO_TCP && name == TCP_INFO && !s->datagram) {
        char info[INFO_BYTES];
        rc = give(info, cl_posix_socket_numbers(s, info, sizeof info), value, len);
    } else
        rc = (int)cl_linux(SYS_getsockopt, fd, level, name, value, len);
    cl_posix_socket_put(s);
    return rc;
}

static int refuse_async(void)
{
    return (int)cl_posix_refuse("O_ASYNC (SIGIO) is not to be had of sockets of the dataplane: use epoll", EINVAL);
}

/* Of the open file description: Linux' own, and ours. */
static int set_flags(int fd, int64_t flags)
{
    int rc = (int)cl_linux(SYS_fcntl, fd, F_SETFL, flags & ~O_ASYNC);
    struct cl_posix_socket *s = rc ? NULL : cl_posix_socket_of(fd);
    if (!s)
        return rc;
    if (flags & O_ASYNC)
        rc = refuse_async();
    cl_store_relaxed(&s->non_blocking, (flags & O_NONBLOCK) != 0);
    cl_posix_socket_put(s);
    return rc;
}

int cl_posix_fcntl(int fd, int command, int64_t arg)
{
    if (command == F_SETFL && cl_posix_kind(fd) == CL_POSIX_SOCKET && !cl_posix_is_forked())
        return set_flags(fd, arg);
    int rc = (int)cl_linux(SYS_fcntl, fd, command, arg);
    if (rc >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC) && !cl_posix_is_forked())
        return cl_posix_duplicated(fd, rc);
    return command == F_GETSIG ? cl_posix_without_mark(rc) : rc;
}

/* What was written, and is not acknowledged, or not sent (net/ipv4/tcp.c: tcp_ioctl). */
static int to_send(struct cl_posix_socket *s, bool unsent, int *out)
{
    struct cl_tcp_info info;
    uint32_t state = cl_load_acquire(&s->state);
    *out = 0;
    if (state == CL_POSIX_LISTENS)
        return -EINVAL;
    if (state > CL_POSIX_LISTENS && cl_posix_socket_info(s, &info) == 0)
        *out = (int)cl_min(unsent ? info.unsent : info.unacked_bytes, (uint32_t)INT_MAX);
    return 0;
}

static int to_read(struct cl_posix_socket *s, int *out)
{
    struct cl_tcp_info info;
    uint32_t state = cl_load_acquire(&s->state);
    *out = s->datagram ? cl_posix_datagram_bytes(s) : 0;
    if (state == CL_POSIX_LISTENS)
        return -EINVAL;
    if (state > CL_POSIX_LISTENS && cl_posix_socket_info(s, &info) == 0)
        *out = (int)cl_min(info.to_read, (uint32_t)INT_MAX);
    return 0;
}

int cl_posix_ioctl(int fd, unsigned long request, void *arg)
{
    struct cl_posix_socket *s = cl_posix_is_forked() ? NULL : cl_posix_socket_of(fd);
    bool of_queue = s && !s->datagram && (request == SIOCOUTQ || request == SIOCOUTQNSD);
    int rc, bytes;
    if (of_queue || (s && request == FIONREAD)) {
        rc = of_queue ? to_send(s, request == SIOCOUTQNSD, &bytes) : to_read(s, &bytes);
        if (rc == 0 && cl_posix_can_write(arg, sizeof bytes))
            memcpy(arg, &bytes, sizeof bytes);
        else if (rc == 0)
            rc = -EFAULT;
    } else if (s && request == FIOASYNC && cl_posix_can_read(arg, sizeof bytes) && *(int *)arg) {
        rc = refuse_async();
    } else {
        rc = (int)cl_linux(SYS_ioctl, fd, request, arg);
        if (s && rc == 0 && request == FIONBIO)
            cl_store_relaxed(&s->non_blocking, *(int *)arg != 0);
    }
    if (s)
        cl_posix_socket_put(s);
    return rc;
}
