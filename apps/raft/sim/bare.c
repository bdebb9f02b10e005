/* A node that is the bare core: the driver's loop of raft.h over modelled stable storage and the simulated state machine.
 *
 * The mutants of run.h are here: mistakes that a driver could make, each at one place. */
#include "../wire.h"
#include "world.h"
#include <stdlib.h>
#include <string.h>

#define PROPOSALS 1024 /* power of two: by index */
#define READS 64
#define PACKET_BYTES 66000

/* A client's command that was proposed here, by the index that it will have if this leader stays. */
struct proposal {
    uint64_t index, term;
    struct sim_request request;
};

struct reading {
    uint64_t context; /* 0: free */
    uint64_t index;   /* 0: not known yet */
    struct sim_request request;
};

struct bare {
    struct cl_raft *core;
    struct sim_disk disk;
    struct sim_machine machine;
    struct proposal proposals[PROPOSALS];
    struct reading readings[READS];
    uint64_t contexts;
    uint64_t writes, hards;     /* begun in this run: arguments of their events */
    struct sim_snapshot making; /* index 0: none */
    struct sim_snapshot incoming;
    uint32_t incoming_bytes;
    bool installing;
    struct cl_raft_wire_counters wire;
    uint8_t buffer[PACKET_BYTES];
};

static struct bare *bare_of(struct sim_node *n)
{
    return n->bare;
}

static int bare_make(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct bare *b = calloc(1, sizeof(*b));
    n->bare = b;
    return b ? sim_disk_init(&b->disk) : -1;
}

static void bare_unmake(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct bare *b = bare_of(n);
    if (!b)
        return;
    cl_raft_delete(b->core);
    sim_disk_free(&b->disk);
    free(b);
    n->bare = NULL;
}

static void forget(struct bare *b)
{
    cl_raft_delete(b->core);
    b->core = NULL;
    memset(b->proposals, 0, sizeof(b->proposals));
    memset(b->readings, 0, sizeof(b->readings));
    b->making.index = 0;
    b->incoming_bytes = 0;
    b->installing = false;
}

