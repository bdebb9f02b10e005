/* When a snapshot is taken, and the pieces of one that the leader sends. */
#include "internal.h"
#include <string.h>

static bool snapshot_wanted(struct cl_raft_node *node)
{
    struct cl_raft_room s;
    cl_raft_room(node->raft, &s);
    bool again = cl_raft_snapshot_wanted(node->raft) && node->applied == node->snapshot.index;
    if ((node->applied <= node->snapshot.index && !again) || s.durable < node->applied)
        return false;
    uint64_t bytes = node->config.raft.log_bytes, entries = node->config.raft.log_entries;
    bool much = bytes - s.free_bytes >= node->config.compact_bytes || s.free_entries < entries / 2 ||
                node_disk_low(node, 2) || cl_raft_snapshot_wanted(node->raft);
    if (!much && !node->compact_asked)
        return false;
    bool urgent = s.free_bytes < bytes / 8 || s.free_entries < entries / 8 || node_disk_low(node, 8);
    if (!urgent && cl_raft_snapshot_in_use(node->raft)) {
        cl_count(&node->count.snapshots_put_off, 1);
        return false;
    }
    return true;
}

bool node_snapshot_maybe(struct cl_raft_node *node)
{
    if (node_disk_saving(node) || node->now_ns < node->snapshot_next_ns || !snapshot_wanted(node))
        return false;
    node->compact_asked = 0;
    int rc = node_snapshot_fill(node);
    if (rc) {
        node_snapshot_failed(node, rc);
        return false;
    }
    node_disk_save(node, false);
    return true;
}

/* A piece of a snapshot came from the leader. */
void node_chunk(struct cl_raft_node *node, const struct cl_raft_ready *ready)
{
    struct node_blob *b = &node->incoming;
    bool fits = ready->chunk_total <= node_snapshot_room(node);
    bool ok = fits && !node_disk_saving(node) && node_blob_room(b, ready->chunk_total);
    if (ok && ready->chunk_bytes)
        memcpy(b->data + ready->chunk_offset, ready->chunk_data, ready->chunk_bytes);
    cl_raft_chunk_taken(node->raft, ok);
    if (!ok) {
        cl_count(&node->count.snapshots_failed, 1);
        if (!fits)
            cl_count(&node->count.snapshots_too_large, 1);
        return;
    }
    if (!ready->chunk_last)
        return;
    b->bytes = ready->chunk_total;
    b->index = ready->chunk_index;
    b->term = ready->chunk_term;
    node->incoming_members = ready->chunk_members;
    node_disk_save(node, true);
}
