/* Threads that open, use, copy and close sockets of ours at one time, on one process's runtime whose NIC leads nowhere.
 *
 *   stress ROUNDS KTHREADS
 *
 * An acceptor blocks in accept, and hands each connection to an echo thread by epoll; clients connect, exchange bytes
 * by blocking calls and by poll, and close, some of them with something unread. One thread copies and closes
 * descriptors of a connection that another uses. At the end nothing of ours is left. */
#include "direct.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLIENTS 3
#define ADDRESS "10.77.0.2"
#define PORT 7000

static uint8_t kinds[CL_POSIX_FDS];
static int rounds, epfd, listener;
static uint32_t opened, closed; /* connections of the echo threads; RMW */

static int new_socket(void)
{
    return new_socket_of(SOCK_STREAM);
}

static struct sockaddr_in there(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    inet_pton(AF_INET, ADDRESS, &at.sin_addr);
    return at;
}

static int64_t put(int fd, const void *data, size_t len)
{
    struct iovec vec = {(void *)(uintptr_t)data, len};
    return cl_posix_write(fd, &vec, 1, MSG_NOSIGNAL);
}

static int64_t get(int fd, void *data, size_t len, int flags)
{
    struct iovec vec = {data, len};
    return cl_posix_read(fd, &vec, 1, flags);
}

static void *accept_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < CLIENTS * rounds; i++) {
        int fd = cl_posix_accept(listener, NULL, NULL, SOCK_NONBLOCK);
        CHECK(fd >= 0);
        __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);
        struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.fd = fd};
        CHECK(cl_posix_epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e) == 0);
    }
    return NULL;
}

/* False: it is over. */
static bool echo(int fd)
{
    char data[512];
    int64_t n;
    while ((n = get(fd, data, sizeof data, 0)) > 0)
        for (int64_t done = 0, took; done < n; done += took)
            if ((took = put(fd, data + done, (size_t)(n - done))) < 0) {
                if (took != -EAGAIN)
                    return false;
                took = 0;
            }
    return n == -EAGAIN;
}

static void *echo_all(void *arg)
{
    struct epoll_event e;
    (void)arg;
    while (__atomic_load_n(&closed, __ATOMIC_RELAXED) < (uint32_t)(CLIENTS * rounds)) {
        int n = cl_posix_epoll_wait(epfd, &e, 1, 50000000, NULL);
        CHECK(n >= 0);
        if (n == 0)
            continue;
        int fd = e.data.fd;
        if (echo(fd)) {
            e = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.fd = fd};
            CHECK(cl_posix_epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &e) == 0);
        } else {
            CHECK(cl_posix_close(fd) == 0);
            __atomic_fetch_add(&closed, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void *copy(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 20; i++) {
        int other = cl_posix_fcntl(fd, 0 /* F_DUPFD */, 0);
        struct pollfd p = {other, POLLIN | POLLOUT, 0};
        CHECK(other >= 0);
        CHECK(cl_posix_poll(&p, 1, 0, NULL) >= 0);
        CHECK(cl_posix_close(other) == 0);
    }
    return NULL;
}

/* In one piece, or in two under a cork, or out of a pipe. */
static void ask_by(int how, int fd, const char *data, size_t len)
{
    int on = 1, off = 0, p[2];
    if (how == 0) {
        CHECK(put(fd, data, len) == (int64_t)len);
    } else if (how == 1) {
        CHECK(cl_posix_setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) == 0);
        CHECK(put(fd, data, len / 2) == (int64_t)(len / 2));
        CHECK(put(fd, data + len / 2, len - len / 2) == (int64_t)(len - len / 2));
        CHECK(cl_posix_setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off) == 0);
    } else {
        CHECK(pipe2(p, O_CLOEXEC) == 0 && write(p[1], data, len) == (ssize_t)len);
        for (int64_t done = 0, n; done < (int64_t)len; done += n)
            CHECK((n = cl_posix_splice(p[0], NULL, fd, NULL, len, 0)) > 0);
        CHECK(close(p[0]) == 0 && close(p[1]) == 0);
    }
}

static void *ask(void *arg)
{
    struct sockaddr_in at = there();
    char data[2000], back[2000];
    pthread_t copier;
    unsigned id = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < rounds; i++) {
        int fd = new_socket();
        CHECK(cl_posix_connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
        CHECK(pthread_create(&copier, NULL, copy, &fd) == 0);
        size_t len = 1 + (id * 997u + (unsigned)i * 131u) % sizeof data;
        memset(data, (int)(id + (unsigned)i), len);
        ask_by(i % 3, fd, data, len);
        struct pollfd p = {fd, POLLIN, 0};
        CHECK(cl_posix_poll(&p, 1, -1, NULL) == 1);
        if (i % 4) {
            CHECK(get(fd, back, len, MSG_WAITALL) == (int64_t)len);
            CHECK(memcmp(data, back, len) == 0);
        }
        pthread_join(copier, NULL);
        CHECK(cl_posix_close(fd) == 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char err[256], words[128];
    pthread_t threads[CLIENTS + 3];
    struct sockaddr_in at = there();
    if (argc != 3)
        return 2;
    rounds = atoi(argv[1]);
    snprintf(words, sizeof words, "nic=memory,address=" ADDRESS "/24,poll=block,kthreads=%s", argv[2]);
    CHECK(cl_posix_open(words, kinds, say, say, err) == 0);
    listener = new_socket();
    CHECK(cl_posix_bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(cl_posix_listen(listener, 64) == 0);
    epfd = cl_posix_epoll_create(epoll_create1(EPOLL_CLOEXEC));
    CHECK(epfd >= 0);
    pthread_create(&threads[0], NULL, accept_all, NULL);
    pthread_create(&threads[1], NULL, echo_all, NULL);
    pthread_create(&threads[2], NULL, echo_all, NULL);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        pthread_create(&threads[3 + i], NULL, ask, (void *)i);
    for (int i = 0; i < CLIENTS + 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(cl_posix_close(listener) == 0 && cl_posix_close(epfd) == 0);
    for (unsigned fd = 0; fd < CL_POSIX_FDS; fd++)
        CHECK(!kinds[fd]);
    printf("%u opened, %u closed\n", opened, closed);
    cl_posix_end();
    fflush(stdout);
    _exit(0); /* the runtime runs on to the end of the process */
}
