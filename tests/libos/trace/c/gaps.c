/* Gaps of the machine, on a clock and with counters of the kernel that the test moves: what is told of them, and what
 * is not. */
#include "libos/trace/trace.h"

#include "tests/support/c/check.h"

#include <linux/perf_event.h>
#include <string.h>

#define US 1000ull

static uint64_t now = 1000000000;
static struct cl_tracer_counts counted;
static uint64_t in_line_ns; /* that the kernel says */
static unsigned asked_for_line;
static struct perf_event_mmap_page page;
static unsigned asked;
static struct cl_trace *trace;
static struct cl_tracer *t;

static int counts(struct cl_tracer_counts *out)
{
    *out = counted;
    asked++;
    return 0;
}

static int waited(int fd, uint64_t *ns)
{
    (void)fd;
    *ns = in_line_ns;
    asked_for_line++;
    return 0;
}

/* So much time passes, in which the thread has the CPU. */
static void run(uint64_t ns)
{
    now += ns;
    counted.cpu_ns += ns;
}

/* And in which it has not. */
static void stop(uint64_t ns)
{
    now += ns;
    counted.switches++;
    page.lock += 2;
}

/* It sleeps, of itself. */
static void sleep_for(uint64_t ns)
{
    now += ns;
    counted.sleeps++;
    page.lock += 2;
}

static void poll(void)
{
    cl_tracer_poll(t, now, now);
}

/* A message that took so long is over. */
static uint64_t message(uint64_t ns)
{
    struct cl_trace_open o = {.id = cl_tracer_id(t), .drawn = true};
    struct cl_trace_end e = {.begin = now - ns, .pickup = now - ns, .start = now - ns, .end = now, .shared = 1};
    uint64_t id = o.id;
    cl_tracer_message(t, &o, &e);
    cl_tracer_sent(t, now);
    return id;
}

static struct cl_trace_message last;   /* that was read */
static struct cl_trace_core core_told; /* the same; end 0: none */

/* What has been told since the last time: gaps; messages are looked at by others. */
static unsigned gaps(struct cl_trace_gap *out, unsigned room)
{
    static uint64_t next;
    uint64_t lost = 0, garbage = 0;
    struct cl_trace_gap all[64];
    const uint8_t *segment = (const uint8_t *)t->ring - cl_trace_ring_offset(t->records, 0);
    uint32_t n = cl_trace_read(segment, (uint64_t)cl_trace_bytes(1, t->records), 0, &next, all, 64, &lost, &garbage);
    unsigned found = 0;
    CHECK(lost == 0 && garbage == 0);
    for (uint32_t i = 0; i < n; i++)
        if (all[i].kind == CL_TRACE_GAP) {
            CHECK(found < room);
            out[found++] = all[i];
        } else if (all[i].kind == CL_TRACE_MESSAGE) {
            memcpy(&last, &all[i], sizeof last);
        } else if (all[i].kind == CL_TRACE_CORE) {
            memcpy(&core_told, &all[i], sizeof core_told);
        }
    return found;
}

static void none(void)
{
    struct cl_trace_gap got[1];
    CHECK_EQ(gaps(got, 1), 0);
}

/* One of a row whose handler takes so long, `taken` of which others have its CPU. It has come a while ago. */
static void one_of_row(uint64_t ns, uint64_t taken)
{
    uint64_t from = now;
    run(ns - taken);
    if (taken)
        stop(taken);
    counted.faults += 2;
    cl_tracer_follow(t, cl_trace_plain(50 * US, 50 * US, 0, 0, 0, 0), from, now);
}

/* A millisecond without anything, so that the counters are looked at anew. */
static void settle(void)
{
    run(1100 * US);
    poll();
    none();
}

static void by_counters(void)
{
    struct cl_trace_gap g;
    settle();
    uint64_t from = now;
    run(100 * US);
    stop(40 * US);
    counted.faults += 3;
    counted.sleeps += 2;
    run(60 * US);
    uint64_t id = message(50 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.how == CL_TRACE_GAP_COUNTERS && g.id == id && g.begin == from && g.end == now && g.gone == 40 * US);
    CHECK(g.faults == 3 && g.switches == 1 && g.sleeps == 2);
    run(50 * US);
    (void)message(50 * US); /* the same again took its time by itself */
    none();
    run(100 * US);
    stop(8 * US); /* too short to be told */
    (void)message(50 * US);
    none();
    stop(700 * US); /* found when the millisecond is over, though nothing was slow */
    run(300 * US);
    poll();
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.id == 0 && g.gone == 708 * US - 8 * US);
}

