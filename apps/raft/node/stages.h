/* When the commands of this leader reached which stage (cl_raft_node_stages), for who traces them.
 *
 * Stages are reached in the order of entries, many at once: a mark says up to which entry, and when. Each kind of marks
 * is a ring. Looked up by the entry that is answered, whose order is the same, so what lies before it goes. If nobody
 * looks, or more batches are under way than there is room for, the oldest go: an entry then has the time of the next
 * mark that is there, which is a little late.
 *
 * Costs a stamp where a batch is sent, and one where the disk has done something; the others are there anyway. */
#ifndef CORELANE_APPS_RAFT_NODE_STAGES_H
#define CORELANE_APPS_RAFT_NODE_STAGES_H

#include <corelane/runtime/base.h>

#define NODE_MARKS 128u

struct cl_raft_node;

struct node_mark {
    uint64_t last, ns; /* entries up to `last`, then; 0: not known yet */
    uint64_t log[2];   /* durable: the log's stamps (cl_log_op.stamps) */
    uint32_t node;     /* others, agreed: who said so; 0: this node */
};

struct node_marks {
    struct node_mark of[NODE_MARKS];
    uint64_t head, tail;
};

/* What is being answered. */
enum node_answered { NODE_ANSWERS_OTHER, NODE_ANSWERS_COMMAND, NODE_ANSWERS_READ, NODE_ANSWERS_FORWARD };

struct node_stages {
    bool on;
    struct node_marks gone, sent, durable, others, agreed;
    enum node_answered answers; /* now; and of that: */
    uint64_t index;             /* its entry, or what it waited for */
    uint64_t asked_ns, known_ns;
};

/* Of a leader; else, and without `on`, they do nothing. */
void node_stages_gone(struct cl_raft_node *node, uint64_t last, uint64_t ns);
/* A message with entries up to `last` is given to the network. Once for several: node_stages_sent. */
void node_stages_sent(struct cl_raft_node *node, uint64_t last);
/* The log has acknowledged an entry, whose flush has these stamps. Then node_stages_pumped is to come. */
void node_stages_durable(struct cl_raft_node *node, uint64_t index, const uint64_t log[2]);
void node_stages_pumped(struct cl_raft_node *node);
/* The core has handed out what is committed: without a disk, in a group of one, nothing else tells. */
void node_stages_agreed(struct cl_raft_node *node);
/* Another node's message was taken. */
void node_stages_heard(struct cl_raft_node *node, uint32_t from);
/* Leadership has begun or ended. */
void node_stages_forget(struct cl_raft_node *node);

#endif
