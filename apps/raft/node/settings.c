/* What has to be the same on every node of a group (node.h). A digest of it goes with messages. */
#include "internal.h"

uint64_t node_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t node_digest(uint64_t digest, uint64_t word)
{
    return node_mix((digest ^ word) + 0x9e3779b97f4a7c15ull);
}

uint64_t node_group_settings(const struct cl_raft_node_config *c)
{
    const uint64_t words[] = {c->max_sessions,
                              c->session_ms,
                              c->reply_bytes,
                              c->machine.settings,
                              c->raft.election_ticks * c->tick_ns,
                              c->raft.lease_reads,
                              c->log != NULL,
                              c->raft.entry_bytes};
    uint64_t digest = CL_RAFT_NODE_VERSION;
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        digest = node_digest(digest, words[i]);
    if (c->machine.answer_bytes)
        digest = node_digest(digest, c->machine.answer_bytes);
    return c->machine.ages_ms ? node_digest(digest, c->machine.ages_ms)
                              : digest; /* its log has entries of CL_RAFT_CLOCK */
}

uint64_t cl_raft_node_settings(const struct cl_raft_node *node)
{
    return node->config.raft.group_settings;
}

bool node_settings_good(struct cl_raft_node *node, uint32_t from, uint64_t settings)
{
    if (settings == node->config.raft.group_settings)
        return true;
    cl_count(&node->count.frames_refused, 1);
    cl_store_relaxed(&node->count.other_settings_node, from);
    cl_count(&node->count.other_settings, 1);
    return false;
}
