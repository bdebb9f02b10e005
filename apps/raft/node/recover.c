/* What a node knows when it starts: the snapshot, the entries behind it, term and vote. */
#include "disk.h"
#include "../core/bytes.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool read_snapshot(struct node_disk *d)
{
    struct cl_raft_node *node = d->node;
    struct node_blob *b = &node->incoming;
    const struct cl_log_snapshot *s = &d->recover_snapshot;
    if (!node_blob_room(b, cl_max(s->bytes, 1ull))) {
        node_stop(node, "no memory for a snapshot of %llu bytes", (unsigned long long)s->bytes);
        return false;
    }
    while (d->recover_at < s->bytes) {
        uint64_t room = s->bytes - d->recover_at;
        int64_t n = cl_log_snapshot_read(d->log, s->number, d->recover_at, b->data + d->recover_at, room);
        if (n == -EAGAIN)
            return false;
        if (n <= 0) {
            const char *why = *cl_log_snapshot_why(d->log) ? cl_log_snapshot_why(d->log)
                              : n                          ? strerror((int)-n)
                                                           : "it is cut short";
            node_stop(node, "the snapshot of entry %llu cannot be read: %s", (unsigned long long)s->index, why);
            return false;
        }
        d->recover_at += (uint64_t)n;
    }
    b->bytes = s->bytes;
    b->index = s->index;
    b->term = s->tag;
    return true;
}

/* What was applied in an earlier incarnation came about with these, and so must what is applied now. */
static bool same_settings(const struct cl_raft_node_config *c, const uint8_t *meta, char why[NODE_WHY_BYTES])
{
    uint64_t machine = get64(meta + 32), session_ms = get64(meta + 40);
    uint32_t max_sessions = get32(meta + 48), reply_bytes = get32(meta + 52);
    if (machine == c->machine.settings && session_ms == c->session_ms && max_sessions == c->max_sessions &&
        reply_bytes == c->reply_bytes)
        return true;
    snprintf(
        why, NODE_WHY_BYTES,
        "the log was written with memory_bytes %llu, max_sessions %u, session_ms %llu, reply_bytes %u, and now it is "
        "%llu, %u, %llu, %u: start it with those of the log",
        (unsigned long long)machine, max_sessions, (unsigned long long)session_ms, reply_bytes,
        (unsigned long long)c->machine.settings, c->max_sessions, (unsigned long long)c->session_ms, c->reply_bytes);
    return false;
}

/* Groups have names; a log and a node keep a number made of it, 0 of none. */
static bool same_node(const struct cl_raft_config *c, const uint8_t *meta, char why[NODE_WHY_BYTES])
{
    uint32_t id = get32(meta + 28);
    uint64_t cluster = get64(meta + 8);
    if (id == c->id && cluster == c->cluster)
        return true;
    if (cluster == c->cluster)
        snprintf(why, NODE_WHY_BYTES, "the log is of node %u of the group, not of node %u: start each on its own log",
                 id, c->id);
    else
        snprintf(why, NODE_WHY_BYTES,
                 "the log is of node %u of a group %s, not of node %u of one %s: start it with the group's name of the "
                 "log, or on its own log",
                 id,
                 !cluster     ? "without a name"
                 : c->cluster ? "with another name"
                              : "with a name",
                 c->id, c->cluster ? "with the name given" : "without a name");
    return false;
}

/* Whether a log is of this node and of what it is started with, by the meta blob, as disk.c writes it, of `bytes`
 * bytes; or is empty. */
