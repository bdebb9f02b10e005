/* A program that knows nothing of corelane: connections that are given up, by connect to nobody or by another shutdown,
 * and what is told of them afterwards. It prints the results; the test runs it on Linux' sockets and on ours, and
 * compares (../test_twin.py).
 *
 *   left ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>

static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

static void to_nobody(int fd)
{
    say("to nobody", connect(fd, &nobody, sizeof nobody));
}

static void say_error(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    say("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("%s\n", error ? name_of(error) : "none");
}

static void say_poll(int fd)
{
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    say("poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
}

static void say_name(int fd)
{
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    say("getsockname", getsockname(fd, (struct sockaddr *)&at, &len));
    printf("ours: %d, a port: %d\n", at.sin_addr.s_addr == here.sin_addr.s_addr, at.sin_port != 0);
    say("getpeername", getpeername(fd, (struct sockaddr *)&at, &len));
}

static long connect_to(int fd, const struct sockaddr_in *at)
{
    return connect(fd, (const struct sockaddr *)at, sizeof *at);
}

static long send_one(int fd)
{
    return send(fd, "x", 1, MSG_NOSIGNAL);
}

static long receive(int fd)
{
    char data[8];
    return recv(fd, data, sizeof data, MSG_DONTWAIT);
}

/* That it was reset is told once: to who asks, reads or writes first. */
static void told_once(void)
{
    int c, s, epfd = epoll_create1(0);
    for (int how = 0; how < 4; how++) {
        pair(&c, &s);
        if (how == 3)
            say("ADD", watch(epfd, EPOLL_CTL_ADD, c, EPOLLIN, 1));
        to_nobody(c);
        say_name(c);
        if (how == 3)
            say_told("epoll_wait", epfd);
        say_poll(c);
        if (how == 0)
            say_error(c);
        else
            say("first", how == 1 ? receive(c) : how == 2 ? send_one(c) : recv(c, NULL, 0, MSG_DONTWAIT));
        say_poll(c);
        say_error(c);
        say("recv", receive(c));
        say("send", send_one(c));
        wait_for(s, POLLERR);
        say_error(s);
        close(c);
        close(s);
    }
}

/* By the end of a connection that it accepted, too; and it may then be used anew. */
static void both_ends(void)
{
    struct sockaddr_in at;
    int c, s, l = listener(&at);
    pair(&c, &s);
    to_nobody(s);
    wait_for(c, POLLERR);
    say("recv", receive(c));
    to_nobody(c); /* it is over */
    say_error(c);
    say("connect", connect_to(c, &at));
    say("connect", connect_to(s, &at));
    say_error(s); /* of the connection that it has now */
    say("bind", bind(c, (struct sockaddr *)&here, sizeof here));
    for (int i = 0; i < 2; i++) {
        int fd = say_fd("accept", accept(l, NULL, NULL));
        say("write", write(fd, "abc", 3));
    }
    wait_for(c, POLLIN);
    wait_for(s, POLLIN);
    say("recv", receive(c));
    say("recv", receive(s));
}

/* An address that it was bound to, or its listener, is its own still; one that was found is not. */
static void keeps_its_address(void)
{
    struct sockaddr_in at, any = here;
    any.sin_addr.s_addr = INADDR_ANY;
    int l = listener(&at);
    for (int how = 0; how < 3; how++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        say("bind to a port that is taken", bind(c, (struct sockaddr *)&at, sizeof at));
        if (how)
            say("bind", bind(c, (struct sockaddr *)(how == 1 ? &any : &here), sizeof any));
        for (int i = 0; i < 2; i++) {
            say("connect", connect_to(c, &at));
            int s = say_fd("accept", accept(l, NULL, NULL));
            say_name(c);
            to_nobody(c);
            say_name(c);
            to_nobody(s);
            say_name(s);
            say("connect", connect_to(s, &at));
            close(say_fd("accept", accept(l, NULL, NULL)));
            to_nobody(s);
            say_name(s);
            close(s);
        }
        close(c);
    }
}

