/* Loss in bursts: Gilbert and Elliott's model, see struct cl_link_config. Each frame takes two draws, whatever its
 * fate. */
#ifndef CORELANE_DRIVERS_NIC_LINK_LOSS_H
#define CORELANE_DRIVERS_NIC_LINK_LOSS_H

#include "../../random.h"

struct cl_link_loss {
    double to_bad, to_good, loss_good, loss_bad;
    bool bad;
    struct cl_random random;
};

static inline bool cl_link_lost(struct cl_link_loss *l)
{
    /* A unit is in (0, 1], so that a probability of 0 never happens, and one of 1 always does. */
    double fate = cl_random_unit(&l->random), change = cl_random_unit(&l->random);
    bool lost = fate <= (l->bad ? l->loss_bad : l->loss_good);
    if (change <= (l->bad ? l->to_good : l->to_bad))
        l->bad = !l->bad;
    return lost;
}

#endif
