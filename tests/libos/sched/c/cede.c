/* Cores that an iokernel gives and takes, from the application's side, against words that the test writes: asking, the
 * interrupt in place and with the uthread resumed on a sibling, parking with timers, help, stopping, and an iokernel
 * that dies and comes again.
 *
 * Usage: cede SCENARIO YIELD_WAIT. */
#include "churn.h"
#include "counting.h"
#include "fake_iokernel.h"

#include <corelane/libos/probe.h>
#include <corelane/runtime/clock.h>

static struct fake fake;
static struct cl_nic *nic;
static struct cl_sched *sched;

static void start(unsigned kthreads, bool yield_wait, uint32_t reattach_ms)
{
    struct cl_sched_config c;
    char err[256] = "";
    alarm(60); /* a lost wake-up hangs: die and say so by the signal */
    fake_new(&fake, yield_wait);
    nic = fake_attach(&fake, kthreads, reattach_ms);
    cl_sched_config_init(&c);
    c.n_kthreads = kthreads;
    c.cores = nic->cores;
    sched = sched_new(&c);
    int rc = cl_sched_start(sched, err);
    if (rc)
        fprintf(stderr, "%s\n", err);
    CHECK_EQ(rc, 0);
    CHECK(cl_load_acquire(&fake.managed));
}

static void stop(int left)
{
    cl_store_release(&over, left == 0);
    CHECK_EQ(cl_sched_stop(sched, left ? 0 : 20000000000), left);
    cl_sched_delete(sched);
    cl_nic_close(nic);
    fake_down(&fake);
}

static void probes(void *arg)
{
    (void)arg;
    while (!cl_load_acquire(&over)) {
        cl_count(&counter, 1);
        CL_PROBE();
    }
    cl_count(&done, 1);
}

static void never_looks(void *arg)
{
    (void)arg;
    while (!cl_load_acquire(&over))
        cl_count(&counter, 1);
    cl_count(&done, 1);
}

static void never_switches(void *arg)
{
    cl_sched_no_switch_enter();
    probes(arg);
    cl_sched_no_switch_leave();
}

static uint64_t switches_of(unsigned k)
{
    struct cl_sched_stats st;
    CHECK_EQ(cl_sched_stats(sched, k, &st), 0);
    return st.switches;
}

/* Without a core nothing runs; work from outside asks for help, and rings. */
static void first_core(bool yield_wait)
{
    start(2, yield_wait, 0);
    UNTIL(fake_is_parked(&fake, 0) && fake_is_parked(&fake, 1));
    uint32_t help = cl_load_relaxed(&fake_lines(&fake, 0)->help), *rung = fake_rung(&fake);
    cl_store_relaxed(rung, 0);
    CHECK_EQ(cl_sched_spawn(sched, yields, NULL), 0);
    CHECK(cl_load_relaxed(&fake_lines(&fake, 0)->help) != help);
    CHECK_EQ(cl_load_relaxed(rung), 1);
    stands_still();
    fake_give(&fake, 1, 0);
    goes_on();
    UNTIL(fake_runs(&fake, 1));
    /* The other one waits, and has run no uthread. It has ceded, if what was spawned came between its word and its
     * last look at the queues: it had work to see then, so it waits as one that has, until it gets a core, whoever did
     * that work. */
    CHECK(fake_is_away(&fake, 0));
    CHECK_EQ(switches_of(0), 0);
    CHECK(switches_of(1) > 0);
    stop(0);
    CHECK_EQ(done, 1);
}

/* Ask, and give back, over and over: by a scheduling point, by a probe, by a probe that may not switch. At a probe the
 * uthread stays where it is, since no sibling could go on with it. */
static void asked(cl_uthread_fn fn, bool yield_wait)
{
    start(1, yield_wait, 0);
    unsigned cpu = 1;
    CHECK_EQ(cl_sched_spawn(sched, fn, NULL), 0);
    fake_give(&fake, 0, cpu);
    for (int i = 0; i < 200; i++) {
        goes_on();
        UNTIL(fake_runs(&fake, 0));
        fake_take(&fake, 0, cpu);
        UNTIL(fake_is_ceded(&fake, 0));
        CHECK_EQ(cl_load_relaxed(&fake_lines(&fake, 0)->signals.in_uthread), fn != yields);
        if (i % 20 == 0)
            stands_still();
        cpu = (unsigned)i % FAKE_CPUS;
        fake_give(&fake, 0, cpu);
    }
    CHECK(cl_load_relaxed(&fake_lines(&fake, 0)->signals.preempted) >= 200);
    stop(0);
    CHECK_EQ(done, 1);
}

