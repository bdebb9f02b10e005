/* The circular log of items: append at the head, reclaim at the tail.
 *
 * Positions are bytes ever appended; place = position modulo log_bytes. Items do not wrap: the rest of the log before
 * its end is a pad (without a header if it is shorter than one). Everything here runs under the partition's lock. */
#include "layout.h"
#include "watch.h"

#define MOVE_FACTOR 8  /* bytes that an append may move for each of its own, if there is room enough already */
#define LIMIT_STEPS 64 /* items that an append deals with for a limit that was lowered, if there is room enough */
#define HEADERLESS(rest) ((rest) < KV_HEADER_BYTES)

static struct kv_item *item_at(const struct kv_partition *p, uint64_t position)
{
    return (struct kv_item *)(p->log + position % p->log_bytes);
}

/* Bytes from a position to the log's end. */
static uint64_t rest_at(const struct kv_partition *p, uint64_t position)
{
    return p->log_bytes - position % p->log_bytes;
}

static uint64_t gap_of(const struct kv_partition *p)
{
    return p->log_bytes - (p->head - p->tail);
}

/* Room that an item takes at the head, with the pad before it if it does not fit before the log's end. */
static uint64_t need_of(const struct kv_partition *p, uint64_t bytes)
{
    uint64_t rest = rest_at(p, p->head);
    return rest < bytes ? rest + bytes : bytes;
}

/* Free space that appends keep ahead of them, so that reclaiming can move a few items without evicting others. */
static uint64_t gap_target(const struct kv_partition *p)
{
    /* While the tail goes round once at MOVE_FACTOR, appends take live_bytes / MOVE_FACTOR of the gap: so much of it is
     * left when reclaiming begins, and a store that never evicts rarely has to move more for one append. */
    if (p->live_limit)
        return p->live_bytes / MOVE_FACTOR;
    return cl_min(p->log_bytes / 32, 1ull << 20);
}

/* Take `bytes` at the head. The caller has made sure that need_of fits the gap. */
static struct kv_item *take(struct kv_partition *p, uint64_t bytes)
{
    uint64_t rest = rest_at(p, p->head);
    if (rest < bytes) {
        if (!HEADERLESS(rest)) {
            struct kv_item *pad = item_at(p, p->head);
            cl_store_relaxed(&pad->size_hash, rest >> 3);
            cl_store_relaxed(&pad->lengths, (uint64_t)KV_PAD << KV_STATE_SHIFT);
        }
        p->head += rest;
    }
    struct kv_item *it = item_at(p, p->head);
    p->head += bytes;
    p->live_bytes += bytes;
    return it;
}

void kv_unlink(struct kv_partition *p, const struct kv_ref *r)
{
    kv_bucket_enter(r->head);
    kv_index_remove(p, r->head, r->bucket, r->slot);
    kv_bucket_leave(r->head);
    kv_item_dead(p, r->item);
}

/* Move an item from the tail to the head, one reference poorer. */
static void move(struct kv_partition *p, const struct kv_ref *r, uint64_t bytes)
{
    struct kv_item *to = take(p, bytes);
    const uint64_t *from = (const uint64_t *)r->item;
    for (uint64_t i = 0; i < bytes / 8; i++)
        cl_store_relaxed((uint64_t *)to + i, from[i]);
    uint64_t slot = kv_slot_make(p, to) | (r->bucket->slot[r->slot] >> 48 << 48);
    kv_bucket_enter(r->head);
    cl_store_relaxed(&r->bucket->slot[r->slot], slot);
    uint16_t refs = cl_load_relaxed(&r->bucket->refs);
    if ((refs >> (2 * r->slot)) & KV_REF_CAP)
        cl_store_relaxed(&r->bucket->refs, (uint16_t)(refs - (1u << (2 * r->slot))));
    kv_bucket_leave(r->head);
    p->live_bytes -= bytes; /* the old place */
    p->moved++;
}

/* What reclaiming may still do for one append. */
struct allowance {
    uint64_t move_bytes; /* left to move */
    uint64_t need;       /* free bytes without which the append fails */
    uint32_t now_s;
};

