/* A kthread sleeps in the kernel, and its siblings could do its work (blocked.c): pair.h. Prints the names of those
 * that passed.
 *
 *   cores_sibling [NAME] */
#include "../../../../iokernel/state/internal.h"
#include "pair.h"

#define BLOCKED_US 1000
#define LOOK (BLOCKED_US * US)

/* A latency application; the thread of the kthread that got its first core, and says that it runs, sleeps. */
struct siblings {
    struct world w;
    struct app *a, *other; /* the other one only sends */
    struct kthread *first, *second;
};

static void siblings_new(struct siblings *s, uint32_t cores)
{
    world_new(&s->w, (struct setting){.blocked_us = BLOCKED_US, .cores = cores});
    s->a = app_add(&s->w, (struct wish){.kind = LATENCY, .kthreads = 2, .guaranteed = cores});
    s->other = app_add(&s->w, (struct wish){.kind = BATCH});
    ready(&s->a->k[0], 1);
    run(&s->w, 10 * US);
    s->first = &s->a->k[owns(&s->w, &s->a->k[0]) ? 0 : 1];
    s->second = &s->a->k[s->first == s->a->k];
    CHECK(acts(&s->w, s->first));
    drain(&s->a->k[0]);
    run(&s->w, 2 * US);
}

static void send(struct siblings *s, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        send_frame(s->other, s->a, (uint16_t)(7 * i));
    run(&s->w, 2 * US);
}

/* It is found, and the sibling has a core, if not at that moment, then in a moment. */
static void second_runs(struct siblings *s)
{
    run(&s->w, 4 * LOOK);
    CHECK(stats_of(&s->w).blocked == 1);
    CHECK(owns(&s->w, s->second) && acts(&s->w, s->second));
    run(&s->w, 2 * US);
    CHECK(stats_of(&s->w).violations == 0 && stats_of(&s->w).violations_asleep == 0);
}

/* Uthreads wait behind it: the sibling, which has nothing of its own, gets a core, so that it can take them. */
static void a_sibling_gets_a_core_for_what_waits_behind_it(void)
{
    struct siblings s;
    siblings_new(&s, 1);
    ready(s.first, 5);
    run(&s.w, LOOK / 2);
    CHECK(owns(&s.w, s.first));
    second_runs(&s);
    struct cl_io_app_cores seen = cores_of(&s.w, s.a);
    CHECK(seen.waiting == 5 && seen.thread_age_ns > LOOK); /* as long as nobody has taken them */
    drain(s.first);
    run(&s.w, 10 * US);
    seen = cores_of(&s.w, s.a);
    CHECK(seen.waiting == 0 && seen.thread_age_ns == 0);
    world_delete(&s.w);
}

static void a_sibling_gets_a_core_for_its_timer(void)
{
    struct siblings s;
    siblings_new(&s, 1);
    ready(s.first, 1);
    second_runs(&s);
    drain(s.first);
    park(s.second);
    s.first->line->signals.timer_tsc = s.w.now + 10 * LOOK;
    run(&s.w, 10 * LOOK - 20 * US);
    CHECK(s.second->line->park != CL_KTHREAD_RUNNING);
    uint32_t grant = s.second->state->grant;
    run(&s.w, 40 * US);
    CHECK(owns(&s.w, s.second) && s.second->state->grant != grant);
    world_delete(&s.w);
}

/* How often the sibling was woken in so long, each time to find nothing that it could take. */
static uint64_t comes_in_vain(struct siblings *s, uint64_t ns)
{
    uint64_t before = cores_of(&s->w, s->a).wakes + cores_of(&s->w, s->a).moves_in;
    for (uint64_t end = s->w.now + ns; s->w.now < end;) {
        run(&s->w, 5 * US);
        if (owns(&s->w, s->second) && s->second->line->signals.acted != s->second->state->grant) {
            CHECK(acts(&s->w, s->second));
            run(&s->w, 5 * US);
            park(s->second);
        }
    }
    return cores_of(&s->w, s->a).wakes + cores_of(&s->w, s->a).moves_in - before;
}

