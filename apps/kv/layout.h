/* The store's memory layout, and its read side, which the command layer inlines. Private to apps/kv. */
#ifndef CORELANE_APPS_KV_LAYOUT_H
#define CORELANE_APPS_KV_LAYOUT_H

#include "store.h"

#define KV_SLOTS 7
#define KV_REF_CAP 3u                /* a 2-bit reference count */
#define KV_READ_TRIES 16             /* lock-free tries before a reader takes the lock */
#define KV_HEADER_BYTES 32           /* of an item */
#define KV_SLOT_BYTES_MAX (255u * 8) /* of an item, that its slot tells */
#define KV_PREFETCH_BYTES 384u       /* of an item, that are sent for at once */
#define KV_OVERHEAD_BYTES 48         /* what an item is charged against item_max_bytes beside key and value */

enum kv_state { KV_LIVE = 1, KV_DEAD = 2, KV_PAD = 3 };

/* An item in the log, 8-byte aligned. Words are read by lock-free readers while they may be overwritten: always relaxed
 * atomics on whole words. Writer: the holder of the partition's lock.
 *   size_hash   bytes / 8 of the item (low 32), low half of the key's hash (high 32): names the bucket
 *   flags_exp   flags (low 32), expires_s (high 32)
 *   lengths     value bytes (low 32), key length (bits 32..39), state (bits 40..41; the log's own, never read
 *               lock-free), marks (from bit 42 on, KV_STALE and so on; the top 19 bits are when the item was written,
 *               in seconds)
 *   body        key padded with zeros to 8 bytes, value padded with whatever was there */
struct kv_item {
    uint64_t size_hash;
    uint64_t flags_exp;
    uint64_t cas;
    uint64_t lengths;
    uint64_t body[];
};
_Static_assert(sizeof(struct kv_item) == KV_HEADER_BYTES, "an item's header");

#define KV_STATE_SHIFT 40
#define KV_STATE_BITS 3ull
#define KV_STALE (1ull << 42)      /* its client knows better: to be stored anew */
#define KV_WON (1ull << 43)        /* one client was told to store it anew */
#define KV_BINARY_KEY (1ull << 44) /* its key came as base64 */
#define KV_WRITTEN_SHIFT 45
#define KV_MARKS (~0ull << 42)                            /* all of them */
#define KV_KEPT_MARKS (KV_STALE | KV_WON | KV_BINARY_KEY) /* without the time */
#define KV_AGE_MAX_S ((1u << (64 - KV_WRITTEN_SHIFT)) - 1)

/* Marks of an item that is written now. */
static inline uint64_t kv_marks_now(uint32_t now_s)
{
    return (uint64_t)now_s << KV_WRITTEN_SHIFT;
}

/* Seconds since an item was written or touched, modulo KV_AGE_MAX_S + 1. */
static inline uint32_t kv_age_s(uint64_t lengths, uint32_t now_s)
{
    return (now_s - (uint32_t)(lengths >> KV_WRITTEN_SHIFT)) & KV_AGE_MAX_S;
}

/* Writer of version and slots: the lock holder. `refs` and `hits` are written by readers too, without the lock: a lost
 * update costs a reference count or a mark, nothing else. When `chained` is set, the last slot is the number of the
 * next bucket. A slot: tag (top 16 bits), bytes of the item / 8 (8 bits, at most 255), its place in the log / 8 + 1
 * (40 bits); 0: empty. */
struct kv_bucket {
    /* Of a chain's first bucket: odd while a writer is inside; counts for the whole chain. Of an overflow bucket: the
     * next one in the free list; read and written by the lock holder alone, so no reader takes a link for a slot. */
    uint32_t version;
    union {
        struct {
            uint16_t refs; /* 2 bits a slot */
            uint8_t chained;
            uint8_t hits; /* a bit a slot: the item was read since it was stored */
        };
        uint32_t use; /* the three at once, for readers */
    };
    uint64_t slot[KV_SLOTS];
} CL_ALIGNED(64);
_Static_assert(sizeof(struct kv_bucket) == 64, "a bucket is a cache line");

