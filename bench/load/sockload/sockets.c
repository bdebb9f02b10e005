/* Connections over sockets of Linux, which never block. epoll, level-triggered, says what is ready. Nagle's algorithm
 * is off: a request leaves when it is due. */
#include "engine.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 64

static int init(struct cl_worker *w)
{
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    return w->epoll < 0 ? -errno : 0;
}

static void free_worker(struct cl_worker *w)
{
    if (w->epoll >= 0)
        close(w->epoll);
}

static int watch(struct cl_worker *w, struct cl_conn *c, int op, bool room)
{
    struct epoll_event event = {.events = EPOLLIN | (room ? EPOLLOUT : 0), .data.u32 = (uint32_t)(c - w->conns)};
    return epoll_ctl(w->epoll, op, c->fd, &event) ? -errno : 0;
}

static int want_room(struct cl_worker *w, struct cl_conn *c, bool wanted)
{
    return watch(w, c, EPOLL_CTL_MOD, wanted);
}

/* Bytes that a socket should be able to hold: a burst of UDP answers must find room. */
static void set_options(const struct cl_sockload *s, int fd)
{
    int one = 1, room = 4 << 20;
    cl_came_ask(fd);
    struct linger reset = {1, 0}; /* thousands of ports a second would else stay in TIME_WAIT, and run out */
    if (s->stream) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (s->config.fresh)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
}

static void close_conn(struct cl_worker *w, struct cl_conn *c)
{
    (void)w;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static int open_conn(struct cl_worker *w, struct cl_conn *c)
{
    const struct cl_sockload *s = w->s;
    int kind = (s->stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
    c->fd = socket(s->server.ss_family, kind, 0);
    if (c->fd < 0)
        return -errno;
    set_options(s, c->fd);
    int rc = connect(c->fd, (const struct sockaddr *)&s->server, s->server_bytes) ? -errno : 0;
    bool under_way = rc == -EINPROGRESS;
    int watched = rc && !under_way ? rc : watch(w, c, EPOLL_CTL_ADD, under_way);
    if (watched)
        close_conn(w, c);
    return watched ? watched : rc;
}

static int opened(struct cl_worker *w, struct cl_conn *c)
{
    int error = 0;
    socklen_t n = sizeof(error);
    (void)w;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n))
        return -errno;
    return -error;
}

static int64_t send_bytes(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    ssize_t sent = send(c->fd, data, n, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN && w->s->stream ? 0 : -errno;
    return sent;
}

static int64_t receive(struct cl_worker *w, struct cl_conn *c, uint8_t *data, uint64_t room)
{
    union cl_came control;
    struct iovec part = {data, room};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(c->fd, &m, 0);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    w->came = cl_came_at(&m, w->s->clock);
    return n;
}

/* In one system call, if the kernel can (UDP_SEGMENT, udp(7)). */
static int send_segments(struct cl_conn *c, const uint8_t *data, unsigned n, uint32_t each)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(uint16_t))];
    } control = {0};
    uint16_t segment = (uint16_t)each;
    struct iovec part = {(void *)data, (size_t)n * each};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n > 1) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof(control.room);
        control.header = (struct cmsghdr){CMSG_LEN(sizeof(segment)), IPPROTO_UDP, UDP_SEGMENT};
        memcpy(CMSG_DATA(&control.header), &segment, sizeof(segment));
    }
    return sendmsg(c->fd, &message, MSG_NOSIGNAL) < 0 ? -errno : (int)n;
}

static int send_together(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, unsigned n, uint32_t each)
{
    int rc = w->singly && n > 1 ? -EOPNOTSUPP : send_segments(c, data, n, each);
    if (n == 1 || (rc != -EINVAL && rc != -EIO && rc != -EOPNOTSUPP))
        return rc;
    w->singly = true; /* this path takes no datagrams together */
    for (unsigned i = 0; i < n; i++) {
        rc = send_segments(c, data + i * each, 1, each);
        if (rc < 0)
            return i ? (int)i : rc;
    }
    return (int)n;
}

static int receive_datagrams(struct cl_worker *w, struct cl_conn *c)
{
    struct cl_inbox *inbox = w->inbox;
    for (unsigned i = 0; i < CL_SOCKLOAD_DATAGRAMS; i++) {
        inbox->parts[i] = (struct iovec){inbox->data[i], CL_SOCKLOAD_DATAGRAM_ROOM};
        inbox->headers[i].msg_hdr = (struct msghdr){.msg_iov = &inbox->parts[i],
                                                    .msg_iovlen = 1,
                                                    .msg_control = &inbox->controls[i],
                                                    .msg_controllen = sizeof(inbox->controls[i])};
    }
    int n = recvmmsg(c->fd, inbox->headers, CL_SOCKLOAD_DATAGRAMS, 0, NULL);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    for (int i = 0; i < n; i++)
        inbox->came[i] = cl_came_at(&inbox->headers[i].msg_hdr, w->s->clock);
    return n;
}

static void poll_events(struct cl_worker *w, int ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(w->epoll, events, EVENTS, ms);
    for (int i = 0; i < n; i++) {
        uint32_t what = events[i].events;
        cl_sockload_worker_event(w, &w->conns[events[i].data.u32], what & EPOLLOUT,
                                 what & (EPOLLIN | EPOLLHUP | EPOLLERR));
    }
}

static void pin(struct cl_worker *w)
{
    int cpu = w->s->config.cpus ? w->s->config.cpus[w->number] : -1;
    cpu_set_t set;
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    int rc = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    if (rc)
        cl_sockload_worker_fail(w, -rc, "a thread was not pinned to its CPU");
}

static void *pinned(void *arg)
{
    struct cl_worker *w = arg;
    pin(w);
    return w->main(w);
}

static int start(struct cl_worker *w, void *(*fn)(void *w))
{
    w->main = fn;
    return pthread_create(&w->thread, NULL, pinned, w);
}

static void join(struct cl_worker *w)
{
    pthread_join(w->thread, NULL);
}

static int call(struct cl_worker *w, int (*fn)(struct cl_worker *w, uint64_t arg), uint64_t arg)
{
    return fn(w, arg);
}

const struct cl_carrier cl_sockload_sockets = {
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
