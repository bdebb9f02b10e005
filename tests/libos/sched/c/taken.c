/* Whose the core of a kthread was while it had none, as its trace is told: words that the test writes in place of an
 * iokernel. What the trace was told is looked at when the kthread has ended. Usage: taken SCENARIO. */
#include "fake_iokernel.h"
#include "libos/trace/trace.h"

#include <corelane/libos/probe.h>
#include <corelane/libos/uthread.h>
#include <corelane/runtime/clock.h>

#include <string.h>

#define CPU 1
#define OTHER 9 /* a slot + 1 */

static struct fake fake;
static struct cl_nic *nic;
static struct cl_sched *sched;
static struct cl_trace *trace;
static struct cl_tracer *t;
static uint64_t counter;
static uint32_t over;

static void start(void)
{
    struct cl_trace_config how = {.n_rings = 1, .mode = CL_TRACE_FULL};
    struct cl_sched_config c;
    char err[256] = "";
    alarm(60);
    fake_new(&fake, false);
    nic = fake_attach(&fake, 1, 0);
    CHECK(cl_trace_new(&how, cl_clock_default(), "taken", &trace, err) == 0, "%s", err);
    t = cl_trace_tracer(trace, 0);
    cl_tracer_window(t, cl_tsc()); /* as its first message would */
    cl_sched_config_init(&c);
    c.n_kthreads = 1;
    c.cores = nic->cores;
    c.trace = trace;
    sched = sched_new(&c);
    CHECK(cl_sched_start(sched, err) == 0, "%s", err);
    CHECK(cl_load_acquire(&fake.managed));
}

/* The core goes from `before`, who had it since then, to the kthread, which finds no work. */
static void hand(uint32_t before, uint64_t since, uint64_t decided)
{
    struct cl_state_core *core = fake_core(&fake, CPU);
    uint32_t grant = fake_slot(&fake, 0)->grant;
    cl_store_relaxed(&core->before, before);
    cl_store_relaxed(&core->before_tsc, since);
    cl_store_relaxed(&core->decided_tsc, decided);
    fake_give(&fake, 0, CPU);
    UNTIL(cl_load_acquire(&fake_lines(&fake, 0)->signals.acted) == grant + 1 && fake_is_parked(&fake, 0));
}

static void end(void)
{
    cl_store_release(&over, 1);
    CHECK_EQ(cl_sched_stop(sched, 20000000000), 0);
}

/* It lay parked: by the iokernel's words. */
static void parked(void)
{
    UNTIL(fake_is_parked(&fake, 0));
    uint64_t now = cl_tsc();
    hand(OTHER, now, now + 1);
    end();
    CHECK(t->taken.parked && t->taken.by == OTHER && t->taken.cpu == CPU + 1);
    CHECK(t->taken.begin >= now && t->taken.end > t->taken.begin);
}

/* It lay parked, and others had the core before the one did that it comes from: since it was lost. */
static void several(void)
{
    UNTIL(fake_is_parked(&fake, 0));
    uint64_t now =
        cl_tsc() + (uint64_t)cl_ns_to_ticks(cl_clock_default(), 50000000); /* it says so before it lies down */
    UNTIL(cl_tsc() > now + 1001);
    cl_store_relaxed(&fake_slot(&fake, 0)->lost_tsc, now);
    hand(OTHER, now + 1000, now + 1001);
    end();
    CHECK(t->taken.parked && t->taken.by == OTHER && t->taken.begin == now && t->taken.end > now);
}

/* Nobody wanted the core; and then it was its own all the time, and is woken for something else. */
static void own(void)
{
    UNTIL(fake_is_parked(&fake, 0));
    uint64_t now = cl_tsc();
    hand(0, now, now + 1);
    hand(OTHER, now, now + 1);
    end();
    CHECK_EQ(t->taken.end, 0);
}

static void probes(void *arg)
{
    (void)arg;
    while (!cl_load_acquire(&over)) {
        cl_count(&counter, 1);
        CL_PROBE();
    }
}

/* Whether a uthread says that it has waited for the core, which was taken at `taken`: it could have run. */
static bool waited_for_core(uint64_t taken)
{
    struct cl_trace_wait got[64];
    const uint8_t *segment = (const uint8_t *)t->ring - cl_trace_ring_offset(t->records, 0);
    uint64_t next = 0, lost = 0, garbage = 0;
    uint32_t n = cl_trace_read(segment, (uint64_t)cl_trace_bytes(1, t->records), 0, &next, got, 64, &lost, &garbage);
    CHECK(lost == 0 && garbage == 0);
    for (uint32_t i = 0; i < n; i++)
        if (got[i].kind == CL_TRACE_WAIT && got[i].what == CL_TRACE_WAITS_CORE)
            return got[i].begin > taken && got[i].blocked == 0 && got[i].ready > 0 && got[i].uthread != 0;
    return false;
}

/* It had work: whoever owns the core then. */
static void ceded(void)
{
    CHECK_EQ(cl_sched_spawn(sched, probes, NULL), 0);
    fake_give(&fake, 0, CPU);
    UNTIL(cl_load_relaxed(&counter) > 0); /* it has noted since when it is up */
    uint64_t now = cl_tsc();
    cl_store_relaxed(&fake_slot(&fake, 0)->lost_tsc, now);
    cl_store_release(&fake_core(&fake, CPU)->owner, OTHER);
    __atomic_fetch_or(fake_preempt(&fake), 1ull, __ATOMIC_RELEASE);
    UNTIL(fake_is_ceded(&fake, 0));
    fake_give(&fake, 0, CPU);
    UNTIL(fake_runs(&fake, 0));
    end();
    CHECK(t->away_n >= 1 && t->away_by == OTHER && t->away_cpu == CPU + 1);
    CHECK(t->away_begin == now && t->away_end > now); /* since it was lost, whenever that was seen */
    CHECK(waited_for_core(now));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    start();
    if (strcmp(argv[1], "parked") == 0)
        parked();
    else if (strcmp(argv[1], "several") == 0)
        several();
    else if (strcmp(argv[1], "own") == 0)
        own();
    else
        ceded();
    cl_sched_delete(sched);
    cl_trace_delete(trace);
    cl_nic_close(nic);
    fake_down(&fake);
    puts("ok");
    return 0;
}
