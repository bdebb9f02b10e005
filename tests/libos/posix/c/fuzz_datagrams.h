/* Calls on datagram sockets, as the program that draws calls makes them (fuzz.c). */
#ifndef TESTS_LIBOS_POSIX_FUZZ_DATAGRAMS_H
#define TESTS_LIBOS_POSIX_FUZZ_DATAGRAMS_H

#include "fuzz_names.h"

static void forget_error(const struct slot *s)
{
    int value;
    socklen_t len = sizeof value;
    getsockopt(s->fds[0], SOL_SOCKET, SO_ERROR, &value, &len);
}

static void join_datagrams(void)
{
    struct slot *s = some(DATAGRAM), *to = some(DATAGRAM);
    if (!s || !to || !to->named || s->n > 1) /* of the second nobody knows whether it has come */
        return;
    struct sockaddr_in at = name_of_slot(to);
    note(s, "connect", connect(fd_of(s), (struct sockaddr *)&at, sizeof at));
    s->peer = index_of(to);
    s->named = true;
    s->told = false;
    forget_error(s);
}

static void part_datagrams(void)
{
    struct slot *s = some(DATAGRAM);
    if (!s || s->n) /* with what waits ours keeps its port */
        return;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    note(s, "connect to nobody", connect(fd_of(s), &none, sizeof none));
    s->peer = -1;
    s->told = false;
    forget_error(s);
    struct sockaddr_in at = name_of_slot(s);
    s->named = at.sin_port != 0; /* by bind; what a connect or a send had found is given back */
    if (!s->named)
        leave_port(s);
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
    int n = draw(8) ? (int)draw(1400) : 0;
    unsigned how = draw(3);
    bool by_name = draw(2);
    if (!s || !to || (by_name && !to->named))
        return;
    if (!by_name)
        to = s->peer < 0 || s->peer == SLOTS ? NULL : &slots[s->peer];
    if (to && to->n == QUEUED)
        return;
    static const socklen_t odd[] = {0, 1, 2, 15, 129, INT_MAX, (socklen_t)-1}; /* in a message 0 is no name */
    bool wrong = by_name && how == 0 && draw(6) == 0;
    socklen_t len = !by_name ? 0 : wrong ? odd[draw(sizeof odd / sizeof *odd)] : sizeof(struct sockaddr_in);
    struct sockaddr_in at = here;
    if (to)
        at = name_of_slot(to);
    struct iovec vec[2] = {{data, (size_t)n / 2}, {data + n / 2, (size_t)(n - n / 2)}};
    struct mmsghdr m = {
        .msg_hdr = {.msg_name = by_name ? &at : NULL, .msg_namelen = len, .msg_iov = vec, .msg_iovlen = 2}};
    long rc = how == 0   ? sendto(fd_of(s), data, (size_t)n, 0, by_name ? (struct sockaddr *)&at : NULL, len)
              : how == 1 ? sendmsg(fd_of(s), &m.msg_hdr, 0)
                         : sendmmsg(fd_of(s), &m, 1, 0);
    if (how == 2 && rc == 1)
        rc = m.msg_len;
    note(s, by_name ? "sendto" : "send", rc);
    if (rc < 0) {
        s->told &= wrong;
        return;
    }
    s->named = true;
    count_sent(s, to, n);
}

static void receive_datagram(void)
{
    struct slot *s = some(DATAGRAM);
    struct room r;
    static const int flags[] = {0, MSG_PEEK, MSG_TRUNC, MSG_PEEK | MSG_TRUNC};
    int how = flags[draw(4)];
    unsigned room = draw(1500);
    if (!s)
        return;
    struct iovec vec[2] = {{data, room / 2}, {data + room / 2, room - room / 2}};
    draw_room(&r);
    struct msghdr m = {.msg_name = r.to, .msg_namelen = sizeof r.name, .msg_iov = vec, .msg_iovlen = 2};
    int waits = s->n && !s->told && draw(2) ? 0 : MSG_DONTWAIT;
    bool whole = draw(2), lost = !whole && cannot_be_told(&r);
    long rc = whole ? recvmsg(fd_of(s), &m, waits | how) : recvfrom(fd_of(s), data, room, waits | how, r.to, r.len);
    bool told = s->told;
    note(s, how & MSG_PEEK ? "peek" : "recvfrom", rc);
    if (rc < 0)
        s->told = false;
    else {
        say_room(&r);
        printf("%u %d\n", whole ? m.msg_namelen : 0, whole ? m.msg_flags : 0);
    }
    if ((rc >= 0 || (lost && !told)) && !(how & MSG_PEEK) && s->n)
        take(s);
}

static void shut_datagrams(void)
{
    struct slot *s = draw(4) ? NULL : some(DATAGRAM);
    if (s)
        note(s, "shutdown", shutdown(fd_of(s), (int)draw(3)));
}

#endif
