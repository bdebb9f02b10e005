/* The Raft consensus core: a pure, deterministic state machine (Ongaro and Ousterhout, "In Search of an Understandable
 * Consensus Algorithm", 2014; Ongaro's thesis, "Consensus: Bridging Theory and Practice", 2014).
 *
 * It has no clock, no threads, no I/O, no randomness but its seed. One thread at a time calls it. In go messages,
 * ticks, proposals, and word of what became durable; out come messages, log writes and committed entries. All memory is
 * taken by cl_raft_new. The driver's loop, after any call that goes in:
 *
 *   cl_raft_ready(raft, &ready)         what to do now; each thing is handed over once
 *     ready.truncate_from               1. drop durable entries from there on
 *     ready.first .. ready.last         2. write these entries (cl_raft_entry), after 1; when entry i is durable, and
 *                                          all before it: cl_raft_persisted(raft, i, its term, its generation)
 *     ready.hard                        3. write term and vote, in any order with 2; when durable:
 *     cl_raft_hard_persisted ready.apply_first .. apply_last   4. committed: apply these in order, then
 *     cl_raft_applied(raft, i)
 *     ready.chunk                       5. a piece of a snapshot that the leader sends (see below)
 *   cl_raft_poll_message(raft, &msg)    until 0: encode (wire.h's cl_raft_encode) and send. Do not wait for the writes
 *                                       first: what must wait for a write is not there before persisted() was called.
 *   cl_raft_poll_read(raft, &read)      until 0: reads that may be answered once `read.index` is applied
 *
 * Persistence. Nothing that promises anything leaves before what it promises is durable: a granted vote waits for the
 * vote, a candidate's requests for its own vote, an acknowledgement of entries for the entries and the term. A leader's
 * AppendEntries goes out in parallel with its own write (thesis 10.2.1); its own copy counts towards commitment only
 * when persisted() said so. persisted() of an entry that was truncated meanwhile does not count, even if the same entry
 * was appended again since: the generation tells. If a write fails call cl_raft_fail: this replica then neither votes
 * nor acknowledges anything any more, until it is made anew from what its log says.
 *
 * Restart: cl_raft_new; cl_raft_restore (term, vote, newest snapshot); cl_raft_restore_entry for each entry after the
 * snapshot, in order; then use it. A new cluster: give `members` in the configuration, the same on all of its first
 * nodes; a node that is to be added later starts with none and learns of them from the leader.
 *
 * Snapshots. cl_raft_compact tells of a snapshot that the driver made at an applied index. A follower that needs
 * entries that are gone gets it in chunks: poll_message gives CL_RAFT_SNAPSHOT messages with `offset` and `data_bytes`,
 * the driver sets `data` before it encodes. On the other side ready.chunk appears right after the cl_raft_step of such
 * a message and points into that message: take it before the next step and say so with cl_raft_chunk_taken. Chunks come
 * in order, from offset 0, which begins anew. After the last one (chunk.last) make the snapshot durable, restore the
 * state machine from it and call cl_raft_snapshot_installed, which drops the log up to it. While
 * cl_raft_snapshot_in_use says so keep the newest snapshot readable, and rather put off making another: it would begin
 * those transfers anew.
 *
 * Ticks. The driver calls cl_raft_tick at even intervals. Election timeouts are drawn from [election_ticks, 2 *
 * election_ticks). Of two nodes that stand at the same time one gives way, and after a split vote the next try comes
 * after some heartbeats (election.c); so heartbeat_ticks should be no shorter than a round trip. Pre-vote and
 * check-quorum are always on: a node that hears from a leader refuses votes (leader stickiness, thesis 4.2.3 and 9.6),
 * a leader that hears from no majority for election_ticks steps down. Time in which this node did not run is no silence
 * of the others, whose messages may wait in its queue: a driver that comes late calls cl_raft_missed_ticks for all
 * ticks that were due but the last, and cl_raft_tick for that one. They count for leases and for the disk only.
 *
 * A disk that hangs, without an error. What was handed out to be written and does not become durable for disk_ticks
 * makes a leader step down, though it could go on with the disks of the others for as long as its memory has room: it
 * tells the voter that is furthest to campaign at once. Without another voter that is heard from and has acknowledged
 * more than is durable here it stays: where all disks are as slow, as those of nodes that share one, an election only
 * costs. Nobody whose disk hangs stands for election. disk_ticks are several election timeouts, since a disk's slow
 * moments are far longer than its usual ones, and a leader whose disk is merely slow costs nothing. An election on slow
 * disks takes two writes, and more where candidates are in each other's way; timeouts without a leader grow with what
 * writes of votes take (election.c).
 *
 * Reads. cl_raft_read_index: linearizable by read index (a round of heartbeats, shared by all reads that wait), or,
 * where `lease_reads` is set, without one while the leader's lease lasts. The lease is sound only if no node's ticks
 * run faster than another's by more than lease_margin_ticks in election_ticks, and if the driver accounts for all time
 * that has passed, also while it was stopped (ticks, above), before it calls cl_raft_read_index and before it calls
 * cl_raft_step: a follower's promise to vote for nobody else counts from when it hears from its leader. Hence it is off
 * by default. With it on, a node refuses votes for election_ticks from then, also after it learnt of a newer term and
 * in that term, unless a leader ordered them (transfer, which ends its lease); and from its start, for it may not know
 * that it had heard from a leader.
 *
 * Membership. cl_raft_change_members goes through joint consensus (thesis 4.3) where voters change, and in one entry
 * where only learners do. A configuration counts as soon as it is in the log and is rolled back when it is truncated;
 * one change at a time. A leader that is not in the new configuration leads until that is committed and then steps
 * down.
 *
 * Bounds. At most CL_RAFT_MAX_NODES nodes, log_entries entries and log_bytes bytes since the last compaction. A full
 * log refuses proposals (-ENOSPC) until the driver compacts; a follower whose log is full takes what fits and says so.
 *
 * Not here: encryption, authentication (a member that lies breaks any guarantee; the wire's CRC is against accidents),
 * Byzantine faults, witness nodes, reads at followers without asking the leader.
 *
 * Start reading at core.c (step, tick) and ready.c; then election.c, replicate.c, pace.c, log.c, snapshot.c,
 * membership.c, read.c. */
