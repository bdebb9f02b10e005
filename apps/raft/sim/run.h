/* Running simulated clusters from seeds: what Python, the benchmark and the tests call. See world.h for what a run
 * is. */
#ifndef CORELANE_APPS_RAFT_SIM_RUN_H
#define CORELANE_APPS_RAFT_SIM_RUN_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_RAFT_SIM_MOST_NODES 9 /* first members */

#define CL_RAFT_SIM_CORE 0 /* nodes are the core alone on modelled stable storage */
#define CL_RAFT_SIM_NODE 1 /* nodes are the real node on the real log, on block devices that fail */
#define CL_RAFT_SIM_KV 2   /* the same, and its state machine is the replicated key-value store */
#define CL_RAFT_SIM_RESP 3 /* the same with typed values, whose commands the leader executes ahead */

/* Mistakes of the core's driver, on purpose: the tests show that each is found. */
#define CL_RAFT_SIM_NO_MUTANT 0
#define CL_RAFT_SIM_VOTE_NOT_KEPT 1 /* votes are said to be durable and are not */
#define CL_RAFT_SIM_EARLY_DURABLE 2 /* entries are said to be durable when their write begins */
#define CL_RAFT_SIM_STALE_DURABLE 3 /* a write that was overtaken by a truncation counts for what came after */
#define CL_RAFT_SIM_EARLY_ANSWER 4  /* clients are answered when a command is proposed */
#define CL_RAFT_SIM_UNASKED_READ 5  /* who takes itself for the leader answers reads at once */
#define CL_RAFT_SIM_NO_SESSIONS 6   /* a command that is tried again is carried out again */
#define CL_RAFT_SIM_IGNORED_ERROR 7 /* a write that failed is taken for done */
#define CL_RAFT_SIM_LOST_SESSIONS 8 /* snapshots leave the sessions out */
#define CL_RAFT_SIM_EARLY_READ 9    /* reads are answered before their index is applied */
#define CL_RAFT_SIM_ROT_CUT 10      /* a log with damage before its end is cut there and used */
#define CL_RAFT_SIM_ROT_ADOPTED 11  /* CORE: a damaged entry is taken for a good one */
#define CL_RAFT_SIM_MUTANTS 12

struct cl_raft_sim_options {
    uint64_t seed;
    uint32_t nodes; /* the first members: 1 to CL_RAFT_SIM_MOST_NODES */
    uint32_t steps; /* with faults and load; 0: 2500 of the core alone, 5000 of real nodes, half of which are wakes */
    uint32_t mode;  /* CL_RAFT_SIM_CORE, ... */
    uint32_t mutant;
    uint32_t trace;         /* 1: keep a readable trace */
    uint32_t outcomes_only; /* 1: do not look into disks when something is promised; what comes of it must show */
};

#define CL_RAFT_SIM_REASON_BYTES 512

/* What a run came to. All but `reason` are sums: cl_raft_sim_run adds, so that the results of many seeds are one. */
struct cl_raft_sim_result {
    uint64_t runs, failures;
    uint64_t failed_seed; /* the first that failed */
    uint64_t steps, virtual_ns;
    uint64_t elections, entries_committed, entries_truncated;
    uint64_t ops_answered, ops_unknown, ops_retried;
    uint64_t ops_under_faults; /* answered before everything was mended */
    uint64_t unanswered_runs;  /* in which none was */
    uint64_t crashes, restarts, partitions, one_way_cuts, stalls, transfers, member_changes, slow_disks, failed_disks;
    uint64_t forced_changes;                           /* of members, as too few of the new voters were heard from */
    uint64_t rotten_disks, lost_nodes, replaced_nodes; /* lost: damage was found, and the node stayed away for good */
    uint64_t full_disks, full_logs;                    /* full_logs: NODE: requests put off as the area had no room */
    uint64_t hung_disks, yielded_leaders; /* disks that did nothing for a while; leaders that gave up for it */
    uint64_t amnesiac_starts;             /* NODE: started again without a log */
    uint64_t remade_logs;                 /* NODE: started again with another log under its id */
    uint64_t kills;                       /* NODE: crashes of the process alone */
    uint64_t late_power_cuts;             /* NODE: soon after it was started again */
    uint64_t all_slow;                    /* runs that ended with slow disks everywhere and a leader that was cut off */
    uint64_t amnesiac_nodes;              /* started again while a leader had its promise, and cut off */
    uint64_t wall_jumps;                  /* NODE: of wall clocks */
    uint64_t other_peers;                 /* NODE: starts on a log with other first members than it began with */
    uint64_t reads_by_lease;
    uint64_t thrifty_batches, overtaken; /* in the last incarnation of each node (pace.c) */
    uint64_t deposed_leaders;            /* cut off just when another was to take over */
    uint64_t outrun_leaders;             /* with the slowest of clocks, cut off from others with the fastest */
    uint64_t snapshots_made, snapshots_installed;
    uint64_t datagrams_sent_again; /* NODE: by the channel, where there is one */
    /* RESP: epochs, that were lost; connections that ended with one; clients that were told where to go; swaps by WATCH
     * and EXEC, that were refused; entries of former epochs, on any replica. */
    uint64_t epochs_opened, epochs_lost, connections_ended, moved, swaps, swaps_refused, units_refused;
    uint64_t datagrams, datagrams_lost, datagrams_duplicated, datagrams_cut;
    uint64_t cut_short;                    /* runs that grew out of the tables of the checks and were ended early */
    uint64_t configurations;               /* of the search of the histories */
    uint64_t hash;                         /* digest of all that happened: equal for equal seeds */
    char reason[CL_RAFT_SIM_REASON_BYTES]; /* of the first failure */
};

struct cl_raft_sim;

/* Memory for a world. NULL without it. Used by one thread at a time. */
CL_API struct cl_raft_sim *cl_raft_sim_new(void);
CL_API void cl_raft_sim_delete(struct cl_raft_sim *sim);
/* Run one seed. 0: everything held; 1: something did not, and result->reason says what; -EINVAL, -ENOMEM. */
CL_API int cl_raft_sim_run(struct cl_raft_sim *sim, const struct cl_raft_sim_options *options,
                           struct cl_raft_sim_result *result);
/* Run `count` seeds from options->seed on and stop at the first that fails. As cl_raft_sim_run. */
CL_API int cl_raft_sim_many(struct cl_raft_sim *sim, const struct cl_raft_sim_options *options, uint64_t count,
                            struct cl_raft_sim_result *result);
/* The trace of the last run that kept one; its end if it was long. */
CL_API const char *cl_raft_sim_trace(const struct cl_raft_sim *sim);
// cffi: end

#endif
