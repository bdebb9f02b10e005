/* A node: making one, its loop, and frames that come in. See node.h. */
#include "internal.h"
#include "../../../runtime/pages.h"
#include "../core/bytes.h"
#include "disk.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CL_RAFT_SESSIONS_MOST == RAFT_SESSIONS_MOST, "what the sessions can be");

static void set_defaults(struct cl_raft_node_config *c)
{
    c->tick_ns = c->tick_ns ? c->tick_ns : 1000000;
    c->raft.entry_bytes = c->raft.entry_bytes ? c->raft.entry_bytes : node_disk_entry_bytes(c->log, 1 << 20);
    c->raft.message_bytes = c->raft.message_bytes ? c->raft.message_bytes : 60000;
    /* Half of them used up asks for a snapshot, so with few a busy node does little else. */
    c->raft.log_entries = c->raft.log_entries ? c->raft.log_entries : 262144;
    c->raft.log_bytes = c->raft.log_bytes ? c->raft.log_bytes : 64 << 20;
    c->raft.election_ticks = c->raft.election_ticks ? c->raft.election_ticks : 10;
    c->compact_bytes = c->compact_bytes ? c->compact_bytes : c->raft.log_bytes / 2;
    c->snapshot_bytes = c->snapshot_bytes ? c->snapshot_bytes : 1ull << 30;
    c->max_sessions = c->max_sessions ? c->max_sessions : 1024;
    c->reply_bytes = c->reply_bytes ? c->reply_bytes : 1400;
    c->waiting = c->waiting ? c->waiting : 4096;
    c->batches = cl_min(c->batches ? c->batches : NODE_BATCHES, NODE_BATCHES);
    c->replicate = c->replicate ? c->replicate : CL_RAFT_TO_AUTO;
    c->session_ms = c->session_ms ? c->session_ms : 3600 * 1000;
}

static int take_memory(struct cl_raft_node *node)
{
    const struct cl_raft_node_config *c = &node->config;
    uint64_t largest = cl_max(c->raft.message_bytes, c->raft.entry_bytes + 16u);
    node->answer_room = cl_max(c->reply_bytes, c->machine.answer_bytes);
    node->out_room = cl_max(largest, (uint64_t)node->answer_room) + CL_RAFT_HEADER_BYTES + CL_RAFT_MEMBERS_BYTES;
    node->out = malloc(node->out_room);
    node->reply = malloc(node->answer_room);
    node->scratch = malloc(c->raft.entry_bytes);
    node->pending = cl_pages_new((uint64_t)c->raft.log_entries * sizeof(*node->pending));
    node->queries = calloc(c->waiting, sizeof(*node->queries));
    node->forwards = calloc(c->waiting, sizeof(*node->forwards));
    bool all = node->out && node->reply && node->scratch && node->pending && node->queries && node->forwards;
    return all ? raft_sessions_new(&node->sessions, c->max_sessions, c->reply_bytes) : -ENOMEM;
}

/* Another number in every incarnation. Where tickets begin, for an answer to what an earlier one forwarded may still be
 * on its way. */
static uint64_t number_of_incarnation(const struct cl_raft_node_config *c)
{
    uint64_t z = c->env.wall_ms(c->env.arg) * 0x9e3779b97f4a7c15ull + c->env.now_ns(c->env.arg);
    return node_mix(z) | 1;
}

