/* The core's entry: making one, messages in, ticks, and what ready and poll hand out. See raft.h. */
#include "internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_default32(uint32_t *field, uint32_t value)
{
    *field = *field ? *field : value;
}

static void set_default64(uint64_t *field, uint64_t value)
{
    *field = *field ? *field : value;
}

static void set_defaults(struct cl_raft_config *c)
{
    set_default32(&c->election_ticks, 10);
    set_default32(&c->heartbeat_ticks, cl_max(c->election_ticks / 5, 1u));
    set_default32(&c->disk_ticks, 5 * c->election_ticks);
    set_default32(&c->lease_margin_ticks, c->election_ticks / 4);
    set_default32(&c->inflight_messages, 64);
    set_default32(&c->message_bytes, 60000);
    set_default32(&c->entry_bytes, 1 << 20);
    set_default32(&c->log_entries, 65536);
    set_default32(&c->trailing_entries, c->log_entries / 8);
    set_default64(&c->log_bytes, 64 << 20);
    set_default64(&c->inflight_bytes, 4 << 20);
    set_default64(&c->uncommitted_bytes, c->log_bytes / 2);
    set_default32(&c->pending_reads, 1024);
}

static bool power_of_two(uint64_t v)
{
    return v && !(v & (v - 1));
}

static const char *refusal(const struct cl_raft_config *c)
{
    if (!c->id)
        return "id: 0 means no node";
    if (c->election_ticks < 3 || c->election_ticks > 1u << 20)
        return "election_ticks: 3 to 2^20";
    if (c->heartbeat_ticks >= c->election_ticks)
        return "heartbeat_ticks: less than election_ticks";
    if (c->inflight_messages > RAFT_INFLIGHT_MAX)
        return "inflight_messages: 256 at most";
    if (c->message_bytes < 64 || c->message_bytes > 1u << 30 || c->entry_bytes > 1u << 30)
        return "message_bytes: 64 to 2^30; entry_bytes: up to 2^30";
    if (!power_of_two(c->log_entries) || c->log_entries < 4 * RAFT_SPARE_ENTRIES)
        return "log_entries: a power of two, 32 or more";
    if (!power_of_two(c->log_bytes) || c->log_bytes / 2 < (uint64_t)c->entry_bytes + RAFT_SPARE_BYTES)
        return "log_bytes: a power of two, at least twice entry_bytes and 8192 more";
    if (c->pending_reads > 1u << 20)
        return "pending_reads: up to 2^20";
    if (c->members.n_voters && !raft_members_valid(&c->members))
        return "members: distinct ids that are not 0, voters not among the learners, 16 in all";
    return NULL;
}

int cl_raft_new(const struct cl_raft_config *config, struct cl_raft **out, char err[256])
{
    struct cl_raft_config c = *config;
    set_defaults(&c);
    const char *why = refusal(&c);
    if (why) {
        snprintf(err, 256, "a Raft node cannot be made with this %s", why);
        return -EINVAL;
    }
    struct cl_raft *r = calloc(1, sizeof(*r));
    if (r) {
        r->config = c;
        r->reads = calloc(c.pending_reads, sizeof(*r->reads));
        r->answers = calloc(c.pending_reads, sizeof(*r->answers));
    }
    if (!r || !r->reads || !r->answers || raft_log_new(&r->log, c.log_entries, c.log_bytes)) {
        cl_raft_delete(r);
        snprintf(err, 256, "no memory for a Raft log of %llu bytes", (unsigned long long)c.log_bytes);
        return -ENOMEM;
    }
    r->random = c.seed ^ ((uint64_t)c.id << 32);
    r->promised_until = c.lease_reads ? c.election_ticks : 0; /* it may not know to whom */
    raft_members_set(r, &c.members, 0);
    r->base_members = r->snapshot_members = c.members;
    raft_reset_timeout(r);
    *out = r;
    return 0;
}

void cl_raft_delete(struct cl_raft *r)
{
    if (!r)
        return;
    raft_log_free(&r->log);
    free(r->reads);
    free(r->answers);
    free(r);
}

