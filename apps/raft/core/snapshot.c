/* Snapshots: compaction of the log, sending one in chunks, receiving one. */
#include "internal.h"
#include <errno.h>
#include <string.h>

/* Entries are kept behind a snapshot for followers that lag a little, as long as they take a quarter of the memory at
 * most. */
static uint64_t first_kept(const struct cl_raft *r, uint64_t index)
{
    uint64_t first = index > r->config.trailing_entries ? index - r->config.trailing_entries + 1 : 1;
    first = cl_max(first, r->log.first);
    while (first <= index && raft_log_used_bytes(&r->log, first) > r->config.log_bytes / 4)
        first++;
    return first;
}

/* A node that joined may have had to make room before it got the entry that added it. */
static bool can_send(const struct cl_raft *r)
{
    return r->snapshot_members.n_voters != 0;
}

/* Drop entries before `keep`, as far as they are durable: the rest when it is (cl_raft_persisted). Whether any went. */
static bool drop_before(struct cl_raft *r, uint64_t keep)
{
    keep = cl_min(keep, cl_min(r->log.unstable, r->log.durable + 1));
    if (r->role == CL_RAFT_LEADER)
        keep = cl_min(keep, r->spread + 1); /* what is held back from some goes to them as entries (pace.c) */
    if (keep <= r->log.first)
        return false;
    raft_members_compact(r, keep);
    raft_log_drop(&r->log, keep);
    return true;
}

/* Drop what the newest snapshot covers, but for what is kept behind it: nothing is, once an entry was refused for want
 * of room. The leader sends no more before it hears that there is some. */
void raft_drop_covered(struct cl_raft *r)
{
    if (!drop_before(r, r->full ? r->snapshot_index + 1 : first_kept(r, r->snapshot_index)))
        return;
    r->ack_due |= r->full; /* the leader waits to hear that there is room */
    r->full = 0;
}

int raft_append(struct cl_raft *r, uint64_t term, uint32_t kind, const void *data, uint32_t bytes)
{
    int rc = raft_log_append(&r->log, term, kind, data, bytes, 0, 0);
    if (rc && drop_before(r, r->snapshot_index + 1)) /* who lags gets the snapshot */
        rc = raft_log_append(&r->log, term, kind, data, bytes, 0, 0);
    return rc;
}

bool raft_drop_held_by_all(struct cl_raft *r)
{
    uint64_t keep = r->snapshot_index + 1;
    for (uint32_t i = 0; i < r->n_peers; i++)
        if (r->peers[i].active)
            keep = cl_min(keep, r->peers[i].match + 1);
    return drop_before(r, keep);
}

int cl_raft_compact(struct cl_raft *r, uint64_t index, uint64_t bytes, uint64_t *first)
{
    if (r->role == CL_RAFT_FAILED)
        return -EIO;
    struct cl_raft_members members;
    bool again = index == r->snapshot_index && !can_send(r);
    if ((index <= r->snapshot_index && !again) || cl_raft_members_at(r, index, &members))
        return -EINVAL;
    r->snapshot_members = members;
    r->snapshot_term = raft_log_term(&r->log, index);
    r->snapshot_index = index;
    r->snapshot_bytes = bytes;
    raft_drop_covered(r);
    *first = r->log.first;
    return 0;
}

int cl_raft_snapshot_wanted(const struct cl_raft *r)
{
    struct cl_raft_members members;
    return r->role == CL_RAFT_LEADER && r->snapshot_index && !can_send(r) && r->applied >= r->snapshot_index &&
           !cl_raft_members_at(r, r->applied, &members) && members.n_voters;
}

int cl_raft_snapshot_in_use(const struct cl_raft *r)
{
    if (!can_send(r))
        return 0;
    for (uint32_t i = 0; r->role == CL_RAFT_LEADER && i < r->n_peers; i++)
        if (r->peers[i].state == CL_RAFT_SNAPSHOTTING && r->peers[i].active)
            return 1;
    return 0;
}

