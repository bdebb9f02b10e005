/* What a node writes to its log (corelane/libos/log.h). Record i of the log is entry i; its tag is the term. Term and
 * vote are the log's meta blob. Without a log all is durable at once.
 *
 * Entries, meta, truncations and restarts are acknowledged in the order in which they were asked for, so the requests
 * in flight are a ring, and an acknowledgement that is not the oldest's turn stops the node: its slot might be
 * another's by now. Trims and snapshots are durable in an order of their own (by the superblock) and have no place in
 * it. What the log does not take for now (its buffers are full) waits as numbers, not as data: entries are read from
 * the core when it is their turn, so what was truncated meanwhile is never written. */
#include "disk.h"
#include "../core/bytes.h"
#include <errno.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t node_disk_entry_bytes(const struct cl_log *log, uint32_t wanted)
{
    return log && cl_log_state(log) == CL_LOG_READY ? cl_min(wanted, cl_log_max_bytes(log)) : wanted;
}

uint64_t node_disk_incarnation(const struct cl_log *log)
{
    struct cl_log_report report;
    cl_log_report(log, &report);
    uint32_t incarnation = (uint32_t)node_digest(0, report.area_id);
    return incarnation ? incarnation : 1;
}

int node_disk_new(struct cl_raft_node *node, char err[256])
{
    if (!node->config.log)
        return 0;
    if (cl_log_state(node->config.log) != CL_LOG_READY) {
        snprintf(err, 256, "the log of Raft node %u is not open: pump it until it is ready", node->config.raft.id);
        return -EINVAL;
    }
    uint32_t entry = node->config.raft.entry_bytes, room = cl_log_max_bytes(node->config.log);
    if (entry > room) {
        snprintf(err, 256,
                 "entries of up to %u bytes do not fit the log, which takes %u: make a larger log or lower entry_bytes",
                 entry, room);
        return -EINVAL;
    }
    uint32_t most = node->config.log_requests ? node->config.log_requests : 1024;
    struct node_disk *d = node->disk = calloc(1, sizeof(*d) + most * sizeof(d->ops[0]));
    if (!d) {
        snprintf(err, 256, "no memory for a Raft node");
        return -ENOMEM;
    }
    d->node = node;
    d->log = node->config.log;
    d->ops_most = most;
    return 0;
}

void node_disk_delete(struct cl_raft_node *node)
{
    free(node->disk);
}

void node_disk_note(struct node_disk *d, bool answered)
{
    bool reads = d->node->state == CL_RAFT_RECOVERING && cl_log_busy(d->log);
    cl_store_relaxed(&d->awaits, 2 * (d->awaits / 2 + answered) + (d->ops_count || reads));
}

uint64_t cl_raft_node_awaits(const struct cl_raft_node *node)
{
    return node->disk ? cl_load_relaxed(&node->disk->awaits) : 0;
}

static void write_done(struct cl_log_op *op)
{
    struct node_disk *d = op->user;
    struct node_op *o = cl_container_of(op, struct node_op, op);
    if (op->result) {
        node_stop(d->node, "a write to the log failed, so this replica votes no more: %s", cl_log_why(d->log));
        return;
    }
    if (!d->ops_count || o != &d->ops[d->ops_head]) {
        node_stop(d->node, "the log acknowledged a request that was not the oldest, so this replica votes no more");
        return;
    }
    d->ops_head = (d->ops_head + 1) % d->ops_most;
    d->ops_count--;
    node_disk_note(d, true);
    if (o->what == NODE_ENTRY)
        node_stages_durable(d->node, o->index, op->stamps);
    if (o->what == NODE_ENTRY)
        cl_raft_persisted(d->node->raft, o->index, o->term, o->generation);
    if (o->what == NODE_HARD) {
        node_incarnations_saved(d->node, o->incarnations);
        cl_raft_hard_persisted(d->node->raft, o->hard_seq);
    }
}

/* A request to be filled in; NULL: as many are in flight as can be. It counts once the log took it. */
static struct node_op *next_op(struct node_disk *d, int what)
{
    if (d->ops_count == d->ops_most)
        return NULL;
    struct node_op *o = &d->ops[(d->ops_head + d->ops_count) % d->ops_most];
    *o = (struct node_op){.op = {.done = write_done, .user = d}, .what = what};
    return o;
}

/* What the log said to a request. True: it took it. */
static bool log_took(struct node_disk *d, int rc)
{
    struct cl_raft_node *node = d->node;
    if (!rc) {
        d->ops_count++;
        node_disk_note(d, false);
        return true;
    }
    if (rc == -ENOSPC) {
        cl_count(&node->count.log_full, 1);
        node->compact_asked = 1;
    } else if (rc != -EAGAIN) {
        node_stop(node, "the log takes no more, so this replica votes no more: %s (%s)", strerror(-rc),
                  cl_log_why(d->log));
    }
    return false;
}

