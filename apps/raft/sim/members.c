/* Changes of membership, and nodes that are lost for good.
 *
 * A node whose disk is damaged before its end must say so and not start: what it acknowledged may be gone, and with a
 * log cut short it could vote and lead as if it had never been. The world leaves it dead. An operator may take it out
 * of the configuration and bring another node in, which gets everything from the leader. The same node with an empty
 * disk would not know for whom it voted.
 *
 * Without logs a node that crashed is started again under its id all the same, as somebody might, and must be refused
 * and stop. With logs that is done to one whose log was lost in a crash: it is given a new one.
 *
 * Rot, and crashes without logs, take at most so many that the others are a majority of every configuration that any
 * node knows: more, and committed entries are gone, whatever the protocol does. And a node that will have amnesia
 * crashes only when all others know it (apps/raft/node/incarnations.c), and the first voters that never did are a
 * majority of those: who is started again takes these for its group, whoever belongs to it now. */
#include "world.h"
#include <errno.h>

static uint64_t below(struct sim_world *w, uint64_t n)
{
    return cl_random_below(&w->random[SIM_R_FAULT], n);
}

/* Whether those who are left decide in a configuration when `also` is gone, too. */
static bool enough_left(const struct sim_world *w, const struct cl_raft_members *m, const struct sim_node *also)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        const struct sim_node *n = &w->nodes[i];
        if (!n->lost && !n->doomed && n != also)
            mask |= 1u << n->id;
    }
    return !m->n_voters || sim_quorum(m, mask);
}

static bool can_spare(struct sim_world *w, const struct sim_node *n)
{
    bool can = enough_left(w, &w->committed_members, n);
    for (uint32_t i = 0; i < w->n_nodes && can; i++) {
        struct sim_node *other = &w->nodes[i];
        struct cl_raft *core = other->up ? w->body->core(other) : NULL;
        struct cl_raft_status s;
        if (core)
            cl_raft_status(core, &s);
        can = other->lost || enough_left(w, core ? &s.members : &other->members, n);
    }
    return can;
}

/* Who knows no members yet hears of all incarnations from who tells it of some. */
static bool meets_nobody(struct sim_world *w, struct sim_node *n)
{
    struct cl_raft_status s;
    if (!w->body->core(n))
        return false;
    cl_raft_status(w->body->core(n), &s);
    return !s.members.n_voters;
}

bool sim_may_forget(struct sim_world *w, struct sim_node *n)
{
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *other = &w->nodes[i];
        if (other != n && !other->lost && !other->doomed && !meets_nobody(w, other) && !w->body->knows(other, n))
            return false;
    }
    return !n->lost && !n->doomed && can_spare(w, n) && enough_left(w, &w->swarm.config.members, n);
}

void sim_rot(struct sim_world *w, struct sim_node *n)
{
    if (n->lost || n->doomed || w->swarm.logless || !can_spare(w, n))
        return;
    if (n->up)
        sim_crash(w, n);
    if (w->body->rot(w, n)) {
        n->doomed = true;
        w->result->rotten_disks++;
        sim_say(w, "-- #%u's disk rots", n->id);
    }
    sim_restart_later(w, n, w->swarm.restart_ms * SIM_MS);
}

void sim_lost(struct sim_world *w, struct sim_node *n, const char *why)
{
    sim_say(w, "#%u is lost: %s", n->id, why);
    if (!n->doomed)
        sim_fail(w, "#%u says that it has forgotten something, and it has not: %s", n->id, why);
    n->lost = true;
    w->result->lost_nodes++;
}

/* Who is lost goes out, and as many others come in. */
static void replace_lost(struct sim_world *w, uint8_t roles[SIM_NODES])
{
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (!w->nodes[i].lost || !roles[i])
            continue;
        uint32_t to = 0;
        while (to < w->n_nodes && (roles[to] || w->nodes[to].lost || w->nodes[to].doomed))
            to++;
        if (to < w->n_nodes) {
            roles[to] = roles[i];
            w->result->replaced_nodes++;
        }
        roles[i] = 0;
    }
}

int sim_order_members(struct sim_world *w, struct cl_raft *core, const struct cl_raft_members *m)
{
    int rc = cl_raft_change_members(core, m->voters, m->n_voters, m->learners, m->n_learners);
    if (rc != -EHOSTUNREACH)
        return rc;
    w->result->forced_changes++;
    return cl_raft_force_members(core, m->voters, m->n_voters, m->learners, m->n_learners);
}

/* From the configuration in force: each node may become a voter, a learner or neither. One or two roles change; now and
 * then all are drawn anew. */
void sim_change_members(struct sim_world *w)
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
    replace_lost(w, roles);
    struct cl_raft_members m = {0};
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (roles[i] == 1)
            m.voters[m.n_voters++] = i + 1;
        if (roles[i] == 2)
            m.learners[m.n_learners++] = i + 1;
    }
    if (!m.n_voters || !enough_left(w, &m, NULL))
        return;
    int rc = w->body->change_members(w, leader, &m);
    sim_say(w, "-- #%u is to change to %u voters and %u learners: %d", leader->id, m.n_voters, m.n_learners, rc);
}
