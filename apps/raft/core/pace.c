/* When a leader's entries go, and to whom at once.
 *
 * Batches: what is proposed while one is on its way gathers (raft.h: cl_raft_let_go).
 *
 * Thrifty (the name is that of Moraru, Andersen and Kaminsky, "There Is More Consensus in Egalitarian Parliaments",
 * SOSP 2013): a batch goes at once only to the front, as many followers as make a quorum with this node, and to the
 * others, who trail, with the next tick, or when so much was held back that it fills a message or that a compaction
 * might drop it. So an entry that the front does not commit is with everybody a tick after it went at the latest, and
 * no entry depends on how well the front was chosen.
 *
 * Who is in front is decided anew for each batch. Those may be who have what went to everybody two ticks ago, and of
 * these first who was not late: an entry that was still awaited at a tick goes to the others too, and who does not have
 * it when it is committed, though it went there first, was overtaken. This node's own copy is one like the others': if
 * its disk is what is late, there is one more follower in front. Where no quorum can be chosen all is sent to
 * everybody, as are configurations.
 *
 * Only entries are held back. Heartbeats, rounds of reads, snapshots and what goes to who is to lead next are as
 * ever. */
#include "internal.h"

#define LATE_HEDGES 8 /* so many entries in time make up for one that was late */

void cl_raft_gathering(const struct cl_raft *r, struct cl_raft_gathering *out)
{
    bool leads = r->role == CL_RAFT_LEADER;
    *out = (struct cl_raft_gathering){
        .entries = leads ? r->log.last - r->let_go : 0, .last = r->let_go, .commit = r->commit};
}

void cl_raft_hold(struct cl_raft *r)
{
    r->held = 1;
}

/* Where the driver leaves it to the core: the next batch goes when the one before is committed, or has been out for a
 * tick. */
void raft_let_go_unheld(struct cl_raft *r)
{
    if (!r->held && (r->commit >= r->let_go || r->let_go_tick != r->ticks))
        cl_raft_let_go(r, UINT64_MAX);
}

/* A leader begins: nothing is held back. */
void raft_pace_lead(struct cl_raft *r)
{
    r->let_go = r->spread = r->log.last;
    r->let_go_tick = r->ticks - 1;
    r->stepped[0] = r->stepped[1] = 0;
    r->hedged = 0;
    r->own_late = 0;
    r->own_front = 1;
}

/* A member as the choice sees it: a peer, or this node. */
struct copy {
    uint8_t *front, *late;
    uint64_t match;
};

static struct copy copy_of(struct cl_raft *r, uint32_t i)
{
    if (i == r->n_peers)
        return (struct copy){&r->own_front, &r->own_late, r->log.durable};
    struct raft_peer *p = &r->peers[i];
    return (struct copy){&p->front, &p->late, p->match};
}

static uint64_t in_front(const struct cl_raft *r, uint32_t id)
{
    const struct raft_peer *p = id == r->config.id ? NULL : raft_find_peer((struct cl_raft *)r, id);
    return id == r->config.id ? r->own_front : p && p->front;
}

static bool may_be_in_front(const struct cl_raft *r, uint32_t i)
{
    if (i == r->n_peers)
        return r->log.durable >= r->stepped[1];
    const struct raft_peer *p = &r->peers[i];
    return p->state == CL_RAFT_REPLICATE && !p->full && p->heard && p->match >= r->stepped[1] &&
           raft_is_voter(&r->members, p->id);
}

/* Choose the front: leave out the node that is needed least, until all are needed. False: the candidates are no
 * quorum. */
static bool choose_front(struct cl_raft *r)
{
    uint32_t order[CL_RAFT_MAX_NODES + 1], rank[CL_RAFT_MAX_NODES + 1], n = 0; /* who is to be left out first, first */
    for (uint32_t i = 0; i <= r->n_peers; i++) {
        struct copy c = copy_of(r, i);
        uint32_t its = 2u * *c.late + !*c.front, at = n++;
        for (; at && rank[at - 1] < its + (i < r->n_peers); at--) { /* of two alike this node is left out last */
            order[at] = order[at - 1];
            rank[at] = rank[at - 1];
        }
        order[at] = i;
        rank[at] = its;
        *c.front = may_be_in_front(r, i);
    }
    if (!raft_quorum(r, in_front))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *front = copy_of(r, order[i]).front, was = *front;
        *front = 0;
        if (was && !raft_quorum(r, in_front))
            *front = 1;
    }
    return true;
}

/* Everything goes to everybody. */
static void spread_all(struct cl_raft *r)
{
    r->count.spreads += r->spread < r->let_go;
    r->spread = r->let_go;
}

/* What is held back fills a message, might be dropped by a compaction (snapshot.c: first_kept), or changes who belongs
 * to the group. */
static bool holds_enough(const struct cl_raft *r)
{
    const struct cl_raft_config *c = &r->config;
    uint64_t bytes = raft_log_used_bytes(&r->log, r->spread + 1);
    return bytes >= cl_min((uint64_t)c->message_bytes, c->log_bytes / 8) ||
           r->let_go - r->spread > c->trailing_entries || r->members_index > r->spread;
}

void cl_raft_let_go(struct cl_raft *r, uint64_t entries)
{
    if (r->role != CL_RAFT_LEADER || r->let_go == r->log.last || !entries)
        return;
    r->let_go += cl_min(entries, r->log.last - r->let_go);
    r->let_go_tick = r->ticks;
    if (!r->thrifty || !choose_front(r))
        r->spread = r->let_go;
    else if (holds_enough(r))
        spread_all(r);
    else
        r->count.thrifty_batches++;
}

void cl_raft_thrifty(struct cl_raft *r, int on)
{
    r->thrifty = on != 0;
    if (!on)
        spread_all(r);
}

/* The last entry that may be sent to this one. */
uint64_t raft_pace_limit(const struct cl_raft *r, const struct raft_peer *p)
{
    return p->front || r->transfer_to == p->id ? r->let_go : r->spread;
}

void raft_pace_tick(struct cl_raft *r)
{
    if (r->spread < r->let_go && r->commit < r->let_go && r->hedged <= r->commit) {
        r->hedged = r->let_go;
        r->count.hedges++;
    }
    spread_all(r);
    r->stepped[1] = r->stepped[0];
    r->stepped[0] = r->let_go;
}

/* A hedged entry is committed: who in front does not have it was overtaken. */
void raft_pace_committed(struct cl_raft *r, uint64_t before)
{
    if (r->hedged <= before || r->hedged > r->commit)
        return;
    for (uint32_t i = 0; i <= r->n_peers; i++) {
        struct copy c = copy_of(r, i);
        if (c.match >= r->hedged) {
            *c.late -= *c.late > 0;
        } else if (*c.front) {
            *c.late = LATE_HEDGES;
            r->count.overtaken++;
        }
    }
}