static bool own_log(const struct node_disk *d, const uint8_t *meta, uint32_t bytes, char why[NODE_WHY_BYTES])
{
    const struct cl_raft_node_config *c = &d->node->config;
    struct cl_log_snapshot snapshot;
    uint64_t last = cl_log_durable_index(d->log);
    cl_log_snapshot_get(d->log, &snapshot);
    if (!bytes && !last && !snapshot.number)
        return true;
    if (!bytes) {
        snprintf(
            why, NODE_WHY_BYTES,
            "the log holds entries or a snapshot, up to %llu, but not who voted first in the group, nor this "
            "node's votes: it is not whole, so take the node out of the group, and add one with another id and a new "
            "log",
            (unsigned long long)cl_max(last, snapshot.index));
        return false;
    }
    uint32_t version = get32(meta + 4);
    if (bytes != NODE_META_BYTES || get32(meta) != NODE_META_MAGIC || version < CL_RAFT_NODE_VERSION_LEAST ||
        version > CL_RAFT_NODE_VERSION) {
        snprintf(
            why, NODE_WHY_BYTES,
            "the log is not that of a Raft node of versions %d to %d, and this one reads no other: add a node with "
            "another id and a new log in its place",
            CL_RAFT_NODE_VERSION_LEAST, CL_RAFT_NODE_VERSION);
        return false;
    }
    return same_node(&c->raft, meta, why) && same_settings(c, meta, why);
}

int cl_raft_node_check_log(const struct cl_raft_node *node, char err[256])
{
    uint8_t meta[CL_LOG_META_BYTES];
    return !node->disk || own_log(node->disk, meta, cl_log_meta_get(node->disk->log, meta), err) ? 0 : -EINVAL;
}

/* What is beside the entries. A log that nothing was written to yet: from now on the first voters are those of the
 * configuration. False: it is another node's. */
static bool read_meta(struct node_disk *d)
{
    uint8_t meta[CL_LOG_META_BYTES];
    char why[NODE_WHY_BYTES];
    uint32_t bytes = cl_log_meta_get(d->log, meta);
    if (!own_log(d, meta, bytes, why)) {
        node_stop(d->node, "%s", why);
        return false;
    }
    if (!bytes) {
        d->hard = 1;
        return true;
    }
    if (!node_first_get(d->node, meta + 56)) {
        node_stop(d->node, "the log does not say who voted first in the group: it was not written by a Raft node");
        return false;
    }
    node_incarnations_get(d->node, meta + 56 + NODE_FIRST_BYTES);
    d->term = get64(meta + 16);
    d->vote = get32(meta + 24);
    d->hard = get32(meta + 4) != CL_RAFT_NODE_VERSION; /* who knows older entries only must not read it from now on */
    return true;
}

static bool restore_core(struct node_disk *d)
{
    struct cl_raft_node *node = d->node;
    struct cl_raft_members members;
    const struct cl_log_snapshot *s = &d->recover_snapshot;
    char why[NODE_WHY_BYTES] = "the log's superblocks name no term for it, or voters that cannot be";
    if (!read_meta(d))
        return false;
    members = node->config.raft.members;
    int rc = s->number ? node_restore(node, &node->incoming, &members, why) : 0;
    if (!rc)
        rc = cl_raft_restore(node->raft, d->term, d->vote, s->number ? s->index : 0, s->number ? s->tag : 0, s->bytes,
                             &members);
    if (rc) {
        node_stop(node, "the snapshot of entry %llu cannot be restored from: %s", (unsigned long long)s->index, why);
        return false;
    }
    node_snapshot_replace(node, &node->incoming);
    return true;
}

/* Where to read entries from; the record of the snapshot's own entry too, to compare. False: nothing is to be read. */
static bool open_cursor(struct node_disk *d)
{
    uint64_t s = d->recover_snapshot.number ? d->recover_snapshot.index : 0;
    uint64_t first = cl_log_first_index(d->log), durable = cl_log_durable_index(d->log);
    if (first > s + 1) {
        node_stop(
            d->node,
            "the log's superblocks, at offsets 0 and 4096, say that it begins at entry %llu and that its snapshot "
            "ends at %llu: what is between them is gone",
            (unsigned long long)first, (unsigned long long)s);
        return false;
    }
    d->write_next = s + 1;
    d->write_last = s;
    if (durable < s) {
        d->restart = s + 1; /* a crash came between the snapshot and this */
        return false;
    }
    if (durable < first)
        return false;
    int rc = cl_log_cursor_open(d->log, cl_max(first, cl_max(s, 1ull)), &d->cursor);
    if (rc)
        node_stop(d->node, "the log cannot be read: %s", strerror(-rc));
    return !rc;
}

