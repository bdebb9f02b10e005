/* Elections: the timeout, pre-vote (thesis 9.6), votes, and who refuses to vote while a leader is heard from (4.2.3).
 *
 * Split votes. Two nodes that stand at the same time share the votes, and a whole timeout goes by before the next try.
 * So of two that ask for pre-votes at the same time one gives way, and who granted a pre-vote does not stand itself
 * until that campaign should be over: once each before it stands itself, so that nobody who cannot win holds others
 * back for long. Where votes were split all the same, the next try comes after some heartbeats and not after a timeout.
 * None of this decides who may be elected.
 *
 * Slow disks. A candidate asks when its own vote is durable, and is answered when the others' votes are. Where one
 * write takes as long as the timeout, no campaign would be over before the next one began, for good. So nobody stands
 * while its term and vote are being written, timeouts begin when they are written, in proportion to what that took, and
 * grow with campaigns in vain.
 *
 * Disks that are not alike. Who has a fast one would try again many times while the others write their votes, and give
 * them a newer term to write each time. So who writes its vote grants no pre-vote meanwhile, and a candidate that has
 * gone back to asking for pre-votes, or has given way, still takes late votes of its term: its own is its own for all
 * of the term, and its log is as those who vote were told as long as no leader of that term is heard. */
#include "internal.h"
#include <errno.h>

