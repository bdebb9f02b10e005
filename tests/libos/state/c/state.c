/* Shared state: a counter, a token bucket and an LRU table against models, and used by many uthreads at once.
 * Usage: state KTHREADS MODE SEED ROUNDS */
#include "tests/libos/sched/c/check.h"

#include <corelane/libos/scope.h>
#include <corelane/libos/state.h>

#define KEYS 40

static uint64_t seed, rounds;

/* Tokens at instants of a clock of its own: a bucket that is filled token by token says the same. */
static void bucket_is_as_its_model(void)
{
    struct cl_token_bucket *b;
    CHECK_EQ(cl_token_bucket_new(0, 1, &b), -EINVAL);
    CHECK_EQ(cl_token_bucket_new(1000000001, 1, &b), -EINVAL);
    CHECK_EQ(cl_token_bucket_new(1, 0, &b), -EINVAL);
    CHECK_EQ(cl_token_bucket_new(1, 400ull * 86400, &b), -EINVAL); /* more than a year's */
    CHECK_EQ(cl_token_bucket_new(1000000, 10, &b), 0);             /* one a microsecond */
    uint64_t state = seed, now = 123456789, full_at = now, taken = 0, refused = 0;
    CHECK_EQ(cl_token_bucket_take_at(b, 11, now), -EINVAL);
    for (uint64_t i = 0; i < 100000; i++) {
        now += next_random(&state) % 2000;
        uint64_t n = next_random(&state) % 4, from = full_at > now ? full_at : now;
        int64_t late = (int64_t)(from + 1000 * n) - (int64_t)(now + 10000);
        CHECK_EQ(cl_token_bucket_take_at(b, n, now), late > 0 ? late : 0);
        if (late <= 0) {
            full_at = from + 1000 * n;
            taken += n;
        } else {
            refused++;
            CHECK_EQ(cl_token_bucket_take_at(b, n, now + (uint64_t)late - 1), 1); /* as it said, and not before */
            refused++;
        }
    }
    CHECK(taken > 10000 && refused > 10000);
    CHECK_EQ(cl_token_bucket_taken(b), taken);
    CHECK_EQ(cl_token_bucket_refused(b), refused);
    cl_token_bucket_delete(b);
}

/* By a list in order of use. */
static void table_is_as_its_model(void)
{
    struct cl_lru *t;
    struct {
        uint32_t key, value[3];
    } model[10];
    uint32_t n = 0, value[3];
    uint64_t state = seed;
    CHECK_EQ(cl_lru_new(0, 4, 4, 0, &t), -EINVAL);
    CHECK_EQ(cl_lru_new(4, 0, 4, 0, &t), -EINVAL);
    CHECK_EQ(cl_lru_new(4, CL_LRU_KEY_BYTES + 1, 4, 0, &t), -EINVAL);
    CHECK_EQ(cl_lru_new(4, 4, CL_LRU_VALUE_BYTES + 1, 0, &t), -EINVAL);
    CHECK_EQ(cl_lru_new(4, 4, 4, 3, &t), -EINVAL);
    CHECK_EQ(cl_lru_new(4, 4, 4, 8, &t), -EINVAL);
    CHECK_EQ(cl_lru_new(10, 4, 12, 1, &t), 0);
    for (uint64_t i = 0; i < 100000; i++) {
        uint32_t key = (uint32_t)(next_random(&state) % 20), at = 0, how = (uint32_t)(next_random(&state) % 8);
        while (at < n && model[at].key != key)
            at++;
        if (how < 4) {
            CHECK_EQ(cl_lru_get(t, &key, value), at < n ? 0 : -ENOENT);
            if (at < n)
                CHECK(!memcmp(value, model[at].value, sizeof value));
        } else if (how < 7) {
            for (unsigned k = 0; k < 3; k++)
                value[k] = (uint32_t)next_random(&state);
            CHECK_EQ(cl_lru_put(t, &key, value), at == n && n == 10);
            if (at == n && n < 10)
                n++;
            at = at < n ? at : n - 1; /* the last one goes */
            model[at].key = key;
            memcpy(model[at].value, value, sizeof value);
        } else {
            CHECK_EQ(cl_lru_remove(t, &key), at < n ? 0 : -ENOENT);
            for (uint32_t k = at; at < n && k + 1 < n; k++)
                model[k] = model[k + 1];
            n -= at < n;
            CHECK_EQ(cl_lru_count(t), n);
            continue;
        }
        if (at < n) { /* to the front */
            typeof(model[0]) one = model[at];
            memmove(&model[1], &model[0], at * sizeof one);
            model[0] = one;
        }
        CHECK_EQ(cl_lru_count(t), n);
    }
    struct cl_lru_stats s;
    cl_lru_stats(t, &s);
    CHECK_EQ(s.inserted - s.evicted - s.removed, n);
    CHECK(s.hits && s.misses && s.replaced && s.evicted);
    cl_lru_delete(t);
    cl_lru_delete(NULL);
}

