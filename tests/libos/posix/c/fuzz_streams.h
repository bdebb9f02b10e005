/* Calls on connections and listeners, as the program that draws calls makes them (fuzz.c). */
#ifndef TESTS_LIBOS_POSIX_FUZZ_STREAMS_H
#define TESTS_LIBOS_POSIX_FUZZ_STREAMS_H

#include "fuzz_names.h"

#include <limits.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

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

static void make(void)
{
    struct slot *s = some(FREE);
    if (!s)
        return;
    bool datagram = draw(3) == 0;
    put(s, datagram ? DATAGRAM : FRESH, socket(AF_INET, datagram ? SOCK_DGRAM : SOCK_STREAM, 0));
    note(s, datagram ? "datagram socket" : "stream socket", s->fds[0] < 0 ? -1 : 0);
}

static void name(void)
{
    struct slot *s = anyone(), *other = draw(4) ? NULL : anyone();
    if (!s)
        return;
    struct sockaddr_in at = here;
    if (other && other != s && other->named && s->kind != OPEN && other->kind != OPEN) /* a port that is taken */
        at = name_of_slot(other);
    if (at.sin_port && (other->kind == DATAGRAM) != (s->kind == DATAGRAM))
        return;
    if (note(s, "bind", bind(fd_of(s), (struct sockaddr *)&at, sizeof at)) < 0)
        return;
    s->named = true;
    if (s->kind == FRESH)
        s->kind = BOUND;
}

static void open_listener(void)
{
    struct slot *s = draw(4) ? some(BOUND) : anyone();
    if (!s || s->kind == FRESH || (keeps_roles && (s->connected || s->kind == OPEN))) /* of a reset one, too */
        return;
    if (note(s, "listen", listen(fd_of(s), QUEUED)) < 0 || s->kind != BOUND)
        return;
    s->kind = LISTENS;
    s->listened = true;
    fcntl(s->fds[0], F_SETFL, O_NONBLOCK);
    s->non_blocking = true;
}

/* What is being opened is so before the next call. */
static void finish_opening(struct slot *s, const struct sockaddr_in *at, bool refused)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (!eventually(s, POLLOUT))
        printf("%d. is never opened\n", index_of(s));
    note(s, "SO_ERROR", getsockopt(s->fds[0], SOL_SOCKET, SO_ERROR, &error, &len));
    printf("%s\n", error ? name_of(error) : "none");
    if (!refused)
        note(s, "connect", connect(s->fds[0], (const struct sockaddr *)at, sizeof *at));
}

static void close_all(struct slot *s)
{
    note(s, "close", close(s->fds[0]));
    if (s->fds[1] >= 0)
        note(s, "close of the copy", close(s->fds[1]));
    s->kind = FREE;
}

static void open_connection(void)
{
    struct slot *s = draw(4) ? some(FRESH) : anyone(), *to = draw(4) ? some(LISTENS) : anyone();
    if (!s || !to || s == to || s->kind == DATAGRAM || !(to->named || to->kind == LISTENS))
        return;
    bool opens = s->kind == FRESH || s->kind == BOUND;
    if (to->kind != LISTENS && opens && to->kind != BOUND)
        return;
    if (keeps_roles && opens && s->listened)
        return;
    if (to->n == QUEUED ||
        (opens && s->non_blocking && s->early)) /* of the last poll says at once that it is writable */
        return;
    struct sockaddr_in at = name_of_slot(to);
    long rc = note(s, "connect", connect(fd_of(s), (struct sockaddr *)&at, sizeof at));
    if (!opens)
        return;
    s->connected = true;
    if (rc < 0 && s->non_blocking) {
        finish_opening(s, &at, to->kind != LISTENS);
        if (to->kind != LISTENS) {
            close_all(s);
            return;
        }
    } else if (rc < 0) { /* it is what it was at first: the port was not one that it asked for */
        s->kind = FRESH;
        s->named = s->early = false;
        return;
    }
    s->kind = OPEN;
    s->fin = to->early;
    s->waits = index_of(to);
    to->queue[to->n++] = index_of(s);
}

