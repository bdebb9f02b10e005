/* Making a snapshot durable: the node's own, or one that the leader sent. */
#include "disk.h"
#include <errno.h>
#include <string.h>

void node_disk_save(struct cl_raft_node *node, bool received)
{
    struct node_disk *d = node->disk;
    if (d) {
        d->save = SAVE_BEGIN;
        d->save_received = received;
        d->save_at = 0;
    } else if (received) {
        node_snapshot_received(node);
    } else {
        node_snapshot_saved(node);
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
    int keep = node_snapshot_received(d->node);
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
    if (node_snapshot_saved(d->node))
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
