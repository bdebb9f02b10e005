/* Looking ahead over requests that have come together, so that their cache misses overlap: first each one's key is
 * hashed and its bucket sent for, then all items are, then the requests are executed. What is found here is a hint: it
 * is not kept, and nothing that was sent for is believed. */
#ifndef CORELANE_APPS_KV_AHEAD_H
#define CORELANE_APPS_KV_AHEAD_H

#include "binary.h"
#include "layout.h"

#define KV_AHEAD_MOST 64          /* requests that are looked at together */
#define KV_AHEAD_LINES 16         /* of a pipeline */
#define KV_AHEAD_LINES_BYTES 2048 /* in so many bytes */

/* Requests that were looked at, and whose items were not sent for. Private to a thread. */
struct kv_ahead {
    uint32_t n;
    uint64_t hash[KV_AHEAD_MOST];
};

/* Length of the printable word at p: up to a byte of 0x20 or less, or n. */
static inline uint32_t kv_word_len(const uint8_t *p, uint32_t n)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w = kv_read64(p + i);
        /* High bit of each byte that is below 0x21; bytes above the first such one may be wrong, it is not. */
        uint64_t low = (w - 0x2121212121212121ull) & ~w & 0x8080808080808080ull;
        if (low)
            return i + (uint32_t)__builtin_ctzll(low) / 8;
    }
    while (i < n && p[i] > 0x20)
        i++;
    return i;
}

/* The first key of a text command at p, hashed, with its bucket on the way. False: none is seen. *get: it is a
 * `get`. */
static inline bool kv_look_at(const struct cl_kv *store, const uint8_t *p, uint32_t n, struct cl_kv_key *key, bool *get)
{
    if (cl_unlikely(n < 4))
        return false;
    uint32_t skip = 4;
    *get = memcmp(p, "get ", 4) == 0;
    if (!*get) {
        skip = kv_word_len(p, n) + 1;
        if (skip >= n)
            return false;
    }
    uint32_t len = kv_word_len(p + skip, n - skip);
    if (!len || len > CL_KV_KEY_MAX)
        return false;
    *key = (struct cl_kv_key){p + skip, len, kv_hash(&store->secret, p + skip, len)};
    kv_prefetch_bucket(store, key->hash);
    return true;
}

/* The same of a request in the binary protocol. */
static inline bool kv_look_at_binary(const struct cl_kv *store, const uint8_t *p, uint32_t n, struct cl_kv_key *key)
{
    if (n < KV_BINARY_HEADER)
        return false;
    uint32_t len = (uint32_t)p[2] << 8 | p[3], at = KV_BINARY_HEADER + p[4];
    if (!len || len > CL_KV_KEY_MAX || at + len > n)
        return false;
    *key = (struct cl_kv_key){p + at, len, kv_hash(&store->secret, p + at, len)};
    kv_prefetch_bucket(store, key->hash);
    return true;
}

/* Bytes of a stream that begin, as a rule, with a command. */
static inline void kv_ahead_note(struct kv_ahead *a, const struct cl_kv *store, const uint8_t *p, uint32_t n)
{
    struct cl_kv_key key;
    bool get;
    if (a->n < KV_AHEAD_MOST && (cl_unlikely(n && p[0] == KV_BINARY_REQUEST) ? kv_look_at_binary(store, p, n, &key)
                                                                             : kv_look_at(store, p, n, &key, &get)))
        a->hash[a->n++] = key.hash;
}

/* Send for the items of all that were noted: their buckets have come. A lone one is about to be looked up anyway. */
static inline void kv_ahead_fetch(struct kv_ahead *a, const struct cl_kv *store)
{
    for (uint32_t i = 0; a->n > 1 && i < a->n; i++)
        (void)kv_prefetch_item(store, a->hash[i]);
    a->n = 0;
}

/* A pipeline of text commands: the keys of those behind the first. Values may look like commands: what is fetched for
 * them is of no use, and does no harm. */
static inline void kv_ahead_pipeline(struct kv_ahead *a, const struct cl_kv *store, const uint8_t *p, uint64_t len)
{
    const uint8_t *end = p + cl_min(len, (uint64_t)KV_AHEAD_LINES_BYTES);
    for (unsigned i = 0; i < KV_AHEAD_LINES; i++) {
        p = memchr(p, '\n', (size_t)(end - p));
        if (!p || ++p == end)
            break;
        kv_ahead_note(a, store, p, (uint32_t)(end - p));
    }
}

#endif
