/* Old owners that have no time to cede (iokernel/cores/starved.c), or are in a call of the kernel: pair.h. Those named
 * "starved" need the right to SCHED_FIFO.
 *
 *   cores_starved [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "pair.h"

#define CEDE_US 10u /* the first of them begins with the round after the one that decides, and so do the others */
#define INTERRUPT_US 50u
#define START (5 * MS)

static const struct setting times = {.cede_us = CEDE_US, .interrupt_us = INTERRUPT_US, .start_us = START / US};

static void decided_with(struct pair *p, struct setting s, struct wish batch)
{
    pair_new(p, s, batch);
    ready(p->l, 1);
    while (!owns(&p->w, p->l))
        run(&p->w, 1 * US);
}

static void decided(struct pair *p, struct wish batch)
{
    decided_with(p, times, batch);
}

static uint64_t interrupted(const struct world *w)
{
    return stats_of(w).interrupted;
}

static uint64_t evicted(const struct world *w)
{
    return stats_of(w).evicted;
}

/* Rounds of a microsecond until the counter is 1. */
static unsigned rounds_until(struct pair *p, uint64_t (*counter)(const struct world *))
{
    unsigned n = 0;
    for (; n < 2 * START / US && counter(&p->w) == 0; n++)
        run(&p->w, 1 * US);
    return n;
}

/* Keep k's thread from the CPU while it wants it: both on one, this one before all others. */
static void keep_from_cpu(struct kthread *k)
{
    int cpu = sched_getcpu();
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}) == 0);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0 && sched_setaffinity(k->tid, sizeof set, &set) == 0);
}

/* A pair whose old owner is kept from the CPU from the decision on, until `freed`. */
struct starving {
    struct pair p;
    cpu_set_t before;
};

static cpu_set_t allowed(void)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return set;
}

static void starve(struct starving *s)
{
    keep_from_cpu(s->p.b);
    spin(s->p.b);
}

static void starving_new(struct starving *s)
{
    s->before = allowed();
    decided(&s->p, (struct wish){0});
    starve(s);
}

/* The new one runs beside it, by their words: it was not evicted. */
static void spared(struct pair *p)
{
    run(&p->w, 2 * (CEDE_US + INTERRUPT_US) * US);
    CHECK(stats_of(&p->w).starved == 1 && acts(&p->w, p->l));
}

static void freed(struct starving *s)
{
    CHECK(sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0}) == 0);
    CHECK(sched_setaffinity(0, sizeof s->before, &s->before) == 0);
    end_spin(s->p.b);
}

static void starving_delete(struct starving *s)
{
    freed(s);
    world_delete(&s->p.w);
}

/* It is in line for the CPU, which somebody else has. */
static void starved_it_is_not_evicted(void)
{
    struct starving s;
    struct pair *p = &s.p;
    starving_new(&s);
    run(&p->w, 40 * (CEDE_US + INTERRUPT_US) * US);
    CHECK(stats_of(&p->w).interrupted == 1 && evicted(&p->w) == 0);
    CHECK(stats_of(&p->w).starved == 1 && cores_of(&p->w, p->bat).starved == 1 && cores_of(&p->w, p->lat).starved == 0);
    CHECK(!acts(&p->w, p->b) && acts(&p->w, p->l)); /* it got its turn */
    run(&p->w, 2 * US);
    CHECK(moves_by(&p->w, CL_IO_STEP_INTERRUPT) == 1);
    freed(&s);
    CHECK(sched_getscheduler(p->b->tid) == SCHED_OTHER);
    world_delete(&p->w);
}

static void starved_it_is_spared_no_longer_than_start_us(void)
{
    struct starving s;
    struct pair *p = &s.p;
    starving_new(&s);
    spared(p);
    unsigned n = rounds_until(p, evicted);
    CHECK(n > START / US - 3 * (CEDE_US + INTERRUPT_US) && n < START / US);
    CHECK(stats_of(&p->w).starved == 1 && stats_of(&p->w).evicted_late == 1 && owns(&p->w, p->l));
    CHECK(sched_getscheduler(p->b->tid) == SCHED_IDLE);
    starving_delete(&s);
}

