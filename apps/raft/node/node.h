/* A Raft node: the core (raft.h), its log on a device (corelane/libos/log.h) or in memory, client sessions, and the
 * user's state machine, behind an environment that gives it time and a network. It has no thread, no clock and no
 * socket of its own: the same code runs in the simulation (sim/) and over libos UDP (serve.h). One thread at a time is
 * inside calls on a node.
 *
 *   cl_raft_node_new      takes an opened log; the node is RECOVERING until polls have read it
 *   cl_raft_node_receive  a frame from another node      \
 *   cl_raft_node_submit   a client's command              > then cl_raft_node_poll, once for a burst of them
 *   cl_raft_node_query    a client's read                /
 *   cl_raft_node_poll     does everything that is to be done: ticks, log, messages, applying, answers; returns when to
 *                         call it again at the latest. Also call it when the log's device has completed something.
 *
 * Commands are answered once applied. On a node that does not lead they are forwarded to the leader, once, and the
 * answer comes back through the node that was asked. If there is a new leader or term before it comes, or it does not
 * come in twenty election timeouts, the answer is CL_RAFT_RETRY: the outcome is not known.
 *
 * Exactly once (thesis 6.3). A client opens a session by a command (CL_RAFT_OPEN; the answer is the session's number, 8
 * bytes little endian; asked again with the same word it is the same session until that is used) and numbers its
 * commands 1, 2, 3, ..., one outstanding at a time. A command that comes again gets the answer of the first time. The
 * number is made of the word and the entry's index, so draw words at random: a group without logs that begins again
 * counts its entries anew, and who has a session of before must not share it with who opens one now (with 0 for a word
 * they may). Sessions are part of the replicated state and of snapshots. A session ends when nothing came in it for
 * session_ms of the log's clock (clock.c), which the leaders' stamps in the log drive, or when max_sessions others were
 * used since; then its commands answer CL_RAFT_EXPIRED and are not applied. Session 0 is none: a command that is sent
 * twice may be applied twice.
 *
 * Reads are linearizable: read index, or lease where raft.lease_reads is set. They are made by the leader.
 *
 * Group settings. What is applied depends on max_sessions, session_ms, reply_bytes and the machine's own settings, and
 * who may lead, and for how long a lease holds, on how long election_ticks are and on lease_reads; what a leader takes
 * for an entry, its followers must take, too (raft.entry_bytes, by default what the log takes). So these are the same
 * on every node of a group: a digest of them goes with the core's messages, and those of a node with others are
 * refused, both ways, and counted. So such a node neither leads, votes nor follows; the others go on without it. Those
 * that decide what is applied are written to the log, too: a node that is started on it with others is FAILED. All
 * nodes of a group have logs, or none: that is in the digest, too.
 *
 * First voters. raft.members are voters and count when the log is empty, or there is none; they are written to it
 * before the node says anything. Later they come from the log, whatever the configuration says. None: the node joins a
 * group. A digest of them goes with messages, and those of a node that began with others are refused and counted
 * (first.c).
 *
 * Incarnations. A node with amnesia must not come back under its id: without logs a node that ended, with logs one
 * whose log was lost and made again. The nodes that knew it refuse it, and it stops (incarnations.c).
 *
 * Snapshots are taken inside poll when the log is half full (compact_bytes), as a whole and at once: saving and
 * restoring stop the node for as long as copying takes. The newest is kept in memory too, to be sent to others.
 *
 * Failure. A write or flush that fails, or damage in the log, makes the node FAILED: it says nothing more to anybody,
 * and cl_raft_node_why says what happened. A log that is full is no failure: proposals are refused until a snapshot
 * makes room. Before that a leader refuses them (CL_RAFT_BUSY) while what is not committed yet, which no snapshot can
 * free, might fill a quarter of a replica's area, each entry in a flush of its own. All replicas' areas should be of
 * one size.
 *
 * Bounds: raft's, plus max_sessions, `waiting` commands forwarded and as many queries at one time. Everything refused
 * is counted. Not here: batching of several commands into an entry (round.c batches entries into a write and a
 * message). */
#ifndef CORELANE_APPS_RAFT_NODE_NODE_H
#define CORELANE_APPS_RAFT_NODE_NODE_H

