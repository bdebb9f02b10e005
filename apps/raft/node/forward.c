/* A node that does not lead passes on what its clients ask (frame.h), and gets the answer back. */
#include "internal.h"
#include "../core/bytes.h"
#include "frame.h"

#define WAIT_ELECTIONS 20 /* election timeouts: by then a leader has answered, or has lost its place */

static bool send_frame(struct cl_raft_node *node, const struct node_frame *frame)
{
    uint32_t bytes = node_frame_encode(node->config.raft.cluster, frame, node->out);
    return node->config.env.send(node->config.env.arg, frame->to, node->out, bytes, true);
}

static struct node_forward *forward_at(struct cl_raft_node *node, uint64_t ticket)
{
    return &node->forwards[ticket & (node->config.waiting - 1)];
}

static void end_forward(struct cl_raft_node *node, struct node_forward *f, uint64_t *counter, int status,
                        const uint8_t *reply, uint32_t bytes)
{
    struct node_asker asker = {.token = f->token};
    f->ticket = 0;
    cl_count(counter, 1);
    node_answer(node, &asker, status, reply, bytes);
}

/* A new leader or term, or a stop, ends all: the old leader may have done them or not, and its word may never come. Where no
 * leader is known the old one may come back; time ends what waits too long. */
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
        struct node_forward *f = forward_at(node, node->ticket_oldest);
        if (!f->ticket || f->ticket != node->ticket_oldest)
            continue; /* answered already */
        if (!all && node->now_ns < f->at_ns + wait_ns)
            break;
        end_forward(node, f, &node->count.forward_lost, CL_RAFT_RETRY, NULL, 0);
    }
}

/* Pass on to the leader what is not for this node to do. False: this node leads, or it has to be refused here. */
bool node_forward(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                  uint32_t bytes, const struct node_asker *asker)
{
    uint32_t leader = cl_raft_leader(node->raft);
    if (!leader || leader == node->config.raft.id || asker->from)
        return false;
    node_forwards_end(node); /* those of an older leader */
    uint64_t ticket = node->ticket_next;
    struct node_forward *f = forward_at(node, ticket);
    struct node_frame frame = {.kind = kind,
                               .from = node->config.raft.id,
                               .to = leader,
                               .ticket = ticket,
                               .session = session,
                               .sequence = sequence,
                               .data = data,
                               .bytes = bytes};
    if (f->ticket || !send_frame(node, &frame)) {
        cl_count(&node->count.forward_refused, 1);
        node_answer(node, asker, CL_RAFT_BUSY, NULL, 0);
        return true;
    }
    node->ticket_next += node->ticket_next == UINT64_MAX ? 2 : 1; /* 0 is none */
    *f = (struct node_forward){ticket, node->config.env.now_ns(node->config.env.arg), asker->token};
    cl_count(&node->count.forwarded, 1);
    return true;
}

void node_send_answer(struct cl_raft_node *node, const struct node_asker *asker, int status, const uint8_t *reply,
                      uint32_t bytes)
{
    struct node_frame frame = {.answer = true,
                               .kind = status,
                               .from = node->config.raft.id,
                               .to = asker->from,
                               .ticket = asker->ticket,
                               .session = cl_raft_leader(node->raft),
                               .data = reply,
                               .bytes = bytes};
    if (!send_frame(node, &frame))
        cl_count(&node->count.answers_not_sent, 1); /* its node says "retry" when it has waited for long enough */
}

static void on_answer(struct cl_raft_node *node, const struct node_frame *frame)
{
    struct node_forward *f = forward_at(node, frame->ticket);
    if (frame->ticket && f->ticket == frame->ticket) /* else it was ended here */
        end_forward(node, f, &node->count.forward_answers, frame->kind, frame->data, frame->bytes);
}

bool node_frame(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes)
{
    struct node_frame frame;
    if (!node_frame_is(data, bytes))
        return false;
    bool good = node_frame_decode(node->config.raft.cluster, data, bytes, &frame) && frame.from &&
                frame.to == node->config.raft.id && (frame.answer || frame.kind <= NODE_FRAME_QUERY);
    if (!good) {
        cl_count(&node->count.frames_refused, 1);
        return true;
    }
    struct node_asker asker = {.from = frame.from, .ticket = frame.ticket};
    if (frame.answer) {
        on_answer(node, &frame);
    } else if (frame.kind == NODE_FRAME_QUERY) {
        cl_count(&node->count.queries, 1);
        node_ask(node, frame.data, frame.bytes, &asker);
    } else {
        cl_count(&node->count.commands, 1);
        node_submit(node, frame.kind, frame.session, frame.sequence, frame.data, frame.bytes, &asker);
    }
    return true;
}
