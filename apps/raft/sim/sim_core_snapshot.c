/* Snapshots of a simulated driver of the core alone (see sim_core.h). */
#include "sim_core.h"
#include <stdlib.h>
#include <string.h>

void sim_core_make_snapshot(struct sim_world *w, struct sim_node *n)
{
    struct sim_core *b = sim_core_of(n);
    bool wanted = cl_raft_snapshot_wanted(b->core); /* one of the same entry, if need be */
    uint32_t every = n->watch.full ? 1 : w->swarm.snapshot_entries;
    bool due = wanted || (every && b->machine.applied >= b->disk.snapshot.index + every);
    if (!due || b->making.index || b->installing || cl_raft_snapshot_in_use(b->core))
        return;
    struct sim_snapshot *s = &b->making;
    s->index = b->machine.applied;
    s->term = cl_raft_term_at(b->core, s->index);
    s->machine = b->machine;
    if (w->options.mutant == CL_RAFT_SIM_LOST_SESSIONS)
        memset(s->machine.sessions, 0, sizeof(s->machine.sessions));
    if (cl_raft_members_at(b->core, s->index, &s->members)) {
        s->index = 0;
        return;
    }
    uint64_t after = 0;
    sim_at(w, sim_core_write_done(w, n, &after), SIM_SNAPSHOT_WRITTEN, n->slot, s->index);
}

void sim_core_snapshot_written(struct sim_world *w, struct sim_node *n, uint64_t index)
{
    struct sim_core *b = sim_core_of(n);
    uint64_t first = 0;
    if (b->making.index != index || n->failed)
        return;
    /* One that was installed meanwhile is newer. */
    bool again = index == b->disk.snapshot.index && cl_raft_snapshot_wanted(b->core);
    if (index > b->disk.snapshot.index || again) {
        struct sim_snapshot made = b->making;
        int rc = cl_raft_compact(b->core, index, sizeof(made.machine), &first);
        if (rc)
            sim_fail(w, "#%u refuses its own snapshot of entry %lu: %d", n->id, index, rc);
        sim_disk_snapshot(&b->disk, &made, first);
        w->result->snapshots_made++;
    }
    b->making.index = 0;
}

void sim_core_take_chunk(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r)
{
    struct sim_core *b = sim_core_of(n);
    if (r->chunk_offset == 0)
        b->incoming_bytes = 0;
    bool fits = r->chunk_offset == b->incoming_bytes && r->chunk_total == sizeof(b->incoming.machine) &&
                r->chunk_bytes <= r->chunk_total - r->chunk_offset;
    if (!fits) {
        sim_fail(w, "#%u gets bytes %lu..%lu of a snapshot of %lu, after %u", n->id, r->chunk_offset,
                 r->chunk_offset + r->chunk_bytes, r->chunk_total, b->incoming_bytes);
        return;
    }
    if (!w->calm && !cl_random_below(&w->random[SIM_R_DISK], 50)) { /* it could not be stored */
        b->incoming_bytes = 0;
        cl_raft_chunk_taken(b->core, 0);
        return;
    }
    memcpy((uint8_t *)&b->incoming.machine + r->chunk_offset, r->chunk_data, r->chunk_bytes);
    b->incoming_bytes += r->chunk_bytes;
    cl_raft_chunk_taken(b->core, 1);
    if (!r->chunk_last)
        return;
    if (b->incoming.machine.salt_first != b->incoming.machine.salt_last) {
        sim_fail(w, "#%u puts a snapshot together from those of #%lu and #%lu", n->id, b->incoming.machine.salt_first,
                 b->incoming.machine.salt_last);
        return;
    }
    b->incoming.index = r->chunk_index;
    b->incoming.term = r->chunk_term;
    b->incoming.members = r->chunk_members;
    b->installing = true;
    uint64_t after = 0;
    sim_at(w, sim_core_write_done(w, n, &after), SIM_INSTALLED, n->slot, r->chunk_index);
}

void sim_core_installed(struct sim_world *w, struct sim_node *n, uint64_t index)
{
    struct sim_core *b = sim_core_of(n);
    if (!b->installing || b->incoming.index != index || n->failed)
        return;
    b->installing = false;
    int keep = cl_raft_snapshot_installed(b->core, 1);
    sim_say(w, "#%u installs the snapshot of entry %lu, log behind it %s", n->id, index, keep ? "kept" : "dropped");
    if (keep < 0)
        return;
    if (!keep) /* the log begins anew: nothing that is under way may come after that */
        for (struct sim_write write; sim_disk_written(&b->disk, &write);)
            free(write.entries);
    sim_disk_install(&b->disk, &b->incoming, keep);
    b->machine = b->incoming.machine;
    sim_machine_salt(&b->machine, n->id);
    n->watch.applied = index;
    b->making.index = 0;
    w->result->snapshots_installed++;
    sim_core_answer_reads(w, n);
}