struct kv_partition {
    /* Line 0: constant after creation, but for the two flush words (writer: lock holder; readers: anybody, relaxed). */
    struct kv_bucket *buckets;
    struct kv_bucket *overflow;
    uint8_t *log;
    uint64_t log_bytes;
    uint64_t bucket_mask;
    uint64_t flush_cas;  /* items with a cas up to this one are gone */
    uint32_t flush_at_s; /* 0, or when the next flush is due */
    uint32_t n_overflow;
    uint64_t number;

    /* Line 1 on: of the lock holder alone. */
    uint32_t lock CL_ALIGNED(64);
    uint32_t overflow_free; /* first of the free list, UINT32_MAX at its end; linked through version */
    uint32_t overflow_used;
    uint32_t overflow_fresh; /* overflow buckets from this one on were never used */
    uint64_t head, tail;     /* bytes ever appended, reclaimed; place = position modulo log_bytes */
    uint64_t cursor;         /* where the sweep goes on */
    uint64_t live_bytes;
    uint64_t withheld_bytes; /* of the log, that cl_kv_set_limit took from use */
    struct cl_kv *store;     /* whose it is. Constant */
    uint64_t live_limit;     /* of live_bytes, in a store that never evicts; 0: it evicts. Constant */
    /* When kv_log_drop_gone last looked at everything, and flush_cas then: in that second nothing more is gone. A hint:
     * what it spares would find nothing. */
    uint64_t looked_cas;
    uint32_t looked_s;
    uint64_t cas_count;
    uint64_t items, total_items, evictions, index_evictions, reclaimed, moved;
} CL_ALIGNED(64);

struct kv_thread_line {
    struct cl_kv_thread thread;
} CL_ALIGNED(64);

struct cl_kv {
    struct kv_secret secret;
    uint64_t seed;            /* that it is made of; 0: of the kernel's random numbers */
    uint32_t partition_shift; /* partition = (hash >> shift) modulo n_partitions */
    uint32_t n_partitions;
    uint32_t n_threads;
    uint32_t huge_pages;
    uint64_t item_max_bytes;
    uint64_t memory_bytes;
    uint64_t limit_bytes; /* of memory_bytes, that are to be used. Writer: cl_kv_set_limit, relaxed */
    uint64_t index_bytes;
    int64_t unix_base_s;
    int64_t mono_base_s;
    uint32_t manual_clock;
    uint32_t manual_now_s;
    uint32_t no_evict, no_cas;
    uint32_t forbids; /* CL_KV_NO_FLUSH and its kin. Constant */
    uint32_t detail;  /* count by prefixes (prefix.h). This and the next four: writer: anybody, relaxed */
    uint32_t watched; /* kinds of events that somebody watches (watch.h); relaxed */
    uint32_t verbosity, crawler_off, crawler_tocrawl, crawler_sleep_us; /* kept to be shown; nothing heeds them */
    struct kv_prefixes *prefixes;                                       /* NULL until they are wanted; then for good */
    struct kv_watch *watch; /* NULL until somebody watches; then for good. Acquire and release */
    const struct kv_front_ops
        *front_ops; /* of `front` (front.h), what `stats` says of its servers; written before it */
    void *front;    /* NULL: none. Acquire and release */
    struct kv_partition *partitions;
    struct kv_thread_line *threads;
};

static inline struct kv_partition *kv_partition_of(const struct cl_kv *s, uint64_t hash)
{
    return &s->partitions[(hash >> s->partition_shift) & (s->n_partitions - 1)];
}

/* Free bytes that an append leaves in a store that never evicts. With two of the largest items (1/16, by cl_kv_new) an
 * item at the tail can always be moved, a pad before the log's end in its way or not; the rest is for an image to be
 * shorter. */
static inline uint64_t kv_reserve_of(const struct kv_partition *p)
{
    return p->live_limit ? p->log_bytes / 12 : 0;
}

static inline struct kv_bucket *kv_bucket_of(const struct kv_partition *p, uint64_t hash)
{
    return &p->buckets[hash & p->bucket_mask];
}

