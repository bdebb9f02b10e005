/* At the end of some runs the disks of all nodes, or of some, are slow at once, a write taking one to three election
 * timeouts, and the leader is cut off. Another has to be there while that lasts. Drawn from a stream of its own, so
 * that no other draw depends on it. */
#include "world.h"

#define ONE_IN 4
#define STREAM 1000
#define MOST_WRITES 20 /* and as many election timeouts: until somebody leads; and what hung before may end so late */

/* A leader of voters of which each is there; NULL: none. */
static struct sim_node *leader_of_all(struct sim_world *w)
{
    struct sim_node *leader = sim_leader(w);
    struct cl_raft_status s;
    if (!leader)
        return NULL;
    cl_raft_status(w->body->core(leader), &s);
    if (s.members.n_voters < 3 || s.members.n_outgoing)
        return NULL;
    for (uint32_t i = 0; i < s.members.n_voters; i++) {
        const struct sim_node *n = &w->nodes[s.members.voters[i] - 1];
        if (!n->up || n->failed || n->lost)
            return NULL;
    }
    return leader;
}

uint64_t sim_slow_all(struct sim_world *w)
{
    struct cl_random random = {.state = sim_stream(w->options.seed, STREAM)};
    uint64_t election_ns = w->swarm.config.election_ticks * w->swarm.tick_ns;
    struct sim_node *leader = leader_of_all(w);
    if (cl_random_below(&random, ONE_IN) || !leader)
        return 0;
    w->all_slow_ns = election_ns + cl_random_below(&random, 2 * election_ns);
    w->spared = cl_random_below(&random, 2) ? (uint32_t)cl_random_below(&random, 1u << (SIM_NODES + 1)) : 0;
    w->led_term = leader->watch.term;
    w->result->all_slow++;
    sim_net_partition(&w->net, 1u << leader->slot, SIM_CUT_OUT | SIM_CUT_IN);
    sim_say(w, "-- disks are slow by %.1f ms (spared: %x), and #%u is cut off", (double)w->all_slow_ns / 1e6, w->spared,
            leader->id);
    return MOST_WRITES * (w->all_slow_ns + election_ns) + SIM_MOST_HANG_NS;
}

uint64_t sim_slow_ns(const struct sim_world *w, const struct sim_node *n)
{
    return w->spared & 1u << n->id ? 0 : w->all_slow_ns;
}

bool sim_led_again(struct sim_world *w)
{
    const struct sim_node *leader = sim_leader(w);
    return leader && leader->watch.term > w->led_term;
}

void sim_slow_end(struct sim_world *w)
{
    w->all_slow_ns = 0;
    sim_mend_network(w);
}
