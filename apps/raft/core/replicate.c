/* A leader: its log goes to the others by progress, and what a quorum has stored is committed. */
#include "internal.h"
#include <errno.h>
#include <string.h>

static void inflight_clear(struct raft_peer *p)
{
    p->inflight_count = 0;
    p->inflight_bytes = 0;
}

static void inflight_free(struct raft_peer *p, uint64_t received)
{
    while (p->inflight_count) {
        struct raft_inflight *f = &p->inflight[p->inflight_head % RAFT_INFLIGHT_MAX];
        if (f->last > received)
            break;
        p->inflight_bytes -= f->bytes;
        p->inflight_head++;
        p->inflight_count--;
    }
}

static void inflight_add(struct raft_peer *p, uint64_t last, uint32_t bytes)
{
    p->inflight[(p->inflight_head + p->inflight_count++) % RAFT_INFLIGHT_MAX] = (struct raft_inflight){last, bytes};
    p->inflight_bytes += bytes;
}

void raft_peer_probe(struct raft_peer *p, uint64_t next)
{
    p->state = CL_RAFT_PROBE;
    p->next = next;
    p->paused = 0;
    inflight_clear(p);
}

/* Begin to search where its log agrees with ours. What it had for good is forgotten with `known` alone (raft_lead). */
void raft_peer_reset(struct cl_raft *r, struct raft_peer *p)
{
    uint32_t id = p->id;
    memset(p, 0, sizeof(*p));
    p->id = id;
    p->active = 1;
    raft_peer_probe(p, r->log.last + 1);
}

static int append_own(struct cl_raft *r, uint32_t kind, const void *data, uint32_t bytes)
{
    int rc = raft_append(r, r->term, kind, data, bytes);
    r->count.entries_appended += !rc;
    return rc;
}

void raft_lead(struct cl_raft *r)
{
    r->role = CL_RAFT_LEADER;
    r->leader = r->config.id;
    r->heartbeat_elapsed = r->quorum_elapsed = 0;
    r->transfer_to = 0;
    r->lease_lost = 0;
    r->lease_until = 0;
    r->ack_due = 0;
    r->grant_to = 0;
    r->tries = r->stood = 0;
    r->hard_took = 0;
    r->count.elections_won++;
    for (uint32_t i = 0; i < r->n_peers; i++) {
        struct raft_peer *p = &r->peers[i];
        uint64_t known = p->known, term = p->known_term, round = p->known_round;
        raft_peer_reset(r, p);
        p->heartbeat_due = 1;
        p->known = known;
        p->known_term = term;
        p->known_round = round;
    }
    raft_new_round(r);
    raft_pace_lead(r);
    /* Entries of older terms are committed only by way of one of this term (paper 5.4.2), so there must be one. */
    if (append_own(r, CL_RAFT_NOOP, NULL, 0)) {
        r->count.entries_refused++;
        raft_become_follower(r, r->term, 0);
    }
}

void raft_stop_leading(struct cl_raft *r)
{
    if (r->role != CL_RAFT_LEADER)
        return;
    r->count.stepped_down++;
    r->transfer_to = 0;
    raft_reads_fail(r);
}

bool raft_committed_in_term(const struct cl_raft *r)
{
    return raft_log_term(&r->log, r->commit) == r->term;
}

static uint64_t match_of(const struct cl_raft *r, uint32_t id)
{
    if (id == r->config.id)
        return r->log.durable;
    const struct raft_peer *p = raft_find_peer((struct cl_raft *)r, id);
    return p && !p->gone_back ? p->match : 0;
}

static uint64_t match_but_own(const struct cl_raft *r, uint32_t id)
{
    return id == r->config.id ? r->log.last : match_of(r, id);
}

uint64_t cl_raft_others(const struct cl_raft *r)
{
    return r->role == CL_RAFT_LEADER ? raft_quorum(r, match_but_own) : 0;
}

/* Only entries of the leader's own term are committed by counting; all before them with them (paper 5.4.2). */
void raft_advance_commit(struct cl_raft *r)
{
    uint64_t n = raft_quorum(r, match_of);
    if (n <= r->commit || n > r->log.last || raft_log_term(&r->log, n) != r->term)
        return;
    uint64_t before = r->commit;
    r->commit = n;
    raft_pace_committed(r, before);
    raft_reads_confirm(r);
    raft_members_committed(r);
}

static uint64_t is_active(const struct cl_raft *r, uint32_t id)
{
    const struct raft_peer *p = raft_find_peer((struct cl_raft *)r, id);
    return id == r->config.id || (p && p->active);
}

