/* What a simulated driver of the core alone writes to its modelled stable storage (see sim_core.h). */
#include "sim_core.h"
#include <stdlib.h>
#include <string.h>

/* When a write begun now is done, and not before `after`: completions come in order. */
uint64_t sim_core_write_done(struct sim_world *w, struct sim_node *n, uint64_t *after)
{
    uint64_t ns =
        sim_slow_ns(w, n) + w->swarm.write_ns + cl_random_below(&w->random[SIM_R_DISK], w->swarm.write_spread_ns + 1);
    if (n->slow_disk_until_ns > w->queue.now_ns)
        ns += n->slow_disk_until_ns - w->queue.now_ns;
    if (w->queue.now_ns + ns > *after)
        *after = w->queue.now_ns + ns;
    return *after;
}

static void persisted(struct sim_world *w, struct sim_core *b, const struct sim_write *write)
{
    uint64_t term = write->last_term;
    uint32_t generation = write->last_generation;
    struct cl_raft_entry e;
    if (w->options.mutant == CL_RAFT_SIM_STALE_DURABLE && !cl_raft_entry(b->core, write->last, &e)) {
        term = e.term;
        generation = e.generation;
    }
    cl_raft_persisted(b->core, write->last, term, generation);
}

/* What is under way fails: any part of it may have reached the disk all the same. */
void sim_core_fail_disk(struct sim_world *w, struct sim_node *n)
{
    struct sim_core *b = sim_core_of(n);
    bool ignore = w->options.mutant == CL_RAFT_SIM_IGNORED_ERROR;
    for (uint32_t i = 0; ignore && i < b->disk.n_writes; i++) {
        const struct sim_write *write = &b->disk.writes[(b->disk.writes_first + i) % SIM_WRITES];
        if (write->kind == SIM_WRITE_ENTRIES)
            persisted(w, b, write);
    }
    if (ignore && b->disk.n_hards)
        cl_raft_hard_persisted(b->core, b->disk.hards[(b->disk.hards_first + b->disk.n_hards - 1) % SIM_WRITES].seq);
    sim_disk_crash(&b->disk, &w->random[SIM_R_DISK]);
    if (ignore)
        return;
    n->failed = true;
    cl_raft_fail(b->core);
}

static void begin_write(struct sim_world *w, struct sim_node *n, struct sim_write write)
{
    struct sim_core *b = sim_core_of(n);
    if (!sim_disk_write(&b->disk, write)) {
        sim_fail(w, "#%u: too many writes under way", n->id);
        return;
    }
    sim_at(w, sim_core_write_done(w, n, &b->disk.writes_until_ns), SIM_WRITTEN, n->slot, ++b->writes);
}

/* Hand entries to the disk, in one write or in two. */
static void write_entries(struct sim_world *w, struct sim_node *n, uint64_t first, uint64_t last)
{
    struct sim_core *b = sim_core_of(n);
    if (last > first && !cl_random_below(&w->random[SIM_R_DISK], 3)) {
        uint64_t middle = first + cl_random_below(&w->random[SIM_R_DISK], last - first);
        write_entries(w, n, first, middle);
        first = middle + 1;
    }
    struct sim_write write = {.first = first, .last = last, .kind = SIM_WRITE_ENTRIES};
    write.entries = malloc((last - first + 1) * sizeof(*write.entries));
    if (!write.entries)
        return sim_fail(w, "out of memory");
    for (uint64_t i = first; i <= last; i++) {
        struct cl_raft_entry e;
        struct sim_entry *to = &write.entries[i - first];
        if (cl_raft_entry(b->core, i, &e) || e.bytes > SIM_ENTRY_BYTES) {
            free(write.entries);
            return sim_fail(w, "#%u asks for a write of entry %lu and does not have it", n->id, i);
        }
        *to = (struct sim_entry){.term = e.term, .kind = e.kind, .bytes = e.bytes};
        memcpy(to->data, e.data, e.bytes);
        write.last_term = e.term;
        write.last_generation = e.generation;
    }
    begin_write(w, n, write);
    if (w->options.mutant == CL_RAFT_SIM_EARLY_DURABLE)
        persisted(w, b, &write);
}

static void write_hard(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r)
{
    struct sim_core *b = sim_core_of(n);
    struct sim_hard hard = {r->hard_seq, r->term, r->vote};
    if (w->options.mutant == CL_RAFT_SIM_VOTE_NOT_KEPT) {
        b->disk.term = r->term;
        cl_raft_hard_persisted(b->core, r->hard_seq);
        return;
    }
    if (!sim_disk_write_hard(&b->disk, hard))
        return sim_fail(w, "#%u: too many writes under way", n->id);
    sim_at(w, sim_core_write_done(w, n, &b->disk.hards_until_ns), SIM_HARD_WRITTEN, n->slot, ++b->hards);
}

void sim_core_write(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r)
{
    if (r->truncate_from)
        begin_write(w, n, (struct sim_write){.kind = SIM_WRITE_TRUNCATE, .first = r->truncate_from});
    if (r->first && !w->stopped)
        write_entries(w, n, r->first, r->last);
    if (r->hard && !w->stopped)
        write_hard(w, n, r);
}

/* Completions are told in order: a stalled process hears of several at once. */
void sim_core_written(struct sim_world *w, struct sim_node *n, uint64_t upto)
{
    struct sim_core *b = sim_core_of(n);
    struct sim_write write;
    while (!n->failed && b->writes - b->disk.n_writes < upto && sim_disk_written(&b->disk, &write)) {
        if (write.kind == SIM_WRITE_ENTRIES && w->options.mutant != CL_RAFT_SIM_EARLY_DURABLE)
            persisted(w, b, &write);
        free(write.entries);
    }
}

void sim_core_hard_written(struct sim_node *n, uint64_t upto)
{
    struct sim_core *b = sim_core_of(n);
    struct sim_hard hard;
    while (!n->failed && b->hards - b->disk.n_hards < upto && sim_disk_hard_written(&b->disk, &hard))
        cl_raft_hard_persisted(b->core, hard.seq);
}
