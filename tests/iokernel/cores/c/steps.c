/* Every transition of a core's move, one scenario each: pair.h. Prints the names of those that passed.
 *
 *   cores_steps [NAME] */
#include "pair.h"

static void nothing_without_threads(void)
{
    struct world w;
    world_new(&w, (struct setting){0});
    struct app *a = app_add(&w, (struct wish){.mute = true});
    ready(&a->k[0], 1);
    run(&w, 100 * US);
    CHECK(w.cores[0].owner == 0);
    tell_threads(&w, a);
    run(&w, 10 * US);
    CHECK(owns(&w, &a->k[0]) && a->k[0].state->cpu == 0 && a->k[0].state->grant == 1);
    int32_t tid = a->k[0].tid;
    CHECK(cl_io_app_threads(w.io, a->id, getpid(), &tid, 1, SIGNAL, err) < 0);
    CHECK(acts(&w, &a->k[0]));
    run(&w, 10 * US);
    CHECK(moves_by(&w, CL_IO_STEP_IDLE) == 1 && cores_of(&w, a).moves_in == 1);
    world_delete(&w);
}

static void ask_answered(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && *p.bat->preempt == 1 && p.w.cores[0].wake == 1 && p.w.cores[0].moves == 2);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    drain(p.l);
    run(&p.w, 5 * US);
    CHECK(*p.bat->preempt == 0 && moves_by(&p.w, CL_IO_STEP_REQUEST) == 1 && cores_of(&p.w, p.bat).asked == 1);
    CHECK(cl_hist_count(cl_io_detection(p.w.io, p.lat->id)) == 1);
    CHECK(cl_hist_count(cl_io_app_actuation(p.w.io, p.lat->id)) == 1);
    CHECK(cl_hist_count(cl_io_app_actuation(p.w.io, p.bat->id)) == 1); /* when it began */
    CHECK(p.w.cores[0].wanted == 1);                                   /* the batch application waits */
    park(p.l);
    run(&p.w, 1 * US); /* its heir at once, not at the next interval */
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    run(&p.w, 10 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_PARKED) == 1 && p.w.cores[0].wanted == 0);
    CHECK(seen_signals() == 0 && stats_of(&p.w).violations == 0);
    world_delete(&p.w);
}

static void interrupt_answered(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 12 * US);
    CHECK(owns(&p.w, p.l) && seen_signals() == 0);
    run(&p.w, 6 * US);
    while (sem_wait(&signalled) < 0)
        continue;
    CHECK(seen_signals() == 1);
    CHECK(!acts(&p.w, p.b) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_INTERRUPT) == 1 && cores_of(&p.w, p.bat).interrupted == 1 && *p.bat->preempt == 0);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER);
    world_delete(&p.w);
}

static void evicted(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    ready(p.l, 1);
    run(&p.w, 70 * US);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_IDLE && !p.b->interrupted && owns(&p.w, p.l));
    CHECK(acts(&p.w, p.l));
    drain(p.l);
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_EVICT) == 1 && cores_of(&p.w, p.bat).evicted == 1);
    park(p.l); /* and the one that does not listen gets nothing before it does */
    run(&p.w, 200 * US);
    CHECK(!owns(&p.w, p.b) && *p.bat->preempt == 1);
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b) && *p.bat->preempt == 0);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER);
    world_delete(&p.w);
}

/* One that blocks the signal and has no probes says for ever that it runs. It is left where it is, below everybody:
 * with a core of its own again it would cost the next one all three steps again. It gets one when it cedes, however
 * late. */
static void one_that_never_looks_stays_demoted(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    for (unsigned i = 0; i < 5; i++) {
        ready(p.l, 1);
        run(&p.w, 70 * US);
        CHECK(owns(&p.w, p.l) && acts(&p.w, p.l));
        drain(p.l);
        park(p.l);
        run(&p.w, 20 * MS); /* four times start_us */
        CHECK(!owns(&p.w, p.b) && sched_getscheduler(p.b->tid) == SCHED_IDLE);
    }
    CHECK(cores_of(&p.w, p.bat).evicted == 1 && stats_of(&p.w).interrupted == 1); /* the first time only */
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b) && sched_getscheduler(p.b->tid) == SCHED_OTHER);
    world_delete(&p.w);
}

