/* A server that knows nothing of corelane: it echoes, by epoll on non-blocking sockets.
 *
 *   echo PORT THREADS each|shared
 *
 * each: the first thread accepts, and gives connections to the others in turn, each of which has an epoll descriptor
 * and waits for edges. shared: all wait on one epoll descriptor, for one event at a time (EPOLLONESHOT). It ends by
 * SIGTERM, and says how many connections it had. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_THREADS 8
#define EVENTS 16

static int listener, epfds[MOST_THREADS], n_threads;
static bool shared;
static int accepted;

static void check(long rc, const char *what)
{
    if (rc >= 0)
        return;
    perror(what);
    exit(1);
}

static void watch(int epfd, int op, int fd)
{
    struct epoll_event e = {.events = EPOLLIN | (shared ? EPOLLONESHOT : fd == listener ? 0 : EPOLLET), .data.fd = fd};
    check(epoll_ctl(epfd, op, fd, &e), "epoll_ctl");
}

static void accept_all(void)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int n = __atomic_fetch_add(&accepted, 1, __ATOMIC_RELAXED);
        watch(epfds[shared ? 0 : n % n_threads], EPOLL_CTL_ADD, fd);
    }
    if (errno != EAGAIN)
        check(fd, "accept4");
}

/* Until nothing waits. False: it is over, and closed. */
static bool echo(int fd)
{
    char data[4096];
    ssize_t n;
    while ((n = read(fd, data, sizeof data)) > 0)
        for (ssize_t done = 0; done < n;) {
            ssize_t took = write(fd, data + done, (size_t)(n - done));
            if (took > 0)
                done += took;
            else if (errno != EAGAIN) {
                n = 0;
                break;
            }
        }
    if (n < 0 && errno == EAGAIN)
        return true;
    check(close(fd), "close");
    return false;
}

static void *serve(void *arg)
{
    int epfd = epfds[shared ? 0 : (long)arg];
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(epfd, events, shared ? 1 : EVENTS, -1);
        if (n < 0 && errno == EINTR)
            continue;
        check(n, "epoll_wait");
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                accept_all();
            if ((fd == listener || echo(fd)) && shared)
                watch(epfd, EPOLL_CTL_MOD, fd);
        }
    }
    return NULL;
}

static void *wait_to_end(void *arg)
{
    int signal;
    sigwait(arg, &signal);
    printf("accepted %d\n", accepted);
    exit(0);
}

int main(int argc, char **argv)
{
    static sigset_t term;
    pthread_t thread;
    struct sockaddr_in at = {.sin_family = AF_INET};
    if (argc != 4)
        return 2;
    at.sin_port = htons((uint16_t)atoi(argv[1]));
    n_threads = atoi(argv[2]);
    shared = strcmp(argv[3], "shared") == 0;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(listener, "socket");
    check(bind(listener, (struct sockaddr *)&at, sizeof at), "bind");
    check(listen(listener, 128), "listen");
    for (int i = 0; i < n_threads; i++)
        check(epfds[i] = epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    int first = shared ? epfds[0] : epoll_create1(EPOLL_CLOEXEC);
    watch(first, EPOLL_CTL_ADD, listener);
    pthread_create(&thread, NULL, wait_to_end, &term);
    for (long i = 0; i < n_threads; i++)
        pthread_create(&thread, NULL, serve, (void *)i);
    puts("serving");
    fflush(stdout);
    if (shared)
        pthread_join(thread, NULL);
    for (struct epoll_event e;;)
        if (epoll_wait(first, &e, 1, -1) == 1)
            accept_all();
}