int cl_raft_restore(struct cl_raft *r, uint64_t term, uint32_t vote, uint64_t snapshot_index, uint64_t snapshot_term,
                    uint64_t snapshot_bytes, const struct cl_raft_members *members)
{
    if (r->ticks || r->log.last || r->term)
        return -EBUSY;
    if ((members && members->n_voters && !raft_members_valid(members)) ||
        (snapshot_index && (!members || !snapshot_term)))
        return -EINVAL;
    r->term = cl_max(term, snapshot_term);
    r->vote = r->term == term ? vote : 0;
    if (snapshot_index) {
        raft_log_reset(&r->log, snapshot_index, snapshot_term);
        r->snapshot_index = r->commit = r->applied = r->apply_handed = snapshot_index;
        r->snapshot_term = snapshot_term;
        r->snapshot_bytes = snapshot_bytes;
    }
    if (members) {
        r->base_members = r->snapshot_members = *members;
        r->base_members_index = snapshot_index;
        raft_members_set(r, members, snapshot_index);
    }
    return 0;
}

int cl_raft_restore_entry(struct cl_raft *r, uint64_t term, uint32_t kind, const uint8_t *data, uint32_t bytes)
{
    if (!term || term < raft_log_term(&r->log, r->log.last) || kind > CL_RAFT_MEMBERS)
        return -EINVAL;
    int rc = raft_log_append(&r->log, term, kind, data, bytes, 0, 0);
    if (rc)
        return rc;
    if (kind == CL_RAFT_MEMBERS && !raft_members_appended(r, r->log.last, data, bytes))
        return -EINVAL;
    r->log.durable = r->log.last;
    r->log.unstable = r->log.last + 1;
    if (term > r->term) { /* the entry became durable, the term that came with it did not: no vote was given in it */
        r->term = term;
        r->vote = 0;
        raft_hard_changed(r);
    }
    return 0;
}

void cl_raft_restore_commit(struct cl_raft *r, uint64_t index)
{
    r->commit = cl_max(r->commit, cl_min(index, r->log.last));
}

void raft_hard_changed(struct cl_raft *r)
{
    if (raft_hard_ok(r))
        r->hard_since = r->ticks;
    r->hard_seq++;
}

void raft_become_follower(struct cl_raft *r, uint64_t term, uint32_t leader)
{
    raft_stop_leading(r);
    if (term > r->term) {
        r->term = term;
        r->vote = 0;
        raft_hard_changed(r);
        r->grant_to = 0;
        r->stood = 0;
        r->verified = 0;
        r->heard_round = 0;
        r->full = 0;
        r->ack_due = 0;
        if (!r->in.handed && !r->in.installing)
            r->in = (struct raft_incoming){0};
    }
    r->role = CL_RAFT_FOLLOWER;
    r->leader = leader;
    if (leader) {
        r->stood = 0;
        r->hard_took = 0; /* the next election finds out anew what the disk takes */
    }
    r->force = 0;
    for (uint32_t i = 0; i < r->n_peers; i++)
        r->peers[i].vote_due = 0;
    raft_reset_timeout(r);
}

void raft_message(const struct cl_raft *r, struct cl_raft_msg *m, uint8_t type, uint32_t to)
{
    memset(m, 0, offsetof(struct cl_raft_msg, members));
    m->type = type;
    m->from = r->config.id;
    m->to = to;
    m->term = r->term;
}

struct cl_raft_msg *raft_reply(struct cl_raft *r, uint8_t type, uint32_t to)
{
    /* One place more than is used is what a reply is written to that there is no room for. */
    uint32_t at = (r->replies_head + r->replies_count) % RAFT_REPLIES;
    if (r->replies_count < RAFT_REPLIES - 1)
        r->replies_count++;
    else
        r->count.replies_dropped++;
    raft_message(r, &r->replies[at], type, to);
    return &r->replies[at];
}

static bool is_vote_request(uint8_t type)
{
    return type == CL_RAFT_VOTE || type == CL_RAFT_PREVOTE;
}

static bool from_leader(uint8_t type)
{
    return type == CL_RAFT_APPEND || type == CL_RAFT_SNAPSHOT;
}

