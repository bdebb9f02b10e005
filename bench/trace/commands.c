/* See commands.h. */
#include "commands.h"
#include "virtual.h"

#include <corelane/drivers/memory.h>
#include <corelane/libos/uthread.h>
#include "../../apps/raft/node/frame.h"
#include "../../apps/raft/service/serve.h"
#include "../../apps/raft/transport/link.h"
#include "../../drivers/random.h"

#include <errno.h>
#include <stdio.h>

#define IP_FIRST 0x0a4d0001u
#define PORT 7400
#define NODES 2
#define DISK_BYTES (64ull << 20)
#define DISK_NS 1000
#define TICK_NS 1000000
#define LEADS_NS 1000000000ull /* within which the first node does */
#define AFTER_NS 10000000      /* in which the last are answered */
#define CLUSTER 1
#define FRAME_BYTES 256

struct node {
    struct group *group;
    struct cl_runtime *rt;
    struct cl_raft_service *service;
    struct cl_bench_virtual_log log;
};

struct group {
    const struct cl_bench_delays *config;
    uint64_t now_ns;
    struct cl_clock clock;
    struct cl_stepper *stepper;
    struct cl_nic *ends[NODES];
    struct node nodes[NODES];
    struct cl_udp_socket *sock;
    struct raft_link link;
    struct cl_random random;
    uint32_t asked;
    char *err;
};

static int64_t apply(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                     uint8_t *reply, uint32_t room)
{
    const struct node *n = arg;
    struct group *g = n->group;
    (void)index, (void)clock_ms, (void)room;
    if (n == &g->nodes[0] && g->config->where == CL_BENCH_DELAY_APPLY && bytes && command[0])
        g->now_ns += g->config->delay_ns;
    reply[0] = 1;
    return 1;
}

static int64_t query(void *arg, uint64_t clock_ms, const uint8_t *text, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    (void)arg, (void)clock_ms, (void)text, (void)bytes, (void)reply, (void)room;
    return 0;
}

static int64_t save(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    (void)arg, (void)at, (void)out, (void)room;
    return 0;
}

static int load(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    (void)arg, (void)at, (void)data, (void)bytes, (void)total;
    return 0;
}

static void ask(struct group *g, bool delayed)
{
    struct cl_udp_addr to = {.ipv4 = IP_FIRST, .port = PORT};
    struct node_frame f = {.kind = CL_RAFT_APPLY, .ticket = g->asked, .data = (const uint8_t[]){delayed}, .bytes = 1};
    uint8_t frame[FRAME_BYTES];
    raft_link_send(&g->link, g->sock, &to, frame, node_frame_encode(CLUSTER, &f, frame));
    while (cl_udp_recvfrom(g->sock, frame, sizeof frame, NULL, 0) >= 0)
        ;
}

static void ask_all(void *arg)
{
    struct group *g = arg;
    const struct cl_bench_delays *c = g->config;
    while (cl_raft_service_leads_for_ns(g->nodes[0].service) == UINT64_MAX)
        cl_uthread_sleep_ns(TICK_NS);
    uint64_t next = g->now_ns;
    for (; g->asked < c->requests; g->asked++) {
        bool delayed = cl_random_below(&g->random, c->one_in) == 0;
        next += (uint64_t)(c->interval_ns * cl_random_exp(&g->random)) + 1;
        cl_uthread_sleep_until_ns(next);
        for (unsigned i = 0; i < NODES; i++)
            if (c->where == (i == 0 ? CL_BENCH_DELAY_OWN_LOG : CL_BENCH_DELAY_OTHERS))
                (void)cl_bench_virtual_log_takes(&g->nodes[i].log, delayed ? c->delay_ns : DISK_NS, g->err);
        ask(g, delayed);
    }
}

static int make_node(struct group *g, unsigned i)
{
    struct node *n = &g->nodes[i];
    uint32_t other = 1 - i;
    int rc = 0;
    n->group = g;
    n->rt = cl_bench_virtual_host(g->stepper, g->ends[i], IP_FIRST + i,
                                  i == 0 ? CL_RUNTIME_TRACE_FULL : CL_RUNTIME_TRACE_OFF, &rc, g->err);
    rc = rc ? rc : cl_bench_virtual_log_open(&n->log, g->stepper, &g->now_ns, DISK_BYTES, DISK_NS, g->err);
    struct cl_raft_serve_config c = {
        .node = {.raft = {.id = i + 1,
                          .election_ticks = 10,
                          .cluster = CLUSTER,
                          .seed = 1, /* by which the first node's time comes first */
                          .members = {.n_voters = NODES, .voters = {1, 2}}},
                 .machine = {.arg = n, .apply = apply, .query = query, .save = save, .load = load},
                 .log = n->log.log,
                 .tick_ns = TICK_NS},
        .peers = {{.id = other + 1, .ipv4 = IP_FIRST + other, .port = PORT}},
        .n_peers = 1,
        .port = PORT,
        .blk = n->log.disk};
    return rc ? rc : cl_raft_serve(n->rt, &c, &n->service, g->err);
}

static int make(struct group *g)
{
    struct cl_memory_config m = {.clock = &g->clock};
    struct cl_runtime_info info;
    cl_clock_virtual(&g->clock, &g->now_ns);
    int rc = cl_memory_link_new(&m, g->ends, g->err);
    rc = rc ? rc : cl_stepper_new(&g->now_ns, &g->stepper);
    for (unsigned i = 0; i < NODES; i++)
        rc = rc ? rc : make_node(g, i);
    if (rc)
        return rc;
    cl_runtime_info(g->nodes[1].rt, &info);
    raft_link_init(&g->link, info.mtu, FRAME_BYTES);
    rc = cl_udp_open(g->nodes[1].rt, 0, 4096, &g->sock);
    return rc ? rc : cl_runtime_spawn(g->nodes[1].rt, ask_all, g);
}

static void end(struct group *g)
{
    for (unsigned i = 0; i < NODES; i++)
        if (g->nodes[i].rt)
            cl_runtime_stop(g->nodes[i].rt, 0);
    cl_stepper_delete(g->stepper);
    for (unsigned i = 0; i < NODES; i++) {
        struct node *n = &g->nodes[i];
        cl_bench_virtual_log_close(&n->log);
        cl_raft_service_delete(n->service);
        cl_bench_virtual_log_delete(&n->log);
        cl_runtime_delete(n->rt);
    }
    raft_link_free(&g->link);
    for (unsigned i = 0; i < NODES; i++)
        if (g->ends[i])
            cl_nic_close(g->ends[i]);
}

int64_t cl_bench_commands(const struct cl_bench_delays *config, void *out, uint32_t room, char err[256])
{
    struct group g = {.config = config, .now_ns = 1000000000, .random = {config->seed}, .err = err};
    int64_t rc = make(&g);
    uint64_t until = g.now_ns + LEADS_NS;
    while (rc == 0 && g.asked < config->requests) {
        rc = cl_stepper_run(g.stepper, g.now_ns + AFTER_NS, err);
        if (rc == 0 && g.asked == 0 && g.now_ns > until) {
            snprintf(err, 256, "the first node does not lead");
            rc = -ETIMEDOUT;
        }
    }
    rc = rc ? rc : cl_stepper_run(g.stepper, g.now_ns + AFTER_NS, err);
    rc = rc ? rc : cl_bench_virtual_records(g.nodes[0].rt, out, room);
    end(&g);
    return rc;
}