#ifndef CORELANE_APPS_RAFT_CORE_RAFT_H
#define CORELANE_APPS_RAFT_CORE_RAFT_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_RAFT_MAX_NODES 16 /* of both configurations of a change and learners together */

/* Roles. */
#define CL_RAFT_FOLLOWER 0
#define CL_RAFT_PRE_CANDIDATE 1
#define CL_RAFT_CANDIDATE 2
#define CL_RAFT_LEADER 3
#define CL_RAFT_FAILED 4 /* a write failed: silent until made anew */

/* Kinds of entries. */
#define CL_RAFT_NOOP 0 /* a leader's first of its term */
#define CL_RAFT_COMMAND 1
#define CL_RAFT_MEMBERS 2 /* a configuration: data as cl_raft_members_encode makes it */

/* Messages. Fields of cl_raft_msg that each uses are said there. */
#define CL_RAFT_PREVOTE 1
#define CL_RAFT_PREVOTE_REPLY 2
#define CL_RAFT_VOTE 3
#define CL_RAFT_VOTE_REPLY 4
#define CL_RAFT_APPEND 5 /* without entries: a heartbeat */
#define CL_RAFT_APPEND_REPLY 6
#define CL_RAFT_SNAPSHOT 7
#define CL_RAFT_SNAPSHOT_REPLY 8
#define CL_RAFT_TIMEOUT_NOW 9 /* leadership transfer: campaign at once */
#define CL_RAFT_READ 10       /* a follower asks for a read index */
#define CL_RAFT_READ_REPLY 11
#define CL_RAFT_TYPES 12

/* Flags of messages. */
#define CL_RAFT_REJECT 1 /* replies: no */
#define CL_RAFT_FORCE 2  /* VOTE: by order of the leader, so stickiness does not count */
#define CL_RAFT_PROMPT 4 /* APPEND: answer now (reads wait for the round), and again when durable */
#define CL_RAFT_FULL 8   /* APPEND_REPLY: the log has no room for more */

/* To whom a leader's entries go at once (cl_raft_thrifty, node.h). */
#define CL_RAFT_TO_ALL 1
#define CL_RAFT_TO_MAJORITY 2
#define CL_RAFT_TO_AUTO 3 /* whichever commits sooner */

/* What the group consists of. n_outgoing > 0: a joint configuration, where a majority of `voters` (incoming) and one of
 * `outgoing` are needed. A learner gets the log and counts for nothing. */
