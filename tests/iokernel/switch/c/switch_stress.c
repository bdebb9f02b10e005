/* Applications, loops and a control server in one process, under TSan: frames in all directions, kthreads that park,
 * steal each other's receive queues and are woken, applications that come and go, an iokernel that vanishes and comes
 * back. The server is in C: what an iokernel's control socket needs is runtime/control.h alone.
 *
 *   switch_stress SOCKET_PATH FRAMES
 *
 * FRAMES: how many must arrive whole in each life of the iokernel. Two mappings of one arena have different addresses,
 * so TSan sees the private state of both ends; what they share is for tests/iokernel/switch/c/fuzz_rings.c and
 * ring_stress.c. */
#define CHECK_CONTEXT "(%s)", err
#include "tests/support/c/check.h"

#include "../../../../drivers/port/port.h"
#include "../../../../iokernel/state/iokernel.h"
#include "../../../../runtime/memory.h"
#include "../../../../runtime/net.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PORTS 4 /* that stay; one more, the guest, comes and goes */
#define KTHREADS 2
#define LOOPS 2
#define LIVES 3

static char err[256];
static const char *path;
static uint32_t stopping;
static uint64_t arrived, visits;

/* The server: one thread, one iokernel a life. */

struct server {
    struct cl_io *io;
    int listener, stop_fd;
    struct pollfd fds[PORTS + 3];
    uint32_t apps[PORTS + 3];
    unsigned n;
    pthread_t thread;
};

static void drop_app(struct server *s, unsigned i)
{
    struct cl_io_app_final final;
    CHECK(cl_io_app_remove(s->io, s->apps[i], &final, err) == 0);
    CHECK(final.buffers_lost == 0);
    close(s->fds[i].fd);
    s->fds[i] = s->fds[--s->n];
    s->apps[i] = s->apps[s->n];
}

static void accept_app(struct server *s, int fd)
{
    struct cl_control_hello hello;
    struct cl_io_app_grant grant;
    if (recv(fd, &hello, sizeof hello, MSG_WAITALL) != sizeof hello) { /* closed while it was about to attach again */
        close(fd);
        return;
    }
    struct cl_io_app_config c = {.loop = (uint32_t)(hello.name[1] - '0') % LOOPS, .ipv4 = 0x0a4d0010u + hello.name[1]};
    memcpy(c.name, hello.name, sizeof c.name);
    memcpy(c.mac, (uint8_t[]){2, 0, 0, 0, 0, (uint8_t)hello.name[1]}, 6);
    c.layout = (struct cl_arena_layout){
        .n_kthreads = hello.n_kthreads, .rx_slots = 64, .tx_slots = 64, .n_rx = 256, .n_tx = 256, .buffer_bytes = 2048};
    CHECK(cl_io_app_add(s->io, &c, &grant, err) == 0);
    struct cl_control_accept a = {.header = {CL_CONTROL_MAGIC, CL_CONTROL_VERSION, CL_CONTROL_ACCEPT, sizeof a, 0},
                                  .app = grant.app,
                                  .loop = c.loop,
                                  .layout = grant.layout,
                                  .generation = cl_io_generation(s->io),
                                  .state_bytes = cl_io_state_bytes(s->io),
                                  .ipv4 = c.ipv4,
                                  .ipv4_prefix = 16,
                                  .mtu = cl_io_mtu(s->io)};
    memcpy(a.mac, c.mac, 6);
    int fds[3] = {grant.arena_fd, cl_io_state_fd(s->io), grant.doorbell_fd};
    s->fds[s->n] = (struct pollfd){fd, POLLIN, 0};
    s->apps[s->n++] = grant.app;
    if (cl_fds_send(fd, &a, sizeof a, fds, 3) != sizeof a) /* the same */
        drop_app(s, s->n - 1);
}

static void *serve(void *arg)
{
    struct server *s = arg;
    s->fds[0] = (struct pollfd){s->stop_fd, POLLIN, 0};
    s->fds[1] = (struct pollfd){s->listener, POLLIN, 0};
    s->n = 2;
    for (;;) {
        CHECK(poll(s->fds, s->n, 20000) > 0);
        if (s->fds[0].revents)
            break;
        for (unsigned i = s->n; i-- > 2;)
            if (s->fds[i].revents)
                drop_app(s, i);
        if (s->n < PORTS + 3 && s->fds[1].revents)
            accept_app(s, accept(s->listener, NULL, NULL));
    }
    for (unsigned i = 2; i < s->n; i++)
        close(s->fds[i].fd); /* as SIGKILL would */
    return NULL;
}