static bool write_hard(struct node_disk *d)
{
    uint8_t meta[NODE_META_BYTES];
    struct node_op *o = next_op(d, NODE_HARD);
    if (!o)
        return false;
    put32(meta, NODE_META_MAGIC);
    put32(meta + 4, CL_RAFT_NODE_VERSION);
    put64(meta + 8, d->node->config.raft.cluster);
    put64(meta + 16, d->term);
    put32(meta + 24, d->vote);
    put32(meta + 28, d->node->config.raft.id);
    put64(meta + 32, d->node->config.machine.settings);
    put64(meta + 40, d->node->config.session_ms);
    put32(meta + 48, d->node->config.max_sessions);
    put32(meta + 52, d->node->config.reply_bytes);
    node_first_put(d->node, meta + 56);
    o->incarnations = node_incarnations_put(d->node, meta + 56 + NODE_FIRST_BYTES);
    o->hard_seq = d->hard_seq;
    o->op.data = meta;
    o->op.bytes = sizeof(meta);
    if (!log_took(d, cl_log_meta_set(d->log, &o->op)))
        return false;
    d->hard = 0;
    return true;
}

static bool write_entry(struct node_disk *d)
{
    struct cl_raft_entry e;
    struct node_op *o = next_op(d, NODE_ENTRY);
    if (!o)
        return false;
    int rc = cl_raft_entry(d->node->raft, d->write_next, &e);
    if (rc || cl_log_next_index(d->log) != e.index) {
        node_stop(d->node, "entry %llu cannot be written: the log is at %llu", (unsigned long long)d->write_next,
                  (unsigned long long)cl_log_next_index(d->log));
        return false;
    }
    o->index = e.index;
    o->term = e.term;
    o->generation = e.generation;
    o->op.data = e.data;
    o->op.bytes = e.bytes;
    o->op.kind = (uint8_t)e.kind;
    o->op.tag = e.term;
    if (!log_took(d, cl_log_append(d->log, &o->op)))
        return false;
    d->write_next++;
    return true;
}

static bool cut_log(struct node_disk *d, uint64_t *from, int (*call)(struct cl_log *, uint64_t, struct cl_log_op *))
{
    struct node_op *o = next_op(d, NODE_CUT);
    if (!o || !log_took(d, call(d->log, *from, &o->op)))
        return false;
    *from = 0;
    return true;
}

static void trim_log(struct node_disk *d)
{
    if (!d->trim || cl_log_durable_index(d->log) + 1 < d->trim)
        return;
    int rc = cl_log_trim(d->log, d->trim, NULL); /* nobody waits for it: the room shows when it is there */
    if (rc)
        node_stop(d->node, "the log cannot be trimmed to %llu, so this replica votes no more: %s (%s)",
                  (unsigned long long)d->trim, strerror(-rc), cl_log_why(d->log));
    d->trim = 0;
}

/* Give the log what it will take, in the order that its indexes ask for. */
static void write_waiting(struct node_disk *d)
{
    if (d->hard && !write_hard(d))
        return;
    if (d->restart && !cut_log(d, &d->restart, cl_log_restart))
        return;
    if (d->truncate && !cut_log(d, &d->truncate, cl_log_truncate))
        return;
    while (d->write_next <= d->write_last)
        if (!write_entry(d))
            return;
}

void node_disk_write(struct cl_raft_node *node, const struct cl_raft_ready *ready)
{
    struct node_disk *d = node->disk;
    struct cl_raft_entry e;
    if (!d) {
        if (ready->first && !cl_raft_entry(node->raft, ready->last, &e))
            cl_raft_persisted(node->raft, e.index, e.term, e.generation);
        if (ready->hard)
            cl_raft_hard_persisted(node->raft, ready->hard_seq);
        return;
    }
    uint64_t from = ready->truncate_from;
    if (from) {
        if (from < d->write_next) {
            d->truncate = d->truncate ? cl_min(d->truncate, from) : from;
            d->write_next = from;
        }
        d->write_last = cl_min(d->write_last, from - 1);
    }
    if (ready->first)
        d->write_last = ready->last;
    if (ready->hard) {
        d->hard = 1;
        d->hard_seq = ready->hard_seq;
        d->term = ready->term;
        d->vote = ready->vote;
    }
    write_waiting(d);
}

void node_disk_rewrite(struct cl_raft_node *node)
{
    struct node_disk *d = node->disk;
    if (!d)
        return;
    d->hard = 1;
    write_waiting(d);
}

bool node_disk_pump(struct cl_raft_node *node)
{
    struct node_disk *d = node->disk;
    if (!d)
        return false;
    write_waiting(d);
    bool happened = cl_log_pump(d->log) > 0;
    node_stages_pumped(node);
    if (cl_log_state(d->log) == CL_LOG_FAILED)
        node_stop(node, "the log failed, so this replica votes no more: %s", cl_log_why(d->log));
    if (node->state == CL_RAFT_STOPPED)
        return false;
    trim_log(d);
    return node_save_step(d) || happened;
}

uint64_t node_disk_next_ns(const struct cl_raft_node *node)
{
    return node->disk ? cl_log_next_ns(node->disk->log) : UINT64_MAX;
}
