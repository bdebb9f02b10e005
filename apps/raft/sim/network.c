/* The network's draws (see network.h). */
#include "network.h"

void sim_net_init(struct sim_net *net, uint32_t nodes, uint64_t seed, struct sim_link link)
{
    *net = (struct sim_net){.random = {seed}, .nodes = nodes};
    for (uint32_t from = 0; from < nodes; from++)
        for (uint32_t to = 0; to < nodes; to++)
            net->links[from][to] = link;
}

static uint64_t delay(struct cl_random *r, const struct sim_link *link)
{
    uint64_t ns = link->base_ns + (link->spread_ns ? cl_random_below(r, link->spread_ns) : 0);
    if (sim_chance(r, link->slow_ppm)) {
        uint64_t halvings = (uint64_t)__builtin_ctzll(cl_random_next(r) | 1ull << SIM_DOUBLINGS);
        ns += link->slow_ns << halvings;
    }
    return ns;
}

uint32_t sim_net_send(struct sim_net *net, uint32_t from, uint32_t to, uint64_t delays_ns[SIM_COPIES])
{
    const struct sim_link *link = &net->links[from][to];
    uint32_t copies = 1, arrive = 0;
    net->counts.sent++;
    if (link->cut) {
        net->counts.cut++;
        return 0;
    }
    while (copies < SIM_COPIES && sim_chance(&net->random, link->duplicate_ppm))
        copies++;
    net->counts.duplicated += copies - 1;
    for (uint32_t i = 0; i < copies; i++) {
        if (sim_chance(&net->random, link->loss_ppm))
            net->counts.lost++;
        else
            delays_ns[arrive++] = delay(&net->random, link);
    }
    net->counts.delivered += arrive;
    return arrive;
}

void sim_net_cut(struct sim_net *net, uint32_t from, uint32_t to)
{
    net->links[from][to].cut = true;
}

void sim_net_partition(struct sim_net *net, uint32_t mask, uint32_t ways)
{
    for (uint32_t from = 0; from < net->nodes; from++) {
        for (uint32_t to = 0; to < net->nodes; to++) {
            bool leaves = (mask >> from & 1) && !(mask >> to & 1), comes = !(mask >> from & 1) && (mask >> to & 1);
            if ((leaves && (ways & SIM_CUT_OUT)) || (comes && (ways & SIM_CUT_IN)))
                sim_net_cut(net, from, to);
        }
    }
}

void sim_net_heal(struct sim_net *net)
{
    for (uint32_t from = 0; from < net->nodes; from++)
        for (uint32_t to = 0; to < net->nodes; to++)
            net->links[from][to].cut = false;
}
