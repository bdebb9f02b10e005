/* What the files of the core share: its structure, and each file's functions that others call. See raft.h. */
#ifndef CORELANE_APPS_RAFT_CORE_INTERNAL_H
#define CORELANE_APPS_RAFT_CORE_INTERNAL_H

#include "raft.h"
#include "wire.h"

#define RAFT_INFLIGHT_MAX 256 /* power of two */
#define RAFT_REPLIES 128      /* power of two: answers that wait for poll_message */
#define RAFT_ROUNDS 64        /* power of two: rounds whose start is remembered */
#define RAFT_SPARE_ENTRIES 8  /* slots that commands leave to no-ops and configurations */
#define RAFT_SPARE_BYTES 4096
#define RAFT_CHUNKS_INFLIGHT 4
#define RAFT_HEARD_CHECKS 2

struct raft_slot {
    uint64_t term;
    uint64_t at; /* where its bytes are, counted from the beginning of time; modulo log_bytes in the ring */
    uint32_t bytes, generation, kind;
};

/* The entries since the last compaction: a ring of slots and a ring of bytes. An entry's bytes are never split: one
 * that would reach over the ring's end begins at its start. log.c */
struct raft_log {
    struct raft_slot *slots;
    uint8_t *bytes;
    uint64_t slot_mask, byte_mask;
    uint64_t first, last;    /* held; last = first - 1: none */
    uint64_t base_term;      /* of entry first - 1 */
    uint64_t head;           /* where the next entry's bytes may go */
    uint64_t unstable;       /* first entry that ready() has not handed over for writing */
    uint64_t durable;        /* last entry known durable */
    uint64_t truncated_from; /* to be told by the next ready(); 0: nothing */
    uint32_t generation;     /* truncations so far */
};

struct raft_inflight {
    uint64_t last;
    uint32_t bytes;
};

/* The leader's view of another node, and the votes of a candidate. */
struct raft_peer {
    uint32_t id;
    uint8_t state;         /* CL_RAFT_PROBE, ... */
    uint8_t paused;        /* probe: one message is out; until its answer or the next heartbeat */
    uint8_t full;          /* its log has no room; until a heartbeat's answer says otherwise */
    uint8_t active;        /* heard from since the last check of the quorum, or new to this leader */
    uint8_t heard;         /* for how many checks of the quorum it counts as heard from: 0 to RAFT_HEARD_CHECKS */
    uint8_t heartbeat_due; /* a message is due even if there is nothing to send */
    uint8_t prompt;        /* it is for a read */
    uint8_t vote_due;      /* candidate: the request is to be sent */
    uint8_t vote;          /* 0: no answer, 1: yes, 2: no */
    uint8_t front;         /* what goes to a quorum goes to it, too (pace.c) */
    uint8_t late;          /* it was overtaken lately: 0, or for how many more entries that counts */
    uint8_t voted;         /* for this node, in its term, whether or not it is a candidate still */
    uint64_t match, next;
    uint64_t acked_round;
    /* What it is known to have had for good, from whenever this node led: durable there, and committed; in which term
     * and round it said so. Its log never ends before that again, unless it is another one, or an old copy. */
    uint64_t known, known_term, known_round;
    uint8_t gone_back; /* it does: nothing that it acknowledges counts */
    struct raft_inflight inflight[RAFT_INFLIGHT_MAX];
    uint32_t inflight_head, inflight_count;
    uint64_t inflight_bytes;
    /* Sending a snapshot. */
    uint64_t snap_index;   /* which */
    uint64_t snap_acked;   /* stored there */
    uint64_t snap_sent;    /* sent up to here */
    uint64_t snap_rewound; /* went back to here once already */
    uint32_t snap_stall;   /* ticks without progress */
    uint8_t snap_last_sent;
    uint8_t snap_wait; /* it was begun anew in this tick: nothing goes before the next */
};

struct raft_pending_read {
    uint64_t context, index, round; /* index 0: not known before this leader has committed an entry of its term */
    uint32_t from;                  /* who asked; 0: this node */
};

/* A snapshot being received. snapshot.c */
struct raft_incoming {
    uint64_t index, term, offset, total;
    uint32_t from;
    uint8_t pending;    /* ready() has to hand the chunk over */
    uint8_t handed;     /* chunk_taken is awaited */
    uint8_t installing; /* snapshot_installed is awaited */
    uint8_t last;
    const uint8_t *data;
    uint32_t bytes;
    struct cl_raft_members members;
};

struct cl_raft {
    struct cl_raft_config config;
    struct cl_raft_counters count;
    struct raft_log log;

    uint64_t term;
    uint32_t vote, role, leader;
    uint64_t hard_seq, hard_handed, hard_durable; /* versions of (term, vote) */
    uint64_t hard_since, hard_took; /* ticks: when it began to differ from what is durable, and for how long it did */
    uint64_t commit, applied, apply_handed;

