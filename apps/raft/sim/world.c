/* The loop of a simulated world, its beginning and its end (see world.h). */
#include "world.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST_NS (3000 * SIM_MS) /* to come to rest in, after everything is mended */
#define REST_STEPS 200000       /* the same, in steps */
#define HISTORY_CONFIGURATIONS 2000000
#define HISTORY_BYTES (64u << 20)

struct cl_raft_sim {
    struct sim_world world;
};

void sim_fail(struct sim_world *w, const char *format, ...)
{
    if (w->stopped)
        return;
    w->stopped = true;
    if (w->result->failures++ == 0) {
        char why[CL_RAFT_SIM_REASON_BYTES - 96];
        va_list args;
        va_start(args, format);
        vsnprintf(why, sizeof(why), format, args);
        va_end(args);
        w->result->failed_seed = w->options.seed;
        snprintf(w->result->reason, sizeof(w->result->reason), "seed %lu with %u nodes, at %.3f ms: %s",
                 w->options.seed, w->options.nodes, (double)w->queue.now_ns / 1e6, why);
        sim_say(w, "!! %s", why);
    }
}

void sim_at(struct sim_world *w, uint64_t at_ns, enum sim_kind kind, uint32_t node, uint64_t argument)
{
    struct sim_event e = {.at_ns = at_ns, .argument = argument, .kind = (uint8_t)kind, .node = (uint8_t)node};
    if (kind <= SIM_WAKE && kind != SIM_DELIVER)
        e.epoch = w->nodes[node].epoch;
    if (sim_queue_put(&w->queue, e))
        sim_fail(w, "out of memory");
}

struct sim_packet *sim_packet(struct sim_world *w, uint32_t bytes)
{
    struct sim_packet *p = malloc(sizeof(*p) + bytes);
    if (!p) {
        sim_fail(w, "out of memory");
        return NULL;
    }
    p->refs = 1;
    p->bytes = bytes;
    return p;
}

void sim_packet_drop(struct sim_packet *p)
{
    if (--p->refs == 0)
        free(p);
}

void sim_send(struct sim_world *w, uint32_t from, uint32_t to, struct sim_packet *packet)
{
    uint64_t delays[SIM_COPIES];
    uint32_t copies = sim_net_send(&w->net, from, to, delays);
    packet->refs += copies;
    for (uint32_t i = 0; i < copies; i++)
        sim_at(w, w->queue.now_ns + delays[i], SIM_DELIVER, to, (uint64_t)(uintptr_t)packet);
    sim_packet_drop(packet);
}

void sim_started(struct sim_world *w, struct sim_node *n)
{
    n->doomed &= w->swarm.logless || n->remade; /* what was damaged is not needed, or was there twice */
    sim_check_start(w, n);
    sim_say(w, "#%u starts, term %lu, snapshot %lu", n->id, n->watch.term, n->watch.last);
}

void sim_remember_members(struct sim_world *w, struct sim_node *n)
{
    struct cl_raft_status s;
    if (!w->body->core(n)) /* it has not read its disk: as before */
        return;
    cl_raft_status(w->body->core(n), &s);
    n->members = s.members;
}

static void crash(struct sim_world *w, struct sim_node *n, bool killed)
{
    bool remade = sim_chance(&w->random[SIM_R_DISK], w->swarm.remade_ppm) && sim_may_forget(w, n);
    if (w->body->core(n)) /* what it did in this step counts, too */
        sim_check_node(w, n);
    sim_say(w, "-- #%u crashes%s", n->id,
            killed                                ? " alone: its disk keeps its power"
            : w->options.mode == CL_RAFT_SIM_CORE ? ""
                                                  : ", its power goes");
    sim_remember_members(w, n);
    w->body->crash(w, n, killed);
    n->up = false;
    n->killed = killed;
    n->epoch++;
    n->watch.role = CL_RAFT_FOLLOWER;
    w->result->crashes++;
    w->result->kills += killed;
    if (w->swarm.logless) {
        n->doomed = true;
        n->promised = 0;
        w->result->amnesiac_starts++;
    }
    if (remade) {
        w->body->lose_log(w, n);
        n->remade++;
        n->doomed = true;
        n->promised = 0;
        w->result->remade_logs++;
        sim_say(w, "-- #%u's log is lost, and it is given another", n->id);
    }
}

