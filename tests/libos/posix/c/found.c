/* A program that knows nothing of corelane: calls by which drawn ones (fuzz.c) once returned something else than on
 * Linux' sockets. It prints the results; the test runs it on both, and compares (../test_twin.py).
 *
 *   found ADDRESS SEQUENCE */
#include "bound.h"
#include "pairs.h"

#include <pthread.h>
#include <stdint.h>

static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

static long connect_to(int fd, const struct sockaddr_in *at)
{
    return connect(fd, (const struct sockaddr *)at, sizeof *at);
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
}

/* What has come is read after reading was shut; so is what comes then. */
static void shut_with_something_left(void)
{
    int c, s;
    char data[8];
    pair(&c, &s);
    say("write", write(c, "abc", 3));
    wait_for(s, POLLIN);
    say("shutdown", shutdown(s, SHUT_RD));
    say_poll(s);
    say("recv that peeks", recv(s, data, 8, MSG_PEEK));
    say("recv", recv(s, data, 2, 0));
    say("recv of all", recv(s, data, 8, MSG_WAITALL));
    say("recv", recv(s, data, 8, 0));
    say("recv of nothing", recv(s, data, 0, 0));
    say("write", write(s, "x", 1));
    wait_for(c, POLLIN);
    say("recv", recv(c, data, 8, 0));
    say("shutdown", shutdown(s, SHUT_WR));
    wait_for(c, POLLRDHUP);
    say_poll(s);
    say("recv", recv(c, data, 8, 0));
}

/* Why it is over is told all the same. */
static void shut_and_reset(void)
{
    struct linger none = {1, 0};
    int c, s;
    char data[8];
    pair(&c, &s);
    say("shutdown", shutdown(s, SHUT_RD));
    say("SO_LINGER", setsockopt(c, SOL_SOCKET, SO_LINGER, &none, sizeof none));
    say("close", close(c));
    wait_for(s, POLLERR);
    say("recv", recv(s, data, 8, 0));
    say("recv", recv(s, data, 8, 0));
}

static void *receive(void *arg)
{
    char data[8];
    say("recv", recv((int)(intptr_t)arg, data, sizeof data, 0));
    return NULL;
}

static void shut_while_another_reads(void)
{
    pthread_t thread;
    int c, s;
    pair(&c, &s);
    pthread_create(&thread, NULL, receive, (void *)(intptr_t)s);
    poll(NULL, 0, 10); /* before it, or while it waits: the same */
    shutdown(s, SHUT_RD);
    pthread_join(thread, NULL);
}

/* A connection to nobody. */
static void to_nobody(void)
{
    struct sockaddr_in at;
    char data[8];
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0);
    say("of a new one", connect(c, &nobody, sizeof nobody));
    say("connect", connect_to(c, &at));
    int s = say_fd("accept", accept(l, NULL, NULL));
    say("of a connection", connect(c, &nobody, sizeof nobody));
    wait_for(s, POLLERR);
    say("its peer", recv(s, data, 8, 0));
    int error; /* that it was reset is told to itself by Linux alone */
    socklen_t len = sizeof error;
    getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len);
    say("recv", recv(c, data, 8, 0));
    say("connect", connect_to(c, &at));
    int next = say_fd("accept", accept(l, NULL, NULL));
    say("write", write(c, "abc", 3));
    say("recv", recv(next, data, 3, MSG_WAITALL));
    say("of a listener", connect(l, &nobody, sizeof nobody));
    say("accept", accept(l, NULL, NULL));
    say_name(l);
    say("listen", listen(l, 1));
}

/* Of datagrams: a port that nobody has named is given back. */
static void ports_given_back(void)
{
    struct sockaddr_in at, other;
    socklen_t len = sizeof other;
    int s = bound(&at), c = new_socket(), unsent = new_socket();
    say("connect", connect_to(c, &at));
    say_name(c);
    say("to nobody", connect(c, &nobody, sizeof nobody));
    say_name(c);
    say("bind", bind(c, (struct sockaddr *)&here, sizeof here));
    say_name(c);
    say("to nobody", connect(c, &nobody, sizeof nobody));
    say_name(c);
    say("sendto", send_at(c, "abc", 3, 0, &at));
    wait_for(s, POLLIN);
    say_name(c);
    getsockname(s, (struct sockaddr *)&other, &len);
    say("of one that was named", connect(s, (struct sockaddr *)&other, sizeof other));
    say("send without a peer", send(unsent, "x", 1, 0));
    say_name(unsent);
    say("to nobody", connect(unsent, &nobody, sizeof nobody));
    say_name(unsent);
    say("bind", bind(unsent, (struct sockaddr *)&here, sizeof here));
}

/* An error that has come is told before that writing is shut. */
static void refused_and_shut(void)
{
    struct sockaddr_in at;
    int s = bound(&at), c = new_socket();
    say("connect", connect_to(c, &at));
    say("close", close(s));
    say("send", send(c, "x", 1, 0));
    wait_for(c, POLLERR);
    say("shutdown", shutdown(c, SHUT_WR));
    say("send", send(c, "x", 1, MSG_NOSIGNAL));
    say("send", send(c, "x", 1, MSG_NOSIGNAL));
}

/* A set in a set is told of beside what is ready there itself. */
static void nested_beside(void)
{
    int c, s, inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event e[4];
    pair(&c, &s);
    say("ADD", watch(inner, EPOLL_CTL_ADD, c, EPOLLOUT, 1));
    say("ADD", watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2));
    say("ADD", watch(outer, EPOLL_CTL_ADD, s, EPOLLOUT, 3));
    for (int i = 0; i < 10; i++)
        say("epoll_wait", epoll_wait(outer, e, 4, 0));
}

static const struct sequence sequences[] = {{"shut_with_something_left", shut_with_something_left},
                                            {"shut_and_reset", shut_and_reset},
                                            {"shut_while_another_reads", shut_while_another_reads},
                                            {"to_nobody", to_nobody},
                                            {"ports_given_back", ports_given_back},
                                            {"refused_and_shut", refused_and_shut},
                                            {"nested_beside", nested_beside},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