/* Of a listener: who waits there is reset. */
static void end_waiting(struct slot *l)
{
    while (l->n) {
        int from = take(l);
        if (from >= 0)
            slots[from].reset = true, slots[from].waits = -1;
    }
}

/* To nobody: a connection is reset, and a listener is none any more. */
static void end_connection(void)
{
    struct slot *s = anyone();
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    if (!s || s->kind == DATAGRAM || s->waits >= 0)
        return; /* the last: it is over then, and not accepted: not so on Linux (docs/posix.md) */
    note(s, "connect to nobody", connect(fd_of(s), &none, sizeof none));
    s->early = false;
    if (s->kind == LISTENS)
        end_waiting(s);
    else if (s->kind == OPEN)
        end_peer(s, !(s->fin && s->shut));
    else
        return;
    s->connected |= s->kind == OPEN; /* or it was accepted */
    s->kind = FRESH;                 /* the port was not one that it asked for */
    s->to_read = s->written = 0;
    s->peer = -1;
    s->fin = s->shut = s->reset = s->deaf = s->seen = s->named = false;
}

/* Of who waits there the first is closed: what it had written has not been read. */
static void lose_first(struct slot *l)
{
    int from = take(l);
    if (from < 0)
        return;
    struct slot *c = &slots[from];
    c->waits = -1;
    if (c->written)
        c->reset = true;
    else
        c->fin = true;
}

static void take_connection(void)
{
    struct slot *l = draw(6) ? some(LISTENS) : anyone(), *s = some(FREE);
    struct room r;
    if (!l || !s || l->kind == FRESH)
        return;
    draw_room(&r);
    bool lost = cannot_be_told(&r);
    int fd = draw(2) ? accept4(fd_of(l), r.to, r.len, SOCK_CLOEXEC) : accept(fd_of(l), r.to, r.len);
    note(l, "accept", fd < 0 ? -1 : 0);
    if (fd < 0 && lost && l->kind == LISTENS && l->n)
        lose_first(l);
    if (fd < 0)
        return;
    say_room(&r);
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
    s->to_read = c->written;
    s->fin = c->shut;
}

/* Bytes. */

static void count_written(struct slot *s, long n)
{
    if (n <= 0)
        return;
    if (s->waits >= 0)
        s->written += (int)n;
    else if (s->peer >= 0)
        slots[s->peer].to_read += (int)n;
    else if (s->fin) /* the peer has closed: it answers with a reset */
        s->reset = true;
}

/* There is room for n bytes at the other end, which is read from. */
static bool may_write(const struct slot *s, int n)
{
    if (s->kind != OPEN)
        return s->kind != DATAGRAM;
    if (s->waits >= 0)
        return s->written + n <= MOST;
    return s->peer < 0 || (slots[s->peer].to_read + n <= MOST && !slots[s->peer].deaf);
}

static void write_some(void)
{
    struct slot *s = draw(5) ? some(OPEN) : anyone();
    unsigned n = draw(4) ? draw(1500) : draw(3);
    if (!s || !may_write(s, (int)n))
        return;
    struct iovec vec[3] = {{data, n / 2}, {NULL, 0}, {data + n / 2, n - n / 2}};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = vec, .msg_iovlen = 3}};
    unsigned how = draw(6);
    int fd = fd_of(s);
    long rc = how == 0   ? write(fd, data, n)
              : how == 1 ? writev(fd, vec, 3)
              : how == 2 ? send(fd, data, n, MSG_DONTWAIT)
              : how == 3 ? sendmsg(fd, &m.msg_hdr, MSG_NOSIGNAL)
              : how == 4 ? pwritev2(fd, vec, 3, -1, 0)
                         : sendmmsg(fd, &m, 1, MSG_NOSIGNAL);
    if (how == 5 && rc == 1)
        rc = m.msg_len;
    note(s, "write", rc);
    if (s->kind == OPEN)
        count_written(s, rc);
}

