/* What goes wrong in a world, and how it is mended: one fault after the other, drawn with the seed's weights. */
#include "world.h"

static uint64_t below(struct sim_world *w, uint64_t n)
{
    return cl_random_below(&w->random[SIM_R_FAULT], n);
}

static struct sim_node *any_node(struct sim_world *w)
{
    /* Leaders are where it hurts: half of the time one of them is chosen. */
    struct sim_node *leader = sim_leader(w);
    if (leader && below(w, 2))
        return leader;
    return &w->nodes[below(w, w->n_nodes)];
}

void sim_restart_later(struct sim_world *w, struct sim_node *n, uint64_t most_ns)
{
    sim_at(w, w->queue.now_ns + below(w, most_ns), SIM_RESTART, n->slot, 0);
}

static void crash(struct sim_world *w, struct sim_node *n)
{
    if (n->up && sim_crash(w, n))
        sim_restart_later(w, n, w->swarm.restart_ms * SIM_MS);
}

static void crash_many(struct sim_world *w)
{
    uint64_t mask = below(w, 1ull << w->n_nodes);
    for (uint32_t i = 0; i < w->n_nodes; i++)
        if (mask >> i & 1)
            crash(w, &w->nodes[i]);
}

/* Networks are mended after a while, by one event for all that was cut. */
static void mend_later(struct sim_world *w)
{
    sim_at(w, w->queue.now_ns + 5 * SIM_MS + below(w, 80 * SIM_MS), SIM_MEND, 0, 0);
}

/* A node to be left alone. Clients that only read try it: if it led, it may take itself for the leader for a while. */
static struct sim_node *alone(struct sim_world *w)
{
    struct sim_node *n = any_node(w);
    sim_clients_stay(w, n->slot);
    return n;
}

static void partition(struct sim_world *w)
{
    uint32_t mask = (uint32_t)below(w, 1ull << w->n_nodes);
    if (!below(w, 3))
        mask = 1u << alone(w)->slot;
    sim_net_partition(&w->net, mask, SIM_CUT_OUT | SIM_CUT_IN);
    w->result->partitions++;
    sim_say(w, "-- partition: nodes 0x%x apart from the others", mask << 1);
    mend_later(w);
}

static void one_way(struct sim_world *w)
{
    struct sim_node *n = any_node(w);
    bool out = below(w, 2);
    sim_net_partition(&w->net, 1u << n->slot, out ? SIM_CUT_OUT : SIM_CUT_IN);
    w->result->one_way_cuts++;
    sim_say(w, "-- #%u %s", n->id, out ? "is heard no more" : "hears nothing more");
    mend_later(w);
}

static void cut_link(struct sim_world *w)
{
    uint32_t from = (uint32_t)below(w, w->n_nodes), to = (uint32_t)below(w, w->n_nodes);
    sim_net_cut(&w->net, from, to);
    if (below(w, 2))
        sim_net_cut(&w->net, to, from);
    w->result->one_way_cuts++;
    sim_say(w, "-- the link from #%u to #%u is cut", from + 1, to + 1);
    mend_later(w);
}

static void stall(struct sim_world *w)
{
    struct sim_node *n = alone(w);
    n->stalled_until_ns = w->queue.now_ns + below(w, 60 * SIM_MS);
    n->stall_order = (uint8_t)below(w, SIM_STALLS);
    w->result->stalls++;
    sim_say(w, "-- #%u is stopped for %.1f ms", n->id, (double)(n->stalled_until_ns - w->queue.now_ns) / 1e6);
}

static void slow_disk(struct sim_world *w)
{
    struct sim_node *n = any_node(w);
    n->slow_disk_until_ns = w->queue.now_ns + below(w, 50 * SIM_MS);
    w->result->slow_disks++;
    sim_say(w, "-- #%u's disk is slow", n->id);
}

