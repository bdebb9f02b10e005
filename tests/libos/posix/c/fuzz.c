/* A program that knows nothing of corelane: calls on sockets, drawn from a seed, and what each returned. The test runs it
 * on Linux' sockets and on ours (../test_fuzz.py): the same seed, the same lines.
 *
 *   fuzz ADDRESS SEED STEPS
 *
 * Both ends are of this process. A small model knows what is under way: after each call `settle` waits until it has come,
 * so that no result depends on time; and nothing that would wait is called without MSG_DONTWAIT. */
#include "said.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLOTS 8
#define MOST 6000 /* bytes that wait in one direction */
#define QUEUED 12 /* datagrams, and connections, that wait */

enum kind { FREE, FRESH, BOUND, LISTENS, OPEN, DATAGRAM };

/* A descriptor, and what of it is known. */
struct slot {
    enum kind kind;
    int fd, peer;      /* peer: the other end's slot; -1: it has none, or is not accepted yet */
    int queue[QUEUED]; /* LISTENS: slots that wait to be accepted; DATAGRAM: lengths. First in, first out */
    int n;
    int waits;             /* listener's slot; -1 */
    int to_read;           /* bytes */
    bool fin, shut, reset; /* the peer's end; our own; it was reset, or will be found so */
    bool named, told;      /* it has a port; an error comes */
    bool early;            /* a shutdown failed before there was a connection */
    bool watched;
};

static struct sockaddr_in here; /* the address, port 0 */
static struct slot slots[SLOTS];
static uint64_t state;
static int epfd;
static char data[MOST];

static unsigned draw(unsigned n)
{
    state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ z >> 31) >> 32) % n;
}

static int index_of(const struct slot *s)
{
    return (int)(s - slots);
}

static long note(const struct slot *s, const char *what, long rc)
{
    printf("%d.", index_of(s));
    return say(what, rc);
}

static struct sockaddr_in name_of_slot(const struct slot *s)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    getsockname(s->fd, (struct sockaddr *)&at, &len);
    at.sin_addr = here.sin_addr;
    return at;
}

static bool eventually(const struct slot *s, short events)
{
    struct pollfd p = {s->fd, events, 0};
    return poll(&p, 1, 10000) == 1;
}

static bool has_to_read(const struct slot *s, int bytes)
{
    for (int i = 0, n = -1; i < 10000; i++) {
        if (ioctl(s->fd, FIONREAD, &n) == 0 && n == bytes)
            return true;
        poll(NULL, 0, i > 100);
    }
    return false;
}

static bool has_come(const struct slot *s)
{
    if (s->kind == DATAGRAM)
        return (!s->told || eventually(s, POLLERR)) && (!s->n || has_to_read(s, s->queue[0]));
    if (s->kind == LISTENS)
        return !s->n || eventually(s, POLLIN);
    if (s->kind != OPEN)
        return true;
    if (s->reset)
        return eventually(s, POLLHUP);
    return has_to_read(s, s->to_read) && (!s->fin || eventually(s, POLLRDHUP));
}

static void settle(void)
{
    for (struct slot *s = slots; s < slots + SLOTS; s++)
        if (s->kind != FREE && !has_come(s)) {
            printf("waited in vain for %d\n", index_of(s));
            exit(0);
        }
}

static struct slot *some(enum kind kind)
{
    unsigned first = draw(SLOTS);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[(first + i) % SLOTS].kind == kind)
            return &slots[(first + i) % SLOTS];
    return NULL;
}

static struct slot *anyone(void)
{
    struct slot *s = &slots[draw(SLOTS)];
    return s->kind == FREE ? NULL : s;
}

static struct slot *put(struct slot *s, enum kind kind, int fd)
{
    *s = (struct slot){.kind = kind, .fd = fd, .peer = -1, .waits = -1};
    return s;
}

/* The peer of a connection that ends finds it reset, or at its end. */
static void end_peer(const struct slot *s, bool resets)
{
    if (s->peer < 0)
        return;
    struct slot *peer = &slots[s->peer];
    peer->peer = -1;
    if (resets)
        peer->reset = true;
    else
        peer->fin = true;
}

/* Calls. */

static void make(void)
{
    struct slot *s = some(FREE);
    if (!s)
        return;
    bool datagram = draw(3) == 0;
    put(s, datagram ? DATAGRAM : FRESH, socket(AF_INET, datagram ? SOCK_DGRAM : SOCK_STREAM, 0));
    note(s, datagram ? "datagram socket" : "stream socket", s->fd < 0 ? -1 : 0);
}

static void name(void)
{
    struct slot *s = anyone();
    if (!s)
        return;
    if (note(s, "bind", bind(s->fd, (struct sockaddr *)&here, sizeof here)) < 0)
        return;
    s->named = true;
    if (s->kind == FRESH)
        s->kind = BOUND;
}

