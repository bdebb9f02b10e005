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

static void crash(struct sim_world *w, struct sim_node *n)
{
    if (!n->up)
        return;
    sim_crash(w, n);
    sim_at(w, w->queue.now_ns + below(w, w->swarm.restart_ms * SIM_MS), SIM_RESTART, n->slot, 0);
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

static void partition(struct sim_world *w)
{
    uint32_t mask = (uint32_t)below(w, 1ull << w->n_nodes);
    if (!below(w, 3))
        mask = 1u << any_node(w)->slot;
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
    struct sim_node *n = any_node(w);
    n->stalled_until_ns = w->queue.now_ns + below(w, 60 * SIM_MS);
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

/* From the configuration in force: each node may become a voter, a learner or neither. One or two roles change; now and then
 * all are drawn anew. */
static void change_members(struct sim_world *w)
{
    struct sim_node *leader = sim_leader(w);
    struct cl_raft_status s;
    if (!leader)
        return;
    cl_raft_status(w->body->core(leader), &s);
    uint8_t roles[SIM_NODES] = {0};
    for (uint32_t i = 0; i < s.members.n_voters; i++)
        roles[s.members.voters[i] - 1] = 1;
    for (uint32_t i = 0; i < s.members.n_learners; i++)
        roles[s.members.learners[i] - 1] = 2;
    uint64_t changes = below(w, 5) ? 1 + below(w, 2) : 4 * w->n_nodes;
    for (uint64_t i = 0; i < changes; i++)
        roles[below(w, w->n_nodes)] = (uint8_t)below(w, 3);
    struct cl_raft_members m = {0};
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (roles[i] == 1)
            m.voters[m.n_voters++] = i + 1;
        if (roles[i] == 2)
            m.learners[m.n_learners++] = i + 1;
    }
    if (!m.n_voters)
        return;
    int rc = w->body->change_members(w, leader, &m);
    sim_say(w, "-- #%u is to change to %u voters and %u learners: %d", leader->id, m.n_voters, m.n_learners, rc);
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

void sim_fault(struct sim_world *w)
{
    static void (*const kinds[])(struct sim_world *) = {crash_many, partition, one_way,  cut_link,       stall,
                                                        slow_disk,  fail_disk, transfer, change_members, NULL};
    const struct sim_swarm *s = &w->swarm;
    const uint32_t weights[] = {s->crash_many, s->partition, s->one_way,  s->cut_link, s->stall,
                                s->slow_disk,  s->fail_disk, s->transfer, s->members,  s->crash};
    uint64_t sum = 0, i = 0;
    if (w->calm)
        return;
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
    w->swarm.disk_error_ppm = 0;
    sim_say(w, "-- everything is mended");
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *n = &w->nodes[i];
        n->stalled_until_ns = n->slow_disk_until_ns = 0;
        if (w->body->mend_disk)
            w->body->mend_disk(w, n);
        if (n->up && n->failed)
            sim_crash(w, n);
        if (!n->up && !n->lost)
            sim_start(w, n);
    }
}
