/* What can be reached from each state of interleave_graph.h.
 *
 * `Within reach` does not use edges by which somebody is killed or stopped: nothing may depend on that. Ends of times
 * are counted: a state is as far from what is to come as the path with the fewest of them. Bounds of a path end it,
 * also where it would have gone on; so nothing is asked of states from where fewer than `left` times may end. */
#ifndef CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_REACH_H
#define CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_REACH_H

#include "interleave_graph.h"

#define IL_NEVER 255

static unsigned ir_left; /* what is to be reached is, from where so many times may still end */

static bool ir_at(const struct il_state *s, unsigned goal)
{
    uint8_t goals = 0xff;
    for (unsigned p = 0; p < IL_PARTS; p++)
        goals &= ip.list[s->part[p]].goals;
    return goals >> goal & 1;
}

static bool ir_exempt(const struct il_state *s, unsigned goal)
{
    return (ig.ends && s->tally.ends + ir_left > ig.ends) || ip.list[s->part[IL_SHARED]].exempt >> goal & 1;
}

/* The fewest ends of times from each state to the goal; IL_NEVER: it cannot be reached. States are numbered by their
 * distance from the first one, so few passes from the last to the first do. */
static uint8_t *ir_distances(unsigned goal)
{
    uint8_t *distance = il_grow(NULL, ig.n_states);
    for (uint32_t s = 0; s < ig.n_states; s++)
        distance[s] = ir_at(&ig.states[s], goal) ? 0 : IL_NEVER;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = ig.n_states; s-- > 0;) {
            unsigned best = distance[s];
            for (uint64_t e = ig.first_edge[s]; best && e < ig.first_edge[s + 1]; e++) {
                unsigned there = distance[ig.edges[e] & IL_EDGE_TO];
                if (there != IL_NEVER && !(ig.edges[e] & IL_EDGE_DEATH))
                    best = cl_min(best, there + !!(ig.edges[e] & IL_EDGE_TIMED));
            }
            changed |= best != distance[s];
            distance[s] = (uint8_t)best;
        }
    }
    return distance;
}

/* Whether `goal` is within reach from everywhere; prints how one gets to where it is not. Returns the ends of times
 * that it takes at most. */
static unsigned ir_check(unsigned goal, const char *what)
{
    uint8_t *distance = ir_distances(goal);
    uint32_t never = 0, bad = 0;
    unsigned most = 0;
    for (uint32_t s = 0; s < ig.n_states; s++) {
        if (ir_exempt(&ig.states[s], goal))
            continue;
        if (distance[s] == IL_NEVER)
            bad = never++ ? bad : s;
        else
            most = cl_max(most, (unsigned)distance[s]);
    }
    free(distance);
    if (never == 0)
        return most;
    ig_trace(bad);
    printf("found: from %u of %u states it can never be that %s\n", never, ig.n_states, what);
    exit(2);
}

#endif