int cl_raft_node_new(const struct cl_raft_node_config *config, struct cl_raft_node **out, char err[256])
{
    struct cl_raft_node *node = calloc(1, sizeof(*node));
    if (!node) {
        snprintf(err, 256, "no memory for a Raft node");
        return -ENOMEM;
    }
    node->config = *config;
    set_defaults(&node->config);
    node->config.raft.group_settings = node_group_settings(&node->config);
    if (node->config.waiting & (node->config.waiting - 1)) {
        snprintf(err, 256, "waiting is %u: a power of two is needed", node->config.waiting);
        free(node);
        return -EINVAL;
    }
    if (node->config.max_sessions > CL_RAFT_SESSIONS_MOST) {
        snprintf(err, 256, "max_sessions is %u, and may be %u at most", node->config.max_sessions,
                 CL_RAFT_SESSIONS_MOST);
        free(node);
        return -EINVAL;
    }
    if (node->config.reply_bytes < 8) {
        snprintf(err, 256, "reply_bytes is %u: the number of a session takes 8", node->config.reply_bytes);
        free(node);
        return -EINVAL;
    }
    if (node->config.replicate > CL_RAFT_TO_AUTO) {
        snprintf(err, 256, "replicate is %u: all (%u), majority (%u) or auto (%u)", node->config.replicate,
                 CL_RAFT_TO_ALL, CL_RAFT_TO_MAJORITY, CL_RAFT_TO_AUTO);
        free(node);
        return -EINVAL;
    }
    node->query_next = node->query_oldest = 1;
    if (config->raft.id) /* without an id it is refused below */
        node->config.raft.incarnation = config->log           ? node_disk_incarnation(config->log)
                                        : config->incarnation ? config->incarnation
                                                              : number_of_incarnation(&node->config);
    int rc = cl_raft_new(&node->config.raft, &node->raft, err);
    if (!rc && (rc = take_memory(node)))
        snprintf(err, 256, "no memory for a Raft node");
    if (!rc)
        rc = node_first_new(node, err);
    if (!rc)
        rc = node_disk_new(node, err);
    if (rc) {
        cl_raft_node_delete(node);
        return rc;
    }
    cl_raft_hold(node->raft);
    cl_raft_thrifty(node->raft, node->config.replicate == CL_RAFT_TO_MAJORITY);
    node->ticket_next = node->ticket_oldest = number_of_incarnation(&node->config);
    node_incarnations_new(node);
    node->seeded = !config->machine.seed;
    node->stages.on = config->stages;
    *out = node;
    return 0;
}

void cl_raft_node_delete(struct cl_raft_node *node)
{
    if (!node)
        return;
    node_disk_delete(node);
    node_blob_free(&node->snapshot);
    node_blob_free(&node->incoming);
    node_blob_free(&node->saving);
    node_blob_free(&node->held);
    raft_sessions_free(&node->sessions);
    free(node->out);
    free(node->reply);
    free(node->scratch);
    free(node->pending);
    free(node->queries);
    free(node->forwards);
    cl_raft_delete(node->raft);
    free(node);
}

/* Whether a message is worth sending again. Heartbeats, votes and what says the same again are soon followed by newer
 * ones. */
static bool is_lasting(struct cl_raft_node *node, const struct cl_raft_msg *m)
{
    if (m->type == CL_RAFT_APPEND_REPLY) {
        struct node_said now = {m->term, m->index, m->received, m->to}, before = node->said;
        node->said = now;
        return m->flags & CL_RAFT_REJECT || now.term != before.term || now.index != before.index ||
               now.received != before.received || now.to != before.to;
    }
    return m->type == CL_RAFT_APPEND ? m->n_entries > 0 : m->type >= CL_RAFT_SNAPSHOT;
}

static void send_messages(struct cl_raft_node *node)
{
    struct cl_raft_msg m;
    uint64_t last = 0;
    while (cl_raft_poll_message(node->raft, &m)) {
        if (m.type == CL_RAFT_SNAPSHOT && m.offset + m.data_bytes <= node->snapshot.bytes)
            m.data = node->snapshot.data + m.offset;
        int64_t bytes = cl_raft_encode(node->raft, &m, node->out, node->out_room);
        if (bytes > 0)
            node->config.env.send(node->config.env.arg, m.to, node->out, (uint32_t)bytes, is_lasting(node, &m));
        if (m.type == CL_RAFT_APPEND && m.n_entries)
            last = cl_max(last, m.index + m.n_entries);
    }
    node_stages_sent(node, last);
}

/* Apply what is committed, but not so far ahead of the own disk that what it has to write yet could fill half of the
 * room that the log has left: a snapshot is of what is applied and durable, so a replica whose disk is slower than
 * those of a majority would fill its log without ever making one. */
static void apply_committed(struct cl_raft_node *node)
{
    uint64_t last = node->committed;
    if (node->applied < last) {
        struct cl_raft_room room;
        cl_raft_room(node->raft, &room);
        last = cl_min(last, room.durable + node_disk_ahead(node));
    }
    if (node->applied < last)
        node_apply(node, node->applied + 1, last);
}

/* Everything that can be done now without waiting for the disk. */
void node_drive(struct cl_raft_node *node)
{
    struct cl_raft_ready ready;
    do {
        node_round(node);
        while (node->state == CL_RAFT_RUNNING && cl_raft_ready(node->raft, &ready)) {
            node_disk_write(node, &ready);
            if (ready.apply_first) {
                node->committed = ready.apply_last;
                node_stages_agreed(node);
            }
            apply_committed(node);
            if (ready.chunk)
                node_chunk(node, &ready);
            node_round(node);
        }
        apply_committed(node);
        if (node->state == CL_RAFT_RUNNING)
            send_messages(node); /* before the write begins: the others' begin the sooner */
    } while (node->state == CL_RAFT_RUNNING && node_disk_pump(node));
    if (node->state != CL_RAFT_RUNNING)
        return;
    node_forwards_end(node);
    node_note_leader(node);
    send_messages(node);
    node_answer_reads(node);
}

