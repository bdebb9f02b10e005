/* A program that knows nothing of corelane: waiting for TCP sockets by epoll, poll and select. It prints the results of
 * its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   epolls ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static void epolls(void)
{
    int c, s, pipe_fds[2], epfd = epoll_create1(EPOLL_CLOEXEC);
    char data[8];
    pair(&c, &s);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say("ADD again", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say("MOD of another", watch(epfd, EPOLL_CTL_MOD, c, EPOLLIN, 1));
    say_told("nothing", epfd);
    write(c, "ab", 2);
    wait_for(s, POLLIN);
    say_told("level", epfd);
    say_told("level again", epfd);
    read(s, data, 1);
    say_told("some is left", epfd);
    read(s, data, 1);
    say_told("nothing is left", epfd);
    say("MOD", watch(epfd, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT | EPOLLET, 2));
    say_told("edge, writable", epfd);
    say_told("edge again", epfd);
    write(c, "ab", 2);
    wait_for(s, POLLIN);
    say_told("edge, readable", epfd);
    say_told("edge again", epfd);
    say("MOD", watch(epfd, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 3));
    say_told("once", epfd);
    say_told("once again", epfd);
    say("MOD", watch(epfd, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 4));
    say_told("armed anew", epfd);
    say("pipe", pipe(pipe_fds));
    say("ADD of a pipe", watch(epfd, EPOLL_CTL_ADD, pipe_fds[0], EPOLLIN, 5));
    write(pipe_fds[1], "x", 1);
    say_told("the pipe", epfd);
    say("DEL", watch(epfd, EPOLL_CTL_DEL, s, 0, 0));
    say("DEL again", watch(epfd, EPOLL_CTL_DEL, s, 0, 0));
    read(pipe_fds[0], data, 1);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLRDHUP, 6));
    read(s, data, 2);
    shutdown(c, SHUT_WR);
    wait_for(s, POLLIN);
    say_told("the end", epfd);
    close(s);
    say_told("closed", epfd);
    say("events: none wanted", epoll_wait(epfd, NULL, 0, 0));
}

/* epoll descriptors with nothing of ours are Linux' in all. */
static void nested(void)
{
    int pipe_fds[2], inner = epoll_create1(0), outer = epoll_create(1), value;
    socklen_t len = sizeof value;
    char data[8];
    say("read", read(inner, data, 8));
    say("getsockopt", getsockopt(inner, SOL_SOCKET, SO_ERROR, &value, &len));
    say("listen", listen(inner, 1));
    say("pipe", pipe(pipe_fds));
    say("ADD of a pipe", watch(inner, EPOLL_CTL_ADD, pipe_fds[0], EPOLLIN, 1));
    say("ADD of it", watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2));
    say_told("nothing", outer);
    write(pipe_fds[1], "x", 1);
    say_told("outer", outer);
    say_told("inner", inner);
    struct pollfd p = {inner, POLLIN, 0};
    say("poll", poll(&p, 1, 0));
    say("dup", dup(inner) < 0 ? -1 : 0);
    say("close", close(inner));
    if (fork() == 0) {
        int own = epoll_create1(0);
        say("child's ADD", watch(own, EPOLL_CTL_ADD, pipe_fds[0], EPOLLIN, 3));
        say_told("child's", own);
        fflush(stdout);
        exit(0);
    }
    wait(NULL);
}

