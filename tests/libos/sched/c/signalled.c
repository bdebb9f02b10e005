/* A quantum that is over by the signal, for code without probes, against words that the test writes: what ran for so
 * long is switched away from where it may be, and nothing else is.
 *
 * Nothing here hangs on time: a signal has come when its handler says so.
 *
 * Usage: signalled SCENARIO. */
#include "churn.h"
#include "fake_iokernel.h"

#include <corelane/libos/probe.h>

#define TIMES 100
#define CHURNERS 4

static struct fake fake;
static struct cl_nic *nic;
static struct cl_sched *sched;
static uint64_t counter;
static uint32_t over, running, short_done, long_done;

static void start(unsigned kthreads)
{
    struct cl_sched_config c;
    char err[256] = "";
    alarm(60); /* one that is not let run hangs: die and say so by the signal */
    fake_new(&fake, true);
    nic = fake_attach(&fake, kthreads, 0);
    cl_sched_config_init(&c);
    c.n_kthreads = kthreads;
    c.cores = nic->cores;
    sched = sched_new(&c);
    CHECK_EQ(cl_sched_start(sched, err), 0);
    CHECK_EQ(cl_preemptible_add(__start_batch_text, __stop_batch_text), 0);
}

static void finish(void)
{
    CHECK_EQ(cl_sched_stop(sched, 20000000000), 0); /* no uthread is lost */
    cl_preemptible_remove(__start_batch_text);
    cl_sched_delete(sched);
    cl_nic_close(nic);
    fake_down(&fake);
}

static struct cl_sched_stats stats_of(unsigned k)
{
    struct cl_sched_stats st;
    CHECK_EQ(cl_sched_stats(sched, k, &st), 0);
    return st;
}

NO_SANITIZER __attribute__((section("batch_text"))) static void compute(void)
{
    while (!cl_load_acquire(&over))
        cl_count(&counter, 1);
}

NO_SANITIZER static void compute_elsewhere(void)
{
    while (!cl_load_acquire(&over))
        cl_count(&counter, 1);
}

static void in_range(void *arg)
{
    (void)arg;
    cl_store_release(&running, 1);
    compute();
    cl_count(&long_done, 1);
}

static void marked(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_preemptible_begin(), 0);
    cl_store_release(&running, 1);
    compute_elsewhere();
    cl_preemptible_end();
    cl_count(&long_done, 1);
}

static void not_marked(void *arg)
{
    (void)arg;
    cl_store_release(&running, 1);
    compute_elsewhere();
    cl_count(&long_done, 1);
}

static void may_not_switch(void *arg)
{
    cl_sched_no_switch_enter();
    in_range(arg);
    cl_sched_no_switch_leave();
}

static struct cl_spin lock;

static void holds_lock(void *arg)
{
    cl_spin_lock(&lock);
    in_range(arg);
    cl_spin_unlock(&lock);
}

static void with_probes(void *arg)
{
    (void)arg;
    cl_store_release(&running, 1);
    while (!cl_load_acquire(&over)) {
        cl_count(&counter, 1);
        CL_PROBE();
    }
    cl_count(&long_done, 1);
}

static void is_short(void *arg)
{
    (void)arg;
    cl_store_release(&short_done, short_done + 1);
}

static void spawn(cl_uthread_fn fn)
{
    CHECK_EQ(cl_sched_spawn(sched, fn, NULL), 0);
}

/* `fn` runs, alone. */
static void begin(cl_uthread_fn fn)
{
    cl_store_release(&over, 0);
    cl_store_release(&running, 0);
    spawn(fn);
    fake_give(&fake, 0, 0);
    UNTIL(cl_load_acquire(&running));
}

/* Until the handler runs: what it counts may come after that. */
static void tell(unsigned k)
{
    fake_quantum_signal(&fake, k);
    UNTIL(fake_saw_signal(&fake, k));
}

static void goes_on(void)
{
    uint64_t before = cl_load_relaxed(&counter);
    UNTIL(cl_load_relaxed(&counter) > before);
}

#if defined(__x86_64__)
#define SWITCHES 1u
#else
#define SWITCHES 0u /* everything goes on */
#endif

/* Code without probes lets another go first, each time, and goes on itself. */
static void by_signal(cl_uthread_fn fn)
{
    start(1);
    begin(fn);
    for (uint32_t i = 0; i < SWITCHES * TIMES; i++) {
        spawn(is_short);
        while (cl_load_acquire(&short_done) == i) { /* one may find a function of the scheduler, and do nothing */
            fake_over(&fake, 0, 0);
            tell(0);
        }
        fake_no_quantum(&fake, 0);
        goes_on();
    }
    CHECK_EQ(cl_load_relaxed(&long_done), 0);
    CHECK_EQ(stats_of(0).preempted, SWITCHES * TIMES);
    CHECK(stats_of(0).quantum_signals >= stats_of(0).preempted);
    cl_store_release(&over, 1);
    finish();
    CHECK_EQ(long_done, 1);
}

