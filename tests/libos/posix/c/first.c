/* Whoever connects while another thread makes the runtime finds the listeners that were there before.
 *
 *   first LISTENERS
 *
 * One thread makes the runtime, by a first look at an epoll set; others connect as soon as there is one, each to
 * another of the listeners. Nobody accepts: the connections wait in their queues. */
#include "direct.h"

#include "../../../../libos/posix/socket.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/epoll.h>

#define ADDRESS "10.77.0.2"
#define PORT 7000
#define CLIENTS 4

static uint8_t kinds[CL_POSIX_FDS];
static uint32_t listeners;

static struct sockaddr_in at(uint32_t i)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(PORT + i))};
    inet_pton(AF_INET, ADDRESS, &to.sin_addr);
    return to;
}

static void *ask(void *arg)
{
    uint32_t id = (uint32_t)(uintptr_t)arg;
    while (!cl_posix_started())
        ;
    for (uint32_t i = id; i < listeners; i += CLIENTS) {
        struct sockaddr_in to = at(listeners - 1 - i);
        int fd = new_socket_of(SOCK_STREAM);
        int rc = cl_posix_connect(fd, (struct sockaddr *)&to, sizeof to);
        if (rc) {
            printf("the listener at port %u: %s\n", PORT + listeners - 1 - i, strerror(-rc));
            fflush(stdout);
            _exit(1);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char err[256];
    struct epoll_event e;
    pthread_t threads[CLIENTS];
    CHECK(argc == 2 && (listeners = (uint32_t)atoi(argv[1])));
    CHECK(cl_posix_open("nic=memory,address=" ADDRESS "/24,poll=block,kthreads=2", kinds, say, say, err) == 0);
    for (uint32_t i = 0; i < listeners; i++) {
        struct sockaddr_in own = at(i);
        int fd = new_socket_of(SOCK_STREAM);
        CHECK(cl_posix_bind(fd, (struct sockaddr *)&own, sizeof own) == 0 && cl_posix_listen(fd, 8) == 0);
    }
    int set = cl_posix_epoll_create(epoll_create1(EPOLL_CLOEXEC));
    for (uintptr_t i = 0; i < CLIENTS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, (void *)i) == 0);
    struct epoll_event nothing = {.events = EPOLLIN};
    int own = new_socket_of(SOCK_STREAM);
    CHECK(cl_posix_epoll_ctl(set, EPOLL_CTL_ADD, own, &nothing) == 0);
    CHECK(cl_posix_epoll_wait(set, &e, 1, 0, NULL) >= 0);
    for (int i = 0; i < CLIENTS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    puts("all connected");
    cl_posix_end();
    fflush(stdout);
    _exit(0);
}
