/* Alarms against a plain model, on a clock that is a variable: an array of deadlines. Random arming, moving, cancelling
 * and removing, from a uthread and from callbacks, with deadlines from the past to the end of time; the clock goes on
 * by nanoseconds and by hours. An alarm is never due early, and never later than a lowest slot and the step of the
 * clock in which that ends, be it its own kthread or a sibling that turns. Usage: wheel_model SEED STEPS */
#include "check.h"
#include <corelane/libos/wheel.h>

#include "libos/sched/internal.h"

#define OBJECTS 200

struct object {
    struct cl_alarm alarm;
    uint64_t deadline_ns; /* the model; CL_ALARM_NONE: none */
    bool ask;             /* it was called, and the holder asks later */
    bool unmoved;         /* since it was placed */
};

static struct object objects[OBJECTS];
static struct cl_sched *sched;
static uint64_t now_ns, state, fired, called;
static struct cl_sem turn;
static bool over;

static uint64_t below(uint64_t n)
{
    return next_random(&state) % n;
}

static uint64_t some_deadline(void)
{
    static const uint64_t spans_ns[] = {1,          1000,          CL_ALARM_SLOT_NS, 2000000,   100000000,
                                        5000000000, 1000000000000, 1ull << 45,       1ull << 63};
    uint64_t span_ns = spans_ns[below(sizeof spans_ns / sizeof *spans_ns)], at_ns = now_ns + below(span_ns);
    if (below(50) == 0)
        at_ns = now_ns - below(1 + now_ns); /* past */
    if (below(50) == 0)
        at_ns = CL_ALARM_NONE - 1 - below(3);
    return at_ns >= CL_ALARM_NONE ? CL_ALARM_NONE - 1 : at_ns;
}

static void arm(struct object *o)
{
    o->deadline_ns = some_deadline();
    o->unmoved = o->alarm.state == CL_ALARM_IDLE;
    CHECK_EQ(cl_alarm_arm(&o->alarm, o->deadline_ns), 0);
}

static void cancel(struct object *o)
{
    o->deadline_ns = CL_ALARM_NONE;
    o->unmoved = false;
    cl_alarm_cancel(&o->alarm);
}

static void ask(struct object *o)
{
    bool due = o->deadline_ns <= now_ns;
    o->ask = false;
    CHECK_EQ(cl_alarm_due(&o->alarm, now_ns), due);
    if (!due)
        return;
    o->deadline_ns = CL_ALARM_NONE;
    fired++;
    if (below(3) == 0)
        arm(o);
}

static void on_alarm(struct cl_alarm *alarm)
{
    struct object *o = cl_container_of(alarm, struct object, alarm);
    called++;
    CHECK(!o->unmoved || o->deadline_ns <= now_ns, "called for nothing");
    switch (below(8)) {
    case 0:
        o->ask = true; /* later, by the actor */
        break;
    case 1:
        cancel(o);
        ask(o);
        break;
    case 2:
        arm(o);
        ask(o);
        break;
    case 3:
        cl_alarm_remove(alarm); /* from its own callback */
        o->deadline_ns = CL_ALARM_NONE;
        cl_alarm_init(alarm, on_alarm);
        break;
    default:
        ask(o);
    }
}

static void act(struct object *o)
{
    if (o->ask)
        ask(o);
    switch (below(6)) {
    case 0:
        cancel(o);
        break;
    case 1:
        cl_alarm_remove(&o->alarm);
        o->deadline_ns = CL_ALARM_NONE;
        memset(&o->alarm, 0xff, sizeof o->alarm); /* the memory is ours */
        cl_alarm_init(&o->alarm, on_alarm);
        break;
    case 2: /* later, which is a store as a rule */
        if (o->deadline_ns < CL_ALARM_NONE - 3000000) {
            o->deadline_ns += below(3000000);
            o->unmoved = false;
            CHECK_EQ(cl_alarm_arm(&o->alarm, o->deadline_ns), 0);
        }
        break;
    default:
        arm(o);
    }
    CHECK_EQ(cl_alarm_deadline_ns(&o->alarm), o->deadline_ns);
}

