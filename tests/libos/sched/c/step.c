/* Deterministic mode: the test's own thread is each kthread in turn, time is a variable. A random program gives the
 * same trace for the same seed; timers fire in order and not early; stealing happens between steps. Usage: step SEED */
#include "check.h"

#define TRACE 20000

static uint64_t now_ns, seed;
static uint32_t trace[2][TRACE], n_trace, run_no;

static void note(uint32_t what)
{
    CHECK(n_trace < TRACE);
    trace[run_no][n_trace++] = what << 8 | (uint32_t)cl_kthread_index();
}

static struct cl_mutex m;
static struct cl_sem sem;

static void actor(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg;
    uint64_t state = seed * 31 + me + 1;
    for (unsigned i = 0; i < 40; i++) {
        uint64_t until = now_ns + next_random(&state) % 1000;
        switch (next_random(&state) % 5) {
        case 0:
            cl_uthread_yield();
            break;
        case 1:
            CHECK_EQ(cl_uthread_sleep_until_ns(until), 0);
            CHECK(now_ns >= until);
            break;
        case 2:
            CHECK_EQ(cl_mutex_lock(&m), 0);
            cl_uthread_yield();
            CHECK_EQ(cl_mutex_unlock(&m), 0);
            break;
        case 3:
            cl_sem_post(&sem);
            CHECK_EQ(cl_sem_wait(&sem), 0);
            break;
        case 4:
            if (cl_sem_wait_until(&sem, until) == -ETIMEDOUT)
                CHECK(now_ns >= until);
            else
                cl_sem_post(&sem);
            break;
        }
        note(me * 64 + i);
    }
}

static void run_once(void)
{
    struct cl_sched_config c;
    char err[256];
    uint64_t state = seed + 7;
    cl_sched_config_init(&c);
    c.n_kthreads = 3;
    struct cl_clock clock;
    cl_clock_virtual(&clock, &now_ns);
    c.clock = &clock;
    struct cl_sched *s = sched_new(&c);
    now_ns = 1000;
    n_trace = 0;
    CHECK_EQ(cl_sched_step(s, 3), -EINVAL);
    for (uintptr_t i = 0; i < 50; i++)
        CHECK_EQ(cl_sched_spawn(s, actor, (void *)i), 0);
    for (unsigned turns = 0; cl_sched_live(s); turns++) {
        CHECK(turns < 1000000);
        if (cl_sched_step(s, next_random(&state) % 3) == 0)
            now_ns += next_random(&state) % 50;
    }
    CHECK_EQ(n_trace, 50 * 40);
    uint64_t stolen = 0;
    for (unsigned k = 0; k < 3; k++) {
        struct cl_sched_stats st;
        cl_sched_stats(s, k, &st);
        stolen += st.stolen_uthreads;
        CHECK_EQ(st.parks, 0);
    }
    CHECK(stolen > 0);
    CHECK_EQ(cl_sched_stop(s, -1), 0);
    CHECK_EQ(cl_sched_start(s, err), -EALREADY);
    cl_sched_delete(s);
}

/* Timers of random deadlines fire in order of deadline, none before it, cancelled ones never. */
static uint64_t last_deadline, fired;

static void in_order(struct cl_timer *t, void *arg)
{
    CHECK(t->deadline_ns >= last_deadline && t->deadline_ns <= now_ns);
    CHECK(arg == NULL);
    last_deadline = t->deadline_ns;
    fired++;
}

#define TIMERS 3000
static struct cl_timer timers[TIMERS];

static void arm_all(void *arg)
{
    uint64_t *state = arg;
    for (unsigned i = 0; i < TIMERS; i++) {
        cl_timer_init(&timers[i], in_order, NULL);
        CHECK_EQ(cl_timer_arm(&timers[i], now_ns + next_random(state) % 100000), 0);
        struct cl_timer *other = &timers[next_random(state) % (i + 1)];
        if (i % 3 == 0)
            CHECK_EQ(cl_timer_arm(other, now_ns + next_random(state) % 100000), 0); /* moved */
    }
    for (unsigned i = 0; i < TIMERS; i += 5) {
        CHECK_EQ(cl_timer_cancel(&timers[i]), 1);
        CHECK_EQ(cl_timer_cancel(&timers[i]), 0);
        timers[i].arg = timers; /* would be noticed */
    }
}

static void test_timer_order(void)
{
    struct cl_sched_config c;
    uint64_t state = seed + 99;
    cl_sched_config_init(&c);
    struct cl_clock clock;
    cl_clock_virtual(&clock, &now_ns);
    c.clock = &clock;
    struct cl_sched *s = sched_new(&c);
    CHECK_EQ(cl_sched_spawn(s, arm_all, &state), 0);
    CHECK(cl_sched_step(s, 0) > 0);
    for (unsigned turns = 0; fired < TIMERS - TIMERS / 5; turns++) {
        CHECK(turns < 1000000);
        if (cl_sched_step(s, 0) == 0)
            now_ns += next_random(&state) % 300;
    }
    now_ns += 1000000;
    CHECK_EQ(cl_sched_step(s, 0), 0);
    CHECK_EQ(cl_sched_stop(s, 0), 0);
    cl_sched_delete(s);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    for (run_no = 0; run_no < 2; run_no++) {
        memset(&m, 0, sizeof m);
        memset(&sem, 0, sizeof sem);
        run_once();
    }
    CHECK_EQ(memcmp(trace[0], trace[1], sizeof trace[0]), 0);
    test_timer_order();
    return 0;
}
