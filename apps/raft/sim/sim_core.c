/* The incarnation of a node that is the core alone, and the driver's loop of raft.h (see sim_core.h). */
#include "sim_core.h"
#include <stdlib.h>
#include <string.h>

#define FLIP_PPM 20000

static int sim_core_make(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct sim_core *b = calloc(1, sizeof(*b));
    n->core = b;
    return b ? sim_disk_init(&b->disk) : -1;
}

static void sim_core_unmake(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct sim_core *b = sim_core_of(n);
    if (!b)
        return;
    cl_raft_delete(b->core);
    sim_disk_free(&b->disk);
    free(b);
    n->core = NULL;
}

static void forget(struct sim_core *b)
{
    cl_raft_delete(b->core);
    b->core = NULL;
    memset(b->proposals, 0, sizeof(b->proposals));
    memset(b->readings, 0, sizeof(b->readings));
    b->making.index = 0;
    b->incoming_bytes = 0;
    b->installing = false;
}

static void sim_core_reset(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct sim_core *b = sim_core_of(n);
    forget(b);
    sim_disk_clear(&b->disk);
    b->contexts = b->writes = b->hards = 0;
}

/* Entries of the durable log that a start may use: none that a newer snapshot contradicts. */
static bool log_fits(const struct sim_disk *d)
{
    uint64_t at = d->snapshot.index;
    if (at <= d->base)
        return at == d->base;
    return at <= d->last && d->entries[at].term == d->snapshot.term;
}

/* The mutants that use a damaged log. */
static void use_rotten(struct sim_world *w, struct sim_disk *d)
{
    uint64_t at = d->base + 1 + cl_random_below(&w->random[SIM_R_DISK], d->last - d->base + 1);
    d->rotten = false;
    if (w->options.mutant == CL_RAFT_SIM_ROT_CUT)
        d->last = at - 1;
    else if (at <= d->last && d->entries[at].kind == CL_RAFT_COMMAND)
        d->entries[at].data[offsetof(struct sim_command, input)] ^= 1;
}

static int sim_core_start(struct sim_world *w, struct sim_node *n)
{
    struct sim_core *b = sim_core_of(n);
    struct sim_disk *d = &b->disk;
    if (d->rotten && (w->options.mutant == CL_RAFT_SIM_ROT_CUT || w->options.mutant == CL_RAFT_SIM_ROT_ADOPTED))
        use_rotten(w, d);
    if (d->rotten) {
        sim_lost(w, n, "the log is damaged");
        return 0;
    }
    struct cl_raft_config config = w->swarm.config;
    char err[256];
    config.id = n->id;
    config.seed = sim_mix(config.seed + (uint64_t)n->epoch * SIM_NODES + n->id);
    if (n->id > w->options.nodes)
        config.members = (struct cl_raft_members){0};
    int rc = cl_raft_new(&config, &b->core, err);
    if (rc) {
        sim_fail(w, "cannot make a core: %s", err);
        return rc;
    }
    cl_raft_thrifty(b->core, w->swarm.replicate == CL_RAFT_TO_MAJORITY);
    const struct sim_snapshot *s = &d->snapshot;
    rc = cl_raft_restore(b->core, d->term, d->vote, s->index, s->term, s->index ? sizeof(s->machine) : 0,
                         s->index ? &s->members : NULL);
    if (!log_fits(d))
        d->last = 0;
    for (uint64_t i = s->index + 1; i <= d->last && !rc; i++)
        rc = cl_raft_restore_entry(b->core, d->entries[i].term, d->entries[i].kind, d->entries[i].data,
                                   d->entries[i].bytes);
    if (d->base < s->index || d->last < s->index) { /* what a snapshot covers is not needed */
        d->base = s->index;
        d->last = d->last > d->base ? d->last : d->base;
    }
    if (rc)
        sim_fail(w, "#%u cannot be restored from what is durable: %d", n->id, rc);
    sim_machine_init(&b->machine);
    if (s->index)
        b->machine = s->machine;
    sim_machine_salt(&b->machine, n->id);
    return rc;
}

/* Killed or not: the log that the disk is a model of holds what it promised after either. */
static void sim_core_crash(struct sim_world *w, struct sim_node *n, bool killed)
{
    struct sim_core *b = sim_core_of(n);
    (void)killed;
    sim_disk_crash(&b->disk, &w->random[SIM_R_DISK]);
    forget(b);
}

