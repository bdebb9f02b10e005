/* The simulated network: decides whether, how often and when a datagram arrives.
 *
 * It knows nothing of what datagrams hold. Every draw is from its own stream of random numbers, so that a change to any
 * other part of a seed's world leaves its draws alone. All arithmetic is on integers: a seed does the same on every
 * machine.
 *
 * A delay is base_ns and an even share of spread_ns, so that datagrams overtake each other; one in a while (slow_ppm)
 * is held up for slow_ns times 1, 2, 4, ... with half the chance each. A cut link loses everything one way; datagrams
 * that are under way when a link is cut still arrive.
 *
 * Tests: tests/apps/raft/sim/test_network.py */
#ifndef CORELANE_APPS_RAFT_SIM_NETWORK_H
#define CORELANE_APPS_RAFT_SIM_NETWORK_H

#include "../../../drivers/random.h"

#define SIM_NODES 12    /* at most */
#define SIM_COPIES 3    /* of one datagram, at most */
#define SIM_DOUBLINGS 6 /* of slow_ns, at most */

struct sim_link {
    uint32_t loss_ppm, duplicate_ppm, slow_ppm;
    uint64_t base_ns, spread_ns, slow_ns;
    bool cut;
};

/* What became of datagrams: sent + duplicated = delivered + lost + cut. */
struct sim_net_counts {
    uint64_t sent, duplicated, delivered, lost, cut;
};

struct sim_net {
    struct cl_random random;
    uint32_t nodes;
    struct sim_link links[SIM_NODES][SIM_NODES]; /* [from][to] */
    struct sim_net_counts counts;
};

/* A whole network whose links are all alike. */
void sim_net_init(struct sim_net *net, uint32_t nodes, uint64_t seed, struct sim_link link);
/* Send one datagram: how many copies arrive (0..SIM_COPIES), and after how long each. */
uint32_t sim_net_send(struct sim_net *net, uint32_t from, uint32_t to, uint64_t delays_ns[SIM_COPIES]);
/* Cut the nodes of `mask` off from the others: both ways, or only what leaves them, or only what comes to them. */
#define SIM_CUT_OUT 1
#define SIM_CUT_IN 2
void sim_net_partition(struct sim_net *net, uint32_t mask, uint32_t ways);
/* Cut one link, one way. */
void sim_net_cut(struct sim_net *net, uint32_t from, uint32_t to);
/* Mend every link. */
void sim_net_heal(struct sim_net *net);

/* Seed of one stream of a world's random numbers: streams of one seed have nothing to do with each other. */
static inline uint64_t sim_stream(uint64_t seed, uint64_t stream)
{
    struct cl_random r = {seed ^ (0xa0761d6478bd642full * (stream + 1))};
    cl_random_next(&r);
    return cl_random_next(&r);
}

static inline bool sim_chance(struct cl_random *r, uint32_t ppm)
{
    return ppm && cl_random_below(r, 1000000) < ppm;
}

#endif