uint64_t cl_raft_node_poll(struct cl_raft_node *node)
{
    if (node->state == CL_RAFT_RECOVERING)
        node_disk_recover(node);
    if (node->state == CL_RAFT_RECOVERING)
        return node_disk_next_ns(node);
    if (node->state == CL_RAFT_STOPPED)
        return UINT64_MAX;
    node_advance_ticks(node);
    node_incarnations_tell(node);
    node_drive(node);
    if (node->state == CL_RAFT_RUNNING && node_snapshot_maybe(node))
        node_drive(node);
    uint64_t next = cl_min(node->next_tick_ns, node_disk_next_ns(node));
    return node->round.wait_until_ns ? cl_min(next, node->round.wait_until_ns) : next;
}

/* The core took a message: a node that joined learns from its leader who voted first. */
static void learn_first(struct cl_raft_node *node, const struct cl_raft_msg *m)
{
    if (node->config.raft.first_voters || !m->first_voters || cl_raft_leader(node->raft) != m->from)
        return;
    node_first_set(node, m->first_voters);
    node_disk_rewrite(node);
}

void cl_raft_node_receive(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes)
{
    cl_count(&node->count.frames_in, 1);
    if (node->state != CL_RAFT_RUNNING) {
        cl_count(&node->count.frames_refused, 1);
        return;
    }
    if (node_frame(node, data, bytes) || node_incarnations_frame(node, data, bytes))
        return;
    struct cl_raft_msg m;
    if (cl_raft_decode(node->config.raft.cluster, data, bytes, &m, &node->wire) || !m.from ||
        m.from == node->config.raft.id) {
        cl_count(&node->count.frames_refused, 1);
        return;
    }
    if (!node_settings_good(node, m.from, m.group_settings) || !node_incarnation_good(node, m.from, m.incarnation) ||
        !node_first_good(node, m.from, m.first_voters))
        return;
    node_advance_ticks(node); /* what it promises by this counts from now, not from when this node last ran */
    if (!cl_raft_step(node->raft, &m))
        learn_first(node, &m);
    node_note_leader(node);
    if (m.type == CL_RAFT_APPEND_REPLY)
        node_stages_heard(node, m.from);
    if (m.type == CL_RAFT_SNAPSHOT)
        node_drive(node); /* its chunk points into `data` */
}

int cl_raft_node_state(const struct cl_raft_node *node)
{
    return cl_load_acquire(&node->state);
}

const char *cl_raft_node_why(const struct cl_raft_node *node)
{
    return node->why;
}

uint64_t cl_raft_node_led_ns(const struct cl_raft_node *node)
{
    return node->led_ns;
}

struct cl_raft *cl_raft_node_core(struct cl_raft_node *node)
{
    return node->raft;
}

void cl_raft_node_counters(const struct cl_raft_node *node, struct cl_raft_node_counters *out)
{
    cl_counts_copy(out, &node->count, sizeof *out);
    cl_raft_suspects(node->raft, &out->gone_back_node, &out->contradicting_node);
}

void cl_raft_node_wire(const struct cl_raft_node *node, struct cl_raft_wire_counters *out)
{
    *out = node->wire;
}

void cl_raft_node_compact(struct cl_raft_node *node)
{
    node->compact_asked = 1;
}

static const uint8_t *say_blob(const struct node_blob *b, uint64_t *index, uint64_t *term, uint64_t *bytes)
{
    *index = b->index;
    *term = b->term;
    *bytes = b->bytes;
    return b->bytes ? b->data : NULL;
}

const uint8_t *cl_raft_node_snapshot(const struct cl_raft_node *node, uint64_t *index, uint64_t *term, uint64_t *bytes)
{
    return say_blob(&node->snapshot, index, term, bytes);
}

void cl_raft_node_hold(struct cl_raft_node *node, int hold)
{
    node_blob_free(&node->held);
    node->held_index = hold ? node->snapshot.index : 0;
}

const uint8_t *cl_raft_node_held(const struct cl_raft_node *node, uint64_t *index, uint64_t *term, uint64_t *bytes)
{
    static const struct node_blob none;
    bool newest = node->held_index && node->held_index == node->snapshot.index;
    const struct node_blob *b = newest ? &node->snapshot : node->held_index ? &node->held : &none;
    return say_blob(b, index, term, bytes);
}
