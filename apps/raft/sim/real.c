/* A node that is the real one, with its sessions and snapshots, on the real log (see real.h). */
#include "real.h"
#include "../../../drivers/blk/fault.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_BYTES 64
#define WAITING 16 /* a few more than there are clients: what runs full shows, too */

/* What a token holds. */
enum { T_CLIENT, T_SESSION, T_SEQUENCE, T_OPEN };

static int real_make(struct sim_world *w, struct sim_node *n)
{
    struct real *r = calloc(1, sizeof(*r));
    n->real = r;
    if (!r)
        return -ENOMEM;
    r->world = w;
    r->owner = n;
    return 0;
}

/* What is durable is so after a crash, too. */
static void remember(struct real *r)
{
    struct cl_raft_status s;
    if (!r->running || r->owner->doomed)
        return;
    cl_raft_status(cl_raft_node_core(r->node), &s);
    r->held = cl_max(r->log ? cl_min(s.durable, cl_log_durable_index(r->log)) : s.durable, s.snapshot_index);
    r->held_snapshot = s.snapshot_index;
}

/* By what its log says now, or said when it went down; the terms are those of the last check. */
static bool real_holds(struct sim_node *n, uint64_t index, uint64_t term)
{
    struct real *r = real_of(n);
    remember(r);
    if (index <= r->held_snapshot || index > r->held)
        return index <= r->held_snapshot;
    return (r->running && !n->doomed ? cl_raft_term_at(cl_raft_node_core(r->node), index) : n->watch.terms[index]) ==
           term;
}

static void forget(struct real *r, bool killed)
{
    remember(r);
    if (r->node) {
        struct cl_raft_node_counters c;
        cl_raft_node_counters(r->node, &c);
        r->world->result->snapshots_made += c.snapshots;
        r->world->result->full_logs += c.log_full;
    }
    if (r->log) {
        struct cl_log_stats stats;
        cl_log_stats(r->log, &stats);
        r->said = cl_max(r->said, stats.said_flush); /* nothing, while it is being opened */
        if (killed)
            cl_blk_fault_kill(r->blk);
        else
            cl_blk_fault_crash(r->blk);
        cl_log_discard(r->log);
    }
    cl_raft_node_delete(r->node);
    real_channel_delete(r);
    real_port_delete(r);
    r->log = NULL;
    r->node = NULL;
    r->running = false;
    r->wake_ns = 0;
}

static void real_unmake(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct real *r = real_of(n);
    if (!r)
        return;
    forget(r, false);
    sim_store_free(&r->store);
    raft_resp_delete(&r->values.resp);
    if (r->blk)
        cl_blk_close(r->blk);
    free(r);
    n->real = NULL;
}

/* What it acknowledged was true when it did, so `held` stays. */
static void real_lose_log(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    struct real *r = real_of(n);
    if (r->blk)
        cl_blk_close(r->blk);
    r->blk = NULL;
    r->said = 0;
    r->began = false;
}

static void real_reset(struct sim_world *w, struct sim_node *n)
{
    struct real *r = real_of(n);
    forget(r, false);
    real_lose_log(w, n);
    r->held = r->held_snapshot = 0;
    r->bad = REAL_GOOD;
    r->hurt = r->slow = r->hung = false;
    r->all_slow_ns = 0;
}

static int real_start(struct sim_world *w, struct sim_node *n)
{
    struct real *r = real_of(n);
    char err[256];
    r->bad = REAL_GOOD;
    r->slow = r->hung = false;
    r->hurt = w->swarm.disk_error_ppm || w->swarm.no_space_ppm;
    if (w->swarm.logless)
        return 0;
    if (!r->blk && real_new_disk(r))
        return -EIO;
    real_set_disk(r);
    struct cl_log_config config = {.blk = r->blk,
                                   .in_flight = REAL_IN_FLIGHT,
                                   .buffers = 6,
                                   .confirm_ns = REAL_CONFIRM_NS,
                                   .now_ns = real_clock,
                                   .now_arg = r};
    if (w->options.mutant == CL_RAFT_SIM_ROT_CUT)
        config.on_damage = CL_LOG_CUT;
    int rc = cl_log_open(&config, &r->log, err);
    if (rc)
        sim_fail(w, "#%u: cannot open its log: %s", n->id, err);
    return rc;
}

