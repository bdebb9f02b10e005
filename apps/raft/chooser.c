/* Which of two ways commits sooner. Time goes in rounds of batches. In the first ones both ways have half of the batches; later the better one
 * has fifteen of sixteen and the other one the last sixteenth, so that what changes is noticed. What counts is how long batches take in the
 * mean, from going to being committed: a mean has the slow ones in it, and those are what the ways may differ in.
 *
 * The means are of the last rounds, a round of each way weighing the same, so a load that changes changes both. The other way is
 * taken once it is better by a twentieth, and LEAST_ROUNDS after the last change at the earliest. The first batch after each change
 * meets what the way before has left to do (entries that were held back, writes of who was not waited for), so it counts for that one.
 *
 * Pure: no clock, no randomness. */
#include "chooser.h"

#define EPOCH 32       /* batches */
#define LEARN_ROUNDS 8 /* with an epoch of each */
#define EPOCHS 16      /* of a later round: the last one is the other way's */
#define LEAST_ROUNDS 4
#define WEIGH_ROUNDS 16 /* a round weighs so much of the mean at least */

static uint32_t better_epochs(const struct cl_raft_chooser *c)
{
    return c->learned ? EPOCHS - 1 : 1;
}

static void end_round(struct cl_raft_chooser *c)
{
    c->gone = 0;
    c->rounds++;
    for (int way = 0; way < 2; way++) {
        if (!c->count[way])
            continue;
        uint64_t mean = cl_max(c->sum_ns[way] / c->count[way], 1ull);
        uint64_t weigh = c->learned ? WEIGH_ROUNDS : cl_min(c->rounds, (uint64_t)WEIGH_ROUNDS);
        c->mean_ns[way] = c->mean_ns[way] ? (c->mean_ns[way] * (weigh - 1) + mean) / weigh : mean;
        c->sum_ns[way] = c->count[way] = 0;
    }
    if (!c->learned && c->rounds < LEARN_ROUNDS)
        return;
    uint64_t mine = c->mean_ns[c->way], other = c->mean_ns[!c->way];
    bool change = mine && other && other < mine - mine / 20 && (!c->learned || c->rounds >= LEAST_ROUNDS);
    c->learned = 1;
    if (!change)
        return;
    c->way = !c->way;
    c->rounds = 0;
}

int cl_raft_chooser_next(struct cl_raft_chooser *c, int *counts)
{
    if (c->gone == (better_epochs(c) + 1) * EPOCH)
        end_round(c);
    int way = c->gone++ < better_epochs(c) * EPOCH ? c->way : !c->way;
    *counts = c->last;
    c->last = (uint8_t)way;
    return way;
}

void cl_raft_chooser_took(struct cl_raft_chooser *c, int counts, uint64_t ns)
{
    c->sum_ns[counts] += ns;
    c->count[counts]++;
}