#include "../core/raft.h"
#include "../core/wire.h"

struct cl_log;

// cffi: begin
/* States of a node. */
#define CL_RAFT_RECOVERING 0
#define CL_RAFT_RUNNING 1
#define CL_RAFT_STOPPED 2 /* failed, for good */

/* How a command or query ended. */
#define CL_RAFT_OK 0
#define CL_RAFT_RETRY 1        /* not known: no leader, or it changed. Ask again (in a session: with the same number) */
#define CL_RAFT_BUSY 2         /* not done: the log or a queue is full */
#define CL_RAFT_EXPIRED 3      /* not done: there is no such session (any more) */
#define CL_RAFT_OUT_OF_ORDER 4 /* not done: the session has had later commands */
#define CL_RAFT_TOO_LARGE 5    /* not done; the reply says how many bytes are taken, as u32 */
#define CL_RAFT_REFUSED 6      /* the state machine said no, and nothing has changed; the reply is its own */
#define CL_RAFT_REPLY_TOO_LARGE 7 /* done; there is no reply, as it is longer than reply_bytes */
#define CL_RAFT_QUERY_FAILED 8    /* the state machine could not answer; the reply says why */
#define CL_RAFT_APPLY_FAILED 9 /* the state machine could not apply it, and nothing has changed; the reply says why */

/* Sessions of clients at one time. */
#define CL_RAFT_SESSIONS_MOST 16777216

/* In what apply or query returns, with the reply's bytes: CL_RAFT_REFUSED. */
#define CL_RAFT_REFUSES 0x4000000000000000

/* For `sequence` of a command without a session: the answer may have the machine's answer_bytes, not only reply_bytes.
 * It goes into the log, as what a machine does may depend on the room for its answer. */
#define CL_RAFT_LONG_ANSWER 1

/* Kinds of commands. */
#define CL_RAFT_APPLY 0      /* for the state machine */
#define CL_RAFT_OPEN 1       /* open a session: no data; `sequence` is a word drawn at random, or 0 */
#define CL_RAFT_CLOSE 2      /* end `session` */
#define CL_RAFT_CLOCK 16     /* a leader's own: time has passed (clock.c). The state machine does not see it */
#define CL_RAFT_SEED 17      /* a leader's own: `sequence` is the group's random word */
#define CL_RAFT_CLOCK_SET 18 /* an operator's: the log's clock is its stamp from here on (cl_raft_node_set_clock) */

/* Of an entry before a command's bytes: u64 kind, with what was committed when its leader proposed it above the lowest
 * 8 bits; u64 session, u64 sequence, u64 stamp_ms. */
#define CL_RAFT_COMMAND_HEADER 32

/* Who asked: the environment's own words, given back with the answer. */
struct cl_raft_token {
    uint64_t words[4];
};

/* What the node needs of the world. All are called inside calls on the node, and must not call it. */
struct cl_raft_env {
    void *arg;
    uint64_t (*now_ns)(void *arg);  /* monotonic */
    uint64_t (*wall_ms)(void *arg); /* stamps the log when this node leads; may jump, clock.c */
    /* Send a frame to a node. `data` is the node's own and is used again at once. lasting: it is wanted for longer than
     * until the next one, so it should be sent again if it is lost; one that asks for a command must never arrive
     * twice. False: it was not sent, and will not be. */
    bool (*send)(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting);
    /* A command or query ended. `reply` is good during the call. */
    void (*answer)(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes);
    /* A command or query that another node passed on, which came then, is about to be answered. Only with
     * config.stages; may be NULL. */
    void (*passed)(void *arg, uint64_t since_ns);
};

/* The user's state machine. apply must be deterministic: the same commands in the same order give the same state and
 * the same replies, on every replica and after a restart. clock_ms is the log's clock. */