static void old_owner_dies(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    end_thread(p.b); /* in the middle: its word says for ever that it runs */
    run(&p.w, 15 * US);
    CHECK(owns(&p.w, p.l) && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(stats_of(&p.w).evicted == 0 && stats_of(&p.w).interrupted == 0);
    drain(p.l);
    park(p.l);
    run(&p.w, 100 * US);
    CHECK(!owns(&p.w, p.b));
    world_delete(&p.w);
}

static void new_owner_is_stopped(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 4990 * US);
    CHECK(owns(&p.w, p.l)); /* it may take start_us */
    run(&p.w, 20 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b) && *p.lat->preempt == 0 && cores_of(&p.w, p.lat).not_started == 1);
    CHECK(sched_getscheduler(p.b->tid) == SCHED_OTHER);
    run(&p.w, 200 * US);
    CHECK(owns(&p.w, p.b));
    p.l->line->signals.switches++; /* it moves: considered again */
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b));
    run(&p.w, 5100 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    for (unsigned i = 0; i < 200; i++) { /* and after a while though it does not, which doubles */
        run(&p.w, 1 * MS);
        acts(&p.w, p.b);
    }
    CHECK(cores_of(&p.w, p.lat).not_started >= 6 && cores_of(&p.w, p.lat).not_started <= 12);
    world_delete(&p.w);
}

/* Nobody sleeps on its futex, where a wake would reach it: it gets the signal, as soon as that is known, and at the
 * last step. */
static void new_owner_that_no_wake_reaches_is_signalled(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    p.l->line->park = CL_KTHREAD_PARKED;
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b) && stats_of(&p.w).roused == 0);
    run(&p.w, 20 * US);
    CHECK(cores_of(&p.w, p.lat).roused == 1 && cores_of(&p.w, p.bat).roused == 0 && stats_of(&p.w).roused == 1);
    run(&p.w, 100 * US);
    CHECK(cores_of(&p.w, p.lat).roused == 2 && stats_of(&p.w).interrupted == 0);
    while (sem_wait(&signalled) < 0)
        continue;
    CHECK(acts(&p.w, p.l));
    run(&p.w, 200 * US);
    CHECK(stats_of(&p.w).roused == 2);
    world_delete(&p.w);
}

static void new_owner_dies(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    end_thread(p.l);
    run(&p.w, 5 * US);
    run(&p.w, 100 * US);
    acts(&p.w, p.b);
    run(&p.w, 100 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    world_delete(&p.w);
}

/* It parks, and loses its core before it looks once more: it goes on, and is asked. */
static void old_owner_changes_its_mind(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    p.b->line->park = CL_KTHREAD_PARKED;
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && *p.bat->preempt == 0);
    p.b->line->park = CL_KTHREAD_RUNNING;
    run(&p.w, 1 * US);
    CHECK(*p.bat->preempt == 1);
    CHECK(acts(&p.w, p.l)); /* by the kernel's own preemption */
    run(&p.w, 4 * US);
    CHECK(*p.bat->preempt == 1); /* the other one still does not know */
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 1 * US);
    CHECK(*p.bat->preempt == 0 && moves_by(&p.w, CL_IO_STEP_REQUEST) == 1);
    world_delete(&p.w);
}

/* It has ceded in time; that the one it woke takes long is not its fault. */
static void slow_wake_is_an_ask(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && p.w.cores[0].wake == 1);
    CHECK(!acts(&p.w, p.b));
    run(&p.w, 300 * US);
    CHECK(acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_REQUEST) == 1 && !p.b->interrupted);
    CHECK(cl_io_actuation(p.w.io, 0, CL_IO_STEP_REQUEST)->sum > 300 * US);
    CHECK(stats_of(&p.w).interrupted == 0 && stats_of(&p.w).evicted == 0);
    world_delete(&p.w);
}

/* Its time begins when it is asked, be that long after the decision. */
static void asked_late_it_has_all_its_time(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    ready(p.l, 1);
    p.b->line->park = CL_KTHREAD_PARKED;
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l));
    run(&p.w, 200 * US); /* the new one is slow */
    p.b->line->park = CL_KTHREAD_RUNNING;
    run(&p.w, 9 * US);
    CHECK(*p.bat->preempt == 1 && stats_of(&p.w).interrupted == 0);
    run(&p.w, 5 * US);
    CHECK(stats_of(&p.w).interrupted == 1 && stats_of(&p.w).evicted == 0);
    run(&p.w, 40 * US);
    CHECK(stats_of(&p.w).evicted == 0);
    run(&p.w, 20 * US);
    CHECK(stats_of(&p.w).evicted == 1 && acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_EVICT) == 1);
    world_delete(&p.w);
}

