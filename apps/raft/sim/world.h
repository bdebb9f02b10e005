/* A simulated cluster: nodes, clients and faults on one virtual clock, all from one seed.
 *
 * One thread runs a world; worlds share nothing. A step is one event that happens to somebody: a datagram that arrives,
 * a tick, a write that is done, a wake that a node asked for, a client's turn, a fault. After each step that touched a
 * node its invariants are checked (check.h). The world stops at the first thing that is wrong.
 *
 * A run has three parts: faults and load for as many steps as asked; then everything is mended and the cluster must
 * come to rest with all replicas equal, within a bounded time; then every register is read once more, and the history
 * of all clients must be linearizable.
 *
 * What is where:
 *   swarm.c    what a seed draws: which faults there are and how strong, how the cluster is set up
 *   world.c    the loop, the end of a run
 *   faults.c   crashes, restarts, partitions, stalls, transfers
 *   members.c  changes of membership; nodes that are lost for good, and who comes in their place
 *   client.c   clients with sessions that try again
 *   sim_core.c     a node: the core alone with modelled stable storage (disk.h)
 *   real.c     a node: the real one (../node.h) on the real log on block devices that fail
 *   store.c    its state machine where that is the key-value store (../kv_machine.h)
 *   real_resp.c real_values.c   what it has where clients speak RESP
 *   check.c    the invariants
 *   trace.c    the readable trace, and the digest by which two runs are compared */
#ifndef CORELANE_APPS_RAFT_SIM_WORLD_H
#define CORELANE_APPS_RAFT_SIM_WORLD_H

#include "../core/raft.h"
#include "disk.h"
#include "machine.h"
#include "network.h"
#include "queue.h"
#include "run.h"

#define SIM_SPARES 2 /* nodes beside the first members, that changes of membership may bring in */
#define SIM_CLIENTS 5
_Static_assert(CL_RAFT_SIM_MOST_NODES + SIM_SPARES < SIM_NODES, "ids count from 1");
#define SIM_OPS 4096
#define SIM_TERMS 8192
#define SIM_MS 1000000ull
#define SIM_MOST_HANG_NS (350 * SIM_MS) /* of a disk that takes writes and does nothing */

/* Kinds of events. */
enum sim_kind {
    SIM_DELIVER, /* argument: struct sim_packet, owned by the event */
    SIM_TICK,
    SIM_WRITTEN,
    SIM_HARD_WRITTEN,
    SIM_SNAPSHOT_WRITTEN,
    SIM_INSTALLED,
    SIM_WAKE,    /* a node's own; argument: its number */
    SIM_REQUEST, /* to a node; argument: struct sim_packet */
    SIM_ANSWER,  /* to a client; argument: struct sim_packet */
    SIM_CLIENT,  /* a client's turn: argument is its attempt, or begins something new */
    SIM_FAULT,
    SIM_MEND,
    SIM_RESTART,
    SIM_POWER, /* goes, of a node that was killed and started again; argument: its epoch */
};

/* A node that was stopped goes on with what waited in the order of time, with its timers last, or with requests
 * first. */
enum sim_stall { SIM_BY_TIME, SIM_TIMERS_LAST, SIM_REQUESTS_FIRST, SIM_STALLS };

/* Streams of random numbers, one for each concern. */
enum sim_concern {
    SIM_R_SWARM,
    SIM_R_NET,
    SIM_R_DISK,
    SIM_R_FAULT,
    SIM_R_CLIENT,
    SIM_R_CORE,
    SIM_R_CLOCK,
    SIM_STREAMS
};

/* Something on its way. Copies of a datagram share it. */
struct sim_packet {
    uint32_t refs, bytes;
    uint8_t data[];
};

/* RESP: a request is a command; or what a swap begins with, WATCH and GET; or what it ends with, MULTI, SET and
 * EXEC. */
enum sim_part { SIM_WHOLE, SIM_LOOK, SIM_SWAP };