    uint64_t ticks, random;
    uint64_t promised_until;   /* lease reads: votes for nobody while ticks < this, whatever the term; election.c */
    uint32_t elapsed, timeout; /* since a leader was heard from, or this campaign began */
    uint32_t heartbeat_elapsed, quorum_elapsed;
    uint32_t disk_elapsed; /* ticks for which writes are awaited and none became durable */
    uint32_t tries;        /* campaigns since a leader was heard from */
    uint8_t gave_way;      /* to another that asked for pre-votes, since this node stood last */
    uint8_t rivalled;      /* candidate: another of this term is known */
    uint8_t force;         /* candidate by order of the leader */
    uint8_t self_vote;     /* it counts */
    uint8_t stood;         /* was a candidate of this term, its own vote durable, and has heard of no leader of it */
    uint8_t ack_due;       /* follower: tell the leader how far we are */
    uint8_t full;          /* follower: the last append did not fit */
    uint8_t lease_lost;    /* leader: a transfer was ordered in this term */
    uint32_t grant_to;     /* a vote granted to it, to be told when it is durable; 0: none */

    uint64_t let_go;             /* leader: entries up to here go to the disk and to the others: the batches so far */
    uint64_t let_go_tick;        /* leader: the tick in which the last batch went */
    uint8_t held;                /* the driver says when a batch goes */
    uint8_t thrifty;             /* a batch goes to a quorum first */
    uint8_t own_front, own_late; /* as a peer's */
    uint64_t spread;             /* leader: entries up to here go to everybody */
    uint64_t hedged;             /* the last that was sent to everybody since it was awaited for so long; 0: none */
    uint64_t stepped[2];         /* `spread` as of the last tick, and of the one before */

    uint64_t verified;    /* follower: entries up to here are the leader's */
    uint64_t heard_round; /* follower: newest round of this leader */

    struct cl_raft_members members; /* in force: the newest in the log */
    uint64_t members_index;
    struct cl_raft_members base_members; /* as of entry first - 1 */
    uint64_t base_members_index;
    struct raft_peer peers[CL_RAFT_MAX_NODES];
    uint32_t n_peers;

    uint64_t snapshot_index, snapshot_term, snapshot_bytes;
    struct cl_raft_members snapshot_members;
    struct raft_incoming in;

    uint32_t transfer_to, transfer_elapsed;

    uint64_t round, round_tick[RAFT_ROUNDS], lease_until;
    struct raft_pending_read *reads; /* ring of config.pending_reads */
    uint32_t reads_head, reads_count;
    struct cl_raft_read *answers; /* ring of config.pending_reads */
    uint32_t answers_head, answers_count;

    struct cl_raft_msg replies[RAFT_REPLIES];
    uint32_t replies_head, replies_count;
};

/* core.c */
void raft_become_follower(struct cl_raft *r, uint64_t term, uint32_t leader);
void raft_hard_changed(struct cl_raft *r);
/* Term and vote as they are now are durable, so promises may leave. */
static inline bool raft_hard_ok(const struct cl_raft *r)
{
    return r->hard_durable == r->hard_seq;
}
/* What was handed out to be written has been waited for too long. */
static inline bool raft_disk_hangs(const struct cl_raft *r)
{
    return r->disk_elapsed >= r->config.disk_ticks;
}
/* A reply to be filled in; a place to waste it in if there is no room. */
struct cl_raft_msg *raft_reply(struct cl_raft *r, uint8_t type, uint32_t to);
void raft_message(const struct cl_raft *r, struct cl_raft_msg *m, uint8_t type, uint32_t to);

/* log.c */
int raft_log_new(struct raft_log *log, uint64_t entries, uint64_t bytes);
void raft_log_free(struct raft_log *log);
static inline struct raft_slot *raft_slot(const struct raft_log *log, uint64_t index)
{
    return &log->slots[index & log->slot_mask];
}
uint64_t raft_log_term(const struct raft_log *log, uint64_t index);
/* Append an entry behind the last. -ENOSPC unless `spare_entries` and `spare_bytes` stay free. */
int raft_log_append(struct raft_log *log, uint64_t term, uint32_t kind, const void *data, uint32_t bytes,
                    uint32_t spare_entries, uint32_t spare_bytes);
void raft_log_truncate(struct raft_log *log, uint64_t from);
void raft_log_drop(struct raft_log *log, uint64_t first);
void raft_log_reset(struct raft_log *log, uint64_t index, uint64_t term);
uint64_t raft_log_used_bytes(const struct raft_log *log, uint64_t from);
/* The largest index up to `index` whose term is `term` or less. */
uint64_t raft_log_agree(const struct raft_log *log, uint64_t index, uint64_t term);

