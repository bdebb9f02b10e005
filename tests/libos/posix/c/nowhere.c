/* A program that knows nothing of corelane: names, lengths and messages that are nowhere, times that no clock has, and
 * options that a socket takes in some states alone. It prints the results of its calls; the test runs it on Linux'
 * sockets and on ours, and compares (../test_twin.py).
 *
 *   nowhere ADDRESS SEQUENCE */
#include "pairs.h"

#include <limits.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

enum { FRESH, BOUND, LISTENS, CONNECTS, ACCEPTED, OVER, DATAGRAM, JOINED, KINDS };

static char data[64];
static const struct iovec *volatile no_pieces; /* of which the compiler does not know */
static struct pollfd *volatile no_polls;

/* One of each kind; the first connection waits at the listener. */
static void make(int *fds)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    int peer;
    fds[FRESH] = socket(AF_INET, SOCK_STREAM, 0);
    fds[BOUND] = socket(AF_INET, SOCK_STREAM, 0);
    fds[LISTENS] = listener(&at);
    pair(&fds[CONNECTS], &fds[ACCEPTED]);
    pair(&fds[OVER], &peer);
    setsockopt(peer, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(peer);
    wait_for(fds[OVER], POLLHUP);
    fds[DATAGRAM] = socket(AF_INET, SOCK_DGRAM, 0);
    fds[JOINED] = socket(AF_INET, SOCK_DGRAM, 0);
    bind(fds[BOUND], (struct sockaddr *)&here, sizeof here);
    bind(fds[JOINED], (struct sockaddr *)&here, sizeof here);
    getsockname(fds[JOINED], (struct sockaddr *)&at, &len);
    say("connect", connect(fds[JOINED], (struct sockaddr *)&at, sizeof at));
}

static void end(const int *fds)
{
    for (int i = 0; i < KINDS; i++)
        close(fds[i]);
}

static const socklen_t lengths[] = {0, 1, 2, 15, 16, 17, 128, 129, INT_MAX, (socklen_t)-1};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static void say_of(int kind, const char *what, long rc)
{
    printf("%d. ", kind);
    say(what, rc);
}

/* Names that a call is given. A zero is of no family. */
static void given(void)
{
    static const struct sockaddr_storage zero;
    int fds[KINDS];
    for (unsigned i = 0; i < LENGTHS; i++) {
        socklen_t len = lengths[i];
        make(fds);
        printf("of %d bytes\n", (int)len);
        for (int k = 0; k < KINDS; k++) {
            say_of(k, "bind to nowhere", bind(fds[k], NULL, len));
            say_of(k, "connect to nowhere", connect(fds[k], NULL, len));
            say_of(k, "sendto nowhere", sendto(fds[k], "", 0, MSG_NOSIGNAL, NULL, len));
            if (len < 2 || len > 128) {
                say_of(k, "bind", bind(fds[k], (const struct sockaddr *)&zero, len));
                say_of(k, "connect", connect(fds[k], (const struct sockaddr *)&zero, len));
                say_of(k, "sendto", sendto(fds[k], "", 0, MSG_NOSIGNAL, (const struct sockaddr *)&zero, len));
            }
        }
        end(fds);
    }
}

/* Have something to be read by all, and a connection to be taken. */
static void fill(const int *fds)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    int c = socket(AF_INET, SOCK_STREAM, 0);
    getsockname(fds[LISTENS], (struct sockaddr *)&at, &len);
    if (connect(c, (struct sockaddr *)&at, sizeof at) || write(fds[CONNECTS], "x", 1) != 1 ||
        write(fds[ACCEPTED], "y", 1) != 1 || write(fds[JOINED], "z", 1) != 1)
        printf("nothing is sent: %s\n", name_of(errno));
    wait_for(fds[LISTENS], POLLIN);
    wait_for(fds[CONNECTS], POLLIN);
    wait_for(fds[ACCEPTED], POLLIN);
    wait_for(fds[JOINED], POLLIN);
    close(c);
}

/* A call that tells a name, and how long that is; after EFAULT the length differs between kernels. */
static void say_name(int kind, const char *what, long rc, const struct sockaddr_storage *name, const socklen_t *room)
{
    say_of(kind, what, rc);
    printf("%d of family %d\n", room && rc >= 0 ? (int)*room : 0, rc >= 0 ? name->ss_family : 0);
}

