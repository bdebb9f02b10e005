/* A node's snapshots: the state machine, the sessions and the log's clock as one run of bytes.
 *
 *     0  u32 magic "CLRS"   4  u32 version   8  u64 the log's clock, ms   16  u32 bytes of the configuration, u32 flags
 *    24  u64 bytes of the sessions           32  the configuration, the sessions, the state machine to the end */
#include "internal.h"
#include <corelane/libos/log.h>
#include "../core/bytes.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAGIC 0x53524c43u
#define VERSION 1
#define HEADER 32
#define UNSEEDED 1 /* flag: the group has not drawn its random word yet, nor applied a command without */
#define PIECE (1 << 20)

void node_blob_free(struct node_blob *blob)
{
    free(blob->data);
    *blob = (struct node_blob){0};
}

bool node_blob_room(struct node_blob *blob, uint64_t room)
{
    if (room <= blob->room)
        return true;
    uint8_t *data = realloc(blob->data, room);
    if (!data)
        return false;
    blob->data = data;
    blob->room = room;
    return true;
}

void node_snapshot_replace(struct cl_raft_node *node, struct node_blob *blob)
{
    struct node_blob old = node->snapshot;
    node->snapshot = *blob;
    if (node->held_index && old.index == node->held_index) {
        node->held = old;
        old = (struct node_blob){0};
    }
    *blob = old;
    blob->bytes = 0;
}

uint64_t node_snapshot_room(const struct cl_raft_node *node)
{
    uint64_t most = node->config.snapshot_bytes;
    return node->config.log ? cl_min(most, cl_log_snapshot_room(node->config.log)) : most;
}

static int save_machine(struct cl_raft_node *node, struct node_blob *b)
{
    const struct cl_raft_machine *m = &node->config.machine;
    for (uint64_t at = 0;;) {
        if (b->room - b->bytes < PIECE && !node_blob_room(b, cl_max(2 * b->room, b->bytes + PIECE)))
            return -ENOMEM;
        int64_t n = m->save(m->arg, at, b->data + b->bytes, b->room - b->bytes);
        if (n <= 0)
            return (int)n;
        b->bytes += (uint64_t)n;
        at += (uint64_t)n;
        if (b->bytes > node_snapshot_room(node))
            return -ENOSPC;
    }
}

/* Fill the blob `saving` with the state as of `applied`. */
int node_snapshot_fill(struct cl_raft_node *node)
{
    struct node_blob *b = &node->saving;
    struct cl_raft_members members;
    int rc = cl_raft_members_at(node->raft, node->applied, &members);
    if (rc)
        return rc;
    uint64_t sessions = raft_sessions_save(&node->sessions, NULL);
    if (!node_blob_room(b, HEADER + CL_RAFT_MEMBERS_BYTES + sessions + PIECE))
        return -ENOMEM;
    put32(b->data, MAGIC);
    put32(b->data + 4, VERSION);
    put64(b->data + 8, node->clock_ms);
    uint32_t n = (uint32_t)cl_raft_members_encode(&members, b->data + HEADER);
    put32(b->data + 16, n);
    put32(b->data + 20, node->seeded ? 0 : UNSEEDED);
    put64(b->data + 24, sessions);
    raft_sessions_save(&node->sessions, b->data + HEADER + n);
    b->bytes = HEADER + n + sessions;
    b->index = node->applied;
    b->term = cl_raft_term_at(node->raft, node->applied);
    return save_machine(node, b);
}

static int load_machine(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes)
{
    const struct cl_raft_machine *m = &node->config.machine;
    uint64_t at = 0;
    do {
        uint64_t n = cl_min(bytes - at, (uint64_t)PIECE);
        int rc = m->load(m->arg, at, data + at, n, bytes);
        if (rc < 0)
            return rc;
        at += n;
    } while (at < bytes);
    return 0;
}

/* rc, and why in a sentence. */
static CL_PRINTF(3, 4) int refuse(char why[NODE_WHY_BYTES], int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, NODE_WHY_BYTES, format, args);
    va_end(args);
    return rc;
}

int node_restore(struct cl_raft_node *node, const struct node_blob *b, struct cl_raft_members *members,
                 char why[NODE_WHY_BYTES])
{
    if (b->bytes < HEADER)
        return refuse(why, -EINVAL, "it has %llu bytes, and its header takes %d", (unsigned long long)b->bytes, HEADER);
    if (get32(b->data) != MAGIC)
        return refuse(why, -EINVAL, "at its byte 0: it is not one of a Raft node");
    if (get32(b->data + 4) != VERSION)
        return refuse(why, -EINVAL, "at its byte 4: it is of version %u, and this is %d", get32(b->data + 4), VERSION);
    uint64_t n = get32(b->data + 16), sessions = get64(b->data + 24), left = b->bytes - HEADER;
    uint32_t flags = get32(b->data + 20);
    if (n > left || sessions > left - n || flags > UNSEEDED)
        return refuse(why, -EINVAL, "at its byte 16: its parts are said to be longer than it is");
    if (n == 4 && get32(b->data + HEADER) == 0)
        *members = (struct cl_raft_members){0}; /* its own, of before it knew of any */
    else if (cl_raft_members_decode(b->data + HEADER, n, members) != (int)n)
        return refuse(why, -EINVAL, "at its byte %d: that is no configuration", HEADER);
    int rc = raft_sessions_load(&node->sessions, b->data + HEADER + n, sessions);
    if (rc)
        return refuse(why, rc, "at its byte %llu: its sessions cannot be read, or are more than max_sessions",
                      (unsigned long long)(HEADER + n));
    node->clock_ms = 0; /* of other snapshots than the one to come nothing is left */
    node_clock_advance(node, get64(b->data + 8));
    rc = load_machine(node, b->data + HEADER + n + sessions, left - n - sessions);
    if (rc)
        return refuse(why, rc, "from its byte %llu on: the state machine says: %s",
                      (unsigned long long)(HEADER + n + sessions), node_machine_why(node, rc));
    node->applied = b->index;
    node->seeded = !(flags & UNSEEDED) || !node->config.machine.seed;
    return 0;
}
