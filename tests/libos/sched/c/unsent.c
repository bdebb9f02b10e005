/* Frames that a NIC's full queue did not take, behind a kthread that has nothing else to do: it tries them again while
 * it owns its core, and once it has lost that the iokernel finds in its signals when it is to have one. A sibling that
 * takes its timers meanwhile, which exports what is left of them, leaves that as it is.
 *
 * Usage: unsent YIELD_WAIT. */
#include "fake_iokernel.h"

#include <corelane/libos/uthread.h>
#include <corelane/runtime/clock.h>

static struct fake fake;
static uint32_t stays[2], slept, over;
static uint64_t tries[2];

static unsigned nothing(void *arg, unsigned self, unsigned queue)
{
    (void)arg;
    (void)self;
    (void)queue;
    return 0;
}

static bool none(void *arg, unsigned queue)
{
    (void)arg;
    (void)queue;
    return false;
}

static unsigned none_pending(void *arg, unsigned queue)
{
    (void)arg;
    (void)queue;
    return 0;
}

static void run(void *arg, unsigned self)
{
    (void)arg;
    (void)self;
}

static bool flush(void *arg, unsigned self)
{
    (void)arg;
    cl_count(&tries[self], 1);
    return cl_load_acquire(&stays[self]);
}

static void sends(void *arg)
{
    (void)arg;
}

static void sleeps(void *arg)
{
    (void)arg;
    while (!cl_load_acquire(&over)) {
        cl_store_release(&slept, 1);
        cl_uthread_sleep_ns(200000);
    }
}

static uint64_t due(unsigned k)
{
    return cl_load_relaxed(&fake_lines(&fake, k)->signals.timer_tsc);
}

static void tries_again(unsigned k)
{
    uint64_t before = cl_load_relaxed(&tries[k]);
    UNTIL(cl_load_relaxed(&tries[k]) > before);
}

static bool stands_still(unsigned k)
{
    uint64_t before = cl_load_relaxed(&tries[k]);
    for (int i = 0; i < 20; i++)
        sched_yield();
    return cl_load_relaxed(&tries[k]) == before;
}

/* Without a core, which it may have been about to see, and due for one. */
static bool waits_for_a_core(unsigned k)
{
    return fake_is_parked(&fake, k) && due(k) < cl_tsc() && stands_still(k);
}

/* Take its core while it has nothing to run. If work came just before, it waits with that, and is to have the core back
 * first. */
static void take_for_good(unsigned k)
{
    for (;;) {
        fake_take(&fake, k, k);
        UNTIL(waits_for_a_core(k) || fake_is_ceded(&fake, k));
        if (!fake_is_ceded(&fake, k))
            break;
        fake_give(&fake, k, k);
        tries_again(k);
    }
    CHECK(waits_for_a_core(k));
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 2);
    struct cl_work_source source = {
        .poll = nothing, .ready = none, .pending = none_pending, .run = run, .flush = flush};
    struct cl_sched_config c;
    char err[256] = "";
    alarm(60);
    fake_new(&fake, atoi(argv[1]));
    struct cl_nic *nic = fake_attach(&fake, 2, 0);
    cl_sched_config_init(&c);
    c.n_kthreads = 2;
    c.cores = nic->cores;
    c.source = &source;
    struct cl_sched *sched = sched_new(&c);
    stays[0] = 1;
    CHECK_EQ(cl_sched_start(sched, err), 0);
    CHECK_EQ(cl_sched_spawn(sched, sends, NULL), 0);
    fake_give(&fake, 0, 0);
    for (int i = 0; i < 100; i++)
        tries_again(0); /* it sleeps in between */
    for (int i = 0; i < 20; i++) {
        take_for_good(0);
        fake_give(&fake, 0, 0);
        tries_again(0);
    }
    /* A sibling that has a core takes a timer of the one that waits, and sets another. */
    CHECK_EQ(cl_sched_spawn(sched, sleeps, NULL), 0);
    UNTIL(cl_load_acquire(&slept) && fake_is_parked(&fake, 0));
    take_for_good(0);
    do { /* it may find that nothing is due yet, and sleep */
        fake_take(&fake, 1, 1);
        fake_give(&fake, 1, 1);
        UNTIL(cl_load_acquire(&fake_lines(&fake, 1)->signals.acted) == fake_slot(&fake, 1)->grant);
        usleep(300);
    } while (due(1) == UINT64_MAX);
    UNTIL(waits_for_a_core(0)); /* when the frames are to be tried again, which may be later than the timer was */
    /* Nobody gives the sibling a core any more: what it sleeps for has to be due when the other one looks. */
    UNTIL(fake_is_parked(&fake, 1) && due(1) < cl_tsc());
    cl_store_release(&over, 1);
    cl_store_release(&stays[0], 0);
    fake_give(&fake, 0, 0);
    UNTIL(fake_is_parked(&fake, 0) && fake_is_parked(&fake, 1) && due(0) == UINT64_MAX && due(1) == UINT64_MAX);
    CHECK_EQ(cl_sched_stop(sched, 20000000000), 0);
    cl_sched_delete(sched);
    cl_nic_close(nic);
    fake_down(&fake);
    return 0;
}