static void real_crash(struct sim_world *w, struct sim_node *n, bool killed)
{
    (void)w;
    forget(real_of(n), killed);
}

static struct cl_raft *real_core(struct sim_node *n)
{
    struct real *r = real_of(n);
    return r->running ? cl_raft_node_core(r->node) : NULL;
}

/* The node's environment. */

static uint64_t env_wall_ms(void *arg)
{
    return real_wall_ms(arg);
}

/* The blob is apps/raft/node/disk.c's: at 16 is the term, at 24 the vote. */
static bool voted_durably(const struct real *r, uint64_t term, uint32_t vote)
{
    uint8_t meta[CL_LOG_META_BYTES];
    uint64_t its_term;
    uint32_t its_vote;
    if (!r->log)
        return true;
    if (cl_log_meta_get(r->log, meta) < 32)
        return false;
    memcpy(&its_term, meta + 16, sizeof(its_term));
    memcpy(&its_vote, meta + 24, sizeof(its_vote));
    return its_term == term && its_vote == vote;
}

/* Look into what leaves: votes are counted, acknowledgements are remembered. */
static void look(struct sim_world *w, struct sim_node *n, const uint8_t *data, uint32_t bytes)
{
    struct cl_raft_msg m;
    struct cl_raft_wire_counters counters = {0};
    if (cl_raft_decode(w->swarm.config.cluster, data, bytes, &m, &counters) || m.flags & CL_RAFT_REJECT)
        return;
    if (m.type == CL_RAFT_APPEND_REPLY) {
        sim_check_promise(w, n, m.index);
        if (m.index && !w->options.outcomes_only && !real_holds(n, m.index, n->promised_term))
            sim_fail(w, "durability: #%u acknowledges entry %lu, which is not durable in its log", n->id, m.index);
    } else if (m.type == CL_RAFT_VOTE_REPLY) {
        sim_check_vote(w, n->id, m.to, m.term);
        if (!w->options.outcomes_only && !voted_durably(real_of(n), m.term, m.to))
            sim_fail(w, "durability: #%u votes for #%u in term %lu, which is not durable in its log", n->id, m.to,
                     m.term);
    }
    if (m.type == CL_RAFT_VOTE)
        sim_check_vote(w, n->id, n->id, m.term);
    n->voted |= m.type == CL_RAFT_VOTE_REPLY || m.type == CL_RAFT_VOTE;
}

static bool env_send(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    struct real *r = arg;
    look(r->world, r->owner, data, bytes);
    if (r->channel) /* without one all are lost alike */
        return raft_channel_send(r->channel, to, data, bytes, lasting, real_clock(r));
    return real_post(r, to, data, bytes);
}

static void env_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    struct real *r = arg;
    if (real_has_values(r)) {
        if (r->port)
            raft_ahead_answer(&r->port->ahead, token, status, reply, bytes);
        return;
    }
    struct sim_reply out = {.client = (uint32_t)token->words[T_CLIENT], .session = (uint32_t)token->words[T_SESSION]};
    out.sequence = (uint32_t)token->words[T_SEQUENCE];
    out.leader = r->owner->watch.leader;
    bool done = status == CL_RAFT_OK || status == CL_RAFT_REFUSED;
    out.status = done ? SIM_DONE : status == CL_RAFT_EXPIRED ? SIM_EXPIRED : SIM_ELSEWHERE;
    bool fits = bytes == (token->words[T_OPEN] ? 8 : sizeof(out.outcome));
    if (done && !fits)
        return sim_fail(r->world, "#%u answers with %u bytes", r->owner->id, bytes);
    if (done)
        memcpy(&out.outcome, reply, bytes);
    if (done && !token->words[T_OPEN] && out.outcome.refused != (status == CL_RAFT_REFUSED))
        return sim_fail(r->world, "#%u answers with status %d what its state machine %s", r->owner->id, status,
                        out.outcome.refused ? "refused" : "did not refuse");
    sim_answer(r->world, &out);
}