/* The uthread that was running when the core was lost goes on where a sibling has one; it had never yielded. */
static void resumed_elsewhere(bool yield_wait)
{
    start(2, yield_wait, 0);
    CHECK_EQ(cl_sched_spawn(sched, probes, NULL), 0);
    fake_give(&fake, 0, 0);
    for (unsigned i = 0; i < 200; i++) {
        unsigned from = i % 2, to = 1 - from;
        goes_on();
        fake_take(&fake, from, 0);
        UNTIL(fake_is_away(&fake, from));
        fake_give(&fake, to, 0);
    }
    goes_on();
    stop(0);
    CHECK_EQ(done, 1);
}

/* Code that does not look is interrupted, and waits where it was. */
static void interrupted(bool yield_wait)
{
    start(1, yield_wait, 0);
    CHECK_EQ(cl_sched_spawn(sched, never_looks, NULL), 0);
    fake_give(&fake, 0, 0);
    for (int i = 0; i < 200; i++) {
        goes_on();
        UNTIL(fake_runs(&fake, 0));
        fake_signal(&fake, 0); /* of no meaning: it still owns its core */
        fake_take(&fake, 0, 0);
        fake_signal(&fake, 0);
        UNTIL(fake_is_ceded(&fake, 0));
        if (i % 20 == 0)
            stands_still();
        CHECK_EQ(cl_load_relaxed(&fake_lines(&fake, 0)->signals.in_uthread), 1);
        fake_give(&fake, 0, 0);
    }
    struct cl_sched_stats st;
    CHECK_EQ(cl_sched_stats(sched, 0, &st), 0);
    CHECK(st.interrupts >= 200);
    stop(0);
    CHECK_EQ(done, 1);
}

static struct cl_spin guard;
static uint32_t held, wanted;

static void holds(void *arg)
{
    (void)arg;
    cl_spin_lock(&guard);
    cl_store_release(&held, 1);
    while (!cl_load_acquire(&wanted))
        cl_count(&counter, 1);
    cl_spin_unlock(&guard);
    cl_uthread_yield();
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
}

static void wants(void *arg)
{
    (void)arg;
    cl_store_release(&wanted, 1);
    cl_spin_lock(&guard);
    cl_spin_unlock(&guard);
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
}

static uint64_t interrupts_of(unsigned k)
{
    struct cl_sched_stats st;
    CHECK_EQ(cl_sched_stats(sched, k, &st), 0);
    return st.interrupts;
}

/* Who is interrupted with a spinlock held goes on to its end: the sibling that has the core by then would spin for
 * ever. */
static void holds_lock(bool yield_wait)
{
    start(2, yield_wait, 0);
    UNTIL(fake_is_parked(&fake, 0) && fake_is_parked(&fake, 1));
    CHECK_EQ(cl_sched_spawn(sched, holds, NULL), 0);
    fake_give(&fake, 0, 0);
    UNTIL(cl_load_acquire(&held));
    fake_take(&fake, 0, 0);
    fake_signal(&fake, 0);
    UNTIL(interrupts_of(0) > 0);
    goes_on();
    CHECK_EQ(cl_sched_spawn(sched, wants, NULL), 0); /* who gets a core looks for work, and parks without */
    fake_give(&fake, 1, 0);
    UNTIL(cl_load_acquire(&done) > 0);
    fake_give(&fake, 0, 1); /* it looked after its lock, and waits, if the sibling has not taken what it left */
    UNTIL(cl_load_acquire(&done) == 2);
    stop(0);
}

#define CHURNERS 3
static uint64_t churn_rounds, churned[CHURNERS], churn_progress[CHURNERS];
static bool marked;
#if defined(__x86_64__)
#define STEALS true
#else
#define STEALS false /* everything waits in place */
#endif

static void churner(void *arg)
{
    uint64_t i = (uint64_t)(uintptr_t)arg;
    if (marked)
        CHECK_EQ(cl_preemptible_begin(), 0);
    churned[i] = churn_any(i + 1, churn_rounds, &churn_progress[i]);
    if (marked)
        cl_preemptible_end();
    __atomic_fetch_add(&done, 1, __ATOMIC_ACQ_REL);
}

/* Give the core to the three in turn, each time in the middle of a computation, until all are done. */
static void churn_round(const uint64_t *expected)
{
    cl_store_release(&done, 0);
    for (uint64_t i = 0; i < CHURNERS; i++)
        CHECK_EQ(cl_sched_spawn(sched, churner, (void *)(uintptr_t)i), 0);
    unsigned k = 0, moves = 0;
    fake_give(&fake, k, 0);
    while (cl_load_acquire(&done) < CHURNERS) {
        UNTIL(fake_runs(&fake, k) || cl_load_acquire(&done) == CHURNERS || fake_is_parked(&fake, k));
        for (int i = 0; i < 20; i++)
            sched_yield();
        fake_take(&fake, k, 0);
        fake_interrupt(&fake, k);
        k = (k + 1) % 3;
        fake_give(&fake, k, 0);
        moves++;
    }
    fake_take(&fake, k, 0);
    UNTIL(fake_is_away(&fake, k));
    printf("%u moves\n", moves);
    for (unsigned i = 0; i < CHURNERS; i++)
        CHECK_EQ(churned[i], expected[i]);
}

