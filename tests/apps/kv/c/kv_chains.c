/* Chains that grow and shrink under lock-free readers, with keys whose tag is 0: any small number looks like their
 * slot.
 *
 * The store has 16 buckets and 4 overflow buckets; the keys, found by search, fall into two of the buckets. Writers
 * store and delete them at random, so that overflow buckets are taken and given back all the time, while readers ask
 * for them. A second part holds a bucket in the middle of a change and checks that a reader waits for the lock and does
 * not spin. usage: kv_chains READERS ROUNDS SEED */
#include "apps/kv/layout.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define CHAINS 2
#define KEYS 19 /* a chain: two overflow buckets, full; a prime, so that every step goes round */
#define WRITERS 2

struct text {
    char bytes[16];
    uint32_t len;
    uint64_t hash;
};

static struct cl_kv *store;
static struct text keys[CHAINS * KEYS];
static uint64_t rounds, seed;
static uint32_t failures, writing;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* KEYS names with tag 0 for each of the first CHAINS buckets. */
static void find_keys(void)
{
    unsigned found[CHAINS] = {0}, all = 0;
    for (uint64_t number = 0; all < CHAINS * KEYS; number++) {
        struct text t;
        t.len = (uint32_t)snprintf(t.bytes, sizeof(t.bytes), "%lx", (unsigned long)number);
        t.hash = cl_kv_hash_of(store, (uint8_t *)t.bytes, t.len);
        uint64_t bucket = t.hash & store->partitions[0].bucket_mask;
        if (kv_tag(t.hash) || bucket >= CHAINS || found[bucket] == KEYS)
            continue;
        keys[bucket * KEYS + found[bucket]++] = t;
        all++;
    }
}

static struct cl_kv_key key_of(unsigned i)
{
    return (struct cl_kv_key){(const uint8_t *)keys[i].bytes, keys[i].len, keys[i].hash};
}

