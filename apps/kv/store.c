/* Making, describing and checking a store. */
#include "layout.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#define MIB (1ull << 20)
#define HUGE_BYTES (2 * MIB)
#define LOG_SLACK_BYTES 512 /* a lock-free reader of a stale slot may read this far past an item's start */

void kv_lock(struct kv_partition *p)
{
    for (unsigned tries = 0;; tries++) {
        /* Acquire: what the last holder did is seen. */
        if (!cl_load_relaxed(&p->lock) && !__atomic_exchange_n(&p->lock, 1, __ATOMIC_ACQUIRE))
            return;
        cl_relax();
        if (tries > 200) /* the holder lost its core: let it have this one */
            sched_yield();
    }
}

void kv_unlock(struct kv_partition *p)
{
    cl_store_release(&p->lock, 0); /* release: the next holder sees what we did */
}

static uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static void *map_arena(uint64_t bytes, uint32_t wanted, uint32_t *granted)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    *granted = wanted;
    if (wanted == 2)
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, (flags & ~MAP_NORESERVE) | MAP_HUGETLB, -1, 0);
    void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (arena != MAP_FAILED && wanted == 1 && madvise(arena, bytes, MADV_HUGEPAGE) != 0)
        *granted = 0;
    return arena;
}

static int refuse(char err[256], int code, const char *why)
{
    snprintf(err, 256, "%s", why);
    return code;
}

static int check_config(const struct cl_kv_config *c, char err[256])
{
    if (c->memory_bytes < MIB || c->memory_bytes > (1ull << 42))
        return refuse(err, -EINVAL, "memory_bytes must be from 1 MiB to 4 TiB");
    if (!c->partitions || (c->partitions & (c->partitions - 1)) || c->partitions > CL_KV_MAX_PARTITIONS)
        return refuse(err, -EINVAL, "partitions must be a power of two, at most 64");
    if (c->memory_bytes / c->partitions < MIB)
        return refuse(err, -EINVAL, "memory_bytes must be at least 1 MiB a partition");
    if (!c->threads || c->threads > 1024)
        return refuse(err, -EINVAL, "threads must be from 1 to 1024");
    if (c->huge_pages > 2)
        return refuse(err, -EINVAL, "huge_pages must be 0, 1 or 2");
    if (c->index_bytes > c->memory_bytes / 2)
        return refuse(err, -EINVAL, "index_bytes must be at most half of memory_bytes");
    return 0;
}

/* How the arena is divided. */
struct plan {
    uint64_t arena_bytes, heading_bytes;
    uint64_t n_buckets, n_overflow, log_bytes; /* a partition's */
};

static struct plan make_plan(const struct cl_kv_config *c)
{
    struct plan plan = {.arena_bytes = c->memory_bytes / HUGE_BYTES * HUGE_BYTES};
    if (c->huge_pages != 2 || !plan.arena_bytes)
        plan.arena_bytes = c->memory_bytes / 4096 * 4096;
    plan.heading_bytes = align_up(sizeof(struct cl_kv), 64) + c->threads * sizeof(struct kv_thread_line) +
                         c->partitions * sizeof(struct kv_partition);
    uint64_t index = (c->index_bytes ? c->index_bytes : c->memory_bytes / 6) / c->partitions;
    plan.n_buckets = 16;
    while (plan.n_buckets * 2 * 5 / 4 * sizeof(struct kv_bucket) <= index && plan.n_buckets < (1ull << 30))
        plan.n_buckets *= 2;
    plan.n_overflow = plan.n_buckets / 4;
    uint64_t each = (plan.arena_bytes - plan.heading_bytes) / c->partitions / 64 * 64;
    plan.log_bytes = each - (plan.n_buckets + plan.n_overflow) * sizeof(struct kv_bucket) - LOG_SLACK_BYTES;
    return plan;
}

