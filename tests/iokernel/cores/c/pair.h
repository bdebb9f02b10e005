/* What most scenarios of a move begin with: world.h with two applications on one core. */
#ifndef CORES_PAIR_H
#define CORES_PAIR_H

#include "world.h"

#define LATENCY CL_POLICY_LATENCY
#define BATCH CL_POLICY_BATCH

/* One core; a batch application runs on it; a latency one has parked. */
struct pair {
    struct world w;
    struct app *lat, *bat;
    struct kthread *l, *b;
};

static inline void pair_new(struct pair *p, struct setting s, struct wish batch)
{
    batch.kind = BATCH;
    world_new(&p->w, s);
    p->lat = app_add(&p->w, (struct wish){.kind = LATENCY});
    p->bat = app_add(&p->w, batch);
    p->l = &p->lat->k[0];
    p->b = &p->bat->k[0];
    start(&p->w, p->b);
    CHECK(owns(&p->w, p->b));
}

#endif