/* Each writer has a chain of its own: fill it, then empty it, in an order that is new every time. */
static void *write_chain(void *arg)
{
    struct cl_kv_thread *t = arg;
    uint64_t x = seed + 31 * (t->id + 1);
    unsigned first = t->id % CHAINS * KEYS;
    for (uint64_t i = 0; i < rounds; i++) {
        unsigned step = 1 + (unsigned)(next(&x) % (KEYS - 1)), at = (unsigned)(next(&x) % KEYS);
        for (unsigned k = 0; k < KEYS; k++, at = (at + step) % KEYS) {
            struct cl_kv_key key = key_of(first + at);
            uint64_t value[2] = {first + at, first + at};
            if (cl_kv_store(t, &key, CL_KV_SET, 0, 0, (uint8_t *)value, sizeof(value), 0))
                fail("a key was not stored");
        }
        for (unsigned k = 0; k < KEYS; k++, at = (at + step) % KEYS) {
            struct cl_kv_key key = key_of(first + at);
            if (cl_kv_delete_key(t, &key))
                fail("a key that was stored is not there");
        }
    }
    __atomic_fetch_sub(&writing, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *read_chains(void *arg)
{
    struct cl_kv_thread *t = arg;
    uint64_t x = seed + 977 * (t->id + 1);
    while (__atomic_load_n(&writing, __ATOMIC_ACQUIRE)) {
        unsigned i = (unsigned)(next(&x) % (CHAINS * KEYS));
        struct cl_kv_key key = key_of(i);
        struct cl_kv_meta meta;
        uint64_t value[2] = {0, 0};
        kv_prefetch_item(store, key.hash);
        if (cl_kv_get(t, &key, &meta, (uint8_t *)value, sizeof(value)) != CL_KV_OK)
            continue;
        if (meta.value_bytes != sizeof(value) || value[0] != i || value[1] != i)
            fail("a torn value, or another key's");
    }
    return NULL;
}

static void *read_first(void *arg)
{
    struct cl_kv_key key = key_of(0);
    struct cl_kv_meta meta;
    uint64_t value = 0;
    if (cl_kv_get(arg, &key, &meta, (uint8_t *)&value, sizeof(value)) != CL_KV_OK || value != 42)
        fail("a reader that waited for the lock did not get the value");
    return NULL;
}

/* A writer that stays in the middle of a change: the reader tries KV_READ_TRIES times and then waits for the lock. */
static void reader_takes_the_lock(struct cl_kv_thread *writer, struct cl_kv_thread *reader)
{
    struct cl_kv_key key = key_of(0);
    struct kv_partition *p = kv_partition_of(store, key.hash);
    struct kv_bucket *head = kv_bucket_of(p, key.hash);
    uint64_t value = 42, before = cl_load_relaxed(&reader->counters.read_retries);
    cl_kv_store(writer, &key, CL_KV_SET, 0, 0, (uint8_t *)&value, sizeof(value), 0);
    kv_lock(p);
    kv_bucket_enter(head);
    pthread_t thread;
    pthread_create(&thread, NULL, read_first, reader);
    while (cl_load_relaxed(&reader->counters.read_retries) - before < KV_READ_TRIES)
        sched_yield();
    for (unsigned i = 0; i < 10000; i++) /* a reader that still spins goes on counting */
        sched_yield();
    if (cl_load_relaxed(&reader->counters.read_retries) - before != KV_READ_TRIES)
        fail("a reader went on spinning while a writer held the bucket");
    kv_bucket_leave(head);
    kv_unlock(p);
    pthread_join(thread, NULL);
}

/* A look ahead sends for the bytes that an item has, whatever its size. */
static void looks_ahead_at_items(struct cl_kv_thread *t)
{
    static const uint32_t sizes[] = {0, 1, 8, 63, 64, 65, 300, 1300, 4000};
    static const uint8_t value[4000];
    struct cl_kv_key key = key_of(0);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t bytes = KV_HEADER_BYTES + (key.len + 7) / 8 * 8 + (sizes[i] + 7) / 8 * 8;
        cl_kv_delete_key(t, &key);
        if (cl_kv_store(t, &key, CL_KV_SET, 0, 0, value, sizes[i], 0) ||
            kv_prefetch_item(store, key.hash) != cl_min(bytes, KV_SLOT_BYTES_MAX))
            fail("a look ahead does not know how large an item is");
    }
    cl_kv_delete_key(t, &key);
    if (kv_prefetch_item(store, key.hash))
        fail("a look ahead sees an item that is not there");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint32_t readers = (uint32_t)atoi(argv[1]), n = WRITERS + readers;
    rounds = strtoull(argv[2], NULL, 10);
    seed = strtoull(argv[3], NULL, 10);
    struct cl_kv_config config = {.memory_bytes = 1 << 20, .index_bytes = 1, .threads = n, .seed = seed + 1};
    char err[256];
    if (readers > 16 || cl_kv_new(&config, &store, err)) {
        fprintf(stderr, "%s\n", readers > 16 ? "16 readers at most" : err);
        return 1;
    }
    find_keys();
    pthread_t threads[WRITERS + 16];
    writing = WRITERS;
    for (uint32_t i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, i < WRITERS ? write_chain : read_chains, cl_kv_thread(store, i));
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    struct cl_kv_usage usage;
    cl_kv_usage(store, &usage);
    if (usage.items || usage.overflow_buckets)
        fail("the chains are not empty at the end");
    if (store->partitions[0].overflow_fresh < 2)
        fail("no chain was as long as it should have been");
    reader_takes_the_lock(cl_kv_thread(store, 0), cl_kv_thread(store, 1));
    looks_ahead_at_items(cl_kv_thread(store, 0));
    if (cl_kv_check(store, err))
        fail(err);
    struct cl_kv_counters counters;
    cl_kv_counters(store, &counters);
    printf("hits %lu misses %lu retries %lu\n", (unsigned long)counters.get_hits, (unsigned long)counters.get_misses,
           (unsigned long)counters.read_retries);
    cl_kv_delete(store);
    return failures ? 1 : 0;
}