static inline uint64_t kv_tag(uint64_t hash)
{
    return hash >> 32 << 48; /* bits 32..47: neither the bucket's bits (below 2^32 buckets) nor the partition's */
}

/* Bytes of a slot's item, of a large one KV_SLOT_BYTES_MAX. */
static inline unsigned kv_slot_bytes(uint64_t slot)
{
    return (unsigned)(slot >> 40 & 0xff) * 8;
}

/* The item that a slot points at. NULL: the word is no slot; a lock-free reader may meet one in a chain that
 * changes. */
static inline struct kv_item *kv_slot_item(const struct kv_partition *p, uint64_t slot)
{
    uint64_t place = ((slot & ((1ull << 40) - 1)) - 1) << 3;
    return cl_likely(place < p->log_bytes) ? (struct kv_item *)(p->log + place) : NULL;
}

static inline uint32_t kv_key_words(uint32_t key_len)
{
    return (key_len + 7) >> 3;
}

static inline uint64_t kv_item_bytes(const struct kv_item *it)
{
    return (cl_load_relaxed(&it->size_hash) & UINT32_MAX) << 3;
}

static inline uint32_t kv_item_key_len(const struct kv_item *it)
{
    return (uint32_t)(cl_load_relaxed(&it->lengths) >> 32) & 0xff;
}

static inline enum kv_state kv_item_state(const struct kv_item *it)
{
    return (enum kv_state)((cl_load_relaxed(&it->lengths) >> KV_STATE_SHIFT) & KV_STATE_BITS);
}

static inline const uint64_t *kv_item_value(const struct kv_item *it)
{
    return it->body + kv_key_words(kv_item_key_len(it));
}

static inline bool kv_key_equal(const struct kv_item *it, const uint8_t *key, uint32_t len)
{
    if (kv_item_key_len(it) != len)
        return false;
    uint32_t i = 0;
    for (; i + 8 <= len; i += 8)
        if (cl_load_relaxed(&it->body[i >> 3]) != kv_read64(key + i))
            return false;
    return i == len || cl_load_relaxed(&it->body[i >> 3]) == kv_read_tail(key, len, len - i);
}

/* Copy n bytes out of item words. Relaxed word by word: see the concurrency note in store.h. */
static inline void kv_copy_out(uint8_t *to, const uint64_t *from, uint32_t n)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w = cl_load_relaxed(&from[i >> 3]);
        memcpy(to + i, &w, 8);
    }
    if (i < n) {
        uint64_t w = cl_load_relaxed(&from[i >> 3]);
        for (; i < n; i++, w >>= 8)
            to[i] = (uint8_t)w;
    }
}

/* Where a key was found. */
struct kv_ref {
    struct kv_bucket *head;
    struct kv_bucket *bucket;
    struct kv_item *item; /* NULL: not there */
    unsigned slot;
    uint32_t version;
};