/* All steps have been taken: whoever has a better right to the core than the new owner does not wait for the old
 * one. */
static void starved_it_keeps_nobody_from_its_core(void)
{
    struct starving s = {.before = allowed()};
    struct pair *p = &s.p;
    decided(p, (struct wish){0});
    struct app *sure = app_add(&p->w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    starve(&s);
    ready(&sure->k[0], 1);
    run(&p->w, INTERRUPT_US * US);
    CHECK(owns(&p->w, p->l));
    run(&p->w, 2 * (CEDE_US + INTERRUPT_US) * US);
    CHECK(owns(&p->w, &sure->k[0]) && acts(&p->w, &sure->k[0]) && stats_of(&p->w).starved == 1);
    CHECK(evicted(&p->w) == 1);
    starving_delete(&s);
}

/* Nor longer than the new owner is there: the log has its eviction before the core is nobody's. */
static void starved_it_is_evicted_when_the_new_owner_goes(void)
{
    struct starving s;
    struct pair *p = &s.p;
    starving_new(&s);
    spared(p);
    run(&p->w, 2 * US);
    CHECK(evicted(&p->w) == 0);
    app_remove(&p->w, p->lat);
    CHECK(evicted(&p->w) == 1 && p->w.cores[0].owner == 0);
    struct cl_io_move log[64];
    uint32_t n = cl_io_moves(p->w.io, 0, &p->w.log_next, log, 64, &p->w.log_lost);
    CHECK(n >= 2 && log[n - 2].what == CL_IO_LOG_EVICTED && log[n - 1].what == CL_IO_LOG_LEFT);
    starving_delete(&s);
}

/* k's thread spins, and has had the CPU for a moment. */
static void spin_on_the_cpu(struct kthread *k)
{
    clockid_t clock;
    struct timespec begin, t;
    CHECK(pthread_getcpuclockid(k->thread, &clock) == 0 && clock_gettime(clock, &begin) == 0);
    spin(k);
    do
        clock_gettime(clock, &t);
    while ((t.tv_sec - begin.tv_sec) * 1000000000 + t.tv_nsec - begin.tv_nsec < 100000);
}

/* Its step takes a second; it spun, and was interrupted. */
static void slow_step(struct pair *p, uint32_t start_us)
{
    struct setting slow = {.cede_us = CEDE_US, .interrupt_us = 1000000, .start_us = start_us};
    decided_with(p, slow, (struct wish){.blocks = true});
    spin_on_the_cpu(p->b);
    run(&p->w, 2 * CEDE_US * US);
    CHECK(interrupted(&p->w) == 1);
}

/* It ran in the middle of the step, and lost the CPU to another soon after that: what was seen then does not hold any
 * more. Of the second that the step takes here it has had some milliseconds. */
static void starved_since_the_first_look_it_is_spared(void)
{
    struct starving s = {.before = allowed()};
    struct pair *p = &s.p;
    slow_step(p, 0);
    p->w.now += 500 * MS;
    run(&p->w, 2 * US);
    keep_from_cpu(p->b);
    p->w.now += 500 * MS;
    run(&p->w, 2 * US);
    CHECK(evicted(&p->w) == 0 && stats_of(&p->w).starved == 1);
    starving_delete(&s);
}

/* The last entry of the log of such a kind; all that were not read before are. */
static struct cl_io_move last_logged(struct pair *p, unsigned what)
{
    struct cl_io_move log[64], last = {0};
    for (uint32_t n; (n = cl_io_moves(p->w.io, 0, &p->w.log_next, log, 64, &p->w.log_lost)) > 0;)
        for (uint32_t i = 0; i < n; i++)
            if (log[i].what == what)
                last = log[i];
    CHECK(last.what == what);
    return last;
}

/* The new owner runs, and the old one has not let go: the log says so, and then when it has. */
static void starved_the_log_has_it_that_it_is_still_there(void)
{
    struct starving s;
    struct pair *p = &s.p;
    starving_new(&s);
    spared(p);
    run(&p->w, 2 * US);
    CHECK(last_logged(p, CL_IO_LOG_DONE).leaving == 1);
    CHECK(!acts(&p->w, p->b));
    run(&p->w, 2 * US);
    CHECK(last_logged(p, CL_IO_LOG_CEDED).leaving == 0 && evicted(&p->w) == 0);
    starving_delete(&s);
}

static void one_that_lets_go_at_once_is_not_logged_as_there(void)
{
    struct pair p;
    decided(&p, (struct wish){0});
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(last_logged(&p, CL_IO_LOG_DONE).leaving == 0);
    world_delete(&p.w);
}

/* It goes in the middle of its time, of which nothing is left for who has to leave the core next: that one is asked. */
static void starved_it_goes_and_the_next_one_has_all_its_steps(void)
{
    struct starving s;
    struct pair *p = &s.p;
    starving_new(&s);
    spared(p);
    run(&p->w, 2 * US);
    freed(&s);
    app_remove(&p->w, p->bat);
    p->bat = app_add(&p->w, (struct wish){.kind = BATCH});
    p->b = &p->bat->k[0];
    drain(p->l);
    park(p->l);
    run(&p->w, 2 * START); /* beyond the time for which the first was to be spared at most */
    ready(p->b, 1);
    while (!owns(&p->w, p->b))
        run(&p->w, 1 * US);
    p->l->line->park = CL_KTHREAD_RUNNING; /* it gets up by itself, and has not seen that its core has gone */
    run(&p->w, 5 * US);
    CHECK(evicted(&p->w) == 0 && stats_of(&p->w).asked == 2 && *p->lat->preempt == 1);
    CHECK(!acts(&p->w, p->l) && acts(&p->w, p->b));
    run(&p->w, 2 * US);
    CHECK(moves_by(&p->w, CL_IO_STEP_REQUEST) == 1 && evicted(&p->w) == 0);
    world_delete(&p->w);
}

/* It uses the CPU all the time, as far as it gets it, and is not spared when it has had it for so long. */
static void one_that_runs_on_is_evicted(void)
{
    struct pair p;
    decided(&p, (struct wish){.blocks = true});
    spin(p.b);
    unsigned n = rounds_until(&p, evicted);
    CHECK(n >= CEDE_US + INTERRUPT_US && n < START / US + 2 * (CEDE_US + INTERRUPT_US));
    CHECK(stats_of(&p.w).starved <= 1 && sched_getscheduler(p.b->tid) == SCHED_IDLE);
    end_spin(p.b);
    world_delete(&p.w);
}

/* One that sleeps has nothing to wait for, whatever it says. */
static void one_that_sleeps_is_evicted_at_once(void)
{
    struct pair p;
    decided(&p, (struct wish){.blocks = true});
    p.b->line->signals.in_call = 1;
    CHECK(rounds_until(&p, evicted) <= 1 + CEDE_US + INTERRUPT_US + CEDE_US + 1 + INTERRUPT_US);
    CHECK(stats_of(&p.w).starved == 0);
    world_delete(&p.w);
}

/* One in a call of the kernel has twice the time, though it uses the CPU; up to start_us, as ever. */
static void in_a_call_it_has_a_step_more(void)
{
    struct pair p;
    slow_step(&p, 4000000);
    p.b->line->signals.in_call = 1;
    for (unsigned i = 0; i < 2; i++) {
        p.w.now += 500 * MS;
        run(&p.w, 2 * US);
    }
    CHECK(evicted(&p.w) == 0 && stats_of(&p.w).starved == 1);
    p.w.now += 3100 * MS;
    run(&p.w, 2 * US);
    CHECK(evicted(&p.w) == 1);
    end_spin(p.b);
    world_delete(&p.w);
}

/* In a call that no signal ends it could not cede, and has no CPU time: state D. */
static void one_in_a_call_that_nothing_ends_is_spared(void)
{
    static struct in_call call;
    struct world w;
    world_new(&w, times);
    struct app *l = app_add(&w, (struct wish){.kind = LATENCY});
    struct app *b = app_add(&w, (struct wish){.kind = BATCH, .mute = true});
    int32_t own = b->k[0].tid;
    begin_call(&call, &b->k[0]);
    tell_threads(&w, b);
    start(&w, &b->k[0]);
    ready(&l->k[0], 1);
    run(&w, 10 * (CEDE_US + INTERRUPT_US) * US);
    CHECK(stats_of(&w).interrupted == 1 && stats_of(&w).starved == 1 && stats_of(&w).evicted == 0);
    const struct io_core *core = &w.io->loops[0].cores.core[0];
    uint64_t entitled = core->from->member.overrun.entitled;
    run(&w, 10 * (CEDE_US + INTERRUPT_US) * US);
    CHECK(core->starved.on && core->from->member.overrun.entitled == entitled); /* a liar earns nothing by it */
    CHECK(!acts(&w, &b->k[0]) && acts(&w, &l->k[0]));
    run(&w, 2 * US);
    CHECK(moves_by(&w, CL_IO_STEP_INTERRUPT) == 1);
    end_call(&call);
    b->k[0].tid = own;
    world_delete(&w);
}

/* In a call of the kernel no signal reaches it: it is waited for as long as the next step takes, and not longer. */
static void in_a_call_it_is_asked_for_longer(void)
{
    struct pair p;
    decided(&p, (struct wish){0});
    p.b->line->signals.in_call = 1;
    run(&p.w, INTERRUPT_US * US);
    CHECK(interrupted(&p.w) == 0);
    p.b->line->signals.in_call = 0;
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_REQUEST) == 1 && interrupted(&p.w) == 0 && seen_signals() == 0);
    world_delete(&p.w);
}

