/* What the files of a node share. See node.h. They call in one direction: what a node does (node.c, round.c, client.c,
 * forward.c, incarnations.c, compact.c, tick.c) calls the disk (recover.c, disk.c, save.c), and both call what lies
 * below it: what is kept (snapshot.c, first.c, known.c, settings.c), room.c, clock.c, answer.c, which tells those who
 * wait that the node stops, and stages.c. */
#ifndef CORELANE_APPS_RAFT_NODE_INTERNAL_H
#define CORELANE_APPS_RAFT_NODE_INTERNAL_H

#include "chooser.h"
#include "node.h"
#include "parts.h"
#include "session.h"
#include "stages.h"

#define NODE_QUERY_BYTES 1500
#define NODE_KIND_BITS 8

/* Who gets an answer: a client of this node, or of node `from`, which knows it by `ticket`. */
struct node_requester {
    struct cl_raft_token token;
    uint64_t ticket;
    uint32_t from;
};

/* A command of this leader that is in the log. */
struct node_pending {
    uint64_t index, term; /* index 0: none */
    struct node_requester requester;
};

struct node_query {
    uint64_t context;            /* 0: free */
    uint64_t index;              /* may be answered once this is applied; 0: not known yet */
    uint64_t clock;              /* nor before this is, by which the log's clock goes on; 0: it is young enough */
    uint64_t asked_ns, known_ns; /* for cl_raft_node_stages: when it came; when `index` was known */
    uint32_t bytes;
    struct node_requester requester;
    uint8_t data[NODE_QUERY_BYTES];
};

/* A command or query of ours that the leader was sent. */
struct node_forward {
    uint64_t ticket; /* 0: free */
    uint64_t at_ns;
    struct cl_raft_token token;
};

/* What was last said to a leader of this node's log. */
struct node_said {
    uint64_t term, index, received;
    uint32_t to;
};

/* A snapshot in memory. */
#define NODE_WHY_BYTES 256

struct node_blob {
    uint8_t *data;
    uint64_t bytes, room;
    uint64_t index, term;
};

#define NODE_BATCHES 64u /* on their way, at most */
#define NODE_ROUNDS 128u /* and those whose clients are expected, in all */

struct node_batch {
    uint64_t last, begun_ns; /* its last entry; when it went */
    uint64_t entries;  /* how many it has; once it is committed, of how many clients the next command is expected, */
    uint64_t until_ns; /* until then, */
    uint64_t took_ns;  /* and how long it took to be committed */
    uint8_t counts;    /* CL_RAFT_TO_AUTO: for which way its time counts, 1: to a majority first */
};

/* The batches that are on their way to be committed, those that were, and the next one. round.c */
struct node_round {
    struct node_batch
        out[NODE_ROUNDS]; /* a ring, oldest first: `back` of them are committed, then `count` on their way */
    uint32_t head, back, count;
    uint64_t flying, expected; /* entries on their way; those that are expected */
    uint64_t seen;             /* the last entry that was there when it was looked at last, */
    uint64_t seen_ns;          /* which was then */
    uint64_t took_ns;          /* from going to commit, of a batch, in the mean */
    uint64_t wait_until_ns;    /* the next one waits until then, or for something to happen; 0: for that alone */
    uint64_t first_ns;         /* fixed_commands: when the first of the next one was seen; 0: there is none */
    uint64_t end; /* of this round of `parts`: that entry is committed; and what it is told of the round: */
    uint64_t area_ns, busy_ns, done;
    struct cl_raft_parts parts;
    struct cl_raft_chooser chooser; /* CL_RAFT_TO_AUTO: of to whom batches go at once */
};

/* The newest stamp in a leader's log, and when by its own clock it was given, or came. */
struct node_stamp {
    uint64_t ms, ns;
};

#define NODE_INCARNATIONS 64u /* ids that a group may ever have had; bits of a uint64_t */

struct node_incarnation {
    uint64_t incarnation; /* 0: of more than one it was heard, so it is refused in any */
    uint32_t id;
    uint32_t told;  /* of how many incarnations it has told that it knows */
    uint32_t heard; /* when it was heard though it was not noted: who was later has a higher number. 0: never */
};