/* Whom it is told to begin with. Once its log says that, anything at all: nobody may mind. */
static struct cl_raft_members first_members(struct real *r)
{
    struct sim_world *w = r->world;
    uint64_t word = sim_mix(w->swarm.config.seed ^ sim_mix((uint64_t)r->owner->epoch * SIM_NODES + r->owner->id));
    struct cl_raft_members m = {0};
    if (!r->log || !r->began || !w->swarm.other_peers)
        return r->owner->id > w->options.nodes ? m : w->swarm.config.members;
    for (uint32_t id = 1; id <= w->n_nodes; id++)
        if (word >> id & 1)
            m.voters[m.n_voters++] = id;
    w->result->other_peers++;
    return m;
}

static int new_node(struct real *r)
{
    struct sim_world *w = r->world;
    struct sim_node *n = r->owner;
    struct cl_raft_node_config c = {
        .raft = w->swarm.config,
        .env = {r, real_clock, env_wall_ms, env_send, env_answer},
        .machine = real_has_values(r) ? real_values_machine(r) : real_machine(r),
        .log = r->log,
        .incarnation = sim_mix(w->swarm.config.seed + (uint64_t)n->epoch * SIM_NODES + n->id) | 1,
        .tick_ns = w->swarm.tick_ns,
        .snapshot_bytes = real_snapshot_bytes(r),
        .max_sessions = w->swarm.max_sessions,
        .session_ms = w->swarm.session_ms,
        .reply_bytes = REPLY_BYTES,
        .waiting = WAITING,
        .batches = w->swarm.batches,
        .replicate = w->swarm.replicate,
        .log_requests = w->swarm.log_requests,
    };
    char err[256];
    c.raft.id = n->id;
    c.raft.seed = sim_mix(c.raft.seed + (uint64_t)n->epoch * SIM_NODES + n->id);
    c.raft.members = first_members(r);
    if (real_has_store(r) || real_has_values(r)) /* chunks of an image: with 300 bytes each it would take seconds */
        c.raft.message_bytes = cl_max(c.raft.message_bytes, 20000u);
    sim_machine_init(&r->machine);
    sim_machine_salt(&r->machine, n->id);
    n->watch.applied = 0;
    if (real_has_store(r) && sim_store_new(&r->store, err))
        return sim_fail(w, "#%u: cannot make a store: %s", n->id, err), -ENOMEM;
    if (real_has_values(r) && real_values_new(r, err))
        return sim_fail(w, "#%u: cannot make values: %s", n->id, err), -ENOMEM;
    int rc = cl_raft_node_new(&c, &r->node, err);
    if (rc)
        return sim_fail(w, "#%u: cannot make a node: %s", n->id, err), rc;
    rc = real_channel_new(r);
    if (rc)
        return sim_fail(w, "#%u: no memory for a channel", n->id), rc;
    rc = real_has_values(r) ? real_port_new(r, err) : 0;
    if (rc)
        sim_fail(w, "#%u: cannot make a port: %s", n->id, err);
    return rc;
}

/* The log, or the node of its snapshot, says that what the disk holds is damaged. Where reads fail now and then, one
 * that failed is damage only where there is some. */
static bool tells_damage(const struct real *r, const char *why)
{
    if (!r->owner->doomed && strstr(why, "cannot be read"))
        return false;
    if (!r->node)
        return cl_log_error(r->log) == -EBADMSG;
    return strstr(why, "is damaged") || (strstr(why, "cannot be read") && strstr(why, "offset"));
}

/* How many requesters of this node were not answered yet. */
static uint64_t unanswered(const struct real *r)
{
    struct cl_raft_node_counters c;
    cl_raft_node_counters(r->node, &c);
    return c.commands + c.queries - c.answered;
}

