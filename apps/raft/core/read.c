/* Linearizable reads (thesis 6.4): one round of heartbeats for all reads that wait, or the leader's lease (6.4.1). */
#include "internal.h"
#include <errno.h>

static void answer_read(struct cl_raft *r, const struct raft_pending_read *read, uint64_t index)
{
    if (read->from) {
        struct cl_raft_msg *reply = raft_reply(r, CL_RAFT_READ_REPLY, read->from);
        reply->context = read->context;
        reply->index = index;
        reply->flags = index ? 0 : CL_RAFT_REJECT;
        return;
    }
    r->count.reads_failed += !index;
    if (r->answers_count == r->config.pending_reads) {
        r->count.replies_dropped++;
        return;
    }
    uint32_t at = (r->answers_head + r->answers_count++) % r->config.pending_reads;
    r->answers[at] = (struct cl_raft_read){read->context, index};
}

/* A new round of heartbeats begins with the next messages; reads up to now wait for it. */
void raft_new_round(struct cl_raft *r)
{
    r->round++;
    r->round_tick[r->round % RAFT_ROUNDS] = r->ticks;
}

static uint64_t acked_round(const struct cl_raft *r, uint32_t id)
{
    const struct raft_peer *p = id == r->config.id ? NULL : raft_find_peer((struct cl_raft *)r, id);
    return id == r->config.id ? r->round : p ? p->acked_round : 0;
}

/* A majority has heard this leader since round `round` began, and will not vote for another for election_ticks less
 * one, as their ticks may have been about to come. */
static void renew_lease(struct cl_raft *r, uint64_t round)
{
    uint32_t lost = 1 + r->config.lease_margin_ticks;
    if (!r->config.lease_reads || r->lease_lost || r->round - round >= RAFT_ROUNDS || r->config.election_ticks <= lost)
        return;
    uint64_t until = r->round_tick[round % RAFT_ROUNDS] + r->config.election_ticks - lost;
    r->lease_until = cl_max(r->lease_until, until);
}

void raft_reads_confirm(struct cl_raft *r)
{
    if (r->role != CL_RAFT_LEADER || (!r->config.lease_reads && !r->reads_count))
        return;
    uint64_t round = raft_quorum(r, acked_round);
    renew_lease(r, round);
    /* Before it has committed an entry of its term a leader does not know what is committed. */
    while (r->reads_count && raft_committed_in_term(r)) {
        struct raft_pending_read *read = &r->reads[r->reads_head];
        if (read->round > round)
            break;
        r->reads_head = (r->reads_head + 1) % r->config.pending_reads;
        r->reads_count--;
        answer_read(r, read, read->index ? read->index : r->commit);
    }
}

/* If reads wait that no round covers yet begin one. Called once for a burst of reads, before messages are made. */
void raft_reads_begin_round(struct cl_raft *r)
{
    if (r->role != CL_RAFT_LEADER || !r->reads_count)
        return;
    uint32_t newest = (r->reads_head + r->reads_count - 1) % r->config.pending_reads;
    if (r->reads[newest].round > r->round) {
        raft_new_round(r);
        r->count.read_rounds++;
        for (uint32_t i = 0; i < r->n_peers; i++)
            r->peers[i].heartbeat_due = r->peers[i].prompt = 1;
    }
    raft_reads_confirm(r);
}

void raft_reads_fail(struct cl_raft *r)
{
    while (r->reads_count) {
        answer_read(r, &r->reads[r->reads_head], 0);
        r->reads_head = (r->reads_head + 1) % r->config.pending_reads;
        r->reads_count--;
    }
}

static int lead_read(struct cl_raft *r, uint64_t context, uint32_t from)
{
    bool known = raft_committed_in_term(r);
    struct raft_pending_read read = {
        .context = context, .index = known ? r->commit : 0, .round = r->round + 1, .from = from};
    r->count.reads++;
    if (r->reads_count + r->answers_count >= r->config.pending_reads)
        return -EAGAIN;
    /* A lease is checked only where the core was told the time just now: the node does so for its own reads, not for
     * messages. */
    if (known && !from && r->ticks < r->lease_until) {
        r->count.reads_by_lease++;
        answer_read(r, &read, r->commit);
        return 0;
    }
    r->reads[(r->reads_head + r->reads_count++) % r->config.pending_reads] = read;
    return 0;
}

int cl_raft_read_index(struct cl_raft *r, uint64_t context)
{
    if (r->role == CL_RAFT_FAILED)
        return -EIO;
    if (r->role == CL_RAFT_LEADER)
        return lead_read(r, context, 0);
    if (!r->leader)
        return -EPERM;
    raft_reply(r, CL_RAFT_READ, r->leader)->context = context;
    return 0;
}

int raft_on_read(struct cl_raft *r, const struct cl_raft_msg *m)
{
    struct raft_pending_read refused = {.context = m->context, .from = m->from};
    if (r->role != CL_RAFT_LEADER || lead_read(r, m->context, m->from))
        answer_read(r, &refused, 0);
    return 0;
}

int raft_on_read_reply(struct cl_raft *r, const struct cl_raft_msg *m)
{
    struct raft_pending_read mine = {.context = m->context};
    answer_read(r, &mine, m->flags & CL_RAFT_REJECT ? 0 : m->index);
    return 0;
}

int cl_raft_poll_read(struct cl_raft *r, struct cl_raft_read *read)
{
    raft_reads_begin_round(r);
    if (!r->answers_count)
        return 0;
    *read = r->answers[r->answers_head];
    r->answers_head = (r->answers_head + 1) % r->config.pending_reads;
    r->answers_count--;
    return 1;
}