/* gcc's TSan does not model fences; all data below them is atomic, so it has no race to miss. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wtsan"
/* Whether what was read since the reference was taken is of one piece. */
static inline bool kv_ref_valid(const struct kv_ref *r)
{
    /* Acquire fence: the relaxed loads before it stay before the load of version; pairs with the release fence in
     * kv_bucket_enter: having read a word written after that fence, we see its odd version or a later one. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return cl_load_relaxed(&r->head->version) == r->version;
}

static inline void kv_bucket_enter(struct kv_bucket *head)
{
    /* Relaxed: one writer at a time, ordered among themselves by the lock. */
    cl_store_relaxed(&head->version, cl_load_relaxed(&head->version) + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the odd version is out before any change it announces */
}
#pragma GCC diagnostic pop

static inline void kv_bucket_leave(struct kv_bucket *head)
{
    /* Release: the changes are out before the even version. */
    cl_store_release(&head->version, cl_load_relaxed(&head->version) + 1);
}

/* Find a key in its bucket's chain. Lock-free: believe the answer only if r->version is even and kv_ref_valid holds.
 * Every pointer followed stays inside the arena whatever was read. */
static inline void kv_find(const struct kv_partition *p, const uint8_t *key, uint32_t len, uint64_t hash,
                           struct kv_ref *r)
{
    struct kv_bucket *b = kv_bucket_of(p, hash);
    uint64_t tag = kv_tag(hash);
    r->head = b;
    r->item = NULL;
    r->version = cl_load_acquire(&b->version); /* acquire: slots and items are read after it */
    for (uint32_t hops = 0; hops <= p->n_overflow; hops++) {
        bool chained = cl_load_relaxed(&b->chained) != 0;
        unsigned n = chained ? KV_SLOTS - 1 : KV_SLOTS;
        for (unsigned i = 0; i < n; i++) {
            uint64_t slot = cl_load_relaxed(&b->slot[i]);
            if ((slot ^ tag) >> 48 || !slot)
                continue;
            struct kv_item *it = kv_slot_item(p, slot);
            if (it && kv_key_equal(it, key, len)) {
                r->bucket = b;
                r->slot = i;
                r->item = it;
                return;
            }
        }
        if (!chained)
            return;
        uint64_t next = cl_load_relaxed(&b->slot[KV_SLOTS - 1]);
        if (next >= p->n_overflow || cl_load_relaxed(&r->head->version) != r->version)
            return; /* a writer is changing the chain: the caller's check fails */
        b = &p->overflow[next];
    }
}

/* Note that an item is in use. Writes only while the count is below its cap. */
static inline void kv_ref_count(const struct kv_ref *r)
{
    uint16_t refs = cl_load_relaxed(&r->bucket->refs);
    unsigned shift = 2 * r->slot;
    if (((refs >> shift) & KV_REF_CAP) != KV_REF_CAP)
        cl_store_relaxed(&r->bucket->refs, (uint16_t)(refs + (1u << shift)));
}

/* Whether an item was read since it was stored. */
static inline bool kv_ref_hit(const struct kv_ref *r)
{
    return cl_load_relaxed(&r->bucket->hits) >> r->slot & 1;
}

/* Note that an item was read. Writes the first time, and while the count is below its cap. */
static inline void kv_ref_use(const struct kv_ref *r)
{
#define ALL(slot) (KV_REF_CAP << 2 * (slot) | 1u << (24 + (slot)))
    static const uint32_t all[KV_SLOTS] = {ALL(0), ALL(1), ALL(2), ALL(3), ALL(4), ALL(5), ALL(6)};
#undef ALL
    if (cl_likely(!(all[r->slot] & ~cl_load_relaxed(&r->bucket->use)))) /* both at their most; little endian */
        return;
    kv_ref_count(r);
    uint8_t hits = cl_load_relaxed(&r->bucket->hits);
    if (!(hits >> r->slot & 1))
        cl_store_relaxed(&r->bucket->hits, (uint8_t)(hits | 1u << r->slot));
}

/* The slot has a new item, which is in use and was not read yet. */
static inline void kv_ref_renew(const struct kv_ref *r)
{
    kv_ref_count(r);
    uint8_t hits = cl_load_relaxed(&r->bucket->hits);
    cl_store_relaxed(&r->bucket->hits, (uint8_t)(hits & ~(1u << r->slot)));
}

/* Mark an item as dead that is out of the index, or is about to be. Lock held. */
static inline void kv_item_dead(struct kv_partition *p, struct kv_item *it)
{
    uint64_t lengths = it->lengths & ~(KV_STATE_BITS << KV_STATE_SHIFT);
    cl_store_relaxed(&it->lengths, lengths | (uint64_t)KV_DEAD << KV_STATE_SHIFT);
    p->live_bytes -= kv_item_bytes(it);
    p->items--;
}

/* Whether an item has expired or been flushed. */
static inline bool kv_item_gone(const struct kv_partition *p, uint64_t flags_exp, uint64_t cas, uint32_t now_s)
{
    uint32_t expires = (uint32_t)(flags_exp >> 32);
    return (expires && expires <= now_s) || cas <= cl_load_relaxed(&p->flush_cas);
}

/* First stage of a burst: fetch the bucket's line. */
static inline void kv_prefetch_bucket(const struct cl_kv *s, uint64_t hash)
{
    __builtin_prefetch(kv_bucket_of(kv_partition_of(s, hash), hash), 0, 3);
}

/* Second stage, when the bucket has come: fetch the lines of the item that it seems to name, and no other. Returns the
 * item's bytes, of a large one KV_SLOT_BYTES_MAX; 0: none was found, or it lies in a chain. */
static inline unsigned kv_prefetch_item(const struct cl_kv *s, uint64_t hash)
{
    const struct kv_partition *p = kv_partition_of(s, hash);
    const struct kv_bucket *b = kv_bucket_of(p, hash);
    uint64_t tag = kv_tag(hash);
    for (unsigned i = 0; i < KV_SLOTS; i++) {
        uint64_t slot = cl_load_relaxed(&b->slot[i]);
        if ((slot ^ tag) >> 48 || !slot)
            continue;
        const char *item = (const char *)kv_slot_item(p, slot);
        unsigned bytes = item ? kv_slot_bytes(slot) : 0;
        const char *end = item + cl_min(bytes, KV_PREFETCH_BYTES);
        for (const char *line = item - (uintptr_t)item % CL_CACHELINE; line < end; line += CL_CACHELINE)
            __builtin_prefetch(line, 0, 3);
        return bytes;
    }
    if (cl_load_relaxed(&b->chained)) {
        uint64_t next = cl_load_relaxed(&b->slot[KV_SLOTS - 1]);
        if (next < p->n_overflow)
            __builtin_prefetch(&p->overflow[next], 0, 3);
    }
    return 0;
}

/* Look a key up for reading (apps/kv/lookup.c). True: found, *meta is of one piece, and r->item's value may be copied;
 * then call kv_lookup_done, and start again if it says false. False: a miss, no lock held. *locked: take the
 * partition's lock; set here when KV_READ_TRIES lock-free tries met a writer, so that one that lost its core is not
 * waited for by spinning. With *locked, the lock is held from a true return until kv_lookup_done, which then always
 * says true. */
bool kv_lookup(struct cl_kv_thread *t, const struct cl_kv_key *key, struct kv_ref *r, struct cl_kv_meta *meta,
               bool *locked);
bool kv_lookup_done(struct cl_kv_thread *t, const struct cl_kv_key *key, struct kv_ref *r, bool locked);
/* The same of a look that does not count as use. */
bool kv_lookup_peeked(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_ref *r, bool locked);

/* A write, as any of the protocols asks for it (apps/kv/ops.c). */
struct kv_write {
    int mode;        /* CL_KV_SET... */
    bool stale;      /* cas: a unique that is older than the item's is taken, too, but the item is stale from then on */
    bool binary_key; /* the key came as base64 */
    bool drops_old;  /* it cannot be stored: the old item goes, whatever the mode; of set it goes anyway */
    uint32_t flags, expires_s;
    const uint8_t *value; /* NULL: there was no memory for it */
    uint32_t value_bytes;
    uint64_t cas; /* append, prepend: 0 for any */
};

/* What was written. */
struct kv_written {
    uint64_t cas; /* 0: nothing */
    uint32_t value_bytes;
};

/* Store; returns what cl_kv_store does. */
int kv_write(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_write *w, struct kv_written *out);

/* A deletion: with has_cas only of an item that has that unique; with stale the item stays and is marked. */
struct kv_removal {
    bool has_cas, stale, new_time;
    uint32_t expires_s; /* with stale and new_time */
    uint64_t cas;
};
int kv_remove(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_removal *d);

/* A change of a decimal value. */
struct kv_change {
    bool incr;
    uint64_t delta;
    uint64_t cas;       /* 0: any */
    bool create;        /* a key that is not there is given the value `initial` */
    bool binary_key;    /* of one that is made */
    bool new_time;      /* an item that is there gets a time, too */
    uint32_t expires_s; /* with new_time */
    uint32_t created_s; /* when an item that is made expires */
    uint64_t initial;
};
struct kv_changed {
    uint64_t value, cas;
    uint32_t expired_s; /* before the change; 0 of one that was made */
    bool created;
};
int kv_delta(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_change *d, struct kv_changed *out);

/* Flushes (apps/kv/lookup.c): with the lock held; without, when one was delayed whose time may have come. */
void kv_flush_now(const struct cl_kv *s, struct kv_partition *p);
void kv_flush_due(struct cl_kv_thread *t, struct kv_partition *p);

/* Apply a delayed flush whose time has come. The lock is not held. */
static inline void kv_flush_if_due(struct cl_kv_thread *t, struct kv_partition *p)
{
    uint32_t at = cl_load_relaxed(&p->flush_at_s);
    if (cl_unlikely(at && at <= t->now_s))
        kv_flush_due(t, p);
}

/* Parts of such operations, with the lock held. */
/* Another unique. */
static inline uint64_t kv_next_cas(const struct cl_kv *s, struct kv_partition *p)
{
    return ++p->cas_count * s->n_partitions + (s->n_partitions > 1 ? p->number : 0);
}
/* A unique as clients are told it. */
static inline uint64_t kv_told_cas(const struct cl_kv *s, uint64_t cas)
{
    return cl_unlikely(s->no_cas) ? 0 : cas;
}
/* Find a key; what has expired is dropped. */
bool kv_find_live(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key, struct kv_ref *r);
int kv_write_locked(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key,
                    const struct kv_write *w, struct kv_written *out);
/* An item is given another time and other marks (from bit 42 on; its state stays). */
void kv_mark_item(struct cl_kv_thread *t, struct kv_partition *p, const struct kv_ref *r, uint32_t expires_s,
                  uint64_t marks);
/* Whether an item of such a key and value is small enough. */
static inline bool kv_fits(const struct cl_kv *s, uint32_t key_len, uint64_t value_bytes)
{
    return KV_OVERHEAD_BYTES + key_len + value_bytes <= s->item_max_bytes;
}

/* The lock of a partition (apps/kv/store.c). */
void kv_lock(struct kv_partition *p);
void kv_unlock(struct kv_partition *p);
/* Hash by another seed from now on, which is not 0: nothing is stored, or all is overwritten next. */
void kv_set_seed(struct cl_kv *s, uint64_t seed);

/* Index (apps/kv/index.c). Lock held; the caller is between kv_bucket_enter and kv_bucket_leave of the key's bucket. */
bool kv_index_insert(struct kv_partition *p, struct kv_bucket *head, uint64_t slot);
/* Whether it can without dropping another item. Lock held. */
bool kv_index_has_room(const struct kv_partition *p, const struct kv_bucket *head);
void kv_index_remove(struct kv_partition *p, struct kv_bucket *head, struct kv_bucket *bucket, unsigned slot);
/* The slot that points at an item, by its place. Lock held. */
bool kv_index_locate(struct kv_partition *p, const struct kv_item *it, struct kv_ref *r);
uint64_t kv_slot_make(const struct kv_partition *p, const struct kv_item *it);

/* Log (apps/kv/log.c). Lock held. */
/* Room for an item of `bytes` (a multiple of 8) at the head, evicting as needed. NULL if it can never fit. With a
 * live_limit nothing is evicted, and the caller has seen that the limit allows the item. */
struct kv_item *kv_log_append(struct kv_partition *p, uint64_t bytes, uint32_t now_s);
/* Drop all that has expired or was flushed. False: nothing was. */
bool kv_log_drop_gone(struct kv_partition *p, uint32_t now_s);
uint32_t kv_log_sweep(struct kv_partition *p, uint32_t now_s, uint32_t budget);
/* Show live items from place *at on, over `budget` places; *at is where to go on: the item that `see` was not content
 * with. */
void kv_log_walk(struct kv_partition *p, uint64_t *at, uint32_t budget,
                 bool (*see)(void *arg, const struct kv_item *it), void *arg);
/* Take an item out of index and log. */
void kv_unlink(struct kv_partition *p, const struct kv_ref *r);

/* Seconds since the store was made, whatever its clock says. */
uint64_t kv_uptime_s(const struct cl_kv *s);

#endif
