/* The skew between CPUs: the true offset lies within the bound, whatever rounds take; and this machine's. Usage: skew
 * SEED */
#include "runtime/skew.h"

#include "tests/support/c/check.h"

#include <stdlib.h>

/* CPUs whose counters are apart by `offset`, and rounds of which each way takes a time of its own. */
static void bounded(uint64_t *seed)
{
    int64_t offset = (int64_t)(next_random(seed) % 2000001) - 1000000;
    struct cl_skew_between b = {INT64_MIN, INT64_MAX};
    uint64_t now = 1ull << 40, least = UINT64_MAX;
    for (unsigned round = 0; round < 64; round++) {
        uint64_t there = 50 + next_random(seed) % 500, back = 50 + next_random(seed) % (round % 7 ? 500 : 100000);
        cl_skew_round(&b, now, now + there + (uint64_t)offset, now + there + back);
        least = cl_min(least, there + back);
        now += there + back + 10;
    }
    struct cl_skew s = cl_skew_of(&b);
    int64_t wrong = offset - s.offset;
    CHECK(s.bound != CL_SKEW_UNKNOWN && (wrong < 0 ? -wrong : wrong) <= s.bound, "%ld of %u", (long)wrong, s.bound);
    CHECK(s.bound <= least / 2 + 1, "no worse than the shortest round");
}

static void sums(void)
{
    struct cl_skews s;
    for (unsigned c = 0; c < CL_SKEW_CPUS; c++)
        s.of[c] = (struct cl_skew){0, CL_SKEW_UNKNOWN};
    s.of[3] = (struct cl_skew){0, 0};
    cl_skews_sum(&s, 3);
    CHECK(s.measured == 1 && s.apart == 0 && s.reference == 3);
    s.of[4] = (struct cl_skew){-30, 5};
    s.of[5] = (struct cl_skew){10, 7};
    s.of[9] = (struct cl_skew){2, 3};
    cl_skews_sum(&s, 3);
    CHECK(s.measured == 4 && s.apart == 35 + 17);
}

static void unknown(void)
{
    struct cl_skew_between b = {INT64_MIN, INT64_MAX};
    CHECK_EQ(cl_skew_of(&b).bound, CL_SKEW_UNKNOWN);
    cl_skew_round(&b, 100, 150, 200);
    cl_skew_round(&b, 300, 900, 400); /* it has jumped */
    CHECK_EQ(cl_skew_of(&b).bound, CL_SKEW_UNKNOWN);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    uint64_t seed = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    for (unsigned i = 0; i < 1000; i++)
        bounded(&seed);
    sums();
    unknown();
    const struct cl_skews *s = cl_skews_default();
    CHECK(s == cl_skews_default() && s->measured >= 1 && s->of[s->reference].bound == 0);
    unsigned n = 0;
    for (unsigned c = 0; c < CL_SKEW_CPUS; c++)
        n += s->of[c].bound != CL_SKEW_UNKNOWN;
    CHECK_EQ(n, s->measured);
    printf("%u measured, %u ticks apart at most\n", n, s->apart);
    return 0;
}
