/* Pointers to no memory, as the program that draws calls gives them to calls (fuzz.c): those fail, and but for a
 * datagram and a connection that is to be accepted nothing is lost. */
#ifndef TESTS_LIBOS_POSIX_FUZZ_WILD_H
#define TESTS_LIBOS_POSIX_FUZZ_WILD_H

#include "fuzz_streams.h"
#include "fuzz_waits.h"

#define PAGE 4096

/* writes: the call writes there, and memory for reading will not do either. */
static void *wild_pointer(bool writes)
{
    static char *none; /* a page of no use, and one for reading */
    if (!none) {
        none = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(none, PAGE, PROT_NONE);
    }
    void *all[] = {NULL, (void *)8, (void *)-1, none, none + PAGE - 8, none + PAGE};
    return all[draw(writes ? 6 : 5)];
}

static void read_wild(struct slot *s)
{
    unsigned how = draw(4), n = 1 + draw(2000);
    void *p = wild_pointer(true);
    struct iovec vec = {p, n};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &vec, .msg_iovlen = 1}};
    if (s->reset && s->to_read) /* as in read_some */
        return;
    int fd = fd_of(s);
    long rc = how == 0   ? recv(fd, p, n, MSG_DONTWAIT)
              : how == 1 ? recvmsg(fd, &m.msg_hdr, MSG_DONTWAIT)
              : how == 2 ? preadv2(fd, &vec, 1, -1, RWF_NOWAIT)
                         : recv(fd, p, n, MSG_DONTWAIT | MSG_PEEK);
    int error = rc < 0 ? errno : 0;
    errno = error;
    note(s, "read into no memory", rc);
    if (s->kind != DATAGRAM || p == (void *)-1)
        return;
    if (s->told)
        s->told = false;
    else if (s->n && how != 3)
        take(s);
}

static void write_wild(struct slot *s)
{
    unsigned how = draw(3), n = 1 + draw(1400);
    void *p = wild_pointer(false);
    struct iovec vec[2] = {{p, n}, {data, 1}};
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = 2};
    if (s->kind == DATAGRAM && s->told)
        return;
    int fd = fd_of(s);
    long rc = how == 0 ? send(fd, p, n, MSG_NOSIGNAL) : how == 1 ? sendmsg(fd, &m, MSG_NOSIGNAL) : writev(fd, vec, 2);
    note(s, "write from no memory", rc);
}

static void take_wild(struct slot *l)
{
    socklen_t len = sizeof here;
    struct sockaddr_in name;
    bool of_length = draw(2);
    void *p = wild_pointer(true);
    int first = l->n ? l->queue[0] : -1;
    bool written = first >= 0 ? slots[first].written : first < -1;
    if (!p || written) /* that is no wrong name; of what may be under way still the end depends */
        return;
    int fd = accept(fd_of(l), of_length ? (struct sockaddr *)&name : p, of_length ? p : &len);
    note(l, "accept into no memory", fd);
    if (fd < 0 && l->kind == LISTENS && l->n)
        lose_first(l);
}

static void ask_wild(struct slot *s)
{
    socklen_t len = sizeof here;
    struct sockaddr_in name;
    int value;
    switch (draw(8)) {
    case 0:
        note(s, "getsockname", getsockname(fd_of(s), wild_pointer(true), &len));
        return;
    case 1:
        note(s, "getpeername", getpeername(fd_of(s), (struct sockaddr *)&name, wild_pointer(true)));
        return;
    case 2:
        note(s, "getsockopt", getsockopt(fd_of(s), SOL_SOCKET, SO_ACCEPTCONN, wild_pointer(true), &len));
        return;
    case 3:
        note(s, "getsockopt", getsockopt(fd_of(s), SOL_SOCKET, SO_TYPE, &value, wild_pointer(true)));
        return;
    case 4:
        note(s, "setsockopt", setsockopt(fd_of(s), SOL_SOCKET, SO_KEEPALIVE, wild_pointer(false), sizeof value));
        return;
    case 5:
        if (!s->reset)
            note(s, "FIONREAD", ioctl(fd_of(s), FIONREAD, wild_pointer(true)));
        return;
    case 6:
        note(s, "sendmsg", sendmsg(fd_of(s), wild_pointer(false), MSG_NOSIGNAL));
        return;
    default:
        note(s, "recvmsg", recvmsg(fd_of(s), wild_pointer(false), MSG_DONTWAIT));
        return;
    }
}

static void wait_wild(const struct slot *s)
{
    switch (draw(3)) {
    case 0:
        say("poll of no memory", poll(wild_pointer(false), 1 + draw(40), 0));
        return;
    case 1:
        note(s, "epoll_ctl", epoll_ctl(epfds[draw(SETS)], EPOLL_CTL_ADD, fd_of(s), wild_pointer(false)));
        return;
    default:
        say("epoll_wait into no memory", epoll_wait(epfds[draw(SETS)], wild_pointer(true), 1 + (int)draw(400), 0));
        return;
    }
}

static void wild(void)
{
    struct slot *s = anyone();
    if (!s)
        return;
    switch (draw(5)) {
    case 0:
        read_wild(s);
        return;
    case 1:
        write_wild(s);
        return;
    case 2:
        ask_wild(s);
        return;
    case 3:
        wait_wild(s);
        return;
    default:
        if (s->kind == LISTENS)
            take_wild(s);
        return;
    }
}

#endif
