/* Answers to more requests than the NIC's queue holds: the server leaves requests in the NIC until there is room, and
 * loses no answer. A client sends until it is refused for a while before it receives anything, round by round. The
 * server may hold back for CL_NETQ_HOLD_US only, so that a client that stood still for as long makes a round that says
 * nothing: rounds are repeated until WHOLE of them in a row lost nothing. At last the client receives nothing for good:
 * the server goes on, for all of LOST requests, and counts what it loses.
 *
 * Usage: full_tx. Prints "ok". Run plain, under ASan and under TSan. */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include "libos/net/udp.h"

#include <corelane/runtime/clock.h>

#include "tests/support/c/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define SLOTS 64
#define REQUESTS 400
#define REFUSED_NS 200000
#define WHOLE 4
#define LOST 20000 /* more than one that holds back anew each time would ever take */

static const uint8_t mac_server[6] = {2, 0, 0, 0, 0, 1};

static int64_t handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room;
    (void)arg;
    memcpy(reply, request, (size_t)len);
    return len;
}

static int64_t now_ns(void)
{
    return cl_ticks_to_ns(cl_clock_default(), (int64_t)cl_tsc());
}

/* False: it was refused for a while. */
static bool send_request(struct cl_nic *nic)
{
    struct cl_frame f;
    int64_t until = now_ns() + REFUSED_NS;
    while (cl_nic_alloc(nic, 0, &f, 1) == 0)
        if (now_ns() > until)
            return false;
    struct cl_udp_frame *u = (struct cl_udp_frame *)f.data;
    u->payload[0] = 1;
    cl_udp_fill(u, mac_server, nic->mac, cl_be32(IP_CLIENT), cl_be32(IP_SERVER), cl_be16(20000), cl_be16(9000), 1,
                true);
    f.len = CL_UDP_HEADERS + 1;
    while (cl_nic_tx(nic, 0, &f, 1) == 0)
        if (now_ns() > until) {
            cl_nic_free(nic, 0, &f, 1);
            return false;
        }
    return true;
}

/* Answers that are there. */
static unsigned take(struct cl_nic *nic)
{
    struct cl_frame f;
    unsigned n = 0;
    while (cl_nic_rx(nic, 0, &f, 1)) {
        n += f.data[12] == 8 && f.data[13] == 0;
        cl_nic_free(nic, 0, &f, 1);
    }
    return n;
}

static struct cl_net_stats stats_of(const struct cl_runtime *rt)
{
    struct cl_net_stats stats;
    cl_runtime_net_stats(rt, -1, &stats);
    return stats;
}

/* How many answers of the round were lost. Every request is answered or its answer counted as lost. */
static uint64_t one_round(struct cl_nic *nic, const struct cl_runtime *rt)
{
    uint64_t before = stats_of(rt).tx_dropped_full;
    unsigned got = 0;
    for (unsigned sent = 0; sent < REQUESTS;)
        if (send_request(nic))
            sent++;
        else
            got += take(nic);
    while (got + (stats_of(rt).tx_dropped_full - before) < REQUESTS)
        got += take(nic);
    CHECK(got + (stats_of(rt).tx_dropped_full - before) == REQUESTS);
    return stats_of(rt).tx_dropped_full - before;
}

int main(void)
{
    struct cl_memory_config link = {
        .queues = {1, 1}, .ring_slots = SLOTS, .buffers = 4096, .ipv4 = {IP_SERVER, IP_CLIENT}, .ipv4_prefix = 16};
    struct cl_runtime_config config = {.kthreads = 1, .poll_set = 1, .poll = CL_SCHED_ADAPTIVE};
    struct cl_nic *ends[2];
    struct cl_runtime *rt;
    char err[256];
    CHECK(cl_memory_link_new(&link, ends, err) == 0);
    config.nic = ends[0];
    CHECK(cl_runtime_new(&config, &rt, err) == 0);
    CHECK(cl_runtime_bind_udp(rt, 9000, handler, NULL) == 0);
    CHECK(cl_runtime_start(rt, err) == 0);
    alarm(50);
    CHECK(send_request(ends[1])); /* ARP is resolved */
    while (take(ends[1]) == 0)
        cl_relax();
    for (unsigned whole = 0; whole < WHOLE;)
        whole = one_round(ends[1], rt) ? 0 : whole + 1;
    uint64_t lost = stats_of(rt).tx_dropped_full;
    while (stats_of(rt).tx_dropped_full < lost + LOST)
        send_request(ends[1]);
    CHECK(cl_runtime_stop(rt, -1) == 0);
    cl_runtime_delete(rt);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    printf("ok\n");
    return 0;
}
