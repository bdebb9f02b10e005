/* Walks a store and compares what its parts say of each other. */
#include "layout.h"
#include <errno.h>
#include <stdio.h>

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        snprintf(err, 256, __VA_ARGS__);                                                                               \
        return -EIO;                                                                                                   \
    } while (0)

static int check_log(struct kv_partition *p, char err[256])
{
    uint64_t live_bytes = 0, items = 0, at = p->tail;
    if (p->head - p->tail > p->log_bytes)
        FAIL("partition %lu: %lu bytes in a log of %lu", p->number, p->head - p->tail, p->log_bytes);
    while (at < p->head) {
        uint64_t place = at % p->log_bytes, rest = p->log_bytes - place;
        struct kv_item *it = (struct kv_item *)(p->log + place);
        uint64_t bytes = rest < KV_HEADER_BYTES ? rest : kv_item_bytes(it);
        if (!bytes || bytes > rest || bytes > p->head - at)
            FAIL("partition %lu: an item of %lu bytes at %lu, %lu before the end", p->number, bytes, at, rest);
        if (rest >= KV_HEADER_BYTES && kv_item_state(it) == KV_LIVE) {
            struct kv_ref r;
            live_bytes += bytes;
            items++;
            if (!kv_index_locate(p, it, &r))
                FAIL("partition %lu: the live item at %lu is not in the index", p->number, at);
            uint64_t body = 8ull * kv_key_words(kv_item_key_len(it)) + (it->lengths & UINT32_MAX);
            if (KV_HEADER_BYTES + body > bytes)
                FAIL("partition %lu: the item at %lu is longer than its place", p->number, at);
        }
        at += bytes;
    }
    if (at != p->head)
        FAIL("partition %lu: the log's items end at %lu, not at its head %lu", p->number, at, p->head);
    if (p->live_limit && (live_bytes > p->live_limit || p->evictions || p->index_evictions))
        FAIL("partition %lu: %lu live bytes of at most %lu, and %lu items evicted of none", p->number, live_bytes,
             p->live_limit, p->evictions + p->index_evictions);
    if (live_bytes != p->live_bytes || items != p->items)
        FAIL("partition %lu: %lu live bytes in %lu items, but %lu in %lu are accounted", p->number, live_bytes, items,
             p->live_bytes, p->items);
    return 0;
}

static int check_index(struct kv_partition *p, char err[256])
{
    uint64_t slots = 0, overflow = 0;
    for (uint64_t n = 0; n <= p->bucket_mask; n++) {
        struct kv_bucket *b = &p->buckets[n];
        if (b->version & 1)
            FAIL("partition %lu: bucket %lu was left in the middle of a change", p->number, n);
        for (;;) {
            unsigned here = 0, end = b->chained ? KV_SLOTS - 1 : KV_SLOTS;
            for (unsigned i = 0; i < end; i++)
                here += b->slot[i] != 0;
            slots += here;
            if (!b->chained)
                break;
            if (here != end)
                FAIL("partition %lu: bucket %lu has a hole before its overflow", p->number, n);
            if (b->slot[KV_SLOTS - 1] >= p->n_overflow || ++overflow > p->n_overflow)
                FAIL("partition %lu: bucket %lu has a wrong chain", p->number, n);
            b = &p->overflow[b->slot[KV_SLOTS - 1]];
        }
    }
    if (slots != p->items)
        FAIL("partition %lu: %lu slots for %lu items", p->number, slots, p->items);
    if (overflow != p->overflow_used)
        FAIL("partition %lu: %lu overflow buckets in chains, %u accounted", p->number, overflow, p->overflow_used);
    return 0;
}

int cl_kv_check(struct cl_kv *s, char err[256])
{
    int rc = 0;
    for (uint32_t i = 0; i < s->n_partitions && !rc; i++) {
        struct kv_partition *p = &s->partitions[i];
        kv_lock(p);
        rc = check_log(p, err);
        rc = rc ? rc : check_index(p, err);
        kv_unlock(p);
    }
    return rc;
}