bool sim_crash(struct sim_world *w, struct sim_node *n)
{
    if (w->swarm.logless && !sim_may_forget(w, n))
        return false;
    crash(w, n, sim_chance(&w->random[SIM_R_DISK], w->swarm.kill_ppm));
    return true;
}

/* What a killed process leaves in its disk's cache is lost when the power goes before it was written again: while the
 * log is being opened, or has gone on behind it for a while. */
static void power_later(struct sim_world *w, struct sim_node *n)
{
    struct cl_random *random = &w->random[SIM_R_DISK];
    uint64_t writing_ns = 4 * (w->swarm.write_ns + w->swarm.write_spread_ns);
    if (n->killed && sim_chance(random, w->swarm.power_ppm))
        sim_at(w, w->queue.now_ns + cl_random_below(random, sim_chance(random, 500000) ? writing_ns : 40 * SIM_MS),
               SIM_POWER, n->slot, n->epoch);
}

int sim_start(struct sim_world *w, struct sim_node *n)
{
    n->epoch++;
    n->failed = false;
    power_later(w, n);
    n->started_local_ns = sim_local_ns(w, n);
    n->ticks_done = 0;
    n->up = true;
    n->watch.role = CL_RAFT_FOLLOWER;
    int rc = w->body->start(w, n);
    if (rc || n->lost) {
        n->up = false;
        return rc;
    }
    if (w->body->core(n))
        sim_started(w, n);
    sim_at(w, w->queue.now_ns + sim_clock_span(&n->clock, w->swarm.tick_ns), SIM_TICK, n->slot, 0);
    return 0;
}

static void power_goes(struct sim_world *w, struct sim_node *n, uint64_t epoch)
{
    if (w->calm || !n->up || n->epoch != epoch)
        return;
    crash(w, n, false);
    w->result->late_power_cuts++;
    sim_restart_later(w, n, w->swarm.restart_ms * SIM_MS);
}

struct sim_node *sim_leader(struct sim_world *w)
{
    struct sim_node *found = NULL;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *n = &w->nodes[i];
        if (n->up && !n->failed && n->watch.role == CL_RAFT_LEADER && (!found || n->watch.term > found->watch.term))
            found = n;
    }
    return found;
}

static bool owns_packet(uint8_t kind)
{
    return kind == SIM_DELIVER || kind == SIM_REQUEST || kind == SIM_ANSWER;
}

/* What was to happen in an earlier incarnation of a node, and a wake that an earlier one has replaced: nothing happens,
 * and it is no step. */
static bool is_void(const struct sim_node *n, const struct sim_event *e)
{
    if (e->kind > SIM_WAKE || e->kind == SIM_DELIVER)
        return false;
    return !n->up || e->epoch != n->epoch || (e->kind == SIM_WAKE && e->argument != n->wakes);
}

/* An event that is a node's. */
static void node_event(struct sim_world *w, struct sim_event *e)
{
    struct sim_node *n = &w->nodes[e->node];
    if (!n->up)
        return;
    n->voted = false;
    w->body->event(w, n, e);
    if (!w->stopped && w->body->core(n))
        sim_check_node(w, n);
    if (n->voted && n->up && !w->stopped && sim_chance(&w->random[SIM_R_FAULT], w->swarm.vote_crash_ppm) &&
        sim_crash(w, n))
        sim_restart_later(w, n, SIM_MS);

    if (e->kind == SIM_TICK && n->up && !w->stopped && !w->body->wakes_itself) {
        uint64_t next_local = n->started_local_ns + (n->ticks_done + 1) * w->swarm.tick_ns, now = sim_local_ns(w, n);
        uint64_t wait = next_local > now ? next_local - now : 1;
        sim_at(w, w->queue.now_ns + sim_clock_span(&n->clock, wait) + 1, SIM_TICK, n->slot, 0);
    }
}

/* Checks after something that was done to a leader from outside. */
static void check_all(struct sim_world *w)
{
    for (uint32_t i = 0; i < w->n_nodes && !w->stopped; i++)
        if (w->body->core(&w->nodes[i]))
            sim_check_node(w, &w->nodes[i]);
}

static void restart(struct sim_world *w, struct sim_node *n, bool failed)
{
    if (failed && n->up && n->failed)
        sim_crash(w, n);
    else if (failed && n->up && w->body->mend_disk)
        w->body->mend_disk(w, n); /* it wrote nothing in the meantime */
    if (n->up || n->lost)
        return;
    w->result->restarts++;
    sim_start(w, n);
}