/* Where one is to be told: nowhere, or in so many bytes. */
static void tell_all(const int *fds, bool named, const socklen_t *bytes)
{
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 4; i++) {
            struct sockaddr_storage name;
            struct sockaddr *to = named ? (struct sockaddr *)&name : NULL;
            socklen_t len = bytes ? *bytes : 0, *room = bytes ? &len : NULL;
            memset(&name, 0, sizeof name);
            if (i == 0)
                say_name(k, "getsockname", getsockname(fds[k], to, room), &name, room);
            else if (i == 1)
                say_name(k, "getpeername", getpeername(fds[k], to, room), &name, room);
            else if (i == 2)
                say_name(k, "recvfrom", recvfrom(fds[k], data, 1, MSG_DONTWAIT, to, room), &name, room);
            else {
                int fd = accept(fds[k], to, room);
                say_name(k, "accept", fd < 0 ? -1 : 0, &name, room);
                if (fd >= 0)
                    close(fd);
            }
        }
}

static void names(void)
{
    int fds[KINDS];
    make(fds);
    for (unsigned i = 0; i < 2 * (LENGTHS + 1); i++) {
        const socklen_t *bytes = i / 2 < LENGTHS ? &lengths[i / 2] : NULL;
        fill(fds);
        printf("%s in %d bytes\n", i % 2 ? "a name" : "nowhere", bytes ? (int)*bytes : -2);
        tell_all(fds, i % 2, bytes);
    }
    end(fds);
}

/* Messages and other things that a call is to read or to write. */
static void messages(void)
{
    int fds[KINDS];
    make(fds);
    for (int k = 0; k < KINDS; k++) {
        struct msghdr m = {.msg_namelen = 16, .msg_iov = &(struct iovec){data, 1}, .msg_iovlen = 1};
        struct msghdr none = {.msg_iovlen = 2};
        fill(fds);
        say_of(k, "recvmsg", recvmsg(fds[k], &m, MSG_DONTWAIT));
        printf("a name of %u bytes\n", m.msg_namelen);
        say_of(k, "recvmsg nowhere", recvmsg(fds[k], NULL, MSG_DONTWAIT));
        say_of(k, "recvmsg without pieces", recvmsg(fds[k], &none, MSG_DONTWAIT));
        say_of(k, "sendmsg from nowhere", sendmsg(fds[k], NULL, MSG_NOSIGNAL));
        say_of(k, "sendmsg without pieces", sendmsg(fds[k], &none, MSG_NOSIGNAL));
        say_of(k, "readv", readv(fds[k], no_pieces, 2));
        say_of(k, "writev", writev(fds[k], no_pieces, 2));
        say_of(k, "FIONREAD", ioctl(fds[k], FIONREAD, NULL));
        say_of(k, "SIOCOUTQ", ioctl(fds[k], SIOCOUTQ, NULL));
        say_of(k, "FIONBIO", ioctl(fds[k], FIONBIO, NULL));
        say_of(k, "FIOASYNC", ioctl(fds[k], FIOASYNC, NULL));
        say_of(k, "getsockopt", getsockopt(fds[k], SOL_SOCKET, SO_ACCEPTCONN, data, NULL));
        say_of(k, "getsockopt into nothing", getsockopt(fds[k], SOL_SOCKET, SO_ACCEPTCONN, NULL, &(socklen_t){4}));
        say_of(k, "setsockopt", setsockopt(fds[k], IPPROTO_TCP, TCP_NODELAY, NULL, 4));
        int fd = k == LISTENS ? accept(fds[k], NULL, NULL) : -1;
        if (fd >= 0)
            close(fd);
    }
    say("poll", poll(no_polls, 1, 0));
    say("ppoll", ppoll(no_polls, 1, &(struct timespec){0, 0}, NULL));
    end(fds);
}

/* One that is ready, by a time that a call may find wrong; what is left of it is not compared. */
static void wait_so_long(int fd, time_t s, long part)
{
    struct timespec t = {s, part};
    struct timeval v = {s, part};
    struct pollfd p = {fd, POLLIN, 0};
    fd_set in;
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &(struct iovec){data, 1}, .msg_iovlen = 1}};
    printf("%ld s and %ld\n", (long)s, part);
    FD_ZERO(&in);
    FD_SET(fd, &in);
    say("select", select(fd + 1, &in, NULL, NULL, &v));
    FD_SET(fd, &in);
    say("pselect", pselect(fd + 1, &in, NULL, NULL, &t, NULL));
    say("ppoll", ppoll(&p, 1, &t, NULL));
    say("recvmmsg", recvmmsg(fd, &m, 1, MSG_PEEK, &(struct timespec){s, part}));
    for (int i = 0; i < 2; i++)
        say(i ? "SO_SNDTIMEO" : "SO_RCVTIMEO",
            setsockopt(fd, SOL_SOCKET, i ? SO_SNDTIMEO : SO_RCVTIMEO, &(struct timeval){s, part}, sizeof v));