/* Two writes, the first of which waits for the second. */
static void write_held(void)
{
    struct slot *s = some(OPEN);
    unsigned n = 1 + draw(600), how = draw(3);
    int on = 1, off = 0;
    if (!s || !may_write(s, 2 * (int)n))
        return;
    if (how)
        note(s, "TCP_CORK", setsockopt(fd_of(s), IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    for (int i = 0; i < 2; i++) {
        long rc = send(fd_of(s), data, n, i == 0 && how != 1 ? MSG_MORE : 0);
        note(s, "write", rc);
        count_written(s, rc);
    }
    if (how)
        note(s, "TCP_CORK", setsockopt(fd_of(s), IPPROTO_TCP, TCP_CORK, &off, sizeof off));
}

/* By a file, or a pipe. */
static void write_from(void)
{
    struct slot *s = draw(5) ? some(OPEN) : anyone();
    unsigned n = 1 + draw(1000);
    bool by_pipe = draw(2);
    off_t at = 0;
    int p[2];
    if (!s || !may_write(s, (int)n))
        return;
    if (by_pipe && pipe(p) == 0) {
        if (write(p[1], data, n) != (ssize_t)n)
            exit(1);
        long rc = note(s, "splice", splice(p[0], NULL, fd_of(s), NULL, n, 0));
        close(p[0]);
        close(p[1]);
        if (s->kind == OPEN)
            count_written(s, rc);
        return;
    }
    int file = memfd_create("fuzz", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, n))
        exit(1);
    long rc = note(s, "sendfile", sendfile(fd_of(s), file, draw(2) ? &at : NULL, n));
    close(file);
    if (s->kind == OPEN)
        count_written(s, rc);
}

static long read_how(const struct slot *s, unsigned how, unsigned n, struct room *r)
{
    struct iovec vec[3] = {{data, n / 3}, {data + n / 3, n / 3}, {data + n / 3 * 2, n - n / 3 * 2}};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = vec, .msg_iovlen = 3}};
    long rc;
    switch (how) {
    case 0:
        return recvmsg(fd_of(s), &m.msg_hdr, MSG_DONTWAIT);
    case 1:
        return recv(fd_of(s), data, n, MSG_DONTWAIT | MSG_WAITALL);
    case 2:
        return recv(fd_of(s), data, n, MSG_DONTWAIT);
    case 3:
        return preadv2(fd_of(s), vec, 3, -1, RWF_NOWAIT);
    case 4:
        rc = recvmmsg(fd_of(s), &m, 1, MSG_DONTWAIT, NULL);
        return rc == 1 ? (long)m.msg_len : rc;
    case 5:
        return read(fd_of(s), data, n);
    case 6:
        return readv(fd_of(s), vec, 3);
    case 9:
        return recvfrom(fd_of(s), data, n, MSG_DONTWAIT, r->to, r->len);
    default:
        return recv(fd_of(s), data, n, MSG_WAITALL);
    }
}

static void read_some(void)
{
    struct slot *s = draw(5) ? some(OPEN) : anyone();
    unsigned n = draw(3) ? 1 + draw(2000) : draw(5), how = draw(10);
    struct room r;
    if (!s || s->kind == DATAGRAM)
        return;
    draw_room(&r);
    bool lost = how == 9 && cannot_be_told(&r);
    if (s->reset && s->to_read) /* a reset drops what was not read: not so on Linux (docs/posix.md) */
        return;
    bool over = s->fin || s->reset || s->deaf || s->kind != OPEN || s->non_blocking;
    if (how >= 5 && how < 9 && !over && (!s->to_read || (how >= 7 && (int)n > s->to_read)))
        how = 2; /* it would wait */
    bool peeks = how == 8;
    long rc = note(s, peeks ? "peek" : "read",
                   peeks ? recv(fd_of(s), data, n, MSG_PEEK | (draw(2) ? MSG_WAITALL : MSG_DONTWAIT))
                         : read_how(s, how, n, &r));
    if (how == 9 && rc >= 0)
        say_room(&r);
    if (lost && s->kind == OPEN && !s->reset)
        s->to_read -= (int)n < s->to_read ? (int)n : s->to_read;
    if (s->kind == OPEN && rc > 0 && !peeks && !s->reset)
        s->to_read -= (int)rc;
}