struct cl_raft_members {
    uint32_t n_voters, n_outgoing, n_learners;
    uint32_t voters[CL_RAFT_MAX_NODES];
    uint32_t outgoing[CL_RAFT_MAX_NODES];
    uint32_t learners[CL_RAFT_MAX_NODES];
};

/* How to make a core. Zero takes the default in brackets. */
struct cl_raft_config {
    uint32_t id;                 /* this node, not 0 */
    uint32_t election_ticks;     /* [10] at least 3 */
    uint32_t heartbeat_ticks;    /* [a fifth of election_ticks] less than election_ticks */
    uint32_t disk_ticks;         /* [5 * election_ticks] without progress of the own disk; see above */
    uint32_t lease_reads;        /* 1: see above */
    uint32_t lease_margin_ticks; /* [a quarter of election_ticks] clock drift allowed for, in election_ticks */
    uint32_t inflight_messages;  /* [64] AppendEntries under way to one follower; at most 256 */
    uint32_t message_bytes;      /* [60000] of entries, or of a snapshot's chunk, in one message */
    uint32_t entry_bytes;        /* [1 MiB; of a node what its log takes] the same on all nodes */
    uint32_t log_entries;        /* [65536] power of two */
    uint32_t trailing_entries;   /* [log_entries / 8] kept behind a snapshot, for followers that lag a little */
    uint64_t log_bytes;          /* [64 MiB] power of two, at least twice entry_bytes */
    uint64_t inflight_bytes;     /* [4 MiB] under way to one follower */
    uint64_t uncommitted_bytes;  /* [log_bytes / 2] proposals beyond it are refused: -EAGAIN */
    uint64_t cluster;            /* messages of another cluster are refused */
    uint64_t group_settings;     /* goes with messages, to be compared by a node, which fills it in (node.h) */
    uint64_t first_voters;       /* the same: a digest of who voted first; 0: not known yet (apps/raft/node/first.c) */
    uint64_t
        incarnation; /* the same: of a node without a log, or of its log; 0: none (apps/raft/node/incarnations.c) */
    uint64_t seed;   /* of election timeouts; mixed with the id */
    uint32_t pending_reads;         /* [1024] reads that wait at one time */
    struct cl_raft_members members; /* a new cluster's; cl_raft_restore may bring others */
};

/* An entry. `data` is good until the next call that goes in. */
struct cl_raft_entry {
    uint64_t index, term;
    const uint8_t *data;
    uint32_t bytes;
    uint32_t generation; /* for cl_raft_persisted */
    uint32_t kind;
};

/* A message, in and out. Which fields mean what:
 *   PREVOTE, VOTE      term (PREVOTE: the one that it would campaign in), index and log_term of the last entry
 *   ..._REPLY          term, REJECT
 *   APPEND             index and log_term of the entry before, commit, round, n_entries; in: data = encoded entries
 *   APPEND_REPLY       index = durable match; received = match including what is not durable; round as heard last.
 *                      REJECT: index = the `index` refused, hint and log_term = where the logs may agree (at most)
 *   SNAPSHOT           index, log_term = what it covers; offset, total, data, data_bytes, members, round
 *   SNAPSHOT_REPLY     index = the snapshot's, offset = what is wanted next, round; REJECT: begin anew
 *   READ, READ_REPLY   context; REPLY: index, REJECT: ask again */
struct cl_raft_msg {
    uint8_t type, flags;
    uint16_t pad;
    uint32_t from, to;
    uint32_t n_entries;
    uint32_t data_bytes;
    uint64_t term;
    uint64_t index, log_term;
    uint64_t commit;
    uint64_t round;
    uint64_t hint;     /* APPEND_REPLY rejected */
    uint64_t received; /* APPEND_REPLY */
    uint64_t offset, total;
    uint64_t context;
    uint64_t group_settings, first_voters, incarnation; /* in: the sender's */
    const uint8_t *data;
    struct cl_raft_members members; /* SNAPSHOT */
};

/* What the driver has to do. See the top. */
struct cl_raft_ready {
    uint64_t truncate_from;           /* 0: nothing */
    uint64_t first, last;             /* entries to write; first 0: none */
    uint64_t apply_first, apply_last; /* first 0: none */
    uint64_t hard_seq;                /* for cl_raft_hard_persisted */
    uint64_t term;
    uint32_t vote; /* 0: none */
    uint8_t hard;  /* 1: write term and vote */
    uint8_t chunk; /* 1: a piece of a snapshot, below */
    uint8_t chunk_last;
    uint8_t pad;
    uint64_t chunk_index, chunk_term, chunk_offset, chunk_total;
    const uint8_t *chunk_data;
    uint32_t chunk_bytes;
    struct cl_raft_members chunk_members; /* the configuration as of the snapshot */
};