static void open_listener(void)
{
    struct slot *s = draw(4) ? some(BOUND) : anyone();
    if (!s || s->kind == FRESH || note(s, "listen", listen(s->fd, QUEUED)) < 0 || s->kind != BOUND)
        return;
    s->kind = LISTENS;
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
}

static void open_connection(void)
{
    struct slot *s = draw(4) ? some(FRESH) : anyone(), *to = draw(4) ? some(LISTENS) : anyone();
    if (!s || !to || s == to || s->kind == DATAGRAM || !(to->named || to->kind == LISTENS))
        return;
    if (to->kind != LISTENS && (s->kind == FRESH || s->kind == BOUND) && to->kind != BOUND)
        return;
    if (to->n == QUEUED)
        return;
    struct sockaddr_in at = name_of_slot(to);
    long rc = note(s, "connect", connect(s->fd, (struct sockaddr *)&at, sizeof at));
    if (s->kind != FRESH && s->kind != BOUND)
        return;
    if (rc < 0) { /* it is what it was at first: the port was not one that it asked for */
        s->kind = FRESH;
        s->named = s->early = false;
        return;
    }
    s->kind = OPEN;
    s->fin = to->early;
    s->waits = index_of(to);
    to->queue[to->n++] = index_of(s);
}

static int take(struct slot *s)
{
    int first = s->queue[0];
    memmove(s->queue, s->queue + 1, (size_t)--s->n * sizeof first);
    return first;
}

static void take_connection(void)
{
    struct slot *l = draw(6) ? some(LISTENS) : anyone(), *s = some(FREE);
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    if (!l || !s || l->kind == FRESH)
        return;
    int fd = accept4(l->fd, (struct sockaddr *)&at, &len, 0);
    note(l, "accept", fd < 0 ? -1 : 0);
    if (fd < 0)
        return;
    int from = take(l);
    put(s, OPEN, fd);
    if (from < 0) { /* it was closed meanwhile */
        s->to_read = -from - 1;
        s->fin = true;
        return;
    }
    struct slot *c = &slots[from];
    s->peer = from;
    c->peer = index_of(s);
    c->waits = -1;
    s->to_read = c->to_read; /* what c wrote before, counted there */
    c->to_read = 0;
    s->fin = c->shut;
}

/* Where to count what a connection writes: while nobody has accepted it, in itself. */
static void count_written(struct slot *s, long n)
{
    if (s->waits >= 0)
        s->to_read += (int)n;
    else if (s->peer >= 0)
        slots[s->peer].to_read += (int)n;
    else if (s->fin && n > 0) /* the peer has closed: it answers with a reset */
        s->reset = true;
}

static void write_some(void)
{
    struct slot *s = draw(5) ? some(OPEN) : anyone();
    unsigned n = draw(4) ? draw(1500) : draw(3);
    if (!s || s->kind == DATAGRAM || (s->kind == OPEN && s->waits >= 0))
        return;
    if (s->kind == OPEN && s->peer >= 0 && slots[s->peer].to_read + (int)n > MOST)
        return;
    struct iovec vec[2] = {{data, n / 2}, {data + n / 2, n - n / 2}};
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = 2};
    unsigned how = draw(4);
    long rc = how == 0   ? write(s->fd, data, n)
              : how == 1 ? writev(s->fd, vec, 2)
              : how == 2 ? send(s->fd, data, n, MSG_DONTWAIT)
                         : sendmsg(s->fd, &m, MSG_NOSIGNAL);
    note(s, "write", rc);
    if (s->kind == OPEN && rc > 0)
        count_written(s, rc);
}

