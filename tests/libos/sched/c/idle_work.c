/* What may be done at any time is done when nothing else is, a piece at a time: between two pieces the kthread looks
 * for work, and it does not sleep before all of them are done. Usage: idle_work KTHREADS POLL. */
#include "check.h"

#include <sched.h>

#define PIECES 1000

static uint32_t left = PIECES, looked[64], wrong;

static unsigned poll_queue(void *arg, unsigned self, unsigned queue)
{
    (void)arg;
    if (self == queue)
        cl_count(&looked[self], 1);
    return 0;
}

static bool ready(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return false;
}

static unsigned pending(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return 0;
}

static void run(void *arg, unsigned self)
{
    (void)arg, (void)self;
}

static bool idle(void *arg, unsigned self)
{
    static uint32_t seen[64];
    (void)arg;
    if (seen[self] == looked[self])
        cl_count(&wrong, 1);
    seen[self] = looked[self];
    uint32_t n = cl_load_relaxed(&left);
    while (n && !__atomic_compare_exchange_n(&left, &n, n - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return n != 0;
}

int main(int argc, char **argv)
{
    struct cl_work_source source = {.poll = poll_queue, .ready = ready, .pending = pending, .run = run, .idle = idle};
    struct cl_sched_config c;
    struct cl_sched_stats stats;
    CHECK_EQ(argc, 3);
    cl_sched_config_init(&c);
    c.n_kthreads = (uint32_t)atoi(argv[1]);
    c.poll = (uint32_t)atoi(argv[2]);
    c.source = &source;
    struct cl_sched *s = sched_started(&c);
    while (cl_load_relaxed(&left))
        sched_yield();
    if (c.poll != CL_SCHED_SPIN)
        do { /* it sleeps then */
            sched_yield();
            cl_sched_stats(s, 0, &stats);
        } while (stats.parks == 0);
    CHECK_EQ(cl_sched_stop(s, 20000000000), 0);
    CHECK_EQ(wrong, 0);
    cl_sched_delete(s);
    return 0;
}
