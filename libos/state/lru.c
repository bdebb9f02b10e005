/* A table of the most recently used keys: see corelane/libos/state.h.
 *
 * Each shard has entries in one block, chained from buckets by index (+ 1, 0: none), and in a list by use. Free entries
 * are chained, too. The hash is SipHash-1-3 with a random key: a stranger who chooses the keys cannot choose those that
 * meet in one chain. Tests: tests/libos/state/c/state.c, against a model. */
#include "../net/flow_hash.h"

#include <corelane/libos/spin.h>
#include <corelane/libos/state.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#define SHARD_ENTRIES 64 /* of the default number of shards */
#define SHARDS 16

struct entry {
    uint32_t chain;        /* in its bucket, or of free ones */
    uint32_t newer, older; /* by use */
    uint32_t hash;         /* its low half, so that few keys are compared for nothing */
    char bytes[];          /* key, value */
};

struct CL_ALIGNED(64) shard {
    struct cl_spin lock;
    uint32_t newest, oldest;
    uint32_t free, used; /* free: those that were removed; used: entries that ever were, from the first on */
    uint32_t count;      /* readers: any, relaxed */
    uint32_t capacity;   /* constant, as all below */
    uint32_t first;      /* of its entries */
    uint32_t first_bucket;
    struct cl_lru_stats stats; /* under the lock */
};

struct cl_lru {
    uint32_t key_bytes, value_bytes, entry_bytes;
    uint32_t shard_bits, bucket_mask; /* buckets of a shard: a power of two */
    struct cl_flow_secret secret;
    struct shard *shards;
    uint32_t *buckets;
    char *entries;
    size_t memory_bytes;
};

static uint32_t power_of_two(uint64_t least)
{
    uint32_t n = 1;
    while (n < least)
        n *= 2;
    return n;
}