/* A read that may be answered once `index` is applied; index 0: it failed (leadership lost, or too many waited). */
struct cl_raft_read {
    uint64_t context, index;
};

/* How far a peer is, as its leader sees it. */
#define CL_RAFT_PROBE 0     /* one message at a time, to find where the logs agree */
#define CL_RAFT_REPLICATE 1 /* pipelined */
#define CL_RAFT_SNAPSHOTTING 2
struct cl_raft_peer {
    uint32_t id;
    uint8_t state, active, voter, paused;
    uint8_t front, pad[3]; /* front: with cl_raft_thrifty, it is sent entries at once */
    uint64_t match, next;
    uint64_t inflight_bytes;
    uint32_t inflight_messages;
    uint64_t snapshot_offset;
};

/* State at this instant. */
struct cl_raft_status {
    uint32_t id, role, leader, vote; /* leader, vote: 0 is none */
    uint64_t term, commit, applied;
    uint64_t first, last; /* entries held; last < first: none */
    uint64_t durable;     /* last durable entry */
    uint64_t snapshot_index, snapshot_term;
    uint64_t members_index; /* entry that the configuration in force came with; 0: the first one */
    uint64_t free_entries, free_bytes;
    uint64_t ticks;
    uint64_t lease_until_tick; /* leader: reads by lease are answered at earlier ticks */
    uint64_t disk_waits_ticks; /* for how long something has waited for the disk, and nothing became durable */
    uint32_t transfer_to;      /* 0: none */
    uint32_t thrifty;          /* cl_raft_thrifty */
    uint32_t n_peers;
    uint32_t gone_back; /* the last member whose log lacks what it had acknowledged and was committed; 0: none */
    uint32_t
        contradicts; /* the last node that led, in this node's eyes, without what is committed here; 0: none, or one
                      * with it since */
    struct cl_raft_members members;
    struct cl_raft_peer peers[CL_RAFT_MAX_NODES]; /* leader: the others */
};

/* The few things of the status that are wanted often. */
struct cl_raft_room {
    uint64_t free_entries, free_bytes, durable;
    uint64_t uncommitted_entries, uncommitted_bytes;
};

/* What a leader's next batch would be, and how far those before it are. */
struct cl_raft_gathering {
    uint64_t entries; /* that wait; 0 also if it does not lead */
    uint64_t last;    /* entry that has gone */
    uint64_t commit;
};

/* Since it was made. messages_in = handled + stale_term + refused_* + from_strangers + ignored. */
struct cl_raft_counters {
    uint64_t messages_in, messages_out;
    uint64_t handled;
    uint64_t stale_term;      /* of an older term */
    uint64_t refused_field;   /* a field that no correct node sends */
    uint64_t refused_cluster; /* of another cluster, or not to this node */
    uint64_t from_strangers;  /* replies of nodes that are not members */
    uint64_t ignored;         /* vote requests while a leader is heard from, answers that nobody waits for */
    uint64_t replies_dropped; /* no room in the queue of replies: as if lost on the way */
    uint64_t elections, prevotes, elections_won, stepped_down, quorum_lost;
    uint64_t gave_way;  /* did not stand for a while, as another asked for pre-votes first */
    uint64_t disk_hung; /* stepped down because the own disk hung */
    uint64_t entries_appended, entries_truncated, entries_refused; /* refused: the log was full */
    uint64_t thrifty_batches; /* sent to a quorum at once, and to the others later */
    uint64_t spreads;         /* how often what was held back went to those */
    uint64_t hedges;          /* ... as something was awaited for a tick */
    uint64_t overtaken;       /* members of the quorum, this node too, that did not have that when it was committed */
    uint64_t persisted_stale; /* persisted() of what had been truncated meanwhile */
    uint64_t rejected_appends, resent_probes;
    uint64_t snapshots_sent, snapshots_installed, chunks_sent, chunks_refused;
    uint64_t proposals, proposals_refused;
    uint64_t reads, reads_by_lease, reads_failed, read_rounds;
    uint64_t gone_back, contradictions;          /* messages that showed what the status says under these names */
    uint64_t gone_back_node, contradicting_node; /* not counted: the last node of each */
};

