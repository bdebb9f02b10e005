/* Executing commands of RESP ahead of the log: what the node that leads does, on an engine of its own beside the
 * replicated values (resp_machine.h). A port has clients on that engine: ../service/resp.c, or the simulation.
 *
 * What the engine has done goes into the log as units, in its order, and replies are held until the units that they may
 * tell of are committed (../../resp/durable.h). Replies that tell of no new unit, those to reads, are held until a
 * query, asked after them, has found this node's epoch: at that instant, and so when the read was done, no other node
 * executed commands. So whatever a client is told is in the group's log, and nobody is told what is out of date, by
 * lease and without. That the group answers in any order does no harm: `items` are released in theirs.
 *
 *   FOLLOWS  an engine without values, which says who leads
 *   OPENS    this node leads, and has proposed an epoch of its own
 *   MAKES    that was applied: so was all that came before. An engine is made from the values, some at a time
 *   LEADS    it is behind the port
 *
 * An answer that is no good, or another leader, ends LEADS: the engine goes, with what was not committed, and all
 * connections with it; for who waits for a reply the outcome is not known. A leader that stays one opens the next
 * epoch.
 *
 * Transitions are made in raft_ahead_turn alone, never in a call from the port or the node, which would not find its
 * engine again. One thread at a time.
 *
 * Tests: tests/apps/raft/sim/test_resp.py, which shows that mistakes here are found;
 * tests/apps/raft/node/test_ahead.py. */
#ifndef CORELANE_APPS_RAFT_NODE_AHEAD_H
#define CORELANE_APPS_RAFT_NODE_AHEAD_H

#include "resp_machine.h"

#define RAFT_AHEAD_ITEMS 64 /* entries and queries that are not answered */

enum raft_ahead_state { RAFT_AHEAD_FOLLOWS, RAFT_AHEAD_OPENS, RAFT_AHEAD_MAKES, RAFT_AHEAD_LEADS };

struct raft_ahead_config {
    struct cl_raft_node *node;
    struct raft_resp *values;         /* its state machine */
    struct cl_resp_settings settings; /* of engines, but memory_bytes: that is the values' */
    struct cl_log *log;               /* the node's; NULL: none */
    uint32_t entry_bytes;             /* of the node's core */
    uint32_t ipv4, port;              /* where clients are served; host byte order */
    uint64_t kind;                    /* the first word of the tokens that it gives the node */
    void *arg;
    uint64_t (*random)(void *arg);               /* a random word; 0: there is none now */
    uint32_t (*address)(void *arg, uint32_t id); /* IPv4 of another node; 0: not known */
    /* Serve that engine from here on: all connections end. The one before is deleted when this has returned. */
    void (*become)(void *arg, struct cl_resp *r);
};

/* Writer: who calls; readers: anybody (relaxed). */
struct raft_ahead_counters {
    uint64_t opened, lost;   /* epochs of this node: times that it became who executes commands, and ceased to be */
    uint64_t entries, bytes; /* of units */
    uint64_t queries;        /* by which replies were confirmed */
    uint64_t put_off;        /* times that the group took no entry yet */
    uint64_t late;           /* answers of a former epoch */
    uint64_t leads;          /* not counted: 1 while it executes commands */
};

struct raft_ahead {
    struct raft_ahead_config config;
    struct raft_ahead_counters count;
    struct cl_resp *front, *making; /* behind the port; that is being made */
    enum raft_ahead_state state;
    uint64_t epoch;  /* 0: FOLLOWS */
    bool opened;     /* OPENS: it was answered */
    bool lost;       /* something was answered that ends the epoch */
    uint64_t images; /* MAKES: as of when the image was begun */
    uint64_t number; /* of the next entry */
    const uint8_t *at;
    uint64_t left, unit; /* LEADS: units that were taken and not given to the group, and the number of the last */
    struct raft_ahead_item {
        uint64_t unit; /* of the engine: with this, all up to it is confirmed; 0: a piece of more */
        bool query, done;
    } items[RAFT_AHEAD_ITEMS];
    uint64_t first, next; /* items: the oldest, and behind the newest */
    bool submits;         /* inside of a submit, */
    bool refused;         /* which was put off */
    uint64_t now_ns;      /* the fourth word of tokens: as of raft_ahead_give; 0: of what no client waits for */
    uint64_t off_ns;      /* since when entries are put off; 0: they are not */
    uint8_t *entry;
};

/* FOLLOWS, with a first engine, a->front. -errno with a reason in err; delete it all the same. */
int raft_ahead_new(struct raft_ahead *a, const struct raft_ahead_config *config, char err[256]);
/* The port lets go of a->front before. */
void raft_ahead_delete(struct raft_ahead *a);
/* Take up leadership, or let go of it, if it has changed. True: there is more to be done at once. Not in a call from
 * the port or the node. */
bool raft_ahead_turn(struct raft_ahead *a);
/* Give the group what the engine has done: before each poll of the node. True: a turn is to come at once. */
bool raft_ahead_give(struct raft_ahead *a, uint64_t now_ns);
/* Whether the engine has done something, or replied, that was not given to the group. */
bool raft_ahead_has(const struct raft_ahead *a);
/* The node's answer to a token of a->config.kind. */
void raft_ahead_answer(struct raft_ahead *a, const struct cl_raft_token *token, int status, const uint8_t *reply,
                       uint32_t bytes);

#endif