/* The disk refused: silent until a restart. Nothing else may stop a node. */
static void stopped(struct real *r, const char *why)
{
    struct sim_world *w = r->world;
    struct sim_node *n = r->owner;
    if (n->failed)
        return;
    sim_say(w, "#%u stops: %s", n->id, why);
    sim_remember_members(w, n); /* what it proposed last may be in its log */
    if (r->node && unanswered(r))
        return sim_fail(w, "#%u stops without an answer to %llu who asked", n->id, (unsigned long long)unanswered(r));
    if (strstr(why, "forgotten its votes")) {
        n->failed = true;
        r->running = false;
        return sim_lost(w, n, why);
    }
    if (tells_damage(r, why)) {
        if (!strstr(why, "offset"))
            return sim_fail(w, "#%u says that its disk is damaged, and not where: %s", n->id, why);
        n->failed = true;
        sim_lost(w, n, why);
        return;
    }
    if (!r->hurt)
        return sim_fail(w, "#%u stops though its disk never failed: %s", n->id, why);
    n->failed = true;
    r->running = false;
    w->result->failed_disks++;
    sim_at(w, w->queue.now_ns + SIM_MS + cl_random_below(&w->random[SIM_R_DISK], 30 * SIM_MS), SIM_RESTART, n->slot, 1);
}

/* Be woken at a time of this node's clock, unless something earlier will. */
static void wake_at(struct real *r, uint64_t local_ns)
{
    struct sim_world *w = r->world;
    uint64_t now_local = real_clock(r);
    if (local_ns == UINT64_MAX && !r->hung)
        return;
    if (r->hung)
        local_ns = cl_min(local_ns, now_local + SIM_MS); /* to see when it goes on */
    uint64_t span = local_ns > now_local ? sim_clock_span(&r->owner->clock, local_ns - now_local) + 1 : 1;
    uint64_t at = w->queue.now_ns + span;
    if (r->wake_ns > w->queue.now_ns && r->wake_ns <= at)
        return;
    r->wake_ns = at;
    sim_at(w, at, SIM_WAKE, r->owner->slot, ++r->owner->wakes);
}

/* Poll the node, with what its port has for it. */
static uint64_t poll_node(struct real *r)
{
    if (!r->port || !r->running)
        return cl_raft_node_poll(r->node);
    uint64_t before = sim_lease_reads(r->world, r->owner), due_ns = real_port_give(r), next;
    sim_check_lease_reads(r->world, r->owner, before);
    next = cl_raft_node_poll(r->node);
    if (cl_raft_node_state(r->node) != CL_RAFT_STOPPED)
        real_port_send(r);
    return cl_min(next, due_ns);
}

/* Let the log, and then the node, do what can be done now. */
static void work(struct real *r)
{
    struct sim_world *w = r->world;
    if (!r->node && !r->log) {
        if (new_node(r))
            return;
    } else if (!r->node) {
        cl_log_pump(r->log);
        if (cl_log_state(r->log) == CL_LOG_FAILED)
            return stopped(r, cl_log_why(r->log));
        if (cl_log_state(r->log) != CL_LOG_READY)
            return wake_at(r, cl_log_next_ns(r->log));
        if (new_node(r))
            return;
    }
    uint64_t next = poll_node(r);
    int state = cl_raft_node_state(r->node);
    if (state == CL_RAFT_STOPPED)
        return stopped(r, cl_raft_node_why(r->node));
    if (state == CL_RAFT_RUNNING && !r->running) {
        r->running = r->began = true;
        sim_started(w, r->owner);
        next = poll_node(r);
    }
    if (r->channel)
        next = cl_min(next, raft_channel_poll(r->channel, real_clock(r)));
    wake_at(r, next);
}

