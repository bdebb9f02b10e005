/* Which of two ways commits sooner. Time goes in rounds of batches. In the first ones both ways have half of the
 * batches; later the better one has all but the last sixteenth, which is the other one's, so that what changes is
 * noticed. While the other one is clearly worse, by an eighth, each round is twice as long as the last, up to 64 times
 * what the other one has of it: its batches are the slow ones. A round in which batches take a quarter longer or
 * shorter than they did ends early, and the next one is short again.
 *
 * What counts is how long batches take in the mean, from going to being committed: a mean has the slow ones in it, and
 * those are what the ways may differ in.
 *
 * The means are of the last rounds, a round of each way weighing the same, so a load that changes changes both. After
 * the first ones the better way is taken, by however little; then the other one once it is better by a twentieth, and
 * LEAST_ROUNDS after the last change at the earliest. The first batch after each change meets what the way before has
 * left to do (entries that were held back, writes of who was not waited for), so it counts for that one.
 *
 * Pure: no clock, no randomness. */
#include "chooser.h"

#define EPOCH 32       /* batches */
#define LEARN_ROUNDS 8 /* with an epoch of each */
#define EPOCHS 16      /* of a later round at least: the last one is the other way's */
#define MOST_EPOCHS 64
#define LEAST_ROUNDS 4
#define WEIGH_ROUNDS 16 /* a round weighs so much of the mean at least */

static uint32_t better_epochs(const struct cl_raft_chooser *c)
{
    return c->learned ? c->epochs - 1 : 1;
}

/* Whether batches of the better way take about as long in this round as in the ones before. */
static bool steady(const struct cl_raft_chooser *c)
{
    uint64_t known = c->mean_ns[c->way], mean = c->count[c->way] ? c->sum_ns[c->way] / c->count[c->way] : known;
    return mean <= known + known / 4 && mean >= known - known / 4;
}

static void end_round(struct cl_raft_chooser *c)
{
    bool as_before = steady(c);
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
    bool clear = other > mine + mine / 8;
    c->epochs = c->learned && as_before && clear ? cl_min(2 * c->epochs, (uint32_t)MOST_EPOCHS) : EPOCHS;
    uint64_t margin = c->learned ? mine / 20 : 0; /* nothing speaks for the first one but that it was the first */
    bool change = mine && other && other < mine - margin && (!c->learned || c->rounds >= LEAST_ROUNDS);
    c->learned = 1;
    if (!change)
        return;
    c->way = !c->way;
    c->rounds = 0;
}

int cl_raft_chooser_next(struct cl_raft_chooser *c, int *counts)
{
    if (c->learned && c->gone && c->gone % (EPOCHS * EPOCH) == 0 && c->gone < better_epochs(c) * EPOCH && !steady(c))
        c->epochs = c->gone / EPOCH + 1; /* it is the other way's turn, and the round ends */
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
