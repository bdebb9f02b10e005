/* A node that is the core alone: what its files share. See world.h for what else there is.
 *
 *   sim_core.c            its lifecycle; the driver's loop of raft.h
 *   sim_core_disk.c       writes: begun, done, failed
 *   sim_core_client.c     commands and reads, applying
 *   sim_core_snapshot.c   snapshots, made and received
 *
 * The mutants of run.h are here: mistakes that a driver could make, each at one place. */
#ifndef CORELANE_APPS_RAFT_SIM_CORE_H
#define CORELANE_APPS_RAFT_SIM_CORE_H

#include "../core/wire.h"
#include "world.h"

#define SIM_CORE_PROPOSALS 1024 /* power of two: by index */
#define SIM_CORE_READS 64
#define SIM_CORE_PACKET_BYTES 66000

/* A client's command that was proposed here, by the index that it will have if this leader stays. */
struct sim_core_proposal {
    uint64_t index, term;
    struct sim_request request;
};

struct sim_core_reading {
    uint64_t context; /* 0: free */
    uint64_t index;   /* 0: not known yet */
    struct sim_request request;
};

struct sim_core {
    struct cl_raft *core;
    struct sim_disk disk;
    struct sim_machine machine;
    struct sim_core_proposal proposals[SIM_CORE_PROPOSALS];
    struct sim_core_reading readings[SIM_CORE_READS];
    uint64_t contexts;
    uint64_t writes, hards;     /* begun in this run: arguments of their events */
    struct sim_snapshot making; /* index 0: none */
    struct sim_snapshot incoming;
    uint32_t incoming_bytes;
    bool installing;
    struct cl_raft_wire_counters wire;
    uint8_t buffer[SIM_CORE_PACKET_BYTES];
};

static inline struct sim_core *sim_core_of(struct sim_node *n)
{
    return n->core;
}

/* sim_core_disk.c */
/* When a write begun now is done, and not before `after`: completions come in order. */
uint64_t sim_core_write_done(struct sim_world *w, struct sim_node *n, uint64_t *after);
/* What ready asks to be written. */
void sim_core_write(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r);
/* The writes up to the `upto`th begun, or changes of term and vote, are done. */
void sim_core_written(struct sim_world *w, struct sim_node *n, uint64_t upto);
void sim_core_hard_written(struct sim_node *n, uint64_t upto);
void sim_core_fail_disk(struct sim_world *w, struct sim_node *n);

/* sim_core_client.c */
void sim_core_request(struct sim_world *w, struct sim_node *n, const struct sim_request *q);
/* Apply what is committed. */
void sim_core_apply(struct sim_world *w, struct sim_node *n, uint64_t first, uint64_t last);
/* Take what the core says of reads, and answer those that may be. */
void sim_core_take_reads(struct sim_world *w, struct sim_node *n);
void sim_core_answer_reads(struct sim_world *w, struct sim_node *n);

/* sim_core_snapshot.c */
void sim_core_make_snapshot(struct sim_world *w, struct sim_node *n);
void sim_core_snapshot_written(struct sim_world *w, struct sim_node *n, uint64_t index);
/* A piece of a snapshot from the leader. */
void sim_core_take_chunk(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r);
void sim_core_installed(struct sim_world *w, struct sim_node *n, uint64_t index);

#endif