/* A socket in one that is in another one, in poll and in select. */
static void nests(void)
{
    int c, s, inner = epoll_create1(0), middle = epoll_create1(0), outer = epoll_create1(0);
    char data[8];
    fd_set in;
    pair(&c, &s);
    say("ADD of the socket", watch(inner, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say("ADD of inner", watch(middle, EPOLL_CTL_ADD, inner, EPOLLIN, 2));
    say("ADD of middle", watch(outer, EPOLL_CTL_ADD, middle, EPOLLIN, 3));
    say("ADD of itself", watch(outer, EPOLL_CTL_ADD, outer, EPOLLIN, 3));
    say("ADD in a ring", watch(inner, EPOLL_CTL_ADD, outer, EPOLLIN, 3));
    say_told("nothing", outer);
    for (int i = 0; i < 2; i++) {
        write(c, "ab", 2);
        wait_for(s, POLLIN);
        wait_for(inner, POLLIN);
        struct pollfd p[2] = {{inner, POLLIN, 0}, {outer, POLLIN | POLLOUT, 0}};
        say("poll", poll(p, 2, 0));
        say_events("of inner", (unsigned)p[0].revents);
        say_events("of outer", (unsigned)p[1].revents);
        FD_ZERO(&in);
        FD_SET(middle, &in);
        say("select", select(middle + 1, &in, NULL, NULL, &(struct timeval){0, 0}));
        say_told("outer", outer);
        say_told("outer again", outer);
        say_told("inner", inner);
        say("read", read(s, data, 2));
        say_told("outer, of what was read", outer);
        say_told("inner", inner);
        say("poll", poll(p, 2, 0));
    }
    say("MOD of middle", watch(outer, EPOLL_CTL_MOD, middle, EPOLLIN | EPOLLET, 4));
    say("MOD of the socket", watch(inner, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 5));
    for (int i = 0; i < 2; i++) {
        write(c, "x", 1);
        wait_for(i ? c : outer, i ? POLLOUT : POLLIN);
        say_told("edge", outer);
        say_told("edge again", outer);
        say_told("once", inner);
        say_told("once again", inner);
    }
    say("DEL", watch(middle, EPOLL_CTL_DEL, inner, 0, 0));
    say("MOD", watch(inner, EPOLL_CTL_MOD, s, EPOLLIN, 6));
    say_told("outer no more", outer);
    say_told("inner", inner);
    say("close of the socket", close(s));
    say_told("inner", inner);
    struct pollfd p = {inner, POLLIN, 0};
    say("poll", poll(&p, 1, 0));
}

static void *write_soon(void *arg)
{
    usleep(2000);
    write(*(int *)arg, "x", 1);
    return NULL;
}

/* Who sleeps in an outer one, in poll or select is woken by a socket in the inner one. */
static void wakes(void)
{
    int c, s, inner = epoll_create1(0), outer = epoll_create1(0);
    pthread_t thread;
    struct epoll_event e;
    char data[8];
    fd_set in;
    pair(&c, &s);
    watch(inner, EPOLL_CTL_ADD, s, EPOLLIN, 1);
    watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2);
    for (int i = 0; i < 6; i++) {
        pthread_create(&thread, NULL, write_soon, &c);
        if (i % 3 == 0)
            say("epoll_wait", epoll_wait(outer, &e, 1, 10000));
        if (i % 3 == 1)
            wait_for(inner, POLLIN);
        if (i % 3 == 2) {
            FD_ZERO(&in);
            FD_SET(outer, &in);
            say("select", select(outer + 1, &in, NULL, NULL, NULL));
        }
        say_told("inner", inner);
        say("read", read(s, data, 8));
        pthread_join(thread, NULL);
    }
}

static void *write_late(void *arg)
{
    int fd = *(int *)arg;
    char data[8];
    read(fd, data, 8); /* until the other end has written, and is about to wait */
    write(fd, "answer", 6);
    return NULL;
}

static void *wait_early(void *arg)
{
    struct epoll_event e = {0};
    int n = epoll_wait(*(int *)arg, &e, 1, 10000);
    printf("early: %d, of %d\n", n, e.data.fd);
    return NULL;
}

/* A thread sleeps in an epoll descriptor when the first socket comes into it. */
static void early(void)
{
    int c, s, epfd = epoll_create1(0);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_early, &epfd);
    usleep(20000); /* it sleeps by then, or the sequence shows less */
    pair(&c, &s);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 8));
    usleep(20000);
    write(c, "x", 1);
    pthread_join(thread, NULL);
}