/* What it let go of itself, and what an iokernel took, is no gap. */
static void rests(void)
{
    struct cl_trace_gap g;
    settle();
    uint64_t from = now;
    sleep_for(300 * US);
    cl_tracer_rested(t, from);
    cl_tracer_idle(t);
    from = now;
    now += 200 * US;
    cl_tracer_away(t, &(struct cl_trace_taken){.begin = from, .end = now});
    poll();
    (void)message(50 * US);
    none();
    from = now;
    run(2 * US); /* a system call that came back at once: its time on the CPU is not taken off twice */
    cl_tracer_rested(t, from);
    stop(30 * US);
    (void)message(50 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK_EQ(g.gone, 30 * US);
    sleep_for(5000 * US); /* somebody else's work, on this thread */
    cl_tracer_forget(t);
    (void)message(50 * US);
    none();
}

static void by_stamps(void)
{
    struct cl_trace_gap g[2];
    settle();
    cl_tracer_idle(t);
    uint64_t from = now;
    run(30 * US); /* the host took it, and the kernel does not know */
    cl_tracer_idle(t);
    stop(50 * US);
    poll();
    CHECK_EQ(gaps(g, 2), 2);
    CHECK(g[0].how == CL_TRACE_GAP_STAMPS && g[0].begin == from && g[0].gone == 30 * US && g[0].switches == 0);
    CHECK(g[1].how == CL_TRACE_GAP_STAMPS && g[1].end == now && g[1].gone == 50 * US && g[1].switches == 1);
    (void)message(60 * US); /* and not again by the counters */
    none();
    cl_tracer_idle(t);
    run(9 * US);
    cl_tracer_idle(t);
    run(9 * US);
    poll(); /* neither is long */
    run(100 * US);
    poll(); /* something has run since */
    cl_tracer_idle(t);
    from = now;
    sleep_for(100 * US);
    cl_tracer_rested(t, from);
    poll();
    none();
}

/* While it is not switched away from the kernel is not asked, but now and then; and drift of its clock is no gap. */
static void seldom(void)
{
    struct cl_trace_gap g;
    settle();
    settle();
    unsigned before = asked;
    for (unsigned i = 0; i < 200; i++)
        settle();
    CHECK_EQ(asked, before);
    counted.cpu_ns -= 1 * US; /* 4 ppm */
    for (unsigned i = 0; i < 100; i++)
        settle();
    CHECK_EQ(asked, before + 1);
    uint64_t from = now;
    stop(50 * US);
    run(1100 * US);
    poll();
    CHECK_EQ(asked, before + 2);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.begin == from && g.gone > 45 * US && g.gone <= 50 * US);
}

/* Where the kernel does not say that, only what was looked at a moment ago is told: not counting what the slow one
 * took, nor what it slept. */
static void without_page(void)
{
    struct cl_trace_gap g;
    t->page = NULL;
    settle();
    unsigned before = asked;
    stop(500 * US);
    run(10000 * US);
    poll();
    CHECK_EQ(asked, before);
    (void)message(50 * US);
    none();
    stop(30 * US);
    (void)message(50 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK_EQ(g.gone, 30 * US);
    run(100 * US);
    stop(4000 * US);
    uint64_t id = message(4100 * US), from = now;
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.gone == 4000 * US && g.id == id);
    sleep_for(50000 * US);
    cl_tracer_rested(t, from);
    stop(300 * US);
    (void)message(400 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK_EQ(g.gone, 300 * US);
    t->page = &page;
    cl_tracer_forget(t);
}

/* For how much of a gap it stood in line, which is asked only where it was switched away from. */
static void in_line(void)
{
    struct cl_trace_gap g;
    t->waited = waited;
    t->waited_fd = 0;
    settle();
    stop(40 * US);
    in_line_ns += 30 * US;
    (void)message(50 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.gone == 40 * US && g.waited == 30 * US && g.cpu);
    unsigned before = asked_for_line;
    run(100 * US);
    (void)message(50 * US);
    none();
    CHECK_EQ(asked_for_line, before);
    stop(40 * US);
    in_line_ns += 90 * US; /* no more than there is */
    (void)message(50 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.gone == 40 * US && g.waited == 40 * US);
    sleep_for(40 * US);
    (void)message(50 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.gone == 40 * US && g.waited == 0 && g.sleeps == 1);
    t->waited_fd = -1;
}

/* The interpreter of its thread says when it collects garbage. */
static void collects(void)
{
    struct cl_trace_gap g;
    settle();
    uint64_t from = now;
    cl_tracer_collects(t, true, 2);
    run(3000 * US);
    cl_tracer_collects(t, false, 2);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.how == CL_TRACE_GAP_COLLECTS && g.n == 3 && g.begin == from && g.end == now && g.gone == 3000 * US);
    poll();
    none();
    cl_tracer_idle(t);
    cl_tracer_collects(t, true, 0);
    run(9 * US); /* too short */
    cl_tracer_collects(t, false, 0);
    cl_tracer_collects(t, false, 0); /* it had not begun */
    none();
    from = now;
    cl_tracer_collects(t, true, 1); /* in an event loop, between two looks */
    run(50 * US);
    cl_tracer_collects(t, false, 1);
    cl_tracer_idle(t);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK(g.how == CL_TRACE_GAP_COLLECTS && g.n == 2 && g.begin == from);
    poll();
    none();
}