static uint64_t next_random(struct cl_raft *r)
{
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = (r->random += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

#define PATIENT_TRIES 2u  /* campaigns in vain before the timeout grows */
#define MOST_DOUBLINGS 4u /* of it */

/* The timeout's lower half: for who hears a leader, as configured; for who knows none, what campaigns take on these
 * disks. */
static uint64_t patience(const struct cl_raft *r)
{
    uint64_t ticks = r->config.election_ticks;
    if (r->leader)
        return ticks;
    ticks = cl_max(ticks, 2 * cl_min(r->hard_took, (uint64_t)r->config.disk_ticks));
    return r->tries > PATIENT_TRIES ? ticks << cl_min(r->tries - PATIENT_TRIES, MOST_DOUBLINGS) : ticks;
}

void raft_reset_timeout(struct cl_raft *r)
{
    uint64_t ticks = patience(r);
    r->elapsed = 0;
    r->timeout = (uint32_t)(ticks + next_random(r) % ticks);
}

/* Ticks for a campaign to be over in, drawn: at first of some heartbeats, in which a message goes and comes, and longer
 * with each try that came to nothing. */
static uint32_t campaign_ticks(struct cl_raft *r)
{
    uint64_t ticks = (uint64_t)r->config.heartbeat_ticks << cl_min(r->tries, 20u);
    ticks = cl_min(ticks, patience(r));
    return (uint32_t)(ticks + next_random(r) % ticks);
}

bool raft_promotable(const struct cl_raft *r)
{
    if (r->role == CL_RAFT_FAILED || r->in.installing || raft_disk_hangs(r))
        return false;
    if (raft_is_voter(&r->members, r->config.id))
        return true;
    /* Left out by a configuration that may not be committed: who stays may need an entry that only this node can give
     * it, so it may still become the leader (thesis 4.2.2). */
    struct cl_raft_members before;
    uint64_t at;
    if (r->members_index <= r->commit)
        return false;
    raft_members_find(r, r->members_index - 1, &before, &at);
    return raft_is_voter(&before, r->config.id);
}

/* A leader may read by a lease that this node granted when it last heard from one, perhaps before it was started again.
 * That it learnt of a newer term since, and so knows no leader, changes nothing for that one. */
bool raft_promised(const struct cl_raft *r)
{
    return r->ticks < r->promised_until;
}

/* A live leader is known, so nobody is to become another. A leader counts: it steps down by itself when it has lost its
 * quorum. */
static bool sticky(const struct cl_raft *r)
{
    return r->role == CL_RAFT_LEADER || (r->leader && r->elapsed < r->config.election_ticks);
}

/* Not to be answered at all, unless a leader gave the order: who asks may ask again when the promise is over. Of our
 * own term only a vote is withheld: a pre-vote of it comes from a node that lags, and is told so. */
bool raft_refuses_votes(const struct cl_raft *r, const struct cl_raft_msg *m)
{
    if (m->term > r->term)
        return raft_promised(r) || sticky(r);
    return m->term == r->term && m->type == CL_RAFT_VOTE && raft_promised(r);
}

static uint64_t vote_of(const struct cl_raft *r, uint32_t id)
{
    if (id == r->config.id)
        return r->self_vote;
    const struct raft_peer *p = raft_find_peer((struct cl_raft *)r, id);
    return p && p->vote == 1;
}

static uint64_t not_refused(const struct cl_raft *r, uint32_t id)
{
    const struct raft_peer *p = id == r->config.id ? NULL : raft_find_peer((struct cl_raft *)r, id);
    return !p || p->vote != 2;
}

static uint64_t voted(const struct cl_raft *r, uint32_t id)
{
    const struct raft_peer *p = raft_find_peer((struct cl_raft *)r, id);
    return id == r->config.id ? r->stood : p && p->voted;
}

/* Count the votes; go on if they decide something. */
static void tally(struct cl_raft *r)
{
    if (raft_quorum(r, vote_of)) {
        if (r->role == CL_RAFT_PRE_CANDIDATE)
            raft_campaign(r, false);
        else
            raft_lead(r);
    } else if (!raft_quorum(r, not_refused)) {
        raft_become_follower(r, r->term, 0);
    }
}

static void request_votes(struct cl_raft *r)
{
    for (uint32_t i = 0; i < r->n_peers; i++)
        r->peers[i].vote_due = !r->peers[i].vote && raft_is_voter(&r->members, r->peers[i].id);
}

static void clear_votes(struct cl_raft *r)
{
    for (uint32_t i = 0; i < r->n_peers; i++)
        r->peers[i].vote = r->peers[i].vote_due = 0;
    r->self_vote = 0;
}

void raft_campaign_pre(struct cl_raft *r)
{
    r->role = CL_RAFT_PRE_CANDIDATE;
    r->leader = 0;
    r->force = 0;
    r->ack_due = 0;
    raft_reset_timeout(r);
    r->heartbeat_elapsed = 0;
    r->count.prevotes++;
    clear_votes(r);
    r->self_vote = 1; /* a pre-vote promises nothing */
    request_votes(r);
    tally(r);
}

void raft_campaign(struct cl_raft *r, bool force)
{
    raft_become_follower(r, r->term + 1, 0);
    r->role = CL_RAFT_CANDIDATE;
    r->vote = r->config.id;
    r->force = force;
    raft_hard_changed(r);
    r->heartbeat_elapsed = 0;
    r->tries++;
    r->gave_way = r->rivalled = 0;
    r->count.elections++;
    clear_votes(r);
    for (uint32_t i = 0; i < r->n_peers; i++)
        r->peers[i].voted = 0;
}

/* The candidate's own vote counts now, and it may ask the others. Who voted for another waits for that one from now
 * on. */
void raft_on_vote_durable(struct cl_raft *r)
{
    if (!raft_hard_ok(r))
        return;
    r->hard_took = r->leader ? 0 : r->ticks - r->hard_since;
    if (r->hard_took && r->vote && !r->leader && r->role != CL_RAFT_LEADER)
        raft_reset_timeout(r);
    if (r->role != CL_RAFT_CANDIDATE || r->self_vote)
        return;
    r->self_vote = r->stood = 1;
    request_votes(r);
    tally(r);
}

void raft_election_tick(struct cl_raft *r)
{
    r->elapsed++;
    if (!raft_promotable(r) || !raft_hard_ok(r))
        return;
    if (r->elapsed >= r->timeout) {
        raft_campaign_pre(r);
        return;
    }
    bool asking = r->role == CL_RAFT_PRE_CANDIDATE || (r->role == CL_RAFT_CANDIDATE && r->self_vote);
    if (asking && ++r->heartbeat_elapsed >= r->config.heartbeat_ticks) {
        r->heartbeat_elapsed = 0;
        request_votes(r); /* again, those who did not answer */
    }
}

static bool up_to_date(const struct cl_raft *r, const struct cl_raft_msg *m)
{
    uint64_t term = raft_log_term(&r->log, r->log.last);
    return m->log_term > term || (m->log_term == term && m->index >= r->log.last);
}

/* Of two that stand at the same time and may both be elected, the one with the larger number goes first. */
static bool goes_first(const struct cl_raft *r, const struct cl_raft_msg *rival)
{
    return rival->log_term != raft_log_term(&r->log, r->log.last) || rival->index != r->log.last ||
           rival->from > r->config.id;
}

/* A pre-vote was granted. */
static void give_way(struct cl_raft *r, const struct cl_raft_msg *rival)
{
    if (r->gave_way || r->role == CL_RAFT_CANDIDATE || (r->role == CL_RAFT_PRE_CANDIDATE && !goes_first(r, rival)))
        return;
    r->gave_way = 1;
    r->count.gave_way++;
    if (r->role == CL_RAFT_FOLLOWER) {
        r->timeout = cl_max(r->timeout, r->elapsed + campaign_ticks(r));
        return;
    }
    raft_become_follower(r, r->term, 0);
    r->timeout = campaign_ticks(r);
}

/* A candidate that is not the only one of its term: if the votes are split, the next try comes soon. */
static void rivalled(struct cl_raft *r)
{
    if (r->role != CL_RAFT_CANDIDATE || r->rivalled)
        return;
    r->rivalled = 1;
    r->timeout = cl_min(r->timeout, r->elapsed + campaign_ticks(r));
}

/* m->term is the term that the sender would campaign in, ours or a later one; nothing of ours changes. A term that is
 * ours already is only asked for by nodes that lag. */
int raft_on_prevote(struct cl_raft *r, const struct cl_raft_msg *m)
{
    bool grant = m->term > r->term && up_to_date(r, m);
    if (grant && !raft_hard_ok(r)) {
        r->count.ignored++;
        return 1;
    }
    struct cl_raft_msg *reply = raft_reply(r, CL_RAFT_PREVOTE_REPLY, m->from);
    if (grant)
        reply->term = m->term;
    else
        reply->flags = CL_RAFT_REJECT;
    if (grant)
        give_way(r, m);
    return 0;
}

int raft_on_vote(struct cl_raft *r, const struct cl_raft_msg *m)
{
    bool free_to = r->vote == m->from || (!r->vote && !r->leader);
    struct raft_peer *p = raft_find_peer(r, m->from);
    if (p && m->term > p->known_term)
        raft_peer_ends(r, p, m->index);
    if (!free_to || !up_to_date(r, m)) {
        raft_reply(r, CL_RAFT_VOTE_REPLY, m->from)->flags = CL_RAFT_REJECT;
        rivalled(r);
        return 0;
    }
    if (!r->vote) {
        r->vote = m->from;
        raft_hard_changed(r);
    }
    r->elapsed = 0;
    r->grant_to = m->from; /* told when the vote is durable */
    return 0;
}

/* Of a campaign that was given up. */
static int late_vote(struct cl_raft *r)
{
    if (raft_promotable(r) && raft_quorum(r, voted))
        raft_lead(r);
    return 0;
}

int raft_on_vote_reply(struct cl_raft *r, const struct cl_raft_msg *m)
{
    uint32_t role = m->type == CL_RAFT_PREVOTE_REPLY ? CL_RAFT_PRE_CANDIDATE : CL_RAFT_CANDIDATE;
    bool reject = m->flags & CL_RAFT_REJECT;
    uint64_t term = role == CL_RAFT_PRE_CANDIDATE && !reject ? r->term + 1 : r->term;
    struct raft_peer *p = raft_find_peer(r, m->from);
    if (p && r->stood && m->type == CL_RAFT_VOTE_REPLY && !reject && m->term == r->term) {
        p->voted = 1;
        if (r->role != CL_RAFT_CANDIDATE)
            return late_vote(r);
    }
    if (r->role != role || m->term != term || !p || p->vote || (role == CL_RAFT_CANDIDATE && !r->self_vote)) {
        r->count.ignored++;
        return 1;
    }
    p->vote = reject ? 2 : 1;
    p->vote_due = 0;
    if (reject)
        rivalled(r);
    tally(r);
    return 0;
}
