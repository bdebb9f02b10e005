/* A node's side of its log: what is in flight and what waits. See disk.c (writes), save.c (snapshots),
 * recover.c (reading back). */
#ifndef CORELANE_APPS_RAFT_NODE_DISK_H
#define CORELANE_APPS_RAFT_NODE_DISK_H

#include <corelane/libos/log.h>
#include "internal.h"

#define NODE_META_MAGIC 0x4d524c43u /* "CLRM" */
/* u32 magic, u32 version, u64 cluster, u64 term, u32 vote, u32 id, u64 machine's settings, u64 session_ms, u32
 * max_sessions, u32 reply_bytes, the first voters (first.c), the logs of the others (incarnations.c) */
#define NODE_META_BYTES (56 + NODE_FIRST_BYTES + NODE_LOGS_BYTES)
_Static_assert(NODE_META_BYTES <= CL_LOG_META_BYTES, "what a log has room for");

enum node_what { NODE_ENTRY, NODE_HARD, NODE_CUT };

/* Something asked of the log. */
struct node_op {
    struct cl_log_op op;
    uint64_t index, term, hard_seq;
    uint32_t generation;
    uint64_t incarnations; /* node_incarnations_put */
    int what;
};

enum node_save_state { SAVE_NOTHING, SAVE_BEGIN, SAVE_WRITING, SAVE_COMMIT, SAVE_COMMITTING, SAVE_DONE };
enum node_recover_state { RECOVER_BEGIN, RECOVER_SNAPSHOT, RECOVER_CORE, RECOVER_ENTRIES, RECOVER_WRITES };

struct node_disk {
    struct cl_raft_node *node;
    struct cl_log *log;
    uint32_t ops_most, ops_head, ops_count; /* of the ring below */
    uint64_t awaits;                        /* cl_raft_node_awaits; other threads read it */
    uint64_t write_next, write_last;        /* entries that wait to be written */
    uint64_t truncate, restart;             /* to be told to the log before them; 0: nothing */
    uint64_t trim;                          /* records before it may go; 0: nothing */
    uint64_t hard_seq, term;
    uint32_t vote;
    uint8_t hard; /* term and vote wait */

    enum node_save_state save;
    uint8_t save_received; /* the incoming blob, else the saving one */
    uint64_t save_at;
    struct cl_log_op save_op;

    enum node_recover_state recover;
    uint64_t recover_at;
    struct cl_log_snapshot recover_snapshot;
    struct cl_log_cursor *cursor;
    uint64_t recover_committed; /* by what the entries say */

    struct node_op ops[]; /* in flight: a ring */
};

/* The log was asked for something, or answered: what cl_raft_node_awaits says. */
void node_disk_note(struct node_disk *d, bool answered);
/* Go on with the snapshot that is being made durable. Whether something happened. */
bool node_save_step(struct node_disk *d);

#endif
