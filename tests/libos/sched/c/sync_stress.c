/* All primitives at once, on several kthreads, each with an invariant that one lost or doubled wake-up breaks.
 * Usage: sync_stress KTHREADS MODE SCALE SEED */
#include "check.h"

#define WORKERS 12

static unsigned scale;
static uint64_t seed;

/* Mutual exclusion: plain counters under a mutex, taken in three ways, with yields inside. */
static struct cl_mutex mutex;
static uint64_t counter, inside;

static void count_locked(void *arg)
{
    uint64_t state = seed + (uintptr_t)arg + 1;
    for (unsigned i = 0; i < scale; i++) {
        if (next_random(&state) % 4 || cl_mutex_trylock(&mutex))
            CHECK_EQ(cl_mutex_lock(&mutex), 0);
        CHECK_EQ(inside++, 0);
        counter++;
        if (next_random(&state) % 8 == 0)
            cl_uthread_yield();
        CHECK_EQ(--inside, 0);
        CHECK_EQ(cl_mutex_unlock(&mutex), 0);
        if (next_random(&state) % 16 == 0)
            cl_uthread_yield();
    }
}

/* A bounded buffer with two condition variables: each item goes in and out once, in order for each producer. */
static struct {
    struct cl_mutex m;
    struct cl_cond not_full, not_empty;
    uint64_t items[8];
    unsigned first, n;
    uint64_t produced, consumed, sum_in, sum_out, timeouts;
} buffer;

#define STOP UINT64_MAX

static void put(uint64_t item)
{
    cl_mutex_lock(&buffer.m);
    while (buffer.n == 8)
        CHECK_EQ(cl_cond_wait(&buffer.not_full, &buffer.m), 0);
    buffer.items[(buffer.first + buffer.n++) % 8] = item;
    cl_cond_signal(&buffer.not_empty);
    cl_mutex_unlock(&buffer.m);
}

static void produce(void *arg)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < scale; i++) {
        put((uintptr_t)arg * 1000003 + i);
        sum += (uintptr_t)arg * 1000003 + i;
    }
    __atomic_fetch_add(&buffer.sum_in, sum, __ATOMIC_RELAXED);
}

static void consume(void *arg)
{
    (void)arg;
    for (;;) {
        cl_mutex_lock(&buffer.m);
        while (buffer.n == 0) {
            /* Short time-outs, so that expiry races with signals all the time. */
            uint64_t soon = cl_sched_now_ns(cl_sched_self()) + 20000;
            int rc = cl_cond_wait_until(&buffer.not_empty, &buffer.m, soon);
            CHECK(rc == 0 || rc == -ETIMEDOUT);
            buffer.timeouts += rc != 0;
        }
        uint64_t item = buffer.items[buffer.first];
        buffer.first = (buffer.first + 1) % 8;
        buffer.n--;
        if (item != STOP) {
            buffer.consumed++;
            buffer.sum_out += item;
        }
        cl_cond_signal(&buffer.not_full);
        cl_mutex_unlock(&buffer.m);
        if (item == STOP)
            return;
    }
}

/* A barrier by broadcast: nobody is ever a round ahead. */
static struct {
    struct cl_mutex m;
    struct cl_cond c;
    unsigned arrived, round;
} barrier;

static void meet(void *arg)
{
    (void)arg;
    for (unsigned round = 0; round < scale / 4; round++) {
        cl_mutex_lock(&barrier.m);
        CHECK_EQ(barrier.round, round);
        if (++barrier.arrived == WORKERS) {
            barrier.arrived = 0;
            barrier.round++;
            cl_cond_broadcast(&barrier.c);
        } else {
            while (barrier.round == round)
                CHECK_EQ(cl_cond_wait(&barrier.c, &barrier.m), 0);
        }
        cl_mutex_unlock(&barrier.m);
    }
}

/* A token that goes round a ring of semaphores; and permits that are never more than two at a time. */
static struct cl_sem ring[WORKERS], permits;
static uint64_t hops;
static int permits_out;

static void pass_on(void *arg)
{
    uintptr_t me = (uintptr_t)arg;
    for (unsigned i = 0; i < scale; i++) {
        CHECK_EQ(cl_sem_wait(&ring[me]), 0);
        hops++; /* plain: only the holder of the token counts */
        cl_sem_post(&ring[(me + 1) % WORKERS]);
    }
}

static void use_permit(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < scale; i++) {
        uint64_t soon = cl_sched_now_ns(cl_sched_self()) + 10000;
        if (cl_sem_wait_until(&permits, soon) == -ETIMEDOUT)
            CHECK_EQ(cl_sem_wait(&permits), 0);
        CHECK(__atomic_add_fetch(&permits_out, 1, __ATOMIC_ACQ_REL) <= 2);
        if (i % 4 == 0)
            cl_uthread_yield();
        __atomic_sub_fetch(&permits_out, 1, __ATOMIC_ACQ_REL);
        cl_sem_post(&permits);
    }
}

static void all(cl_uthread_fn fn)
{
    cl_uthread_id ids[WORKERS];
    for (uintptr_t i = 0; i < WORKERS; i++)
        CHECK_EQ(cl_uthread_spawn(fn, (void *)i, &ids[i]), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK_EQ(cl_uthread_join(ids[i]), 0);
}

/* A wait group on the stack that goes as soon as the wait is over: the last done must not touch it any more. */
static void finish_one(void *arg)
{
    cl_wait_group_done(arg);
}

static void use_groups(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < scale / 4; i++) {
        struct cl_wait_group *g = malloc(sizeof *g);
        cl_wait_group_init(g);
        CHECK_EQ(cl_wait_group_add(g, 3), 0);
        for (unsigned n = 0; n < 3; n++)
            CHECK_EQ(cl_uthread_spawn(finish_one, g, NULL), 0);
        CHECK_EQ(cl_wait_group_wait(g), 0);
        free(g);
    }
}

static void test_buffer(void)
{
    cl_uthread_id consumers[3], producers[WORKERS];
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(cl_uthread_spawn(consume, NULL, &consumers[i]), 0);
    for (uintptr_t i = 0; i < WORKERS; i++)
        CHECK_EQ(cl_uthread_spawn(produce, (void *)i, &producers[i]), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK_EQ(cl_uthread_join(producers[i]), 0);
    for (unsigned i = 0; i < 3; i++)
        put(STOP);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(cl_uthread_join(consumers[i]), 0);
    CHECK_EQ(buffer.consumed, (uint64_t)WORKERS * scale);
    CHECK_EQ(buffer.sum_out, buffer.sum_in);
    printf("buffer: %llu time-outs\n", (unsigned long long)buffer.timeouts);
}

static void root(void *arg)
{
    (void)arg;
    all(count_locked);
    CHECK_EQ(counter, (uint64_t)WORKERS * scale);
    CHECK_EQ(mutex.word, 0);
    test_buffer();
    all(meet);
    cl_sem_post(&ring[0]);
    all(pass_on);
    CHECK_EQ(hops, (uint64_t)WORKERS * scale);
    CHECK_EQ(cl_sem_value(&ring[0]), 1);
    cl_sem_init(&permits, 2);
    all(use_permit);
    CHECK_EQ(cl_sem_value(&permits), 2);
    all(use_groups);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    scale = argc > 3 ? (unsigned)atoi(argv[3]) : 400;
    seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    struct cl_sched *s = sched_started(&c);
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    sched_stop_clean(s);
    return 0;
}
