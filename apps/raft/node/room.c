/* How much room the log has left: for commands, for what is committed, for a snapshot. */
#include "disk.h"

/* What is not committed cannot be compacted: a group whose areas were full of it would stand still for good. So a leader takes
 * no more than fits into a quarter of the area even if a replica writes each entry in a flush of its own. The rest is for terms,
 * votes and no-ops, of which elections that come to nothing leave some behind. */
bool node_disk_crowded(const struct cl_raft_node *node)
{
    const struct node_disk *d = node->disk;
    struct cl_raft_room room;
    if (!d)
        return false;
    cl_raft_room(node->raft, &room);
    return room.uncommitted_entries * CL_LOG_BLOCK_BYTES + room.uncommitted_bytes > cl_log_ring_bytes(d->log) / 4;
}

bool node_disk_low(const struct cl_raft_node *node, unsigned parts)
{
    const struct node_disk *d = node->disk;
    return d && cl_log_free_bytes(d->log) < cl_log_ring_bytes(d->log) / parts;
}

uint64_t node_disk_ahead(const struct cl_raft_node *node)
{
    const struct node_disk *d = node->disk;
    return d ? cl_log_free_bytes(d->log) / 2 / (cl_log_max_bytes(d->log) + CL_LOG_BLOCK_BYTES) : UINT32_MAX;
}