/* Memory in one mapping: shards, buckets, entries. */
static int map(struct cl_lru *t, uint32_t capacity, uint32_t shards, uint32_t buckets)
{
    size_t for_shards = shards * sizeof(struct shard), for_buckets = (size_t)shards * buckets * sizeof *t->buckets;
    t->memory_bytes = for_shards + for_buckets + (size_t)capacity * t->entry_bytes;
    void *memory =
        mmap(NULL, t->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    t->shards = memory;
    t->buckets = (uint32_t *)((char *)memory + for_shards);
    t->entries = (char *)memory + for_shards + for_buckets;
    return 0;
}

int cl_lru_new(uint32_t capacity, uint32_t key_bytes, uint32_t value_bytes, uint32_t shards, struct cl_lru **out)
{
    if (!shards)
        shards = cl_min(power_of_two(capacity / SHARD_ENTRIES + 1), (uint32_t)SHARDS);
    if (capacity < 1 || capacity > CL_LRU_CAPACITY || key_bytes < 1 || key_bytes > CL_LRU_KEY_BYTES ||
        value_bytes > CL_LRU_VALUE_BYTES || shards > CL_LRU_SHARDS || (shards & (shards - 1)) || shards > capacity)
        return -EINVAL;
    struct cl_lru *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    uint32_t buckets = power_of_two(capacity / shards + 1);
    t->key_bytes = key_bytes;
    t->value_bytes = value_bytes;
    t->entry_bytes = (uint32_t)(sizeof(struct entry) + key_bytes + value_bytes + 7) & ~7u;
    t->shard_bits = (uint32_t)__builtin_ctz(shards);
    t->bucket_mask = buckets - 1;
    int rc = getrandom(&t->secret, sizeof t->secret, 0) == sizeof t->secret ? 0 : -EIO;
    rc = rc ? rc : map(t, capacity, shards, buckets);
    if (rc) {
        free(t);
        return rc;
    }
    for (uint32_t i = 0, first = 0; i < shards; i++) {
        struct shard *s = &t->shards[i];
        s->capacity = capacity / shards + (i < capacity % shards);
        s->first = first;
        s->first_bucket = i * buckets;
        first += s->capacity;
    }
    *out = t;
    return 0;
}

void cl_lru_delete(struct cl_lru *t)
{
    if (!t)
        return;
    munmap(t->shards, t->memory_bytes);
    free(t);
}

static uint64_t hash_of(const struct cl_lru *t, const void *key)
{
    const uint64_t k0 = t->secret.k0, k1 = t->secret.k1;
    struct cl_sip s = {k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull, k0 ^ 0x6c7967656e657261ull,
                       k1 ^ 0x7465646279746573ull};
    const char *at = key;
    uint32_t left = t->key_bytes;
    for (; left >= 8; left -= 8, at += 8)
        cl_sip_word(&s, cl_get64(at), 1);
    uint64_t last = (uint64_t)t->key_bytes << 56;
    memcpy(&last, at, left);
    cl_sip_word(&s, last, 1);
    s.v2 ^= 0xff;
    for (unsigned i = 0; i < 3; i++)
        cl_sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

static struct entry *entry_at(const struct cl_lru *t, const struct shard *s, uint32_t index)
{
    return (struct entry *)(t->entries + (size_t)(s->first + index - 1) * t->entry_bytes);
}

static uint32_t *bucket_of(const struct cl_lru *t, const struct shard *s, uint32_t hash)
{
    return &t->buckets[s->first_bucket + (hash & t->bucket_mask)];
}

/* The place of the index of the key's entry, in its bucket's chain: *place is 0 if there is none. */
static uint32_t *find(const struct cl_lru *t, const struct shard *s, uint32_t hash, const void *key)
{
    uint32_t *place = bucket_of(t, s, hash);
    while (*place) {
        struct entry *e = entry_at(t, s, *place);
        if (e->hash == hash && !memcmp(e->bytes, key, t->key_bytes))
            break;
        place = &e->chain;
    }
    return place;
}

/* The list by use. */

static void unlink_use(const struct cl_lru *t, struct shard *s, const struct entry *e)
{
    *(e->newer ? &entry_at(t, s, e->newer)->older : &s->newest) = e->older;
    *(e->older ? &entry_at(t, s, e->older)->newer : &s->oldest) = e->newer;
}

static void link_newest(const struct cl_lru *t, struct shard *s, uint32_t index)
{
    struct entry *e = entry_at(t, s, index);
    e->newer = 0;
    e->older = s->newest;
    *(s->newest ? &entry_at(t, s, s->newest)->newer : &s->oldest) = index;
    s->newest = index;
}

static void use(const struct cl_lru *t, struct shard *s, uint32_t index)
{
    if (s->newest == index)
        return;
    unlink_use(t, s, entry_at(t, s, index));
    link_newest(t, s, index);
}

/* Take the entry at *place out of chain and list. */
static uint32_t take_out(const struct cl_lru *t, struct shard *s, uint32_t *place)
{
    uint32_t index = *place;
    struct entry *e = entry_at(t, s, index);
    *place = e->chain;
    unlink_use(t, s, e);
    cl_store_relaxed(&s->count, s->count - 1);
    return index;
}

static struct shard *lock_shard(struct cl_lru *t, uint64_t hash)
{
    struct shard *s = &t->shards[t->shard_bits ? hash >> (64 - t->shard_bits) : 0];
    cl_spin_lock(&s->lock);
    return s;
}

int cl_lru_get(struct cl_lru *t, const void *key, void *value)
{
    uint64_t hash = hash_of(t, key);
    struct shard *s = lock_shard(t, hash);
    uint32_t index = *find(t, s, (uint32_t)hash, key);
    if (index) {
        use(t, s, index);
        if (value)
            memcpy(value, entry_at(t, s, index)->bytes + t->key_bytes, t->value_bytes);
    }
    s->stats.hits += index != 0;
    s->stats.misses += index == 0;
    cl_spin_unlock(&s->lock);
    return index ? 0 : -ENOENT;
}

/* An entry for a new key: one that was removed, one that never was, or the oldest one, which goes. */
static uint32_t make_room(const struct cl_lru *t, struct shard *s, bool *evicted)
{
    uint32_t index = s->free;
    *evicted = false;
    if (index) {
        s->free = entry_at(t, s, index)->chain;
    } else if (s->used < s->capacity) {
        index = ++s->used;
    } else {
        const struct entry *oldest = entry_at(t, s, s->oldest);
        index = take_out(t, s, find(t, s, oldest->hash, oldest->bytes));
        *evicted = true;
    }
    return index;
}

int cl_lru_put(struct cl_lru *t, const void *key, const void *value)
{
    uint64_t hash = hash_of(t, key);
    struct shard *s = lock_shard(t, hash);
    uint32_t index = *find(t, s, (uint32_t)hash, key);
    bool evicted = false, there = index != 0;
    if (there) {
        use(t, s, index);
    } else {
        index = make_room(t, s, &evicted);
        struct entry *e = entry_at(t, s, index);
        uint32_t *bucket = bucket_of(t, s, (uint32_t)hash);
        e->hash = (uint32_t)hash;
        e->chain = *bucket;
        memcpy(e->bytes, key, t->key_bytes);
        *bucket = index;
        link_newest(t, s, index);
        cl_store_relaxed(&s->count, s->count + 1);
    }
    memcpy(entry_at(t, s, index)->bytes + t->key_bytes, value, t->value_bytes);
    s->stats.replaced += there;
    s->stats.inserted += !there;
    s->stats.evicted += evicted;
    cl_spin_unlock(&s->lock);
    return evicted;
}

int cl_lru_remove(struct cl_lru *t, const void *key)
{
    uint64_t hash = hash_of(t, key);
    struct shard *s = lock_shard(t, hash);
    uint32_t *place = find(t, s, (uint32_t)hash, key);
    bool there = *place != 0;
    if (there) {
        uint32_t index = take_out(t, s, place);
        entry_at(t, s, index)->chain = s->free;
        s->free = index;
    }
    s->stats.removed += there;
    cl_spin_unlock(&s->lock);
    return there ? 0 : -ENOENT;
}

uint32_t cl_lru_count(const struct cl_lru *t)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 1u << t->shard_bits; i++)
        sum += cl_load_relaxed(&t->shards[i].count);
    return sum;
}

uint32_t cl_lru_key_bytes(const struct cl_lru *t)
{
    return t->key_bytes;
}

uint32_t cl_lru_value_bytes(const struct cl_lru *t)
{
    return t->value_bytes;
}

void cl_lru_stats(struct cl_lru *t, struct cl_lru_stats *out)
{
    *out = (struct cl_lru_stats){0};
    for (uint32_t i = 0; i < 1u << t->shard_bits; i++) {
        struct shard *s = &t->shards[i];
        cl_spin_lock(&s->lock);
        out->hits += s->stats.hits;
        out->misses += s->stats.misses;
        out->inserted += s->stats.inserted;
        out->replaced += s->stats.replaced;
        out->evicted += s->stats.evicted;
        out->removed += s->stats.removed;
        cl_spin_unlock(&s->lock);
    }
}
