/* An adopted kthread of a runtime whose cores an iokernel gives and takes, against words that the test writes: asleep
 * in an epoll without a core, given one, asked for it in a turn, interrupted in its thread's own code, and an iokernel
 * that dies. Usage: adopt_cores SCENARIO */
#include "adopted.h"
#include "counting.h"
#include "fake_iokernel.h"

#include <corelane/libos/runtime.h>
#include <corelane/runtime/clock.h>

#include <signal.h>

static struct fake fake;
static struct cl_runtime *runtime;
static struct cl_sched *sched;
static pthread_t thread;

static void start(unsigned kthreads, void *(*main)(void *arg))
{
    struct cl_runtime_config c = {
        .name = "adopted", .kthreads = kthreads, .adopted = 1, .poll = CL_SCHED_BLOCK, .poll_set = 1};
    char err[256] = "";
    alarm(60); /* a lost wake-up hangs: die and say so by the signal */
    fake_new(&fake, false);
    c.socket_path = fake.path;
    int rc = cl_runtime_new(&c, &runtime, err);
    CHECK(rc == 0, "%s", err);
    sched = cl_runtime_sched(runtime);
    rc = cl_runtime_start(runtime, err);
    CHECK(rc == 0, "%s", err);
    CHECK_EQ(pthread_create(&thread, NULL, main, NULL), 0);
    UNTIL(cl_load_acquire(&fake.managed)); /* it is told when the last was adopted */
}

static void stop_within(int64_t timeout_ns)
{
    cl_store_release(&over, 1);
    CHECK(cl_runtime_stop(runtime, timeout_ns) >= 0);
    pthread_join(thread, NULL);
    cl_runtime_delete(runtime);
    fake_down(&fake);
}

static void stop(void)
{
    stop_within(20000000000);
}

static void once(void *arg)
{
    (void)arg;
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
}

static void *turns(void *arg)
{
    struct driver d = {.sched = sched, .n = 1};
    (void)arg;
    return drive(&d);
}

/* Turns, and then runs code of its own until it is told to go on. */
static void *own_code(void *arg)
{
    (void)arg;
    adopt(sched, 0);
    UNTIL(cl_kthread_turn(sched, 0) == 1); /* it has a core */
    while (!cl_load_acquire(&over))
        cl_count(&counter, 1);
    return turns(NULL);
}

static void sleeps_without_core(void)
{
    start(1, turns);
    for (uint32_t i = 1; i <= 50; i++) {
        UNTIL(fake_is_parked(&fake, 0));
        uint32_t help = cl_load_relaxed(&fake_lines(&fake, 0)->help);
        CHECK_EQ(cl_runtime_spawn(runtime, once, NULL), 0);
        CHECK(cl_load_relaxed(&fake_lines(&fake, 0)->help) != help);
        CHECK_EQ(cl_load_acquire(&done), i - 1);
        fake_give(&fake, 0, i % FAKE_CPUS); /* by the futex: the herald wakes the epoll */
        UNTIL(cl_load_acquire(&done) == i);
        fake_take(&fake, 0, i % FAKE_CPUS);
    }
    fake_give(&fake, 0, 0);
    stop();
}

static void takes_the_core(void *arg)
{
    fake_take(&fake, 0, 1);
    once(arg);
}

/* It parks before it has ever looked at its queue: what it does at the first look must not say that it runs. */
static void parks_before_it_polls(void)
{
    start(1, turns);
    UNTIL(fake_is_parked(&fake, 0));
    CHECK_EQ(cl_runtime_spawn(runtime, takes_the_core, NULL), 0);
    fake_give(&fake, 0, 1);
    struct cl_sched_stats stats;
    do { /* it sleeps again: what it said as it began to is not enough */
        sched_yield();
        cl_sched_stats(sched, 0, &stats);
    } while (stats.parks < 2);
    CHECK(cl_load_acquire(&done) == 1 && stats.polls == 0);
    CHECK(fake_is_parked(&fake, 0));
    fake_give(&fake, 0, 0);
    stop();
}

static void asked(void)
{
    start(2, turns);
    CHECK_EQ(cl_runtime_spawn(runtime, yields, NULL), 0);
    fake_give(&fake, 0, 1);
    for (unsigned i = 0; i < 100; i++) {
        goes_on();
        UNTIL(fake_runs(&fake, 0));
        fake_take(&fake, 0, 1);
        UNTIL(fake_is_parked(&fake, 0)); /* at the next turn, or at a scheduling point of this one */
        if (i % 20 == 0)
            stands_still();
        fake_give(&fake, 0, 1);
    }
    stop();
    CHECK_EQ(done, 1);
}

static void interrupted(void)
{
    start(1, own_code);
    CHECK_EQ(cl_runtime_spawn(runtime, once, NULL), 0);
    fake_give(&fake, 0, 2);
    for (int i = 0; i < 50; i++) {
        goes_on();
        fake_take(&fake, 0, 2);
        fake_signal(&fake, 0);
        UNTIL(fake_is_ceded(&fake, 0)); /* in place, in the handler */
        stands_still();
        fake_give(&fake, 0, 2);
    }
    goes_on();
    stop();
}

/* A signal reaches an owner that no wake has reached. */
static void roused(void)
{
    start(1, turns);
    UNTIL(fake_is_parked(&fake, 0));
    CHECK_EQ(cl_runtime_spawn(runtime, once, NULL), 0);
    cl_store_relaxed(&fake_slot(&fake, 0)->cpu, 1);
    cl_store_release(&fake_core(&fake, 1)->owner, FAKE_SLOT + 1);
    cl_store_release(&fake_slot(&fake, 0)->grant, fake_slot(&fake, 0)->grant + 1);
    fake_signal(&fake, 0);
    UNTIL(cl_load_acquire(&done) == 1);
    stop();
}

static void iokernel_dies(void)
{
    start(1, turns);
    UNTIL(fake_is_parked(&fake, 0));
    CHECK_EQ(cl_runtime_spawn(runtime, once, NULL), 0);
    shutdown(fake.socket, SHUT_RDWR);
    UNTIL(cl_load_acquire(&done) == 1); /* nobody manages it any more */
    CHECK_EQ(cl_runtime_spawn(runtime, once, NULL), 0);
    UNTIL(cl_load_acquire(&done) == 2);
    stop();
}

/* Stopped while it sleeps without a core: then what it has to do is left. */
static void stopped(void)
{
    start(1, turns);
    UNTIL(fake_is_parked(&fake, 0));
    stop_within(0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"sleeps_without_core", sleeps_without_core},
                     {"parks_before_it_polls", parks_before_it_polls},
                     {"asked", asked},
                     {"interrupted", interrupted},
                     {"roused", roused},
                     {"iokernel_dies", iokernel_dies},
                     {"stopped", stopped}};
    CHECK_EQ(argc, 2);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
