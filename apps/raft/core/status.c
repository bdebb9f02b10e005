/* The core as others see it: status and counters. */
#include "internal.h"
#include <string.h>

static void peer_status(const struct cl_raft *r, const struct raft_peer *p, struct cl_raft_peer *out)
{
    *out = (struct cl_raft_peer){.id = p->id,
                                 .state = p->state,
                                 .active = p->active,
                                 .voter = raft_is_voter(&r->members, p->id),
                                 .paused = p->paused || p->full,
                                 .front = r->thrifty && p->front,
                                 .match = p->match,
                                 .next = p->next,
                                 .inflight_bytes = p->inflight_bytes,
                                 .inflight_messages = p->inflight_count,
                                 .snapshot_offset = p->snap_acked};
}

void cl_raft_status(const struct cl_raft *r, struct cl_raft_status *out)
{
    const struct raft_log *log = &r->log;
    memset(out, 0, sizeof(*out));
    out->id = r->config.id;
    out->role = r->role;
    out->leader = r->leader;
    out->vote = r->vote;
    out->term = r->term;
    out->commit = r->commit;
    out->applied = r->applied;
    out->first = log->first;
    out->last = log->last;
    out->durable = log->durable;
    out->snapshot_index = r->snapshot_index;
    out->snapshot_term = r->snapshot_term;
    out->members_index = r->members_index;
    struct cl_raft_room room;
    cl_raft_room(r, &room);
    out->free_entries = room.free_entries;
    out->free_bytes = room.free_bytes;
    out->ticks = r->ticks;
    out->lease_until_tick = r->lease_until;
    out->disk_waits_ticks = r->disk_elapsed;
    out->transfer_to = r->transfer_to;
    out->thrifty = r->thrifty;
    out->gone_back = (uint32_t)r->count.gone_back_node;
    out->contradicts = (uint32_t)r->count.contradicting_node;
    out->members = r->members;
    if (r->role != CL_RAFT_LEADER)
        return;
    out->n_peers = r->n_peers;
    for (uint32_t i = 0; i < r->n_peers; i++)
        peer_status(r, &r->peers[i], &out->peers[i]);
}

void cl_raft_room(const struct cl_raft *r, struct cl_raft_room *out)
{
    const struct raft_log *log = &r->log;
    out->free_entries = log->slot_mask + 1 - (log->last + 1 - log->first);
    out->free_bytes = log->byte_mask + 1 - raft_log_used_bytes(log, log->first);
    out->durable = log->durable;
    out->uncommitted_entries = log->last - r->commit;
    out->uncommitted_bytes = raft_log_used_bytes(log, r->commit + 1);
}

uint32_t cl_raft_leader(const struct cl_raft *r)
{
    return r->leader;
}

uint64_t cl_raft_term(const struct cl_raft *r)
{
    return r->term;
}

void cl_raft_counters(const struct cl_raft *r, struct cl_raft_counters *out)
{
    *out = r->count;
}

void cl_raft_suspects(const struct cl_raft *r, uint64_t *gone_back, uint64_t *contradicting)
{
    *gone_back = cl_load_relaxed(&r->count.gone_back_node); /* relaxed: a number, of which nothing else depends */
    *contradicting = cl_load_relaxed(&r->count.contradicting_node);
}
