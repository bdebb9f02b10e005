/* Threads that open, use, copy and close datagram sockets of ours at one time, on one process's runtime whose NIC leads
 * nowhere.
 *
 *   datagram_stress ROUNDS KTHREADS
 *
 * Two threads echo what comes to one socket, by epoll. Clients connect, send, wait by poll or in recv, and close;
 * between that they send to a port that nobody has, and find the error. One thread sends to sockets that others close.
 * At the end nothing of ours is left, and nothing was lost. */
#include "direct.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLIENTS 3
#define ADDRESS "10.77.0.2"
#define PORT 7000
#define NOBODY 7001

static uint8_t kinds[CL_POSIX_FDS];
static int rounds, epfd, server;
static uint32_t over, answered, refused; /* RMW */
static uint16_t ports[CLIENTS];          /* of the clients, now and then; relaxed */

static int new_socket(void)
{
    return new_socket_of(SOCK_DGRAM);
}

static struct sockaddr_in there(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ADDRESS, &at.sin_addr);
    return at;
}

static int64_t put(int fd, void *data, size_t len, struct sockaddr_in *to)
{
    struct iovec vec = {data, len};
    struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1, .msg_name = to, .msg_namelen = to ? sizeof *to : 0};
    return cl_posix_send(fd, &m, 0);
}

static int64_t get(int fd, void *data, size_t len, int flags)
{
    struct iovec vec = {data, len};
    return cl_posix_read(fd, &vec, 1, flags);
}

/* What has come, back to where it came from. */
static void echo(void)
{
    char data[2][2000];
    struct sockaddr_in from[2];
    struct iovec vec[2];
    struct mmsghdr m[2] = {0};
    for (int i = 0; i < 2; i++) {
        vec[i] = (struct iovec){data[i], sizeof data[i]};
        m[i].msg_hdr =
            (struct msghdr){.msg_iov = &vec[i], .msg_iovlen = 1, .msg_name = &from[i], .msg_namelen = sizeof from[i]};
    }
    int64_t n = cl_posix_receive_many(server, m, 2, MSG_DONTWAIT, NULL);
    CHECK(n > 0 || n == -EAGAIN);
    for (int64_t i = 0; i < n; i++) {
        vec[i].iov_len = m[i].msg_len;
        CHECK(cl_posix_send(server, &m[i].msg_hdr, 0) == m[i].msg_len);
    }
}

static void *serve(void *arg)
{
    struct epoll_event e;
    (void)arg;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        int n = cl_posix_epoll_wait(epfd, &e, 1, 20000000, NULL);
        CHECK(n >= 0);
        if (n)
            echo();
    }
    return NULL;
}

static void *shoot(void *arg)
{
    (void)arg;
    int fd = new_socket();
    for (unsigned i = 0; !__atomic_load_n(&over, __ATOMIC_RELAXED); i++) {
        struct sockaddr_in to = there(__atomic_load_n(&ports[i % CLIENTS], __ATOMIC_RELAXED));
        if (to.sin_port)
            CHECK(put(fd, "stray", 5, &to) == 5);
        usleep(200);
    }
    CHECK(cl_posix_close(fd) == 0);
    return NULL;
}

static void *copy(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 20; i++) {
        int other = cl_posix_fcntl(fd, 0 /* F_DUPFD */, 0);
        struct pollfd p = {other, POLLIN | POLLOUT, 0};
        CHECK(other >= 0);
        CHECK(cl_posix_poll(&p, 1, 0, NULL) == 1);
        CHECK(cl_posix_close(other) == 0);
    }
    return NULL;
}

/* It is connected to nobody's port: what is sent there comes back as an error, of which so many are sent in a time. */
static void be_refused(void)
{
    struct sockaddr_in at = there(NOBODY);
    int fd = new_socket();
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(cl_posix_connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(put(fd, "x", 1, NULL) == 1);
    if (cl_posix_poll(&p, 1, 1000000, NULL) == 1 && get(fd, &(char){0}, 1, MSG_DONTWAIT) == -ECONNREFUSED)
        __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
    CHECK(cl_posix_close(fd) == 0);
}

static void *ask(void *arg)
{
    char data[1400], back[1400];
    pthread_t copier;
    unsigned id = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < rounds; i++) {
        struct sockaddr_in at = there(PORT), own;
        socklen_t len = sizeof own;
        int fd = new_socket();
        CHECK(put(fd, "not connected", 13, &at) == 13);
        CHECK(get(fd, back, sizeof back, 0) > 0);
        CHECK(cl_posix_connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
        CHECK(cl_posix_name(fd, (struct sockaddr *)&own, &len, false) == 0);
        __atomic_store_n(&ports[id], ntohs(own.sin_port), __ATOMIC_RELAXED);
        while (get(fd, back, sizeof back, MSG_DONTWAIT) > 0) /* strays of before */
            ;
        CHECK(pthread_create(&copier, NULL, copy, &fd) == 0);
        size_t bytes = 6 + (id * 997u + (unsigned)i * 131u) % (sizeof data - 6);
        memset(data, (int)(id + (unsigned)i), bytes);
        CHECK(put(fd, data, bytes, NULL) == (int64_t)bytes);
        struct pollfd p = {fd, POLLIN, 0};
        if (i % 2)
            CHECK(cl_posix_poll(&p, 1, -1, NULL) == 1);
        int64_t got = get(fd, back, sizeof back, 0);
        while (got == 5 || got == 13)
            got = get(fd, back, sizeof back, 0);
        CHECK(got == (int64_t)bytes && memcmp(data, back, bytes) == 0);
        __atomic_fetch_add(&answered, 1, __ATOMIC_RELAXED);
        pthread_join(copier, NULL);
        CHECK(cl_posix_close(fd) == 0);
        be_refused();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char err[256], words[128];
    pthread_t threads[CLIENTS + 3];
    struct sockaddr_in at = there(PORT);
    if (argc != 3)
        return 2;
    rounds = atoi(argv[1]);
    snprintf(words, sizeof words, "nic=memory,address=" ADDRESS "/24,poll=block,kthreads=%s", argv[2]);
    CHECK(cl_posix_open(words, kinds, say, say, err) == 0);
    server = new_socket();
    CHECK(cl_posix_bind(server, (struct sockaddr *)&at, sizeof at) == 0);
    epfd = cl_posix_epoll_create(epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event e = {.events = EPOLLIN};
    CHECK(epfd >= 0 && cl_posix_epoll_ctl(epfd, EPOLL_CTL_ADD, server, &e) == 0);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, i < 2 ? serve : shoot, NULL);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        pthread_create(&threads[3 + i], NULL, ask, (void *)i);
    for (int i = 3; i < CLIENTS + 3; i++)
        pthread_join(threads[i], NULL);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(cl_posix_close(server) == 0 && cl_posix_close(epfd) == 0);
    for (unsigned fd = 0; fd < CL_POSIX_FDS; fd++)
        CHECK(!kinds[fd]);
    CHECK(refused);
    printf("%u answered\n", answered);
    cl_posix_end();
    fflush(stdout);
    _exit(0); /* the runtime runs on to the end of the process */
}
