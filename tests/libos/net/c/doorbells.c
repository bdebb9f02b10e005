/* How many doorbells answers take on a NIC whose doorbell is a system call (nic.h, tx_calls): all that a burst answers
 * leaves by one, a lone answer at once, and after a slow request answers leave one by one for a while. One kthread,
 * stepped.
 *
 * Usage: doorbells. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include "libos/net/icmp.h"
#include "libos/net/udp.h"

#include <corelane/runtime/clock.h>

#include "tests/support/c/check.h"

#include <stdio.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define BURST 20
#define PING 0 /* instead of a port: the stack answers itself, in the poll */
#define SLOW_NS 20000
#define QUICK_AGAIN 200 /* requests after a slow one until answers are gathered again, at the latest */

static struct cl_nic *ends[2];
static struct cl_runtime *rt;
static unsigned doorbells, sent;

static unsigned (*send_burst)(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);

static unsigned counted(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    doorbells++;
    sent += n;
    return send_burst(nic, queue, frames, n);
}

static int64_t handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    uint64_t begin = cl_tsc();
    (void)room;
    (void)arg;
    while (request[0] && cl_ticks_to_ns(cl_clock_default(), (int64_t)(cl_tsc() - begin)) < SLOW_NS)
        cl_relax();
    memcpy(reply, request, (size_t)len);
    return len;
}

static void burst_handler(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < n; i++)
        reqs[i].reply_len = handler(reqs[i].data, reqs[i].len, reqs[i].reply, reqs[i].room, NULL);
}

static void ask(uint16_t port, bool slow)
{
    struct cl_frame f;
    CHECK(cl_nic_alloc(ends[1], 0, &f, 1) == 1);
    struct cl_udp_frame *u = (struct cl_udp_frame *)f.data;
    u->payload[0] = slow;
    cl_udp_fill(u, ends[0]->mac, ends[1]->mac, cl_be32(IP_CLIENT), cl_be32(IP_SERVER), cl_be16(20000), cl_be16(port), 1,
                true);
    f.len = CL_UDP_HEADERS + 1;
    CHECK(cl_nic_tx(ends[1], 0, &f, 1) == 1);
}

static void ping(void)
{
    struct cl_frame f;
    CHECK(cl_nic_alloc(ends[1], 0, &f, 1) == 1);
    struct cl_ipv4 *ip = (struct cl_ipv4 *)(f.data + CL_ETH_HLEN);
    struct cl_icmp *request = (struct cl_icmp *)(ip + 1);
    cl_eth_fill((struct cl_eth *)f.data, ends[0]->mac, ends[1]->mac, CL_ETHERTYPE_IPV4);
    cl_ipv4_fill(ip, cl_be32(IP_CLIENT), cl_be32(IP_SERVER), CL_IPPROTO_ICMP, sizeof *request);
    *request = (struct cl_icmp){.type = CL_ICMP_ECHO};
    request->check = cl_csum(request, sizeof *request);
    f.len = CL_ETH_HLEN + CL_IPV4_HLEN + sizeof *request;
    CHECK(cl_nic_tx(ends[1], 0, &f, 1) == 1);
}

/* How many doorbells the answers to n requests that are there together take. */
static unsigned rings(uint16_t port, unsigned n, unsigned n_slow)
{
    struct cl_frame f;
    unsigned got = 0;
    for (unsigned i = 0; i < n; i++) {
        if (port == PING)
            ping();
        else
            ask(port, i < n_slow);
    }
    doorbells = sent = 0;
    while (sent < n)
        CHECK(cl_sched_step(cl_runtime_sched(rt), 0) >= 0);
    for (; cl_nic_rx(ends[1], 0, &f, 1); got++)
        cl_nic_free(ends[1], 0, &f, 1);
    CHECK(got == n && sent == n, "%u answers of %u, sent %u", got, n, sent);
    return doorbells;
}

int main(void)
{
    struct cl_memory_config link = {
        .queues = {1, 1}, .ring_slots = 256, .buffers = 1024, .ipv4 = {IP_SERVER, IP_CLIENT}, .ipv4_prefix = 16};
    struct cl_runtime_config config = {.kthreads = 1};
    char err[256];
    CHECK(cl_memory_link_new(&link, ends, err) == 0, "%s", err);
    struct cl_nic_ops ops = *ends[0]->ops;
    send_burst = ops.tx_burst;
    ops.tx_burst = counted;
    ends[0]->ops = &ops;
    ends[0]->tx_calls = 1;
    config.nic = ends[0];
    CHECK(cl_runtime_new(&config, &rt, err) == 0, "%s", err);
    CHECK(cl_runtime_bind_udp(rt, 9000, handler, NULL) == 0);
    CHECK(cl_runtime_bind_udp_burst(rt, 9001, burst_handler, NULL) == 0);
    for (uint16_t port = 9000; port <= 9001; port++) {
        unsigned whole = 0;
        CHECK(rings(port, 1, 0) == 1);
        /* Another program may take our CPU in the middle of a request, which is slow then. */
        for (unsigned tries = 0; whole < 3 && tries < 10 * QUICK_AGAIN; tries++)
            whole = rings(port, BURST, 0) == 1 ? whole + 1 : 0;
        CHECK(whole == 3);
    }
    CHECK(rings(PING, 1, 0) == 1);
    CHECK(rings(PING, BURST, 0) == 1);
    CHECK(rings(9000, 1, 1) == 1);         /* a slow one, and its answer at once */
    CHECK(rings(9000, BURST, 0) == BURST); /* so that none waits for the next slow one */
    unsigned tries = 0;
    while (rings(9000, BURST, 0) > 1 && tries < 10 * QUICK_AGAIN)
        tries++;
    CHECK(tries < 10 * QUICK_AGAIN);
    CHECK(rings(9000, BURST, 1) > 1); /* those behind a slow one do not wait for each other either */
    cl_runtime_delete(rt);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    printf("ok\n");
    return 0;
}