/* Step down unless a quorum was heard from since the last check. */
static bool check_quorum(struct cl_raft *r)
{
    bool ok = raft_quorum(r, is_active);
    for (uint32_t i = 0; i < r->n_peers; i++) {
        struct raft_peer *p = &r->peers[i];
        p->active = 0;
        p->heard -= p->heard > 0;
    }
    if (!ok) {
        r->count.quorum_lost++;
        raft_become_follower(r, r->term, 0);
    }
    return ok;
}

/* The own disk hangs. Step down in favour of the voter that has most, if one is heard from whose disk gets on: it has
 * what is not durable here. It does not wait for its timeout. Where all disks are as slow, an election on them would
 * only cost. */
void raft_yield(struct cl_raft *r)
{
    struct raft_peer *best = NULL;
    for (uint32_t i = 0; i < r->n_peers; i++) {
        struct raft_peer *p = &r->peers[i];
        if (p->active && p->match > r->log.durable && raft_is_voter(&r->members, p->id) &&
            (!best || p->match > best->match))
            best = p;
    }
    if (!best)
        return;
    raft_reply(r, CL_RAFT_TIMEOUT_NOW, best->id);
    r->count.disk_hung++;
    raft_become_follower(r, r->term, 0);
}

void raft_leader_tick(struct cl_raft *r)
{
    raft_pace_tick(r);
    if (++r->quorum_elapsed >= r->config.election_ticks) {
        r->quorum_elapsed = 0;
        if (!check_quorum(r))
            return;
    }
    if (r->transfer_to && ++r->transfer_elapsed >= r->config.election_ticks)
        r->transfer_to = 0;
    for (uint32_t i = 0; i < r->n_peers; i++)
        raft_snapshot_tick(r, &r->peers[i]);
    if (++r->heartbeat_elapsed < r->config.heartbeat_ticks)
        return;
    r->heartbeat_elapsed = 0;
    /* The log may have been full when a configuration was committed, and nothing be proposed since. */
    raft_members_committed(r);
    if (r->role != CL_RAFT_LEADER)
        return;
    raft_new_round(r);
    for (uint32_t i = 0; i < r->n_peers; i++) {
        r->peers[i].heartbeat_due = 1;
        raft_transfer_step(r, &r->peers[i]);
    }
}

/* A follower was heard from in this term, and it has heard `round`. */
void raft_peer_heard(struct cl_raft *r, struct raft_peer *p, uint64_t round)
{
    p->active = 1;
    p->heard = RAFT_HEARD_CHECKS;
    if (round <= p->acked_round)
        return;
    p->acked_round = round;
    raft_reads_confirm(r);
}

void raft_transfer_step(struct cl_raft *r, struct raft_peer *p)
{
    if (r->role != CL_RAFT_LEADER || r->transfer_to != p->id || p->match != r->log.last)
        return;
    raft_reply(r, CL_RAFT_TIMEOUT_NOW, p->id);
    r->lease_lost = 1; /* its election does not wait for our lease */
    r->lease_until = 0;
}

void raft_peer_ends(struct cl_raft *r, struct raft_peer *p, uint64_t index)
{
    p->gone_back = index < p->known;
    r->count.gone_back += p->gone_back;
    if (p->gone_back || r->count.gone_back_node == p->id)
        cl_store_relaxed(&r->count.gone_back_node, p->gone_back ? p->id : 0); /* relaxed: whoever watches reads it */
}

/* Whether a node's answer counts: its log holds what it acknowledged before. A reject says where the log ends at most,
 * of what is ours too; one that was sent before that acknowledgement says nothing. */
static bool log_is_whole(struct cl_raft *r, struct raft_peer *p, const struct cl_raft_msg *m)
{
    bool reject = m->flags & CL_RAFT_REJECT;
    if (reject && m->round > p->known_round)
        raft_peer_ends(r, p, m->hint);
    else if (!reject && p->gone_back && m->index >= p->known)
        raft_peer_ends(r, p, m->index); /* it was started with the right one */
    return !p->gone_back;
}

/* What a node has for good: no correct log of its ever lacks that. */
static void note_known(struct cl_raft *r, struct raft_peer *p, uint64_t round)
{
    uint64_t known = cl_min(p->match, r->commit);
    if (known <= p->known)
        return;
    p->known = known;
    p->known_term = r->term;
    p->known_round = round;
}

static void on_reject(struct cl_raft *r, struct raft_peer *p, const struct cl_raft_msg *m)
{
    uint64_t known = cl_max(p->match, cl_min(m->received, r->log.last));
    if (p->state == CL_RAFT_REPLICATE) {
        if (m->index > known)
            raft_peer_probe(p, known + 1);
    } else if (p->state == CL_RAFT_PROBE && m->index + 1 == p->next) {
        uint64_t agree = raft_log_agree(&r->log, m->hint, m->log_term);
        raft_peer_probe(p, cl_max(known, cl_min(agree, m->index - 1)) + 1);
    } else {
        return; /* of an older message */
    }
    r->count.resent_probes++;
}

