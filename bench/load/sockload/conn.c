/* A connection: opening, sending, receiving, and how it ends. Sockets never block; epoll, level-triggered, says what is
 * ready. Nagle's algorithm is off: a request leaves when it is due. */
#include "engine.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define IN_ROOM 16384u
#define IN_MOST (1u << 30) /* an answer that is longer is not read */
#define OUT_KEPT (1u << 20)

int cl_sockload_conn_init(struct cl_worker *w, struct cl_conn *c, uint32_t ring)
{
    (void)w;
    memset(c, 0, sizeof(*c));
    c->fd = -1;
    c->ring = calloc(ring, sizeof(*c->ring));
    c->in_room = IN_ROOM;
    c->in = malloc(c->in_room);
    return c->ring && c->in ? 0 : -ENOMEM;
}

void cl_sockload_conn_free(struct cl_conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c->ring);
    free(c->in);
    free(c->out);
    memset(c, 0, sizeof(*c));
    c->fd = -1;
}

static int watch(struct cl_worker *w, struct cl_conn *c, int op, bool out)
{
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.u32 = (uint32_t)(c - w->conns)};
    c->wants_out = out;
    return epoll_ctl(w->epoll, op, c->fd, &event) ? -errno : 0;
}

/* Bytes that a socket should be able to hold: a burst of UDP answers must find room. */
static void set_options(const struct cl_sockload *s, int fd)
{
    int one = 1, room = 4 << 20;
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

static int keep(struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    if (c->out_len + n > c->out_room) {
        uint64_t room = cl_max(2ull * c->out_room, c->out_len + n);
        uint8_t *grown = room < IN_MOST ? realloc(c->out, room) : NULL;
        if (!grown)
            return -ENOMEM;
        c->out = grown;
        c->out_room = (uint32_t)room;
    }
    memcpy(c->out + c->out_len, data, n);
    c->out_len += (uint32_t)n;
    return 0;
}

/* Send what was kept. */
static int flush(struct cl_worker *w, struct cl_conn *c)
{
    while (c->out_at < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN)
                return -errno;
            return c->wants_out ? 0 : watch(w, c, EPOLL_CTL_MOD, true);
        }
        c->out_at += (uint32_t)n;
    }
    c->out_at = c->out_len = 0;
    if (c->out_room > OUT_KEPT) { /* of a large value; the next may be small */
        free(c->out);
        c->out = NULL;
        c->out_room = 0;
    }
    return c->wants_out ? watch(w, c, EPOLL_CTL_MOD, false) : 0;
}

/* It is connected: the greeting leaves before all else. */
static int ready(struct cl_worker *w, struct cl_conn *c)
{
    c->greetings = w->s->greeting ? w->s->config.greeting_replies : 0;
    c->state = c->greetings ? CL_CONN_GREETING : CL_CONN_READY;
    cl_count(&w->open, !c->greetings);
    return flush(w, c);
}

int cl_sockload_conn_open(struct cl_worker *w, struct cl_conn *c)
{
    const struct cl_sockload *s = w->s;
    int kind = (s->stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
    c->fd = socket(s->server.ss_family, kind, 0);
    if (c->fd < 0)
        return -errno;
    set_options(s, c->fd);
    bool under_way = false;
    int rc = 0;
    if (connect(c->fd, (const struct sockaddr *)&s->server, s->server_bytes)) {
        rc = -errno;
        under_way = rc == -EINPROGRESS;
        rc = under_way ? 0 : rc;
    }
    rc = rc ? rc : watch(w, c, EPOLL_CTL_ADD, under_way);
    if (!rc && s->greeting)
        rc = keep(c, (const uint8_t *)s->greeting, strlen(s->greeting));
    if (rc) {
        close(c->fd);
        c->fd = -1;
        return rc;
    }
    c->state = CL_CONN_OPENING;
    return under_way ? 0 : ready(w, c);
}

void cl_sockload_conn_close(struct cl_worker *w, struct cl_conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->state == CL_CONN_READY)
        cl_count(&w->open, (uint64_t)-1);
    c->fd = -1;
    c->state = CL_CONN_CLOSED;
    c->in_at = c->in_len = c->out_at = c->out_len = c->need = 0;
}

int cl_sockload_conn_writable(struct cl_worker *w, struct cl_conn *c)
{
    if (c->state == CL_CONN_OPENING) {
        int error = 0;
        socklen_t n = sizeof(error);
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n) || error)
            return error ? -error : -errno;
        return ready(w, c);
    }
    return flush(w, c);
}

int cl_sockload_conn_send(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    if (c->out_len || c->state == CL_CONN_OPENING)
        return keep(c, data, n); /* it follows what waits already, or the opening */
    ssize_t sent = send(c->fd, data, n, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN || !w->s->stream)
            return -errno;
        sent = 0;
    }
    if ((uint64_t)sent == n)
        return 0;
    int rc = keep(c, data + sent, n - (uint64_t)sent);
    return rc ? rc : watch(w, c, EPOLL_CTL_MOD, true);
}

/* Room for at least as much as the answer needs, or a good read. */
static int make_room(struct cl_conn *c)
{
    if (c->in_at == c->in_len)
        c->in_at = c->in_len = 0;
    uint32_t have = c->in_len - c->in_at;
    uint64_t want = cl_max((uint64_t)c->need, (uint64_t)have + IN_ROOM / 4);
    if (c->in_at && c->in_room - c->in_len < IN_ROOM / 4) {
        memmove(c->in, c->in + c->in_at, have);
        c->in_at = 0;
        c->in_len = have;
    }
    if (want <= c->in_room - c->in_at)
        return 0;
    uint64_t room = cl_max(2ull * c->in_room, want + c->in_at);
    uint8_t *grown = room < IN_MOST ? realloc(c->in, room) : NULL;
    if (!grown)
        return -EMSGSIZE;
    c->in = grown;
    c->in_room = (uint32_t)room;
    return 0;
}

int64_t cl_sockload_conn_receive(struct cl_worker *w, struct cl_conn *c)
{
    int rc = make_room(c);
    if (rc)
        return rc;
    ssize_t n = recv(c->fd, c->in + c->in_len, c->in_room - c->in_len, 0);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    c->in_len += (uint32_t)n;
    w->counts.bytes_in += (uint64_t)n;
    return n;
}

int cl_sockload_conn_send_together(struct cl_conn *c, const uint8_t *data, unsigned n, uint32_t each)
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
    return sendmsg(c->fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int cl_sockload_conn_receive_datagrams(struct cl_worker *w, struct cl_conn *c)
{
    struct cl_inbox *inbox = w->inbox;
    for (unsigned i = 0; i < CL_SOCKLOAD_DATAGRAMS; i++) {
        inbox->parts[i] = (struct iovec){inbox->data[i], CL_SOCKLOAD_DATAGRAM_ROOM};
        inbox->headers[i].msg_hdr = (struct msghdr){.msg_iov = &inbox->parts[i], .msg_iovlen = 1};
    }
    int n = recvmmsg(c->fd, inbox->headers, CL_SOCKLOAD_DATAGRAMS, 0, NULL);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    for (int i = 0; i < n; i++)
        w->counts.bytes_in += inbox->headers[i].msg_len;
    return n;
}

int cl_sockload_conn_greeted(struct cl_conn *c)
{
    while (c->greetings) {
        const uint8_t *from = c->in + c->in_at, *end = memchr(from, '\n', c->in_len - c->in_at);
        if (!end)
            return 0;
        if (*from != '+')
            return -EPROTO;
        c->in_at = (uint32_t)(end + 1 - c->in);
        c->greetings--;
    }
    return 1;
}