/* A client's request, and the answer to it. */
struct sim_request {
    uint32_t client;
    uint32_t by_log; /* a GET that goes through the log as a command */
    uint32_t open;   /* 1: a session is asked for; the command means nothing */
    uint32_t opens;  /* RESP: 1: a connection; else it is on the one that its session has opened */
    uint32_t part;   /* RESP: enum sim_part */
    uint64_t text;   /* RESP: what is written */
    uint64_t number; /* of the session, as the real node gave it */
    struct sim_command command;
};
#define SIM_DONE 0
#define SIM_ELSEWHERE 1 /* not the leader, or it cannot now: try another */
#define SIM_EXPIRED 2   /* there is no such session any more */
#define SIM_ENDED 3     /* RESP: the connection has; what was not answered may have been done */
struct sim_reply {
    uint32_t client, session, sequence;
    uint32_t leader; /* a hint; 0: unknown */
    uint8_t status;
    struct sim_outcome outcome;
};

/* What a seed drew. Rates are per million; 0: this fault is off. */
struct sim_swarm {
    struct sim_link link;
    uint64_t tick_ns, write_ns, write_spread_ns;
    uint64_t fault_gap_ns; /* mean time between faults */
    uint32_t crash, crash_many, crash_point_ppm, vote_crash_ppm, restart_ms;
    uint32_t partition, one_way, cut_link, stall, transfer, members, slow_disk, fail_disk, rot, depose, hang, forget,
        wall, outrun; /* weights among faults */
    uint32_t drift_ppm;
    uint32_t slow_node; /* its clock is the slowest and all others the fastest that there may be; 0: clocks are drawn */
    uint32_t clients, think_ns, by_log_ppm, get_ppm, give_up;
    uint32_t readers;     /* every second client only reads, and from leaders that may be none any more */
    uint32_t channel;     /* NODE: nodes talk over ../channel.h */
    uint32_t logless;     /* NODE: nobody has a log, so who crashes must not come back */
    uint32_t remade_ppm;  /* NODE: of crashes that take the log, so that it is made again */
    uint32_t kill_ppm;    /* NODE: of crashes that are of the process alone: its disk keeps its power ... */
    uint32_t power_ppm;   /* ... and of those that the power goes soon after it was started again */
    uint32_t other_peers; /* NODE: who is started again is told of other first members */
    uint32_t loyal;       /* all clients stay with a node that was left alone: its log grows apart */
    uint32_t prefix_ppm;  /* CORE: messages that bring fewer entries than they could */
    uint64_t session_ms;  /* NODE */
    uint32_t patience_ns; /* until a request is tried again, and up to twice that */
    uint64_t client_loss_ppm;
    uint32_t snapshot_entries; /* one after so many applied; 0: never */
    uint32_t lease_reads;
    uint32_t torn, disk_error_ppm, no_space_ppm, disk_size; /* the real node's disks */
    uint32_t max_sessions;                                  /* and its sessions */
    uint32_t log_requests;                                  /* and what it asks of its log at one time */
    uint32_t batches;                                       /* and how many of its batches are on their way */
    uint32_t replicate; /* CL_RAFT_TO_ALL, ...; AUTO: CORE: the core's switch changes again and again */
    struct cl_raft_config config;
};

struct sim_world;
struct sim_node;