/* How much later than others an event is taken that waited for a stopped node, ns. */
static uint64_t after_stall(const struct sim_node *n, const struct sim_event *e)
{
    if (e->kind == SIM_TICK || e->kind == SIM_WAKE)
        return n->stall_order == SIM_BY_TIME ? 0 : 2;
    return n->stall_order == SIM_REQUESTS_FIRST && e->kind != SIM_REQUEST;
}

/* Another step. False: the world has come to an end. */
static bool step(struct sim_world *w)
{
    struct sim_event e;
    if (w->stopped || !sim_queue_take(&w->queue, &e))
        return false;
    bool of_node = e.kind <= SIM_REQUEST;
    struct sim_node *n = &w->nodes[e.node];
    if (is_void(n, &e))
        return true;
    if (of_node && n->stalled_until_ns > e.at_ns) { /* the process is stopped: everything waits */
        e.at_ns = n->stalled_until_ns + after_stall(n, &e);
        if (sim_queue_put(&w->queue, e))
            sim_fail(w, "out of memory");
        return true;
    }
    w->result->steps++;
    sim_note(w, e.at_ns ^ (uint64_t)e.kind << 56 ^ (uint64_t)e.node << 48);
    if (of_node)
        node_event(w, &e);
    else if (e.kind == SIM_ANSWER)
        sim_client_answer(w, e.node, (const struct sim_reply *)((struct sim_packet *)(uintptr_t)e.argument)->data);
    else if (e.kind == SIM_CLIENT)
        sim_client_turn(w, e.node, e.argument);
    else if (e.kind == SIM_RESTART)
        restart(w, n, e.argument != 0);
    else if (e.kind == SIM_POWER)
        power_goes(w, n, e.argument);
    else if (e.kind == SIM_MEND && !w->all_slow_ns) /* of an earlier cut */
        sim_mend_network(w);
    else if (e.kind == SIM_FAULT) {
        sim_fault(w, (uint32_t)e.argument, (uint32_t)(e.argument >> 32));
        check_all(w);
    }
    if (owns_packet(e.kind))
        sim_packet_drop((struct sim_packet *)(uintptr_t)e.argument);
    return true;
}

/* Where everybody is, for the trace of a run that got stuck. */
static void say_state(struct sim_world *w)
{
    static const char *const roles[] = {"follower", "pre-candidate", "candidate", "leader", "failed"};
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *n = &w->nodes[i];
        struct cl_raft_status s;
        if (!w->body->core(n)) {
            sim_say(w, "#%u: %s", n->id, n->lost ? "lost its disk" : n->up ? "reads its disk" : "down");
            continue;
        }
        cl_raft_status(w->body->core(n), &s);
        sim_say(w,
                "#%u: %s of term %lu, log %lu..%lu durable %lu commit %lu applied %lu snapshot %lu, %u+%u+%u members "
                "at %lu",
                n->id, roles[s.role], s.term, s.first, s.last, s.durable, s.commit, s.applied, s.snapshot_index,
                s.members.n_voters, s.members.n_outgoing, s.members.n_learners, s.members_index);
    }
    for (uint32_t i = 0; i < w->swarm.clients; i++)
        if (w->clients[i].op != SIM_OPS)
            sim_say(w, "client %u waits for %u of session %u", i, w->clients[i].sequence, w->clients[i].session);
}

/* Run until `done`, which must be so within bounds. */
static void until(struct sim_world *w, bool (*done)(struct sim_world *), uint64_t most_ns, const char *what)
{
    uint64_t deadline_ns = w->queue.now_ns + most_ns, steps = 0;
    while (!w->stopped && !done(w)) {
        if (w->queue.now_ns > deadline_ns || ++steps > REST_STEPS || !step(w)) {
            say_state(w);
            sim_fail(w, "no progress: %s %lu ms after everything was mended", what, (uint64_t)(most_ns / SIM_MS));
            break;
        }
    }
}

static bool rests(struct sim_world *w)
{
    return sim_clients_idle(w) && sim_at_rest(w);
}

static bool idle(struct sim_world *w)
{
    return sim_clients_idle(w);
}

/* A client whose request was lost would wait until its patience is over. */
static bool all_answered(struct sim_world *w)
{
    for (uint32_t i = 0; i < w->n_nodes && w->body->owes; i++)
        if (w->body->owes(&w->nodes[i]))
            return false;
    return true;
}

