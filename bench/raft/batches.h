/* A Raft group in virtual time: clients in a closed loop, or commands that arrive at given times, so that the leader's
 * rule of when a batch goes is compared with fixed settings.
 *
 * The nodes and their logs are the real ones (apps/raft/node, libos/storage/log), each on a disk of lanes
 * (bench/log/lanes.h) and a core of its own, or all on one, which is busy for a while with each frame, command and
 * flush; what comes meanwhile waits, and is taken together. One core is handed over from node to node in the order in
 * which they have something to do. Frames take link_ns from node to node, and as long between a client and the leader;
 * none is lost. The same configuration gives the same numbers. Tests: tests/bench/raft/test_batches.py. */
#ifndef CORELANE_BENCH_RAFT_BATCHES_H
#define CORELANE_BENCH_RAFT_BATCHES_H

#include "../log/lanes.h"

// cffi: begin
#define CL_BENCH_RAFT_NODES 3

struct cl_bench_raft_batches {
    struct cl_bench_lanes_config disk;
    uint64_t link_ns;
    uint32_t frame_ns;               /* sending a frame, and taking one in */
    uint32_t command_ns;             /* taking a command in, and answering it */
    uint32_t hand_over_ns;           /* one core goes to another node */
    uint32_t one_core;               /* 1: all nodes are on it */
    uint32_t clients, command_bytes; /* each client with one command at a time. No clients: those that arrive */
    const uint64_t *due_ns;          /* when each of so many is sent, ascending, from when there is a leader */
    uint64_t arrivals;
    /* Of each node (apps/raft/node/node.h). fixed_commands 0: the node decides. */
    uint32_t batches, fixed_commands;
    uint64_t fixed_wait_ns;
    uint64_t warm_ns, for_ns; /* what is measured begins warm_ns after the first answer, and lasts for_ns at most */
};

/* each_ns: the caller's; of each command that was answered, from when its client sent it until it had the answer. */
struct cl_bench_raft_batched {
    uint32_t *each_ns;
    uint64_t room, commands;
    uint64_t refused;          /* in that time: not taken, as too much waited already */
    uint64_t batches, appends; /* of the leader, of what was measured: batches let go; frames sent */
    uint64_t all_commands;     /* and commands in them */
    uint64_t worker_ns, disk_ns,
        ns; /* of the leader, of what was measured: its processor was busy; its disk's lanes, added up; in so long */
};

/* 0, or -errno with a reason in err: -EPROTO, a command was not done. */
CL_API int cl_bench_raft_batches(const struct cl_bench_raft_batches *config, struct cl_bench_raft_batched *out,
                                 char err[256]);
// cffi: end

#endif