/* Interruptible code goes on elsewhere, with all its registers: the core goes round among kthreads of which each has
 * lost it in the middle of the computation. Which of them runs what is the machine's to say, so there are rounds until
 * one has gone on with another's. */
static void churns(bool yield_wait, bool by_mark)
{
    uint64_t progress, expected[CHURNERS], interrupts, stolen;
    marked = by_mark;
    churn_rounds = 5000000; /* some milliseconds of computing, in slices of the 20 yields between two moves */
    start(3, yield_wait, 0);
    if (!marked)
        CHECK_EQ(cl_preemptible_add(__start_batch_text, __stop_batch_text), 0);
    for (;; churn_rounds *= 2) { /* beside others the test may not run until one has computed all of it */
        for (unsigned i = 0; i < CHURNERS; i++)
            expected[i] = churn_any(i + 1, churn_rounds, &progress);
        churn_round(expected);
        interrupts = stolen = 0;
        for (unsigned i = 0; i < 3; i++) {
            struct cl_sched_stats st;
            CHECK_EQ(cl_sched_stats(sched, i, &st), 0);
            interrupts += st.interrupts;
            stolen += st.stolen_uthreads;
        }
        printf("%llu interrupts, %llu stolen\n", (unsigned long long)interrupts, (unsigned long long)stolen);
        if (interrupts > 0 && (stolen > 0 || !STEALS))
            break;
    }
    if (!marked)
        cl_preemptible_remove(__start_batch_text);
    stop(0);
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* TSan holds the second signal back until the handler ends */
#include <signal.h>
#include <ucontext.h>

static uint32_t handler_over, handled_in, handled_out; /* handled_*: thread ids */

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    __atomic_store_n(&handled_in, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    while (!cl_load_acquire(&handler_over))
        cl_count(&counter, 1);
    handled_out = (uint32_t)syscall(SYS_gettid);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* behind the ud2 */
}

static void faults(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_preemptible_begin(), 0);
    __asm__ volatile("ud2" ::: "memory");
    cl_preemptible_end();
    cl_count(&done, 1);
}

/* In the handler of another signal, on the uthread's own stack, even code that is marked waits in place: its frame
 * cannot go to another kthread. */
static void in_handler(bool yield_wait)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    CHECK_EQ(sigaction(SIGILL, &action, &before), 0);
    start(2, yield_wait, 0);
    CHECK_EQ(cl_sched_spawn(sched, faults, NULL), 0);
    fake_give(&fake, 0, 0);
    UNTIL(cl_load_acquire(&handled_in));
    unsigned k = handled_in == (uint32_t)fake.kthreads.tids[0] ? 0 : 1;
    CHECK_EQ(k, 0);
    for (int i = 0; i < 20; i++) {
        goes_on();
        UNTIL(fake_runs(&fake, 0));
        fake_take(&fake, 0, 0);
        fake_interrupt(&fake, 0);
        CHECK(fake_is_ceded(&fake, 0));
        CHECK_EQ(cl_load_relaxed(&fake_lines(&fake, 0)->signals.in_uthread), 1);
        fake_give(&fake, 1, 0); /* a sibling finds nothing to take */
        UNTIL(fake_is_parked(&fake, 1));
        stands_still();
        fake_take(&fake, 1, 0);
        fake_give(&fake, 0, 0);
    }
    cl_store_release(&handler_over, 1);
    UNTIL(cl_load_acquire(&done) == 1);
    CHECK_EQ(handled_out, handled_in);
    stop(0);
    CHECK_EQ(sigaction(SIGILL, &before, NULL), 0);
}
#else
static void in_handler(bool yield_wait)
{
    (void)yield_wait; /* everything waits in place */
}
#endif

static void sleeps(void *arg)
{
    (void)arg;
    while (!cl_load_acquire(&over)) {
        cl_count(&counter, 1);
        cl_uthread_sleep_ns(200000);
    }
    cl_count(&done, 1);
}

