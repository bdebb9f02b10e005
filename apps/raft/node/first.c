/* The voters that a group began with. They are decided once: a node whose log is empty writes down those of its
 * configuration before it says a word to anybody, and from then on takes them from its log. If they came from each
 * start anew, a restart with another list would change who votes, without the others: two majorities without a node in
 * common.
 *
 * A node that joins begins with none, and learns from the log or a snapshot who belongs to the group.
 *
 * A digest of them, in the order of their ids, goes with messages, so that nodes that began with other voters refuse
 * each other. Who joins has none (0) and is let in; it keeps that of the first leader that it follows. */
#include "internal.h"
#include "../core/bytes.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static uint64_t digest_of(const struct cl_raft_members *m)
{
    uint32_t ids[CL_RAFT_MAX_NODES];
    uint64_t digest = 0;
    for (uint32_t i = 0; i < m->n_voters; i++) {
        uint32_t at = i;
        for (; at && ids[at - 1] > m->voters[i]; at--)
            ids[at] = ids[at - 1];
        ids[at] = m->voters[i];
    }
    for (uint32_t i = 0; i < m->n_voters; i++)
        digest = node_digest(digest, ids[i]);
    return m->n_voters ? digest | 1 : 0;
}

void node_first_set(struct cl_raft_node *node, uint64_t digest)
{
    node->config.raft.first_voters = digest;
    cl_raft_set_first_voters(node->raft, digest);
}

int node_first_new(struct cl_raft_node *node, char err[256])
{
    struct cl_raft_members *m = &node->config.raft.members;
    if (m->n_outgoing || m->n_learners) {
        snprintf(err, 256, "the members that a group begins with are voters: add learners to it later");
        return -EINVAL;
    }
    node_first_set(node, digest_of(m));
    return 0;
}

void node_first_put(const struct cl_raft_node *node, uint8_t out[NODE_FIRST_BYTES])
{
    const struct cl_raft_config *c = &node->config.raft;
    memset(out, 0, NODE_FIRST_BYTES);
    put64(out, c->first_voters);
    put32(out + 8, c->members.n_voters);
    for (uint32_t i = 0; i < c->members.n_voters; i++)
        put32(out + 12 + 4 * i, c->members.voters[i]);
}

bool node_first_get(struct cl_raft_node *node, const uint8_t in[NODE_FIRST_BYTES])
{
    struct cl_raft_members m = {.n_voters = get32(in + 8)};
    if (m.n_voters > CL_RAFT_MAX_NODES)
        return false;
    for (uint32_t i = 0; i < m.n_voters; i++)
        m.voters[i] = get32(in + 12 + 4 * i);
    if (m.n_voters && !(get64(in) & 1))
        return false; /* of a group that was made of another one's state the digest is another one
                       * (service/recover.py) */
    node->config.raft.members = m;
    node_first_set(node, get64(in));
    return true;
}

bool node_first_made(const struct cl_raft_node *node)
{
    return node->config.raft.first_voters != digest_of(&node->config.raft.members);
}

bool node_first_good(struct cl_raft_node *node, uint32_t from, uint64_t digest)
{
    uint64_t mine = node->config.raft.first_voters;
    if (digest == mine || !digest || !mine)
        return true;
    cl_count(&node->count.frames_refused, 1);
    cl_store_relaxed(&node->count.other_voters_node, from);
    cl_count(&node->count.other_voters, 1);
    return false;
}

uint64_t cl_raft_node_first_digest(const struct cl_raft_node *node)
{
    return node->config.raft.first_voters;
}

uint32_t cl_raft_node_first_voters(const struct cl_raft_node *node, uint32_t ids[16])
{
    const struct cl_raft_members *m = &node->config.raft.members;
    memcpy(ids, m->voters, m->n_voters * sizeof(*ids));
    return m->n_voters;
}
