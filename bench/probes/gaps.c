/* See gaps.h. */
#include "gaps.h"

#include <corelane/runtime/clock.h>

/* Writer and reader: the one thread that measures. */
static uint32_t *kept;
static uint64_t room, taken, last;

void cl_bench_gaps_begin(uint32_t *out, uint64_t n)
{
    kept = out;
    room = n;
    taken = last = 0;
}

void cl_bench_gap(void)
{
    uint64_t now = cl_tsc();
    if (last) {
        if (taken < room)
            kept[taken] = (uint32_t)cl_min(now - last, (uint64_t)UINT32_MAX);
        taken++;
    }
    last = now;
}

void cl_bench_gaps_pause(void)
{
    last = 0;
}

void cl_bench_gaps_repeat(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        cl_bench_gap();
}

uint64_t cl_bench_gaps_end(void)
{
    room = 0;
    return taken;
}