static void judge_history(struct sim_world *w)
{
    struct cl_history_result r;
    cl_history_check(w->history, w->ops, w->n_ops, &r);
    w->result->configurations += r.configurations;
    if (r.verdict == CL_HISTORY_RIGHT)
        return;
    const struct cl_history_op *op = &w->ops[r.bad_op];
    for (uint64_t i = 0; i < w->n_ops; i++) {
        const struct cl_history_op *o = &w->ops[i];
        if (o->key == r.bad_key)
            sim_say(w, "history: %lu..%ld client %u kind %u%s in %016lx expected %016lx out %016lx", o->invoked,
                    (long)o->returned, o->client, o->kind, o->flags & CL_HISTORY_REFUSED ? " refused" : "", o->input,
                    o->other, o->output);
    }
    sim_fail(
        w, "the history of register %lu is %s: %lu of %lu operations fit, then client %u's of kind %u at %lu does not",
        r.bad_key, r.verdict == CL_HISTORY_WRONG ? "not linearizable" : "undecided", r.bad_done, r.bad_ops, op->client,
        op->kind, op->invoked);
}

static int32_t drift_of(struct sim_world *w, const struct sim_node *n)
{
    int32_t most = (int32_t)w->swarm.drift_ppm;
    if (w->swarm.slow_node)
        return n->id == w->swarm.slow_node ? -most : most;
    return most ? (int32_t)cl_random_below(&w->random[SIM_R_CLOCK], 2 * (uint64_t)most) - most : 0;
}

static void begin(struct sim_world *w)
{
    const struct cl_raft_sim_options *o = &w->options;
    w->body = o->mode == CL_RAFT_SIM_CORE ? &sim_core_body : &sim_real;
    w->stopped = w->calm = false;
    w->all_slow_ns = w->led_term = 0;
    w->stamp = 0;
    w->hash = o->seed;
    w->text_bytes = 0;
    if (w->text)
        w->text[0] = 0;
    sim_queue_clear(&w->queue);
    for (uint32_t i = 0; i < SIM_STREAMS; i++)
        w->random[i].state = sim_stream(o->seed, i);
    sim_swarm_draw(w);
    w->n_nodes = o->nodes + SIM_SPARES;
    sim_net_init(&w->net, w->n_nodes, sim_stream(o->seed, SIM_R_NET), w->swarm.link);
    sim_check_begin(w);
    for (uint32_t i = 0; i < w->n_nodes && !w->stopped; i++) {
        struct sim_node *n = &w->nodes[i];
        n->id = i + 1;
        n->slot = i;
        n->up = n->killed = n->failed = n->lost = n->doomed = false;
        n->remade = 0;
        n->members = (struct cl_raft_members){0};
        n->promised = 0;
        n->watch = (struct sim_watch){.terms = n->watch.terms};
        n->epoch = 0;
        n->wakes = 0;
        n->wall_ms = 0;
        n->stalled_until_ns = n->slow_disk_until_ns = n->hung_disk_until_ns = 0;
        n->clock.drift_ppm = drift_of(w, n);
        n->clock.offset_ns = cl_random_below(&w->random[SIM_R_CLOCK], 1000 * SIM_MS);
        w->body->reset(w, n);
        sim_start(w, n);
    }
    sim_clients_begin(w);
    sim_faults_begin(w);
}

static void end_run(struct sim_world *w)
{
    const struct sim_net_counts *c = &w->net.counts;
    struct cl_raft_sim_result *r = w->result;
    r->runs++;
    r->virtual_ns += w->queue.now_ns;
    r->datagrams += c->sent;
    r->datagrams_lost += c->lost;
    r->datagrams_duplicated += c->duplicated;
    r->datagrams_cut += c->cut;
    r->hash ^= w->hash + 0x9e3779b97f4a7c15ull * w->options.seed;
    for (struct sim_event e; sim_queue_take(&w->queue, &e);)
        if (owns_packet(e.kind))
            sim_packet_drop((struct sim_packet *)(uintptr_t)e.argument);
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct cl_raft_counters counters = {0};
        if (w->nodes[i].up && w->body->core(&w->nodes[i]))
            cl_raft_counters(w->body->core(&w->nodes[i]), &counters);
        r->thrifty_batches += counters.thrifty_batches;
        r->overtaken += counters.overtaken;
        w->nodes[i].up = false;
        w->body->reset(w, &w->nodes[i]);
    }
}

