/* Answers to requesters: clients of this node, and nodes that passed on requests of theirs. All of them get one, also
 * when this node ceases to lead, or stops. */
#include "internal.h"
#include "frame.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WAIT_ELECTIONS 20 /* election timeouts: by then a leader has answered, or has lost its place */

bool node_send_frame(struct cl_raft_node *node, const struct node_frame *frame)
{
    uint32_t bytes = node_frame_encode(node->config.raft.cluster, frame, node->out);
    return node->config.env.send(node->config.env.arg, frame->to, node->out, bytes, true);
}

static void send_answer(struct cl_raft_node *node, const struct node_requester *requester, int status,
                        const uint8_t *reply, uint32_t bytes)
{
    struct node_frame frame = {.answer = true,
                               .kind = status,
                               .from = node->config.raft.id,
                               .to = requester->from,
                               .ticket = requester->ticket,
                               .session = cl_raft_leader(node->raft),
                               .data = reply,
                               .bytes = bytes};
    if (!node_send_frame(node, &frame))
        cl_count(&node->count.answers_not_sent, 1); /* its node says "retry" when it has waited for long enough */
}

void node_answer(struct cl_raft_node *node, const struct node_requester *requester, int status, const uint8_t *reply,
                 uint32_t bytes)
{
    cl_count(&node->count.answered, 1);
    if (status == CL_RAFT_BUSY)
        cl_count(&node->count.answers_busy, 1);
    else if (status == CL_RAFT_RETRY)
        cl_count(&node->count.answers_retry, 1);
    else if (status != CL_RAFT_OK)
        cl_count(&node->count.answers_refused, 1);
    if (requester->from) {
        if (node->stages.on && node->config.env.passed)
            node->config.env.passed(node->config.env.arg, requester->token.words[0]);
        send_answer(node, requester, status, reply, bytes);
    } else {
        node->config.env.answer(node->config.env.arg, &requester->token, status, reply, bytes);
    }
}

void node_end_forward(struct cl_raft_node *node, struct node_forward *f, uint64_t *counter, int status,
                      const uint8_t *reply, uint32_t bytes)
{
    struct node_requester requester = {.token = f->token};
    f->ticket = 0;
    cl_count(counter, 1);
    node->stages.answers = NODE_ANSWERS_FORWARD;
    node->stages.index = 0;
    node->stages.asked_ns = f->at_ns;
    node->stages.known_ns = 0;
    node_answer(node, &requester, status, reply, bytes);
    node->stages.answers = NODE_ANSWERS_OTHER;
}

/* A new leader or term, or a stop, ends all: the old leader may have done them or not, and its word may never come.
 * Where no leader is known the old one may come back; time ends what waits too long. */
void node_forwards_end(struct cl_raft_node *node)
{
    uint32_t leader = cl_raft_leader(node->raft);
    uint64_t term = cl_raft_term(node->raft);
    bool all = node->state == CL_RAFT_STOPPED;
    if (leader && (leader != node->forward_leader || term != node->forward_term)) {
        node->forward_leader = leader;
        node->forward_term = term;
        all = true;
    }
    uint64_t wait_ns = (uint64_t)WAIT_ELECTIONS * node->config.raft.election_ticks * node->config.tick_ns;
    for (; node->ticket_oldest != node->ticket_next; node->ticket_oldest++) {
        struct node_forward *f = node_forward_at(node, node->ticket_oldest);
        if (!f->ticket || f->ticket != node->ticket_oldest)
            continue; /* answered already */
        if (!all && node->now_ns < f->at_ns + wait_ns)
            break;
        node_end_forward(node, f, &node->count.forward_lost, CL_RAFT_RETRY, NULL, 0);
    }
}

/* What was proposed here may or may not be committed by others. So reads that wait for that are asked again; of one
 * that stops, all. */
void node_lost_leadership(struct cl_raft_node *node)
{
    node->round = (struct node_round){0};
    for (uint64_t i = node->applied + 1; i <= node->pending_last; i++) {
        struct node_pending *p = node_pending_at(node, i);
        if (p->index == i) {
            p->index = 0;
            node_answer(node, &p->requester, CL_RAFT_RETRY, NULL, 0);
        }
    }
    for (uint64_t i = node->query_oldest; i < node->query_next; i++) {
        struct node_query *q = node_query_at(node, i);
        if (q->context != i || (node->state != CL_RAFT_STOPPED && q->clock <= node->applied))
            continue;
        q->context = 0;
        node_answer(node, &q->requester, CL_RAFT_RETRY, NULL, 0);
    }
    node->clock_index = 0;
}

void node_stop(struct cl_raft_node *node, const char *why, ...)
{
    if (node->state == CL_RAFT_STOPPED)
        return;
    va_list args;
    va_start(args, why);
    vsnprintf(node->why, sizeof(node->why), why, args);
    va_end(args);
    cl_store_release(&node->state, CL_RAFT_STOPPED); /* after `why`: another thread may ask for both */
    cl_raft_fail(node->raft);
    node_lost_leadership(node);
    node_forwards_end(node);
}

const char *node_machine_why(const struct cl_raft_node *node, int rc)
{
    const struct cl_raft_machine *m = &node->config.machine;
    const char *why = m->why ? m->why(m->arg) : NULL;
    return why && *why ? why : strerror(-rc);
}