static void actor(void *arg)
{
    (void)arg;
    while (cl_sem_wait(&turn) == 0 && !over) {
        for (unsigned i = (unsigned)below(20); i--;)
            act(&objects[below(OBJECTS)]);
        for (unsigned i = 0; i < OBJECTS; i++)
            if (objects[i].ask && below(2))
                ask(&objects[i]);
    }
    for (unsigned i = 0; i < OBJECTS; i++)
        cl_alarm_remove(&objects[i].alarm);
}

static uint64_t some_step(void)
{
    static const uint64_t steps_ns[] = {1, 500, 5000, CL_ALARM_SLOT_NS, 1000000, 200000000, 5000000000, 4000000000000};
    return below(steps_ns[below(3 + below(sizeof steps_ns / sizeof *steps_ns - 2))]);
}

/* Nothing that should have been called by now was not; what the holder has yet to ask about has been called. */
static bool all_called(void)
{
    for (unsigned i = 0; i < OBJECTS; i++)
        if (!objects[i].ask && objects[i].deadline_ns < CL_ALARM_NONE - CL_ALARM_SLOT_NS &&
            objects[i].deadline_ns + CL_ALARM_SLOT_NS <= now_ns)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    struct cl_sched_config c;
    struct cl_clock clock;
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    unsigned steps = argc > 2 ? (unsigned)atoi(argv[2]) : 20000;
    state = seed * 2654435761u + 1;
    cl_sched_config_init(&c);
    c.n_kthreads = 2;
    now_ns = 1000000;
    cl_clock_virtual(&clock, &now_ns);
    c.clock = &clock;
    sched = sched_new(&c);
    cl_sem_init(&turn, 0);
    for (unsigned i = 0; i < OBJECTS; i++) {
        cl_alarm_init(&objects[i].alarm, on_alarm);
        objects[i].deadline_ns = CL_ALARM_NONE;
    }
    CHECK_EQ(cl_sched_spawn(sched, actor, NULL), 0);
    unsigned alone = 0; /* steps for which only this kthread turns, the other's alarms included */
    for (unsigned i = 0; i < steps; i++) {
        now_ns += some_step();
        unsigned who = (unsigned)below(2);
        alone = alone ? alone - 1 : below(20) == 0 ? 30 : 0;
        for (unsigned tries = 0; tries < 8 || !all_called(); tries++) {
            CHECK(tries < 200, "an alarm was not called at step %u", i);
            cl_sched_step(sched, alone ? 0 : who);
            who ^= 1;
        }
        cl_sem_post(&turn);
    }
    over = true;
    cl_sem_post(&turn);
    for (unsigned tries = 0; cl_sched_live(sched); tries++) {
        CHECK(tries < 100);
        cl_sched_step(sched, tries % 2);
    }
    struct cl_sched_stats stats[2];
    for (unsigned k = 0; k < 2; k++) {
        CHECK_EQ(sched->kthreads[k].wheel.n, 0);
        for (unsigned level = 0; level < CL_WHEEL_LEVELS; level++)
            CHECK_EQ(sched->kthreads[k].wheel.filled[level], 0);
        cl_sched_stats(sched, k, &stats[k]);
    }
    CHECK_EQ(stats[0].alarms + stats[1].alarms, called);
    CHECK(fired > steps / 4);
    CHECK(stats[0].stolen_timers > 0);
    CHECK_EQ(cl_sched_stop(sched, 0), 0);
    cl_sched_delete(sched);
    printf("%llu called, %llu due, %llu wheels run by a sibling\n", (unsigned long long)called,
           (unsigned long long)fired, (unsigned long long)(stats[0].stolen_timers + stats[1].stolen_timers));
    return 0;
}
