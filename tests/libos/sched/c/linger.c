/* When a kthread without work lets the CPU go: what it learns of whether work comes soon, as numbers; and that its loop
 * does so, with sched_yield counted and a clock that stands, in one thread. */
#include "check.h"

#include <corelane/libos/complete.h>
#include "libos/sched/internal.h"
#include "libos/sched/runq.h"

#include <sched.h>

#define TICKS 1000
#define LONG (UINT64_MAX / 4)

static unsigned yields;
static uint64_t now_ns = 1000000;
static struct cl_kthread *kthread;

int sched_yield(void) /* in place of the C library's */
{
    yields++;
    return 0;
}

/* One idle period, of which work comes after `gap` ticks. Returns for how many of them it looked on. */
static uint64_t period(struct cl_linger *l, uint64_t *now, uint64_t gap)
{
    uint64_t began = *now, looked = 0;
    cl_linger_begin(l, *now, TICKS);
    for (uint64_t t = 0; t < gap; t += 100) {
        *now = began + t;
        if (!cl_linger_on(l, *now))
            break;
        looked = t;
    }
    *now = began + gap;
    cl_linger_over(l, *now);
    return looked;
}

/* Of `n` periods, how many looked on at all. */
static unsigned looks(struct cl_linger *l, unsigned n, uint64_t gap)
{
    static uint64_t now = 12345;
    unsigned looked = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t ticks = period(l, &now, gap);
        CHECK(ticks <= TICKS);
        looked += ticks != 0;
    }
    return looked;
}

static void learns(void)
{
    struct cl_linger l = {0};
    CHECK_EQ(looks(&l, CL_LINGER_TRY * 10, 50 * TICKS), 10); /* far: each 17th tries */
    CHECK_EQ(l.score, 0);
    CHECK(looks(&l, CL_LINGER_TRY * 2, TICKS / 2) >= 2); /* soon: two tries, and from then on each time */
    CHECK(l.score >= CL_LINGER_ENOUGH);
    CHECK_EQ(looks(&l, 100, TICKS / 2), 100);
    CHECK_EQ(l.score, CL_LINGER_MOST);
    CHECK(looks(&l, 100, 50 * TICKS) <= CL_LINGER_MOST - CL_LINGER_ENOUGH + 1 + 100 / CL_LINGER_TRY); /* far again */
    /* Work that comes soon each second time is worth it: what it wins outweighs what it loses. */
    l = (struct cl_linger){.score = CL_LINGER_ENOUGH};
    unsigned by_turns = 0;
    for (unsigned i = 0; i < 100; i++)
        by_turns += looks(&l, 1, TICKS / 2) + looks(&l, 1, 50 * TICKS);
    CHECK_EQ(by_turns, 200);
}

/* Work that comes while the kthread is off the CPU comes too late, though nobody had looked at the clock since. */
static void late_work_is_no_gain(void)
{
    struct cl_linger l = {.score = CL_LINGER_ENOUGH};
    cl_linger_begin(&l, 100, TICKS);
    CHECK(cl_linger_on(&l, 100 + TICKS / 2));
    cl_linger_over(&l, 100 + TICKS);
    CHECK(l.score == CL_LINGER_ENOUGH - 1 && !l.until);
    l.score = CL_LINGER_ENOUGH;
    cl_linger_begin(&l, 100, TICKS);
    cl_linger_over(&l, 99 + TICKS);
    CHECK(l.score == CL_LINGER_ENOUGH + 2 && !l.until);
}