struct cl_raft_machine {
    void *arg;
    /* Returns the reply's bytes. More than `room`: CL_RAFT_REPLY_TOO_LARGE, and what was written is not sent. < 0:
     * -errno; the node fails, for its state is not the others' any more, unless the machine is atomic. A command that
     * nobody can apply stops all nodes, again at each start: see `check`, `atomic`, docs/raft.md. -ENOTRECOVERABLE: the
     * state may not be the others' any more, be the machine atomic or not. */
    int64_t (*apply)(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                     uint8_t *reply, uint32_t room);
    /* The same for a read: may change nothing. < 0: CL_RAFT_QUERY_FAILED. */
    int64_t (*query)(void *arg, uint64_t clock_ms, const uint8_t *query, uint32_t bytes, uint8_t *reply, uint32_t room);
    /* Copy up to `room` bytes of the state as it is, from byte `at` on; 0 at its end. Between the calls of one
     * snapshot, which begins at 0, nothing is applied. < 0: -errno, and there is no snapshot. */
    int64_t (*save)(void *arg, uint64_t at, uint8_t *out, uint64_t room);
    /* Become what save saved: called with consecutive pieces; at == 0: forget everything first; at + bytes == total:
     * the last. < 0: -errno; the node fails, as it has no state any more. */
    int (*load)(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total);
    /* Whether a command may enter the log at all: asked of the leader, before it proposes it. 0: it may.
     * CL_RAFT_REFUSES and the bytes of a reply: CL_RAFT_REFUSED. < 0: the same, with what `why` says for the reply. It
     * may look at the command alone, for the state is not yet the one that the command is applied to; a command that
     * was applied may come here again, in its session. NULL: all may. */
    int64_t (*check)(void *arg, const uint8_t *command, uint32_t bytes, uint8_t *reply, uint32_t room);
    /* A random word that the group draws, the same on every replica, before its first command; the machine keeps it in
     * what it saves. Not called in a group that began before there were such words. NULL: it needs none. */
    void (*seed)(void *arg, uint64_t word);
    uint64_t settings; /* of which its replies and state depend; refused where they differ. The store's: memory_bytes */
    /* More than the -errno of the call that failed last says; good until the next call. May be NULL. */
    const char *(*why)(void *arg);
    uint32_t
        atomic; /* 1: an apply that returns < 0, but -ENOTRECOVERABLE, has changed nothing, and does so on every replica
                 * alike: CL_RAFT_APPLY_FAILED */
    uint32_t answer_bytes; /* longest answer that no session keeps, the same on every node: to a query, and to a command
                            * without a session and with CL_RAFT_LONG_ANSWER; less than reply_bytes: that */
    uint32_t
        ages_ms; /* what queries read depends on clock_ms, so that must not be older while nothing is written; 0: it
                  * may */
};

struct cl_raft_node_config {
    struct cl_raft_config raft;
    struct cl_raft_env env;
    struct cl_raft_machine machine;
    struct cl_log *log;   /* READY, empty or of this node; stays the caller's. NULL: in memory, lost with the process */
    uint64_t incarnation; /* without a log: random, another one at every start [from env's clocks] */
    uint64_t tick_ns;     /* [1 ms] */
    uint64_t compact_bytes; /* take a snapshot when the log holds so many bytes [half of raft.log_bytes] */
    uint64_t
        snapshot_bytes; /* largest snapshot, sessions included [1 GiB]; with a log, what it has set apart counts too */
    uint32_t max_sessions; /* [1024] at most CL_RAFT_SESSIONS_MOST */
    uint32_t reply_bytes;  /* largest reply [1400]; one is kept a session */
    uint32_t waiting;      /* [4096] commands forwarded, and as many queries, at one time: a power of two */
    uint64_t session_ms;   /* [1 hour] */
    uint32_t batches;      /* [64] of commands on their way to be committed at one time; at most 64. round.c */
    uint32_t replicate;    /* [CL_RAFT_TO_AUTO] */
    uint32_t log_requests; /* [1024] asked of the log and not durable yet, at one time */
    /* For comparing only: a batch goes when it has so many commands, or its first has waited so long, with `batches` on
     * their way at most. 0 commands: the node decides (round.c). */
    uint32_t fixed_commands;
    uint64_t fixed_wait_ns;
    uint32_t stages; /* 1: note when commands reach which stage (cl_raft_node_stages) */
    uint32_t reserved;
};