/* The loop does not come around for longer than all steps take: these are taken all the same before the core goes
 * on. */
static void no_step_is_left_out_by_a_pause_of_the_loop(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l));
    struct app *third = app_add(&p.w, (struct wish){.kind = LATENCY, .guaranteed = 1});
    ready(&third->k[0], 1);
    p.w.now += 500 * US;
    run(&p.w, 20 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).evicted == 0);
    run(&p.w, 50 * US);
    CHECK(stats_of(&p.w).evicted == 1 && owns(&p.w, &third->k[0]));
    CHECK(sched_getscheduler(p.b->tid) == SCHED_IDLE);
    CHECK(stats_of(&p.w).evicted_void == 1); /* overtaken */
    world_delete(&p.w);
}

/* The new owner goes in the middle of the move, and the old one does not look: nobody gets the core beside it. */
static void old_owner_outlasts_its_heir(void)
{
    for (unsigned blocks = 0; blocks < 2; blocks++) {
        struct pair p;
        pair_new(&p, (struct setting){0}, (struct wish){.blocks = blocks});
        ready(p.l, 1);
        run(&p.w, 5 * US);
        CHECK(owns(&p.w, p.l));
        app_remove(&p.w, p.lat);
        CHECK(p.w.cores[0].owner == 0);
        struct app *third = app_add(&p.w, (struct wish){.kind = LATENCY});
        ready(&third->k[0], 1);
        run(&p.w, 15 * US);
        CHECK(p.w.cores[0].owner == 0 && stats_of(&p.w).interrupted == 1);
        if (!blocks) {
            CHECK(!acts(&p.w, p.b));
            run(&p.w, 5 * US);
            CHECK(owns(&p.w, &third->k[0]) && stats_of(&p.w).evicted == 0 && *p.bat->preempt == 0);
        } else {
            run(&p.w, 55 * US);
            CHECK(owns(&p.w, &third->k[0]) && stats_of(&p.w).evicted == 1 && stats_of(&p.w).evicted_late == 1);
            CHECK(sched_getscheduler(p.b->tid) == SCHED_IDLE);
        }
        CHECK(acts(&p.w, &third->k[0]));
        run(&p.w, 100 * US);
        CHECK(owns(&p.w, &third->k[0]) && moves_by(&p.w, CL_IO_STEP_EVICT) == 0);
        world_delete(&p.w);
    }
}

/* A loop that slept charges whoever had the core meanwhile. */
static void time_slept_is_charged(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    run(&p.w, 10 * US);
    uint64_t before = cores_of(&p.w, p.bat).core_ns;
    p.w.now += 1000 * MS;
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l));
    CHECK(cores_of(&p.w, p.bat).core_ns - before > 1000 * MS && cores_of(&p.w, p.lat).core_ns == 0);
    struct cl_io_core_stats core;
    CHECK(cl_io_core_stats(p.w.io, 0, &core) == 0 && core.busy_ns > 1000 * MS);
    world_delete(&p.w);
}

static void parked_owner_is_woken_in_place(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    start(&p.w, p.l);
    CHECK(!acts(&p.w, p.b));
    p.b->line->park = CL_KTHREAD_PARKED; /* it has nothing to do any more */
    run(&p.w, 5 * US);
    park(p.l);
    run(&p.w, 100 * US);
    uint32_t grant = p.l->state->grant;
    CHECK(owns(&p.w, p.l)); /* a core nobody else wants stays with its last owner */
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(p.l->state->grant == grant + 1 && cores_of(&p.w, p.lat).wakes == 1);
    run(&p.w, 3 * US);
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 3 * US);
    CHECK(p.l->state->grant == grant + 1); /* it is on its way */
    CHECK(acts(&p.w, p.l) && receive(p.lat, 0) == 2);
    run(&p.w, 3 * US);
    park(p.l);
    run(&p.w, 10 * US);
    p.l->line->signals.timer_tsc = p.w.now + 20 * US;
    run(&p.w, 19 * US);
    CHECK(p.l->state->grant == grant + 1);
    run(&p.w, 6 * US);
    CHECK(p.l->state->grant == grant + 2 && moves_by(&p.w, CL_IO_STEP_WAKE) == 1);
    world_delete(&p.w);
}

