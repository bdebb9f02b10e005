/* Nodes with amnesia: a node without a log that ended and is started again under its id, or one whose log was lost and
 * made again. It does not know its votes and what it acknowledged, and must not take part as if it did. It cannot know
 * that it was there before, so the others have to.
 *
 * Each incarnation of a node has a random number, which goes with its messages (wire.h). A log's number is drawn when
 * the log is made, so with logs an incarnation lasts for as long as the log. No node takes a message from a node that
 * it does not know, nor from one that it knows in another incarnation. So a node that was promised something knows by
 * which incarnation. A node with a log knows another once that is noted in its own log, beside its vote. Incarnations
 * are told in frames of their own:
 *
 *     0  u32 magic "CLRL"   4  u8 version, u8 count, u8 whether to answer, u8 0   8  u32 CRC32C with this field 0   12
 *     u32 bytes
 *    16  u64 cluster   24  u32 from, u32 to   32  u64 from's incarnation   40  u64 to's, as far as the sender knows; 0:
 *    it does not
 *    48  u64 group settings   56  u64 first voters   64  count times: u32 id, u32 0, u64 incarnation: all that the
 *    sender knows, itself first
 *
 * Only a frame that names the receiver's present incarnation is believed: its sender ran at the same time, and not only
 * before the whole group was stopped. Other frames are answered. A node that reads of itself in another incarnation
 * stops. What one node knows, the others hear, too, also those that are added later. A node of which two incarnations
 * were heard is refused in both. A group that was made of a backup, or of what was left, has new logs for old ids, and
 * nodes of the former group know the old ones: so its nodes believe nothing of those that began with other voters.
 *
 * So a node that comes back is refused by all nodes that heard of its former incarnation, from itself or from others,
 * and have no amnesia themselves. If all have amnesia, nobody knows anything, and nothing that was promised is left
 * either. Two cases are not covered. Nodes may have started (with logs: for the first time) after that incarnation had
 * ended, and reach no node that knew of it. They and the one that came back may go on together, until they do reach
 * one. And a majority of the first voters may all have amnesia and reach none of the others.
 *
 * The log has room for 15 others: members first, then the nodes that were heard or met last. Of an incarnation's number
 * 32 bits go there, so only these count. */
#include "internal.h"
#include "../../../libos/storage/crc32c.h"
#include "../core/bytes.h"
#include <string.h>

#define MAGIC 0x4c524c43u
#define VERSION 2
#define HEADER 64
#define ITEM 16

struct incarnations_frame {
    uint32_t from, count;
    bool asks;
    uint64_t incarnation, to_incarnation;
    const uint8_t *items;
};

static void tell(struct cl_raft_node *node, uint32_t to, uint64_t to_incarnation, bool ask)
{
    const struct node_incarnations *l = &node->incarnations;
    const struct cl_raft_config *c = &node->config.raft;
    uint8_t frame[HEADER + NODE_INCARNATIONS * ITEM], *p = frame;
    uint32_t bytes = HEADER + l->count * ITEM;
    put32(p, MAGIC);
    put32(p + 4, VERSION | l->count << 8 | (uint32_t)ask << 16);
    put32(p + 8, 0);
    put32(p + 12, bytes);
    put64(p + 16, c->cluster);
    put32(p + 24, c->id);
    put32(p + 28, to);
    put64(p + 32, c->incarnation);
    put64(p + 40, to_incarnation);
    put64(p + 48, c->group_settings);
    put64(p + 56, c->first_voters);
    p += HEADER;
    for (uint32_t i = 0; i < l->count; i++, p += ITEM) {
        put32(p, l->known[i].id);
        put32(p + 4, 0);
        put64(p + 8, l->known[i].incarnation);
    }
    put32(frame + 8, cl_crc32c(0, frame, bytes));
    node->config.env.send(node->config.env.arg, to, frame, bytes, false);
}

/* Who became a member had no room in the log as long as it was none. */
static void note_member(struct cl_raft_node *node, const struct node_incarnation *known)
{
    if (known && !node_incarnation_noted(&node->incarnations, known))
        node_disk_rewrite(node);
}

static void tell_member(struct cl_raft_node *node, uint32_t id)
{
    const struct node_incarnation *known = node_incarnation_find(&node->incarnations, id);
    note_member(node, known);
    if (id != node->config.raft.id && (!known || known->told < node->incarnations.count))
        tell(node, id, known ? known->incarnation : 0, true);
}

void node_incarnations_tell(struct cl_raft_node *node)
{
    struct node_incarnations *l = &node->incarnations;
    struct cl_raft_status s;
    if (node->now_ns < l->next_ns)
        return;
    l->next_ns = node->now_ns + node->config.raft.election_ticks * node->config.tick_ns;
    cl_raft_status(node->raft, &s);
    for (uint32_t i = 0; i < s.members.n_voters; i++)
        tell_member(node, s.members.voters[i]);
    for (uint32_t i = 0; i < s.members.n_outgoing; i++)
        tell_member(node, s.members.outgoing[i]);
    for (uint32_t i = 0; i < s.members.n_learners; i++)
        tell_member(node, s.members.learners[i]);
}

