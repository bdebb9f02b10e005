/* How much room the log has left: for commands, for what is committed, for a snapshot. */
#include "disk.h"

#define RECORD_BYTES 40 /* what an entry takes in the log beside its data, at most */

/* What is not committed cannot be compacted, and the log re-packs it but cannot drop it. A group whose areas were full
 * of it would stand still for good: a new leader commits nothing before an entry of its own is durable behind all that.
 * So a leader takes no more than fits into a quarter of the area. Re-packed that is half of it at most, for a flush
 * that takes no further record is at least half full. The rest is for no-ops and truncations, of which elections that
 * come to nothing leave some behind. */
bool node_disk_crowded(const struct cl_raft_node *node)
{
    const struct node_disk *d = node->disk;
    struct cl_raft_room room;
    if (!d)
        return false;
    cl_raft_room(node->raft, &room);
    return room.uncommitted_entries * RECORD_BYTES + room.uncommitted_bytes > cl_log_ring_bytes(d->log) / 4;
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
