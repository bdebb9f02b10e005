/* A key-value store of bounded memory: memcached's semantics without its protocol.
 *
 * Memory is taken once, when the store is made, and divided among `partitions` (chosen by the top bits of a key's
 * hash). A partition has an index of cache-line buckets and a circular log of items:
 *
 *   index  Bucket = 64 bytes: a sequence number, 2-bit reference counts, and 7 slots {16-bit tag, item's size, place}.
 *          A bucket that runs over is continued in an overflow bucket from a bounded pool.
 *   log    Items are appended at the head and leave at the tail, so allocation is a pointer bump and there is no
 *          fragmentation by size class. An item at the tail that was asked for since its last turn is moved to the head
 *          (FIFO with reinsertion: CLOCK with 2-bit counts; Corbato 1968; Yang et al., "FIFO can be better than LRU",
 *          HotOS '23). What was overwritten or deleted is reclaimed there too; while live items fill less than 7/8 of
 *          the log, the tail only compacts and evicts nothing. A value that fits its old place is replaced in place.
 *
 * Why not LRU lists: each GET would write two list neighbours and a shared lock. Here a GET takes no lock, and writes
 * nothing once the item's reference count has reached its cap of 3.
 *
 * Concurrency: a thread works through its own cl_kv_thread. Writers hold their partition's spin lock. Readers use the
 * bucket's sequence number: they read item words with relaxed atomics (a torn read is discarded, never used), check the
 * number before they believe a length and again after they copied. An item's memory is overwritten only after its slot
 * has been cleared, which changes that number.
 *
 * Invariant, checked by cl_kv_check: live + dead + free bytes = log bytes, index slots = live items; without evictions,
 * live bytes within their limit.
 *
 * A store that never evicts (no_evict): live items fill at most 3/4 of the log. A write that would go beyond that, or
 * finds no slot in the index, is refused once what has expired is dropped, and changes nothing. The rest of the log is
 * kept for reclaiming, which moves on as long as it takes. What is refused depends on nothing but the writes and the
 * clock before it: reads change no item, so replicas that do the same writes refuse the same ones.
 *
 * Times are whole seconds on the store's clock, which reads 2 when the store is made, as 0 means never and 1 means
 * past. Tests: tests/apps/kv (model, eviction, expiry, threads). */
#ifndef CORELANE_APPS_KV_STORE_H
#define CORELANE_APPS_KV_STORE_H

#include <corelane/runtime/base.h>
#include "hash.h"

// cffi: begin
#define CL_KV_KEY_MAX 250
#define CL_KV_MAX_PARTITIONS 64

/* How to make a store. Zero in a field that says so takes the default. */
struct cl_kv_config {
    uint64_t memory_bytes;   /* all of it: index, log and bookkeeping; at least 1 MiB */
    uint64_t item_max_bytes; /* key + value + 48 at most; 0: 1 MiB, or a quarter of a partition's log if that is less */
    uint64_t index_bytes;    /* 0: up to a sixth of memory_bytes */
    uint32_t partitions;     /* power of two; 0: 1 */
    uint32_t threads;        /* cl_kv_thread contexts; 0: 1 */
    uint32_t huge_pages;     /* 0: ordinary pages, 1: ask for transparent ones, 2: hugetlb, refused if there are none */
    uint32_t manual_clock;   /* 1: time moves by cl_kv_set_time only (tests) */
    uint32_t no_evict;       /* 1: never evict; what finds no room is refused with CL_KV_NO_MEMORY */
    uint32_t no_cas;         /* 1: uniques are told as 0, and no cas of an item that is there goes through */
    uint32_t forbids;        /* CL_KV_NO_FLUSH and its kin: what clients may not use */
    uint64_t seed;           /* of the hash secret; 0: from the kernel's random generator */
};

/* What clients are refused (memcached's -F, -W, -X, -B). */
#define CL_KV_NO_FLUSH 1   /* flush_all */
#define CL_KV_NO_WATCH 2   /* watch */
#define CL_KV_NO_DUMP 4    /* lru_crawler metadump, stats cachedump */
#define CL_KV_NO_TEXT 8    /* a session that is not in the binary protocol ends */
#define CL_KV_NO_BINARY 16 /* all sessions are in ASCII, whatever their first byte */

/* Outcomes of operations. */
#define CL_KV_OK 0
#define CL_KV_NOT_STORED 1
#define CL_KV_EXISTS 2
#define CL_KV_NOT_FOUND 3
#define CL_KV_TOO_LARGE 4
#define CL_KV_NO_MEMORY 5
#define CL_KV_NON_NUMERIC 6

/* Ways to store. */
#define CL_KV_SET 0
#define CL_KV_ADD 1
#define CL_KV_REPLACE 2
#define CL_KV_APPEND 3
#define CL_KV_PREPEND 4
#define CL_KV_CAS 5

struct cl_kv;

/* Counters of one thread. Writer: that thread; readers: anybody (relaxed), so sums are not a snapshot. */
struct cl_kv_counters {
    uint64_t cmd_get, get_hits, get_misses, get_expired, get_flushed;
    uint64_t cmd_set, cmd_touch, touch_hits, touch_misses, cmd_flush, cmd_meta;
    uint64_t delete_hits, delete_misses, incr_hits, incr_misses, decr_hits, decr_misses;
    uint64_t cas_hits, cas_misses, cas_badval;
    uint64_t store_too_large, store_no_memory;
    uint64_t read_retries; /* lock-free reads that met a writer */
    uint64_t bad_commands; /* answered ERROR or CLIENT_ERROR by the command layer */
};

