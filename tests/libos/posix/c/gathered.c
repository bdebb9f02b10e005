/* A thread that has gathered an answer and then makes no call of ours: its peer has the answer all the same.
 *
 *   gathered KTHREADS blocks|computes|goes|each
 *
 * A server's wait tells of all its connections at once; it answers one of them, and then waits, by a lock or by
 * computing, until the peer says that it has the answer. It gathers, is rescued, and learns not to. `goes`: it answers
 * all without a pause, and gathers. `each`: it reads and answers one of many after the other, and gathers more than
 * leave together. */
#include "direct.h"

#include "../../../../libos/posix/kthreads.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/ioctl.h>

#define CONNECTIONS 3
#define MANY 40
#define TOGETHER 16 /* answers that leave at a time: kthreads.c */
#define ROUNDS_MOST 400
#define ADDRESS "10.77.0.2"
#define PORT 7000

static uint8_t kinds[CL_POSIX_FDS];
static int clients[MANY], servers[MANY], epfd, connections = CONNECTIONS;
static sem_t confirmed, asked, answered;
static uint32_t confirmations; /* RMW by the peer; read by who computes */
static bool computes, goes, each;
static bool over; /* written before `answered` is posted, read after that */

static struct sockaddr_in there(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    inet_pton(AF_INET, ADDRESS, &at.sin_addr);
    return at;
}

static int64_t put(int fd, char c)
{
    struct iovec vec = {&c, 1};
    return cl_posix_write(fd, &vec, 1, MSG_NOSIGNAL);
}

static char get(int fd)
{
    char c;
    struct iovec vec = {&c, 1};
    CHECK(cl_posix_read(fd, &vec, 1, 0) == 1);
    return c;
}

/* The peer: asks on all connections, and confirms each answer. */
static void *ask(void *arg)
{
    (void)arg;
    while (!over) {
        for (int i = 0; i < connections; i++)
            CHECK(put(clients[i], 'q') == 1);
        CHECK(sem_post(&asked) == 0);
        for (int i = 0; i < connections; i++) {
            CHECK(get(clients[i]) == 'a');
            __atomic_fetch_add(&confirmations, 1, __ATOMIC_RELEASE);
            CHECK(sem_post(&confirmed) == 0);
        }
        CHECK(sem_wait(&answered) == 0);
    }
    return NULL;
}

static void wait_for_peer(uint32_t count)
{
    if (computes)
        while (__atomic_load_n(&confirmations, __ATOMIC_ACQUIRE) < count)
            sched_yield();
    else
        CHECK(sem_wait(&confirmed) == 0);
}

/* One wait tells of all. */
static void wait_for_all(void)
{
    struct epoll_event e[MANY];
    for (int i = 0, n = 0; i<connections; i += n> 0) {
        cl_posix_turn_all();
        CHECK(cl_posix_ioctl(servers[i], FIONREAD, &n) == 0);
    }
    CHECK(cl_posix_epoll_wait(epfd, e, connections, -1, NULL) == connections);
}

static void serve_once(void)
{
    static uint32_t count;
    wait_for_all();
    for (int i = 0; !each && i < connections; i++)
        CHECK(get(servers[i]) == 'q');
    for (int i = 0; i < connections; i++) {
        CHECK(!each || get(servers[i]) == 'q');
        CHECK(put(servers[i], 'a') == 1);
        count++;
        if (!goes)
            wait_for_peer(count);
    }
}

/* Until what is to be seen was: a thread may lose its kthread at any time, and then gathers nothing. */
static void *serve(void *arg)
{
    uint64_t gathers = 0, rescues = 0, before;
    bool quiet = false, anew = false;
    (void)arg;
    for (int round = 0; !over; round++) {
        CHECK(sem_wait(&asked) == 0);
        before = gathers;
        serve_once();
        cl_posix_gathered(&gathers, &rescues);
        quiet |= gathers && gathers == before;
        anew |= gathers - before > TOGETHER;
        over = round == ROUNDS_MOST || (each ? anew : gathers && (goes || (rescues && quiet)));
        CHECK(sem_post(&answered) == 0);
    }
    printf("%s, %s, %s%s\n", gathers ? "gathered" : "-", rescues ? "rescued" : "-", quiet ? "learned" : "-",
           anew ? ", anew" : "");
    return NULL;
}

static int connected(int listener, int *server)
{
    struct sockaddr_in at = there();
    int fd = new_socket_of(SOCK_STREAM);
    CHECK(cl_posix_connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK((*server = cl_posix_accept(listener, NULL, NULL, 0)) >= 0);
    return fd;
}

int main(int argc, char **argv)
{
    char err[256], words[128];
    pthread_t threads[2];
    struct sockaddr_in at = there();
    if (argc != 3)
        return 2;
    computes = strcmp(argv[2], "computes") == 0;
    each = strcmp(argv[2], "each") == 0;
    goes = each || strcmp(argv[2], "goes") == 0;
    connections = each ? MANY : CONNECTIONS;
    snprintf(words, sizeof words, "nic=memory,address=" ADDRESS "/24,kthreads=%s", argv[1]);
    CHECK(cl_posix_open(words, kinds, say, say, err) == 0);
    int listener = new_socket_of(SOCK_STREAM);
    CHECK(cl_posix_bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(cl_posix_listen(listener, connections) == 0);
    epfd = cl_posix_epoll_create(epoll_create1(EPOLL_CLOEXEC));
    for (int i = 0; i < connections; i++) {
        clients[i] = connected(listener, &servers[i]);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = servers[i]};
        CHECK(cl_posix_epoll_ctl(epfd, EPOLL_CTL_ADD, servers[i], &e) == 0);
    }
    CHECK(sem_init(&confirmed, 0, 0) == 0 && sem_init(&asked, 0, 0) == 0 && sem_init(&answered, 0, 0) == 0);
    pthread_create(&threads[0], NULL, ask, NULL);
    pthread_create(&threads[1], NULL, serve, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    cl_posix_end();
    fflush(stdout);
    _exit(0); /* the runtime runs on to the end of the process */
}