static void what_cannot_be_taken_wakes_a_sibling_more_and_more_seldom(void)
{
    struct siblings s;
    siblings_new(&s, 1);
    ready(s.first, 1);
    second_runs(&s);
    park(s.second);
    uint64_t n = comes_in_vain(&s, 200 * LOOK);
    CHECK(n >= 6 && n <= 10); /* after 1, 2, 4, ... looks, at least each 64 */
    CHECK(comes_in_vain(&s, 640 * LOOK) <= 10);
    CHECK(stats_of(&s.w).violations == 0);
    /* what comes new is offered at once */
    uint32_t grant = s.second->state->grant;
    ready(s.first, 1);
    run(&s.w, 10 * US);
    CHECK(s.second->state->grant != grant && acts(&s.w, s.second));
    /* and so is what is left when one was taken */
    park(s.second);
    comes_in_vain(&s, 20 * LOOK);
    grant = s.second->state->grant;
    s.first->line->signals.runq_head++;
    run(&s.w, 10 * US);
    CHECK(s.second->state->grant != grant);
    world_delete(&s.w);
}

/* The loop that sleeps meanwhile wakes up for it. */
static void the_loop_sleeps_no_longer_than_until_it_is_offered_again(void)
{
    struct siblings s;
    siblings_new(&s, 1);
    ready(s.first, 1);
    second_runs(&s);
    park(s.second);
    comes_in_vain(&s, 20 * LOOK);
    const struct io_cores *c = &s.w.io->loops[0].cores;
    uint32_t grant = s.second->state->grant;
    for (unsigned i = 0; s.second->state->grant == grant; i++) {
        CHECK(!c->awake && c->next_due - s.w.now <= 64 * LOOK && i < 100);
        s.w.now = c->next_due;
        run(&s.w, 8 * US);
    }
    world_delete(&s.w);
}

/* Frames that came before it was found are the sibling's to take; those that come later go to the sibling. */
static void frames_go_to_a_sibling(void)
{
    struct siblings s;
    siblings_new(&s, 1);
    send(&s, 5);
    unsigned before = receive(s.a, (uint32_t)(s.first - s.a->k));
    CHECK(before == 5); /* it has the only core */
    send(&s, 5);
    second_runs(&s);
    CHECK(receive(s.a, (uint32_t)(s.first - s.a->k)) == 5);
    send(&s, 20);
    CHECK(receive(s.a, (uint32_t)(s.second - s.a->k)) == 20);
    CHECK(receive(s.a, (uint32_t)(s.first - s.a->k)) == 0);
    /* also when the sibling has parked: it is the one that can be woken */
    park(s.second);
    run(&s.w, 20 * US);
    uint32_t grant = s.second->state->grant;
    send(&s, 1);
    run(&s.w, 10 * US);
    CHECK(receive(s.a, (uint32_t)(s.second - s.a->k)) == 1 && s.second->state->grant != grant);
    world_delete(&s.w);
}

/* Each frame has the number of steerings before it, for libos to keep those of a flow in order: it grows when flows go
 * to another kthread, and only then. */
static void frames_say_by_which_steering_they_came(void)
{
    struct siblings s;
    struct cl_desc old[3], new;
    siblings_new(&s, 1);
    struct cl_ring_rx *first = &s.a->rx[s.first - s.a->k], *second = &s.a->rx[s.second - s.a->k];
    receive(s.a, (uint32_t)(s.first - s.a->k));
    ready(s.first, 1);
    send(&s, 1);
    park(s.other->k); /* cores are looked at anew, and nothing is steered */
    run(&s.w, LOOK / 2);
    send(&s, 1);
    second_runs(&s);
    send(&s, 1);
    CHECK(cl_ring_pop(first, old, 3) == 2 && cl_ring_pop(second, &new, 1) == 1);
    CHECK(cl_rx_steering(old[0].payload) == cl_rx_steering(old[1].payload));
    CHECK(cl_rx_steering(new.payload) == cl_rx_steering(old[1].payload) + 1);
    world_delete(&s.w);
}