static void send_anew(struct cl_raft *r, struct raft_peer *p)
{
    p->snap_index = r->snapshot_index;
    p->snap_acked = p->snap_sent = 0;
    p->snap_rewound = UINT64_MAX;
    p->snap_stall = 0;
    p->snap_last_sent = 0;
}

void raft_snapshot_begin(struct cl_raft *r, struct raft_peer *p)
{
    p->state = CL_RAFT_SNAPSHOTTING;
    p->inflight_count = 0;
    p->inflight_bytes = 0;
    r->count.snapshots_sent++;
    send_anew(r, p);
}

static void send_again_from_acked(struct raft_peer *p)
{
    p->snap_sent = p->snap_acked;
    p->snap_last_sent = 0;
    p->snap_stall = 0;
}

void raft_snapshot_tick(struct cl_raft *r, struct raft_peer *p)
{
    p->snap_wait = 0;
    /* From the start, for the receiver may have begun anew and its word of it been lost. It answers the first chunk
     * with how far it is, and the transfer goes on from there. */
    if (p->state == CL_RAFT_SNAPSHOTTING && ++p->snap_stall >= r->config.election_ticks)
        send_anew(r, p);
}

bool raft_poll_snapshot(struct cl_raft *r, struct raft_peer *p, struct cl_raft_msg *m)
{
    if (p->snap_index != r->snapshot_index)
        send_anew(r, p); /* there is a newer one */
    /* The first chunk goes alone: one that overtakes it would be refused. */
    uint64_t window = p->snap_acked ? (uint64_t)RAFT_CHUNKS_INFLIGHT * r->config.message_bytes : 1;
    if (!can_send(r) || p->snap_wait || p->snap_last_sent || p->snap_sent - p->snap_acked >= window)
        return false;
    raft_message(r, m, CL_RAFT_SNAPSHOT, p->id);
    m->index = r->snapshot_index;
    m->log_term = r->snapshot_term;
    m->offset = p->snap_sent;
    m->total = r->snapshot_bytes;
    m->data_bytes = (uint32_t)cl_min(r->snapshot_bytes - p->snap_sent, (uint64_t)r->config.message_bytes);
    m->members = r->snapshot_members;
    m->round = r->round;
    p->snap_sent += m->data_bytes;
    p->snap_last_sent = p->snap_sent == r->snapshot_bytes;
    r->count.chunks_sent++;
    return true;
}

int raft_on_snapshot_reply(struct cl_raft *r, struct raft_peer *p, const struct cl_raft_msg *m)
{
    if (m->round > r->round) {
        r->count.refused_field++;
        return -EINVAL;
    }
    raft_peer_heard(r, p, m->round);
    if (p->state != CL_RAFT_SNAPSHOTTING || m->index != p->snap_index || m->offset > r->snapshot_bytes) {
        r->count.ignored++;
        return 1;
    }
    if (m->flags & CL_RAFT_REJECT) {
        /* Once a tick: each chunk that is refused brings an answer, and each of these would bring all chunks again. */
        if (!p->snap_wait)
            send_anew(r, p);
        p->snap_wait = 1;
    } else if (m->offset > p->snap_acked) {
        p->snap_acked = m->offset;
        p->snap_stall = 0;
        if (p->snap_sent < p->snap_acked) { /* it kept what an earlier transfer brought it */
            p->snap_sent = p->snap_acked;
            p->snap_last_sent = p->snap_sent == r->snapshot_bytes;
        }
    } else if (m->offset == p->snap_acked && m->offset < p->snap_sent && p->snap_rewound != m->offset) {
        p->snap_rewound = m->offset; /* one behind it came, so it was lost; more answers like this are on their way */
        send_again_from_acked(p);
    }
    return 0;
}

static void answer_chunk(struct cl_raft *r, uint32_t to, uint64_t index, uint64_t offset, bool anew)
{
    struct cl_raft_msg *reply = raft_reply(r, CL_RAFT_SNAPSHOT_REPLY, to);
    reply->index = index;
    reply->offset = offset;
    reply->round = r->heard_round;
    reply->flags = anew ? CL_RAFT_REJECT : 0;
    r->count.chunks_refused += anew;
}

