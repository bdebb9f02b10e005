/* Who belongs to the group: joint consensus (thesis 4.3), and majorities under it. */
#include "internal.h"
#include <errno.h>
#include <string.h>

static bool listed(const uint32_t *ids, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

bool raft_is_voter(const struct cl_raft_members *m, uint32_t id)
{
    return listed(m->voters, m->n_voters, id) || listed(m->outgoing, m->n_outgoing, id);
}

static bool distinct(const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!ids[i] || listed(ids, i, ids[i]))
            return false;
    return true;
}

static uint32_t union_of(const struct cl_raft_members *m, uint32_t out[3 * CL_RAFT_MAX_NODES])
{
    const uint32_t *lists[3] = {m->voters, m->outgoing, m->learners};
    uint32_t sizes[3] = {m->n_voters, m->n_outgoing, m->n_learners}, n = 0;
    for (int l = 0; l < 3; l++)
        for (uint32_t i = 0; i < sizes[l]; i++)
            if (!listed(out, n, lists[l][i]))
                out[n++] = lists[l][i];
    return n;
}

/* Someone votes, nobody is there twice, and a learner does not vote, except that it still may in the outgoing
 * configuration. */
bool raft_members_valid(const struct cl_raft_members *m)
{
    if (!m->n_voters || m->n_voters > CL_RAFT_MAX_NODES || m->n_outgoing > CL_RAFT_MAX_NODES ||
        m->n_learners > CL_RAFT_MAX_NODES)
        return false;
    if (!distinct(m->voters, m->n_voters) || !distinct(m->outgoing, m->n_outgoing) ||
        !distinct(m->learners, m->n_learners))
        return false;
    for (uint32_t i = 0; i < m->n_learners; i++)
        if (listed(m->voters, m->n_voters, m->learners[i]))
            return false;
    uint32_t all[3 * CL_RAFT_MAX_NODES];
    return union_of(m, all) <= CL_RAFT_MAX_NODES;
}

struct raft_peer *raft_find_peer(struct cl_raft *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n_peers; i++)
        if (r->peers[i].id == id)
            return &r->peers[i];
    return NULL;
}

static uint64_t majority(const struct cl_raft *r, const uint32_t *ids, uint32_t n,
                         uint64_t (*value)(const struct cl_raft *r, uint32_t id))
{
    uint64_t sorted[CL_RAFT_MAX_NODES]; /* the largest first */
    for (uint32_t i = 0; i < n; i++) {
        uint64_t v = value(r, ids[i]);
        uint32_t at = i;
        for (; at && sorted[at - 1] < v; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = v;
    }
    return n ? sorted[n / 2] : 0;
}

uint64_t raft_quorum(const struct cl_raft *r, uint64_t (*value)(const struct cl_raft *r, uint32_t id))
{
    const struct cl_raft_members *m = &r->members;
    uint64_t in = majority(r, m->voters, m->n_voters, value);
    return m->n_outgoing ? cl_min(in, majority(r, m->outgoing, m->n_outgoing, value)) : in;
}

/* Peers are the members but this node; those that stay keep their progress. */
void raft_members_set(struct cl_raft *r, const struct cl_raft_members *m, uint64_t index)
{
    uint32_t all[3 * CL_RAFT_MAX_NODES];
    uint32_t n = union_of(m, all), kept = 0;
    r->members = *m;
    r->members_index = index;
    for (uint32_t i = 0; i < r->n_peers; i++)
        if (listed(all, n, r->peers[i].id)) {
            if (kept != i)
                r->peers[kept] = r->peers[i];
            kept++;
        }
    r->n_peers = kept;
    for (uint32_t i = 0; i < n; i++) {
        if (all[i] == r->config.id || raft_find_peer(r, all[i]) || r->n_peers == CL_RAFT_MAX_NODES)
            continue;
        struct raft_peer *p = &r->peers[r->n_peers++];
        p->id = all[i];
        raft_peer_reset(r, p);
        p->heartbeat_due = r->role == CL_RAFT_LEADER;
    }
    if (r->transfer_to && !raft_is_voter(m, r->transfer_to))
        r->transfer_to = 0;
    if (r->count.gone_back_node && !listed(all, n, (uint32_t)r->count.gone_back_node))
        cl_store_relaxed(&r->count.gone_back_node, 0);
}

bool raft_members_appended(struct cl_raft *r, uint64_t index, const uint8_t *data, uint32_t bytes)
{
    struct cl_raft_members m;
    if (cl_raft_members_decode(data, bytes, &m) != (int)bytes)
        return false;
    raft_members_set(r, &m, index);
    return true;
}

/* A node that joined was never told who was there first. It learns it from the first change that it holds, which names
 * the voters that it begins with; learners of before stay unknown. */
static void first_members(const struct cl_raft *r, struct cl_raft_members *out)
{
    for (uint64_t i = r->log.first; i <= r->log.last; i++) {
        const struct raft_slot *slot = raft_slot(&r->log, i);
        struct cl_raft_members m;
        if (slot->kind != CL_RAFT_MEMBERS ||
            cl_raft_members_decode(r->log.bytes + (slot->at & r->log.byte_mask), slot->bytes, &m) <= 0)
            continue;
        out->n_voters = m.n_outgoing ? m.n_outgoing : m.n_voters;
        memcpy(out->voters, m.n_outgoing ? m.outgoing : m.voters, sizeof(out->voters));
        return;
    }
}

void raft_members_find(const struct cl_raft *r, uint64_t index, struct cl_raft_members *out, uint64_t *at)
{
    if (r->members_index <= index) {
        *out = r->members;
        *at = r->members_index;
        return;
    }
    for (uint64_t i = cl_min(index, r->log.last); i >= r->log.first; i--) {
        const struct raft_slot *slot = raft_slot(&r->log, i);
        if (slot->kind == CL_RAFT_MEMBERS &&
            cl_raft_members_decode(r->log.bytes + (slot->at & r->log.byte_mask), slot->bytes, out) > 0) {
            *at = i;
            return;
        }
    }
    *out = r->base_members;
    *at = r->base_members_index;
    if (!out->n_voters)
        first_members(r, out);
}

int cl_raft_members_at(const struct cl_raft *r, uint64_t index, struct cl_raft_members *out)
{
    uint64_t at;
    if (index > r->applied || index + 1 < r->log.first)
        return -EINVAL;
    raft_members_find(r, index, out, &at);
    return 0;
}

/* The newest configuration may just have been truncated: back to the one before it. */
void raft_members_truncated(struct cl_raft *r)
{
    if (r->members_index <= r->log.last)
        return;
    struct cl_raft_members m;
    uint64_t at;
    raft_members_find(r, r->log.last, &m, &at);
    raft_members_set(r, &m, at);
}

void raft_members_compact(struct cl_raft *r, uint64_t first)
{
    struct cl_raft_members m;
    uint64_t at;
    raft_members_find(r, first - 1, &m, &at);
    r->base_members = m;
    r->base_members_index = at;
}

static int append_members(struct cl_raft *r, const struct cl_raft_members *m)
{
    uint8_t data[CL_RAFT_MEMBERS_BYTES];
    int bytes = cl_raft_members_encode(m, data);
    int rc = raft_append(r, r->term, CL_RAFT_MEMBERS, data, (uint32_t)bytes);
    if (rc) {
        r->count.entries_refused++;
        return rc;
    }
    r->count.entries_appended++;
    raft_members_set(r, m, r->log.last);
    return 0;
}

/* A leader whose newest configuration is committed: leave a joint one; go if it is not in a plain one. */
void raft_members_committed(struct cl_raft *r)
{
    if (r->role != CL_RAFT_LEADER || r->members_index > r->commit)
        return;
    if (r->members.n_outgoing) {
        struct cl_raft_members m = r->members;
        m.n_outgoing = 0;
        memset(m.outgoing, 0, sizeof(m.outgoing));
        /* If the log is full: with the next heartbeats. What the outgoing ones lack is committed now if the incoming
         * ones have it, and there may be nobody left who would say anything more. */
        if (!append_members(r, &m))
            raft_advance_commit(r);
        return;
    }
    if (!raft_is_voter(&r->members, r->config.id))
        raft_become_follower(r, r->term, 0);
}

static bool same_set(const uint32_t *a, uint32_t n, const uint32_t *b, uint32_t m)
{
    for (uint32_t i = 0; i < n; i++)
        if (!listed(b, m, a[i]))
            return false;
    return n == m;
}

/* Whether a majority of these was heard from in this term, and not only long ago. */
static bool majority_heard(struct cl_raft *r, const uint32_t *ids, uint32_t n)
{
    uint32_t heard = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct raft_peer *p = raft_find_peer(r, ids[i]);
        heard += ids[i] == r->config.id || (p && p->heard);
    }
    return heard > n / 2;
}

