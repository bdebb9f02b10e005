/* A Raft node with RESP's port on a kthread: clients that count, block and publish, while another thread reads its
 * counters and state, and asks for what cannot be done. Without a log, or with one on a disk in memory.
 * Usage: resp_service LOG(0|1) ROUNDS SEED */
#include "apps/raft/service/serve.h"
#include "drivers/blk/fault.h"
#include "drivers/blk/memory.h"
#include "tests/apps/resp/c/resp_link.h"

#include <corelane/libos/log.h>

#include <errno.h>

#define DISK_BYTES (16u << 20)
#define MEMORY_BYTES (2u << 20)
#define STRANGER 9u

static struct cl_raft_service *service;
static struct cl_raft_serve_config config;
static char err[256];

static void open_log(uint64_t seed)
{
    struct cl_blk *memory;
    struct cl_blk_memory_config bytes = {.bytes = DISK_BYTES};
    struct cl_blk_fault_config faults = {.seed = seed, .latency_min_ns = 1000, .latency_max_ns = 30000};
    struct cl_log_layout layout = {.flush_bytes = 65536, .snapshot_bytes = DISK_BYTES / 4};
    CHECK(!cl_blk_memory_new(&bytes, &memory, err), "%s", err);
    CHECK(!cl_log_format(memory, 0, &layout, err), "%s", err);
    CHECK(!cl_blk_fault_new(memory, &faults, &config.blk, err), "%s", err);
    struct cl_log_config log = {.blk = config.blk, .buffers = 8};
    CHECK(!cl_log_open_wait(&log, &config.node.log, NULL, err), "%s", err);
}

/* What is shown is whole and grows, and a change of what cannot be is refused. */
static void look(void)
{
    static struct cl_raft_serve_counters before;
    static uint64_t applied;
    struct cl_raft_serve_counters now;
    struct cl_raft_node_counters node;
    struct cl_raft_status status;
    const uint32_t stranger = STRANGER;
    cl_raft_service_counters(service, &now);
    CHECK(now.resp_entries >= before.resp_entries && now.resp_queries >= before.resp_queries, "counters go back");
    CHECK(now.resp_lost == 0 && now.resp_leads <= 1, "it lost its place");
    before = now;
    cl_raft_node_counters(cl_raft_service_node(service), &node);
    CHECK(node.applied >= applied, "applied goes back");
    applied = node.applied;
    cl_raft_service_status(service, &status);
    CHECK(status.applied <= status.commit, "%llu applied, %llu committed", (unsigned long long)status.applied,
          (unsigned long long)status.commit);
    (void)cl_raft_service_leads_for_ns(service);
    if (cl_raft_service_asked(service) != -EINPROGRESS)
        (void)cl_raft_service_ask(service, &stranger, 0, &stranger, 1);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4, "usage");
    unsigned rounds = (unsigned)atoi(argv[2]);
    make_hosts(1);
    config.node.raft.id = 1;
    config.node.raft.election_ticks = 10;
    config.node.raft.members = (struct cl_raft_members){.n_voters = 1, .voters = {1}};
    config.node.tick_ns = 1000000;
    config.port = 7400;
    config.kv_memory_bytes = MEMORY_BYTES;
    config.resp.port = PORT;
    config.resp.backlog = 64;
    if (atoi(argv[1]))
        open_log(strtoull(argv[3], NULL, 10));
    CHECK(!cl_raft_serve(hosts[1], &config, &service, err), "%s", err);
    start_hosts();
    struct cl_raft_serve_counters count;
    do {
        cl_raft_service_counters(service, &count);
    } while (!count.resp_leads);
    ask_all(rounds, look);
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(cl_runtime_stop(hosts[i], -1), 0);
    cl_raft_service_counters(service, &count);
    CHECK(count.resp_entries && count.resp_queries, "nothing went through the group");
    printf("%llu entries, %llu queries\n", (unsigned long long)count.resp_entries,
           (unsigned long long)count.resp_queries);
    if (config.node.log)
        CHECK(!cl_log_close(config.node.log, err), "%s", err);
    for (unsigned i = 0; i < 2; i++)
        cl_runtime_delete(hosts[i]);
    cl_raft_service_delete(service);
    if (config.blk)
        cl_blk_close(config.blk);
    for (unsigned i = 0; i < 2; i++)
        cl_nic_close(ends[i]);
    printf("ok\n");
    return 0;
}
