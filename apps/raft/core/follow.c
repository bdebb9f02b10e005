/* A follower's side of replication: AppendEntries, where the logs differ, and acknowledgements once entries are
 * durable. */
#include "internal.h"
#include <errno.h>

/* The entries are whole, of known kinds, and their terms neither go back nor beyond the sender's. */
static bool entries_sane(const struct cl_raft *r, const struct cl_raft_msg *m)
{
    const uint8_t *p = m->data, *end = m->data + m->data_bytes;
    uint64_t term = m->log_term;
    struct cl_raft_entry e;
    for (uint32_t i = 0; i < m->n_entries; i++) {
        if (raft_entry_next(&p, end, &e) || e.term < term || e.term > m->term || e.bytes > r->config.entry_bytes)
            return false;
        term = e.term;
    }
    return p == end;
}

static void refuse_append(struct cl_raft *r, const struct cl_raft_msg *m)
{
    struct cl_raft_msg *reply = raft_reply(r, CL_RAFT_APPEND_REPLY, m->from);
    reply->flags = CL_RAFT_REJECT;
    reply->index = m->index;
    reply->hint = raft_log_agree(&r->log, m->index, m->log_term);
    reply->log_term = raft_log_term(&r->log, reply->hint);
    reply->round = r->heard_round;
    reply->received = r->verified;
    r->count.rejected_appends++;
}

#define CONTRADICTS (-EBADMSG)

/* Who leads does not have what was committed: a majority's logs were lost, or old copies put in their place. Nothing of
 * it is taken, no snapshot either (raft_on_snapshot), and somebody has to be told. */
static void contradicted(struct cl_raft *r, const struct cl_raft_msg *m)
{
    cl_store_relaxed(&r->count.contradicting_node, m->from); /* relaxed: whoever watches reads it */
    r->count.contradictions++;
}

/* Take one entry in. 0; 1: no room; CONTRADICTS what is committed; -EINVAL: it cannot be read. */
static int take_entry(struct cl_raft *r, uint64_t index, const struct cl_raft_entry *e)
{
    if (index < r->log.first)
        return 0;
    if (index <= r->log.last) {
        if (raft_slot(&r->log, index)->term == e->term)
            return 0;
        if (index <= r->commit)
            return CONTRADICTS;
        r->count.entries_truncated += r->log.last + 1 - index;
        raft_log_truncate(&r->log, index);
        raft_members_truncated(r);
    }
    if (raft_append(r, e->term, e->kind, e->data, e->bytes)) {
        r->count.entries_refused++;
        return 1;
    }
    r->count.entries_appended++;
    if (e->kind == CL_RAFT_MEMBERS && !raft_members_appended(r, index, e->data, e->bytes)) {
        raft_log_truncate(&r->log, index);
        return -EINVAL;
    }
    return 0;
}

/* Take the entries of a message that fits our log. Returns < 0 at the first that no correct leader sends. */
static int take_entries(struct cl_raft *r, const struct cl_raft_msg *m)
{
    const uint8_t *p = m->data, *end = m->data + m->data_bytes;
    uint64_t index = m->index, appended = r->count.entries_appended;
    int rc = 0;
    for (uint32_t i = 0; i < m->n_entries && !rc; i++) {
        struct cl_raft_entry e;
        raft_entry_next(&p, end, &e);
        rc = take_entry(r, index + 1, &e);
        index += !rc;
    }
    /* An append that brings nothing new says nothing about room: a leader told that there is some sends a window
     * full. */
    r->full = rc == 1 || (r->full && r->count.entries_appended == appended);
    if (r->count.entries_appended > appended) /* behind what is here, so it is there, too */
        cl_store_relaxed(&r->count.contradicting_node, 0);
    r->verified = cl_max(r->verified, index);
    r->commit = cl_max(r->commit, cl_min(m->commit, r->verified));
    return rc < 0 ? rc : 0;
}

int raft_on_append(struct cl_raft *r, const struct cl_raft_msg *m)
{
    uint64_t prev = m->index;
    uint64_t term = raft_log_term(&r->log, prev);
    bool held = prev + 1 >= r->log.first && prev <= r->log.last;
    /* What is committed is the same everywhere, so a difference there is damage or a node that lies. */
    bool contradicts = held && prev && prev <= r->commit && term != m->log_term;
    if (!entries_sane(r, m) || contradicts) {
        if (contradicts)
            contradicted(r, m);
        r->count.refused_field++;
        return -EINVAL;
    }
    r->heard_round = cl_max(r->heard_round, m->round);
    if (prev > r->log.last || (prev > r->commit && term != m->log_term)) {
        refuse_append(r, m);
        return 0;
    }
    uint64_t before = r->verified;
    int rc = take_entries(r, m);
    if (rc) {
        if (rc == CONTRADICTS)
            contradicted(r, m);
        r->count.refused_field++;
        return -EINVAL;
    }
    /* The answer to new entries waits until they are durable (cl_raft_persisted). */
    bool nothing_to_wait_for = r->verified == before || r->verified <= r->log.durable;
    if (!m->n_entries || (m->flags & CL_RAFT_PROMPT) || r->full || nothing_to_wait_for)
        r->ack_due = 1;
    return 0;
}

static bool poll_grant(struct cl_raft *r, struct cl_raft_msg *m)
{
    if (!r->grant_to)
        return false;
    raft_message(r, m, CL_RAFT_VOTE_REPLY, r->grant_to);
    r->grant_to = 0;
    return true;
}

/* What a follower or candidate has to say of itself, now that its term and vote are durable. */
bool raft_poll_follower(struct cl_raft *r, struct cl_raft_msg *m)
{
    if (!raft_hard_ok(r))
        return false;
    if (poll_grant(r, m))
        return true;
    if (!r->ack_due || !r->leader || r->role != CL_RAFT_FOLLOWER)
        return false;
    r->ack_due = 0;
    raft_message(r, m, CL_RAFT_APPEND_REPLY, r->leader);
    m->index = cl_min(r->verified, r->log.durable);
    m->received = r->verified;
    m->round = r->heard_round;
    m->flags = r->full ? CL_RAFT_FULL : 0;
    return true;
}
