/* A node that is the bare core: what its files share. See world.h for what else there is.
 *
 *   bare.c            its life; the driver's loop of raft.h
 *   bare_disk.c       writes: begun, done, failed
 *   bare_client.c     commands and reads, applying
 *   bare_snapshot.c   snapshots, made and received
 *
 * The mutants of run.h are here: mistakes that a driver could make, each at one place. */
#ifndef CORELANE_APPS_RAFT_SIM_BARE_H
#define CORELANE_APPS_RAFT_SIM_BARE_H

#include "../core/wire.h"
#include "world.h"

#define BARE_PROPOSALS 1024 /* power of two: by index */
#define BARE_READS 64
#define BARE_PACKET_BYTES 66000

/* A client's command that was proposed here, by the index that it will have if this leader stays. */
struct bare_proposal {
    uint64_t index, term;
    struct sim_request request;
};

struct bare_reading {
    uint64_t context; /* 0: free */
    uint64_t index;   /* 0: not known yet */
    struct sim_request request;
};

struct bare {
    struct cl_raft *core;
    struct sim_disk disk;
    struct sim_machine machine;
    struct bare_proposal proposals[BARE_PROPOSALS];
    struct bare_reading readings[BARE_READS];
    uint64_t contexts;
    uint64_t writes, hards;     /* begun in this run: arguments of their events */
    struct sim_snapshot making; /* index 0: none */
    struct sim_snapshot incoming;
    uint32_t incoming_bytes;
    bool installing;
    struct cl_raft_wire_counters wire;
    uint8_t buffer[BARE_PACKET_BYTES];
};

static inline struct bare *bare_of(struct sim_node *n)
{
    return n->bare;
}

/* bare_disk.c */
/* When a write begun now is done, and not before `after`: completions come in order. */
uint64_t bare_write_done(struct sim_world *w, struct sim_node *n, uint64_t *after);
/* What ready asks to be written. */
void bare_write(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r);
/* The writes up to the `upto`th begun, or changes of term and vote, are done. */
void bare_written(struct sim_world *w, struct sim_node *n, uint64_t upto);
void bare_hard_written(struct sim_node *n, uint64_t upto);
void bare_fail_disk(struct sim_world *w, struct sim_node *n);

/* bare_client.c */
void bare_request(struct sim_world *w, struct sim_node *n, const struct sim_request *q);
/* Apply what is committed. */
void bare_apply(struct sim_world *w, struct sim_node *n, uint64_t first, uint64_t last);
/* Take what the core says of reads, and answer those that may be. */
void bare_take_reads(struct sim_world *w, struct sim_node *n);
void bare_answer_reads(struct sim_world *w, struct sim_node *n);

/* bare_snapshot.c */
void bare_make_snapshot(struct sim_world *w, struct sim_node *n);
void bare_snapshot_written(struct sim_world *w, struct sim_node *n, uint64_t index);
/* A piece of a snapshot from the leader. */
void bare_take_chunk(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r);
void bare_installed(struct sim_world *w, struct sim_node *n, uint64_t index);

#endif
