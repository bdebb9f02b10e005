/* A program that knows nothing of corelane: sockets beside what stays Linux', in one epoll, poll and select. It prints
 * the results of its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   worlds ADDRESS SEQUENCE */
#include "pairs.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#define OTHERS 6

struct others {
    int fds[OTHERS]; /* to be read; of Linux */
    int pipe_in, unix_in, local_in, event;
};

/* A connection of 127.0.0.1, which is Linux' whatever else is. */
static void local_pair(int *c, int *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    say("bind on 127.0.0.1", bind(l, (struct sockaddr *)&at, sizeof at));
    say("listen", listen(l, 1));
    getsockname(l, (struct sockaddr *)&at, &len);
    *c = socket(AF_INET, SOCK_STREAM, 0);
    say("connect", connect(*c, (struct sockaddr *)&at, sizeof at));
    *s = say_fd("accept", accept(l, NULL, NULL));
    say("close", close(l));
}

static struct others make(void)
{
    int p[2], u[2];
    struct others o = {.event = eventfd(0, EFD_NONBLOCK)};
    sigset_t usr;
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr, NULL);
    say("pipe", pipe(p));
    say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, u));
    local_pair(&o.local_in, &o.fds[5]);
    o.fds[0] = o.event;
    o.fds[1] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    o.fds[2] = signalfd(-1, &usr, SFD_NONBLOCK);
    o.fds[3] = p[0];
    o.fds[4] = u[0];
    o.pipe_in = p[1];
    o.unix_in = u[1];
    return o;
}

static void make_ready(const struct others *o, int which)
{
    uint64_t one = 1;
    struct itimerspec soon = {{0, 0}, {0, 1}};
    switch (which) {
    case 0:
        say("write", write(o->event, &one, sizeof one));
        break;
    case 1:
        say("timerfd_settime", timerfd_settime(o->fds[1], 0, &soon, NULL));
        break;
    case 2:
        say("raise", raise(SIGUSR1));
        break;
    default:
        say("write", write(which == 3 ? o->pipe_in : which == 4 ? o->unix_in : o->local_in, "x", 1));
    }
}

/* Each is told of, by whatever call, and ours with it. */
static void each(void)
{
    struct others o = make();
    struct epoll_event e[2];
    int c, s, epfd = epoll_create1(0);
    char data[256];
    pair(&c, &s);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 100));
    for (unsigned i = 0; i < OTHERS; i++)
        say("ADD", watch(epfd, EPOLL_CTL_ADD, o.fds[i], EPOLLIN, i));
    for (int i = 0; i < OTHERS; i++) {
        make_ready(&o, i);
        say("epoll_wait", epoll_wait(epfd, e, 2, 10000));
        printf("of %u\n", e[0].data.u32);
        say("write", write(c, "y", 1));
        wait_for(s, POLLIN);
        struct pollfd p[2] = {{o.fds[i], POLLIN, 0}, {s, POLLIN, 0}};
        say("poll", poll(p, 2, 10000));
        fd_set in;
        FD_ZERO(&in);
        FD_SET(o.fds[i], &in);
        FD_SET(s, &in);
        say("select", select((o.fds[i] > s ? o.fds[i] : s) + 1, &in, NULL, NULL, NULL));
        printf("both: %d\n", FD_ISSET(o.fds[i], &in) && FD_ISSET(s, &in));
        int n = 0;
        for (int tries = 0; n < 2 && tries < 100; tries++) /* which of the two worlds is told of first is open */
            n = epoll_wait(epfd, e, 2, 0);
        printf("epoll_wait: %d, both: %d\n", n, n == 2 && e[0].data.u32 + e[1].data.u32 == 100 + (unsigned)i);
        say("read", read(o.fds[i], data, sizeof data));
        say("read", read(s, data, sizeof data));
        say("nothing", epoll_wait(epfd, e, 2, 0));
    }
}

static const struct sequence sequences[] = {{"each", each}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
