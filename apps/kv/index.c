/* The index's write side: slots into buckets, overflow buckets, and who goes when there is no more room. */
#include "layout.h"

uint64_t kv_slot_make(const struct kv_partition *p, const struct kv_item *it)
{
    uint64_t place = (uint64_t)((const uint8_t *)it - p->log) / 8 + 1;
    return cl_min(kv_item_bytes(it), (uint64_t)KV_SLOT_BYTES_MAX) / 8 << 40 | place;
}

static unsigned slots_of(const struct kv_bucket *b)
{
    return b->chained ? KV_SLOTS - 1 : KV_SLOTS;
}

static struct kv_bucket *next_of(struct kv_partition *p, const struct kv_bucket *b)
{
    return b->chained ? &p->overflow[b->slot[KV_SLOTS - 1]] : NULL;
}

/* What a slot's item was used for: its reference count, and above that whether it was read. */
#define HIT (KV_REF_CAP + 1)

static void set_use(struct kv_bucket *b, unsigned slot, unsigned use)
{
    /* Relaxed, and a reader's concurrent update may be lost: a reference count is a hint. */
    uint16_t others = (uint16_t)(cl_load_relaxed(&b->refs) & ~(KV_REF_CAP << (2 * slot)));
    cl_store_relaxed(&b->refs, (uint16_t)(others | (use & KV_REF_CAP) << (2 * slot)));
    uint8_t hits = (uint8_t)(cl_load_relaxed(&b->hits) & ~(1u << slot));
    cl_store_relaxed(&b->hits, (uint8_t)(hits | (use & HIT ? 1u << slot : 0)));
}

static unsigned get_refs(const struct kv_bucket *b, unsigned slot)
{
    return (cl_load_relaxed(&b->refs) >> (2 * slot)) & KV_REF_CAP;
}

static unsigned get_use(const struct kv_bucket *b, unsigned slot)
{
    return get_refs(b, slot) | (cl_load_relaxed(&b->hits) >> slot & 1 ? HIT : 0);
}

static void put(struct kv_bucket *b, unsigned i, uint64_t slot, unsigned use)
{
    cl_store_relaxed(&b->slot[i], slot); /* relaxed: published by kv_bucket_leave */
    set_use(b, i, use);
}

static bool overflow_left(const struct kv_partition *p)
{
    return p->overflow_free != UINT32_MAX || p->overflow_fresh < p->n_overflow;
}

bool kv_index_has_room(const struct kv_partition *p, const struct kv_bucket *head)
{
    for (const struct kv_bucket *b = head; b; b = b->chained ? &p->overflow[b->slot[KV_SLOTS - 1]] : NULL)
        for (unsigned i = 0; i < slots_of(b); i++)
            if (!b->slot[i])
                return true;
    return overflow_left(p);
}

static bool overflow_take(struct kv_partition *p, uint64_t *number)
{
    if (!overflow_left(p))
        return false;
    if (p->overflow_free != UINT32_MAX) {
        *number = p->overflow_free;
        p->overflow_free = p->overflow[*number].version;
    } else {
        *number = p->overflow_fresh++;
    }
    p->overflow_used++;
    struct kv_bucket *b = &p->overflow[*number];
    cl_store_relaxed(&b->chained, 0);
    for (unsigned i = 0; i < KV_SLOTS; i++)
        put(b, i, 0, 0);
    return true;
}

/* The bucket is empty. Its slots stay so: a reader that came here before it was taken from its chain may still look. */
static void overflow_give(struct kv_partition *p, uint64_t number)
{
    p->overflow[number].version = p->overflow_free;
    p->overflow_free = (uint32_t)number;
    p->overflow_used--;
}

/* How long ago a slot's item came to its place: positions grow from the log's tail on. */
static uint64_t position_of(const struct kv_partition *p, uint64_t slot)
{
    uint64_t place = (uint64_t)((const uint8_t *)kv_slot_item(p, slot) - p->log), tail = p->tail % p->log_bytes;
    return place < tail ? place + p->log_bytes - tail : place - tail;
}

