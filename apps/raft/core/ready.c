/* What a driver gets from the core, and what it tells of that: ready, messages, entries; durable, applied. See
 * raft.h. */
#include "internal.h"
#include <errno.h>
#include <string.h>

static bool ready_chunk(struct cl_raft *r, struct cl_raft_ready *ready)
{
    struct raft_incoming *in = &r->in;
    if (!in->pending)
        return false;
    in->pending = 0;
    in->handed = 1;
    ready->chunk = 1;
    ready->chunk_last = in->last;
    ready->chunk_index = in->index;
    ready->chunk_term = in->term;
    ready->chunk_offset = in->offset;
    ready->chunk_total = in->total;
    ready->chunk_data = in->data;
    ready->chunk_bytes = in->bytes;
    ready->chunk_members = in->members;
    return true;
}

int cl_raft_ready(struct cl_raft *r, struct cl_raft_ready *ready)
{
    memset(ready, 0, offsetof(struct cl_raft_ready, chunk_members));
    if (r->role == CL_RAFT_FAILED)
        return 0;
    raft_let_go_unheld(r);
    ready->truncate_from = r->log.truncated_from;
    r->log.truncated_from = 0;
    uint64_t last = r->role == CL_RAFT_LEADER ? r->let_go : r->log.last;
    if (r->log.unstable <= last) {
        ready->first = r->log.unstable;
        ready->last = last;
        r->log.unstable = last + 1;
    }
    if (r->hard_handed != r->hard_seq) {
        ready->hard = 1;
        ready->hard_seq = r->hard_handed = r->hard_seq;
        ready->term = r->term;
        ready->vote = r->vote;
    }
    /* While a snapshot is restored from, nothing else may touch the state machine. */
    if (r->apply_handed < r->commit && !r->in.installing) {
        ready->apply_first = r->apply_handed + 1;
        ready->apply_last = r->apply_handed = r->commit;
    }
    bool chunk = ready_chunk(r, ready);
    return ready->truncate_from || ready->first || ready->hard || ready->apply_first || chunk;
}

static bool poll_vote(struct cl_raft *r, struct raft_peer *p, struct cl_raft_msg *m)
{
    if (!p->vote_due)
        return false;
    p->vote_due = 0;
    bool pre = r->role == CL_RAFT_PRE_CANDIDATE;
    raft_message(r, m, pre ? CL_RAFT_PREVOTE : CL_RAFT_VOTE, p->id);
    m->term = r->term + pre;
    m->index = r->log.last;
    m->log_term = raft_log_term(&r->log, r->log.last);
    m->flags = r->force ? CL_RAFT_FORCE : 0;
    return true;
}

static bool poll_reply(struct cl_raft *r, struct cl_raft_msg *m)
{
    if (!r->replies_count)
        return false;
    *m = r->replies[r->replies_head % RAFT_REPLIES];
    r->replies_head++;
    r->replies_count--;
    return true;
}

int cl_raft_poll_message(struct cl_raft *r, struct cl_raft_msg *m)
{
    if (r->role == CL_RAFT_FAILED)
        return 0;
    raft_let_go_unheld(r);
    raft_reads_begin_round(r);
    bool found = poll_reply(r, m) || raft_poll_follower(r, m);
    for (uint32_t i = 0; i < r->n_peers && !found; i++) {
        struct raft_peer *p = &r->peers[i];
        found = r->role == CL_RAFT_LEADER ? raft_poll_peer(r, p, m) : poll_vote(r, p, m);
    }
    r->count.messages_out += found;
    return found;
}

int cl_raft_entry(const struct cl_raft *r, uint64_t index, struct cl_raft_entry *out)
{
    if (index < r->log.first || index > r->log.last)
        return -ENOENT;
    const struct raft_slot *slot = raft_slot(&r->log, index);
    *out = (struct cl_raft_entry){.index = index,
                                  .term = slot->term,
                                  .data = r->log.bytes + (slot->at & r->log.byte_mask),
                                  .bytes = slot->bytes,
                                  .generation = slot->generation,
                                  .kind = slot->kind};
    return 0;
}

uint64_t cl_raft_term_at(const struct cl_raft *r, uint64_t index)
{
    uint64_t term = raft_log_term(&r->log, index);
    return !term && index == r->snapshot_index ? r->snapshot_term : term;
}

void cl_raft_persisted(struct cl_raft *r, uint64_t index, uint64_t term, uint32_t generation)
{
    if (r->role == CL_RAFT_FAILED || index < r->log.first)
        return; /* covered by a snapshot */
    const struct raft_slot *slot = raft_slot(&r->log, index);
    if (index > r->log.last || slot->term != term || slot->generation != generation) {
        r->count.persisted_stale++;
        return;
    }
    if (index <= r->log.durable)
        return;
    uint64_t before = r->log.durable;
    r->log.durable = index;
    r->disk_elapsed = 0;
    if (before < r->snapshot_index)
        raft_drop_covered(r);
    if (r->role == CL_RAFT_LEADER)
        raft_advance_commit(r);
    else if (r->leader && before < r->verified)
        r->ack_due = 1;
}

void cl_raft_hard_persisted(struct cl_raft *r, uint64_t hard_seq)
{
    if (r->role == CL_RAFT_FAILED || hard_seq <= r->hard_durable || hard_seq > r->hard_handed)
        return;
    r->hard_durable = hard_seq;
    r->disk_elapsed = 0;
    raft_on_vote_durable(r);
}

void cl_raft_applied(struct cl_raft *r, uint64_t index)
{
    if (index <= r->apply_handed)
        r->applied = cl_max(r->applied, index);
}