static bool chunk_sane(const struct cl_raft *r, const struct cl_raft_msg *m)
{
    bool last = m->offset + m->data_bytes == m->total;
    return m->index && m->log_term && m->log_term <= m->term && m->offset <= m->total &&
           m->data_bytes <= m->total - m->offset && (m->data_bytes || last) && raft_members_valid(&m->members) &&
           m->data_bytes <= r->config.message_bytes;
}

int raft_on_snapshot(struct cl_raft *r, const struct cl_raft_msg *m)
{
    struct raft_incoming *in = &r->in;
    if (!chunk_sane(r, m)) {
        r->count.refused_field++;
        return -EINVAL;
    }
    if (r->count.contradicting_node) { /* it would take the place of what is committed here, and perhaps nowhere else */
        r->count.ignored++;
        return 1;
    }
    r->heard_round = cl_max(r->heard_round, m->round);
    if (in->installing || in->handed) {
        r->count.ignored++;
        return 1;
    }
    if (m->index <= r->commit) { /* what is committed is the leader's, too */
        r->verified = cl_max(r->verified, r->commit);
        r->ack_due = 1;
        return 0;
    }
    if (in->index != m->index || in->term != m->log_term || in->from != m->from || in->total != m->total) {
        if (m->offset) {
            answer_chunk(r, m->from, m->index, 0, true);
            return 0;
        }
        *in = (struct raft_incoming){.index = m->index, .term = m->log_term, .from = m->from, .total = m->total};
    }
    if (m->offset != in->offset) {
        answer_chunk(r, m->from, m->index, in->offset, false);
        return 0;
    }
    in->pending = 1;
    in->data = m->data;
    in->bytes = m->data_bytes;
    in->last = m->offset + m->data_bytes == m->total;
    in->members = m->members;
    return 0;
}

void cl_raft_chunk_taken(struct cl_raft *r, int ok)
{
    struct raft_incoming *in = &r->in;
    if (!in->handed)
        return;
    in->handed = 0;
    uint32_t from = in->from;
    uint64_t index = in->index;
    if (ok) {
        in->offset += in->bytes;
        in->installing = in->last;
    } else {
        *in = (struct raft_incoming){0};
    }
    if (raft_hard_ok(r) || !ok)
        answer_chunk(r, from, index, in->offset, !ok);
}

int cl_raft_snapshot_installed(struct cl_raft *r, int ok)
{
    struct raft_incoming in = r->in;
    if (!in.installing)
        return 0;
    r->in = (struct raft_incoming){0};
    if (!ok) {
        answer_chunk(r, in.from, in.index, 0, true);
        return 0;
    }
    bool keep = in.index <= r->log.last && raft_log_term(&r->log, in.index) == in.term;
    r->count.snapshots_installed++;
    r->snapshot_index = in.index;
    r->snapshot_term = in.term;
    r->snapshot_bytes = in.total;
    r->snapshot_members = in.members;
    if (keep) {
        raft_log_drop(&r->log, in.index + 1);
        r->log.durable = cl_max(r->log.durable, in.index);
        r->log.unstable = cl_max(r->log.unstable, in.index + 1);
    } else {
        raft_log_reset(&r->log, in.index, in.term);
        r->verified = cl_min(r->verified, in.index);
    }
    r->base_members = in.members;
    r->base_members_index = in.index;
    if (!keep || r->members_index <= in.index)
        raft_members_set(r, &in.members, in.index);
    r->commit = cl_max(r->commit, in.index);
    r->applied = r->apply_handed = in.index;
    if (r->role == CL_RAFT_FOLLOWER && r->leader) {
        r->verified = cl_max(r->verified, in.index);
        r->ack_due = 1;
    }
    r->full = 0;
    return keep;
}