/* When it goes on, and has kept its core, frames go to it as before. */
static void frames_go_to_it_again(void)
{
    struct siblings s;
    siblings_new(&s, 2);
    set_policy(&s.w, "static", (uint64_t[8]){0}); /* both cores are its own */
    ready(s.first, 1);
    run(&s.w, 10 * US);
    CHECK(owns(&s.w, s.second) && acts(&s.w, s.second));
    drain(s.first);
    spin(s.second);
    send(&s, 20);
    CHECK(receive(s.a, (uint32_t)(s.first - s.a->k)) > 0 && receive(s.a, (uint32_t)(s.second - s.a->k)) > 0);
    ready(&s.other->k[0], 1);
    run(&s.w, 8 * LOOK);
    CHECK(owns(&s.w, s.first) && stats_of(&s.w).blocked == 1);
    send(&s, 20);
    CHECK(receive(s.a, (uint32_t)(s.first - s.a->k)) == 0 && receive(s.a, (uint32_t)(s.second - s.a->k)) == 20);
    spin(s.first);
    while (s.w.io->loops[0].cores.n_blocked)
        run(&s.w, LOOK);
    send(&s, 20);
    CHECK(receive(s.a, (uint32_t)(s.first - s.a->k)) > 0 && receive(s.a, (uint32_t)(s.second - s.a->k)) > 0);
    end_spin(s.first);
    end_spin(s.second);
    world_delete(&s.w);
}

/* Nobody can do anything for what waits where all sleep: no core, no violation, and no loop that is awake for that. */
static void where_all_sleep_nobody_gets_a_core(void)
{
    struct siblings s;
    siblings_new(&s, 1);
    ready(s.first, 1);
    second_runs(&s);
    ready(s.second, 3);
    ready(&s.other->k[0], 1);
    while (stats_of(&s.w).blocked < 2)
        run(&s.w, 1 * US);
    run(&s.w, 3 * US);
    CHECK(owns(&s.w, &s.other->k[0]) && acts(&s.w, &s.other->k[0]));
    run(&s.w, 10 * US);
    park(&s.other->k[0]);
    drain(&s.other->k[0]);
    run(&s.w, 20 * LOOK);
    CHECK(cores_of(&s.w, s.a).waiting == 4 && cores_of(&s.w, s.a).thread_age_ns > 20 * LOOK);
    CHECK(stats_of(&s.w).violations == 0 && !s.w.io->loops[0].cores.awake);
    world_delete(&s.w);
}

/* A sibling that steals from it moves the heads of its queues. */
static void a_thief_does_not_hide_it(void)
{
    struct siblings s;
    siblings_new(&s, 2);
    ready(s.second, 1);
    run(&s.w, 10 * US);
    CHECK(acts(&s.w, s.second));
    drain(s.second);
    spin(s.second);
    ready(&s.other->k[0], 1);
    for (uint64_t end = s.w.now + 8 * LOOK; s.w.now < end && stats_of(&s.w).blocked == 0;) {
        s.second->line->signals.switches++;
        ready(s.first, 1);
        run(&s.w, 20 * US);
        s.first->line->signals.runq_head++;
        s.first->line->signals.inbox_tail = ++s.first->line->signals.inbox_head;
        run(&s.w, LOOK / 4);
    }
    CHECK(stats_of(&s.w).blocked == 1);
    run(&s.w, 3 * US);
    CHECK(owns(&s.w, &s.other->k[0]));
    end_spin(s.second);
    world_delete(&s.w);
}

SCENARIOS_MAIN(SCENARIO(a_sibling_gets_a_core_for_what_waits_behind_it), SCENARIO(a_sibling_gets_a_core_for_its_timer),
               SCENARIO(what_cannot_be_taken_wakes_a_sibling_more_and_more_seldom),
               SCENARIO(the_loop_sleeps_no_longer_than_until_it_is_offered_again), SCENARIO(frames_go_to_a_sibling),
               SCENARIO(frames_say_by_which_steering_they_came), SCENARIO(frames_go_to_it_again),
               SCENARIO(where_all_sleep_nobody_gets_a_core), SCENARIO(a_thief_does_not_hide_it))