/* It may be a member of a configuration that this node has not got yet. */
static void make_room(struct cl_raft_node *node, struct node_incarnation *known)
{
    known->heard = ++node->incarnations.heard;
    node_disk_rewrite(node);
}

bool node_incarnation_good(struct cl_raft_node *node, uint32_t from, uint64_t incarnation)
{
    struct node_incarnations *l = &node->incarnations;
    const struct node_incarnation *known = node_incarnation_find(l, from);
    bool same = known && incarnation && known->incarnation == incarnation;
    if (same && node_incarnation_noted(l, known))
        return true;
    if (same && !(l->put >> (known - l->known) & 1))
        make_room(node, node_incarnation_find(l, from));
    cl_count(&node->count.frames_refused, 1);
    if (known && !same) {
        cl_store_relaxed(&node->count.other_incarnation_node, from);
        cl_count(&node->count.other_incarnation, 1);
    } else {
        cl_count(&node->count.unknown_incarnation, 1);
    }
    if (!same)
        tell(node, from, incarnation, true);
    return false;
}

static bool decode(const struct cl_raft_node *node, const uint8_t *data, uint64_t bytes, struct incarnations_frame *f)
{
    static const uint8_t zeros[4];
    const struct cl_raft_config *c = &node->config.raft;
    *f = (struct incarnations_frame){.from = get32(data + 24),
                                     .count = data[5],
                                     .asks = data[6],
                                     .incarnation = get64(data + 32),
                                     .to_incarnation = get64(data + 40),
                                     .items = data + HEADER};
    if (data[4] != VERSION || data[6] > 1 || data[7] || !f->count || f->count > NODE_INCARNATIONS ||
        bytes != HEADER + f->count * ITEM || bytes != get32(data + 12) || get64(data + 16) != c->cluster || !f->from ||
        f->from == c->id || get32(data + 28) != c->id || !f->incarnation)
        return false;
    return cl_crc32c(cl_crc32c(cl_crc32c(0, data, 8), zeros, 4), data + 12, bytes - 12) == get32(data + 8);
}

/* Take over what another node knows. Whether it is at odds with what was known here. */
static bool learn(struct node_incarnations *l, const struct incarnations_frame *f)
{
    bool at_odds = false;
    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t id = get32(f->items + i * ITEM);
        uint64_t incarnation = get64(f->items + i * ITEM + 8);
        struct node_incarnation *known = node_incarnation_find(l, id);
        if (!known && id)
            node_incarnation_add(l, id, incarnation);
        else if (known && known != l->known && known->incarnation != incarnation) {
            known->incarnation = 0;
            at_odds = true;
        }
    }
    return at_odds;
}

static void stop_if_known(struct cl_raft_node *node, const struct incarnations_frame *f)
{
    const struct cl_raft_config *c = &node->config.raft;
    for (uint32_t i = 0; i < f->count && f->to_incarnation == c->incarnation; i++)
        if (get32(f->items + i * ITEM) == c->id && get64(f->items + i * ITEM + 8) != c->incarnation)
            node_stop(
                node,
                "it %s, so it has forgotten its votes and what it acknowledged, and node %u, which knew it before, "
                "refuses it: add it under another id%s",
                node->config.log ? "had another log" : "keeps no log and was started again under its id", f->from,
                node->config.log ? ", or start it with the log that it had" : ", or start the whole group with logs");
}

bool node_incarnations_frame(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes)
{
    struct node_incarnations *l = &node->incarnations;
    struct incarnations_frame f;
    if (bytes < HEADER || get32(data) != MAGIC)
        return false;
    if (!decode(node, data, bytes, &f)) {
        cl_count(&node->count.frames_refused, 1);
        return true;
    }
    if (!node_settings_good(node, f.from, get64(data + 48)) ||
        (node_first_made(node) && !node_first_good(node, f.from, get64(data + 56))))
        return true;
    stop_if_known(node, &f);
    struct node_incarnation *from = node_incarnation_find(l, f.from);
    if (node->state != CL_RAFT_RUNNING ||
        (from && from->incarnation != f.incarnation && !node_incarnation_good(node, f.from, f.incarnation)) ||
        !node_first_good(node, f.from, get64(data + 56)))
        return true;
    if (f.to_incarnation != node->config.raft.incarnation) {
        tell(node, f.from, f.incarnation, true);
        return true;
    }
    uint32_t before = l->count;
    bool at_odds = learn(l, &f);
    if (at_odds || l->count != before)
        node_disk_rewrite(node);
    from = node_incarnation_find(l, f.from);
    if (from)
        from->told = f.count;
    if (f.asks || at_odds || f.count < l->count)
        tell(node, f.from, f.incarnation, false);
    return true;
}
