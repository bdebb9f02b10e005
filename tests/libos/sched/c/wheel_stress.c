/* Alarms on kthreads that run: objects with a lock each are worked on by whatever uthread gets one, which moves,
 * cancels, removes and frees, while some uthreads keep their kthread long, so that siblings run its wheel. Each
 * deadline is over once, none is early, none is lost. Usage: wheel_stress KTHREADS MODE ROUNDS SEED */
#include "check.h"
#include <corelane/libos/wheel.h>

#define OBJECTS 64
#define WORKERS 6

struct object {
    struct cl_spin lock; /* whoever has it holds the alarm */
    struct cl_alarm alarm;
    uint64_t deadline_ns; /* the model */
    bool dead;
    uint32_t callbacks; /* inside of one */
    uint32_t magic;
};

static struct object *objects[OBJECTS];
static struct cl_spin places[OBJECTS]; /* guards the pointer */
static struct object *graves[OBJECTS];
static struct cl_spin graves_lock;
static unsigned n_dead;
static uint64_t armed, over, moved, called;
static unsigned rounds;
static uint64_t seed;

static uint64_t clock_ns(void)
{
    return cl_sched_now_ns(cl_sched_self());
}

static void count(uint64_t *what)
{
    __atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static void keep_busy(uint64_t ns)
{
    for (uint64_t until = clock_ns() + ns; clock_ns() < until;)
        cl_relax();
}

static void on_alarm(struct cl_alarm *alarm)
{
    struct object *o = cl_container_of(alarm, struct object, alarm);
    CHECK_EQ(__atomic_fetch_add(&o->callbacks, 1, __ATOMIC_RELAXED), 0);
    if (__atomic_fetch_add(&called, 1, __ATOMIC_RELAXED) % 4 == 0)
        keep_busy(30000);
    CHECK_EQ(o->magic, 0xfeed);
    cl_spin_lock(&o->lock);
    uint64_t now = clock_ns();
    if (!o->dead) {
        bool due = cl_alarm_due(alarm, now);
        CHECK_EQ(due, o->deadline_ns <= now);
        if (due) {
            o->deadline_ns = CL_ALARM_NONE;
            count(&over);
        }
    }
    cl_spin_unlock(&o->lock);
    CHECK_EQ(__atomic_fetch_sub(&o->callbacks, 1, __ATOMIC_RELAXED), 1);
}

static void arm(struct object *o, uint64_t deadline_ns)
{
    count(o->deadline_ns == CL_ALARM_NONE ? &armed : &moved);
    o->deadline_ns = deadline_ns;
    CHECK_EQ(cl_alarm_arm(&o->alarm, deadline_ns), 0);
}

static void cancel(struct object *o)
{
    if (o->deadline_ns != CL_ALARM_NONE)
        count(&over);
    o->deadline_ns = CL_ALARM_NONE;
    cl_alarm_cancel(&o->alarm);
}

static struct object *object_new(void)
{
    struct object *o = calloc(1, sizeof *o);
    CHECK(o != NULL);
    o->deadline_ns = CL_ALARM_NONE;
    o->magic = 0xfeed;
    cl_alarm_init(&o->alarm, on_alarm);
    return o;
}

/* The caller has the place, so that nobody else works on it. */
static void object_end(struct object *o)
{
    cl_spin_lock(&o->lock);
    cancel(o);
    o->dead = true;
    cl_spin_unlock(&o->lock);
    cl_alarm_remove(&o->alarm);
    memset(o, 0xff, sizeof *o);
    cl_spin_lock(&graves_lock);
    struct object **grave = &graves[n_dead++ % OBJECTS]; /* not reused at once: who comes too late finds the 0xff */
    free(*grave);
    *grave = o;
    cl_spin_unlock(&graves_lock);
}

static void worker(void *arg)
{
    uint64_t state = seed + (uintptr_t)arg * 7919 + 1;
    for (unsigned i = 0; i < rounds; i++) {
        unsigned place = (unsigned)(next_random(&state) % OBJECTS);
        cl_spin_lock(&places[place]);
        struct object *o = objects[place];
        if (next_random(&state) % 8 == 0) {
            object_end(o);
            objects[place] = object_new();
        } else {
            static const uint64_t most_ns[] = {1, 20000, 100000, 3000000};
            uint64_t delay_ns = next_random(&state) % most_ns[next_random(&state) % 4];
            cl_spin_lock(&o->lock);
            if (next_random(&state) % 4 == 0)
                cancel(o);
            else
                arm(o, clock_ns() + delay_ns);
            cl_spin_unlock(&o->lock);
        }
        cl_spin_unlock(&places[place]);
        if (next_random(&state) % 8 == 0)
            cl_uthread_yield();
        if (next_random(&state) % 128 == 0)
            cl_uthread_sleep_ns(next_random(&state) % 200000);
        if (next_random(&state) % 256 == 0)
            keep_busy(300000);
    }
}

static void root(void *arg)
{
    cl_uthread_id ids[WORKERS];
    (void)arg;
    for (unsigned i = 0; i < OBJECTS; i++)
        objects[i] = object_new();
    for (uintptr_t i = 0; i < WORKERS; i++)
        CHECK_EQ(cl_uthread_spawn(worker, (void *)i, &ids[i]), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK_EQ(cl_uthread_join(ids[i]), 0);
    /* What is still armed comes by itself. */
    while (__atomic_load_n(&over, __ATOMIC_RELAXED) < __atomic_load_n(&armed, __ATOMIC_RELAXED))
        cl_uthread_sleep_ns(100000);
    for (unsigned i = 0; i < OBJECTS; i++)
        object_end(objects[i]);
    CHECK_EQ(over, armed);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 3000;
    seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    struct cl_alarm a;
    cl_alarm_init(&a, on_alarm);
    CHECK_EQ(cl_alarm_arm(&a, 0), -EPERM);
    cl_alarm_remove(&a);
    c.watch_ns = 1000000; /* who sleeps finds a sibling that is away */
    struct cl_sched *s = sched_started(&c);
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    sched_stop_checked(s);
    uint64_t stolen = 0;
    for (unsigned k = 0; k < cl_sched_kthreads(s); k++) {
        struct cl_sched_stats st;
        CHECK_EQ(cl_sched_stats(s, k, &st), 0);
        stolen += st.stolen_timers;
    }
    cl_sched_delete(s);
    for (unsigned i = 0; i < OBJECTS; i++)
        free(graves[i]);
    printf("armed %llu moved %llu called %llu; run by siblings %llu\n", (unsigned long long)armed,
           (unsigned long long)moved, (unsigned long long)called, (unsigned long long)stolen);
    return 0;
}