/* A kind of node. */
struct sim_body {
    int (*make)(struct sim_world *w, struct sim_node *n); /* once a world */
    void (*unmake)(struct sim_world *w, struct sim_node *n);
    void (*reset)(struct sim_world *w, struct sim_node *n);              /* a new run: nothing durable */
    int (*start)(struct sim_world *w, struct sim_node *n);               /* from what is durable */
    void (*crash)(struct sim_world *w, struct sim_node *n, bool killed); /* killed: its disk keeps its power */
    void (*event)(struct sim_world *w, struct sim_node *n, const struct sim_event *e);
    struct cl_raft *(*core)(struct sim_node *n); /* NULL: it is not up, or still reads its disk */
    int (*change_members)(struct sim_world *w, struct sim_node *n, const struct cl_raft_members *m);
    int (*transfer)(struct sim_world *w, struct sim_node *n, uint32_t to);
    /* The next write, or those under way, fail: the replica is to fall silent. */
    void (*fail_disk)(struct sim_world *w, struct sim_node *n);
    /* The node's disk is as it was drawn to be again, or whole for good once the world is calm. NULL: nothing to do. */
    void (*mend_disk)(struct sim_world *w, struct sim_node *n);
    /* Damage what the disk of a node that is down holds. False: nothing was damaged. */
    bool (*rot)(struct sim_world *w, struct sim_node *n);
    /* The log of a node that is down is gone: it is given an empty one when it starts. NULL: never asked for. */
    void (*lose_log)(struct sim_world *w, struct sim_node *n);
    /* Whether an entry is durable at this node. NULL: the world cannot check. */
    bool (*holds)(struct sim_node *n, uint64_t index, uint64_t term);
    /* Whether it knows another one in its present incarnation. NULL: nobody asks. */
    bool (*knows)(struct sim_node *n, const struct sim_node *other);
    /* How many requests it has taken and not answered. NULL: nobody asks. */
    uint64_t (*owes)(struct sim_node *n);
    bool wakes_itself; /* no ticks are to be scheduled for it */
};

extern const struct sim_body sim_core_body, sim_real;

/* What the checks know of a node. */
struct sim_watch {
    uint64_t term, commit, last, applied, members_index;
    uint32_t role, leader;
    uint64_t yielded;        /* how often it did, in this incarnation */
    uint64_t tick_local_ns;  /* of its clock, when `ticks` became so many */
    uint64_t durable, ticks; /* as of the last check */
    uint32_t waited;         /* ticks that it ran in since `durable` became more, or all was, or it began to lead */
    bool waits;              /* it leads and has something that is not durable */
    bool full;               /* its log has little room left: a snapshot is due */
    uint32_t *terms;         /* [SIM_ENTRIES]: of its log's entries, by index, as of the last check */
};

struct sim_node {
    uint32_t id, slot; /* id = slot + 1 */
    bool up;
    bool killed;     /* when it went down, the power of its disk stayed */
    bool failed;     /* its disk said no: it is silent until it is restarted */
    bool doomed;     /* its disk was damaged, and it has not started since; or it came back without its log */
    uint32_t remade; /* so many logs it had before this one */
    bool lost;       /* it said so: it stays away for good */
    bool voted;      /* in this step, or asked for votes, or (NODE) took a snapshot */
    struct cl_raft_members members;   /* as it knew them when it went down */
    uint64_t promised, promised_term; /* the newest entry that it acknowledged and has not truncated since */
    uint32_t epoch;
    uint64_t wakes; /* asked for so far; the last one asked for is the one that counts */
    uint64_t stalled_until_ns;
    uint8_t stall_order;                             /* which of what waited comes first: enum sim_stall */
    int64_t wall_ms;                                 /* NODE: its wall clock is so far from its other one */
    uint64_t slow_disk_until_ns, hung_disk_until_ns; /* hung: nothing that it is asked for is done before */
    struct sim_clock clock;
    uint64_t ticks_done; /* local ticks accounted for in this incarnation */
    uint64_t started_local_ns;
    struct sim_watch watch;
    void *core, *real; /* the bodies' own */
};

struct sim_client {
    uint32_t session, sequence, attempt, attempts, target;
    uint64_t op;     /* of the history; SIM_OPS: idle */
    uint64_t number; /* of the session, as the real node gave it; 0: none yet */
    bool opening;
    uint32_t linked; /* RESP: to whom its session has a connection, for all that it knows: a slot + 1; 0: to nobody */
    bool told_no;    /* RESP: what it has asked for was not done */
    struct sim_request request;
};

/* An entry that was committed. */
struct sim_committed {
    uint64_t digest;        /* 0: nobody's log showed it, it came with a snapshot */
    uint32_t term, by_term; /* by_term: of the node that saw it committed first */
};

/* An entry that was in anybody's log, by index and term. */
struct sim_seen {
    uint64_t digest;
    uint32_t index, term, before, run; /* term of the entry before; run: of which run this is */
};