#ifdef SYS_select
    v = (struct timeval){s, part};
    FD_SET(fd, &in);
    say("Linux' own", syscall(SYS_select, fd + 1, &in, NULL, NULL, &v));
#endif
}

static void times(void)
{
    static const time_t seconds[] = {-1, 0, 1, 9223372036, 9223372037, LONG_MAX / 1000, LONG_MAX};
    static const long parts[] = {LONG_MIN,       -1000000,       -1,      0, 999999, 1000000, 1000000000, INT_MAX,
                                 (1l << 31) + 5, (1l << 32) + 5, LONG_MAX};
    int c, s;
    pair(&c, &s);
    say("write", write(c, "x", 1));
    wait_for(s, POLLIN);
    for (unsigned i = 0; i < sizeof seconds / sizeof *seconds; i++)
        for (unsigned k = 0; k < sizeof parts / sizeof *parts; k++)
            wait_so_long(s, seconds[i], parts[k]);
}

static volatile sig_atomic_t rang;

static void ring(int number)
{
    (void)number;
    rang = 1;
}

/* They are waited for: until a signal comes. */
static void longest(void)
{
    struct sigaction a = {.sa_handler = ring};
    struct timeval v = {LONG_MAX / 1000, 0};
    struct timespec t = {LONG_MAX / 1000, 0};
    int c, s, epfd = epoll_create1(0);
    fd_set in;
    pair(&c, &s);
    sigaction(SIGALRM, &a, NULL);
    struct pollfd p = {s, POLLIN, 0};
    struct epoll_event e;
    say("watch", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    for (int i = 0; i < 5; i++) {
        FD_ZERO(&in);
        FD_SET(s, &in);
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 2000}, {0, 2000}}, NULL); /* again, if it came too early */
        long rc = i == 0   ? select(s + 1, &in, NULL, NULL, &v)
                  : i == 1 ? pselect(s + 1, &in, NULL, NULL, &t, NULL)
                  : i == 2 ? ppoll(&p, 1, &t, NULL)
                  : i == 3 ? epoll_pwait2(epfd, &e, 1, &t, NULL)
                           : setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){LONG_MAX / 1000, 0}, sizeof v) ||
                                 read(s, data, 1);
        setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
        say("until a signal", rc ? -1 : 0);
    }
}

/* Options that a socket takes in some states alone. */
static void states(void)
{
    static const struct {
        int name;
        const char *text;
    } options[] = {{TCP_WINDOW_CLAMP, "TCP_WINDOW_CLAMP"},
                   {TCP_FASTOPEN, "TCP_FASTOPEN"},
                   {TCP_FASTOPEN_CONNECT, "TCP_FASTOPEN_CONNECT"},
                   {TCP_FASTOPEN_NO_COOKIE, "TCP_FASTOPEN_NO_COOKIE"},
                   {TCP_REPAIR_QUEUE, "TCP_REPAIR_QUEUE"},
                   {TCP_REPAIR_OPTIONS, "TCP_REPAIR_OPTIONS"},
                   {TCP_QUEUE_SEQ, "TCP_QUEUE_SEQ"},
                   {TCP_TIMESTAMP, "TCP_TIMESTAMP"},
                   {TCP_REPAIR, "TCP_REPAIR"}};
    static const int values[] = {0, 2, -2, 5};
    int fds[KINDS];
    make(fds);
    for (int k = 0; k < DATAGRAM; k++) {
        for (unsigned i = 0; i < sizeof options / sizeof *options; i++)
            for (unsigned v = 0; v < sizeof values / sizeof *values; v++) {
                int rc = setsockopt(fds[k], IPPROTO_TCP, options[i].name, &values[v], sizeof values[v]);
                printf("%d: %s %d: %s\n", k, options[i].text, values[v], rc ? name_of(errno) : "0");
            }
        say_of(k, "on", k == LISTENS ? setsockopt(fds[k], IPPROTO_TCP, TCP_REPAIR, &(int){1}, sizeof(int)) : 0);
        say_of(k, "at connect", setsockopt(fds[k], IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &(int){1}, sizeof(int)));
    }
    end(fds);
}

static const struct sequence sequences[] = {{"given", given}, {"names", names},     {"messages", messages},
                                            {"times", times}, {"longest", longest}, {"options", states},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
