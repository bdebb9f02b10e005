/* Stopping while kthreads go to sleep: whatever moment the stop comes at, one of the kthreads sees that nothing is
 * alive and says so. With the watch off a miss hangs. Where much else runs a round takes some slices of the kernel's:
 * then there are fewer. Usage: stop_race KTHREADS MODE ROUNDS SEED */
#include "check.h"

#include <corelane/runtime/clock.h>

#define ENOUGH_NS 20000000000ull

static void nothing(void *arg)
{
    (void)arg;
}

static void spread(void *arg)
{
    for (uintptr_t n = (uintptr_t)arg; n; n--)
        CHECK_EQ(cl_uthread_spawn(nothing, NULL, NULL), 0);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    unsigned rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 1000;
    uint64_t state = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    c.spin_ns = 2000;
    c.max_uthreads = 256;
    uint64_t begin = cl_monotonic_raw_ns();
    for (unsigned i = 0; i < rounds && cl_monotonic_raw_ns() - begin < ENOUGH_NS; i++) {
        struct cl_sched *s = sched_started(&c);
        if (next_random(&state) % 2)
            CHECK_EQ(cl_sched_spawn(s, spread, (void *)(uintptr_t)(next_random(&state) % 8)), 0);
        for (uint64_t n = next_random(&state) % 20000; n; n--)
            cl_relax();
        CHECK_EQ(cl_sched_stop(s, -1), 0);
        cl_sched_delete(s);
    }
    return 0;
}
