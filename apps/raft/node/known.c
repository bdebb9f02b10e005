/* The incarnations that a node knows, its own first, and which of them are noted in its log. See incarnations.c. */
#include "internal.h"
#include "../core/bytes.h"
#include <string.h>

#define NODE_LOGS ((NODE_LOGS_BYTES - 4) / 8)

struct node_incarnation *node_incarnation_find(struct node_incarnations *l, uint32_t id)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->known[i].id == id)
            return &l->known[i];
    return NULL;
}

struct node_incarnation *node_incarnation_add(struct node_incarnations *l, uint32_t id, uint64_t incarnation)
{
    if (l->count == NODE_INCARNATIONS)
        return NULL;
    l->known[l->count] = (struct node_incarnation){.id = id, .incarnation = incarnation};
    return &l->known[l->count++];
}

void node_incarnations_new(struct cl_raft_node *node)
{
    node_incarnation_add(&node->incarnations, node->config.raft.id, node->config.raft.incarnation);
    node->incarnations.noted = node->config.log ? 1 : UINT64_MAX;
}

static bool is_member(const struct cl_raft_status *s, uint32_t id)
{
    for (uint32_t i = 0; i < CL_RAFT_MAX_NODES; i++)
        if ((i < s->members.n_voters && s->members.voters[i] == id) ||
            (i < s->members.n_outgoing && s->members.outgoing[i] == id) ||
            (i < s->members.n_learners && s->members.learners[i] == id))
            return true;
    return false;
}

/* Members go first, then who was heard and had no room, the latest first, then who was met last. 0: all are in
 * `put`. */
static uint32_t next_to_put(const struct node_incarnations *l, const struct cl_raft_status *s, uint64_t put)
{
    uint32_t best = 0;
    bool best_member = false;
    for (uint32_t i = 1; i < l->count; i++) {
        if (put >> i & 1)
            continue;
        bool member = is_member(s, l->known[i].id);
        if (!best || member > best_member || (member == best_member && l->known[i].heard >= l->known[best].heard)) {
            best = i;
            best_member = member;
        }
    }
    return best;
}

uint64_t node_incarnations_put(struct cl_raft_node *node, uint8_t out[NODE_LOGS_BYTES])
{
    struct node_incarnations *l = &node->incarnations;
    struct cl_raft_status s;
    uint64_t put = 1;
    uint32_t n = 0;
    cl_raft_status(node->raft, &s);
    memset(out, 0, NODE_LOGS_BYTES);
    for (uint32_t best; n < NODE_LOGS && (best = next_to_put(l, &s, put)); put |= 1ull << best) {
        put32(out + 4 + 8 * n, l->known[best].id);
        put32(out + 8 + 8 * n++, (uint32_t)l->known[best].incarnation);
    }
    put32(out, n);
    l->put = put;
    l->noted &= put;
    return put;
}

void node_incarnations_get(struct cl_raft_node *node, const uint8_t in[NODE_LOGS_BYTES])
{
    struct node_incarnations *l = &node->incarnations;
    for (uint32_t i = 0, n = get32(in); i < n && i < NODE_LOGS; i++)
        if (!node_incarnation_find(l, get32(in + 4 + 8 * i)))
            node_incarnation_add(l, get32(in + 4 + 8 * i), get32(in + 8 + 8 * i));
    l->noted = l->count < NODE_INCARNATIONS ? (1ull << l->count) - 1 : UINT64_MAX;
}

void node_incarnations_saved(struct cl_raft_node *node, uint64_t put)
{
    node->incarnations.noted = put & node->incarnations.put;
}

bool node_incarnation_noted(const struct node_incarnations *l, const struct node_incarnation *known)
{
    return l->noted >> (known - l->known) & 1;
}

uint64_t cl_raft_node_incarnation(const struct cl_raft_node *node)
{
    return node->config.raft.incarnation;
}

int cl_raft_node_knows(const struct cl_raft_node *node, uint32_t id, uint64_t incarnation)
{
    const struct node_incarnations *l = &node->incarnations;
    for (const struct node_incarnation *k = l->known; k < l->known + l->count; k++)
        if (k->id == id && node_incarnation_noted(l, k))
            return k->incarnation == incarnation;
    return 0;
}