static void lay_out(struct cl_kv *s, const struct plan *plan)
{
    uint8_t *at = (uint8_t *)s + align_up(sizeof(*s), 64);
    s->threads = (struct kv_thread_line *)at;
    at += s->n_threads * sizeof(struct kv_thread_line);
    s->partitions = (struct kv_partition *)at;
    at += s->n_partitions * sizeof(struct kv_partition);
    for (uint32_t i = 0; i < s->n_threads; i++) {
        s->threads[i].thread.store = s;
        s->threads[i].thread.id = i;
        s->threads[i].thread.now_s = 2;
    }
    for (uint32_t i = 0; i < s->n_partitions; i++) {
        struct kv_partition *p = &s->partitions[i];
        p->number = i;
        p->store = s;
        p->buckets = (struct kv_bucket *)at;
        p->overflow = p->buckets + plan->n_buckets;
        p->log = (uint8_t *)(p->overflow + plan->n_overflow);
        p->log_bytes = plan->log_bytes;
        p->bucket_mask = plan->n_buckets - 1;
        p->n_overflow = (uint32_t)plan->n_overflow;
        p->overflow_free = UINT32_MAX;
        p->live_limit = s->no_evict ? p->log_bytes / 4 * 3 : 0;
        at = p->log + plan->log_bytes + LOG_SLACK_BYTES;
    }
}

static int draw_secret(struct kv_secret *secret, uint64_t seed)
{
    if (!seed)
        return getrandom(secret, sizeof(*secret), 0) == sizeof(*secret) ? 0 : -EIO;
    for (unsigned i = 0; i < 4; i++) { /* splitmix64 steps */
        uint64_t z = seed += 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        secret->word[i] = z ^ (z >> 31);
    }
    return 0;
}

void kv_set_seed(struct cl_kv *s, uint64_t seed)
{
    draw_secret(&s->secret, seed); /* of a seed it does not fail */
    s->seed = seed;
}

int cl_kv_reseed(struct cl_kv *s, uint64_t seed)
{
    for (uint32_t i = 0; i < s->n_partitions; i++)
        if (s->partitions[i].head)
            return -EBUSY;
    kv_set_seed(s, seed);
    return 0;
}

static int64_t coarse_seconds(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return ts.tv_sec;
}

int cl_kv_new(const struct cl_kv_config *given, struct cl_kv **out, char err[256])
{
    struct cl_kv_config c = *given;
    c.partitions = c.partitions ? c.partitions : 1;
    c.threads = c.threads ? c.threads : 1;
    int rc = check_config(&c, err);
    if (rc)
        return rc;
    struct kv_secret secret;
    if (draw_secret(&secret, c.seed))
        return refuse(err, -EIO, "the kernel gave no random bytes for the hash secret");
    struct plan plan = make_plan(&c);
    uint64_t most = plan.log_bytes / (c.no_evict ? 32 : 4); /* kv_reserve_of */
    uint64_t item_max = c.item_max_bytes ? c.item_max_bytes : cl_min(MIB, most);
    if (item_max > most || item_max < 1024)
        return refuse(err, -EINVAL,
                      c.no_evict
                          ? "item_max_bytes must be from 1024 to 1/32 of a partition's log: raise memory_bytes"
                          : "item_max_bytes must be from 1024 to a quarter of a partition's log: raise memory_bytes");
    uint32_t granted;
    struct cl_kv *s = map_arena(plan.arena_bytes, c.huge_pages, &granted);
    if (s == MAP_FAILED)
        return refuse(err, -ENOMEM,
                      c.huge_pages == 2
                          ? "no huge pages to be had: raise /proc/sys/vm/nr_hugepages or set huge_pages to 1"
                          : "the kernel refused the memory: lower memory_bytes");
    s->secret = secret;
    s->seed = c.seed;
    s->n_partitions = c.partitions;
    s->partition_shift = 64 - 6;
    s->n_threads = c.threads;
    s->huge_pages = granted;
    s->item_max_bytes = item_max;
    s->memory_bytes = s->limit_bytes = plan.arena_bytes;
    s->index_bytes = c.partitions * (plan.n_buckets + plan.n_overflow) * sizeof(struct kv_bucket);
    s->manual_clock = c.manual_clock;
    s->no_evict = c.no_evict;
    s->no_cas = c.no_cas;
    s->forbids = c.forbids;
    s->manual_now_s = 2;
    s->crawler_sleep_us = 100; /* as memcached says */
    s->mono_base_s = coarse_seconds(CLOCK_MONOTONIC_COARSE) - 2;
    s->unix_base_s = coarse_seconds(CLOCK_REALTIME_COARSE) - 2;
    lay_out(s, &plan);
    *out = s;
    return 0;
}

void cl_kv_delete(struct cl_kv *s)
{
    if (!s)
        return;
    free(s->prefixes);
    free(s->watch);
    munmap(s, s->memory_bytes);
}

struct cl_kv_thread *cl_kv_thread(struct cl_kv *s, uint32_t id)
{
    return id < s->n_threads ? &s->threads[id].thread : NULL;
}