/* It got up by itself between its grant and the wake, and is busy: it is told to look, and keeps its core. */
static void busy_owner_is_told_of_its_grant(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && !acts(&p.w, p.b));
    p.l->line->park = CL_KTHREAD_RUNNING;
    CHECK(*p.lat->preempt == 0);
    run(&p.w, 12 * US);
    CHECK(*p.lat->preempt == 1);
    CHECK(seen_signals() == 0 && stats_of(&p.w).interrupted == 0); /* the old one is not to blame */
    run(&p.w, 1000 * US);
    CHECK(owns(&p.w, p.l) && *p.lat->preempt == 1 && cores_of(&p.w, p.lat).not_started == 0);
    CHECK(acts(&p.w, p.l));
    run(&p.w, 1 * US);
    CHECK(*p.lat->preempt == 0 && owns(&p.w, p.l) && *p.bat->preempt == 0);
    park(p.l); /* and the same where it was woken on the core that it had kept */
    p.b->line->park = CL_KTHREAD_PARKED;
    drain(p.l);
    run(&p.w, 10 * US);
    uint32_t grant = p.l->state->grant;
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 1 * US);
    CHECK(owns(&p.w, p.l) && p.l->state->grant == grant + 1);
    p.l->line->park = CL_KTHREAD_RUNNING;
    run(&p.w, 12 * US);
    CHECK(*p.lat->preempt == 1 && seen_signals() == 0);
    run(&p.w, 5100 * US); /* it never looks: as if it had not begun, and it is made to go */
    CHECK(!owns(&p.w, p.l) && cores_of(&p.w, p.lat).not_started == 1);
    CHECK(stats_of(&p.w).evicted_late == 1 && sched_getscheduler(p.l->tid) == SCHED_IDLE);
    world_delete(&p.w);
}

static void hot_and_cold(void)
{
    struct pair p;
    pair_new(&p, (struct setting){.yield_wait_us = 1000}, (struct wish){0});
    CHECK(p.l->state->yield_wait == 0);
    start(&p.w, p.l);
    CHECK(p.l->state->yield_wait == 1 && p.b->state->yield_wait == 1 && p.w.cores[0].wake == 1);
    CHECK(!acts(&p.w, p.b) && p.b->line->park == CL_KTHREAD_CEDED_YIELDING);
    run(&p.w, 2 * US);
    park(p.l);
    run(&p.w, 2 * US);
    CHECK(owns(&p.w, p.b) && p.w.cores[0].wake == 0); /* it yields, and sees for itself */
    uint64_t calls = stats_of(&p.w).syscalls;
    CHECK(acts(&p.w, p.b));
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && p.w.cores[0].wake == 0 && !acts(&p.w, p.b) && acts(&p.w, p.l));
    drain(p.l);
    run(&p.w, 2 * US);
    CHECK(stats_of(&p.w).syscalls == calls);
    struct app *third = app_add(&p.w, (struct wish){.kind = LATENCY});
    park(p.l);
    ready(&third->k[0], 1);
    run(&p.w, 5 * US);
    CHECK(p.b->state->yield_wait + p.l->state->yield_wait + third->k[0].state->yield_wait == 3);
    acts(&p.w, &third->k[0]);
    acts(&p.w, p.b);
    run(&p.w, 3 * US);
    drain(&third->k[0]);
    p.b->line->park = CL_KTHREAD_PARKED;
    run(&p.w, 1100 * US);
    CHECK(p.b->state->yield_wait + p.l->state->yield_wait + third->k[0].state->yield_wait == 0);
    world_delete(&p.w);
}

static void take_core(struct world *w, struct kthread *from, struct kthread *to)
{
    drain(from);
    park(from);
    ready(to, 1);
    run(w, 5 * US);
    CHECK(owns(w, to) && acts(w, to));
    run(w, 2 * US);
}

static void hot_are_those_of_the_last_moves(void)
{
    struct pair p;
    struct kthread *k[6];
    pair_new(&p, (struct setting){.yield_wait_us = 1000}, (struct wish){0});
    k[0] = p.b;
    k[1] = p.l;
    for (unsigned i = 2; i < 6; i++)
        k[i] = &app_add(&p.w, (struct wish){.kind = LATENCY})->k[0];
    for (unsigned i = 1; i < 6; i++)
        take_core(&p.w, k[i - 1], k[i]);
    for (unsigned i = 0; i < 6; i++)
        CHECK(k[i]->state->yield_wait == (i >= 2)); /* four at most */
    for (unsigned i = 0; i < 3; i++) {
        take_core(&p.w, k[5], k[4]);
        take_core(&p.w, k[4], k[5]);
    }
    for (unsigned i = 0; i < 6; i++)
        CHECK(k[i]->state->yield_wait == (i >= 4)); /* the others were part of none for a while */
    world_delete(&p.w);
}

