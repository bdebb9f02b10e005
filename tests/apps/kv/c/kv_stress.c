/* Threads that read, write, count, delete and flush the same keys of a store that is too small for them.
 *
 * Every value says which key it belongs to and repeats one number throughout, so a torn or misplaced read is seen.
 * Counting is checked in a run of its own, where nothing is evicted. usage: kv_stress THREADS ROUNDS PARTITIONS SEED
 * counting|mixed */
#include "apps/kv/store.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_PER_PARTITION 3000 /* twice what fits */
#define COUNTERS 8
#define VALUE_MAX 600

static struct cl_kv *store;
static uint64_t rounds, seed, keys;
static bool counting;
static uint32_t failures;

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static struct cl_kv_key key_of(char *text, const char *prefix, uint64_t number)
{
    int len = sprintf(text, "%s-%lu", prefix, (unsigned long)number);
    return (struct cl_kv_key){(uint8_t *)text, (uint32_t)len, cl_kv_hash_of(store, (uint8_t *)text, (uint32_t)len)};
}

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

/* A value: key number, then words that are all alike; its length is told by the flags. */
static void check_value(uint64_t number, const struct cl_kv_meta *meta, const uint8_t *value)
{
    uint64_t word, first = 0;
    if (meta->value_bytes != meta->flags || meta->value_bytes < 16) {
        fail("a value's length is not what was stored with it");
        return;
    }
    for (uint32_t at = 0; at + 8 <= meta->value_bytes; at += 8) {
        memcpy(&word, value + at, 8);
        if (at == 0 && word != number)
            fail("a value of another key");
        if (at == 8)
            first = word;
        if (at > 8 && word != first)
            fail("a torn value");
    }
}

static void write_one(struct cl_kv_thread *t, const struct cl_kv_key *key, uint64_t number, uint64_t *x)
{
    uint64_t value[VALUE_MAX / 8], fill = next(x);
    uint32_t bytes = 16 + (uint32_t)(next(x) % (VALUE_MAX - 16)) / 8 * 8;
    value[0] = number;
    for (uint32_t i = 1; i < bytes / 8; i++)
        value[i] = fill;
    cl_kv_store(t, key, CL_KV_SET, bytes, 0, (uint8_t *)value, bytes, 0);
}

static void mixed(struct cl_kv_thread *t, uint64_t *x)
{
    char text[64];
    uint8_t value[VALUE_MAX];
    struct cl_kv_meta meta;
    uint64_t number = next(x) % keys, what = next(x) % 100;
    struct cl_kv_key key = key_of(text, "key", number);
    if (what < 60) {
        if (cl_kv_get(t, &key, &meta, value, sizeof(value)) == CL_KV_OK)
            check_value(number, &meta, value);
    } else if (what < 90) {
        write_one(t, &key, number, x);
    } else if (what < 95) {
        cl_kv_delete_key(t, &key);
    } else if (what < 98) {
        cl_kv_touch(t, &key, 0);
    } else if (what < 99) {
        cl_kv_sweep(t, 100);
    } else if (next(x) % 2000 == 0) {
        cl_kv_flush_all(t, 0);
    }
}

static void count(struct cl_kv_thread *t, uint64_t *x)
{
    char text[64];
    uint64_t value;
    struct cl_kv_key key = key_of(text, "counter", next(x) % COUNTERS);
    if (cl_kv_delta(t, &key, true, 1, &value) != CL_KV_OK)
        fail("a counter is gone");
}

static void *work(void *arg)
{
    struct cl_kv_thread *t = arg;
    uint64_t x = seed + 977 * (t->id + 1);
    for (uint64_t i = 0; i < rounds; i++) {
        cl_kv_tick(t);
        if (counting)
            count(t, &x);
        else
            mixed(t, &x);
    }
    return NULL;
}

static uint64_t sum_of_counters(struct cl_kv_thread *t)
{
    uint64_t sum = 0, value;
    char text[64];
    for (unsigned i = 0; i < COUNTERS; i++) {
        struct cl_kv_key key = key_of(text, "counter", i);
        cl_kv_delta(t, &key, true, 0, &value);
        sum += value;
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    uint32_t n = (uint32_t)atoi(argv[1]);
    rounds = strtoull(argv[2], NULL, 10);
    seed = strtoull(argv[4], NULL, 10);
    counting = strcmp(argv[5], "counting") == 0;
    uint32_t partitions = (uint32_t)atoi(argv[3]);
    keys = KEYS_PER_PARTITION * partitions;
    struct cl_kv_config config = {.memory_bytes = partitions * (1ull << 20), .partitions = partitions, .threads = n};
    char err[256];
    if (cl_kv_new(&config, &store, err)) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    for (unsigned i = 0; i < COUNTERS; i++) {
        char text[64];
        struct cl_kv_key key = key_of(text, "counter", i);
        cl_kv_store(cl_kv_thread(store, 0), &key, CL_KV_SET, 0, 0, (const uint8_t *)"0", 1, 0);
    }
    pthread_t threads[64];
    for (uint32_t i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, work, cl_kv_thread(store, i));
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (counting && sum_of_counters(cl_kv_thread(store, 0)) != n * rounds)
        fail("counts were lost");
    if (cl_kv_check(store, err))
        fail(err);
    struct cl_kv_usage usage;
    struct cl_kv_counters counters;
    cl_kv_usage(store, &usage);
    cl_kv_counters(store, &counters);
    if (usage.live_bytes + usage.dead_bytes + usage.free_bytes != usage.log_bytes)
        fail("the log's bytes do not add up");
    if (!counting && (!usage.evictions || counters.cmd_get != counters.get_hits + counters.get_misses))
        fail("no evictions, or gets that neither hit nor missed");
    printf("hits %lu misses %lu evictions %lu moved %lu retries %lu\n", (unsigned long)counters.get_hits,
           (unsigned long)counters.get_misses, (unsigned long)usage.evictions, (unsigned long)usage.moved,
           (unsigned long)counters.read_retries);
    cl_kv_delete(store);
    return failures ? 1 : 0;
}