/* Of the nodes of a group, this one's first. incarnations.c */
struct node_incarnations {
    struct node_incarnation known[NODE_INCARNATIONS];
    uint32_t count;
    uint64_t noted; /* bits: of known, what is durable in the log. Without a log all are */
    uint64_t put;   /* the same: what was given to the log last */
    uint32_t heard; /* numbers given out */
    uint64_t next_ns;
};

struct cl_raft_node {
    struct cl_raft_node_config config;
    struct cl_raft_node_counters count;
    struct cl_raft_wire_counters wire;
    struct cl_raft *raft;
    struct raft_sessions sessions;
    int state;
    char why[256];
    uint64_t now_ns, next_tick_ns;
    uint64_t clock_ms, clock_ns; /* the log's: the newest stamp applied, and when it was */
    struct node_stamp stamp;     /* a leader's */
    uint64_t clock_index;        /* of its newest CL_RAFT_CLOCK */
    uint64_t applied, committed; /* the second as the core handed it out: to be applied */
    struct node_round round;
    struct node_stages stages;
    uint64_t led_ns; /* when this node began to lead; 0: it does not */
    uint8_t leading;
    uint8_t compact_asked;
    uint8_t seeded;     /* the state machine has the group's random word, or does without: it needs none, or has applied
                 * commands */
    uint64_t seed_term; /* in which this node has proposed one */

    struct node_pending *pending;        /* by index, modulo raft.log_entries */
    uint64_t pending_last;               /* the newest index proposed */
    struct node_query *queries;          /* by context, modulo config.waiting */
    uint64_t query_next, query_oldest;   /* contexts given out, and the first that may not be answered yet */
    struct node_forward *forwards;       /* by ticket, modulo config.waiting */
    uint64_t ticket_next, ticket_oldest; /* given out, and the first that may not be answered yet */
    uint64_t forward_term;               /* the leader's to whom they all went */
    uint32_t forward_leader;
    struct node_said said;
    struct node_incarnations incarnations;

    struct node_blob snapshot; /* the newest, as the core knows it */
    struct node_blob incoming; /* being received or read back */
    struct node_blob saving;   /* being written to the log */
    struct node_blob held;     /* for who reads it, once there is a newer one */
    uint64_t held_index;       /* of that; 0: none is held */
    uint64_t snapshot_wait_ns,
        snapshot_next_ns; /* after one that failed: how long until the next, and when that is; 0 */
    struct cl_raft_members incoming_members;
    struct node_disk *disk; /* NULL: in memory */

    uint8_t *reply;       /* answer_room bytes */
    uint32_t answer_room; /* of an answer that no session keeps: config.reply_bytes, or the machine's answer_bytes */
    uint8_t *scratch;     /* the largest command, with its header */
    uint8_t *out;         /* the largest frame */
    uint64_t out_room;
};

static inline struct node_pending *node_pending_at(struct cl_raft_node *node, uint64_t index)
{
    return &node->pending[index & (node->config.raft.log_entries - 1)];
}

static inline struct node_query *node_query_at(struct cl_raft_node *node, uint64_t context)
{
    return &node->queries[context & (node->config.waiting - 1)];
}

static inline struct node_forward *node_forward_at(struct cl_raft_node *node, uint64_t ticket)
{
    return &node->forwards[ticket & (node->config.waiting - 1)];
}

/* The first word of a command. What is committed goes with it, so that a node knows it, and what contradicts it, also
 * when it starts again: the log of a leader is a prefix of each log that holds its entry, up to that. */
static inline uint64_t node_kind_word(const struct cl_raft_node *node, int kind)
{
    return (uint64_t)kind | node->committed << NODE_KIND_BITS;
}

static inline int node_kind(uint64_t word)
{
    return (int)(word & ((1u << NODE_KIND_BITS) - 1));
}