static void request(struct real *r, const struct sim_request *q)
{
    if (r->port)
        return real_port_request(r, q);
    struct cl_raft_token token = {{q->client, q->command.session, q->open ? 0 : q->command.sequence, q->open}};
    if (q->open)
        cl_raft_node_submit(r->node, CL_RAFT_OPEN, 0, q->command.session + 1, NULL, 0, &token);
    else if (q->by_log)
        cl_raft_node_submit(r->node, CL_RAFT_APPLY, q->number, q->command.sequence, (const uint8_t *)&q->command,
                            sizeof(q->command), &token);
    else {
        uint64_t before = sim_lease_reads(r->world, r->owner);
        cl_raft_node_query(r->node, (const uint8_t *)&q->command, sizeof(q->command), &token);
        sim_check_lease_reads(r->world, r->owner, before);
    }
}

static void deliver(struct real *r, const struct sim_packet *p)
{
    struct cl_raft_msg m;
    struct cl_raft_wire_counters counters = {0};
    const uint8_t *frame = p->data;
    uint32_t bytes = p->bytes;
    if (r->channel)
        frame = raft_channel_receive(r->channel, p->data, p->bytes, real_clock(r), &bytes);
    if (!frame)
        return;
    if (!cl_raft_decode(r->world->swarm.config.cluster, frame, bytes, &m, &counters))
        sim_trace_message(r->world, r->owner->id, &m);
    cl_raft_node_receive(r->node, frame, bytes);
}

static void real_event(struct sim_world *w, struct sim_node *n, const struct sim_event *e)
{
    struct real *r = real_of(n);
    if (n->failed)
        return;
    bool slow = n->slow_disk_until_ns > w->queue.now_ns, hung = n->hung_disk_until_ns > w->queue.now_ns;
    if (slow != r->slow || hung != r->hung || r->all_slow_ns != sim_slow_ns(w, n)) {
        r->all_slow_ns = sim_slow_ns(w, n);
        r->slow = slow;
        r->hung = hung;
        real_set_disk(r);
    }
    if (e->kind == SIM_WAKE)
        r->wake_ns = 0;
    const struct sim_packet *p = (const struct sim_packet *)(uintptr_t)e->argument;
    if (r->running && e->kind == SIM_DELIVER)
        deliver(r, p);
    else if (r->running && e->kind == SIM_REQUEST)
        request(r, (const struct sim_request *)p->data);
    if (!w->stopped)
        work(r);
    if (!w->stopped && n->up && sim_chance(&w->random[SIM_R_DISK], w->swarm.crash_point_ppm) && sim_crash(w, n))
        sim_at(w, w->queue.now_ns + cl_random_below(&w->random[SIM_R_DISK], w->swarm.restart_ms * SIM_MS), SIM_RESTART,
               n->slot, 0);
}

static bool real_knows(struct sim_node *n, const struct sim_node *other)
{
    const struct real *mine = real_of(n), *theirs = other->real;
    return mine->running && theirs->running &&
           cl_raft_node_knows(mine->node, other->id, cl_raft_node_incarnation(theirs->node));
}

static uint64_t real_owes(struct sim_node *n)
{
    return real_of(n)->running ? unanswered(real_of(n)) : 0;
}

static int real_change_members(struct sim_world *w, struct sim_node *n, const struct cl_raft_members *m)
{
    int rc = sim_order_members(w, real_core(n), m);
    work(real_of(n));
    return rc;
}

static int real_transfer(struct sim_world *w, struct sim_node *n, uint32_t to)
{
    (void)w;
    int rc = cl_raft_transfer(real_core(n), to);
    work(real_of(n));
    return rc;
}

const struct sim_body sim_real = {
    .make = real_make,
    .unmake = real_unmake,
    .reset = real_reset,
    .start = real_start,
    .crash = real_crash,
    .event = real_event,
    .core = real_core,
    .change_members = real_change_members,
    .transfer = real_transfer,
    .fail_disk = real_fail_disk,
    .mend_disk = real_mend_disk,
    .rot = real_rot,
    .lose_log = real_lose_log,
    .holds = real_holds,
    .knows = real_knows,
    .owes = real_owes,
    .wakes_itself = true,
};