struct cl_raft;

/* Memory for everything. -EINVAL or -ENOMEM with a reason in err. */
CL_API int cl_raft_new(const struct cl_raft_config *config, struct cl_raft **out, char err[256]);
CL_API void cl_raft_delete(struct cl_raft *raft);
/* Before first use: what was durable. members: of the snapshot; without one, the first ones. NULL: those of the
 * configuration. */
CL_API int cl_raft_restore(struct cl_raft *raft, uint64_t term, uint32_t vote, uint64_t snapshot_index,
                           uint64_t snapshot_term, uint64_t snapshot_bytes, const struct cl_raft_members *members);
/* After the entries: those up to `index` are known to be committed. What the log does not hold of them does not
 * count. */
CL_API void cl_raft_restore_commit(struct cl_raft *raft, uint64_t index);
/* The next durable entry: snapshot_index + 1, ... -EINVAL: not the next, or its term goes back; -ENOSPC. */
CL_API int cl_raft_restore_entry(struct cl_raft *raft, uint64_t term, uint32_t kind, const uint8_t *data,
                                 uint32_t bytes);

/* What goes with messages as cl_raft_config.first_voters from now on. */
CL_API void cl_raft_set_first_voters(struct cl_raft *raft, uint64_t digest);

/* A message from another node, decoded. 0: handled; 1: of no use, counted; -EINVAL: refused, counted; -EIO: failed. */
CL_API int cl_raft_step(struct cl_raft *raft, const struct cl_raft_msg *msg);
CL_API void cl_raft_tick(struct cl_raft *raft);
/* Before cl_raft_tick, if it comes late: so many more were due since the last one. */
CL_API void cl_raft_missed_ticks(struct cl_raft *raft, uint32_t ticks);
/* Append a command, copied. *index and *term say where it will be committed, if this leader stays. -EPERM: not the
 * leader; -EBUSY: a transfer is under way; -ENOSPC: the log is full; -EAGAIN: too much is not committed yet; -EMSGSIZE;
 * -EIO. */
CL_API int cl_raft_propose(struct cl_raft *raft, const void *data, uint32_t bytes, uint64_t *index, uint64_t *term);
/* Batches. What is proposed while a batch is on its way to be committed gathers, and goes as one when that is committed
 * or a tick has gone by: one write to the disk, and one message to each follower if it fits. After cl_raft_hold a batch
 * goes only by cl_raft_let_go, whatever is on its way: the oldest `entries` of what waits, or all if there are
 * fewer. */
CL_API void cl_raft_hold(struct cl_raft *raft);
CL_API void cl_raft_let_go(struct cl_raft *raft, uint64_t entries);
/* A leader's batches go to a quorum first, and to the others with the next tick, or when a message's worth is held back
 * (pace.c). */
CL_API void cl_raft_thrifty(struct cl_raft *raft, int on);
CL_API void cl_raft_gathering(const struct cl_raft *raft, struct cl_raft_gathering *out);
/* Of a leader: the last entry that would be committed if its own log had all; 0: it does not lead. */
CL_API uint64_t cl_raft_others(const struct cl_raft *raft);
/* Ask for a linearizable read; the answer with this context comes from cl_raft_poll_read. -EPERM: no leader known;
 * -EAGAIN: too many wait. A follower asks its leader; that question or its answer may get lost: ask again. */
CL_API int cl_raft_read_index(struct cl_raft *raft, uint64_t context);
/* Become these voters and learners. -EPERM: not leader; -EBUSY: a change is under way, or this leader has not committed
 * an entry of its term yet; -EINVAL: no voters, a node twice, too many; -EALREADY: it is so; -EHOSTUNREACH: this leader
 * has not heard from a majority of these voters for an election timeout or two (who is no member yet: ever), so they
 * might decide nothing any more. */
CL_API int cl_raft_change_members(struct cl_raft *raft, const uint32_t *voters, uint32_t n_voters,
                                  const uint32_t *learners, uint32_t n_learners);
/* The same without the last of these: nobody may be there to undo it. */
CL_API int cl_raft_force_members(struct cl_raft *raft, const uint32_t *voters, uint32_t n_voters,
                                 const uint32_t *learners, uint32_t n_learners);
