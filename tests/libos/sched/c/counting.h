/* Whether code runs, seen from outside: it counts, until it is told to end. With fake_iokernel.h. */
#ifndef TESTS_LIBOS_SCHED_COUNTING_H
#define TESTS_LIBOS_SCHED_COUNTING_H

#include "fake_iokernel.h"

#include <corelane/libos/uthread.h>
#include <corelane/runtime/clock.h>

static uint64_t counter; /* what runs at the time */
static uint32_t over, done;

/* Nothing happens, however often others run; where these are many, each time they do takes some of their slices. */
static void stands_still(void)
{
    uint64_t before = cl_load_relaxed(&counter), begin = cl_monotonic_raw_ns();
    for (int i = 0; i < 200 && (i < 10 || cl_monotonic_raw_ns() - begin < 20000000); i++)
        sched_yield();
    CHECK_EQ(cl_load_relaxed(&counter), before);
}

static void goes_on(void)
{
    uint64_t before = cl_load_relaxed(&counter);
    UNTIL(cl_load_relaxed(&counter) > before);
}

static void yields(void *arg)
{
    (void)arg;
    while (!cl_load_acquire(&over)) {
        cl_count(&counter, 1);
        cl_uthread_yield();
    }
    cl_count(&done, 1);
}

#endif