static void bare_reset(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct bare *b = bare_of(n);
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

static int bare_start(struct sim_world *w, struct sim_node *n)
{
    struct bare *b = bare_of(n);
    struct sim_disk *d = &b->disk;
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
    return rc;
}

static void bare_crash(struct sim_world *w, struct sim_node *n)
{
    struct bare *b = bare_of(n);
    sim_disk_crash(&b->disk, &w->random[SIM_R_DISK]);
    forget(b);
}

static struct cl_raft *bare_core(struct sim_node *n)
{
    return bare_of(n)->core;
}

static bool bare_holds(struct sim_node *n, uint64_t index, uint64_t term)
{
    return sim_disk_holds(&bare_of(n)->disk, index, term);
}

/* When a write begun now is done, and not before `after`: completions come in order. */
static uint64_t write_done(struct sim_world *w, struct sim_node *n, uint64_t *after)
{
    uint64_t ns = w->swarm.write_ns + cl_random_below(&w->random[SIM_R_DISK], w->swarm.write_spread_ns + 1);
    if (n->slow_disk_until_ns > w->queue.now_ns)
        ns += n->slow_disk_until_ns - w->queue.now_ns;
    if (w->queue.now_ns + ns > *after)
        *after = w->queue.now_ns + ns;
    return *after;
}

static void persisted(struct sim_world *w, struct bare *b, const struct sim_write *write)
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
static void bare_fail_disk(struct sim_world *w, struct sim_node *n)
{
    struct bare *b = bare_of(n);
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
    struct bare *b = bare_of(n);
    if (!sim_disk_write(&b->disk, write)) {
        sim_fail(w, "#%u: too many writes under way", n->id);
        return;
    }
    sim_at(w, write_done(w, n, &b->disk.writes_until_ns), SIM_WRITTEN, n->slot, ++b->writes);
}

/* Hand entries to the disk, in one write or in two. */
static void write_entries(struct sim_world *w, struct sim_node *n, uint64_t first, uint64_t last)
{
    struct bare *b = bare_of(n);
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
    struct bare *b = bare_of(n);
    struct sim_hard hard = {r->hard_seq, r->term, r->vote};
    if (w->options.mutant == CL_RAFT_SIM_VOTE_NOT_KEPT) {
        b->disk.term = r->term;
        cl_raft_hard_persisted(b->core, r->hard_seq);
        return;
    }
    if (!sim_disk_write_hard(&b->disk, hard))
        return sim_fail(w, "#%u: too many writes under way", n->id);
    sim_at(w, write_done(w, n, &b->disk.hards_until_ns), SIM_HARD_WRITTEN, n->slot, ++b->hards);
}

static void answer(struct sim_world *w, struct sim_node *n, const struct sim_request *q, uint8_t status,
                   struct sim_outcome outcome)
{
    struct sim_reply reply = {.client = q->client, .session = q->command.session, .sequence = q->command.sequence};
    reply.status = status;
    reply.outcome = outcome;
    reply.leader = n->watch.leader;
    sim_answer(w, &reply);
}

static void answer_reads(struct sim_world *w, struct sim_node *n)
{
    struct bare *b = bare_of(n);
    for (uint32_t i = 0; i < READS; i++) {
        struct reading *r = &b->readings[i];
        if (!r->context || !r->index || (r->index > b->machine.applied && w->options.mutant != CL_RAFT_SIM_EARLY_READ))
            continue;
        answer(w, n, &r->request, SIM_DONE, sim_machine_execute(b->machine.registers, &r->request.command));
        r->context = 0;
    }
}

/* Apply what is committed. */
static void apply(struct sim_world *w, struct sim_node *n, uint64_t first, uint64_t last)
{
    struct bare *b = bare_of(n);
    for (uint64_t i = first; i <= last && !w->stopped; i++) {
        struct cl_raft_entry e;
        if (cl_raft_entry(b->core, i, &e))
            return sim_fail(w, "#%u is to apply entry %lu and does not have it", n->id, i);
        struct sim_command command;
        bool is_command = e.kind == CL_RAFT_COMMAND && e.bytes == sizeof(command);
        if (is_command)
            memcpy(&command, e.data, sizeof(command));
        struct sim_outcome outcome = sim_machine_apply(&b->machine, i, is_command ? &command : NULL,
                                                       w->options.mutant == CL_RAFT_SIM_NO_SESSIONS);
        sim_check_applied(w, n, i, b->machine.digest);
        struct proposal *p = &b->proposals[i & (PROPOSALS - 1)];
        if (p->index == i) {
            answer(w, n, &p->request, p->term == e.term ? SIM_DONE : SIM_ELSEWHERE, outcome);
            p->index = 0;
        }
    }
    cl_raft_applied(b->core, last);
    answer_reads(w, n);
}

static void make_snapshot(struct sim_world *w, struct sim_node *n)
{
    struct bare *b = bare_of(n);
    uint32_t every = n->watch.full ? 1 : w->swarm.snapshot_entries;
    if (!every || b->machine.applied < b->disk.snapshot.index + every || b->making.index || b->installing ||
        cl_raft_snapshot_in_use(b->core))
        return;
    struct sim_snapshot *s = &b->making;
    s->index = b->machine.applied;
    s->term = cl_raft_term_at(b->core, s->index);
    s->machine = b->machine;
    if (w->options.mutant == CL_RAFT_SIM_LOST_SESSIONS)
        memset(s->machine.sessions, 0, sizeof(s->machine.sessions));
    /* A node that joined does not know the configuration of entries before the one that names it. */
    if (cl_raft_members_at(b->core, s->index, &s->members)) {
        s->index = 0;
        return;
    }
    uint64_t after = 0;
    sim_at(w, write_done(w, n, &after), SIM_SNAPSHOT_WRITTEN, n->slot, s->index);
}

static void snapshot_written(struct sim_world *w, struct sim_node *n, uint64_t index)
{
    struct bare *b = bare_of(n);
    uint64_t first = 0;
    if (b->making.index != index || n->failed)
        return;
    /* One that was installed meanwhile is newer. */
    if (index > b->disk.snapshot.index) {
        struct sim_snapshot made = b->making;
        int rc = cl_raft_compact(b->core, index, sizeof(made.machine), &first);
        if (rc)
            sim_fail(w, "#%u refuses its own snapshot of entry %lu: %d", n->id, index, rc);
        sim_disk_snapshot(&b->disk, &made, first);
        w->result->snapshots_made++;
    }
    b->making.index = 0;
}

/* A piece of a snapshot from the leader. */
static void take_chunk(struct sim_world *w, struct sim_node *n, const struct cl_raft_ready *r)
{
    struct bare *b = bare_of(n);
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
    b->incoming.index = r->chunk_index;
    b->incoming.term = r->chunk_term;
    b->incoming.members = r->chunk_members;
    b->installing = true;
    uint64_t after = 0;
    sim_at(w, write_done(w, n, &after), SIM_INSTALLED, n->slot, r->chunk_index);
}

static void installed(struct sim_world *w, struct sim_node *n, uint64_t index)
{
    struct bare *b = bare_of(n);
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
    n->watch.applied = index;
    b->making.index = 0;
    w->result->snapshots_installed++;
    answer_reads(w, n);
}

/* What a message promises must be so. */
static void check_promise(struct sim_world *w, struct sim_node *n, const struct cl_raft_msg *m)
{
    const struct sim_disk *d = &bare_of(n)->disk;
    if (m->flags & CL_RAFT_REJECT)
        return;
    if (m->type == CL_RAFT_APPEND_REPLY)
        sim_check_promise(w, n, m->index);
    if (w->options.outcomes_only)
        return;
    if (m->type == CL_RAFT_APPEND_REPLY && m->index &&
        !sim_disk_holds(d, m->index, cl_raft_term_at(bare_of(n)->core, m->index)))
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

static void send_messages(struct sim_world *w, struct sim_node *n)
{
    struct bare *b = bare_of(n);
    struct cl_raft_msg m;
    while (!w->stopped && cl_raft_poll_message(b->core, &m)) {
        if (m.type == CL_RAFT_SNAPSHOT) {
            if (m.index != b->disk.snapshot.index || m.offset + m.data_bytes > sizeof(struct sim_machine))
                return sim_fail(w, "#%u sends snapshot %lu and has %lu", n->id, m.index, b->disk.snapshot.index);
            m.data = (const uint8_t *)&b->disk.snapshot.machine + m.offset;
        }
        check_promise(w, n, &m);
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

static void take_reads(struct sim_world *w, struct sim_node *n)
{
    struct bare *b = bare_of(n);
    struct cl_raft_read read;
    while (cl_raft_poll_read(b->core, &read)) {
        for (uint32_t i = 0; i < READS; i++) {
            struct reading *r = &b->readings[i];
            if (r->context != read.context)
                continue;
            r->index = read.index;
            if (!read.index) {
                answer(w, n, &r->request, SIM_ELSEWHERE, (struct sim_outcome){0});
                r->context = 0;
            }
        }
    }
    answer_reads(w, n);
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
    struct bare *b = bare_of(n);
    struct cl_raft_ready r;
    while (!w->stopped && cl_raft_ready(b->core, &r)) {
        if (r.truncate_from)
            begin_write(w, n, (struct sim_write){.kind = SIM_WRITE_TRUNCATE, .first = r.truncate_from});
        if (r.first && !w->stopped)
            write_entries(w, n, r.first, r.last);
        if (r.hard && !w->stopped)
            write_hard(w, n, &r);
        if (r.chunk && !w->stopped)
            take_chunk(w, n, &r);
        if (w->stopped || crash_here(w, n))
            return;
        if (r.apply_first)
            apply(w, n, r.apply_first, r.apply_last);
    }
    if (w->stopped)
        return;
    take_reads(w, n);
    send_messages(w, n);
    if (!w->stopped && !n->failed)
        make_snapshot(w, n);
}

/* Tell the core of all the time that has passed by this node's clock. */
static void catch_up(struct sim_world *w, struct sim_node *n)
{
    uint64_t due = (sim_local_ns(w, n) - n->born_local_ns) / w->swarm.tick_ns;
    for (; n->ticks_done < due; n->ticks_done++)
        cl_raft_tick(bare_of(n)->core);
}

static void read_request(struct sim_world *w, struct sim_node *n, const struct sim_request *q)
{
    struct bare *b = bare_of(n);
    if (w->options.mutant == CL_RAFT_SIM_UNASKED_READ && n->watch.role == CL_RAFT_LEADER) {
        answer(w, n, q, SIM_DONE, sim_machine_execute(b->machine.registers, &q->command));
        return;
    }
    uint64_t context = (uint64_t)n->epoch << 32 | ++b->contexts;
    int rc = cl_raft_read_index(b->core, context);
    sim_say(w, "#%u is asked to read for client %u: %d", n->id, q->client, rc);
    if (rc) {
        answer(w, n, q, SIM_ELSEWHERE, (struct sim_outcome){0});
        return;
    }
    /* The oldest makes room: its question to the leader, or the answer, was lost. */
    b->readings[b->contexts % READS] = (struct reading){.context = context, .request = *q};
}

static void request(struct sim_world *w, struct sim_node *n, const struct sim_request *q)
{
    struct bare *b = bare_of(n);
    uint64_t index = 0, term = 0;
    if (!q->by_log) {
        read_request(w, n, q);
        return;
    }
    int rc = cl_raft_propose(b->core, &q->command, sizeof(q->command), &index, &term);
    if (rc) {
        answer(w, n, q, SIM_ELSEWHERE, (struct sim_outcome){0});
        return;
    }
    sim_say(w, "#%u proposes %u of session %u as entry %lu of term %lu", n->id, q->command.sequence, q->command.session,
            index, term);
    b->proposals[index & (PROPOSALS - 1)] = (struct proposal){index, term, *q};
    if (w->options.mutant == CL_RAFT_SIM_EARLY_ANSWER) {
        struct sim_machine ahead = b->machine;
        answer(w, n, q, SIM_DONE, sim_machine_execute(ahead.registers, &q->command));
    }
}

static void deliver(struct sim_world *w, struct sim_node *n, const struct sim_packet *p)
{
    struct bare *b = bare_of(n);
    struct cl_raft_msg m;
    if (cl_raft_decode(w->swarm.config.cluster, p->data, p->bytes, &m, &b->wire)) {
        sim_fail(w, "#%u cannot decode a message of %u bytes", n->id, p->bytes);
        return;
    }
    sim_trace_message(w, n->id, &m);
    cl_raft_step(b->core, &m);
}

static void bare_event(struct sim_world *w, struct sim_node *n, const struct sim_event *e)
{
    struct bare *b = bare_of(n);
    struct sim_write write;
    struct sim_hard hard;
    catch_up(w, n);
    switch (e->kind) {
    case SIM_DELIVER:
        deliver(w, n, (const struct sim_packet *)(uintptr_t)e->argument);
        break;
    case SIM_WRITTEN:
        /* Completions are told in order: a stalled process hears of several at once. */
        while (!n->failed && b->writes - b->disk.n_writes < e->argument && sim_disk_written(&b->disk, &write)) {
            if (write.kind == SIM_WRITE_ENTRIES && w->options.mutant != CL_RAFT_SIM_EARLY_DURABLE)
                persisted(w, b, &write);
            free(write.entries);
        }
        break;
    case SIM_HARD_WRITTEN:
        while (!n->failed && b->hards - b->disk.n_hards < e->argument && sim_disk_hard_written(&b->disk, &hard))
            cl_raft_hard_persisted(b->core, hard.seq);
        break;
    case SIM_SNAPSHOT_WRITTEN:
        snapshot_written(w, n, e->argument);
        break;
    case SIM_INSTALLED:
        installed(w, n, e->argument);
        break;
    case SIM_REQUEST:
        request(w, n, (const struct sim_request *)((const struct sim_packet *)(uintptr_t)e->argument)->data);
        break;
    default:
        break;
    }
    if (!w->stopped)
        work(w, n);
}

static int bare_change_members(struct sim_world *w, struct sim_node *n, const struct cl_raft_members *m)
{
    int rc = cl_raft_change_members(bare_core(n), m->voters, m->n_voters, m->learners, m->n_learners);
    work(w, n);
    return rc;
}

static int bare_transfer(struct sim_world *w, struct sim_node *n, uint32_t to)
{
    int rc = cl_raft_transfer(bare_core(n), to);
    work(w, n);
    return rc;
}

const struct sim_body sim_bare = {
    .make = bare_make,
    .unmake = bare_unmake,
    .reset = bare_reset,
    .start = bare_start,
    .crash = bare_crash,
    .event = bare_event,
    .core = bare_core,
    .change_members = bare_change_members,
    .transfer = bare_transfer,
    .fail_disk = bare_fail_disk,
    .holds = bare_holds,
};