/* Deal with what lies at the tail. False if it should stay for now, as there is room enough already. */
static bool reclaim_one(struct kv_partition *p, struct allowance *a)
{
    uint64_t rest = rest_at(p, p->tail);
    if (HEADERLESS(rest)) {
        p->tail += rest;
        return true;
    }
    struct kv_item *it = item_at(p, p->tail);
    uint64_t bytes = kv_item_bytes(it);
    /* The next one's bucket is fetched while this one is dealt with. */
    __builtin_prefetch((const char *)it + bytes + 64);
    if (kv_item_state(it) == KV_LIVE) {
        struct kv_ref r;
        kv_index_locate(p, it, &r);
        bool forced = p->live_limit && gap_of(p) < a->need;
        bool room = forced || (gap_of(p) >= need_of(p, bytes) && a->move_bytes >= bytes);
        unsigned refs = (cl_load_relaxed(&r.bucket->refs) >> (2 * r.slot)) & KV_REF_CAP;
        bool keep = refs || p->live_limit || p->live_bytes < (p->log_bytes - p->withheld_bytes) / 8 * 7;
        if (kv_item_gone(p, it->flags_exp, it->cas, a->now_s)) {
            kv_unlink(p, &r);
            p->reclaimed++;
        } else if (keep && room) {
            a->move_bytes -= cl_min(bytes, a->move_bytes);
            move(p, &r, bytes);
        } else if (keep && gap_of(p) >= a->need) {
            return false; /* the gap is there for stretches that are worth keeping: later appends move on through it */
        } else {
            if (kv_watched(p->store, KV_WATCH_EVICTIONS))
                kv_watch_note_eviction(p->store, it, kv_ref_hit(&r), a->now_s);
            kv_unlink(p, &r);
            p->evictions++;
        }
    }
    p->tail += bytes;
    return true;
}

struct kv_item *kv_log_append(struct kv_partition *p, uint64_t bytes, uint32_t now_s)
{
    if (2 * bytes > p->log_bytes)
        return NULL;
    struct allowance a = {.move_bytes = MOVE_FACTOR * bytes + 4096, .now_s = now_s};
    for (unsigned steps = 0;; steps++) {
        a.need = need_of(p, bytes) + kv_reserve_of(p); /* moves go through the head too, and may cross the log's end */
        if (p->withheld_bytes && steps >= LIMIT_STEPS && gap_of(p) >= a.need)
            break;
        if (gap_of(p) >= a.need + gap_target(p) + p->withheld_bytes || p->tail == p->head || !reclaim_one(p, &a))
            break;
    }
    struct kv_item *it = take(p, bytes);
    cl_store_relaxed(&it->size_hash, bytes >> 3);
    p->items++;
    return it;
}

bool kv_log_drop_gone(struct kv_partition *p, uint32_t now_s)
{
    if (p->looked_s == now_s && p->looked_cas == p->flush_cas)
        return false;
    uint64_t cursor = p->cursor;
    p->cursor = p->tail;
    uint32_t dropped = kv_log_sweep(p, now_s, UINT32_MAX);
    p->cursor = cursor; /* as where nobody had to look */
    p->looked_s = now_s;
    p->looked_cas = p->flush_cas;
    return dropped;
}

uint32_t kv_log_sweep(struct kv_partition *p, uint32_t now_s, uint32_t budget)
{
    uint32_t dropped = 0;
    uint64_t at = cl_max(p->cursor, p->tail);
    for (; budget && at < p->head; budget--) {
        uint64_t rest = rest_at(p, at);
        struct kv_item *it = item_at(p, at);
        uint64_t bytes = HEADERLESS(rest) ? rest : kv_item_bytes(it);
        struct kv_ref r;
        if (!HEADERLESS(rest) && kv_item_state(it) == KV_LIVE && kv_item_gone(p, it->flags_exp, it->cas, now_s) &&
            kv_index_locate(p, it, &r)) {
            kv_unlink(p, &r);
            p->reclaimed++;
            dropped++;
        }
        at += bytes;
    }
    p->cursor = at < p->head ? at : p->tail;
    return dropped;
}

void kv_log_walk(struct kv_partition *p, uint64_t *at, uint32_t budget,
                 bool (*see)(void *arg, const struct kv_item *it), void *arg)
{
    *at = cl_max(*at, p->tail);
    for (; budget && *at < p->head; budget--) {
        uint64_t rest = rest_at(p, *at);
        const struct kv_item *it = item_at(p, *at);
        uint64_t bytes = HEADERLESS(rest) ? rest : kv_item_bytes(it);
        if (!HEADERLESS(rest) && kv_item_state(it) == KV_LIVE && !see(arg, it))
            return;
        *at += bytes;
    }
}