struct cl_kv_extent;
/* One thread's way into a store. Used by one thread at a time. */
struct cl_kv_thread {
    struct cl_kv *store;
    struct cl_kv_extent *measured; /* not NULL: within cl_kv_measure (command.h) */
    uint32_t now_s;                /* the store's clock as of the last cl_kv_tick */
    uint32_t id;
    uint32_t client; /* number of the connection that it works for, as `watch` shows it; 0: none */
    uint32_t pad;
    struct cl_kv_counters counters;
};

/* A key with its hash. `data` need stay valid only during the call. */
struct cl_kv_key {
    const uint8_t *data;
    uint32_t len;
    uint64_t hash;
};

/* What an item is, beside its value. */
struct cl_kv_meta {
    uint64_t cas;
    uint32_t flags;
    uint32_t value_bytes;
    uint32_t expires_s; /* 0: never */
};

/* State of the whole store. Byte counts are of the logs. */
struct cl_kv_usage {
    uint64_t memory_bytes, limit_bytes, index_bytes, log_bytes;
    uint64_t live_bytes, dead_bytes, free_bytes;
    uint64_t items, total_items; /* now; ever stored */
    uint64_t evictions;          /* live items dropped for room in the log */
    uint64_t index_evictions;    /* live items dropped for room in the index */
    uint64_t reclaimed;          /* expired or flushed items dropped before their place was needed */
    uint64_t moved;              /* items moved from tail to head */
    uint64_t overflow_buckets;   /* in use */
    uint64_t item_max_bytes;
    uint32_t huge_pages; /* as granted: 0, 1, 2 */
    uint32_t partitions, threads;
};

/* Make a store. -EINVAL or -ENOMEM with a reason in err. */
CL_API int cl_kv_new(const struct cl_kv_config *config, struct cl_kv **out, char err[256]);
CL_API void cl_kv_delete(struct cl_kv *store);
/* Context of thread `id` (< config.threads), valid as long as the store. NULL if there is no such thread. */
CL_API struct cl_kv_thread *cl_kv_thread(struct cl_kv *store, uint32_t id);
/* Read the clock (once a burst). Cheap: no system call where the vDSO serves the coarse clock. */
CL_API void cl_kv_tick(struct cl_kv_thread *thread);
/* Set the manual clock: seconds since the store was made, 2 being its start. */
CL_API void cl_kv_set_time(struct cl_kv *store, uint32_t now_s);
/* A time as the protocol gives it -> the store's clock: 0 never, < 0 past, up to 30 days relative, beyond that Unix
 * time. */
CL_API uint32_t cl_kv_expiry(const struct cl_kv_thread *thread, int32_t exptime);
/* Take another seed of the hash secret. -EBUSY: something was stored already. */
CL_API int cl_kv_reseed(struct cl_kv *store, uint64_t seed);
CL_API uint64_t cl_kv_hash_of(const struct cl_kv *store, const uint8_t *key, uint32_t len);

/* Store value (mode: CL_KV_SET...). APPEND and PREPEND keep the item's flags and time. */
CL_API int cl_kv_store(struct cl_kv_thread *thread, const struct cl_kv_key *key, int mode, uint32_t flags,
                       uint32_t expires_s, const uint8_t *value, uint32_t value_bytes, uint64_t cas);
/* Look a key up and copy at most `room` bytes of its value. CL_KV_OK or CL_KV_NOT_FOUND. */
CL_API int cl_kv_get(struct cl_kv_thread *thread, const struct cl_kv_key *key, struct cl_kv_meta *meta, uint8_t *value,
                     uint32_t room);
CL_API int cl_kv_delete_key(struct cl_kv_thread *thread, const struct cl_kv_key *key);
CL_API int cl_kv_touch(struct cl_kv_thread *thread, const struct cl_kv_key *key, uint32_t expires_s);
/* Add to or subtract from a decimal value; *out is the new one. Wraps at 2^64 upwards, stops at 0 downwards. */
CL_API int cl_kv_delta(struct cl_kv_thread *thread, const struct cl_kv_key *key, bool incr, uint64_t delta,
                       uint64_t *out);
/* Forget everything stored before the time `at_s` on the store's clock; now if that is not in the future.
 * CL_KV_NEVER_S: nothing, and what waited for its time is called off. */
#define CL_KV_NEVER_S UINT32_MAX
CL_API void cl_kv_flush_all(struct cl_kv_thread *thread, uint32_t at_s);
/* Drop up to `budget` expired items ahead of their turn, going round the logs. Returns how many were dropped. */
CL_API uint32_t cl_kv_sweep(struct cl_kv_thread *thread, uint32_t budget);

/* Use no more than `bytes` of the memory from now on; later writes evict what is beyond that, a bounded part each. The
 * rest stays mapped. -EINVAL: more than the store was made with, so little that half of a log would go, or a store that
 * never evicts. */
CL_API int cl_kv_set_limit(struct cl_kv *store, uint64_t bytes);

CL_API void cl_kv_usage(struct cl_kv *store, struct cl_kv_usage *out);
/* Sum of the threads' counters. */
CL_API void cl_kv_counters(struct cl_kv *store, struct cl_kv_counters *out);
CL_API void cl_kv_counters_reset(struct cl_kv *store);
/* Unix time of the store's second 0, and seconds since it was made. */
CL_API int64_t cl_kv_unix_base(const struct cl_kv *store);
/* Walk everything under the locks and compare. 0, or -EIO with what is wrong in err. For tests; O(memory). */
CL_API int cl_kv_check(struct cl_kv *store, char err[256]);
// cffi: end

#endif
