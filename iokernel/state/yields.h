/* When a loop that is idle and adaptive yields its CPU to whom else the kernel has for it.
 *
 * Who shares the CPU, such as the kernel's own clients of a tap, would wait for the end of the loop's slice. So the
 * loop yields now and then, each IO_YIELD_NS. A yield that lasts has let somebody run: for a while after that more are
 * expected, and the loop yields at once when a round has done something, which may have woken them, and again when
 * somebody has just run. While yields find nobody, each comes IO_YIELD_GROWTH times as long after the one before: a
 * yield that finds nobody is a system call for nothing, and of a loop that polls there are a thousand such rounds in a
 * millisecond.
 *
 * Who keeps the CPU for long has work enough, and is left alone for some time: a loop that sleeps gets the CPU sooner.
 *
 * Time is in ticks of cl_tsc. One user: the loop's thread. All zero is a valid beginning.
 * Tests: tests/iokernel/state/c/yields.c. */
#ifndef CORELANE_IOKERNEL_STATE_YIELDS_H
#define CORELANE_IOKERNEL_STATE_YIELDS_H

#include <corelane/runtime/clock.h>

#include <stdbool.h>
#include <stdint.h>

#define IO_YIELD_NS 50000          /* between two yields, at most and as a rule */
#define IO_YIELD_FIRST_NS 2000     /* while somebody is expected: after one that found nobody, ... */
#define IO_YIELD_GROWTH 4          /* ... and after each further one so many times as long */
#define IO_YIELD_TAKEN_NS 2000     /* a yield that lasts as long has let somebody run: alone it is a system call */
#define IO_YIELD_SHARED_NS 1000000 /* for so long after one who ran more are expected */
#define IO_YIELD_HOGGED_NS 500000  /* who ran as long is not yielded to ... */
#define IO_YIELD_HOG_NS 10000000   /* ... for so long; doubled each time, ... */
#define IO_YIELD_HOG_MOST_NS 10000000000 /* ... up to so long */

struct io_yields {
    uint64_t last;         /* stamp of the last yield's end */
    uint64_t gap;          /* from there to the next one, while somebody is expected */
    uint64_t shared_until; /* stamp: until then somebody is */
    uint64_t hogged_until; /* stamp: until then it does not yield */
    uint64_t hog_ns;       /* the last such wait; 0: the last yield was no long one */
};

/* A round has done something. */
static inline void io_yields_work(struct io_yields *y)
{
    y->gap = 0;
}

/* Whether to yield in an idle round at `now`. */
static inline bool io_yields_due(const struct io_yields *y, const struct cl_clock *clock, uint64_t now)
{
    if (now < y->hogged_until)
        return false;
    uint64_t gap = now < y->shared_until ? y->gap : (uint64_t)cl_ns_to_ticks(clock, IO_YIELD_NS);
    return now >= y->last + gap;
}

/* A yield began and ended at these stamps. */
static inline void io_yields_done(struct io_yields *y, const struct cl_clock *clock, uint64_t begun, uint64_t ended)
{
    int64_t ns = cl_ticks_to_ns(clock, (int64_t)(ended - begun));
    y->last = ended;
    if (ns >= IO_YIELD_HOGGED_NS) {
        y->hog_ns = cl_min(cl_max(2 * y->hog_ns, (uint64_t)IO_YIELD_HOG_NS), (uint64_t)IO_YIELD_HOG_MOST_NS);
        y->hogged_until = ended + (uint64_t)cl_ns_to_ticks(clock, (int64_t)y->hog_ns);
        return;
    }
    y->hog_ns = 0;
    if (ns >= IO_YIELD_TAKEN_NS) {
        y->shared_until = ended + (uint64_t)cl_ns_to_ticks(clock, IO_YIELD_SHARED_NS);
        y->gap = 0;
        return;
    }
    uint64_t first = (uint64_t)cl_ns_to_ticks(clock, IO_YIELD_FIRST_NS);
    uint64_t most = (uint64_t)cl_ns_to_ticks(clock, IO_YIELD_NS);
    y->gap = y->gap ? cl_min(IO_YIELD_GROWTH * y->gap, most) : first;
}

#endif