/* One that was bound after its connection was over is bound as any: a port that it did not ask for is given back. */
static void bound_when_over(void)
{
    struct sockaddr_in at;
    int c, s, l = listener(&at);
    struct linger none = {1, 0};
    pair(&c, &s);
    setsockopt(s, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(s);
    wait_for(c, POLLERR);
    say("bind", bind(c, (struct sockaddr *)&here, sizeof here));
    say("bind", bind(c, (struct sockaddr *)&here, sizeof here));
    to_nobody(c); /* which it was already: that port stays */
    say("bind", bind(c, (struct sockaddr *)&here, sizeof here));
    say("connect", connect_to(c, &at));
    s = say_fd("accept", accept(l, NULL, NULL));
    setsockopt(s, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(s);
    wait_for(c, POLLERR);
    say("bind", bind(c, (struct sockaddr *)&here, sizeof here));
    say("bind", bind(c, (struct sockaddr *)&here, sizeof here));
    say_name(c);
}

/* What nobody had asked for stays to be told; what somebody has is not told again. */
static void after_a_reset(void)
{
    struct linger none = {1, 0};
    for (int asked = 0; asked < 2; asked++) {
        int c, s;
        pair(&c, &s);
        setsockopt(s, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        close(s);
        wait_for(c, POLLERR);
        if (asked)
            say_error(c);
        to_nobody(c);
        say_poll(c);
        say_error(c);
        say("recv", receive(c));
        close(c);
    }
}

/* Both have said their end: there is nothing to reset. */
static void after_the_end(void)
{
    for (int first = 0; first < 2; first++) {
        int c, s;
        pair(&c, &s);
        say("shutdown", shutdown(first ? c : s, SHUT_WR));
        wait_for(first ? s : c, POLLRDHUP);
        if (first) { /* one of them has: the other's may come still */
            to_nobody(c);
            say_error(c);
            wait_for(s, POLLERR);
            say_error(s);
        } else {
            say("shutdown", shutdown(c, SHUT_WR));
            wait_for(s, POLLHUP);
            struct sockaddr_in at;
            socklen_t len = sizeof at;
            for (int i = 0; i < 10000 && getpeername(c, (struct sockaddr *)&at, &len) == 0; i++)
                poll(NULL, 0, 1); /* until its FIN is acknowledged */
            to_nobody(c);
            to_nobody(s);
            say_error(c);
            say_error(s);
        }
        close(c);
        close(s);
    }
}

/* One that was shut before it was anything is as new. */
static void forgets_a_shutdown(void)
{
    struct sockaddr_in at;
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0), epfd = epoll_create1(0);
    say("recv", receive(c));
    say("shutdown", shutdown(c, SHUT_RDWR));
    say("recv", receive(c));
    say("send", send_one(c));
    say_poll(c);
    to_nobody(c);
    say("recv", receive(c));
    say("ADD", watch(epfd, EPOLL_CTL_ADD, c, EPOLLIN, 1));
    say_told("epoll_wait", epfd);
    say("connect", connect_to(c, &at));
    say("send", send_one(c));
    int s = say_fd("accept", accept(l, NULL, NULL));
    wait_for(s, POLLIN);
    say("recv", receive(s));
    say("shutdown", shutdown(c, SHUT_RDWR));
    to_nobody(c);
    say_error(c);
    say("connect", connect_to(c, &at));
    say("send", send_one(c));
    int b = socket(AF_INET, SOCK_STREAM, 0);
    say("bind", bind(b, (struct sockaddr *)&here, sizeof here));
    say("shutdown", shutdown(b, SHUT_WR));
    to_nobody(b);
    say("connect", connect_to(b, &at));
    say("send", send_one(b));
}

/* Refused, and told by SO_ERROR: the next connect says no more than that; the one after that tries anew. */
static void refused(void)
{
    struct sockaddr_in at;
    for (int asked = 0; asked < 3; asked++) {
        int l = listener(&at), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        close(l);
        say("connect", connect_to(c, &at));
        wait_for(c, POLLOUT);
        say_poll(c);
        if (asked == 1)
            say_error(c);
        if (asked == 2) {
            to_nobody(c);
            say_error(c);
        } else
            say("connect", connect_to(c, &at));
        say_error(c);
        say("connect", connect_to(c, &at));
        wait_for(c, POLLOUT);
        say("recv", receive(c));
        say("recv", receive(c));
        say("send", send_one(c));
        close(c);
    }
}

/* Port 0 is nobody's. */
static void no_port(void)
{
    int c = socket(AF_INET, SOCK_STREAM, 0);
    say("connect", connect_to(c, &here));
    say_poll(c);
    say_error(c);
}

/* There is nobody who would answer: of Linux' a listener whose queue is full. */
static void while_it_opens(void)
{
    struct sockaddr_in at;
    int l = listener(&at);
    say("listen", listen(l, 0));
    if (ntohl(here.sin_addr.s_addr) >> 24 != 127)
        at.sin_addr.s_addr = htonl(ntohl(here.sin_addr.s_addr) + 1);
    else
        for (int i = 0; i < 2; i++) {
            int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            (void)connect_to(c, &at);
        }
    for (int how = -1; how <= SHUT_RDWR; how++) {
        int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        say("connect", connect_to(c, &at));
        say("connect", connect_to(c, &at));
        say_poll(c);
        say("recv", receive(c));
        say_error(c);
        if (how < 0)
            to_nobody(c);
        else
            say("shutdown", shutdown(c, how));
        say_poll(c);
        say_error(c);
        say("connect", connect_to(c, &at));
        close(c);
    }
}

/* What is unread makes it a reset, though the other has said its end, and close waits. */
static void lingers_with_something_unread(void)
{
    struct linger wait = {1, 1};
    int c, s;
    pair(&c, &s);
    say("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &wait, sizeof wait));
    say("write", write(c, "abc", 3));
    say("shutdown", shutdown(c, SHUT_WR));
    wait_for(s, POLLRDHUP);
    say("close", close(s));
    wait_for(c, POLLHUP);
    say_poll(c);
    say("recv", receive(c));
    say("recv", receive(c));
}

static void say_held(int fd)
{
    static const int names[] = {TCP_NODELAY, TCP_CORK};
    for (unsigned i = 0; i < 2; i++) {
        int value = -1;
        socklen_t len = sizeof value;
        say(i ? "TCP_CORK" : "TCP_NODELAY", getsockopt(fd, IPPROTO_TCP, names[i], &value, &len));
        printf("%d, %u bytes\n", value, len);
    }
}

/* What holds small segments back, of one that is given up and connected to Linux' 127.0.0.1 then. */
static void keeps_what_holds(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM, 0), c, s, on = 7, off = 0;
    say("bind", bind(l, (struct sockaddr *)&at, sizeof at));
    say("listen", listen(l, 1));
    say("getsockname", getsockname(l, (struct sockaddr *)&at, &len));
    pair(&c, &s);
    say_held(c);
    say("TCP_NODELAY", setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    say("TCP_CORK", setsockopt(c, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    say("TCP_NODELAY", setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    say("TCP_NODELAY", setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off));
    say("no value", setsockopt(c, IPPROTO_TCP, TCP_CORK, NULL, sizeof on));
    say_held(c);
    say_held(s);
    to_nobody(c);
    say_held(c);
    say("connect", connect_to(c, &at));
    say_held(c);
}

static int raced;
static _Atomic int racing;

/* All that another thread can ask of a connection that this moment is given up. */
static void *ask(void *arg)
{
    (void)arg;
    while (racing) {
        struct sockaddr_in at;
        struct tcp_info info;
        int value;
        socklen_t len = sizeof at, size = sizeof value, of_info = sizeof info;
        char byte;
        (void)shutdown(raced, SHUT_WR);
        (void)send(raced, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)recv(raced, &byte, 1, MSG_DONTWAIT);
        (void)getpeername(raced, (struct sockaddr *)&at, &len);
        (void)getsockopt(raced, SOL_SOCKET, SO_ERROR, &value, &size);
        (void)getsockopt(raced, IPPROTO_TCP, TCP_INFO, &info, &of_info);
    }
    return NULL;
}

/* By one thread, while another one asks it everything. */
static void while_another_asks(void)
{
    struct sockaddr_in at;
    struct linger now = {1, 1};
    pthread_t thread;
    int l = listener(&at), s, n = 0;
    raced = socket(AF_INET, SOCK_STREAM, 0);
    say("fcntl", fcntl(l, F_SETFL, O_NONBLOCK));
    say("SO_LINGER", setsockopt(raced, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    racing = 1;
    if (pthread_create(&thread, NULL, ask, NULL))
        exit(1);
    for (; n < 200; n++) {
        (void)connect_to(raced, &at);
        (void)connect(raced, &nobody, sizeof nobody);
        while ((s = accept(l, NULL, NULL)) >= 0)
            close(s);
    }
    racing = 0;
    pthread_join(thread, NULL);
    printf("given up %d times\n", n);
    say("close", close(raced));
}

static const struct sequence sequences[] = {{"told_once", told_once},
                                            {"both_ends", both_ends},
                                            {"keeps_its_address", keeps_its_address},
                                            {"bound_when_over", bound_when_over},
                                            {"after_a_reset", after_a_reset},
                                            {"after_the_end", after_the_end},
                                            {"forgets_a_shutdown", forgets_a_shutdown},
                                            {"refused", refused},
                                            {"no_port", no_port},
                                            {"while_it_opens", while_it_opens},
                                            {"keeps_what_holds", keeps_what_holds},
                                            {"lingers_with_something_unread", lingers_with_something_unread},
                                            {"while_another_asks", while_another_asks},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
