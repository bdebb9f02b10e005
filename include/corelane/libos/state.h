/* State that all uthreads of a process share, ready-made: a counter, a rate limiter, a table of the most recently used.
 * All calls may be made by any thread, and never wait: none holds anything across a call.
 *
 * What they cost. A sharded counter: an add to a cache line of the caller's kthread, which no other one writes; reading
 * sums all lines. A token bucket: a compare-and-swap of one word, and an atomic add that counts it. An LRU table: a
 * keyed hash, and a spinlock of one of its shards while a key is compared and a value copied. */
#ifndef CORELANE_LIBOS_STATE_H
#define CORELANE_LIBOS_STATE_H

#include <corelane/libos/sched.h>

CL_EXTERN_C_BEGIN

// cffi: begin
/* A number that many add to and few read. */
struct cl_sharded_counter;
/* 0 at first. -ENOMEM. */
CL_API int cl_sharded_counter_new(struct cl_sharded_counter **out);
CL_API void cl_sharded_counter_delete(struct cl_sharded_counter *c);
/* Negative numbers subtract. */
CL_API void cl_sharded_counter_add(struct cl_sharded_counter *c, int64_t n);
/* The sum. What is added meanwhile may be in it or not. */
CL_API int64_t cl_sharded_counter_read(const struct cl_sharded_counter *c);

/* A rate limiter: tokens come at a constant rate, `burst` of them can be there at most, and are at first. Kept as one
 * time, as in the generic cell rate algorithm (ITU-T I.371, annex A): that at which the bucket is full again. */
struct cl_token_bucket;
/* per_second: 1 to 1000000000; burst: 1 to 4294967295, and of at most a year's tokens; else -EINVAL. -ENOMEM. */
CL_API int cl_token_bucket_new(uint64_t per_second, uint64_t burst, struct cl_token_bucket **out);
CL_API void cl_token_bucket_delete(struct cl_token_bucket *b);
/* Take n tokens at now_ns, which does not go back by much: an instant before the last one's is taken for that one's
 * only as far as the bucket goes. 0: they are taken. > 0: none is, and in so many ns they will be there, if nobody
 * takes others. -EINVAL: n is more than burst. */
CL_API int64_t cl_token_bucket_take_at(struct cl_token_bucket *b, uint64_t n, uint64_t now_ns);
/* The same now: cl_sched_now_ns of the caller's scheduler; elsewhere the machine's time, which that is, too, but by a
 * virtual clock. */
CL_API int64_t cl_token_bucket_take(struct cl_token_bucket *b, uint64_t n);
/* Tokens that were taken; requests for them that were refused. */
CL_API uint64_t cl_token_bucket_taken(const struct cl_token_bucket *b);
CL_API uint64_t cl_token_bucket_refused(const struct cl_token_bucket *b);

/* A table of keys and values of constant sizes. It holds `capacity` of them; one more takes the place of the one that
 * was used least recently, of those in its shard. With one shard that is the least recent of all. */
struct cl_lru;
#define CL_LRU_KEY_BYTES 256 /* at most, as the next one: they are compared and copied under a spinlock */
#define CL_LRU_VALUE_BYTES 4096
#define CL_LRU_SHARDS 256
#define CL_LRU_CAPACITY 268435456

struct cl_lru_stats {
    uint64_t hits, misses, inserted, replaced, evicted, removed;
};

/* shards: a power of two, at most capacity; 0: one for 64 entries, 16 at most. All memory is reserved here and touched
 * as it is needed. -EINVAL, -ENOMEM, -EIO (no random numbers, for the hash that nobody can foresee). */
CL_API int cl_lru_new(uint32_t capacity, uint32_t key_bytes, uint32_t value_bytes, uint32_t shards,
                      struct cl_lru **out);
CL_API void cl_lru_delete(struct cl_lru *t);
/* Copy the value of a key, which becomes the most recent. 0; -ENOENT. value NULL: no copy. */
CL_API int cl_lru_get(struct cl_lru *t, const void *key, void *value);
/* Enter a value, or put it in the place of the key's old one. 0; 1: another one has gone for it. */
CL_API int cl_lru_put(struct cl_lru *t, const void *key, const void *value);
/* 0; -ENOENT. */
CL_API int cl_lru_remove(struct cl_lru *t, const void *key);
CL_API uint32_t cl_lru_count(const struct cl_lru *t);
CL_API uint32_t cl_lru_key_bytes(const struct cl_lru *t);
CL_API uint32_t cl_lru_value_bytes(const struct cl_lru *t);
CL_API void cl_lru_stats(struct cl_lru *t, struct cl_lru_stats *out);
// cffi: end

CL_EXTERN_C_END
#endif