static void removed_in_the_middle(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l));
    app_remove(&p.w, p.lat); /* the new owner goes before it began; the old one is still there */
    CHECK(p.w.cores[0].owner == 0);
    acts(&p.w, p.b);
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.b) && acts(&p.w, p.b));
    p.lat = app_at(&p.w, 0, (struct wish){.kind = LATENCY});
    p.l = &p.lat->k[0];
    run(&p.w, 5 * US);
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l));
    int32_t tid = p.b->tid;
    struct cl_io_app_final final; /* the old one goes without ceding: demoted, until no loop knows it any more */
    CHECK(cl_io_app_remove(p.w.io, p.bat->id, &final, err) == 0);
    CHECK(sched_getscheduler(tid) == SCHED_OTHER);
    end_thread(p.b);
    p.bat->id = 0;
    CHECK(acts(&p.w, p.l));
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l));
    uint64_t next = 0, lost = 0;
    struct cl_io_move moves[64];
    uint32_t n = cl_io_moves(p.w.io, 0, &next, moves, 64, &lost), owner = 0, left = 0;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(moves[i].from == owner); /* one owner after the other */
        owner = moves[i].to;
        left += moves[i].what == CL_IO_LOG_LEFT;
    }
    CHECK(n > 4 && lost == 0 && left == 1 && owner == p.l->slot + 1);
    world_delete(&p.w);
}

/* Whatever its words say, it gets no more than a policy would give it for the asking, and costs a bounded number of
 * calls. */
static void hostile_words(void)
{
    static const uint32_t values[] = {0, 1, 2, 3, 4, 5, 0x7fffffff, 0x80000000, 0xffffffff, 65536};
    struct pair p;
    uint64_t x = 88172645463325252ull;
    pair_new(&p, (struct setting){0}, (struct wish){.guaranteed = 0});
    for (unsigned i = 0; i < 20000; i++) {
        uint32_t *words = (uint32_t *)&p.b->line->signals;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        words[x % 16] = values[x / 16 % 10] + (uint32_t)(x >> 60 == 0) * (uint32_t)p.w.now;
        if (x >> 50 & 1)
            p.b->line->park = values[x / 256 % 10];
        if (x >> 51 & 1)
            p.b->line->rx_head = values[x / 4096 % 10];
        if (x >> 52 & 1)
            p.b->line->help++;
        run(&p.w, 2 * US);
        if (i % 500 == 0) { /* the honest one gets its core within the steps' times */
            ready(p.l, 1);
            run(&p.w, 80 * US);
            CHECK(owns(&p.w, p.l) && acts(&p.w, p.l));
            drain(p.l);
            run(&p.w, 70 * US);
            CHECK(owns(&p.w, p.l) || p.l->line->park != CL_KTHREAD_RUNNING);
            park(p.l);
        }
    }
    struct cl_io_cores_stats s = stats_of(&p.w);
    CHECK(cores_of(&p.w, p.bat).lies > 0);
    CHECK(s.syscalls < (p.w.now - 1 * MS) / (4 * US) + 64); /* 250000 a second, and what a bucket holds */
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(nothing_without_threads), SCENARIO(ask_answered), SCENARIO(interrupt_answered),
               SCENARIO(evicted), SCENARIO(one_that_never_looks_stays_demoted), SCENARIO(old_owner_dies),
               SCENARIO(new_owner_is_stopped), SCENARIO(new_owner_that_no_wake_reaches_is_signalled),
               SCENARIO(new_owner_dies), SCENARIO(old_owner_changes_its_mind), SCENARIO(slow_wake_is_an_ask),
               SCENARIO(asked_late_it_has_all_its_time), SCENARIO(no_step_is_left_out_by_a_pause_of_the_loop),
               SCENARIO(old_owner_outlasts_its_heir), SCENARIO(time_slept_is_charged),
               SCENARIO(parked_owner_is_woken_in_place), SCENARIO(busy_owner_is_told_of_its_grant),
               SCENARIO(hot_and_cold), SCENARIO(hot_are_those_of_the_last_moves), SCENARIO(removed_in_the_middle),
               SCENARIO(hostile_words))
