/* The quantum: uthreads that run for long let others go first at their probes, and only then.
 *
 * Nothing here hangs on time. A quantum of a nanosecond is over at each probe, one of an hour at none; so the order of
 * what runs is known. A uthread that waits at its probes for one behind it ends only if that one is let run before.
 *
 * Usage: quantum SCENARIO. */
#include "fake_iokernel.h"

#include <corelane/libos/probe.h>
#include <corelane/runtime/clock.h>

#define ALWAYS_NS 1ull
#define NEVER_NS 3600000000000ull
#define PROBES 1000

static struct fake fake;
static struct cl_nic *nic;
static struct cl_sched *sched;
static char trace[256];
static unsigned n_trace;
static uint32_t short_done, long_runs, long_over, long_done;

/* Some counters move on by 10 ns at a time, so that a nanosecond may not be over at the next probe. */
static void probe(void)
{
    for (uint64_t began = cl_tsc(); cl_tsc() - began < 100;)
        ;
    CL_PROBE();
}

static void note(char what)
{
    CHECK(n_trace < sizeof trace - 1);
    trace[n_trace++] = what;
}

static uint64_t preempted(void)
{
    struct cl_sched_stats st;
    CHECK_EQ(cl_sched_stats(sched, 0, &st), 0);
    return st.preempted;
}

static void expect(const char *order)
{
    if (strcmp(trace, order)) {
        fprintf(stderr, "%s, not %s\n", trace, order);
        exit(1);
    }
}

/* A network of one queue: what test code puts into `arrived` is polled, and handled by short_frame. */
static uint32_t arrived, inbox;
static bool long_frames;

static unsigned poll_frames(void *arg, unsigned self, unsigned queue)
{
    (void)arg, (void)self, (void)queue;
    uint32_t n = __atomic_exchange_n(&arrived, 0, __ATOMIC_ACQ_REL);
    cl_store_relaxed(&inbox, inbox + n);
    return n;
}

static bool frames_ready(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return cl_load_relaxed(&arrived) || cl_load_relaxed(&inbox);
}

static unsigned frames_pending(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return cl_load_relaxed(&inbox);
}

static void run_frames(void *arg, unsigned self)
{
    (void)arg, (void)self;
    while (inbox) {
        cl_store_relaxed(&inbox, inbox - 1);
        note('f');
        if (long_frames) {
            probe();
            note('g');
        }
        cl_store_release(&short_done, short_done + 1);
    }
}

static const struct cl_work_source network = {
    .poll = poll_frames, .ready = frames_ready, .pending = frames_pending, .run = run_frames};

/* A scheduler that the test's own thread steps. */
static void stepped(uint64_t quantum_ns)
{
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    c.quantum_ns = quantum_ns;
    c.source = &network;
    sched = sched_new(&c);
}

static void step_to_the_end(void)
{
    for (unsigned turns = 0; cl_sched_live(sched) || cl_load_relaxed(&inbox); turns++) {
        CHECK(turns < 100000);
        cl_sched_step(sched, 0);
    }
    CHECK_EQ(cl_sched_stop(sched, 0), 0);
}

static void probes_five(void *arg)
{
    for (unsigned i = 0; i < 5; i++) {
        note(*(const char *)arg);
        probe();
    }
}

static void probes_five_in_place(void *arg)
{
    cl_sched_no_switch_enter();
    probes_five(arg);
    cl_sched_no_switch_leave();
}

static void is_short(void *arg)
{
    note(*(const char *)arg);
}

static void spawn(cl_uthread_fn fn, const char *name)
{
    CHECK_EQ(cl_sched_spawn(sched, fn, (void *)(uintptr_t)name), 0);
}

/* Short ones do not wait for the end of a long one; long ones share. */
static void order(void)
{
    stepped(ALWAYS_NS);
    spawn(probes_five, "A");
    spawn(is_short, "x");
    spawn(is_short, "y");
    step_to_the_end();
    expect("AxyAAAA");
    CHECK_EQ(preempted(), 1); /* later nobody waited */
    cl_sched_delete(sched);

    memset(trace, 0, sizeof trace);
    n_trace = 0;
    stepped(ALWAYS_NS);
    spawn(probes_five, "A");
    spawn(probes_five, "B");
    spawn(probes_five, "C");
    step_to_the_end();
    expect("ABCABCABCABCABC");
    CHECK_EQ(preempted(), 15); /* at each: all have to end yet at the last one's last */
    cl_sched_delete(sched);
}