static const char *why_not(const struct cl_raft_node *node, const struct cl_log_record *record, int rc)
{
    if (rc == -ENOSPC)
        return "log_bytes and log_entries are too small to hold all of it";
    if (rc != -EINVAL)
        return strerror(-rc);
    if (!record->tag)
        return "it has no term";
    if (record->tag < cl_raft_term_at(node->raft, record->index - 1))
        return "its term is lower than that of the entry before it";
    return record->kind > CL_RAFT_MEMBERS ? "it is of no kind that there is" : "it is no configuration of a group";
}

/* Take one record in. False: no further ones are wanted. */
static bool take_record(struct node_disk *d, const struct cl_log_record *record)
{
    const struct cl_log_snapshot *s = &d->recover_snapshot;
    if (s->number && record->index == s->index) {
        if (record->tag == s->tag)
            return true;
        d->restart = s->index + 1; /* the snapshot came from a leader whose log was another one */
        return false;
    }
    int rc = cl_raft_restore_entry(d->node->raft, record->tag, record->kind, record->data, record->bytes);
    if (rc) {
        node_stop(d->node, "entry %llu of the log, at offset %llu, cannot be used: %s",
                  (unsigned long long)record->index, (unsigned long long)record->offset, why_not(d->node, record, rc));
        return false;
    }
    d->write_next = record->index + 1;
    d->write_last = record->index;
    if (record->kind == CL_RAFT_COMMAND && record->bytes >= CL_RAFT_COMMAND_HEADER)
        d->recover_committed = cl_max(d->recover_committed, get64(record->data) >> NODE_KIND_BITS);
    return true;
}

/* True: all are read. */
static bool read_entries(struct node_disk *d)
{
    struct cl_log_record record;
    int rc = 0;
    while (d->cursor && (rc = cl_log_cursor_next(d->cursor, &record)) == 1)
        if (!take_record(d, &record))
            break;
    if (rc == -EAGAIN)
        return false;
    if (rc < 0) {
        const char *why = cl_log_cursor_why(d->cursor);
        node_stop(d->node, "the log cannot be read: %s", *why ? why : strerror(-rc));
    }
    if (d->cursor && cl_log_cursor_close(d->cursor) == -EBUSY)
        return false;
    d->cursor = NULL;
    return true;
}

static bool recover_step(struct node_disk *d)
{
    switch (d->recover) {
    case RECOVER_BEGIN:
        cl_log_snapshot_get(d->log, &d->recover_snapshot);
        d->recover = d->recover_snapshot.number ? RECOVER_SNAPSHOT : RECOVER_CORE;
        return true;
    case RECOVER_SNAPSHOT:
        if (!read_snapshot(d))
            return false;
        d->recover = RECOVER_CORE;
        return true;
    case RECOVER_CORE:
        if (restore_core(d))
            open_cursor(d);
        d->recover = RECOVER_ENTRIES;
        return true;
    case RECOVER_ENTRIES:
        if (!read_entries(d))
            return false;
        if (d->node->state == CL_RAFT_RECOVERING)
            cl_raft_restore_commit(d->node->raft, d->recover_committed);
        d->recover = RECOVER_WRITES;
        return true;
    default:
        if (d->hard)
            node_disk_rewrite(d->node);
        if (!d->hard && !d->ops_count && d->node->state == CL_RAFT_RECOVERING)
            d->node->state = CL_RAFT_RUNNING;
        return false;
    }
}

void node_disk_recover(struct cl_raft_node *node)
{
    struct node_disk *d = node->disk;
    if (!d) {
        node->state = CL_RAFT_RUNNING;
        return;
    }
    /* A device may complete at the next poll what it was given at this one. */
    for (unsigned idle = 0; idle < 2 && node->state == CL_RAFT_RECOVERING;) {
        bool happened = cl_log_pump(d->log) > 0; /* answers of the disk, which a step is not */
        node_disk_note(d, happened); /* a step may take long without the disk: the machine loads its state in one */
        while (node->state == CL_RAFT_RECOVERING && recover_step(d))
            happened = true;
        idle = happened ? 0 : idle + 1;
        node_disk_note(d, false); /* what the steps asked for */
    }
}