/* What runs when a signal comes late is not what it was for: it goes on, by the signal and at its probes. */
static void late(void)
{
    start(1);
    begin(in_range);
    fake_over(&fake, 0, 0); /* of this one, which ends before the signal comes */
    cl_store_release(&over, 1);
    UNTIL(cl_load_acquire(&long_done) == 1);
    begin(in_range);
    spawn(is_short);
    for (uint32_t i = 0; i < TIMES; i++)
        tell(0);
    goes_on();
    CHECK_EQ(cl_load_acquire(&short_done), 0);
    CHECK_EQ(stats_of(0).quantum_late, TIMES);
    cl_store_release(&over, 1);
    UNTIL(cl_load_acquire(&long_done) == 2 && cl_load_acquire(&short_done) == 1);

    begin(with_probes);
    spawn(is_short);
    fake_over(&fake, 0, 1);
    for (uint32_t i = 0; i < TIMES; i++)
        goes_on();
    CHECK_EQ(cl_load_acquire(&short_done), 1);
    CHECK_EQ(stats_of(0).preempted, 0);
    CHECK_EQ(stats_of(0).quantum_signals, 0);
    cl_store_release(&over, 1);
    finish();
    CHECK_EQ(short_done, 2);
}

/* Where code may not be interrupted the signal changes nothing, and does not wait, either. */
static void held(cl_uthread_fn fn)
{
    start(1);
    begin(fn);
    spawn(is_short);
    for (uint32_t i = 0; i < TIMES; i++) {
        fake_over(&fake, 0, 0);
        tell(0);
        goes_on();
    }
    CHECK_EQ(cl_load_acquire(&short_done), 0);
    CHECK_EQ(stats_of(0).quantum_held, TIMES);
    CHECK_EQ(stats_of(0).preempted, 0);
    CHECK_EQ(stats_of(0).quantum_signals, 0);
    cl_store_release(&over, 1);
    finish();
    CHECK_EQ(short_done, 1);
}

/* Nobody waits by the time that it comes: the same goes on. And a kthread without a uthread has nothing to switch. */
static void nobody_waits(void)
{
    start(1);
    fake_over(&fake, 0, 0);
    tell(0); /* without a core, in its sleep */
    UNTIL(stats_of(0).interrupts == 1);
    begin(in_range);
    for (uint32_t i = 0; i < TIMES; i++) {
        fake_over(&fake, 0, 0);
        tell(0);
        goes_on();
    }
    CHECK_EQ(stats_of(0).preempted, 0);
    cl_store_release(&over, 1);
    finish();
}

static uint64_t churn_rounds, churned[CHURNERS], churn_progress[CHURNERS];

static void churner(void *arg)
{
    uint64_t i = (uint64_t)(uintptr_t)arg;
    churned[i] = churn_any(i + 1, churn_rounds, &churn_progress[i]);
    __atomic_fetch_add(&long_done, 1, __ATOMIC_ACQ_REL);
}

/* Quanta, signals that come late and cores that are lost, in any order, on two kthreads with one core: each computation
 * ends once, with its registers as it left them. */
static void all_at_once(void)
{
    uint64_t progress, expected[CHURNERS], preempted = 0;
    uint32_t moves = 0, random = 1;
    unsigned k = 0;
    churn_rounds = 4000000;
    for (unsigned i = 0; i < CHURNERS; i++)
        expected[i] = churn_any(i + 1, churn_rounds, &progress);
    start(2);
    for (uint64_t i = 0; i < CHURNERS; i++)
        CHECK_EQ(cl_sched_spawn(sched, churner, (void *)(uintptr_t)i), 0);
    fake_give(&fake, k, 0);
    while (cl_load_acquire(&long_done) < CHURNERS) {
        random = random * 1664525 + 1013904223;
        if (random >> 28) {
            fake_over(&fake, k, random >> 24 & 1);
            tell(k);
            fake_no_quantum(&fake, k);
            sched_yield();
            continue;
        }
        fake_take(&fake, k, 0);
        fake_interrupt(&fake, k);
        k = 1 - k;
        fake_give(&fake, k, 0);
        moves++;
    }
    for (unsigned i = 0; i < CHURNERS; i++)
        CHECK_EQ(churned[i], expected[i]);
    for (unsigned i = 0; i < 2; i++)
        preempted += stats_of(i).preempted;
    printf("%u moves, %llu preempted\n", moves, (unsigned long long)preempted);
    finish();
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 2);
    const char *name = argv[1];
    if (!strcmp(name, "range"))
        by_signal(in_range);
    else if (!strcmp(name, "mark"))
        by_signal(marked);
    else if (!strcmp(name, "late"))
        late();
    else if (!strcmp(name, "not_marked"))
        held(not_marked);
    else if (!strcmp(name, "no_switch"))
        held(may_not_switch);
    else if (!strcmp(name, "lock"))
        held(holds_lock);
    else if (!strcmp(name, "nobody_waits"))
        nobody_waits();
    else if (!strcmp(name, "all_at_once"))
        all_at_once();
    else
        CHECK(!"a scenario");
    return 0;
}