int cl_raft_sim_run(struct cl_raft_sim *sim, const struct cl_raft_sim_options *options,
                    struct cl_raft_sim_result *result)
{
    struct sim_world *w = &sim->world;
    if (!options->nodes || options->nodes > CL_RAFT_SIM_MOST_NODES || options->mode > CL_RAFT_SIM_RESP ||
        options->mutant >= CL_RAFT_SIM_MUTANTS)
        return -EINVAL;
    uint64_t failures = result->failures, answered = result->ops_answered;
    uint64_t steps = options->steps ? options->steps : options->mode == CL_RAFT_SIM_CORE ? 2500 : 5000;
    w->options = *options;
    w->result = result;
    begin(w);
    for (uint64_t end = result->steps + steps; result->steps < end && step(w);)
        ;
    result->ops_under_faults += result->ops_answered - answered;
    result->unanswered_runs += result->ops_answered == answered;
    if (!w->stopped)
        sim_calm(w);
    until(w, rests, REST_NS, "the cluster does not come to rest");
    uint64_t most_ns = w->stopped ? 0 : sim_slow_all(w);
    if (most_ns) {
        until(w, sim_led_again, most_ns, "all disks are slow, and nobody leads");
        sim_slow_end(w);
        until(w, rests, REST_NS, "the cluster does not come to rest again");
    }
    sim_check_end(w);
    for (uint8_t key = 0; key < SIM_KEYS && !w->stopped; key++) {
        sim_clients_read(w, key);
        until(w, idle, REST_NS, "a read is not answered");
    }
    until(w, all_answered, REST_NS, "a node still owes an answer");
    if (!w->stopped)
        judge_history(w);
    end_run(w);
    return result->failures != failures;
}

int cl_raft_sim_many(struct cl_raft_sim *sim, const struct cl_raft_sim_options *options, uint64_t count,
                     struct cl_raft_sim_result *result)
{
    struct cl_raft_sim_options one = *options;
    for (uint64_t i = 0; i < count; i++, one.seed++) {
        int rc = cl_raft_sim_run(sim, &one, result);
        if (rc)
            return rc;
    }
    return 0;
}

const char *cl_raft_sim_trace(const struct cl_raft_sim *sim)
{
    return sim->world.text ? sim->world.text : "";
}

struct cl_raft_sim *cl_raft_sim_new(void)
{
    struct cl_raft_sim *sim = calloc(1, sizeof(*sim));
    if (!sim)
        return NULL;
    struct sim_world *w = &sim->world;
    w->ops = calloc(SIM_OPS, sizeof(*w->ops));
    w->leaders = calloc(SIM_TERMS + 1, sizeof(*w->leaders));
    w->votes = calloc(SIM_TERMS + 1, sizeof(*w->votes));
    w->committed = calloc(SIM_ENTRIES, sizeof(*w->committed));
    w->machines = calloc(SIM_ENTRIES, sizeof(*w->machines));
    w->seen = calloc(SIM_SEEN, sizeof(*w->seen));
    w->history = cl_history_new(HISTORY_CONFIGURATIONS, HISTORY_BYTES);
    bool made = w->ops && w->leaders && w->votes && w->committed && w->machines && w->seen && w->history;
    for (uint32_t i = 0; i < SIM_NODES && made; i++) {
        struct sim_node *n = &w->nodes[i];
        n->watch.terms = calloc(SIM_ENTRIES, sizeof(*n->watch.terms));
        made = n->watch.terms && sim_core_body.make(w, n) == 0 && sim_real.make(w, n) == 0;
    }
    if (made)
        return sim;
    cl_raft_sim_delete(sim);
    return NULL;
}

void cl_raft_sim_delete(struct cl_raft_sim *sim)
{
    if (!sim)
        return;
    struct sim_world *w = &sim->world;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        free(w->nodes[i].watch.terms);
        sim_core_body.unmake(w, &w->nodes[i]);
        sim_real.unmake(w, &w->nodes[i]);
    }
    cl_history_delete(w->history);
    sim_queue_free(&w->queue);
    free(w->ops);
    free(w->leaders);
    free(w->votes);
    free(w->committed);
    free(w->machines);
    free(w->seen);
    free(w->text);
    free(sim);
}
