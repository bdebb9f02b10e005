/* Timers: order, cancelling against firing on other kthreads, re-arming from the callback, memory that goes as soon as
 * cancel has returned. Usage: timers KTHREADS MODE ROUNDS SEED */
#include "check.h"

#define SLOTS 64

static unsigned rounds;
static uint64_t seed;

struct item {
    struct cl_timer timer;
    uint64_t *fired; /* outlives the item */
    uint32_t armed_again;
    uint32_t magic;
};

static void on_fire(struct cl_timer *timer, void *arg)
{
    struct item *item = arg;
    CHECK(&item->timer == timer);
    CHECK_EQ(item->magic, 0xfeed);
    __atomic_fetch_add(item->fired, 1, __ATOMIC_RELAXED);
    if (item->armed_again) {
        item->armed_again--;
        CHECK_EQ(cl_timer_arm(timer, cl_sched_now_ns(cl_sched_self()) + 1000), 0);
    }
}

/* Each uthread arms timers of its own and moves, cancels and frees them at random; yields move it between kthreads. */
static void churn(void *arg)
{
    uint64_t state = seed + (uintptr_t)arg * 7919 + 1, armed = 0, cancelled = 0, again = 0, fired = 0;
    struct item *items[SLOTS] = {0};
    for (unsigned i = 0; i < rounds; i++) {
        unsigned slot = next_random(&state) % SLOTS;
        uint64_t delay = next_random(&state) % 30000;
        if (!items[slot]) {
            struct item *item = items[slot] = malloc(sizeof *item);
            item->fired = &fired;
            item->magic = 0xfeed;
            item->armed_again = next_random(&state) % 3;
            again += item->armed_again;
            cl_timer_init(&item->timer, on_fire, item);
            CHECK_EQ(cl_timer_arm(&item->timer, cl_sched_now_ns(cl_sched_self()) + delay), 0);
            armed++;
        } else {
            int rc = cl_timer_cancel(&items[slot]->timer);
            CHECK(rc == 0 || rc == 1);
            cancelled += (unsigned)rc;
            again -= items[slot]->armed_again; /* plain: no callback runs any more */
            memset(items[slot], 0, sizeof *items[slot]);
            free(items[slot]);
            items[slot] = NULL;
        }
        if (next_random(&state) % 8 == 0)
            cl_uthread_yield();
        if (next_random(&state) % 64 == 0)
            cl_uthread_sleep_ns(next_random(&state) % 20000);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        if (items[i]) {
            cancelled += (unsigned)cl_timer_cancel(&items[i]->timer);
            again -= items[i]->armed_again;
            free(items[i]);
        }
    CHECK_EQ(armed + again, cancelled + __atomic_load_n(&fired, __ATOMIC_RELAXED));
}

static void root(void *arg)
{
    cl_uthread_id ids[8];
    (void)arg;
    for (uintptr_t i = 0; i < 8; i++)
        CHECK_EQ(cl_uthread_spawn(churn, (void *)i, &ids[i]), 0);
    for (unsigned i = 0; i < 8; i++)
        CHECK_EQ(cl_uthread_join(ids[i]), 0);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    struct cl_timer t;
    rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 3000;
    seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    cl_timer_init(&t, on_fire, NULL);
    CHECK_EQ(cl_timer_arm(&t, 0), -EPERM);
    CHECK_EQ(cl_timer_cancel(&t), 0);
    struct cl_sched *s = sched_started(&c);
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    sched_stop_clean(s);
    return 0;
}
