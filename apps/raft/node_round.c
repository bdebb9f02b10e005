/* When a leader's next batch of commands goes (raft.h: cl_raft_let_go). To the disk and to the others a batch costs about the same
 * whether it holds one command or a hundred, so one is on its way at a time and what comes meanwhile gathers.
 *
 * A command that comes alone goes at once. But when a batch of several is committed, or others have come meanwhile, clients are
 * about to hear of it and to send their next commands: those are waited for until as many have come as were answered, an eighth
 * of the time that the batch took at most. Without that, clients that wait for their answers fall into two groups that take
 * turns, and batches have half the size. */
#include "node_internal.h"

#define WAIT_PART 8

/* The batch that was out is committed, or it has been out for a tick. */
static void round_ended(struct cl_raft_node *node, uint64_t gathered, uint64_t now)
{
    struct node_round *b = &node->round;
    b->out = false;
    b->wait_for = gathered + b->entries;
    uint64_t wait = cl_min((now - b->begun_ns) / WAIT_PART, node->config.tick_ns);
    b->wait_until_ns = b->wait_for > 1 ? now + wait : 0;
}

void node_round(struct cl_raft_node *node)
{
    struct node_round *b = &node->round;
    uint64_t gathered;
    bool full = cl_raft_gathered(node->raft, &gathered);
    if (full || (!b->out && !gathered && !b->wait_until_ns))
        return;
    uint64_t now = node->config.env.now_ns(node->config.env.arg);
    if (b->out)
        round_ended(node, gathered, now);
    if (b->wait_until_ns && gathered < b->wait_for && now < b->wait_until_ns)
        return;
    b->wait_until_ns = 0;
    if (!gathered)
        return;
    cl_raft_let_go(node->raft);
    *b = (struct node_round){.out = true, .begun_ns = now, .entries = gathered};
}