static void waits(void)
{
    int c, s, epfd = epoll_create1(0);
    pthread_t thread;
    struct epoll_event e;
    char data[8];
    fd_set in;
    pair(&c, &s);
    watch(epfd, EPOLL_CTL_ADD, c, EPOLLIN, 7);
    for (int i = 0; i < 3; i++) {
        pthread_create(&thread, NULL, write_late, &s);
        write(c, "question", 8);
        if (i == 0)
            say("epoll_wait", epoll_wait(epfd, &e, 1, 10000));
        if (i == 1) {
            FD_ZERO(&in);
            FD_SET(c, &in);
            say("select", select(c + 1, &in, NULL, NULL, NULL));
            printf("is set: %d\n", FD_ISSET(c, &in) != 0);
        }
        say("read", recv(c, data, 6, MSG_WAITALL));
        pthread_join(thread, NULL);
    }
    struct timeval t = {0, 1000};
    FD_ZERO(&in);
    FD_SET(c, &in);
    say("select in time", select(c + 1, &in, NULL, NULL, &t));
    say("epoll_wait in time", epoll_wait(epfd, &e, 1, 1));
    struct pollfd p[2] = {{c, POLLIN, 0}, {s, POLLOUT, 0}};
    say("poll", poll(p, 2, 0));
    say_events("of it", (unsigned)p[1].revents);
}

static void exclusive(void)
{
    int c, s, a = epoll_create1(0), b = epoll_create1(0);
    pair(&c, &s);
    say("ADD", watch(a, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLEXCLUSIVE, 1));
    say("ADD", watch(b, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 2));
    say("MOD of one", watch(a, EPOLL_CTL_MOD, s, EPOLLIN, 1));
    say("MOD to one", watch(a, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLEXCLUSIVE, 1));
    say("with EPOLLONESHOT", watch(a, EPOLL_CTL_ADD, c, EPOLLIN | EPOLLONESHOT | EPOLLEXCLUSIVE, 1));
    say("with EPOLLRDHUP", watch(a, EPOLL_CTL_ADD, c, EPOLLIN | EPOLLRDHUP | EPOLLEXCLUSIVE, 1));
    say("of another", watch(a, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLEXCLUSIVE, 1));
    write(c, "x", 1);
    wait_for(s, POLLIN);
    say_told("one of them", a);
    say("DEL", watch(a, EPOLL_CTL_DEL, s, 0, 0));
}

/* The end is told at once, beside what comes before it. */
static void last(void)
{
    int c, s, epfd = epoll_create1(0);
    char data[8];
    pair(&c, &s);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLRDHUP | EPOLLET, 1));
    say("write", write(c, "some", 4));
    wait_for(s, POLLIN);
    say_told("data", epfd);
    say("shutdown", shutdown(c, SHUT_WR));
    wait_for(s, POLLRDHUP);
    say_told("the end, unread", epfd);
    struct pollfd p = {s, POLLIN | POLLOUT | POLLRDHUP, 0};
    say("poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
    say("read", read(s, data, 2));
    say("shutdown", shutdown(s, SHUT_WR));
    say("poll", poll(&p, 1, 0));
    say_events("both ends, unread", (unsigned)p.revents);
    say("read", read(s, data, 8));
    say("read", read(s, data, 8));
}

/* What a child closes is its parent's still. Nobody has waited for a socket before. */
static void forked(void)
{
    int fds[3][3];
    for (int i = 0; i < 3; i++) {
        fds[i][0] = epoll_create1(0);
        fds[i][1] = epoll_create1(0);
        say("nest", watch(fds[i][0], EPOLL_CTL_ADD, fds[i][1], EPOLLIN, 9));
        say_told("nothing", fds[i][0]);
    }
    for (int i = 0; i < 3; i++) {
        fds[i][2] = socket(AF_INET, SOCK_STREAM, 0);
        say("ADD", watch(fds[i][1], EPOLL_CTL_ADD, fds[i][2], EPOLLIN, 1));
    }
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(close(fds[i][i]));
        waitpid(child, NULL, 0);
    }
    for (int i = 0; i < 3; i++) {
        say_told("the outer one", fds[i][0]);
        say_told("the inner one", fds[i][1]);
        say("close", close(fds[i][2]));
        say_told("the outer one of nothing", fds[i][0]);
    }
}

#define HERD 4

static struct herd {
    int listener, epfd[HERD], accepted;
    pid_t threads[HERD];
} herd;