/* When a command that is being answered reached which stage, on env.now_ns; 0: it did not, or that is not known. */
struct cl_raft_stages {
    uint64_t gone_ns;    /* its batch went to the log and to the others; of one that was forwarded: to the leader */
    uint64_t sent_ns;    /* given to env.send */
    uint64_t durable_ns; /* in this leader's log; without one: gone_ns */
    uint64_t log[2];     /* what the log says of its flush (cl_log_op.stamps) */
    uint64_t others_ns;  /* a majority had it, but for this leader's own log */
    uint64_t agreed_ns;  /* committed. Of a query, as the one before: it was known that this node leads */
    uint64_t index;      /* of its entry; of a query: that it waited for */
    uint32_t node;       /* the last of the others that was needed; 0: none */
    uint8_t read, forwarded, pad[2];
};

/* To whom a node's batches go at once while it leads. */
struct cl_raft_replicate {
    uint32_t asked; /* as configured */
    uint32_t to;    /* CL_RAFT_TO_ALL or CL_RAFT_TO_MAJORITY; asked for AUTO: the better one, as far as is known */
    uint64_t all_ns, majority_ns; /* AUTO: from going to being committed, in the mean; 0: not known */
};

struct cl_raft_node_counters {
    uint64_t frames_in, frames_refused;           /* refused: neither of the core nor of a node, or not for this one */
    uint64_t other_settings, other_settings_node; /* of those refused: for its group settings; the last node that was */
    uint64_t other_voters, other_voters_node;     /* the same: for it began with other voters */
    /* Of those refused: for its node was known in another incarnation, or with another log; the last node that was; not
     * known yet. */
    uint64_t other_incarnation, other_incarnation_node, unknown_incarnation;
    uint64_t commands, queries; /* of own clients and forwarded */
    uint64_t answered, answers_busy, answers_retry, answers_refused;
    uint64_t batches, batches_ahead; /* ahead: of those, that went before the one before was committed */
    uint64_t applied, duplicates;    /* duplicates: answered from the session, not applied again */
    /* forwarded = forward_answers + forward_lost + those that wait; lost: answered CL_RAFT_RETRY here. refused: never
     * sent. */
    uint64_t forwarded, forward_answers, forward_lost, forward_refused;
    uint64_t answers_not_sent; /* to who forwarded, since the frames on their way to it filled the window */
    uint64_t sessions_opened, sessions_closed, sessions_expired;
    uint64_t snapshots, snapshots_put_off, snapshots_failed, log_full;
    uint64_t snapshots_too_large; /* of those that failed */
    uint64_t snapshot_errno;      /* of the last one that failed and was not too large; 0: none has */
    uint64_t replies_refused, replies_too_large,
        queries_failed;  /* what the state machine said no to, or could not answer */
    uint64_t clock_sets; /* entries that set the log's clock */
    /* Not counted: cl_raft_node_clock_ahead_ms as of the last tick; the status' gone_back and contradicts. */
    int64_t clock_ahead_ms;
    uint64_t gone_back_node, contradicting_node;
    uint64_t commands_refused, applies_failed; /* that did not enter the log (check); that changed nothing (atomic) */
};

struct cl_raft_node;

/* Memory for everything. -EINVAL, -ENOMEM with a reason in err. */
CL_API int cl_raft_node_new(const struct cl_raft_node_config *config, struct cl_raft_node **out, char err[256]);
/* The log is not closed; with writes in flight, cl_log_close or cl_log_discard comes first. */
CL_API void cl_raft_node_delete(struct cl_raft_node *node);

/* Whether its log is empty, or its own and written with the settings that it has now: what recovery, which stops the
 * node otherwise, would find first. Before the first poll. -EINVAL with a reason in err. Without a log: 0. */
CL_API int cl_raft_node_check_log(const struct cl_raft_node *node, char err[256]);

/* The log's clock, by the newest command applied. */
CL_API uint64_t cl_raft_node_clock_ms(const struct cl_raft_node *node);
/* By how many ms the log's clock is ahead of this node's wall clock (< 0: behind), as a command that this node stamped
 * now would say. 0: nothing was ever stamped. */
CL_API int64_t cl_raft_node_clock_ahead_ms(const struct cl_raft_node *node);
/* Have the group set the log's clock, by an entry: of the node that leads. Sessions are as old as before; what the
 * state machine keeps by the clock before is its own to mend. -EPERM, -EINVAL (0), or the log's reason. */