/* Two writes, the first of which waits for the second. */
static void write_held(void)
{
    struct slot *s = some(OPEN);
    unsigned n = 1 + draw(600), how = draw(3);
    int on = 1, off = 0;
    if (!s || s->waits >= 0 || (s->peer >= 0 && slots[s->peer].to_read + 2 * (int)n > MOST))
        return;
    if (how)
        note(s, "TCP_CORK", setsockopt(s->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    for (int i = 0; i < 2; i++) {
        long rc = send(s->fd, data, n, i == 0 && how != 1 ? MSG_MORE : 0);
        note(s, "write", rc);
        if (rc > 0)
            count_written(s, rc);
    }
    if (how)
        note(s, "TCP_CORK", setsockopt(s->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off));
}

static void read_some(void)
{
    struct slot *s = draw(5) ? some(OPEN) : anyone();
    unsigned n = draw(3) ? 1 + draw(2000) : draw(5), how = draw(5);
    if (!s || s->kind == DATAGRAM || (s->kind == OPEN && s->waits >= 0))
        return;
    if (s->reset && s->to_read) /* a reset drops what was not read: not so on Linux (docs/posix.md) */
        return;
    struct iovec vec[2] = {{data, n / 2}, {data + n / 2, n - n / 2}};
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = 2};
    int peek = how == 1 ? MSG_PEEK : 0;
    bool waits = s->kind == OPEN && !s->to_read && !s->fin && !s->reset;
    long rc = how == 0 && !waits ? read(s->fd, data, n)
              : how == 2         ? recvmsg(s->fd, &m, MSG_DONTWAIT)
              : how == 3         ? recv(s->fd, data, n, MSG_DONTWAIT | MSG_WAITALL)
                                 : recv(s->fd, data, n, MSG_DONTWAIT | peek);
    note(s, peek ? "peek" : "read", rc);
    if (s->kind == OPEN && rc > 0 && !peek && !s->reset)
        s->to_read -= (int)rc;
}

static void shut(void)
{
    struct slot *s = draw(4) ? some(OPEN) : anyone();
    if (!s || s->kind == DATAGRAM || s->kind == LISTENS || (s->kind == OPEN && s->waits >= 0))
        return;
    /* Reading is left open: what a peer sends then is dropped on Linux, and counted by nobody. */
    if (note(s, "shutdown", shutdown(s->fd, SHUT_WR)) < 0 || s->kind != OPEN) {
        s->early |= s->kind != OPEN;
        return;
    }
    s->shut = true;
    if (s->peer >= 0)
        slots[s->peer].fin = true;
}

/* Of a listener: who waits there is reset. */
static void end_waiting(struct slot *l)
{
    while (l->n) {
        int from = take(l);
        if (from >= 0)
            slots[from].reset = true, slots[from].waits = -1, slots[from].to_read = 0;
    }
}

static void shut_all(void)
{
    struct slot *s = anyone();
    if (!s || (s->kind == OPEN && s->waits >= 0))
        return;
    if (s->kind == LISTENS)
        end_waiting(s);
    if (s->kind == OPEN)
        end_peer(s, s->to_read > 0);
    if (s->kind == DATAGRAM)
        for (struct slot *other = slots; other < slots + SLOTS; other++)
            if (other->kind == DATAGRAM && other->peer == index_of(s))
                other->peer = SLOTS; /* to a port that nobody has */
    note(s, "close", close(s->fd));
    s->kind = FREE;
}

static void copy(void)
{
    struct slot *s = anyone();
    if (!s || s->watched)
        return;
    int fd = dup(s->fd);
    note(s, "dup", fd < 0 ? -1 : 0);
    note(s, "close of the first", close(s->fd));
    s->fd = fd;
}

static void names(void)
{
    struct slot *s = anyone();
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    if (!s)
        return;
    note(s, "getsockname", getsockname(s->fd, (struct sockaddr *)&at, &len));
    printf("%u %d %d\n", len, at.sin_addr.s_addr == here.sin_addr.s_addr, at.sin_port != 0);
    len = sizeof at;
    if (note(s, "getpeername", getpeername(s->fd, (struct sockaddr *)&at, &len)) == 0)
        printf("%u %d\n", len, at.sin_addr.s_addr == here.sin_addr.s_addr);
}

static void options(void)
{
    struct slot *s = anyone();
    int value = 0, on = (int)draw(2);
    socklen_t len = sizeof value;
    if (!s)
        return;
    switch (draw(6)) {
    case 0:
        note(s, "SO_ERROR", getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &value, &len));
        printf("%s\n", value ? name_of(value) : "none");
        s->told = false;
        break;
    case 1:
        note(s, "TCP_NODELAY", setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
        break;
    case 2:
        note(s, "SO_KEEPALIVE", setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
        break;
    case 3:
        on = (int)draw(5);
        note(s, "TCP_KEEPCNT", setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPCNT, &on, sizeof on));
        note(s, "its value", getsockopt(s->fd, IPPROTO_TCP, TCP_KEEPCNT, &value, &len));
        printf("%d\n", value);
        break;
    case 4:
        note(s, "SO_ACCEPTCONN", getsockopt(s->fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &len));
        printf("%d\n", value);
        break;
    default:
        if (s->reset)
            return;
        note(s, "FIONREAD", ioctl(s->fd, FIONREAD, &value));
        printf("%d\n", value);
    }
}

static void look(void)
{
    struct slot *s = anyone();
    fd_set in, out;
    if (!s || (s->kind == OPEN && s->waits >= 0))
        return;
    struct pollfd p = {s->fd, (short)(POLLIN | (draw(2) ? POLLOUT : 0) | (draw(2) ? POLLRDHUP : 0)), 0};
    note(s, "poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(s->fd, &in);
    FD_SET(s->fd, &out);
    note(s, "select", select(s->fd + 1, &in, &out, NULL, &(struct timeval){0, 0}));
    printf("%d %d\n", FD_ISSET(s->fd, &in) != 0, FD_ISSET(s->fd, &out) != 0);
}

static void watch_one(void)
{
    struct slot *s = anyone();
    static const unsigned how[] = {EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, EPOLLIN | EPOLLONESHOT, EPOLLOUT};
    int op = draw(3) == 0 ? EPOLL_CTL_DEL : draw(2) ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (!s || (s->kind == OPEN && s->waits >= 0))
        return;
    printf("op %d ", op);
    if (note(s, "epoll_ctl", watch(epfd, op, s->fd, how[draw(5)], (unsigned)index_of(s))) == 0)
        s->watched = op != EPOLL_CTL_DEL;
}

static void wait_now(void)
{
    struct epoll_event e[SLOTS + 1];
    unsigned found[SLOTS] = {0};
    for (struct slot *s = slots; s < slots + SLOTS; s++)
        if (s->kind == OPEN && s->waits >= 0 && s->watched)
            return;
    int n = epoll_wait(epfd, e, SLOTS + 1, 0);
    say("epoll_wait", n);
    for (int i = 0; i < n; i++)
        found[e[i].data.u32 % SLOTS] = e[i].events;
    for (int i = 0; i < SLOTS; i++)
        if (found[i]) {
            printf("%d", i);
            say_events("", found[i]);
        }
}

/* Datagrams. */

static void bind_datagrams(void)
{
    struct slot *s = some(DATAGRAM), *to = some(DATAGRAM);
    if (!s || !to || !to->named || s->n > 1) /* of the second nobody knows whether it has come */
        return;
    struct sockaddr_in at = name_of_slot(to);
    note(s, "connect", connect(s->fd, (struct sockaddr *)&at, sizeof at));
    s->peer = index_of(to);
    s->named = true;
    s->told = false; /* asked for below */
    int value;
    socklen_t len = sizeof value;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &value, &len);
}

/* Where it goes, or what comes back. */
static void count_sent(struct slot *s, struct slot *to, int n)
{
    bool takes = to && to->n < QUEUED && (to->peer < 0 || to->peer == index_of(s));
    if (takes)
        to->queue[to->n++] = n;
    else if (!to || to->n < QUEUED)
        s->told = s->peer >= 0 && (!to || s->peer == index_of(to));
}

static void send_datagram(void)
{
    struct slot *s = some(DATAGRAM), *to = some(DATAGRAM);
    int n = (int)draw(1400);
    bool by_name = draw(2);
    if (!s || !to || (by_name && !to->named))
        return;
    if (!by_name)
        to = s->peer < 0 || s->peer == SLOTS ? NULL : &slots[s->peer];
    if (to && to->n == QUEUED)
        return;
    struct sockaddr_in at = here;
    if (to)
        at = name_of_slot(to);
    long rc = by_name ? sendto(s->fd, data, (size_t)n, 0, (struct sockaddr *)&at, sizeof at)
                      : send(s->fd, data, (size_t)n, 0);
    note(s, by_name ? "sendto" : "send", rc);
    if (rc < 0) {
        s->told = false;
        return;
    }
    s->named = true;
    count_sent(s, to, n);
}

static void receive_datagram(void)
{
    struct slot *s = some(DATAGRAM);
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    static const int flags[] = {0, MSG_PEEK, MSG_TRUNC, MSG_PEEK | MSG_TRUNC};
    int how = flags[draw(4)];
    if (!s)
        return;
    long rc = recvfrom(s->fd, data, draw(1500), MSG_DONTWAIT | how, (struct sockaddr *)&at, &len);
    note(s, how & MSG_PEEK ? "peek" : "recvfrom", rc);
    if (rc < 0)
        s->told = false;
    else
        printf("%u %d\n", len, at.sin_addr.s_addr == here.sin_addr.s_addr);
    if (rc >= 0 && !(how & MSG_PEEK))
        take(s);
}

static void (*const calls[])(void) = {make,
                                      make,
                                      name,
                                      open_listener,
                                      open_connection,
                                      shut,
                                      take_connection,
                                      take_connection,
                                      write_some,
                                      write_some,
                                      write_some,
                                      write_held,
                                      read_some,
                                      read_some,
                                      read_some,
                                      shut_all,
                                      copy,
                                      names,
                                      options,
                                      look,
                                      look,
                                      watch_one,
                                      watch_one,
                                      wait_now,
                                      bind_datagrams,
                                      send_datagram,
                                      send_datagram,
                                      receive_datagram,
                                      open_connection};

int main(int argc, char **argv)
{
    here.sin_family = AF_INET;
    if (argc != 4 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1)
        return 2;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    signal(SIGPIPE, SIG_IGN);
    state = (uint64_t)atoll(argv[2]);
    epfd = epoll_create1(0);
    for (int i = 0; i < atoi(argv[3]); i++) {
        calls[draw(sizeof calls / sizeof *calls)]();
        settle();
    }
    printf("end\n");
    return 0;
}