/* As they came, each to its end: without a quantum, while it is not over, and where they may not switch. */
static void no_order_but_theirs(void)
{
    const struct {
        uint64_t quantum_ns;
        cl_uthread_fn fn;
    } cases[] = {{0, probes_five}, {NEVER_NS, probes_five}, {ALWAYS_NS, probes_five_in_place}};
    for (unsigned i = 0; i < 3; i++) {
        memset(trace, 0, sizeof trace);
        n_trace = 0;
        stepped(cases[i].quantum_ns);
        spawn(cases[i].fn, "A");
        spawn(is_short, "x");
        spawn(cases[i].fn, "B");
        step_to_the_end();
        expect("AAAAAxBBBBB");
        CHECK_EQ(preempted(), 0);
        cl_sched_delete(sched);
    }
}

/* A long one alone goes on; a frame that comes meanwhile goes before the rest of it, and before who is in the queue. */
static void sends_itself_a_frame(void *arg)
{
    for (unsigned i = 0; i < PROBES; i++)
        probe();
    CHECK_EQ(preempted(), 0);
    note('A');
    cl_store_release(&arrived, 1);
    probe();
    note('A');
    (void)arg;
}

static void frames(void)
{
    stepped(ALWAYS_NS);
    spawn(sends_itself_a_frame, NULL);
    step_to_the_end();
    expect("AfA");
    CHECK_EQ(preempted(), 1);
    cl_sched_delete(sched);
}

/* Without a quantum nobody takes its kthread from it, whatever comes: a frame, or another uthread. */
static void none(void)
{
    stepped(0);
    spawn(sends_itself_a_frame, NULL);
    spawn(is_short, "B");
    step_to_the_end();
    expect("AABf");
    CHECK_EQ(preempted(), 0);
    cl_sched_delete(sched);
}

/* The quantum of a handler is over like that of any other, also when it went before those in the queue. */
static void sends_a_frame_and_probes(void *arg)
{
    cl_store_release(&arrived, 2);
    probes_five(arg);
}

static void long_handlers(void)
{
    stepped(ALWAYS_NS);
    long_frames = true;
    spawn(sends_a_frame_and_probes, "A");
    spawn(probes_five, "B");
    step_to_the_end();
    expect("AffBAggBABABAB");
    CHECK(preempted() >= 10);
    cl_sched_delete(sched);
}

/* What comes while it runs, from a foreign thread or by a timer, goes before the rest of it: it does not wait for
 * another quantum. The clock stands still but for what the test does. */
static uint64_t now_ns = 1000;

static void timer_spawns(struct cl_timer *timer, void *arg)
{
    (void)timer;
    CHECK_EQ(cl_uthread_spawn(is_short, arg, NULL), 0);
}

static void works_while_others_come(void *arg)
{
    static struct cl_timer timer;
    (void)arg;
    cl_timer_init(&timer, timer_spawns, "t");
    CHECK_EQ(cl_timer_arm(&timer, now_ns + 100), 0);
    note('A');
    probe(); /* nobody waits */
    note('A');
    spawn(is_short, "x"); /* by way of the foreign threads' queue, whoever calls */
    spawn(is_short, "y");
    now_ns += ALWAYS_NS;
    probe();
    note('A');
    now_ns += 100;
    probe();
    note('A');
    now_ns += 100;
    spawn(is_short, "x");
    cl_store_release(&arrived, 1);
    probe();
    note('A');
}

static void others_come(void)
{
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    c.quantum_ns = ALWAYS_NS;
    c.source = &network;
    struct cl_clock clock;
    cl_clock_virtual(&clock, &now_ns);
    c.clock = &clock;
    sched = sched_new(&c);
    spawn(works_while_others_come, NULL);
    step_to_the_end();
    expect("AAxyAtAfxA");
    CHECK_EQ(preempted(), 3);
    cl_sched_delete(sched);
}

/* Attached: a kthread of its own, whose preemption flag the test writes. */
static void start(uint64_t quantum_us)
{
    struct cl_port_config p = {.socket_path = fake.path,
                               .name = "fake",
                               .n_kthreads = 1,
                               .reattach_ms = 1,
                               .quantum_us = (uint32_t)quantum_us};
    struct cl_sched_config c;
    char err[256] = "";
    alarm(60); /* one that is not let run hangs: die and say so by the signal */
    fake_new(&fake, false);
    p.socket_path = fake.path;
    CHECK_EQ(cl_port_nic_new(&p, &nic, err), 0);
    cl_sched_config_init(&c);
    c.cores = nic->cores;
    c.quantum_ns = quantum_us ? ALWAYS_NS : 0;
    c.source = &network;
    sched = sched_new(&c);
    CHECK_EQ(cl_sched_start(sched, err), 0);
}

static void finish(void)
{
    CHECK_EQ(cl_sched_stop(sched, 20000000000), 0);
    cl_sched_delete(sched);
    cl_nic_close(nic);
    fake_down(&fake);
}

