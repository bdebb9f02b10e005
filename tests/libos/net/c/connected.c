/* Connected sockets and shared ports over a link: who gets a datagram, ICMP errors about what was sent and about what
 * was not, errors that nobody reads, connects at the same time. argv[1]: kthreads. Prints "ok". */
#include "libos/net/netif.h"
#include "libos/net/queue.h"
#include "libos/sched/internal.h"
#include "pair.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHARED 6000
#define ECHO 6900
#define CLIENTS 24
#define GROUP 4
#define WAIT (20000 * MS)

static struct cl_udp_socket *clients[CLIENTS];
static struct cl_udp_addr at_b = {IP_B, SHARED, 0};

static struct cl_udp_socket *open_shared(struct cl_runtime *rt)
{
    struct cl_udp_socket *s;
    CHECK_EQ(cl_udp_open_shared(rt, SHARED, 64, &s), 0);
    return s;
}

/* On B: who of a group got a number; every client has sent one. */
static unsigned drain(struct cl_udp_socket *s, int *owner, int me)
{
    struct cl_udp_addr from;
    unsigned n = 0;
    uint8_t id;
    for (; cl_udp_recvfrom(s, &id, 1, &from, 0) == 1; n++) {
        CHECK(owner[id] == -1 || owner[id] == me, "the flow of client %u changed its socket", id);
        owner[id] = me;
    }
    return n;
}

static void all_send(void *arg)
{
    (void)arg;
    for (uint8_t id = 0; id < CLIENTS; id++)
        CHECK_EQ(cl_udp_sendto(clients[id], &id, 1, &at_b), 1);
    cl_wait_group_done(&all);
}

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room, (void)arg;
    memcpy(reply, request, (size_t)len);
    return len;
}

static void open_clients(void *arg)
{
    struct cl_udp_addr to = {IP_B, ECHO, 0};
    char data;
    (void)arg;
    for (unsigned i = 0; i < CLIENTS; i++)
        CHECK_EQ(cl_udp_open(rt_a, 0, 0, &clients[i]), 0);
    CHECK_EQ(cl_udp_sendto(clients[0], "x", 1, &to), 1); /* so that ARP is over, which holds few datagrams */
    CHECK_EQ(cl_udp_recvfrom(clients[0], &data, 1, NULL, WAIT), 1);
    cl_wait_group_done(&all);
}

static void on(struct cl_runtime *rt, cl_uthread_fn fn)
{
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt, fn, NULL), 0);
    pair_wait();
}

static struct cl_udp_socket *group[GROUP];
static int owner[CLIENTS];

static void refusals(void *arg)
{
    struct cl_udp_socket *s, *other;
    struct cl_udp_addr away = {0x08080808, 53, 0}, none = {IP_A, 0, 0}, a = {IP_A, 9, 0};
    (void)arg;
    CHECK_EQ(cl_udp_open(rt_b, SHARED, 0, &s), -EADDRINUSE);
    CHECK_EQ(cl_udp_open(rt_b, SHARED + 1, 0, &s), 0);
    CHECK_EQ(cl_udp_open_shared(rt_b, SHARED + 1, 0, &other), -EADDRINUSE);
    CHECK_EQ(cl_udp_send(s, "x", 1), -EDESTADDRREQ);
    CHECK_EQ(cl_udp_connect(s, &away), -EHOSTUNREACH);
    CHECK_EQ(cl_udp_connect(s, &none), -EINVAL);
    CHECK_EQ(cl_udp_connect(s, NULL), 0);
    CHECK_EQ(cl_udp_connect(group[0], &a), 0);
    CHECK_EQ(cl_udp_connect(group[1], &a), -EADDRINUSE);
    CHECK_EQ(cl_udp_connect(group[0], NULL), 0);
    CHECK_EQ(cl_udp_close(s), 0);
    CHECK_EQ(cl_udp_connect(s, &a), -EINVAL);
    cl_wait_group_done(&all);
}