/* Hand leadership to a voter. It takes effect when `to` has caught up, or is given up after election_ticks. -EPERM: not
 * leader; -EINVAL: no such voter; -EBUSY: another transfer; -EALREADY: it is this node; -EHOSTDOWN: nothing was heard
 * from it for an election timeout or two. Proposals are refused meanwhile. */
CL_API int cl_raft_transfer(struct cl_raft *raft, uint32_t to);
/* Campaign now, without waiting for the election timeout: pre-vote first. Does nothing where a leader may hold a lease
 * that this node granted. */
CL_API void cl_raft_campaign(struct cl_raft *raft);

/* Fill *ready. 1: there is something to do; 0: nothing. */
CL_API int cl_raft_ready(struct cl_raft *raft, struct cl_raft_ready *ready);
/* The next message to send. 1 or 0. Its entries are read by the encoder from the log: encode before anything goes
 * in. */
CL_API int cl_raft_poll_message(struct cl_raft *raft, struct cl_raft_msg *msg);
CL_API int cl_raft_poll_read(struct cl_raft *raft, struct cl_raft_read *read);
/* Entry `index`. -ENOENT: not held (compacted, or beyond the end). */
CL_API int cl_raft_entry(const struct cl_raft *raft, uint64_t index, struct cl_raft_entry *out);
/* Term of entry `index`, which may be that of the snapshot; 0: unknown. */
CL_API uint64_t cl_raft_term_at(const struct cl_raft *raft, uint64_t index);

/* Entry `index` of `term` and `generation` is durable, and so is all before it. */
CL_API void cl_raft_persisted(struct cl_raft *raft, uint64_t index, uint64_t term, uint32_t generation);
CL_API void cl_raft_hard_persisted(struct cl_raft *raft, uint64_t hard_seq);
/* A write failed. For good. */
CL_API void cl_raft_fail(struct cl_raft *raft);
CL_API void cl_raft_applied(struct cl_raft *raft, uint64_t index);

/* A durable snapshot of `bytes` bytes covers all up to `index`, which is applied. *first: entries before it are not
 * needed any more (drop them from the durable log). Entries that are not durable here yet are kept until they are, and
 * then go without further word: the next *first tells of them. -EINVAL: not applied, not newer than the one before
 * (unless cl_raft_snapshot_wanted), or cl_raft_members_at does not know. */
CL_API int cl_raft_compact(struct cl_raft *raft, uint64_t index, uint64_t bytes, uint64_t *first);
/* 1: a follower is being sent the newest snapshot. */
CL_API int cl_raft_snapshot_in_use(const struct cl_raft *raft);
/* 1: this leader's newest snapshot cannot be sent, for it was made when this node knew no members: make another, of the
 * same index if nothing was applied since. */
CL_API int cl_raft_snapshot_wanted(const struct cl_raft *raft);
/* The configuration as of an applied index, to be kept with a snapshot of it. -EINVAL: not known any more. Without
 * voters: a node added later knows none before the entry that added it. */
CL_API int cl_raft_members_at(const struct cl_raft *raft, uint64_t index, struct cl_raft_members *out);
/* The chunk that ready told of was taken (ok 1), or could not be stored (ok 0: the leader will begin anew). */
CL_API void cl_raft_chunk_taken(struct cl_raft *raft, int ok);
/* The snapshot whose last chunk was taken is durable and restored (ok 1), or is not to be used (ok 0). When ok,
 * whatever the durable log holds up to chunk_index is void, and so is all behind it unless 1 is returned: those entries
 * are kept. */
CL_API int cl_raft_snapshot_installed(struct cl_raft *raft, int ok);

/* Who leads, as far as this node knows; 0: nobody. */
CL_API uint32_t cl_raft_leader(const struct cl_raft *raft);
CL_API uint64_t cl_raft_term(const struct cl_raft *raft);
CL_API void cl_raft_status(const struct cl_raft *raft, struct cl_raft_status *out);
CL_API void cl_raft_room(const struct cl_raft *raft, struct cl_raft_room *out);
CL_API void cl_raft_counters(const struct cl_raft *raft, struct cl_raft_counters *out);
/* Two of them, gone_back_node and contradicting_node; on any thread. */
CL_API void cl_raft_suspects(const struct cl_raft *raft, uint64_t *gone_back, uint64_t *contradicting);
// cffi: end

#endif