/* A parked owner gets up for its timer; one that has lost its core leaves that to the iokernel, who sees it coming. */
static void timers(bool yield_wait)
{
    start(1, yield_wait, 0);
    CHECK_EQ(cl_sched_spawn(sched, sleeps, NULL), 0);
    fake_give(&fake, 0, 0);
    for (int i = 0; i < 20; i++)
        goes_on();
    struct cl_signals *sig = &fake_lines(&fake, 0)->signals;
    for (int i = 0; i < 20; i++) {
        UNTIL(fake_is_parked(&fake, 0));
        fake_take(&fake, 0, 0);
        UNTIL(fake_is_away(&fake, 0));
        UNTIL(cl_load_relaxed(&sig->timer_tsc) < cl_tsc()); /* due, and still */
        if (!fake_is_ceded(&fake, 0))
            stands_still();
        fake_give(&fake, 0, 0);
        goes_on();
    }
    stop(0);
    CHECK_EQ(done, 1);
}

/* Positions add up once all is at rest. */
static void positions(bool yield_wait)
{
    start(1, yield_wait, 0);
    for (int i = 0; i < 1000; i++) /* more than the ring holds */
        CHECK_EQ(cl_sched_spawn(sched, sleeps, NULL), 0);
    fake_give(&fake, 0, 0);
    UNTIL(cl_load_relaxed(&counter) > 3000);
    cl_store_release(&over, 1);
    UNTIL(cl_load_relaxed(&done) == 1000 && fake_is_parked(&fake, 0));
    const struct cl_signals *sig = &fake_lines(&fake, 0)->signals;
    CHECK_EQ(sig->runq_tail, sig->runq_head);
    CHECK(sig->runq_tail >= 4000);
    CHECK(sig->switches >= 3000);
    CHECK(sig->timer_tsc == UINT64_MAX);
    CHECK_EQ(sig->in_uthread, 0);
    stop(0);
}

/* Ending goes before waiting. */
static void stop_without_core(bool yield_wait)
{
    start(2, yield_wait, 0);
    CHECK_EQ(cl_sched_spawn(sched, yields, NULL), 0);
    fake_give(&fake, 0, 0);
    goes_on();
    fake_take(&fake, 0, 0);
    UNTIL(fake_is_ceded(&fake, 0));
    stop(1);
    CHECK_EQ(done, 0);
}

/* The iokernel dies while one has ceded and one is parked: both go on by themselves. The next one manages them
 * again. */
static void death(bool yield_wait, cl_uthread_fn fn)
{
    start(2, yield_wait, 1);
    for (int round = 0; round < 5; round++) {
        if (round == 0)
            CHECK_EQ(cl_sched_spawn(sched, fn, NULL), 0);
        fake_give(&fake, 0, 0);
        fake_give(&fake, 1, 1);
        goes_on();
        fake_take(&fake, 0, 0);
        fake_take(&fake, 1, 1);
        fake_interrupt(&fake, 0);
        fake_interrupt(&fake, 1);
        stands_still();
        fake_down(&fake);
        goes_on();
        fake_up(&fake);
        UNTIL(cl_load_acquire(&fake.managed));
        /* Managed again, with nothing. */
        UNTIL(fake_is_away(&fake, 0) && fake_is_away(&fake, 1));
        stands_still();
        CHECK(cl_load_relaxed(&fake_lines(&fake, 0)->signals.timer_tsc) == UINT64_MAX);
    }
    fake_give(&fake, 0, 0);
    fake_give(&fake, 1, 1);
    stop(0);
    CHECK_EQ(done, 1);
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 3);
    const char *name = argv[1];
    bool yield_wait = atoi(argv[2]);
    if (!strcmp(name, "first_core"))
        first_core(yield_wait);
    else if (!strcmp(name, "asked_yield"))
        asked(yields, yield_wait);
    else if (!strcmp(name, "asked_probe"))
        asked(probes, yield_wait);
    else if (!strcmp(name, "asked_no_switch"))
        asked(never_switches, yield_wait);
    else if (!strcmp(name, "resumed_elsewhere"))
        resumed_elsewhere(yield_wait);
    else if (!strcmp(name, "interrupted"))
        interrupted(yield_wait);
    else if (!strcmp(name, "holds_lock"))
        holds_lock(yield_wait);
    else if (!strcmp(name, "registers_range"))
        churns(yield_wait, false);
    else if (!strcmp(name, "registers_mark"))
        churns(yield_wait, true);
    else if (!strcmp(name, "in_handler"))
        in_handler(yield_wait);
    else if (!strcmp(name, "timers"))
        timers(yield_wait);
    else if (!strcmp(name, "positions"))
        positions(yield_wait);
    else if (!strcmp(name, "stop_without_core"))
        stop_without_core(yield_wait);
    else if (!strcmp(name, "death_yield"))
        death(yield_wait, yields);
    else if (!strcmp(name, "death_probe"))
        death(yield_wait, probes);
    else if (!strcmp(name, "death_in_place"))
        death(yield_wait, never_looks);
    else
        CHECK(!"a scenario");
    return 0;
}