/* Drop an item of a chain, as the log's tail would: the first whose count is used up, in the order in which they came,
 * while those before it lose one each time they are passed. What the log holds of it is dead. */
static void evict_from(struct kv_partition *p, struct kv_bucket *head)
{
    struct kv_bucket *worst = NULL;
    unsigned worst_slot = 0, rounds = 0;
    uint64_t worst_position = 0;
    for (struct kv_bucket *b = head; b; b = next_of(p, b))
        for (unsigned i = 0; i < slots_of(b); i++) {
            if (!b->slot[i])
                continue;
            unsigned refs = get_refs(b, i);
            uint64_t position = position_of(p, b->slot[i]);
            if (!worst || refs < rounds || (refs == rounds && position < worst_position)) {
                worst = b;
                worst_slot = i;
                rounds = refs;
                worst_position = position;
            }
        }
    for (struct kv_bucket *b = head; b; b = next_of(p, b))
        for (unsigned i = 0; i < slots_of(b); i++)
            if (b->slot[i]) {
                unsigned passed = rounds + (position_of(p, b->slot[i]) < worst_position), use = get_use(b, i);
                set_use(b, i, use - cl_min(passed, use & KV_REF_CAP));
            }
    kv_item_dead(p, kv_slot_item(p, worst->slot[worst_slot]));
    kv_index_remove(p, head, worst, worst_slot);
    p->index_evictions++;
}

bool kv_index_insert(struct kv_partition *p, struct kv_bucket *head, uint64_t slot)
{
    for (;;) {
        struct kv_bucket *b = head;
        for (;; b = next_of(p, b)) {
            for (unsigned i = 0; i < slots_of(b); i++)
                if (!b->slot[i]) {
                    put(b, i, slot, 0);
                    return true;
                }
            if (!b->chained)
                break;
        }
        uint64_t number;
        if (overflow_take(p, &number)) {
            struct kv_bucket *o = &p->overflow[number];
            put(o, 0, b->slot[KV_SLOTS - 1], get_use(b, KV_SLOTS - 1));
            put(o, 1, slot, 0);
            put(b, KV_SLOTS - 1, number, 0);
            cl_store_relaxed(&b->chained, 1);
            return true;
        }
        evict_from(p, head);
    }
}

void kv_index_remove(struct kv_partition *p, struct kv_bucket *head, struct kv_bucket *bucket, unsigned slot)
{
    struct kv_bucket *before = NULL, *last = head;
    while (last->chained) {
        before = last;
        last = next_of(p, last);
    }
    /* The hole is filled from the chain's last bucket, so that only that one can become empty. */
    unsigned i = KV_SLOTS;
    while (!last->slot[--i])
        ;
    if (bucket != last || i > slot)
        put(bucket, slot, last->slot[i], get_use(last, i));
    put(last, i, 0, 0);
    if (i == 0 && before) {
        uint64_t number = before->slot[KV_SLOTS - 1];
        cl_store_relaxed(&before->chained, 0);
        put(before, KV_SLOTS - 1, 0, 0);
        overflow_give(p, number);
    }
}

bool kv_index_locate(struct kv_partition *p, const struct kv_item *it, struct kv_ref *r)
{
    uint64_t place = (uint64_t)((const uint8_t *)it - p->log) / 8 + 1;
    r->head = &p->buckets[(it->size_hash >> 32) & p->bucket_mask];
    r->version = r->head->version;
    r->item = (struct kv_item *)it;
    for (struct kv_bucket *b = r->head; b; b = next_of(p, b))
        for (unsigned i = 0; i < slots_of(b); i++)
            if (b->slot[i] && (b->slot[i] & ((1ull << 40) - 1)) == place) {
                r->bucket = b;
                r->slot = i;
                return true;
            }
    return false;
}
