/* The sockets API on uthreads: two runtimes on the two ends of a memory link talk to each other, ARP included.
 *
 * argv[1]: rounds; argv[2]: kthreads of each runtime. Prints "ok". Run plain, under ASan and under TSan. */

#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 16

static unsigned rounds;

/* A server on B that reads from a socket and answers, until the socket is closed. */
static void server(void *arg)
{
    struct cl_udp_socket *s = arg;
    uint8_t data[2000];
    struct cl_udp_addr from;
    int64_t n;
    while ((n = cl_udp_recvfrom(s, data, sizeof data, &from, -1)) >= 0) {
        data[0]++;
        CHECK(cl_udp_sendto(s, data, n, &from) == n);
    }
    CHECK(n == -ESHUTDOWN);
    cl_wait_group_done(&all);
}

/* A client on A: sends, waits for its answer, sends again. The link loses nothing once ARP has resolved. */
static void client(void *arg)
{
    unsigned id = (unsigned)(uintptr_t)arg;
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_B, 9000, 0}, from;
    uint8_t data[1472], back[1472];
    CHECK(cl_udp_open(rt_a, 0, 0, &s) == 0);
    for (unsigned i = 0; i < rounds; i++) {
        int64_t len = 4 + (int64_t)((i * 97 + id) % 1400), n;
        memset(data, (int)(i + id), (size_t)len);
        CHECK(cl_udp_sendto(s, data, len, &to) == len);
        n = cl_udp_recvfrom(s, back, sizeof back, &from, 20000 * MS);
        CHECK(n == len);
        CHECK(from.ipv4 == IP_B && from.port == 9000);
        data[0]++;
        CHECK(memcmp(data, back, (size_t)len) == 0);
    }
    CHECK(cl_udp_close(s) == 0);
    cl_wait_group_done(&all);
}

static void closer(void *arg)
{
    CHECK(cl_udp_close(arg) == 0);
}

/* What a socket says when it cannot do what it is asked. */
static void refusals(void *arg)
{
    struct cl_udp_socket *s, *other;
    struct cl_udp_addr to = {IP_B, 9000, 0}, out = {0x08080808, 53, 0};
    uint8_t big[3000] = {0};
    (void)arg;
    CHECK(cl_udp_open(rt_a, 5000, 2, &s) == 0);
    CHECK(cl_udp_open(rt_a, 5000, 2, &other) == -EADDRINUSE);
    CHECK(cl_udp_open(rt_a, 5001, 5000, &other) == -EINVAL);
    CHECK(cl_udp_port(s) == 5000);
    CHECK(cl_udp_sendto(s, big, 1473, &to) == -EMSGSIZE);
    CHECK(cl_udp_sendto(s, big, -1, &to) == -EINVAL);
    CHECK(cl_udp_sendto(s, big, 10, &out) == -EHOSTUNREACH);
    CHECK(cl_udp_recvfrom(s, big, sizeof big, NULL, 0) == -EAGAIN);
    uint64_t before = cl_sched_now_ns(cl_runtime_sched(rt_a));
    CHECK(cl_udp_recvfrom(s, big, sizeof big, NULL, 5 * MS) == -ETIMEDOUT);
    CHECK(cl_sched_now_ns(cl_runtime_sched(rt_a)) - before >= 5 * MS);
    cl_sched_no_switch_enter();
    CHECK(cl_udp_recvfrom(s, big, sizeof big, NULL, -1) == -EDEADLK);
    cl_sched_no_switch_leave();
    cl_uthread_id id;
    CHECK(cl_uthread_spawn(closer, s, &id) == 0);
    CHECK(cl_udp_recvfrom(s, big, sizeof big, NULL, -1) == -ESHUTDOWN);
    CHECK(cl_uthread_join(id) == 0);
    CHECK(cl_udp_close(s) == -EINVAL);
    CHECK(cl_udp_recvfrom(s, big, sizeof big, NULL, 0) < 0);
    CHECK(cl_udp_open(rt_a, 5000, 2, &s) == 0); /* the port is free again */
    CHECK(cl_udp_close(s) == 0);
    cl_wait_group_done(&all);
}

/* A queue of two takes two of many and counts the others; a short buffer cuts. */
static void overflow(void *arg)
{
    struct cl_udp_socket *s, *from_a = arg;
    struct cl_udp_addr to = {IP_B, 9100, 0};
    uint8_t data[100] = {1, 2, 3};
    struct cl_net_stats stats;
    CHECK(cl_udp_open(rt_b, 9100, 2, &s) == 0);
    for (unsigned i = 0; i < 10; i++)
        CHECK(cl_udp_sendto(from_a, data, 100, &to) == 100);
    do {
        cl_uthread_sleep_ns(MS);
        cl_runtime_net_stats(rt_b, -1, &stats);
    } while (stats.dropped[CL_DROP_UDP_QUEUE_FULL] < 8);
    CHECK(stats.dropped[CL_DROP_UDP_QUEUE_FULL] == 8);
    CHECK(cl_udp_recvfrom(s, data, 3, NULL, 0) == -EPERM); /* a socket of the other runtime */
    CHECK(cl_udp_close(s) == -EPERM);
    cl_wait_group_done(&all);
}

static void balance(const struct cl_runtime *rt)
{
    struct cl_net_stats s;
    uint64_t dropped = 0;
    cl_runtime_net_stats(rt, -1, &s);
    for (unsigned r = 1; r < CL_DROP_REASONS; r++)
        dropped += s.dropped[r];
    CHECK(s.rx_frames == s.delivered + s.answered + dropped);
    CHECK(s.delivered == s.to_sockets + s.learned);
    CHECK(s.tx_dropped_full == 0 && s.tx_dropped_gone == 0);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 2 ? (unsigned)atoi(argv[2]) : 2;
    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 50;
    pair_new(kthreads, kthreads, 0);
    pair_start();

    struct cl_udp_socket *listening, *sender;
    CHECK(cl_udp_open(rt_b, 9000, 1024, &listening) == 0);
    CHECK(cl_udp_open(rt_a, 9999, 4, &sender) == 0);
    CHECK(cl_udp_close(listening) == -EPERM); /* a foreign thread, while it runs */
    for (unsigned i = 0; i < 3; i++)
        CHECK(cl_runtime_spawn(rt_b, server, listening) == 0);
    cl_wait_group_add(&all, 1);
    CHECK(cl_runtime_spawn(rt_a, client, (void *)(uintptr_t)CLIENTS) == 0); /* alone: its request waits for ARP */
    pair_wait();
    cl_wait_group_add(&all, CLIENTS + 1);
    for (unsigned i = 0; i < CLIENTS; i++)
        CHECK(cl_runtime_spawn(rt_a, client, (void *)(uintptr_t)i) == 0);
    CHECK(cl_runtime_spawn(rt_a, refusals, NULL) == 0);
    pair_wait();
    cl_wait_group_add(&all, 1);
    CHECK(cl_runtime_spawn(rt_a, overflow, sender) == 0);
    pair_wait();
    cl_wait_group_add(&all, 3); /* the servers end when their socket is closed */
    CHECK(cl_runtime_spawn(rt_b, closer, listening) == 0);
    pair_wait();

    pair_stop();
    balance(rt_a);
    balance(rt_b);
    pair_delete();
    printf("ok\n");
    return 0;
}