static bool sim_core_rot(struct sim_world *w, struct sim_node *n)
{
    struct sim_disk *d = &sim_core_of(n)->disk;
    (void)w;
    d->rotten = d->last > d->base || d->snapshot.index;
    return d->rotten;
}

static struct cl_raft *sim_core_core(struct sim_node *n)
{
    return sim_core_of(n)->core;
}

static bool sim_core_holds(struct sim_node *n, uint64_t index, uint64_t term)
{
    return sim_disk_holds(&sim_core_of(n)->disk, index, term);
}

/* What a message promises must be so. */
static void check_promise(struct sim_world *w, struct sim_node *n, const struct cl_raft_msg *m)
{
    const struct sim_disk *d = &sim_core_of(n)->disk;
    if (m->flags & CL_RAFT_REJECT)
        return;
    n->voted |= m->type == CL_RAFT_VOTE_REPLY || m->type == CL_RAFT_VOTE;
    if (m->type == CL_RAFT_APPEND_REPLY)
        sim_check_promise(w, n, m->index);
    if (w->options.outcomes_only)
        return;
    if (m->type == CL_RAFT_APPEND_REPLY && m->index &&
        !sim_disk_holds(d, m->index, cl_raft_term_at(sim_core_of(n)->core, m->index)))
        sim_fail(w, "durability: #%u acknowledges entry %lu, which is not on its stable storage", n->id, m->index);
    if (m->type == CL_RAFT_VOTE_REPLY) {
        sim_check_vote(w, n->id, m->to, m->term);
        if (d->term != m->term || d->vote != m->to)
            sim_fail(w, "durability: #%u votes for #%u in term %lu, which is not on its stable storage", n->id, m->to,
                     m->term);
    }
    if (m->type == CL_RAFT_VOTE)
        sim_check_vote(w, n->id, n->id, m->term);
}

/* Any leader may send fewer entries with the same word of what is committed. */
static void take_away(struct sim_world *w, struct cl_raft *core, struct cl_raft_msg *m)
{
    struct cl_raft_entry e;
    m->n_entries = (uint32_t)cl_random_below(&w->random[SIM_R_CORE], m->n_entries);
    m->data_bytes = m->n_entries * RAFT_ENTRY_HEADER;
    for (uint32_t i = 1; i <= m->n_entries && !cl_raft_entry(core, m->index + i, &e); i++)
        m->data_bytes += e.bytes;
}

static void send_messages(struct sim_world *w, struct sim_node *n)
{
    struct sim_core *b = sim_core_of(n);
    struct cl_raft_msg m;
    while (!w->stopped && cl_raft_poll_message(b->core, &m)) {
        if (m.type == CL_RAFT_SNAPSHOT) {
            if (m.index != b->disk.snapshot.index || m.offset + m.data_bytes > sizeof(struct sim_machine))
                return sim_fail(w, "#%u sends snapshot %lu and has %lu", n->id, m.index, b->disk.snapshot.index);
            m.data = (const uint8_t *)&b->disk.snapshot.machine + m.offset;
        }
        check_promise(w, n, &m);
        if (m.n_entries && sim_chance(&w->random[SIM_R_CORE], w->swarm.prefix_ppm))
            take_away(w, b->core, &m);
        int64_t bytes = cl_raft_encode(b->core, &m, b->buffer, sizeof(b->buffer));
        if (bytes < 0)
            return sim_fail(w, "#%u cannot encode a message of type %u: %ld", n->id, m.type, (long)bytes);
        struct sim_packet *p = sim_packet(w, (uint32_t)bytes);
        if (!p)
            return;
        memcpy(p->data, b->buffer, (uint64_t)bytes);
        if (m.to == 0 || m.to > w->n_nodes || m.to == n->id)
            return sim_fail(w, "#%u sends a message to #%u", n->id, m.to);
        sim_send(w, n->slot, m.to - 1, p);
    }
}

/* A crash in the middle of the driver's loop. */
static bool crash_here(struct sim_world *w, struct sim_node *n)
{
    if (!sim_chance(&w->random[SIM_R_DISK], w->swarm.crash_point_ppm))
        return false;
    sim_crash(w, n);
    sim_at(w, w->queue.now_ns + cl_random_below(&w->random[SIM_R_DISK], w->swarm.restart_ms * SIM_MS), SIM_RESTART,
           n->slot, 0);
    return true;
}