static void server_start(struct server *s)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct cl_io_config config = {
        .n_loops = LOOPS, .poll = CL_IO_ADAPTIVE, .spin_us = 20, .pause_us = 20, .cpus = {-1, -1}};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    unlink(path);
    CHECK(cl_io_new(&config, &s->io, err) == 0);
    CHECK(cl_io_start(s->io, err) == 0);
    s->stop_fd = eventfd(0, 0);
    s->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(s->listener, (struct sockaddr *)&addr, sizeof addr) == 0 && listen(s->listener, 8) == 0);
    CHECK(pthread_create(&s->thread, NULL, serve, s) == 0);
}

static void server_kill(struct server *s)
{
    uint64_t one = 1;
    CHECK(write(s->stop_fd, &one, sizeof one) == sizeof one);
    pthread_join(s->thread, NULL);
    close(s->listener);
    close(s->stop_fd);
    cl_io_delete(s->io);
}

/* The applications. */

struct kthread {
    struct cl_nic *nic;
    unsigned port, queue;
    uint64_t random;
    pthread_mutex_t *rx_locks; /* of all queues of this application */
    pthread_t thread;
};

static uint32_t rnd(struct kthread *k, uint32_t n)
{
    k->random = k->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(k->random >> 33) % n;
}

static void send_some(struct kthread *k)
{
    struct cl_frame f[8];
    unsigned n = k->nic->ops->alloc(k->nic, k->queue, f, 1 + rnd(k, 8));
    for (unsigned i = 0; i < n; i++) {
        struct cl_udp_frame *u = (struct cl_udp_frame *)f[i].data;
        unsigned to = rnd(k, PORTS + 1), len = 16 + rnd(k, 300);
        uint8_t mac[6] = {2, 0, 0, 0, 0, (uint8_t)('0' + to)};
        cl_udp_headers(u, k->nic->mac, mac, k->nic->ipv4, 0x0a4d0010u + '0' + to, (uint16_t)rnd(k, 100), 9000,
                       (uint16_t)len);
        for (unsigned j = 2; j < len; j++)
            u->payload[j] = (uint8_t)rnd(k, 256);
        cl_put16(u->payload, cl_csum(u->payload + 2, len - 2));
        f[i].len = (uint16_t)(CL_UDP_HEADERS + len);
    }
    unsigned sent = n ? k->nic->ops->tx_burst(k->nic, k->queue, f, n) : 0;
    if (sent < n)
        k->nic->ops->free(k->nic, k->queue, f + sent, n - sent);
}

static unsigned receive_from(struct kthread *k, unsigned queue)
{
    struct cl_frame f[16];
    if (pthread_mutex_trylock(&k->rx_locks[queue]))
        return 0;
    unsigned n = k->nic->ops->rx_burst(k->nic, queue, f, 16);
    pthread_mutex_unlock(&k->rx_locks[queue]);
    for (unsigned i = 0; i < n; i++) {
        const struct cl_udp_frame *u = (const struct cl_udp_frame *)f[i].data;
        unsigned len = f[i].len - CL_UDP_HEADERS;
        CHECK(cl_get16(u->payload) == cl_csum(u->payload + 2, len - 2));
    }
    k->nic->ops->free(k->nic, k->queue, f, n);
    __atomic_fetch_add(&arrived, n, __ATOMIC_RELAXED);
    return n;
}

static void *run_kthread(void *arg)
{
    struct kthread *k = arg;
    struct cl_parker *parker = k->nic->ops->parker(k->nic, k->queue);
    while (!cl_load_relaxed(&stopping)) {
        if (rnd(k, 4) == 0)
            send_some(k);
        unsigned got = receive_from(k, k->queue) + receive_from(k, 1 - k->queue); /* the sibling's, too */
        if (rnd(k, 50) == 0)
            cl_park_wake(k->nic->ops->parker(k->nic, 1 - k->queue));
        if (got || rnd(k, 3))
            continue;
        cl_park_begin(parker);
        if (receive_from(k, k->queue))
            cl_park_cancel(parker);
        else
            k->nic->ops->wait(k->nic, k->queue, 500000);
    }
    return NULL;
}

