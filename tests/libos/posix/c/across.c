/* A program that knows nothing of corelane: copies of descriptors, put over others of both worlds, and in epoll. It
 * prints the results of its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   across ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2) /* linux/close_range.h */
#endif

/* A watch goes with what was opened, not with the number. */
static void in_epoll(void)
{
    int c, s, epfd = epoll_create1(0), other = dup(epfd);
    char data[8];
    pair(&c, &s);
    int copy = dup(s);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say("ADD of the copy, by the other", watch(other, EPOLL_CTL_ADD, copy, EPOLLIN | EPOLLONESHOT, 2));
    say("write", write(c, "ab", 2));
    wait_for(s, POLLIN);
    struct epoll_event e[4];
    say("both", epoll_wait(epfd, e, 4, 0));
    say("one", epoll_wait(other, e, 4, 0));
    say("MOD", watch(epfd, EPOLL_CTL_MOD, copy, EPOLLIN, 2));
    say("close", close(s));
    say("both", epoll_wait(epfd, e, 4, 0));
    say("DEL of the closed one", watch(epfd, EPOLL_CTL_DEL, s, 0, 0));
    say("DEL of the copy", watch(epfd, EPOLL_CTL_DEL, copy, 0, 0));
    say_told("the closed one", epfd);
    int again = fcntl(copy, F_DUPFD, s);
    printf("the same number: %d\n", again == s);
    say("ADD of the same number", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 3));
    say("MOD of it", watch(epfd, EPOLL_CTL_MOD, s, EPOLLIN, 4));
    say_told("changed", epfd);
    say("close", close(s));
    say("close", close(epfd));
    say_told("by the other", other);
    say("close of the last", close(copy));
    say_told("nothing", other);
    say("read", read(c, data, 1));
}

/* Over one of ours, of Linux, and of itself. */
static void over(void)
{
    int c, s, p[2], epfd = epoll_create1(0);
    char data[8] = "";
    pair(&c, &s);
    say("pipe", pipe(p));
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLRDHUP, 1));
    say("a pipe over it", dup2(p[0], s) == s ? 0 : -1);
    say_told("nothing", epfd);
    say("the peer reads the end", read(c, data, 8));
    say("write to the pipe", write(p[1], "pipe", 4));
    say("read by its number", read(s, data, 8));
    printf("%s\n", data);
    say("ADD of the pipe", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 2));
    int a, b;
    pair(&a, &b);
    say("a socket over the pipe", dup3(b, s, O_CLOEXEC) == s ? 0 : -1);
    say("write to the pipe", write(p[1], "more", 4));
    say_told("the pipe, by what is left of it", epfd);
    say("write", write(a, "xy", 2));
    wait_for(s, POLLIN);
    say("ADD of the socket", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 3));
    say("close of the other number", close(b));
    say("read", read(s, data, 8));
    say("a socket over a socket", dup2(a, s) == s ? 0 : -1);
    say("the peer has ended", read(a, data, 8));
    say("a socket over an epoll", dup2(a, epfd) == epfd ? 0 : -1);
    say("epoll_wait", epoll_wait(epfd, (struct epoll_event[1]){{0}}, 1, 0));
    say("getsockname of it", getsockname(epfd, (struct sockaddr *)&(struct sockaddr_in){0}, &(socklen_t){16}));
    say("an epoll over a socket", dup2(epoll_create1(0), a) == a ? 0 : -1);
    say("read", read(a, data, 1));
    say("epoll_wait", epoll_wait(a, (struct epoll_event[1]){{0}}, 1, 0));
    say("over a number that cannot be", dup2(s, 1 << 30));
    say("of a number that cannot be", dup2(-1, s));
    say("of one that is not", dup2(999, s));
    say("it is there still", fcntl(s, F_GETFD) >= 0);
}

/* What it returns is said by whoever joins it: it may close when the other one's time is over. */
static void *closes_later(void *arg)
{
    usleep(10000);
    return (void *)(intptr_t)close((int)(intptr_t)arg);
}

/* Whose other number is closed while a thread waits goes on waiting. */
static void meanwhile(void)
{
    int c, s;
    char data[8];
    void *closed;
    pthread_t thread;
    pair(&c, &s);
    int copy = dup(s);
    pthread_create(&thread, NULL, closes_later, (void *)(intptr_t)copy);
    struct pollfd p = {s, POLLIN, 0};
    say("poll", poll(&p, 1, 50));
    pthread_join(thread, &closed);
    say("close", (intptr_t)closed);
    say("write", write(c, "a", 1));
    say("read", read(s, data, 8));
}

/* Flags of close_range. */
static void ranges(void)
{
    int c, s;
    char data[8];
    pair(&c, &s);
    int copy = fcntl(s, F_DUPFD, 200);
    say("to be closed by exec", close_range(200, 300, CLOSE_RANGE_CLOEXEC));
    printf("%d %d\n", fcntl(copy, F_GETFD), fcntl(s, F_GETFD));
    say("with a wrong flag", close_range(200, 300, 1 << 10));
    say("it is there still", write(copy, "a", 1));
    say("read", recv(c, data, 1, MSG_WAITALL));
    say("close", close_range((unsigned)copy, (unsigned)copy, 0));
    say("write", write(copy, "a", 1));
    say("write by the other number", write(s, "b", 1));
    say("read", recv(c, data, 1, MSG_WAITALL));
    say("the last", close_range((unsigned)s, (unsigned)s, 2)); /* CLOSE_RANGE_UNSHARE: of one thread nothing */
    say("the end", recv(c, data, 1, 0));
}

static const struct sequence sequences[] = {
    {"in_epoll", in_epoll}, {"over", over}, {"meanwhile", meanwhile}, {"ranges", ranges}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