static int change_members(struct cl_raft *r, const uint32_t *voters, uint32_t n_voters, const uint32_t *learners,
                          uint32_t n_learners, bool force)
{
    if (r->role != CL_RAFT_LEADER)
        return -EPERM;
    if (n_voters > CL_RAFT_MAX_NODES || n_learners > CL_RAFT_MAX_NODES)
        return -EINVAL;
    const struct cl_raft_members *now = &r->members;
    if (now->n_outgoing || r->members_index > r->commit || !raft_committed_in_term(r) || r->transfer_to)
        return -EBUSY;
    struct cl_raft_members m = {.n_voters = n_voters, .n_learners = n_learners};
    memcpy(m.voters, voters, n_voters * sizeof(*voters));
    if (n_learners)
        memcpy(m.learners, learners, n_learners * sizeof(*learners));
    bool same_voters = same_set(voters, n_voters, now->voters, now->n_voters);
    if (same_voters && same_set(m.learners, n_learners, now->learners, now->n_learners))
        return -EALREADY;
    if (!same_voters) {
        m.n_outgoing = now->n_voters;
        memcpy(m.outgoing, now->voters, sizeof(m.outgoing));
    }
    if (!raft_members_valid(&m))
        return -EINVAL;
    if (!force && !majority_heard(r, m.voters, m.n_voters))
        return -EHOSTUNREACH;
    return append_members(r, &m);
}

int cl_raft_change_members(struct cl_raft *r, const uint32_t *voters, uint32_t n_voters, const uint32_t *learners,
                           uint32_t n_learners)
{
    return change_members(r, voters, n_voters, learners, n_learners, false);
}

int cl_raft_force_members(struct cl_raft *r, const uint32_t *voters, uint32_t n_voters, const uint32_t *learners,
                          uint32_t n_learners)
{
    return change_members(r, voters, n_voters, learners, n_learners, true);
}

int cl_raft_transfer(struct cl_raft *r, uint32_t to)
{
    if (r->role != CL_RAFT_LEADER)
        return -EPERM;
    if (to == r->config.id)
        return -EALREADY;
    struct raft_peer *p = raft_find_peer(r, to);
    if (!p || !raft_is_voter(&r->members, to))
        return -EINVAL;
    if (r->transfer_to)
        return -EBUSY;
    if (!p->heard)
        return -EHOSTDOWN;
    r->transfer_to = to;
    r->transfer_elapsed = 0;
    raft_transfer_step(r, p);
    return 0;
}