void cl_kv_tick(struct cl_kv_thread *t)
{
    const struct cl_kv *s = t->store;
    if (s->manual_clock)
        t->now_s = cl_load_relaxed(&s->manual_now_s); /* relaxed: nothing else hangs on it */
    else
        t->now_s = (uint32_t)(coarse_seconds(CLOCK_MONOTONIC_COARSE) - s->mono_base_s);
}

uint64_t kv_uptime_s(const struct cl_kv *s)
{
    return (uint64_t)(coarse_seconds(CLOCK_MONOTONIC_COARSE) - s->mono_base_s - 2);
}

void cl_kv_set_time(struct cl_kv *s, uint32_t now_s)
{
    for (uint32_t i = 0; i < s->n_partitions && now_s < s->manual_now_s;
         i++) { /* seconds that were looked at come again */
        kv_lock(&s->partitions[i]);
        s->partitions[i].looked_s = 0;
        kv_unlock(&s->partitions[i]);
    }
    cl_store_relaxed(&s->manual_now_s, now_s);
}

uint32_t cl_kv_expiry(const struct cl_kv_thread *t, int32_t exptime)
{
    if (exptime == 0)
        return 0;
    if (exptime < 0)
        return 1;
    if (exptime > 60 * 60 * 24 * 30) {
        int64_t at = exptime - t->store->unix_base_s;
        return at <= 1 ? 1 : (uint32_t)at;
    }
    return (uint32_t)exptime + t->now_s;
}

uint64_t cl_kv_hash_of(const struct cl_kv *s, const uint8_t *key, uint32_t len)
{
    return kv_hash(&s->secret, key, len);
}

int64_t cl_kv_unix_base(const struct cl_kv *s)
{
    return s->unix_base_s;
}

int cl_kv_set_limit(struct cl_kv *s, uint64_t bytes)
{
    if (bytes > s->memory_bytes || s->no_evict)
        return -EINVAL;
    uint64_t withheld = (s->memory_bytes - bytes) / s->n_partitions;
    if (withheld > s->partitions[0].log_bytes / 2)
        return -EINVAL;
    cl_store_relaxed(&s->limit_bytes, bytes);
    for (uint32_t i = 0; i < s->n_partitions; i++) {
        kv_lock(&s->partitions[i]);
        s->partitions[i].withheld_bytes = withheld;
        kv_unlock(&s->partitions[i]);
    }
    return 0;
}

void cl_kv_usage(struct cl_kv *s, struct cl_kv_usage *out)
{
    *out = (struct cl_kv_usage){.memory_bytes = s->memory_bytes,
                                .limit_bytes = cl_load_relaxed(&s->limit_bytes),
                                .index_bytes = s->index_bytes,
                                .item_max_bytes = s->item_max_bytes,
                                .huge_pages = s->huge_pages,
                                .partitions = s->n_partitions,
                                .threads = s->n_threads};
    for (uint32_t i = 0; i < s->n_partitions; i++) {
        struct kv_partition *p = &s->partitions[i];
        kv_lock(p);
        out->log_bytes += p->log_bytes;
        out->live_bytes += p->live_bytes;
        out->dead_bytes += p->head - p->tail - p->live_bytes;
        out->free_bytes += p->log_bytes - (p->head - p->tail);
        out->items += p->items;
        out->total_items += p->total_items;
        out->evictions += p->evictions;
        out->index_evictions += p->index_evictions;
        out->reclaimed += p->reclaimed;
        out->moved += p->moved;
        out->overflow_buckets += p->overflow_used;
        kv_unlock(p);
    }
}

void cl_kv_counters(struct cl_kv *s, struct cl_kv_counters *out)
{
    *out = (struct cl_kv_counters){0};
    uint64_t *sum = (uint64_t *)out;
    for (uint32_t t = 0; t < s->n_threads; t++) {
        uint64_t *from = (uint64_t *)&s->threads[t].thread.counters;
        for (unsigned i = 0; i < sizeof(*out) / 8; i++)
            sum[i] += cl_load_relaxed(&from[i]);
    }
}

void cl_kv_counters_reset(struct cl_kv *s)
{
    /* A count made by a running thread in the same moment may survive or be lost: these are statistics. */
    for (uint32_t t = 0; t < s->n_threads; t++) {
        uint64_t *of = (uint64_t *)&s->threads[t].thread.counters;
        for (unsigned i = 0; i < sizeof(struct cl_kv_counters) / 8; i++)
            cl_store_relaxed(&of[i], 0);
    }
}