CL_API int cl_raft_node_set_clock(struct cl_raft_node *node, uint64_t ms);
CL_API void cl_raft_node_receive(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes);
/* kind: CL_RAFT_APPLY... The answer comes through env.answer, inside this call or a later one. */
CL_API void cl_raft_node_submit(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence,
                                const uint8_t *data, uint32_t bytes, const struct cl_raft_token *token);
CL_API void cl_raft_node_query(struct cl_raft_node *node, const uint8_t *data, uint32_t bytes,
                               const struct cl_raft_token *token);
/* Returns when to call it again at the latest, on env.now_ns. */
CL_API uint64_t cl_raft_node_poll(struct cl_raft_node *node);

CL_API int cl_raft_node_state(const struct cl_raft_node *node);
CL_API const char *cl_raft_node_why(const struct cl_raft_node *node); /* STOPPED: one sentence; else "" */
/* What its log owes it, writes or what it begins with: odd while it does, and another number with each answer. From any
 * thread. */
CL_API uint64_t cl_raft_node_awaits(const struct cl_raft_node *node);
/* When it began to lead, on env.now_ns; 0: it does not lead. */
CL_API uint64_t cl_raft_node_led_ns(const struct cl_raft_node *node);
/* Its incarnation. Whether it knows node `id`, for good if it has a log, and in no other incarnation than this one. */
CL_API uint64_t cl_raft_node_incarnation(const struct cl_raft_node *node);
CL_API int cl_raft_node_knows(const struct cl_raft_node *node, uint32_t id, uint64_t incarnation);
/* The voters that it began with: how many; 0: it joined. Good once it is RUNNING. */
CL_API uint32_t cl_raft_node_first_voters(const struct cl_raft_node *node, uint32_t ids[16]);
/* Of its log's meta blob and of its entries: another one if replicas make something else of the same. Nodes and logs of
 * other versions are refused, but logs of the oldest on that have nothing that this one takes for something else. */
#define CL_RAFT_NODE_VERSION 5
#define CL_RAFT_NODE_VERSION_LEAST 4 /* knows neither CL_RAFT_SEED nor CL_RAFT_CLOCK_SET */
/* Digests of its group settings and of the voters that the group began with (0: it joined, and was not told of them
 * yet). Nodes of which one differs refuse each other. */
CL_API uint64_t cl_raft_node_settings(const struct cl_raft_node *node);
CL_API uint64_t cl_raft_node_first_digest(const struct cl_raft_node *node);
/* The core, for its status, and to change members or transfer leadership; poll afterwards. */
CL_API struct cl_raft *cl_raft_node_core(struct cl_raft_node *node);
/* Inside env.answer and env.passed, of what is answered; zero where nothing is known, or without config.stages. */
CL_API void cl_raft_node_stages(struct cl_raft_node *node, struct cl_raft_stages *out);
CL_API void cl_raft_node_replicate(const struct cl_raft_node *node, struct cl_raft_replicate *out);
/* On any thread. */
CL_API void cl_raft_node_counters(const struct cl_raft_node *node, struct cl_raft_node_counters *out);
CL_API void cl_raft_node_wire(const struct cl_raft_node *node, struct cl_raft_wire_counters *out);
/* The newest snapshot, as it is kept: NULL if there is none. Good until the next poll. */
CL_API const uint8_t *cl_raft_node_snapshot(const struct cl_raft_node *node, uint64_t *index, uint64_t *term,
                                            uint64_t *bytes);
/* Hold the newest snapshot for who reads it piece by piece, though newer ones come; 0: none any more. One at a time. */
CL_API void cl_raft_node_hold(struct cl_raft_node *node, int hold);
/* The one that is held, as above; good as long as it is. */
CL_API const uint8_t *cl_raft_node_held(const struct cl_raft_node *node, uint64_t *index, uint64_t *term,
                                        uint64_t *bytes);
/* Take a snapshot at the next poll, whatever the log holds. */
CL_API void cl_raft_node_compact(struct cl_raft_node *node);
// cffi: end

#endif