static void one_that_says_so_all_the_time_gains_a_step(void)
{
    struct pair p;
    decided(&p, (struct wish){.blocks = true});
    p.b->line->signals.in_call = 1;
    unsigned n = rounds_until(&p, interrupted);
    CHECK(n >= 1 + INTERRUPT_US && n <= 1 + INTERRUPT_US + CEDE_US);
    world_delete(&p.w);
}

/* An application whose system calls are used up is not interrupted, and gains nothing by it: the next step comes. */
static void without_calls_left_the_signal_is_left_out(void)
{
    struct pair p;
    decided(&p, (struct wish){0});
    for (uint32_t i = 0; i < p.w.io->loops[0].cores.n_apps; i++)
        if (p.w.io->loops[0].cores.apps[i]->id == p.bat->id)
            p.w.io->loops[0].cores.apps[i]->wakes.tokens = INT64_MIN / 2;
    run(&p.w, (CEDE_US + 5) * US);
    CHECK(stats_of(&p.w).interrupts_limited == 1 && interrupted(&p.w) == 0 && !p.b->interrupted);
    CHECK(evicted(&p.w) == 0 && rounds_until(&p, evicted) <= INTERRUPT_US);
    CHECK(stats_of(&p.w).interrupts_limited == 1 && interrupted(&p.w) == 0 && !p.b->interrupted);
    CHECK(acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_EVICT) == 1 && moves_by(&p.w, CL_IO_STEP_INTERRUPT) == 0);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(starved_it_is_not_evicted), SCENARIO(starved_it_is_spared_no_longer_than_start_us),
               SCENARIO(starved_it_keeps_nobody_from_its_core), SCENARIO(starved_it_is_evicted_when_the_new_owner_goes),
               SCENARIO(starved_since_the_first_look_it_is_spared),
               SCENARIO(starved_the_log_has_it_that_it_is_still_there),
               SCENARIO(one_that_lets_go_at_once_is_not_logged_as_there),
               SCENARIO(starved_it_goes_and_the_next_one_has_all_its_steps), SCENARIO(one_that_runs_on_is_evicted),
               SCENARIO(one_that_sleeps_is_evicted_at_once), SCENARIO(in_a_call_it_is_asked_for_longer),
               SCENARIO(one_that_says_so_all_the_time_gains_a_step),
               SCENARIO(one_in_a_call_that_nothing_ends_is_spared), SCENARIO(in_a_call_it_has_a_step_more),
               SCENARIO(without_calls_left_the_signal_is_left_out))