/* An application that comes, sends, receives and goes again, with frames of its own and for it under way. */
static void *come_and_go(void *arg)
{
    (void)arg;
    pthread_mutex_t locks[1] = {PTHREAD_MUTEX_INITIALIZER};
    struct cl_port_config c = {.socket_path = path, .name = "p4", .n_kthreads = 1};
    struct kthread k = {.port = PORTS, .random = 99, .rx_locks = locks};
    const struct timespec nap = {0, 1000000};
    while (!cl_load_relaxed(&stopping)) {
        char why[256];
        if (cl_port_nic_new(&c, &k.nic, why) < 0) { /* no iokernel at the moment */
            nanosleep(&nap, NULL);
            continue;
        }
        for (unsigned i = rnd(&k, 200); i-- && !cl_load_relaxed(&stopping);) {
            send_some(&k);
            receive_from(&k, 0);
        }
        k.nic->ops->close(k.nic);
        __atomic_fetch_add(&visits, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* With nobody sending any more, every buffer comes home. */
static void conserved(struct cl_nic *nic)
{
    struct cl_frame f[16];
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (nic->ops->buffers_free(nic) != nic->n_buffers) {
        for (unsigned q = 0; q < KTHREADS; q++) {
            nic->ops->free(nic, q, f, nic->ops->rx_burst(nic, q, f, 16));
            cl_park_begin(nic->ops->parker(nic, q));
            nic->ops->wait(nic, q, 1000000);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        CHECK(now.tv_sec - start.tv_sec < 20);
    }
}

static void await(uint64_t target, uint64_t target_visits)
{
    struct timespec nap = {0, 2000000}, start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (__atomic_load_n(&arrived, __ATOMIC_RELAXED) < target ||
           __atomic_load_n(&visits, __ATOMIC_RELAXED) < target_visits) {
        nanosleep(&nap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        CHECK(now.tv_sec - start.tv_sec < 60);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    path = argv[1];
    uint64_t frames = strtoull(argv[2], NULL, 0);
    static struct kthread kthreads[PORTS][KTHREADS];
    static pthread_mutex_t locks[PORTS][KTHREADS];
    struct cl_nic *nics[PORTS];
    struct server server;
    for (unsigned i = 0; i < PORTS * KTHREADS; i++)
        pthread_mutex_init(&locks[i / KTHREADS][i % KTHREADS], NULL);
    server_start(&server);
    for (unsigned p = 0; p < PORTS; p++) {
        char name[8];
        snprintf(name, sizeof name, "p%u", p);
        struct cl_port_config c = {.socket_path = path, .name = name, .n_kthreads = KTHREADS, .reattach_ms = 5};
        CHECK(cl_port_nic_new(&c, &nics[p], err) == 0);
        for (unsigned q = 0; q < KTHREADS; q++) {
            kthreads[p][q] = (struct kthread){nics[p], p, q, p * 8 + q + 1, locks[p], 0};
            CHECK(pthread_create(&kthreads[p][q].thread, NULL, run_kthread, &kthreads[p][q]) == 0);
        }
    }
    pthread_t guest;
    CHECK(pthread_create(&guest, NULL, come_and_go, NULL) == 0);
    for (unsigned life = 1;; life++) {
        await(__atomic_load_n(&arrived, __ATOMIC_RELAXED) + frames, __atomic_load_n(&visits, __ATOMIC_RELAXED) + 3);
        if (life == LIVES)
            break;
        server_kill(&server);
        server_start(&server);
    }
    cl_store_relaxed(&stopping, 1);
    pthread_join(guest, NULL);
    for (unsigned i = 0; i < PORTS * KTHREADS; i++)
        pthread_join(kthreads[i / KTHREADS][i % KTHREADS].thread, NULL);
    for (unsigned p = 0; p < PORTS; p++)
        conserved(nics[p]);
    for (unsigned p = 0; p < PORTS; p++) {
        struct cl_port_info info;
        cl_port_info(nics[p], &info);
        CHECK(info.attached <= LIVES);
        nics[p]->ops->close(nics[p]);
    }
    server_kill(&server);
    unlink(path);
    printf("%llu frames arrived whole in %d lives, %llu visits\n", (unsigned long long)arrived, LIVES,
           (unsigned long long)visits);
    return 0;
}