int raft_on_append_reply(struct cl_raft *r, struct raft_peer *p, const struct cl_raft_msg *m)
{
    bool reject = m->flags & CL_RAFT_REJECT;
    if ((!reject && (m->index > r->log.last || m->received > r->log.last)) || m->round > r->round ||
        (reject && (!m->index || m->hint > m->index))) {
        r->count.refused_field++;
        return -EINVAL;
    }
    if (!log_is_whole(r, p, m)) {
        r->count.ignored++;
        return 1;
    }
    raft_peer_heard(r, p, m->round);
    if (reject) {
        on_reject(r, p, m);
        return 0;
    }
    uint64_t received = cl_max(m->received, m->index);
    inflight_free(p, received);
    bool was_full = p->full;
    p->full = (m->flags & CL_RAFT_FULL) != 0;
    if (m->index > p->match)
        p->match = m->index;
    note_known(r, p, m->round);
    if (p->state == CL_RAFT_SNAPSHOTTING) {
        if (p->match + 1 >= r->log.first)
            raft_peer_probe(p, p->match + 1);
    } else if (p->state == CL_RAFT_PROBE) {
        if (received + 1 >= p->next || received) {
            p->state = CL_RAFT_REPLICATE;
            p->next = cl_max(received, p->match) + 1;
            inflight_clear(p);
        }
    } else if (p->full || was_full) {
        p->next = cl_max(received, p->match) + 1; /* what did not fit is sent again once there is room */
        inflight_clear(p);
    } else {
        p->next = cl_max(p->next, received + 1);
    }
    raft_advance_commit(r);
    raft_transfer_step(r, p);
    return 0;
}

/* Entries from p->next on that go into one message: how many, and their encoded bytes. At least one if there is any. */
static uint32_t entries_for(const struct cl_raft *r, const struct raft_peer *p, uint32_t *bytes)
{
    uint32_t n = 0;
    *bytes = 0;
    uint64_t limit = raft_pace_limit(r, p);
    for (uint64_t i = p->next; i <= limit; i++, n++) {
        uint32_t more = RAFT_ENTRY_HEADER + raft_slot(&r->log, i)->bytes;
        if (n && *bytes + more > r->config.message_bytes)
            break;
        *bytes += more;
    }
    return n;
}

static void fill_append(struct cl_raft *r, struct raft_peer *p, struct cl_raft_msg *m, uint32_t n, uint32_t bytes)
{
    raft_message(r, m, CL_RAFT_APPEND, p->id);
    m->index = p->next - 1;
    m->log_term = raft_log_term(&r->log, p->next - 1);
    m->commit = r->commit;
    m->round = r->round;
    m->n_entries = n;
    m->data_bytes = bytes;
    m->flags = p->prompt ? CL_RAFT_PROMPT : 0;
    p->heartbeat_due = p->prompt = 0;
}

/* While a snapshot is on its way: say that there is a leader, and nothing of the log. */
static bool poll_core_heartbeat(struct cl_raft *r, struct raft_peer *p, struct cl_raft_msg *m)
{
    if (!p->heartbeat_due)
        return false;
    fill_append(r, p, m, 0, 0);
    m->index = m->log_term = 0;
    m->commit = 0;
    return true;
}

bool raft_poll_peer(struct cl_raft *r, struct raft_peer *p, struct cl_raft_msg *m)
{
    if (p->state != CL_RAFT_SNAPSHOTTING && p->next < r->log.first)
        raft_snapshot_begin(r, p);
    if (p->state == CL_RAFT_SNAPSHOTTING)
        return raft_poll_snapshot(r, p, m) || poll_core_heartbeat(r, p, m);
    uint32_t n, bytes;
    if (p->state == CL_RAFT_PROBE) {
        if (p->paused && !p->heartbeat_due)
            return false;
        /* The entries go once: the transport keeps them, and a heartbeat without them probes as well. */
        n = p->full || p->paused ? 0 : entries_for(r, p, &bytes);
        fill_append(r, p, m, n, n ? bytes : 0);
        p->paused = 1;
        return true;
    }
    bool room = p->inflight_count < r->config.inflight_messages && p->inflight_bytes < r->config.inflight_bytes;
    if (p->next <= raft_pace_limit(r, p) && room && !p->full) {
        n = entries_for(r, p, &bytes);
        fill_append(r, p, m, n, bytes);
        p->next += n;
        inflight_add(p, p->next - 1, bytes);
        return true;
    }
    if (!p->heartbeat_due)
        return false;
    fill_append(r, p, m, 0, 0);
    return true;
}