/* settings.c */
uint64_t node_mix(uint64_t word);
/* A digest of several words, one after the other; it begins with 0. */
uint64_t node_digest(uint64_t digest, uint64_t word);
uint64_t node_group_settings(const struct cl_raft_node_config *config);
/* Whether a frame of that node may be taken; if not, it is counted. */
bool node_settings_good(struct cl_raft_node *node, uint32_t from, uint64_t settings);

/* first.c */
#define NODE_FIRST_BYTES 76 /* u64 digest, u32 how many, u32[16] their ids; 0 of them: it joined */
/* Those of the configuration, as for a node that has no log, or an empty one. 0, or -EINVAL. */
int node_first_new(struct cl_raft_node *node, char err[256]);
void node_first_put(const struct cl_raft_node *node, uint8_t out[NODE_FIRST_BYTES]);
/* From now on those that were put: in config.raft.members. False: that is not possible. */
bool node_first_get(struct cl_raft_node *node, const uint8_t in[NODE_FIRST_BYTES]);
/* Whether the group was made of another one's state (service/recover.py): the digest is not that of the voters. So it
 * is of a node that joined, which knows no voters. */
bool node_first_made(const struct cl_raft_node *node);
/* Whether a frame of that node may be taken; if not, it is counted. */
bool node_first_good(struct cl_raft_node *node, uint32_t from, uint64_t digest);
/* The digest is this one from now on; it is not in the log yet. */
void node_first_set(struct cl_raft_node *node, uint64_t digest);

/* round.c */
void node_round(struct cl_raft_node *node);

/* clock.c */
/* An entry that says so is applied. */
void node_clock_advance(struct cl_raft_node *node, uint64_t stamp_ms);
/* The same of CL_RAFT_CLOCK_SET: also back. */
void node_clock_put(struct cl_raft_node *node, uint64_t stamp_ms);
/* This node begins to lead. */
void node_clock_lead(struct cl_raft_node *node);
/* What a command that is proposed now says. */
uint64_t node_clock_stamp(struct cl_raft_node *node);
/* What a leader's query has to wait for: that this is applied, for the log's clock to be young enough. 0: it is. */
uint64_t node_clock_young(struct cl_raft_node *node);

/* known.c */
void node_incarnations_new(struct cl_raft_node *node);
#define NODE_LOGS_BYTES 124 /* u32 how many, 15 times u32 id, u32 incarnation of its log */
/* What goes into the log, and which of `known` that is; the others are not noted any more. */
uint64_t node_incarnations_put(struct cl_raft_node *node, uint8_t out[NODE_LOGS_BYTES]);
void node_incarnations_get(struct cl_raft_node *node, const uint8_t in[NODE_LOGS_BYTES]);
/* What node_incarnations_put returned is durable, and what it put is what the log has. */
void node_incarnations_saved(struct cl_raft_node *node, uint64_t put);
struct node_incarnation *node_incarnation_find(struct node_incarnations *l, uint32_t id);
/* NULL: there is no room for another one. */
struct node_incarnation *node_incarnation_add(struct node_incarnations *l, uint32_t id, uint64_t incarnation);
/* Whether a restart would know it: it is durable in the log, or there is no log. */
bool node_incarnation_noted(const struct node_incarnations *l, const struct node_incarnation *known);

/* incarnations.c */
/* Tell those members that may not know all that this node knows; once in an election timeout. */
void node_incarnations_tell(struct cl_raft_node *node);
/* Whether a message of that node in that incarnation may be taken. If not, it is counted, and the node is told. */
bool node_incarnation_good(struct cl_raft_node *node, uint32_t from, uint64_t incarnation);
/* Returns whether it was a frame about incarnations. */
bool node_incarnations_frame(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes);

/* answer.c */
/* Why the state machine's last call ended with rc < 0. */
const char *node_machine_why(const struct cl_raft_node *node, int rc);
void node_answer(struct cl_raft_node *node, const struct node_requester *requester, int status, const uint8_t *reply,
                 uint32_t bytes);
/* Answer those whose outcome will not be heard of. */
void node_forwards_end(struct cl_raft_node *node);
void node_end_forward(struct cl_raft_node *node, struct node_forward *f, uint64_t *counter, int status,
                      const uint8_t *reply, uint32_t bytes);