struct sim_world {
    struct cl_raft_sim_options options;
    struct cl_raft_sim_result *result;
    const struct sim_body *body;
    struct sim_swarm swarm;
    struct cl_random random[SIM_STREAMS];
    struct sim_queue queue;
    struct sim_net net;
    struct sim_node nodes[SIM_NODES];
    uint32_t n_nodes;
    uint64_t stamp; /* orders the history */
    uint32_t run;
    bool calm;                      /* no more faults */
    uint64_t all_slow_ns, led_term; /* slow.c: a write takes so much longer; a leader of a later term is awaited */
    uint32_t spared;                /* whose disks are as fast as ever meanwhile; bits of ids */
    bool stopped;
    /* Clients. */
    struct sim_client clients[SIM_CLIENTS];
    uint32_t sessions, values;
    struct cl_history_op *ops; /* [SIM_OPS] */
    uint64_t n_ops;
    struct cl_history *history;
    /* What the checks know of the whole. */
    uint32_t *leaders; /* [SIM_TERMS]: node + 1 */
    uint32_t terms_used;
    uint8_t (*votes)[SIM_NODES];     /* [SIM_TERMS][voter]: whom it voted for */
    struct sim_committed *committed; /* [SIM_ENTRIES] */
    uint64_t n_committed;            /* the highest index */
    uint64_t *machines;              /* [SIM_ENTRIES]: digest of the state machine after each entry */
    uint64_t n_applied;              /* the highest index that anybody applied */
    uint64_t clock_ms;               /* the log's, as first applied */
    struct cl_raft_members committed_members;
    struct sim_seen *seen; /* SIM_SEEN slots, open addressing */
    uint32_t n_seen;
    /* Trace. */
    uint64_t hash;
    char *text;
    uint64_t text_bytes, text_room;
};

#define SIM_SEEN 32768 /* power of two */

/* slow.c. Begin: how long it may take until sim_led_again, or 0 if nothing was begun. */
uint64_t sim_slow_all(struct sim_world *w);
bool sim_led_again(struct sim_world *w);
/* How much longer a write of this node takes. */
uint64_t sim_slow_ns(const struct sim_world *w, const struct sim_node *n);
void sim_slow_end(struct sim_world *w);

/* world.c */
void sim_fail(struct sim_world *w, const char *format, ...) CL_PRINTF(2, 3);
void sim_at(struct sim_world *w, uint64_t at_ns, enum sim_kind kind, uint32_t node, uint64_t argument);
struct sim_packet *sim_packet(struct sim_world *w, uint32_t bytes);
void sim_packet_drop(struct sim_packet *p);
/* Put a node's datagram on the network: takes the packet over. */
void sim_send(struct sim_world *w, uint32_t from, uint32_t to, struct sim_packet *packet);
int sim_start(struct sim_world *w, struct sim_node *n);
/* The configuration that a node knows, for the time in which its core cannot be asked. */
void sim_remember_members(struct sim_world *w, struct sim_node *n);
/* With its disk, or the process alone. False: the world cannot spare it (members.c). */
bool sim_crash(struct sim_world *w, struct sim_node *n);
/* A node that went up has read what is durable. */
void sim_started(struct sim_world *w, struct sim_node *n);
/* The node that leads the highest term; NULL: none does. */
struct sim_node *sim_leader(struct sim_world *w);
static inline uint64_t sim_local_ns(struct sim_world *w, struct sim_node *n)
{
    return sim_clock_read(&n->clock, w->queue.now_ns);
}

/* swarm.c */
void sim_swarm_draw(struct sim_world *w);

/* faults.c */
void sim_faults_begin(struct sim_world *w);
/* The next one. id: it is the leader `id` that is cut off now, and node `restart`, if not 0, starts again; 0: one is
 * drawn. */
void sim_fault(struct sim_world *w, uint32_t id, uint32_t restart);
/* Start a node again after a while. */
void sim_restart_later(struct sim_world *w, struct sim_node *n, uint64_t most_ns);
void sim_mend_network(struct sim_world *w);
void sim_calm(struct sim_world *w);

