/* No frame is slept on: one request at a time to some kthread of a runtime whose watch is off, so that a lost wake-up
 * stays lost, while siblings look at each other's NIC queues, take what they find, and go to sleep. A request now and
 * then keeps its kthread busy, and the next, of the same flow, is for a thief. Over the interface of libos/net and the
 * memory link.
 *
 * Usage: steal_wake KTHREADS MODE ROUNDS SEED. Prints "ok". Run plain and under TSan. */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include "libos/net/udp.h"
#include "libos/sched/internal.h"
#include <corelane/libos/sync.h>

#include <corelane/runtime/clock.h>

#include "tests/support/c/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define FLOWS 64
#define LONG_NS 100000

static const uint8_t mac_server[6] = {2, 0, 0, 0, 0, 1};

static int64_t handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room;
    (void)arg;
    if (request[0])
        for (uint64_t end = cl_sched_now_ns(cl_sched_self()) + LONG_NS; cl_sched_now_ns(cl_sched_self()) < end;)
            cl_relax();
    memcpy(reply, request, (size_t)len);
    return len;
}

static void send_request(struct cl_nic *nic, unsigned flow, bool is_long)
{
    struct cl_frame f;
    while (cl_nic_alloc(nic, 0, &f, 1) == 0)
        ;
    struct cl_udp_frame *u = (struct cl_udp_frame *)f.data;
    u->payload[0] = is_long;
    cl_udp_fill(u, mac_server, nic->mac, cl_be32(IP_CLIENT), cl_be32(IP_SERVER), cl_be16((uint16_t)(20000 + flow)),
                cl_be16(9000), 1, true);
    f.len = CL_UDP_HEADERS + 1;
    while (cl_nic_tx(nic, 0, &f, 1) == 0)
        ;
}

/* Wait for n replies. Dies by SIGALRM if one never comes. */
static void await(struct cl_nic *nic, unsigned n)
{
    struct cl_frame f;
    while (n) {
        if (cl_nic_rx(nic, 0, &f, 1) == 0) {
            cl_relax();
            continue;
        }
        n -= f.data[12] == 8 && f.data[13] == 0;
        cl_nic_free(nic, 0, &f, 1);
    }
}

static struct cl_runtime *make(struct cl_nic *nic, unsigned kthreads, const char *mode)
{
    struct cl_runtime_config config = {.nic = nic, .kthreads = kthreads, .poll_set = 1};
    struct cl_runtime *rt;
    char err[256] = "";
    config.poll = strcmp(mode, "block") ? CL_SCHED_ADAPTIVE : CL_SCHED_BLOCK;
    config.spin_ns = 3000;
    CHECK(cl_runtime_new(&config, &rt, err) == 0);
    struct cl_sched *s = cl_runtime_sched(rt);
    s->watch_ns = 0; /* before the kthreads start */
    for (unsigned k = 0; k < kthreads; k++)
        s->kthreads[k].watch_ns = 0;
    CHECK(cl_runtime_bind_udp(rt, 9000, handler, NULL) == 0);
    CHECK(cl_runtime_start(rt, err) == 0);
    return rt;
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    unsigned rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 10000;
    uint64_t state = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    struct cl_memory_config link = {.queues = {kthreads, 1}, .ipv4 = {IP_SERVER, IP_CLIENT}, .ipv4_prefix = 16};
    struct cl_nic *ends[2];
    struct cl_sched_stats stats;
    char err[256];
    CHECK(cl_memory_link_new(&link, ends, err) == 0);
    struct cl_runtime *rt = make(ends[0], kthreads, argc > 2 ? argv[2] : "adaptive");
    alarm(50);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned flow = (unsigned)(next_random(&state) % FLOWS);
        bool is_long = next_random(&state) % 64 == 0;
        send_request(ends[1], flow, is_long);
        if (is_long)
            for (unsigned n = 0; n < 4; n++)
                send_request(ends[1], flow, false);
        else /* at about the time at which kthreads go to sleep */
            send_request(ends[1], flow + (unsigned)(next_random(&state) % 3), false);
        await(ends[1], is_long ? 5 : 2);
        for (uint64_t n = next_random(&state) % 400; n; n--)
            cl_relax();
    }
    cl_runtime_sched_stats(rt, -1, &stats);
    printf("parks %llu, stolen %llu\n", (unsigned long long)stats.parks, (unsigned long long)stats.stolen_frames);
    CHECK(cl_runtime_stop(rt, -1) == 0);
    cl_runtime_delete(rt);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    printf("ok\n");
    return 0;
}