static void is_off(void)
{
    settle();
    CHECK_EQ(cl_trace_set_mode(trace, CL_TRACE_OFF), 0);
    run(1100 * US);
    poll();
    cl_tracer_idle(t);
    stop(100 * US);
    cl_tracer_idle(t);
    stop(2000 * US);
    poll();
    cl_tracer_collects(t, true, 2);
    run(3000 * US);
    cl_tracer_collects(t, false, 2);
    none();
}

/* Where several are written down together it is known in whose handler the thread stood still. */
static void in_row(void)
{
    struct cl_trace_gap g;
    settle();
    t->looks = 0;
    (void)message(50 * US); /* nothing is to be seen: it was not switched away from */
    for (unsigned n = 0; n < 8; n++) {
        for (unsigned i = 0; i < n; i++)
            one_of_row(2 * US, 0);
        uint64_t from = now, id = t->ids + n + 1;
        one_of_row(33 * US, 30 * US);
        one_of_row(2 * US, 0);
        cl_tracer_sent(t, 0);
        CHECK_EQ(gaps(&g, 1), 1);
        CHECK(g.id == id && g.gone == 30 * US && g.end == from + 33 * US, "%u before it", n);
    }
    t->looks = 1;
    for (unsigned i = 0; i < 4; i++)
        one_of_row(2 * US, 0);
    cl_tracer_sent(t, 0);
    none();
    CHECK(last.id == t->ids && last.faults == 10, "%u", last.faults); /* of it and those before it */
}

/* The kernel's word is given up where it costs too much, and is had again a second later. */
static void too_often(void)
{
    struct cl_trace_gap g;
    settle();
    for (unsigned i = 0; i < 20; i++) {
        run(50 * US);
        stop(0);
    }
    settle();
    cl_tracer_rested(t, now);
    CHECK(!t->page && t->page_again);
    run(1100 * US);
    poll();
    CHECK_EQ(t->looks, 1); /* one each millisecond, and what it finds of just now is told */
    (void)message(50 * US);
    stop(30 * US);
    run(1100 * US);
    poll();
    (void)message(50 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK_EQ(g.gone, 30 * US);
    stop(30 * US);
    (void)message(50 * US); /* there was one look */
    none();
    run(1000000 * US);
    cl_tracer_rested(t, now);
    CHECK(!t->page_again);
    t->page = &page;
    t->checked.word = page.lock;
    t->checked.at = now;
    for (unsigned i = 0; i < 20; i++) { /* not so often: in more time */
        run(200 * US);
        stop(0);
    }
    settle();
    cl_tracer_rested(t, now);
    CHECK(t->page == &page);
}

static struct cl_core_owners owners; /* by the iokernel's word */

static bool owners_of(struct cl_cores *c, unsigned k, struct cl_core_owners *out)
{
    (void)c, (void)k;
    *out = owners;
    return true;
}

/* Its core was another's while it had no CPU, and was its own again before it ran: it has seen nothing of that. */
static void unseen(void)
{
    struct cl_cores_ops ops = {.owners = owners_of};
    struct cl_cores cores = {.ops = &ops};
    struct cl_trace_gap g;
    t->cores = &cores;
    settle();
    core_told.end = 0;
    cl_tracer_rested(t, now);
    owners = (struct cl_core_owners){.cpu = 3, .owner = 1, .before = 9, .mine = true};
    owners.lost_tsc = now - 1;
    owners.before_tsc = owners.decided_tsc = now;
    (void)message(50 * US); /* it rested when that was lost */
    none();
    CHECK_EQ(core_told.end, 0);
    run(100 * US);
    owners.lost_tsc = owners.before_tsc = now;
    stop(4000 * US);
    owners.decided_tsc = now;
    stop(20 * US); /* it is its own, and the other one not yet gone */
    (void)message(4020 * US);
    CHECK_EQ(gaps(&g, 1), 1);
    CHECK_EQ(g.gone, 20 * US);
    CHECK(core_told.begin == owners.lost_tsc && core_told.end == owners.decided_tsc);
    CHECK(core_told.by == 9 && core_told.cpu == 4 && !core_told.parked);
    core_told.end = 0;
    (void)message(50 * US); /* and it is told once */
    none();
    CHECK_EQ(core_told.end, 0);
    t->cores = NULL;
}

int main(void)
{
    struct cl_clock clock;
    char err[256] = "";
    struct cl_trace_config config = {.n_rings = 1, .mode = CL_TRACE_FULL};
    cl_clock_virtual(&clock, &now);
    CHECK(cl_trace_new(&config, &clock, "gaps", &trace, err) == 0, "%s", err);
    t = cl_trace_tracer(trace, 0);
    CHECK(!t->counts && t->stopped_ticks == CL_TRACER_NEVER, "a virtual clock jumps, and runs of a seed are alike");
    t->counts = counts;
    t->page = &page;
    t->stopped_ticks = t->gap_ticks;
    by_counters();
    in_row();
    rests();
    by_stamps();
    seldom();
    without_page();
    unseen();
    in_line();
    collects();
    too_often();
    is_off();
    t->page = NULL;
    cl_trace_delete(trace);
    puts("ok");
    return 0;
}