static void runs_long(void *arg)
{
    (void)arg;
    cl_store_release(&long_runs, 1);
    while (!cl_load_acquire(&long_over))
        probe();
    cl_store_release(&long_done, 1);
}

static void counts(void *arg)
{
    (void)arg;
    cl_store_release(&short_done, short_done + 1);
}

/* What an iokernel does: the bit stays until another uthread runs, and comes again a quantum later while any waits. */
static void until_short(uint32_t n)
{
    const uint32_t *switches = &fake_lines(&fake, 0)->signals.switches;
    while (cl_load_acquire(&short_done) < n) {
        uint32_t before = cl_load_relaxed(switches);
        fake_over(&fake, 0, 0);
        UNTIL(cl_load_relaxed(switches) != before || cl_load_acquire(&short_done) >= n);
        fake_no_quantum(&fake, 0);
    }
}

static void attached(void)
{
    start(1);
    spawn(runs_long, NULL);
    fake_give(&fake, 0, 0); /* once there is work: without any it would park */
    UNTIL(cl_load_acquire(&long_runs));
    spawn(counts, NULL);
    for (int i = 0; i < 200; i++)
        sched_yield();
    CHECK_EQ(cl_load_acquire(&short_done), 0); /* nobody told it */
    CHECK_EQ(preempted(), 0);
    until_short(1);
    CHECK(preempted() >= 1);
    for (uint32_t i = 0; i < 20; i++) {
        cl_store_release(&arrived, 1);
        until_short(2 + i);
    }
    CHECK_EQ(cl_load_relaxed(&long_done), 0);
    cl_store_release(&long_over, 1);
    finish();
}

/* The quantum is the iokernel's, which was configured with one: it tells, and is obeyed; and is not where it may not
 * be. */
static void runs_long_in_place(void *arg)
{
    cl_sched_no_switch_enter();
    runs_long(arg);
    cl_sched_no_switch_leave();
}

static void told(void)
{
    start(0);
    spawn(runs_long, NULL);
    fake_give(&fake, 0, 0); /* once there is work: without any it would park */
    UNTIL(cl_load_acquire(&long_runs));
    spawn(counts, NULL);
    until_short(1);
    CHECK_EQ(cl_load_relaxed(&long_done), 0);
    cl_store_release(&long_over, 1);
    UNTIL(cl_load_acquire(&long_done));
    uint64_t before = preempted();
    cl_store_release(&long_over, 0);
    cl_store_release(&long_runs, 0);
    spawn(runs_long_in_place, NULL);
    fake_give(&fake, 0, 0);
    UNTIL(cl_load_acquire(&long_runs));
    spawn(counts, NULL);
    fake_over(&fake, 0, 0);
    for (int i = 0; i < 200; i++)
        sched_yield();
    CHECK_EQ(cl_load_acquire(&short_done), 1);
    CHECK_EQ(preempted(), before);
    cl_store_release(&long_over, 1);
    finish();
    CHECK_EQ(short_done, 2);
}

/* The iokernel has gone, and nobody tells anything: probes look at the clock. */
static void away(void)
{
    start(1);
    spawn(runs_long, NULL);
    fake_give(&fake, 0, 0); /* once there is work: without any it would park */
    UNTIL(cl_load_acquire(&long_runs));
    fake_down(&fake);
    for (uint32_t i = 0; i < 20; i++) {
        if (i % 2)
            cl_store_release(&arrived, 1);
        else
            spawn(counts, NULL);
        UNTIL(cl_load_acquire(&short_done) == i + 1);
    }
    CHECK(preempted() >= 20);
    CHECK_EQ(cl_load_relaxed(&long_done), 0);
    fake_up(&fake);
    UNTIL(cl_load_acquire(&fake.managed));
    UNTIL(fake_is_ceded(&fake,
                        0)); /* one that runs may act on the grant before: an iokernel takes the core from it again */
    fake_give(&fake, 0, 0);  /* one that manages them again says when a quantum is over */
    UNTIL(fake_runs(&fake, 0));
    spawn(counts, NULL);
    until_short(21);
    cl_store_release(&long_over, 1);
    finish();
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 2);
    const char *name = argv[1];
    if (!strcmp(name, "order"))
        order();
    else if (!strcmp(name, "no_order_but_theirs"))
        no_order_but_theirs();
    else if (!strcmp(name, "frames"))
        frames();
    else if (!strcmp(name, "none"))
        none();
    else if (!strcmp(name, "long_handlers"))
        long_handlers();
    else if (!strcmp(name, "others_come"))
        others_come();
    else if (!strcmp(name, "attached"))
        attached();
    else if (!strcmp(name, "told"))
        told();
    else if (!strcmp(name, "away"))
        away();
    else
        CHECK(!"a scenario");
    return 0;
}
