/* A node that does not lead passes on what its clients ask (frame.h), and gets the answer back. */
#include "internal.h"
#include "../core/bytes.h"
#include "frame.h"

/* Pass on to the leader what is not for this node to do. False: this node leads, or it has to be refused here. */
bool node_forward(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                  uint32_t bytes, const struct node_requester *requester)
{
    uint32_t leader = cl_raft_leader(node->raft);
    if (!leader || leader == node->config.raft.id || requester->from)
        return false;
    node_forwards_end(node); /* those of an older leader */
    uint64_t ticket = node->ticket_next;
    struct node_forward *f = node_forward_at(node, ticket);
    struct node_frame frame = {.kind = kind,
                               .from = node->config.raft.id,
                               .to = leader,
                               .ticket = ticket,
                               .session = session,
                               .sequence = sequence,
                               .data = data,
                               .bytes = bytes};
    if (f->ticket || !node_send_frame(node, &frame)) {
        cl_count(&node->count.forward_refused, 1);
        node_answer(node, requester, CL_RAFT_BUSY, NULL, 0);
        return true;
    }
    node->ticket_next += node->ticket_next == UINT64_MAX ? 2 : 1; /* 0 is none */
    *f = (struct node_forward){ticket, node->config.env.now_ns(node->config.env.arg), requester->token};
    cl_count(&node->count.forwarded, 1);
    return true;
}

void node_on_answer(struct cl_raft_node *node, const struct node_frame *frame)
{
    struct node_forward *f = node_forward_at(node, frame->ticket);
    if (frame->ticket && f->ticket == frame->ticket) /* else it was ended here */
        node_end_forward(node, f, &node->count.forward_answers, frame->kind, frame->data, frame->bytes);
}