void node_lost_leadership(struct cl_raft_node *node);
void node_stop(struct cl_raft_node *node, const char *why, ...) CL_PRINTF(2, 3);
struct node_frame;
bool node_send_frame(struct cl_raft_node *node, const struct node_frame *frame);

/* tick.c */
/* Whenever the core may have begun or ceased to lead. */
void node_note_leader(struct cl_raft_node *node);
/* Tell the core of the time that has gone by. */
void node_advance_ticks(struct cl_raft_node *node);

/* client.c */
void node_submit(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                 uint32_t bytes, const struct node_requester *requester);
void node_ask(struct cl_raft_node *node, const uint8_t *data, uint32_t bytes, const struct node_requester *requester);
void node_apply(struct cl_raft_node *node, uint64_t first, uint64_t last);
void node_answer_reads(struct cl_raft_node *node);
/* Returns whether it was a node's frame. */
bool node_frame(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes);

/* forward.c */
bool node_forward(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                  uint32_t bytes, const struct node_requester *requester);
/* The leader answered. */
void node_on_answer(struct cl_raft_node *node, const struct node_frame *frame);

/* snapshot.c */
void node_blob_free(struct node_blob *blob);
bool node_blob_room(struct node_blob *blob, uint64_t room);
/* What the blob holds is the newest snapshot now. It gets memory to be filled anew, or none. */
void node_snapshot_replace(struct cl_raft_node *node, struct node_blob *blob);
/* Bytes that a snapshot may have. */
uint64_t node_snapshot_room(const struct cl_raft_node *node);
/* Fill the blob `saving` with the state as of `applied`. 0 or -errno. */
int node_snapshot_fill(struct cl_raft_node *node);
/* Become what the blob holds. < 0: -errno, and in `why` where it is bad and how. */
int node_restore(struct cl_raft_node *node, const struct node_blob *blob, struct cl_raft_members *members,
                 char why[NODE_WHY_BYTES]);

/* compact.c */
/* Take a snapshot if it is time for one. Whether one was begun. */
bool node_snapshot_maybe(struct cl_raft_node *node);
void node_chunk(struct cl_raft_node *node, const struct cl_raft_ready *ready);

/* disk.c */
/* Of an entry that fits the log, if there is one, `wanted` at most. */
uint32_t node_disk_entry_bytes(const struct cl_log *log, uint32_t wanted);
int node_disk_new(struct cl_raft_node *node, char err[256]);
/* The incarnation of a node with that log: another one if the log is made again. */
uint64_t node_disk_incarnation(const struct cl_log *log);
void node_disk_delete(struct cl_raft_node *node);
void node_disk_write(struct cl_raft_node *node, const struct cl_raft_ready *ready);
/* Have the device begin what it can, take what it has done. Returns whether something happened. */
bool node_disk_pump(struct cl_raft_node *node);
/* Write term, vote and what else is beside them once more. */
void node_disk_rewrite(struct cl_raft_node *node);
uint64_t node_disk_next_ns(const struct cl_raft_node *node);

/* save.c */
/* The snapshot that was to be taken could not be, by that -errno: the next one is tried later, and later each time. */
void node_snapshot_failed(struct cl_raft_node *node, int rc);
/* Make a snapshot durable, the received one or the node's own, and then use it. */
void node_disk_save(struct cl_raft_node *node, bool received);
bool node_disk_saving(const struct cl_raft_node *node);

/* recover.c */
void node_disk_recover(struct cl_raft_node *node);

/* room.c */
/* Entries that are not committed yet might take up a quarter of a replica's area. */
bool node_disk_crowded(const struct cl_raft_node *node);
/* Less than one part in `parts` of the log's area is free. */
bool node_disk_low(const struct cl_raft_node *node, unsigned parts);
/* How many entries, of any size and each in a flush of its own, half of the room left in the log holds. */
uint64_t node_disk_ahead(const struct cl_raft_node *node);

#endif