/* All flows of one burst go to the sockets that they went to before. */
static void collect(void *arg)
{
    unsigned n = 0, users = 0;
    (void)arg;
    while (n < CLIENTS) {
        for (int i = 0; i < GROUP; i++)
            n += drain(group[i], owner, i);
        cl_uthread_sleep_ns(MS / 10);
    }
    for (int i = 0; i < GROUP; i++)
        for (unsigned id = 0; id < CLIENTS; id++)
            if (owner[id] == i) {
                users++;
                break;
            }
    CHECK(users > 1, "all flows went to one socket");
    cl_wait_group_done(&all);
}

/* One of the group is connected to the first client: it gets that one's, the rest gets the others'. */
static void connect_first(void *arg)
{
    struct cl_udp_addr first = {IP_A, cl_udp_port(clients[0]), 0};
    (void)arg;
    CHECK_EQ(cl_udp_connect(group[0], &first), 0);
    cl_wait_group_done(&all);
}

static void collect_connected(void *arg)
{
    unsigned n = 0;
    uint8_t id;
    (void)arg;
    CHECK_EQ(cl_udp_recvfrom(group[0], &id, 1, NULL, WAIT), 1);
    CHECK_EQ(id, 0);
    CHECK_EQ(cl_udp_send(group[0], "back", 4), 4);
    for (unsigned i = 0; i < CLIENTS; i++)
        owner[i] = -1;
    while (n < CLIENTS - 1) {
        for (int i = 1; i < GROUP; i++)
            n += drain(group[i], owner, i);
        cl_uthread_sleep_ns(MS / 10);
    }
    CHECK_EQ(owner[0], -1);
    CHECK_EQ(cl_udp_recvfrom(group[0], &id, 1, NULL, 0), -EAGAIN);
    for (int i = 0; i < GROUP; i++)
        CHECK_EQ(cl_udp_close(group[i]), 0);
    cl_wait_group_done(&all);
}

/* The port is nobody's now: a connected socket is told, once; one that is not connected is not. */
static void refused(void *arg)
{
    char data[8];
    (void)arg;
    CHECK_EQ(cl_udp_recvfrom(clients[0], data, 8, NULL, WAIT), 4);
    CHECK_EQ(cl_udp_connect(clients[0], &at_b), 0);
    CHECK_EQ(cl_udp_sendto(clients[1], "x", 1, &at_b), 1);
    CHECK_EQ(cl_udp_send(clients[0], "x", 1), 1);
    CHECK_EQ(cl_udp_recvfrom(clients[0], data, 8, NULL, WAIT), -ECONNREFUSED);
    CHECK_EQ(cl_udp_recvfrom(clients[0], data, 8, NULL, 0), -EAGAIN);
    CHECK_EQ(cl_udp_send(clients[0], "x", 1), 1); /* and that one is refused, too: a later send is told */
    int64_t rc;
    do {
        cl_uthread_sleep_ns(MS / 10);
    } while ((rc = cl_udp_send(clients[0], "x", 1)) == 1);
    CHECK_EQ(rc, -ECONNREFUSED);
    CHECK_EQ(cl_udp_recvfrom(clients[1], data, 8, NULL, 0), -EAGAIN);
    struct cl_net_stats s;
    cl_runtime_net_stats(rt_a, -1, &s);
    CHECK(s.icmp_errors >= 2 && s.dropped[CL_DROP_ICMP_ERROR] >= 1);
    cl_wait_group_done(&all);
}

/* Many errors, and nobody who reads: one post for all of them is kept for a reader, who finds the last. */
static void refused_often(void *arg)
{
    char data[8];
    (void)arg;
    struct cl_udp_socket *s = clients[2];
    CHECK_EQ(cl_udp_connect(s, &at_b), 0);
    for (unsigned i = 0; i < 10; i++) {
        while (cl_udp_send(s, "x", 1) != -ECONNREFUSED)
            cl_uthread_sleep_ns(MS);
        CHECK(cl_sem_value(&s->queue->filled) <= 1);
    }
    CHECK_EQ(cl_udp_send(s, "x", 1), 1);
    while (!cl_load_relaxed(&s->error))
        cl_uthread_sleep_ns(MS);
    CHECK_EQ(cl_udp_recvfrom(s, data, 8, NULL, WAIT), -ECONNREFUSED);
    CHECK_EQ(cl_udp_recvfrom(s, data, 8, NULL, 0), -EAGAIN);
    CHECK_EQ(cl_udp_send(s, "x", 1), 1); /* and the next one is told as the first was */
    CHECK_EQ(cl_udp_recvfrom(s, data, 8, NULL, WAIT), -ECONNREFUSED);
    cl_wait_group_done(&all);
}