static unsigned collect(void *arg, unsigned self, unsigned queue)
{
    (void)arg;
    (void)self;
    (void)queue;
    return 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void begins_a_write(void *arg)
{
    (void)arg;
    cl_sched_in_flight(1);
}

static void turn(void)
{
    cl_kthread_bind(kthread);
    cl_loop_stack_bounds(kthread);
    if (cl_turn(kthread))
        cl_idle_over(kthread);
    else
        cl_idle(kthread);
    cl_kthread_bind(NULL);
}

/* How often the CPU is let go in `turns` turns without work and one that has some. */
static unsigned yields_before_work(struct cl_sched *s, unsigned turns)
{
    yields = 0;
    for (unsigned i = 0; i < turns; i++)
        turn();
    CHECK_EQ(cl_sched_spawn(s, nothing, NULL), 0);
    unsigned idle = yields;
    while (cl_sched_live(s))
        turn();
    return idle;
}

static void loop(void)
{
    struct cl_sched_config c;
    struct cl_completions completions = {.poll = collect};
    cl_sched_config_init(&c);
    c.n_kthreads = 1;
    c.poll = CL_SCHED_ADAPTIVE;
    struct cl_clock clock;
    cl_clock_virtual(&clock, &now_ns);
    c.clock = &clock;
    struct cl_sched *s = sched_new(&c);
    kthread = &s->kthreads[0];

    /* Who never waits for a device keeps the CPU. */
    CHECK_EQ(yields_before_work(s, 10), 0);
    s->completions = &completions;
    s->linger_ticks = LONG; /* all that comes comes soon */
    unsigned before = yields_before_work(s, 10);
    CHECK_EQ(before, 10);
    for (unsigned i = 0; i < 3 * CL_LINGER_TRY; i++)
        yields_before_work(s, 10);
    CHECK_EQ(yields_before_work(s, 1000), 0);
    s->linger_ticks = 0; /* nothing does */
    for (unsigned i = 0; i < CL_LINGER_MOST; i++)
        yields_before_work(s, 10);
    CHECK_EQ(yields_before_work(s, 10), 10);

    /* A write that has just begun: no more of it than the scheduler would let go anyhow while it has nothing to do; and
     * between uthreads not before it has been under way for the time that it takes. */
    s->linger_ticks = LONG;
    s->let_go_ticks = LONG;
    kthread->let_go_tsc = cl_tsc() - 2 * LONG;
    CHECK_EQ(cl_sched_spawn(s, begins_a_write, NULL), 0);
    yields = 0;
    while (cl_sched_live(s))
        turn();
    CHECK_EQ(kthread->in_flight, 1);
    CHECK_EQ(cl_sched_spawn(s, nothing, NULL), 0);
    turn();
    CHECK_EQ(yields, 0);
    s->let_go_ticks = 0;
    CHECK_EQ(cl_sched_spawn(s, nothing, NULL), 0);
    turn();
    CHECK_EQ(yields, 1);
    /* While it flies and there is no work, it lets the CPU go each turn, whatever it has learnt. */
    s->let_go_ticks = LONG;
    kthread->linger.score = CL_LINGER_MOST;
    yields = 0;
    for (unsigned i = 0; i < 10; i++)
        turn();
    CHECK_EQ(yields, 10);
    cl_sched_landed(s, 0, 1);

    /* What comes while it parks says nothing of a short look. */
    kthread->linger.score = CL_LINGER_ENOUGH;
    CHECK_EQ(cl_sched_spawn(s, nothing, NULL), 0);
    while (cl_sched_live(s))
        turn();
    kthread->linger.score = CL_LINGER_ENOUGH;
    s->linger_ticks = LONG;
    turn();
    CHECK(kthread->linger.until != 0);
    CHECK_EQ(cl_sched_spawn(s, nothing, NULL), 0);
    cl_kthread_bind(kthread);
    cl_park_kthread(kthread); /* sees it at its last look */
    cl_kthread_bind(NULL);
    CHECK_EQ(kthread->linger.until, 0);
    while (cl_sched_live(s))
        turn();
    CHECK_EQ(kthread->linger.score, CL_LINGER_ENOUGH);
    s->completions = NULL;
    cl_sched_delete(s);
}

int main(void)
{
    learns();
    late_work_is_no_gain();
    loop();
    return 0;
}