/* Into a pipe. */
static void read_into(void)
{
    struct slot *s = some(OPEN);
    int p[2];
    if (!s || s->reset || !s->to_read || pipe(p))
        return;
    long rc = note(s, "splice",
                   splice(fd_of(s), NULL, p[1], NULL, (size_t)(s->to_read < PIPE_BUF ? s->to_read : PIPE_BUF), 0));
    close(p[0]);
    close(p[1]);
    if (rc > 0)
        s->to_read -= (int)rc;
}

/* The end. */

static void shut(void)
{
    struct slot *s = draw(4) ? some(OPEN) : anyone();
    int how = draw(3) ? SHUT_WR : draw(2) ? SHUT_RD : SHUT_RDWR;
    if (!s || s->kind == DATAGRAM || s->kind == LISTENS)
        return;
    if (s->kind != OPEN)
        how = SHUT_WR;
    if (s->waits >= 0 && slots[s->waits].early) /* its other end is over then, and ours forgets it unaccepted */
        return;
    if (note(s, how == SHUT_WR ? "shutdown" : "shutdown of reading", shutdown(fd_of(s), how)) < 0 || s->kind != OPEN) {
        s->early |= s->kind != OPEN;
        return;
    }
    s->deaf |= how != SHUT_WR;
    if (how == SHUT_RD)
        return;
    s->shut = true;
    if (s->peer >= 0)
        slots[s->peer].fin = true;
}

/* It waits to be accepted: what the listener gives is of one that is closed. */
static void leave_queue(const struct slot *s)
{
    struct slot *l = &slots[s->waits];
    for (int i = 0; i < l->n; i++)
        if (l->queue[i] == index_of(s))
            l->queue[i] = -s->written - 1;
}

static void shut_all(void)
{
    struct slot *s = anyone();
    if (!s || (s->waits >= 0 && (s->resets || slots[s->waits].early)))
        return; /* it is over then, and not accepted: not so on Linux (docs/posix.md) */
    if (s->kind == LISTENS)
        end_waiting(s);
    if (s->kind == OPEN && s->waits >= 0)
        leave_queue(s);
    else if (s->kind == OPEN)
        end_peer(s, s->to_read > 0 || s->resets);
    if (s->kind == DATAGRAM)
        leave_port(s);
    close_all(s);
}

static void set_linger(void)
{
    struct slot *s = some(OPEN);
    struct linger l = {(int)draw(2), (int)draw(2)}, found = {0};
    socklen_t len = sizeof found;
    if (!s)
        return;
    if (note(s, "SO_LINGER", setsockopt(fd_of(s), SOL_SOCKET, SO_LINGER, &l, sizeof l)) == 0)
        s->resets = l.l_onoff && !l.l_linger;
    note(s, "its value", getsockopt(fd_of(s), SOL_SOCKET, SO_LINGER, &found, &len));
    printf("%d %d\n", found.l_onoff, found.l_linger);
}

/* A child that saves: it closes what it has, works, and ends. */
static void fork_one(void)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (const struct slot *s = slots; s < slots + SLOTS; s++)
            if (s->kind != FREE && index_of(s) % 2)
                close(s->fds[0]);
        int file = memfd_create("saved", MFD_CLOEXEC);
        _exit(write(file, data, 100) == 100 ? 7 : 1);
    }
    waitpid(child, &status, 0);
    printf("a child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

#endif