static void *wait_once(void *arg)
{
    int i = (int)(intptr_t)arg;
    struct epoll_event e;
    __atomic_store_n(&herd.threads[i], gettid(), __ATOMIC_RELEASE);
    if (epoll_wait(herd.epfd[i], &e, 1, -1) == 1 && accept(herd.listener, NULL, NULL) >= 0)
        __atomic_fetch_add(&herd.accepted, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void until_asleep(int i)
{
    char path[64], call[16] = "";
    while (!__atomic_load_n(&herd.threads[i], __ATOMIC_ACQUIRE))
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)herd.threads[i]);
    while (atoi(call) != SYS_epoll_pwait && atoi(call) != SYS_epoll_wait) {
        FILE *file = fopen(path, "r");
        if (!file || !fgets(call, sizeof call, file))
            strcpy(call, "running");
        if (file)
            fclose(file);
    }
}

/* Each waits once: if a connection woke two of them one would find nothing, and none would be there for the last. */
static void wakes_one(void)
{
    struct sockaddr_in at;
    pthread_t threads[HERD];
    herd.listener = listener(&at);
    fcntl(herd.listener, F_SETFL, O_NONBLOCK);
    for (intptr_t i = 0; i < HERD; i++) {
        herd.epfd[i] = epoll_create1(0);
        say("ADD", watch(herd.epfd[i], EPOLL_CTL_ADD, herd.listener, EPOLLIN | EPOLLEXCLUSIVE, 1));
        pthread_create(&threads[i], NULL, wait_once, (void *)i);
        until_asleep((int)i);
    }
    for (int i = 1; i <= HERD; i++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
        for (int ms = 0; ms < 10000 && __atomic_load_n(&herd.accepted, __ATOMIC_ACQUIRE) < i; ms++)
            poll(NULL, 0, 1);
        printf("accepted: %d\n", __atomic_load_n(&herd.accepted, __ATOMIC_ACQUIRE));
    }
}

/* Nobody sleeps: all find it. And of the listener's end all are told. */
static void tells_all(void)
{
    struct sockaddr_in at;
    int epfd[HERD], l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < HERD; i++) {
        epfd[i] = epoll_create1(0);
        say("ADD", watch(epfd[i], EPOLL_CTL_ADD, l, EPOLLIN | EPOLLEXCLUSIVE, (unsigned)i));
    }
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    wait_for(l, POLLIN);
    for (int i = 0; i < HERD; i++)
        say_told("a connection", epfd[i]);
    say("accept", accept(l, NULL, NULL) < 0 ? -1 : 0);
    for (int i = 0; i < HERD; i++)
        say_told("nothing", epfd[i]);
    say("shutdown", shutdown(l, SHUT_RD));
    for (int i = 0; i < HERD; i++)
        say_told("the end", epfd[i]);
}

/* Both sides are shut, in either order, by one end or by both: told to who asks for nothing. */
static void hung_up(void)
{
    static const int how[][2] = {{SHUT_RD, SHUT_WR}, {SHUT_WR, SHUT_RD}, {SHUT_RDWR, -1}, {SHUT_WR, SHUT_WR}};
    for (unsigned i = 0; i < sizeof how / sizeof *how; i++)
        for (int peer = -1; peer < 2; peer++) { /* shut before, or behind the first */
            int c, s, all = epoll_create1(0);
            pair(&c, &s);
            watch(all, EPOLL_CTL_ADD, c, 0, i);
            for (int at = 0; at < 2; at++) {
                if (peer == at) {
                    shutdown(s, SHUT_WR);
                    wait_for(c, POLLRDHUP);
                }
                if (how[i][at] >= 0)
                    say("shutdown", shutdown(c, how[i][at]));
                poll(NULL, 0, 2); /* Linux, too, may take a moment until all of it has come */
                say_told("anything", all);
            }
            close(c);
            close(s);
            close(all);
        }
}

static const struct sequence sequences[] = {
    {"epolls", epolls},       {"nested", nested},   {"nests", nests}, {"wakes", wakes},   {"exclusive", exclusive},
    {"last", last},           {"early", early},     {"waits", waits}, {"forked", forked}, {"wakes_one", wakes_one},
    {"tells_all", tells_all}, {"hung_up", hung_up}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
