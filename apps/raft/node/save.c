/* Making a snapshot durable: the node's own, or one that the leader sent. */
#include "disk.h"
#include <errno.h>
#include <string.h>

#define WAIT_NS 100000000ull /* after the first one that failed */
#define WAIT_MOST_NS 10000000000ull

void node_snapshot_failed(struct cl_raft_node *node, int rc)
{
    cl_count(&node->count.snapshots_failed, 1);
    if (rc == -ENOSPC)
        cl_count(&node->count.snapshots_too_large, 1);
    else
        cl_store_relaxed(&node->count.snapshot_errno, (uint64_t)-rc);
    node->snapshot_wait_ns = node->snapshot_wait_ns ? cl_min(2 * node->snapshot_wait_ns, WAIT_MOST_NS) : WAIT_NS;
    node->snapshot_next_ns = node->now_ns + node->snapshot_wait_ns;
}

/* The saving blob is durable: it is the snapshot now. False: it is not used. */
static bool snapshot_saved(struct cl_raft_node *node)
{
    uint64_t first;
    int rc = cl_raft_compact(node->raft, node->saving.index, node->saving.bytes, &first);
    if (rc) {
        node_snapshot_failed(node, rc);
        return false;
    }
    cl_count(&node->count.snapshots, 1);
    node->snapshot_wait_ns = node->snapshot_next_ns = 0;
    node_snapshot_replace(node, &node->saving);
    return true;
}

/* The incoming blob is durable: restore from it. Returns cl_raft_snapshot_installed, or < 0. */
static int snapshot_received(struct cl_raft_node *node)
{
    struct cl_raft_members members;
    char why[NODE_WHY_BYTES];
    int rc = node_restore(node, &node->incoming, &members, why);
    if (rc) {
        cl_raft_snapshot_installed(node->raft, 0);
        node_stop(node, "the snapshot of entry %llu that the leader sent cannot be restored from: %s",
                  (unsigned long long)node->incoming.index, why);
        return rc;
    }
    node_snapshot_replace(node, &node->incoming);
    return cl_raft_snapshot_installed(node->raft, 1);
}

void node_disk_save(struct cl_raft_node *node, bool received)
{
    struct node_disk *d = node->disk;
    if (d) {
        d->save = SAVE_BEGIN;
        d->save_received = received;
        d->save_at = 0;
    } else if (received) {
        snapshot_received(node);
    } else {
        snapshot_saved(node);
    }
}

bool node_disk_saving(const struct cl_raft_node *node)
{
    return node->disk && node->disk->save != SAVE_NOTHING;
}

static void snapshot_committed(struct cl_log_op *op)
{
    struct node_disk *d = op->user;
    if (op->result)
        node_stop(d->node, "a snapshot could not be written: %s", cl_log_why(d->log));
    d->save = SAVE_DONE;
}

static const struct node_blob *blob_of(const struct node_disk *d)
{
    return d->save_received ? &d->node->incoming : &d->node->saving;
}

/* The log refused a step: later (false), or there will be no snapshot. */
static bool save_refused(struct node_disk *d, int rc)
{
    if (rc == -EAGAIN || rc == -EBUSY)
        return false;
    struct cl_raft_node *node = d->node;
    node_snapshot_failed(node, rc);
    cl_log_snapshot_abort(d->log);
    d->save = SAVE_NOTHING;
    if (d->save_received || (rc != -ENOSPC && rc != -ENOTSUP))
        node_stop(node, "a snapshot of %llu bytes could not be kept: %s (format the log with a larger snapshot_bytes)",
                  (unsigned long long)blob_of(d)->bytes, strerror(-rc));
    return true;
}

/* The snapshot that the leader sent is durable and stands for the log up to it. */
static void snapshot_arrived(struct node_disk *d)
{
    uint64_t index = d->node->incoming.index;
    int keep = snapshot_received(d->node);
    if (keep < 0)
        return;
    if (keep && d->write_next > index + 1) {
        d->trim = index + 1;
        return;
    }
    /* What the log holds ends before the snapshot, or differs from it. */
    d->restart = d->write_next = index + 1;
    d->truncate = 0;
    if (!keep)
        d->write_last = index;
}

static void save_finished(struct node_disk *d)
{
    d->save = SAVE_NOTHING;
    if (d->node->state == CL_RAFT_STOPPED)
        return;
    if (d->save_received) {
        snapshot_arrived(d);
        return;
    }
    if (snapshot_saved(d->node))
        d->trim = d->node->snapshot.index + 1; /* who lags a little is served from memory */
}

bool node_save_step(struct node_disk *d)
{
    const struct node_blob *b = blob_of(d);
    int rc = 0;
    switch (d->save) {
    case SAVE_BEGIN:
        rc = cl_log_snapshot_begin(d->log, b->index, b->term);
        if (rc)
            return save_refused(d, rc);
        d->save = SAVE_WRITING;
        return true;
    case SAVE_WRITING: {
        int64_t n = cl_log_snapshot_write(d->log, b->data + d->save_at, b->bytes - d->save_at);
        if (n < 0)
            return save_refused(d, (int)n);
        d->save_at += (uint64_t)n;
        if (d->save_at == b->bytes)
            d->save = SAVE_COMMIT;
        return n > 0;
    }
    case SAVE_COMMIT:
        d->save_op = (struct cl_log_op){.done = snapshot_committed, .user = d};
        d->save = SAVE_COMMITTING;
        rc = cl_log_snapshot_commit(d->log, &d->save_op);
        if (rc) {
            d->save = SAVE_COMMIT;
            return save_refused(d, rc);
        }
        return true;
    case SAVE_DONE:
        save_finished(d);
        return true;
    default:
        return false;
    }
}