/* A disk takes what it is given and does nothing, without an error, for up to a third of a second. */
static void hang_disk(struct sim_world *w)
{
    struct sim_node *n = any_node(w);
    n->hung_disk_until_ns = w->queue.now_ns + below(w, SIM_MOST_HANG_NS);
    w->result->hung_disks++;
    sim_say(w, "-- #%u's disk hangs for %.1f ms", n->id, (double)(n->hung_disk_until_ns - w->queue.now_ns) / 1e6);
}

/* A write fails. The replica is silent until somebody starts it again, from what its disk holds. */
static void fail_disk(struct sim_world *w)
{
    struct sim_node *n = any_node(w);
    if (!n->up || n->failed)
        return;
    w->result->failed_disks++;
    sim_say(w, "-- #%u's disk fails", n->id);
    w->body->fail_disk(w, n);
    sim_at(w, w->queue.now_ns + SIM_MS + below(w, 50 * SIM_MS), SIM_RESTART, n->slot, 1);
}

static void transfer(struct sim_world *w)
{
    struct sim_node *leader = sim_leader(w);
    if (!leader)
        return;
    uint32_t to = 1 + (uint32_t)below(w, w->n_nodes);
    int rc = w->body->transfer(w, leader, to);
    w->result->transfers += rc == 0;
    sim_say(w, "-- #%u is to hand over to #%u: %d", leader->id, to, rc);
}

/* A leader is told to hand over and is cut off just when the other takes over: for a while there are two that take
 * themselves for the leader, and clients at both. */
static void depose(struct sim_world *w)
{
    const struct sim_swarm *s = &w->swarm;
    struct sim_node *leader = sim_leader(w);
    struct cl_raft_status status;
    if (!leader)
        return;
    cl_raft_status(w->body->core(leader), &status);
    uint32_t to = status.members.voters[below(w, status.members.n_voters)];
    if (to == leader->id || w->body->transfer(w, leader, to))
        return;
    w->result->transfers++;
    sim_say(w, "-- #%u is to hand over to #%u, and will be cut off", leader->id, to);
    /* The order has left, and the votes that it is to hear of have not come. */
    sim_at(w, w->queue.now_ns + below(w, s->link.base_ns + s->link.spread_ns + s->write_ns), SIM_FAULT, 0, leader->id);
}

static void cut_off(struct sim_world *w, struct sim_node *n)
{
    sim_net_partition(&w->net, 1u << n->slot, SIM_CUT_OUT | SIM_CUT_IN);
    sim_clients_stay(w, n->slot);
    w->result->deposed_leaders++;
    sim_say(w, "-- #%u is cut off", n->id);
    mend_later(w);
}

/* A leader keeps its lease with the smallest majority, and the others do not hear it. Then one of that majority is
 * started again, as if it had promised nothing, and the leader is cut off: whoever is elected is so while the lease is
 * on. */
static void forget_promise(struct sim_world *w)
{
    const struct cl_raft_config *c = &w->swarm.config;
    struct sim_node *leader = sim_leader(w);
    struct cl_raft_status s;
    if (!leader)
        return;
    cl_raft_status(w->body->core(leader), &s);
    uint32_t keep = s.members.n_voters / 2, victim = 0, from = (uint32_t)below(w, s.members.n_voters);
    for (uint32_t i = 0; i < s.members.n_voters; i++) {
        uint32_t id = s.members.voters[(from + i) % s.members.n_voters];
        if (id == leader->id)
            continue;
        if (keep) {
            keep--;
            victim = id;
            continue;
        }
        sim_net_cut(&w->net, leader->slot, id - 1);
        sim_net_cut(&w->net, id - 1, leader->slot);
    }
    if (!victim)
        return;
    w->result->amnesiac_nodes++;
    sim_say(w, "-- #%u is heard by half of the voters, of which #%u is to start again", leader->id, victim);
    sim_at(w, w->queue.now_ns + w->swarm.tick_ns * (c->election_ticks + below(w, 2 * c->election_ticks)), SIM_FAULT, 0,
           leader->id | (uint64_t)victim << 32);
}