/* election.c */
void raft_election_tick(struct cl_raft *r);
void raft_reset_timeout(struct cl_raft *r);
bool raft_promised(const struct cl_raft *r);
bool raft_refuses_votes(const struct cl_raft *r, const struct cl_raft_msg *m);
bool raft_promotable(const struct cl_raft *r);
void raft_campaign_pre(struct cl_raft *r);
void raft_campaign(struct cl_raft *r, bool force);
void raft_on_vote_durable(struct cl_raft *r);
int raft_on_prevote(struct cl_raft *r, const struct cl_raft_msg *m);
int raft_on_vote(struct cl_raft *r, const struct cl_raft_msg *m);
int raft_on_vote_reply(struct cl_raft *r, const struct cl_raft_msg *m);

/* follow.c */
int raft_on_append(struct cl_raft *r, const struct cl_raft_msg *m);
bool raft_poll_follower(struct cl_raft *r, struct cl_raft_msg *m);

/* replicate.c */
void raft_lead(struct cl_raft *r);
void raft_leader_tick(struct cl_raft *r);
int raft_on_append_reply(struct cl_raft *r, struct raft_peer *p, const struct cl_raft_msg *m);
void raft_advance_commit(struct cl_raft *r);
bool raft_poll_peer(struct cl_raft *r, struct raft_peer *p, struct cl_raft_msg *m);
void raft_peer_reset(struct cl_raft *r, struct raft_peer *p);
void raft_peer_heard(struct cl_raft *r, struct raft_peer *p, uint64_t round);
/* A node has said in this term that its log ends at `index`. */
void raft_peer_ends(struct cl_raft *r, struct raft_peer *p, uint64_t index);
void raft_peer_probe(struct raft_peer *p, uint64_t next);
bool raft_committed_in_term(const struct cl_raft *r);
void raft_stop_leading(struct cl_raft *r);
void raft_transfer_step(struct cl_raft *r, struct raft_peer *p);
void raft_yield(struct cl_raft *r);

/* pace.c */
void raft_pace_lead(struct cl_raft *r);
void raft_pace_tick(struct cl_raft *r);
/* Committed were entries up to `before`. */
void raft_pace_committed(struct cl_raft *r, uint64_t before);
uint64_t raft_pace_limit(const struct cl_raft *r, const struct raft_peer *p);
void raft_let_go_unheld(struct cl_raft *r);

/* snapshot.c */
int raft_on_snapshot(struct cl_raft *r, const struct cl_raft_msg *m);
int raft_on_snapshot_reply(struct cl_raft *r, struct raft_peer *p, const struct cl_raft_msg *m);
bool raft_poll_snapshot(struct cl_raft *r, struct raft_peer *p, struct cl_raft_msg *m);
void raft_drop_covered(struct cl_raft *r);
/* Append an entry that must not be refused as long as there is something that the snapshot covers: what is kept behind
 * it goes. -ENOSPC. */
int raft_append(struct cl_raft *r, uint64_t term, uint32_t kind, const void *data, uint32_t bytes);
/* Of a leader: what is kept behind the snapshot, and all that are heard from have. Whether any of it was there to
 * go. */
bool raft_drop_held_by_all(struct cl_raft *r);
void raft_snapshot_begin(struct cl_raft *r, struct raft_peer *p);
void raft_snapshot_tick(struct cl_raft *r, struct raft_peer *p);

/* membership.c */
bool raft_is_voter(const struct cl_raft_members *m, uint32_t id);
bool raft_members_valid(const struct cl_raft_members *m);
struct raft_peer *raft_find_peer(struct cl_raft *r, uint32_t id);
/* Largest value that a majority (of both parts of a joint configuration) has reached; value(r, id) is of a voter. */
uint64_t raft_quorum(const struct cl_raft *r, uint64_t (*value)(const struct cl_raft *r, uint32_t id));
/* An entry with a configuration was appended: it counts from now on. False: it cannot be read. */
bool raft_members_appended(struct cl_raft *r, uint64_t index, const uint8_t *data, uint32_t bytes);
void raft_members_truncated(struct cl_raft *r);
void raft_members_committed(struct cl_raft *r);
/* Entries before `first` are about to go: remember the configuration as of first - 1. */
void raft_members_compact(struct cl_raft *r, uint64_t first);
void raft_members_set(struct cl_raft *r, const struct cl_raft_members *m, uint64_t index);
/* The configuration as of entry `index`, and the entry it came with. */
void raft_members_find(const struct cl_raft *r, uint64_t index, struct cl_raft_members *out, uint64_t *at);

/* read.c */
int raft_on_read(struct cl_raft *r, const struct cl_raft_msg *m);
int raft_on_read_reply(struct cl_raft *r, const struct cl_raft_msg *m);
void raft_reads_begin_round(struct cl_raft *r);
void raft_new_round(struct cl_raft *r);
void raft_reads_confirm(struct cl_raft *r);
void raft_reads_fail(struct cl_raft *r);

#endif