/* members.c */
void sim_change_members(struct sim_world *w);
/* As an operator who means it: what the leader refuses, since it does not hear from a majority of the new voters, is
 * forced. */
int sim_order_members(struct sim_world *w, struct cl_raft *core, const struct cl_raft_members *m);
void sim_rot(struct sim_world *w, struct sim_node *n);
/* Whether what is promised outlasts amnesia of this node. */
bool sim_may_forget(struct sim_world *w, struct sim_node *n);
/* A node found its disk damaged when it started, or was told that it was there before. */
void sim_lost(struct sim_world *w, struct sim_node *n, const char *why);

/* client.c */
void sim_clients_begin(struct sim_world *w);
void sim_client_turn(struct sim_world *w, uint32_t client, uint64_t attempt);
void sim_client_answer(struct sim_world *w, uint32_t client, const struct sim_reply *reply);
/* A node answers. */
void sim_answer(struct sim_world *w, const struct sim_reply *reply);
/* Clients that stay with a node which is left alone ask this one next. */
void sim_clients_stay(struct sim_world *w, uint32_t slot);
bool sim_clients_idle(const struct sim_world *w);
/* Send its request, again or not; it is its turn when its patience is over. */
void sim_client_send(struct sim_world *w, uint32_t client);
/* To be asked for its turn after a while. */
void sim_client_wait(struct sim_world *w, uint32_t client);
/* The outcome of its operation stays unknown. */
void sim_client_give_up(struct sim_world *w, uint32_t client);
/* It is known. */
void sim_client_complete(struct sim_world *w, uint32_t client, const struct sim_outcome *outcome);
/* Another node for it to ask, unless it stays with the one that it has. */
void sim_client_turn_away(struct sim_world *w, uint32_t client);
/* Let an idle client read a register. */
void sim_clients_read(struct sim_world *w, uint8_t key);

/* resp_client.c: the same where clients speak RESP. */
static inline bool sim_speaks_resp(const struct sim_world *w)
{
    return w->options.mode == CL_RAFT_SIM_RESP;
}
/* A new operation of a client, which was drawn: what is asked first. */
void sim_resp_begin(struct sim_world *w, struct sim_client *c);
/* Before a request leaves: on which connection. */
void sim_resp_link(struct sim_world *w, struct sim_client *c);
/* An operation's patience is over. */
void sim_resp_turn(struct sim_world *w, uint32_t client);
void sim_resp_answer(struct sim_world *w, uint32_t client, const struct sim_reply *reply);

/* check.c */
/* Whether the nodes whose bits are set (by id) decide in a configuration. */
bool sim_quorum(const struct cl_raft_members *m, uint32_t mask);
void sim_check_begin(struct sim_world *w);
void sim_check_start(struct sim_world *w, struct sim_node *n);
void sim_check_node(struct sim_world *w, struct sim_node *n);
void sim_check_vote(struct sim_world *w, uint32_t voter, uint32_t candidate, uint64_t term);
/* Around a read that a node is asked for: how many it has answered by its lease, and whether it may have answered this
 * one. */
uint64_t sim_lease_reads(struct sim_world *w, struct sim_node *n);
void sim_check_lease_reads(struct sim_world *w, struct sim_node *n, uint64_t before);
/* The state machine of a node, right after it applied an entry. */
void sim_check_applied(struct sim_world *w, struct sim_node *n, uint64_t index, uint64_t machine_digest);
/* NODE: the log's clock as of an entry that is applied. */
void sim_check_clock(struct sim_world *w, struct sim_node *n, uint64_t clock_ms);
/* Node `n` acknowledges its log up to `index`. */
void sim_check_promise(struct sim_world *w, struct sim_node *n, uint64_t index);
/* At rest: every log compared in whole. */
void sim_check_end(struct sim_world *w);
bool sim_at_rest(struct sim_world *w);

/* trace.c */
void sim_note(struct sim_world *w, uint64_t word);
void sim_say(struct sim_world *w, const char *format, ...) CL_PRINTF(2, 3);
void sim_trace_message(struct sim_world *w, uint32_t at, const struct cl_raft_msg *m);

#endif
