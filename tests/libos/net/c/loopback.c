/* Datagrams of a runtime to itself: by its own address and by 127.0.0.0/8, socket to socket, socket to handler and
 * back, a handler to itself, to a port that nobody has, more than may wait. None reaches the NIC, and the counters
 * balance.
 *
 * argv[1]: kthreads. Prints "ok". */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOCAL 0x7f000001u
#define ECHO 7000
#define ITSELF 7001
#define WAITING 256 /* of a kthread, as udp.h says */
#define STEPS 1000

static struct cl_udp_socket *sender; /* of handlers */
static unsigned steps;

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    const struct cl_udp_req *req = cl_current_request();
    (void)room, (void)arg;
    CHECK(req->looped && !req->broadcast);
    memcpy(reply, request, (size_t)len);
    return len;
}

/* Sends itself the next of a number of steps, and the last to whom it began with. */
static int64_t itself(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    struct cl_udp_addr to = {LOCAL, ITSELF, 0};
    uint32_t left;
    (void)reply, (void)room, (void)arg;
    CHECK_EQ(len, 6);
    memcpy(&left, request, 4);
    __atomic_fetch_add(&steps, 1, __ATOMIC_RELAXED);
    if (left == 0)
        memcpy(&to.port, request + 4, 2);
    uint8_t next[6];
    left--;
    memcpy(next, &left, 4);
    memcpy(next + 4, request + 4, 2);
    CHECK_EQ(cl_udp_sendto(sender, next, 6, &to), 6);
    return 0;
}

static void exchange(struct cl_udp_socket *s, uint32_t ipv4, uint32_t comes_from)
{
    struct cl_udp_addr to = {ipv4, ECHO, 0}, from;
    uint8_t data[1472], back[1472];
    for (int64_t len = 1; len <= 1472; len += 131) {
        memset(data, (int)len, sizeof data);
        CHECK_EQ(cl_udp_sendto(s, data, len, &to), len);
        CHECK_EQ(cl_udp_recvfrom(s, back, sizeof back, &from, 20000 * MS), len);
        CHECK_EQ(memcmp(data, back, (size_t)len), 0);
        CHECK_EQ(from.ipv4, comes_from);
        CHECK_EQ(from.port, ECHO);
    }
}

static void to_sockets(void)
{
    struct cl_udp_socket *a, *b;
    struct cl_udp_addr to = {LOCAL, 0, 0}, from;
    uint8_t data[16] = "to a socket";
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &a), 0);
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &b), 0);
    to.port = cl_udp_port(b);
    CHECK_EQ(cl_udp_sendto(a, data, sizeof data, &to), sizeof data);
    memset(data, 0, sizeof data);
    CHECK_EQ(cl_udp_recvfrom(b, data, sizeof data, &from, 20000 * MS), sizeof data);
    CHECK(from.ipv4 == LOCAL && from.port == cl_udp_port(a));
    CHECK_EQ(strcmp((char *)data, "to a socket"), 0);
    CHECK_EQ(cl_udp_close(b), 0);
    /* Nobody has the port now: that comes back by ICMP, as from a stranger. */
    CHECK_EQ(cl_udp_connect(a, &to), 0);
    CHECK_EQ(cl_udp_send(a, data, 1), 1);
    CHECK_EQ(cl_udp_recvfrom(a, data, sizeof data, NULL, 20000 * MS), -ECONNREFUSED);
    CHECK_EQ(cl_udp_close(a), 0);
}

/* While this uthread does not let its kthread go; a sibling takes some. */
static void too_many(void)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_A, 0, 0};
    struct cl_net_stats stats;
    int64_t rc, refused = 0;
    CHECK_EQ(cl_udp_open(rt_a, 0, 4096, &s), 0);
    to.port = cl_udp_port(s);
    unsigned sent = 0;
    for (; sent < 100 * WAITING && refused<10; sent += rc> 0)
        if ((rc = cl_udp_sendto(s, "x", 1, &to)) < 0) {
            CHECK_EQ(rc, -ENOBUFS);
            refused++;
        }
    CHECK(refused == 10 && sent >= WAITING);
    cl_runtime_net_stats(rt_a, -1, &stats);
    CHECK_EQ(stats.tx_dropped_loop, 10);
    for (unsigned i = 0; i < (sent < 4096 ? sent : 4096); i++)
        CHECK_EQ(cl_udp_recvfrom(s, &rc, 1, NULL, 20000 * MS), 1);
    CHECK_EQ(cl_udp_close(s), 0);
}

static void client(void *arg)
{
    struct cl_udp_socket *s;
    struct cl_udp_addr to = {IP_A, ITSELF, 0};
    uint32_t left = STEPS;
    uint8_t data[6];
    (void)arg;
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &s), 0);
    exchange(s, IP_A, IP_A);
    exchange(s, LOCAL, LOCAL);
    exchange(s, LOCAL + 77, LOCAL + 77);
    memcpy(data, &left, 4);
    uint16_t port = cl_udp_port(s);
    memcpy(data + 4, &port, 2);
    CHECK_EQ(cl_udp_sendto(s, data, 6, &to), 6);
    to.ipv4 = LOCAL;
    CHECK_EQ(cl_udp_recvfrom(s, data, 6, NULL, 60000 * MS), 6);
    CHECK_EQ(__atomic_load_n(&steps, __ATOMIC_RELAXED), STEPS + 1);
    to_sockets();
    too_many();
    CHECK_EQ(cl_udp_close(s), 0);
    cl_wait_group_done(&all);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    struct cl_net_stats s;
    uint64_t dropped = 0;
    pair_new(kthreads, 1, 0);
    CHECK_EQ(cl_runtime_bind_udp(rt_a, ECHO, echo, NULL), 0);
    CHECK_EQ(cl_runtime_bind_udp(rt_a, ITSELF, itself, NULL), 0);
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &sender), 0);
    pair_start();
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_a, client, NULL), 0);
    pair_wait();
    pair_stop();
    cl_runtime_net_stats(rt_a, -1, &s);
    for (unsigned r = 1; r < CL_DROP_REASONS; r++)
        dropped += s.dropped[r];
    CHECK_EQ(s.rx_frames, s.delivered + s.answered + dropped);
    CHECK_EQ(s.delivered, s.handled + s.to_sockets + s.learned + s.icmp_errors);
    CHECK_EQ(s.dropped[CL_DROP_UDP_NO_PORT], 1);
    CHECK_EQ(s.icmp_errors, 1);
    CHECK(s.looped > STEPS);
    CHECK_EQ(s.tx_frames, 1); /* the announcement of our address */
    struct cl_chunk_stats chunks;
    CHECK_EQ(cl_runtime_chunk_stats(rt_a, CL_CHUNKS_UDP, &chunks), 0);
    CHECK_EQ(chunks.held_bytes, 0);
    CHECK(chunks.taken >= s.to_sockets);
    pair_delete();
    printf("ok\n");
    return 0;
}
