/* How far the counters of CPUs are apart: two stamps of different CPUs can be compared to within that.
 *
 * One CPU asks, the other one answers with its stamp: at the instant of that stamp the asker's counter stood between
 * what it was before and after. So each round bounds the offset on both sides, and the bounds of many rounds are put
 * together. What is left is half the time that a cache line takes there and back: some 40 to 250 ns. Counters that are
 * started together, as all of today's are, show an offset within it.
 *
 * Tests: tests/runtime/test_skew.py. */
#ifndef CORELANE_RUNTIME_SKEW_H
#define CORELANE_RUNTIME_SKEW_H

#include <corelane/runtime/base.h>

#define CL_SKEW_CPUS 256
#define CL_SKEW_UNKNOWN UINT32_MAX

/* Of a CPU: a stamp of it, less `offset`, is what the reference's counter said then, give or take `bound`. Ticks.
 * bound CL_SKEW_UNKNOWN: not measured. */
struct cl_skew {
    int32_t offset;
    uint32_t bound;
};

struct cl_skews {
    uint32_t reference, measured; /* a CPU; how many were measured, itself included */
    uint32_t apart;               /* two stamps of measured CPUs lie wrong to each other by so much at most */
    struct cl_skew of[CL_SKEW_CPUS];
};

/* What is known of an offset. Begins as {INT64_MIN, INT64_MAX}. */
struct cl_skew_between {
    int64_t least, most;
};

/* A round: asked at `before`, answered with `theirs`, heard at `after`. */
static inline void cl_skew_round(struct cl_skew_between *b, uint64_t before, uint64_t theirs, uint64_t after)
{
    b->least = cl_max(b->least, (int64_t)(theirs - after));
    b->most = cl_min(b->most, (int64_t)(theirs - before));
}

/* What the rounds say. CL_SKEW_UNKNOWN: there were none, or they contradict each other: the counter has jumped. */
struct cl_skew cl_skew_of(const struct cl_skew_between *b);
/* Fill in reference, measured and apart of skews whose `of` is known. */
void cl_skews_sum(struct cl_skews *s, unsigned reference);

/* The process's, measured at the first call (thread-safe), of the CPUs on which the caller may run: takes some 50 us
 * for each, and 8 ms in all at most where CPUs are busy; who is not reached by then is not measured. Never NULL. */
CL_API const struct cl_skews *cl_skews_default(void);

#endif