/* A message of an older term. Its sender is told of ours where that gets something going: a deposed leader, or a node
 * that asks for votes, would else never learn of it. */
static int on_older_term(struct cl_raft *r, const struct cl_raft_msg *m)
{
    r->count.stale_term++;
    if (from_leader(m->type)) {
        struct cl_raft_msg *reply = raft_reply(r, CL_RAFT_APPEND_REPLY, m->from);
        reply->flags = CL_RAFT_REJECT;
        reply->index = m->index;
    } else if (is_vote_request(m->type)) {
        uint8_t type = m->type == CL_RAFT_VOTE ? CL_RAFT_VOTE_REPLY : CL_RAFT_PREVOTE_REPLY;
        raft_reply(r, type, m->from)->flags = CL_RAFT_REJECT;
    }
    return 1;
}

/* Adopt a later term unless the message is of a pre-vote, which has not begun that term. */
static void on_newer_term(struct cl_raft *r, const struct cl_raft_msg *m)
{
    bool granted = m->type == CL_RAFT_PREVOTE_REPLY && !(m->flags & CL_RAFT_REJECT);
    if (m->type != CL_RAFT_PREVOTE && !granted)
        raft_become_follower(r, m->term, 0);
}

static int on_timeout_now(struct cl_raft *r, const struct cl_raft_msg *m)
{
    bool from_another = r->leader && r->leader != m->from;
    if (!raft_promotable(r) || r->role == CL_RAFT_LEADER || from_another) {
        r->count.ignored++;
        return 1;
    }
    raft_campaign(r, true);
    return 0;
}

/* What only a leader gets. */
static int on_reply(struct cl_raft *r, const struct cl_raft_msg *m)
{
    struct raft_peer *p = raft_find_peer(r, m->from);
    if (r->role != CL_RAFT_LEADER || !p) {
        r->count.ignored++;
        return 1;
    }
    return m->type == CL_RAFT_APPEND_REPLY ? raft_on_append_reply(r, p, m) : raft_on_snapshot_reply(r, p, m);
}

static int dispatch(struct cl_raft *r, const struct cl_raft_msg *m)
{
    switch (m->type) {
    case CL_RAFT_PREVOTE:
        return raft_on_prevote(r, m);
    case CL_RAFT_VOTE:
        return raft_on_vote(r, m);
    case CL_RAFT_PREVOTE_REPLY:
    case CL_RAFT_VOTE_REPLY:
        return raft_on_vote_reply(r, m);
    case CL_RAFT_APPEND:
        return raft_on_append(r, m);
    case CL_RAFT_SNAPSHOT:
        return raft_on_snapshot(r, m);
    case CL_RAFT_APPEND_REPLY:
    case CL_RAFT_SNAPSHOT_REPLY:
        return on_reply(r, m);
    case CL_RAFT_TIMEOUT_NOW:
        return on_timeout_now(r, m);
    case CL_RAFT_READ:
        return raft_on_read(r, m);
    default:
        return raft_on_read_reply(r, m);
    }
}

/* A message that is not for us to act on. Returns true, counted. */
static bool unwanted(struct cl_raft *r, const struct cl_raft_msg *m)
{
    if (m->to != r->config.id) {
        r->count.refused_cluster++;
        return true;
    }
    /* Those that are asked for nothing cannot have an answer. A node that does not know of its removal, or a member
     * that this node does not know of yet, may ask for votes and may lead. */
    bool asks = is_vote_request(m->type) || from_leader(m->type) || m->type == CL_RAFT_TIMEOUT_NOW;
    if (!asks && !raft_find_peer(r, m->from)) {
        r->count.from_strangers++;
        return true;
    }
    bool refuses = is_vote_request(m->type) && !(m->flags & CL_RAFT_FORCE) && raft_refuses_votes(r, m);
    r->count.ignored += refuses;
    return refuses;
}

