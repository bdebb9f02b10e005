/* When the policy `delay` gives an application a core that another has (policies/delay.c): pair.h. Prints the names of
 * those that passed.
 *
 *   cores_target [NAME] */
#include "pair.h"

#define TARGET (50 * US)
#define INTERVAL (5 * US)

static const struct setting delay = {.policy = "delay", .params = {TARGET}};

/* A frame for the latency application, sent on behalf of the batch one; how long it waits for a core, which the
 * application then has. */
static uint64_t waits(struct pair *p)
{
    uint64_t sent = p->w.now;
    send_frame(p->bat, p->lat, 1);
    while (!owns(&p->w, p->l) && p->w.now - sent < 2 * TARGET)
        run(&p->w, US);
    CHECK(owns(&p->w, p->l));
    uint64_t waited = p->w.now - sent;
    CHECK(!acts(&p->w, p->b) && acts(&p->w, p->l));
    run(&p->w, 2 * US);
    return waited;
}

/* Its work done, it lets go of the core, which the batch application has again. */
static void gives_back(struct pair *p)
{
    receive(p->lat, 0);
    park(p->l);
    run(&p->w, 3 * US);
    CHECK(owns(&p->w, p->b) && acts(&p->w, p->b));
    run(&p->w, 2 * US);
}

static void at_the_last_check_before_the_target(void)
{
    struct pair p;
    pair_new(&p, delay, (struct wish){0});
    uint64_t waited = waits(&p);
    CHECK(waited > TARGET - 2 * INTERVAL &&
          waited <= TARGET + 2 * US); /* its age counts from the round that delivers it */
    world_delete(&p.w);
}

/* What comes for an owner that has just parked is younger than what others wait with: it does not get it up again. */
static void a_frame_for_who_has_let_go_waits_like_any_other(void)
{
    struct pair p;
    pair_new(&p, delay, (struct wish){0});
    waits(&p);
    uint64_t wakes = stats_of(&p.w).wakes;
    receive(p.lat, 0);
    park(p.l);
    send_frame(p.bat, p.lat, 1); /* the loop finds both in one round */
    run(&p.w, 3 * US);
    CHECK(owns(&p.w, p.b) && stats_of(&p.w).wakes == wakes && acts(&p.w, p.b));
    run(&p.w, TARGET);
    CHECK(owns(&p.w, p.l));
    world_delete(&p.w);
}

static void but_gets_it_up_where_nobody_waits(void)
{
    struct pair p;
    pair_new(&p, delay, (struct wish){0});
    waits(&p);
    receive(p.lat, 0);
    park(p.b); /* it has nothing to do, once it runs again */
    run(&p.w, 10 * US);
    park(p.l);
    run(&p.w, 10 * US);
    CHECK(owns(&p.w, p.l));
    uint64_t wakes = stats_of(&p.w).wakes;
    send_frame(p.bat, p.lat, 1);
    run(&p.w, 2 * US);
    CHECK(owns(&p.w, p.l) && stats_of(&p.w).wakes == wakes + 1);
    world_delete(&p.w);
}

static void slow_first_answers_are_taken_off(void)
{
    struct pair p;
    pair_new(&p, delay, (struct wish){0});
    uint64_t before = waits(&p);
    for (unsigned i = 0; i < 3; i++) {
        run(&p.w, 8 * US); /* 10 us or so from the grant */
        send_frame(p.lat, p.bat, 1);
        run(&p.w, 2 * US);
        gives_back(&p);
        uint64_t waited = waits(&p);
        CHECK(waited < before && waited >= before - 11 * US - INTERVAL);
    }
    for (unsigned i = 0; i < 30; i++) { /* it takes its time over each: no more than a quarter of the target is */
        run(&p.w, 1000 * US);
        send_frame(p.lat, p.bat, 1);
        run(&p.w, 2 * US);
        gives_back(&p);
        CHECK(waits(&p) >= TARGET - TARGET / 4 - 2 * INTERVAL);
    }
    world_delete(&p.w);
}

/* Frames one after the other, each of which costs two moves of 2 us: the first ones are free. */
static void moves_that_cost_too_much_are_put_off(void)
{
    for (uint64_t percent = 10; percent <= 100; percent += 90) {
        struct pair p;
        pair_new(&p, (struct setting){.policy = "delay", .params = {1, 0, percent}}, (struct wish){0});
        uint64_t longest = 0;
        for (unsigned turn = 0; turn < 12; turn++) {
            uint64_t waited = waits(&p);
            longest = cl_max(longest, waited);
            gives_back(&p);
        }
        struct cl_io_cores_stats s = stats_of(&p.w);
        bool late = longest > 20 * US, dear = s.crossing_ns * 7 > cores_of(&p.w, p.bat).core_ns;
        CHECK(s.crossings == 24 && s.crossing_ns == s.crossings * 2 * US && longest < 50 * US);
        CHECK(late == (percent == 10) && dear == (percent == 100));
        world_delete(&p.w);
    }
}

static const struct {
    const char *name;
    void (*fn)(void);
} scenarios[] = {
    {"at_the_last_check_before_the_target", at_the_last_check_before_the_target},
    {"a_frame_for_who_has_let_go_waits_like_any_other", a_frame_for_who_has_let_go_waits_like_any_other},
    {"but_gets_it_up_where_nobody_waits", but_gets_it_up_where_nobody_waits},
    {"slow_first_answers_are_taken_off", slow_first_answers_are_taken_off},
    {"moves_that_cost_too_much_are_put_off", moves_that_cost_too_much_are_put_off},
};

int main(int argc, char **argv)
{
    alarm(60);
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) != 0)
            continue;
        scenario = scenarios[i].name;
        scenarios[i].fn();
        printf("passed %s\n", scenario);
    }
    return 0;
}
