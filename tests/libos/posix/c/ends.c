/* A process that ends, and a listener that is shut, while other threads are in calls on their sockets.
 *
 *   ends process CONNECTIONS KTHREADS    end after so many connections, in the middle of calls
 *   ends listener TIMES KTHREADS         shut the listener, and listen again
 *
 * Clients connect, ask for the peer's name, exchange bytes and close; acceptors do the same at the other end. Calls may
 * fail once the end has begun; the process may not. */
#include "direct.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLIENTS 2
#define ACCEPTORS 2
#define ADDRESS "10.77.0.2"
#define PORT 7000

static uint8_t kinds[CL_POSIX_FDS];
static int listener;
static uint32_t served; /* connections; RMW */

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

/* All calls that look at a connection, and a byte each way. */
static void use(int fd)
{
    struct sockaddr_in peer;
    socklen_t len = sizeof peer, four = sizeof(int);
    int error, waits;
    char byte = 'x';
    struct iovec vec = {&byte, 1};
    (void)cl_posix_name(fd, (struct sockaddr *)&peer, &len, true);
    (void)cl_posix_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &four);
    (void)cl_posix_write(fd, &vec, 1, MSG_NOSIGNAL);
    (void)cl_posix_read(fd, &vec, 1, 0);
    (void)cl_posix_ioctl(fd, FIONREAD, &waits);
    (void)cl_posix_close(fd);
}

static void *accept_all(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = cl_posix_accept(listener, NULL, NULL, 0);
        if (fd < 0) {
            sched_yield(); /* it is shut just now */
            continue;
        }
        use(fd);
        __atomic_add_fetch(&served, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *ask(void *arg)
{
    struct sockaddr_in at = there();
    (void)arg;
    for (;;) {
        int fd = new_socket();
        (void)cl_posix_connect(fd, (struct sockaddr *)&at, sizeof at);
        use(fd);
    }
    return NULL;
}

/* So many more connections were served. */
static void wait_for(uint32_t more)
{
    uint32_t since = __atomic_load_n(&served, __ATOMIC_RELAXED);
    while (__atomic_load_n(&served, __ATOMIC_RELAXED) - since < more)
        usleep(100);
}

int main(int argc, char **argv)
{
    char err[256], words[128];
    pthread_t threads[CLIENTS + ACCEPTORS];
    struct sockaddr_in at = there();
    int on = 1;
    if (argc != 4)
        return 2;
    snprintf(words, sizeof words, "nic=memory,address=" ADDRESS "/24,poll=block,kthreads=%s", argv[3]);
    CHECK(cl_posix_open(words, kinds, say, say, err) == 0);
    listener = new_socket();
    CHECK(cl_posix_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0); /* to listen again */
    CHECK(cl_posix_bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(cl_posix_listen(listener, 64) == 0);
    for (int i = 0; i < ACCEPTORS; i++)
        CHECK(pthread_create(&threads[i], NULL, accept_all, NULL) == 0);
    for (int i = 0; i < CLIENTS; i++)
        CHECK(pthread_create(&threads[ACCEPTORS + i], NULL, ask, NULL) == 0);
    if (strcmp(argv[1], "process") == 0)
        wait_for((uint32_t)atoi(argv[2]));
    else
        for (int i = 0; i < atoi(argv[2]); i++) {
            wait_for(5);
            CHECK(cl_posix_shutdown(listener, SHUT_RDWR) == 0);
            CHECK(cl_posix_listen(listener, 64) == 0);
        }
    printf("ends\n");
    fflush(stdout);
    cl_posix_end();
    usleep(2000); /* what other threads do meanwhile must be harmless */
    _exit(0);
}