/* The driver's loop, until there is nothing left to do. */
static void work(struct sim_world *w, struct sim_node *n)
{
    struct sim_core *b = sim_core_of(n);
    struct cl_raft_ready r;
    while (!w->stopped && cl_raft_ready(b->core, &r)) {
        sim_core_write(w, n, &r);
        if (r.chunk && !w->stopped)
            sim_core_take_chunk(w, n, &r);
        if (w->stopped || crash_here(w, n))
            return;
        if (r.apply_first)
            sim_core_apply(w, n, r.apply_first, r.apply_last);
    }
    if (w->stopped)
        return;
    sim_core_take_reads(w, n);
    send_messages(w, n);
    if (!w->stopped && !n->failed)
        sim_core_make_snapshot(w, n);
}

/* Now to all, now to a quorum first, at any time. */
static void flip(struct sim_world *w, struct sim_node *n)
{
    struct cl_random *random = &w->random[SIM_R_CORE];
    if (w->swarm.replicate == CL_RAFT_TO_AUTO && sim_chance(random, FLIP_PPM))
        cl_raft_thrifty(sim_core_core(n), (int)cl_random_below(random, 2));
}

/* Tell the core of all the time that has passed by this node's clock. */
static void catch_up(struct sim_world *w, struct sim_node *n)
{
    uint64_t due = (sim_local_ns(w, n) - n->started_local_ns) / w->swarm.tick_ns;
    if (n->ticks_done == due)
        return;
    cl_raft_missed_ticks(sim_core_of(n)->core, (uint32_t)(due - n->ticks_done - 1));
    cl_raft_tick(sim_core_of(n)->core);
    n->ticks_done = due;
}

static void deliver(struct sim_world *w, struct sim_node *n, const struct sim_packet *p)
{
    struct sim_core *b = sim_core_of(n);
    struct cl_raft_msg m;
    if (cl_raft_decode(w->swarm.config.cluster, p->data, p->bytes, &m, &b->wire)) {
        sim_fail(w, "#%u cannot decode a message of %u bytes", n->id, p->bytes);
        return;
    }
    sim_trace_message(w, n->id, &m);
    cl_raft_step(b->core, &m);
}

static void sim_core_event(struct sim_world *w, struct sim_node *n, const struct sim_event *e)
{
    catch_up(w, n);
    flip(w, n);
    bool of_disk = e->kind == SIM_WRITTEN || e->kind == SIM_HARD_WRITTEN || e->kind == SIM_SNAPSHOT_WRITTEN ||
                   e->kind == SIM_INSTALLED;
    if (of_disk && n->hung_disk_until_ns > w->queue.now_ns) {
        sim_at(w, n->hung_disk_until_ns, (enum sim_kind)e->kind, n->slot, e->argument);
        return;
    }
    switch (e->kind) {
    case SIM_DELIVER:
        deliver(w, n, (const struct sim_packet *)(uintptr_t)e->argument);
        break;
    case SIM_WRITTEN:
        sim_core_written(w, n, e->argument);
        break;
    case SIM_HARD_WRITTEN:
        sim_core_hard_written(n, e->argument);
        break;
    case SIM_SNAPSHOT_WRITTEN:
        sim_core_snapshot_written(w, n, e->argument);
        break;
    case SIM_INSTALLED:
        sim_core_installed(w, n, e->argument);
        break;
    case SIM_REQUEST:
        sim_core_request(w, n, (const struct sim_request *)((const struct sim_packet *)(uintptr_t)e->argument)->data);
        break;
    default:
        break;
    }
    if (!w->stopped)
        work(w, n);
}

static int sim_core_change_members(struct sim_world *w, struct sim_node *n, const struct cl_raft_members *m)
{
    int rc = sim_order_members(w, sim_core_core(n), m);
    work(w, n);
    return rc;
}

static int sim_core_transfer(struct sim_world *w, struct sim_node *n, uint32_t to)
{
    int rc = cl_raft_transfer(sim_core_core(n), to);
    work(w, n);
    return rc;
}

const struct sim_body sim_core_body = {
    .make = sim_core_make,
    .unmake = sim_core_unmake,
    .reset = sim_core_reset,
    .start = sim_core_start,
    .crash = sim_core_crash,
    .event = sim_core_event,
    .core = sim_core_core,
    .change_members = sim_core_change_members,
    .transfer = sim_core_transfer,
    .fail_disk = sim_core_fail_disk,
    .rot = sim_core_rot,
    .holds = sim_core_holds,
};