int cl_raft_step(struct cl_raft *r, const struct cl_raft_msg *m)
{
    r->count.messages_in++;
    if (r->in.pending) { /* the driver did not ask for it in time, and its bytes are gone */
        r->in = (struct raft_incoming){0};
        r->count.chunks_refused++;
    }
    if (!m->type || m->type >= CL_RAFT_TYPES || !m->from || m->from == r->config.id || !m->term ||
        m->term == UINT64_MAX) {
        r->count.refused_field++;
        return -EINVAL;
    }
    if (r->role == CL_RAFT_FAILED) {
        r->count.ignored++;
        return -EIO;
    }
    if (unwanted(r, m))
        return 1;
    if (m->term < r->term)
        return on_older_term(r, m);
    if (m->term > r->term)
        on_newer_term(r, m);
    if (from_leader(m->type)) {
        if (r->role == CL_RAFT_LEADER || (r->leader && r->leader != m->from)) {
            r->count.refused_field++; /* two leaders of one term: cannot be */
            return -EINVAL;
        }
        if (r->role != CL_RAFT_FOLLOWER || !r->leader)
            raft_become_follower(r, r->term, m->from);
        r->elapsed = r->tries = 0;
        r->gave_way = 0;
        if (r->config.lease_reads)
            r->promised_until = r->ticks + r->config.election_ticks;
    }
    int rc = dispatch(r, m);
    r->count.handled += !rc;
    return rc;
}

/* Time that passes for leases and for the disk: does that get on with what it was given? Becoming durable sets it
 * back. */
static void time_passes(struct cl_raft *r, uint32_t ticks)
{
    bool waits = r->hard_durable != r->hard_handed || r->log.durable + 1 < r->log.unstable;
    r->ticks += ticks;
    r->disk_elapsed = waits ? r->disk_elapsed + ticks : 0;
}

void cl_raft_missed_ticks(struct cl_raft *r, uint32_t ticks)
{
    time_passes(r, ticks);
    if (r->role == CL_RAFT_LEADER)
        r->heartbeat_elapsed += ticks; /* the next is due */
}

void cl_raft_tick(struct cl_raft *r)
{
    time_passes(r, 1);
    if (r->role == CL_RAFT_LEADER && raft_disk_hangs(r))
        raft_yield(r);
    if (r->role == CL_RAFT_LEADER)
        raft_leader_tick(r);
    else if (r->role != CL_RAFT_FAILED)
        raft_election_tick(r);
}

void cl_raft_campaign(struct cl_raft *r)
{
    if (r->role != CL_RAFT_LEADER && raft_promotable(r) && !raft_promised(r))
        raft_campaign_pre(r);
}

static int proposal_refusal(const struct cl_raft *r, uint32_t bytes)
{
    if (r->role == CL_RAFT_FAILED)
        return -EIO;
    if (r->role != CL_RAFT_LEADER)
        return -EPERM;
    if (r->transfer_to)
        return -EBUSY;
    if (bytes > r->config.entry_bytes)
        return -EMSGSIZE;
    return raft_log_used_bytes(&r->log, r->commit + 1) > r->config.uncommitted_bytes ? -EAGAIN : 0;
}

static int append_proposal(struct cl_raft *r, const void *data, uint32_t bytes)
{
    return raft_log_append(&r->log, r->term, CL_RAFT_COMMAND, data, bytes, RAFT_SPARE_ENTRIES, RAFT_SPARE_BYTES);
}

int cl_raft_propose(struct cl_raft *r, const void *data, uint32_t bytes, uint64_t *index, uint64_t *term)
{
    int rc = proposal_refusal(r, bytes);
    if (!rc && (rc = append_proposal(r, data, bytes)) && raft_drop_held_by_all(r))
        rc = append_proposal(r, data, bytes);
    if (rc) {
        r->count.proposals_refused++;
        return rc;
    }
    r->count.proposals++;
    r->count.entries_appended++;
    *index = r->log.last;
    *term = r->term;
    return 0;
}

void cl_raft_fail(struct cl_raft *r)
{
    if (r->role == CL_RAFT_FAILED)
        return;
    raft_stop_leading(r);
    r->role = CL_RAFT_FAILED;
    r->leader = 0;
    r->replies_count = 0;
}