static struct cl_lru *table;
static struct cl_sharded_counter *counter;
static struct cl_token_bucket *bucket;

struct whole {
    uint64_t key, copy, other[5];
};

static int64_t work(void *arg)
{
    uint64_t state = seed + (uintptr_t)arg + 1;
    struct whole w;
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t key = next_random(&state) % KEYS;
        uint64_t how = next_random(&state) % 8;
        if (how < 4 && cl_lru_get(table, &key, &w) == 0) {
            CHECK(w.key == key && w.copy == ~key && w.other[4] == w.other[0]); /* whole, and its own */
        } else if (how < 7) {
            w = (struct whole){key, ~key, {i, 0, 0, 0, i}};
            CHECK(cl_lru_put(table, &key, &w) >= 0);
        } else {
            (void)cl_lru_remove(table, &key);
        }
        cl_sharded_counter_add(counter, (int64_t)i % 7 - 2);
        (void)cl_token_bucket_take(bucket, 1);
        if (i % 64 == 0)
            cl_uthread_yield();
    }
    return 0;
}

static void all_at_once(void *arg)
{
    struct cl_scope *scope;
    (void)arg;
    CHECK_EQ(cl_scope_open(CL_SCOPE_FOREVER, &scope), 0);
    for (uintptr_t i = 0; i < 8; i++)
        CHECK_EQ(cl_scope_spawn(scope, work, (void *)i), 0);
    CHECK_EQ(cl_scope_close(scope), 0);
}

static void run(struct cl_sched_config *c)
{
    struct cl_sched *s = sched_started(c);
    CHECK_EQ(cl_sched_run(s, all_at_once, NULL), 0);
    sched_stop_clean(s);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    rounds = argc > 4 ? strtoull(argv[4], NULL, 0) : 10000;
    bucket_is_as_its_model();
    table_is_as_its_model();
    CHECK_EQ(cl_lru_new(30, 8, sizeof(struct whole), 4, &table), 0);
    CHECK_EQ(cl_sharded_counter_new(&counter), 0);
    CHECK_EQ(cl_token_bucket_new(1000, 100, &bucket), 0);
    cl_sharded_counter_add(counter, 5); /* of no kthread */
    run(&c);
    run(&c); /* another scheduler: its kthreads have no lines of their own, or those of the first */
    int64_t sum = 5;
    for (uint64_t i = 0; i < rounds; i++)
        sum += 16 * ((int64_t)i % 7 - 2);
    CHECK_EQ(cl_sharded_counter_read(counter), sum);
    CHECK_EQ(cl_token_bucket_taken(bucket) + cl_token_bucket_refused(bucket), 16 * rounds);
    struct cl_lru_stats s;
    cl_lru_stats(table, &s);
    CHECK_EQ(cl_lru_count(table), s.inserted - s.evicted - s.removed);
    CHECK(cl_lru_count(table) <= 30);
    CHECK_EQ(cl_lru_key_bytes(table), 8);
    CHECK_EQ(cl_lru_value_bytes(table), sizeof(struct whole));
    cl_lru_delete(table);
    cl_sharded_counter_delete(counter);
    cl_token_bucket_delete(bucket);
    return 0;
}
