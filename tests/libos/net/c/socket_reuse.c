/* Sockets that are closed and opened again while datagrams for them arrive: nothing of one life shows in the next one.
 * Not the post of a late datagram (a reader would wake to no datagram and take the socket for closed), nor a datagram
 * in the hands of a handler that was bound meanwhile to another port.
 *
 * argv[1]: rounds; argv[2]: kthreads of the receiver. Prints "ok". Run plain, under ASan and under TSan. */

#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLOODERS 4 /* source ports, so that the flows spread over the receiver's kthreads */
#define PORT 9000
#define HANDLERS 64

static unsigned rounds;
static uint32_t over; /* relaxed: says stop, and nothing else */
static uint64_t misled;

static void flooder(void *arg)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_B, PORT, 0};
    uint8_t data[64] = {0};
    (void)arg;
    CHECK(cl_udp_open(rt_a, 0, 4, &s) == 0);
    while (!cl_load_relaxed(&over)) {
        for (unsigned i = 0; i < 8; i++)
            (void)!cl_udp_sendto(s, data, sizeof data, &to); /* a full queue drops */
        cl_uthread_yield();
    }
    CHECK(cl_udp_close(s) == 0);
    cl_wait_group_done(&all);
}

/* Never called: all datagrams are for PORT. */
static int64_t wrong_port(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)request, (void)len, (void)reply, (void)room, (void)arg;
    __atomic_fetch_add(&misled, 1, __ATOMIC_RELAXED);
    return 0;
}

static void opener(void *arg)
{
    uint8_t data[64];
    unsigned handlers = 0;
    (void)arg;
    for (unsigned i = 0; i < rounds; i++) {
        struct cl_udp_socket *s;
        CHECK(cl_udp_open(rt_b, PORT, 2, &s) == 0);
        /* It is open: never -ESHUTDOWN. The first look waits, so that datagrams are under way when it is closed. */
        for (unsigned k = 0; k < 1 + i % 3; k++) {
            int64_t n = cl_udp_recvfrom(s, data, sizeof data, NULL, k ? 0 : 10000 * MS);
            CHECK(n == sizeof data || (k && n == -EAGAIN));
        }
        CHECK(cl_udp_close(s) == 0);
        if (i % (rounds / HANDLERS + 1) == 0)
            CHECK(cl_runtime_bind_udp(rt_b, (uint16_t)(PORT + 1 + handlers++), wrong_port, NULL) == 0);
    }
    cl_store_relaxed(&over, 1);
    cl_wait_group_done(&all);
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    unsigned kthreads = argc > 2 ? (unsigned)atoi(argv[2]) : 2;
    struct cl_net_stats s;
    pair_new(1, kthreads, 0);
    pair_start();
    cl_wait_group_add(&all, FLOODERS + 1);
    for (unsigned i = 0; i < FLOODERS; i++)
        CHECK(cl_runtime_spawn(rt_a, flooder, NULL) == 0);
    CHECK(cl_runtime_spawn(rt_b, opener, NULL) == 0);
    pair_wait();
    pair_stop();
    cl_runtime_net_stats(rt_b, -1, &s);
    CHECK(s.to_sockets > 0);
    CHECK(cl_load_relaxed(&misled) == 0 && s.handled == 0);
    pair_delete();
    printf("ok\n");
    return 0;
}