#define CONNECTS 300000

static struct cl_udp_socket *contended;
static uint32_t undisturbed;

/* SIGPROF reaches kthreads wherever they are, and puts them aside for a while. */
static void be_away(int signal)
{
    static const struct timespec away = {0, 100000};
    (void)signal;
    nanosleep(&away, NULL);
}

static void *disturb(void *arg)
{
    static const struct timespec pause = {0, 70000};
    const struct cl_sched *s = cl_runtime_sched(rt_b);
    for (unsigned i = 0; !cl_load_acquire(&undisturbed); i++) {
        syscall(SYS_tgkill, getpid(), cl_load_relaxed(&s->kthreads[i % s->n_kthreads].tid), SIGPROF);
        nanosleep(&pause, NULL);
    }
    return arg;
}

static void connect_to(uint16_t port)
{
    struct cl_udp_addr to = {IP_A, port, 0};
    for (unsigned i = 0; i < CONNECTS; i++) {
        CHECK_EQ(cl_udp_connect(contended, &to), 0);
        if (i % 256 == 0)
            cl_uthread_yield();
    }
    cl_wait_group_done(&all);
}

static void connect_to_one(void *arg)
{
    (void)arg;
    connect_to(1);
}

static void connect_to_other(void *arg)
{
    (void)arg;
    connect_to(2);
}

/* One socket of a shared port, connected here and there by two uthreads at once: once it is connected to nobody, both
 * peers are free for another one. */
static void connected_at_once(void *arg)
{
    struct cl_udp_socket *other;
    (void)arg;
    CHECK(!contended->next_flow, "it is in a list with itself");
    CHECK_EQ(cl_udp_connect(contended, NULL), 0);
    CHECK_EQ(cl_udp_open_shared(rt_b, SHARED + 2, 0, &other), 0);
    for (uint16_t port = 1; port <= 2; port++) {
        struct cl_udp_addr to = {IP_A, port, 0};
        CHECK_EQ(cl_udp_connect(other, &to), 0);
        CHECK(!contended->next_flow, "it is still among those that are connected");
    }
    CHECK_EQ(cl_udp_close(other), 0);
    CHECK_EQ(cl_udp_close(contended), 0);
    cl_wait_group_done(&all);
}

static void close_clients(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CLIENTS; i++)
        CHECK_EQ(cl_udp_close(clients[i]), 0);
    cl_wait_group_done(&all);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    pair_new(kthreads, kthreads, 0);
    CHECK_EQ(cl_runtime_bind_udp(rt_b, ECHO, echo, NULL), 0);
    pair_start();
    on(rt_a, open_clients);
    for (unsigned i = 0; i < GROUP; i++)
        group[i] = open_shared(rt_b);
    memset(owner, -1, sizeof owner);
    on(rt_b, refusals);
    for (unsigned i = 0; i < 2; i++) {
        on(rt_a, all_send);
        on(rt_b, collect);
    }
    on(rt_b, connect_first);
    on(rt_a, all_send);
    on(rt_b, collect_connected);
    on(rt_a, refused);
    on(rt_a, refused_often);
    CHECK_EQ(cl_udp_open_shared(rt_b, SHARED + 2, 0, &contended), 0);
    pthread_t thread;
    struct sigaction away = {.sa_handler = be_away, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGPROF, &away, NULL);
    pthread_create(&thread, NULL, disturb, NULL);
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_b, connect_to_one, NULL), 0);
    on(rt_b, connect_to_other);
    cl_store_release(&undisturbed, 1);
    pthread_join(thread, NULL);
    on(rt_b, connected_at_once);
    on(rt_a, close_clients);
    pair_stop();
    pair_delete();
    printf("ok\n");
    return 0;
}
