/* The state machine that simulated replicas run: a few registers, and sessions that make a retried command count once.
 *
 * Written apart from history.c, which judges it: two mistakes would have to be the same to go unseen. */
#ifndef CORELANE_APPS_RAFT_SIM_MACHINE_H
#define CORELANE_APPS_RAFT_SIM_MACHINE_H

#include "history.h"

#define SIM_KEYS 4
#define SIM_SESSIONS 64 /* that a world may use up */

/* A client's command, as it stands in a log entry. Kinds are those of history.h. */
struct sim_command {
    uint32_t session, sequence; /* sequence counts a session's commands from 1 */
    uint8_t kind, key;
    uint8_t pad[6];
    uint64_t input, other; /* as in struct cl_history_op */
};

/* What came of it. */
struct sim_outcome {
    uint64_t value; /* GET: found; APPEND, ADD: afterwards */
    uint8_t refused;
    uint8_t pad[7];
};

/* A snapshot is these bytes. They differ from node to node where nothing depends on it, as a user's may: a node has its
 * id at both ends, and an image that has not the same there was put together from those of two. */
struct sim_machine {
    uint64_t salt_first;
    uint64_t applied;
    uint64_t digest; /* of everything applied so far: equal at equal indices on all replicas */
    uint64_t registers[SIM_KEYS];
    struct {
        uint32_t sequence;
        struct sim_outcome outcome;
    } sessions[SIM_SESSIONS];
    uint64_t salt_last;
};

void sim_machine_init(struct sim_machine *m);
/* Carry a command out, without checking its session. */
struct sim_outcome sim_machine_execute(uint64_t registers[SIM_KEYS], const struct sim_command *command);
/* Apply the entry at `index` (NULL: one that is no command). A command of a session that was seen before has its old
 * outcome; `no_sessions`, for a test, carries it out again. */
struct sim_outcome sim_machine_apply(struct sim_machine *m, uint64_t index, const struct sim_command *command,
                                     bool no_sessions);

/* Make it this node's. */
static inline void sim_machine_salt(struct sim_machine *m, uint32_t id)
{
    m->salt_first = m->salt_last = id;
}

static inline uint64_t sim_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

#endif