/* Whose clock is slow is to lead, and when it does it is cut off: the others' clocks run ahead of its lease. */
static void outrun(struct sim_world *w)
{
    struct sim_node *leader = sim_leader(w);
    if (!leader)
        return;
    if (leader->id == w->swarm.slow_node) {
        w->result->outrun_leaders++;
        cut_off(w, leader);
        return;
    }
    int rc = w->body->transfer(w, leader, w->swarm.slow_node);
    w->result->transfers += rc == 0;
    sim_say(w, "-- #%u is to hand over to #%u, whose clock is slow: %d", leader->id, w->swarm.slow_node, rc);
}

static void wall_jump(struct sim_world *w)
{
    struct sim_node *n = any_node(w);
    n->wall_ms = (int64_t)below(w, 4000) - 2000;
    w->result->wall_jumps++;
    sim_say(w, "-- #%u's wall clock jumps to %ld ms from the others'", n->id, (long)n->wall_ms);
}

static void rot(struct sim_world *w)
{
    sim_rot(w, any_node(w));
}

void sim_mend_network(struct sim_world *w)
{
    sim_net_heal(&w->net);
    sim_say(w, "-- the network is mended");
}

void sim_faults_begin(struct sim_world *w)
{
    sim_at(w, below(w, 2 * w->swarm.fault_gap_ns), SIM_FAULT, 0, 0);
}

void sim_fault(struct sim_world *w, uint32_t id, uint32_t restart)
{
    static void (*const kinds[])(struct sim_world *) = {
        crash_many, partition,          one_way, cut_link,  stall,          slow_disk, fail_disk, transfer,
        depose,     sim_change_members, rot,     hang_disk, forget_promise, wall_jump, outrun,    NULL};
    const struct sim_swarm *s = &w->swarm;
    const uint32_t weights[] = {s->crash_many, s->partition, s->one_way, s->cut_link, s->stall, s->slow_disk,
                                s->fail_disk,  s->transfer,  s->depose,  s->members,  s->rot,   s->hang,
                                s->forget,     s->wall,      s->outrun,  s->crash};
    uint64_t sum = 0, i = 0;
    if (w->calm)
        return;
    if (id) {
        cut_off(w, &w->nodes[id - 1]);
        if (restart && w->nodes[restart - 1].up && sim_crash(w, &w->nodes[restart - 1]))
            sim_restart_later(w, &w->nodes[restart - 1], SIM_MS / 2);
        return;
    }
    for (uint64_t k = 0; k < sizeof(weights) / sizeof(*weights); k++)
        sum += weights[k];
    if (sum) {
        for (uint64_t at = below(w, sum); at >= weights[i]; i++)
            at -= weights[i];
        if (kinds[i])
            kinds[i](w);
        else
            crash(w, any_node(w));
    }
    sim_at(w, w->queue.now_ns + below(w, 2 * s->fault_gap_ns), SIM_FAULT, 0, 0);
}

/* Mend everything, for good. */
void sim_calm(struct sim_world *w)
{
    struct sim_link link = {.base_ns = 100000, .spread_ns = 100000};
    w->calm = true;
    for (uint32_t from = 0; from < w->n_nodes; from++)
        for (uint32_t to = 0; to < w->n_nodes; to++)
            w->net.links[from][to] = link;
    w->swarm.client_loss_ppm = 0;
    w->swarm.crash_point_ppm = 0;
    w->swarm.vote_crash_ppm = 0;
    w->swarm.disk_error_ppm = w->swarm.no_space_ppm = 0;
    sim_say(w, "-- everything is mended");
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *n = &w->nodes[i];
        n->stalled_until_ns = n->slow_disk_until_ns = n->hung_disk_until_ns = 0;
        if (w->body->mend_disk)
            w->body->mend_disk(w, n);
        if (n->up && n->failed)
            sim_crash(w, n);
        if (!n->up && !n->lost)
            sim_start(w, n);
    }
}
