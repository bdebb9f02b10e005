/* A node that does not lead passes on what its clients ask (node_frame.h), and gets the answer back. */
#include "node_internal.h"
#include "bytes.h"
#include "node_frame.h"

static void send_frame(struct cl_raft_node *node, const struct node_frame *frame)
{
    uint32_t bytes = node_frame_encode(node->config.raft.cluster, frame, node->out);
    node->config.env.send(node->config.env.arg, frame->to, node->out, bytes);
}

/* Pass on to the leader what is not for this node to do. False: this node leads, or it has to be refused here. */
bool node_forward(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                  uint32_t bytes, const struct node_asker *asker)
{
    uint32_t leader = cl_raft_leader(node->raft);
    if (!leader || leader == node->config.raft.id || asker->from)
        return false;
    uint64_t ticket = node->ticket_next++;
    struct node_forward *f = &node->forwards[ticket & (node->config.waiting - 1)];
    if (f->ticket)
        cl_count(&node->count.forward_lost, 1);
    *f = (struct node_forward){ticket, asker->token};
    struct node_frame frame = {.kind = kind,
                               .from = node->config.raft.id,
                               .to = leader,
                               .ticket = ticket,
                               .session = session,
                               .sequence = sequence,
                               .data = data,
                               .bytes = bytes};
    send_frame(node, &frame);
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
    send_frame(node, &frame);
}

static void on_answer(struct cl_raft_node *node, const struct node_frame *frame)
{
    struct node_forward *f = &node->forwards[frame->ticket & (node->config.waiting - 1)];
    if (!frame->ticket || f->ticket != frame->ticket)
        return; /* answered already, or given up */
    f->ticket = 0;
    cl_count(&node->count.forward_answers, 1);
    cl_count(&node->count.answered, 1);
    node->config.env.answer(node->config.env.arg, &f->token, frame->kind, frame->data, frame->bytes);
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
