/* A program that knows nothing of corelane: threads that serve connections by epoll, each those that it was given, and
 * threads that ask them and wait for each answer. Each request is a number, the next one.
 *
 *   polled ADDRESS REQUESTS     of each connection. Prints "done" */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 2     /* of each kind */
#define CONNECTIONS 3 /* of a thread that asks */

static struct sockaddr_in at;
static uint64_t requests;
static int epfds[THREADS];

static void check(long right, const char *what)
{
    if (right)
        return;
    perror(what);
    exit(1);
}

/* Until its connections are over. */
static void *serve(void *arg)
{
    static uint64_t next[1024];
    for (unsigned left = CONNECTIONS; left;) {
        struct epoll_event e;
        uint64_t number;
        check(epoll_wait(*(int *)arg, &e, 1, -1) == 1, "epoll_wait");
        ssize_t n = recv(e.data.fd, &number, sizeof number, MSG_WAITALL);
        if (n == 0) {
            next[e.data.fd] = 0;
            check(close(e.data.fd) == 0, "close");
            left--;
            continue;
        }
        check(n == sizeof number && number == next[e.data.fd]++, "recv: not the next one");
        check(send(e.data.fd, &number, sizeof number, 0) == sizeof number, "send");
    }
    return NULL;
}

static void *ask(void *arg)
{
    int fds[CONNECTIONS], on = 1;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        check((fds[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
        check(setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "setsockopt");
        check(connect(fds[i], (struct sockaddr *)&at, sizeof at) == 0, "connect");
    }
    for (uint64_t number = 0, answer; number < requests; number++)
        for (unsigned i = 0; i < CONNECTIONS; i++) {
            check(send(fds[i], &number, sizeof number, 0) == sizeof number, "send");
            check(recv(fds[i], &answer, sizeof answer, MSG_WAITALL) == sizeof answer && answer == number, "recv");
        }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        check(close(fds[i]) == 0, "close");
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t threads[2 * THREADS];
    socklen_t len = sizeof at;
    at.sin_family = AF_INET;
    if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1)
        return 2;
    requests = strtoull(argv[2], NULL, 10);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 16) == 0, "listen");
    check(getsockname(l, (struct sockaddr *)&at, &len) == 0, "getsockname");
    for (unsigned i = 0; i < THREADS; i++) {
        check((epfds[i] = epoll_create1(0)) >= 0, "epoll_create1");
        check(pthread_create(&threads[i], NULL, serve, &epfds[i]) == 0, "pthread_create");
        check(pthread_create(&threads[THREADS + i], NULL, ask, NULL) == 0, "pthread_create");
    }
    for (unsigned i = 0; i < THREADS * CONNECTIONS; i++) {
        int fd = accept(l, NULL, NULL);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        check(fd >= 0 && epoll_ctl(epfds[i % THREADS], EPOLL_CTL_ADD, fd, &e) == 0, "accept");
    }
    for (unsigned i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
