/* Operations that change items. Semantics are memcached's; where its text is silent, those of memcached 1.6. */
#include "layout.h"
#include "number.h"
#include "watch.h"

#define COUNT(t, what) cl_count(&(t)->counters.what, 1) /* relaxed: one writer, see cl_kv_counters */

/* An item is given a time at which it has expired already. */
static void note_expiry(struct cl_kv_thread *t, struct kv_partition *p, uint32_t expires_s)
{
    if (expires_s && expires_s <= t->now_s)
        p->looked_s = 0;
}

bool kv_find_live(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key, struct kv_ref *r)
{
    kv_find(p, key->data, key->len, key->hash, r);
    if (r->item && kv_item_gone(p, r->item->flags_exp, r->item->cas, t->now_s)) {
        kv_unlink(p, r);
        p->reclaimed++;
        r->item = NULL;
    }
    return r->item != NULL;
}

static uint64_t item_bytes(uint32_t key_len, uint64_t value_bytes)
{
    return KV_HEADER_BYTES + 8ull * kv_key_words(key_len) + ((value_bytes + 7) & ~7ull);
}

/* A value made of two pieces, of which one may lie in an item. */
struct pieces {
    const uint8_t *data[2];
    uint32_t bytes[2];
};

/* Write the pieces to item words. Word by word, since lock-free readers may be looking. */
static void write_value(uint64_t *to, const struct pieces *v)
{
    uint64_t word = 0;
    unsigned fill = 0; /* bytes in word */
    for (unsigned k = 0; k < 2; k++) {
        const uint8_t *from = v->data[k];
        uint32_t n = v->bytes[k], i = 0;
        for (; fill == 0 && i + 8 <= n; i += 8)
            cl_store_relaxed(to++, kv_read64(from + i));
        for (; i < n; i++) {
            word |= (uint64_t)from[i] << (8 * fill);
            if (++fill == 8) {
                cl_store_relaxed(to++, word);
                word = 0;
                fill = 0;
            }
        }
    }
    if (fill)
        cl_store_relaxed(to, word);
}

/* What a new item is told beside key and value. */
struct head {
    uint64_t flags_exp, cas, marks;
};

static void write_head(struct kv_item *it, const struct head *h, uint64_t lengths)
{
    cl_store_relaxed(&it->flags_exp, h->flags_exp);
    cl_store_relaxed(&it->cas, h->cas);
    cl_store_relaxed(&it->lengths, lengths | h->marks | (uint64_t)KV_LIVE << KV_STATE_SHIFT);
}

static void write_item(struct kv_item *it, const struct cl_kv_key *key, const struct head *h, const struct pieces *v)
{
    uint64_t size = cl_load_relaxed(&it->size_hash) & UINT32_MAX;
    cl_store_relaxed(&it->size_hash, size | (key->hash << 32));
    write_head(it, h, ((uint64_t)v->bytes[0] + v->bytes[1]) | (uint64_t)key->len << 32);
    struct pieces k = {{key->data, NULL}, {key->len, 0}};
    write_value(it->body, &k);
    write_value(it->body + kv_key_words(key->len), v);
}

/* Replace the value where it is, if the new one fits and does not waste more than half of the place. */
static bool replace_in_place(const struct kv_ref *r, const struct cl_kv_key *key, const struct head *h,
                             const struct pieces *v)
{
    uint64_t need = item_bytes(key->len, (uint64_t)v->bytes[0] + v->bytes[1]), have = kv_item_bytes(r->item);
    if (need > have || need * 2 < have)
        return false;
    kv_bucket_enter(r->head);
    write_item(r->item, key, h, v);
    kv_bucket_leave(r->head);
    kv_ref_renew(r);
    return true;
}

/* Whether a store that never evicts has room for a key's item of `bytes` in place of its old one. */
static bool has_room(const struct kv_partition *p, const struct cl_kv_key *key, uint64_t bytes)
{
    struct kv_ref old;
    kv_find(p, key->data, key->len, key->hash, &old);
    uint64_t gives = old.item ? kv_item_bytes(old.item) : 0;
    return (bytes <= gives || p->live_bytes - gives + bytes <= p->live_limit) &&
           (old.item || kv_index_has_room(p, old.head));
}

static bool make_room(struct kv_partition *p, const struct cl_kv_key *key, uint64_t bytes, uint32_t now_s)
{
    return has_room(p, key, bytes) || (kv_log_drop_gone(p, now_s) && has_room(p, key, bytes));
}

/* Write a new item and let the index point to it; the key's old item, if there still is one, is dropped. */
static int put_new(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key, const struct head *h,
                   const struct pieces *v, bool joins_old)
{
    uint64_t bytes = item_bytes(key->len, (uint64_t)v->bytes[0] + v->bytes[1]);
    if (p->live_limit && !make_room(p, key, bytes, t->now_s))
        return CL_KV_NO_MEMORY;
    struct kv_item *it = kv_log_append(p, bytes, t->now_s);
    if (!it)
        return CL_KV_NO_MEMORY;
    struct kv_ref old;
    kv_find(p, key->data, key->len, key->hash, &old); /* again: making room may have moved or evicted it */
    struct pieces joined = *v;
    if (joins_old) {
        if (!old.item) {
            cl_store_relaxed(&it->lengths, (uint64_t)KV_LIVE << KV_STATE_SHIFT);
            kv_item_dead(p, it);
            return CL_KV_NOT_STORED;
        }
        joined.data[v->data[0] ? 1 : 0] = (const uint8_t *)kv_item_value(old.item);
    }
    write_item(it, key, h, &joined);
    uint64_t slot = kv_slot_make(p, it) | kv_tag(key->hash);
    kv_bucket_enter(old.head);
    if (old.item) {
        cl_store_relaxed(&old.bucket->slot[old.slot], slot);
        kv_item_dead(p, old.item);
        kv_ref_renew(&old);
    } else {
        kv_index_insert(p, old.head, slot);
    }
    kv_bucket_leave(old.head);
    return CL_KV_OK;
}

/* Whether a write with an old unique goes through, and leaves a stale item. */
static bool stores_stale(const struct cl_kv *s, const struct kv_write *w, const struct kv_ref *r)
{
    return w->stale && w->cas && w->cas < kv_told_cas(s, r->item->cas);
}

/* Whether a write may go on, given what is there. CL_KV_OK if so. */
static int may_store(struct cl_kv_thread *t, const struct kv_write *w, const struct kv_ref *r)
{
    bool there = r->item != NULL;
    switch (w->mode) {
    case CL_KV_ADD:
        if (there)
            kv_ref_count(r); /* memcached: a failed add counts as use */
        return there ? CL_KV_NOT_STORED : CL_KV_OK;
    case CL_KV_REPLACE:
        return there ? CL_KV_OK : CL_KV_NOT_STORED;
    case CL_KV_APPEND:
    case CL_KV_PREPEND:
        if (!there)
            return CL_KV_NOT_STORED;
        /* Without uniques memcached does not look at the one that it is given here. */
        return w->cas && w->cas != r->item->cas && !t->store->no_cas ? CL_KV_EXISTS : CL_KV_OK;
    case CL_KV_CAS:
        if (!there) {
            COUNT(t, cas_misses);
            return CL_KV_NOT_FOUND;
        }
        if (t->store->no_cas || (r->item->cas != w->cas && !stores_stale(t->store, w, r))) {
            COUNT(t, cas_badval);
            return CL_KV_EXISTS;
        }
        COUNT(t, cas_hits);
        return CL_KV_OK;
    default:
        return CL_KV_OK;
    }
}

/* What the new item's head is to say, and of what its value is made. Its unique comes later. */
static void prepare(const struct cl_kv_thread *t, const struct kv_write *w, const struct kv_ref *old, bool joins,
                    struct head *h, struct pieces *v)
{
    static const uint8_t nothing[1];
    const uint8_t *value = w->value ? w->value : nothing;
    *h = (struct head){.flags_exp = (uint64_t)w->expires_s << 32 | w->flags,
                       .marks = kv_marks_now(t->now_s) | (w->binary_key ? KV_BINARY_KEY : 0)};
    *v = (struct pieces){{value, NULL}, {w->value_bytes, 0}};
    if (joins) {
        unsigned other = w->mode == CL_KV_APPEND;
        h->flags_exp = old->item->flags_exp;
        h->marks |= old->item->lengths & KV_BINARY_KEY;
        v->data[other] = value;
        v->bytes[other] = w->value_bytes;
        v->data[!other] = NULL; /* filled in by put_new */
        v->bytes[!other] = (uint32_t)old->item->lengths;
    } else if (old->item && w->mode == CL_KV_CAS && old->item->cas != w->cas) {
        h->flags_exp = old->item->flags_exp >> 32 << 32 | w->flags;
        h->marks |= KV_STALE | (old->item->lengths & KV_WON);
    }
}

int kv_write_locked(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key,
                    const struct kv_write *w, struct kv_written *out)
{
    struct kv_ref old;
    struct head h;
    struct pieces v;
    kv_find_live(t, p, key, &old);
    int rc = may_store(t, w, &old);
    if (rc)
        return rc;
    note_expiry(t, p, w->expires_s);
    bool joins = old.item && (w->mode == CL_KV_APPEND || w->mode == CL_KV_PREPEND);
    prepare(t, w, &old, joins, &h, &v);
    uint64_t bytes = (uint64_t)v.bytes[0] + v.bytes[1];
    if (joins) {
        if (!kv_fits(t->store, key->len, bytes)) {
            COUNT(t, store_too_large);
            return CL_KV_NOT_STORED; /* as memcached answers; the old value stays */
        }
        kv_ref_count(&old);
    }
    h.cas = kv_next_cas(t->store, p);
    p->total_items++;
    if (joins || !old.item || !replace_in_place(&old, key, &h, &v))
        rc = put_new(t, p, key, &h, &v, joins);
    if (!rc)
        *out = (struct kv_written){.cas = kv_told_cas(t->store, h.cas), .value_bytes = (uint32_t)bytes};
    return rc;
}

/* A write that is too large, or whose value had no memory to wait in. memcached: a value that is out of date is worse
 * than none. */
static CL_NOINLINE int refuse(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_write *w, bool fits)
{
    cl_count(fits ? &t->counters.store_no_memory : &t->counters.store_too_large, 1);
    if (w->mode == CL_KV_SET || w->drops_old)
        cl_kv_delete_key(&(struct cl_kv_thread){.store = t->store, .now_s = t->now_s}, key);
    return fits ? CL_KV_NO_MEMORY : CL_KV_TOO_LARGE;
}

/* What a write comes to. */
static int write_unwatched(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_write *w,
                           struct kv_written *out)
{
    struct kv_partition *p = kv_partition_of(t->store, key->hash);
    COUNT(t, cmd_set);
    bool fits = kv_fits(t->store, key->len, w->value_bytes);
    if (cl_unlikely(!fits || (!w->value && w->value_bytes)))
        return refuse(t, key, w, fits);
    kv_flush_if_due(t, p);
    kv_lock(p);
    int rc = kv_write_locked(t, p, key, w, out);
    kv_unlock(p);
    if (rc == CL_KV_NO_MEMORY)
        COUNT(t, store_no_memory);
    return rc;
}

int kv_write(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_write *w, struct kv_written *out)
{
    int rc = write_unwatched(t, key, w, out);
    if (kv_watched(t->store, KV_WATCH_MUTATIONS))
        kv_watch_note_store(t, key, w, rc, rc ? w->value_bytes : out->value_bytes);
    return rc;
}

int cl_kv_store(struct cl_kv_thread *t, const struct cl_kv_key *key, int mode, uint32_t flags, uint32_t expires_s,
                const uint8_t *value, uint32_t value_bytes, uint64_t cas)
{
    struct kv_written out;
    struct kv_write w = {.mode = mode,
                         .flags = flags,
                         .expires_s = expires_s,
                         .value = value,
                         .value_bytes = value_bytes,
                         .cas = mode == CL_KV_CAS ? cas : 0};
    return kv_write(t, key, &w, &out);
}

/* Give an item another head, its value staying as it is. */
static void rewrite_head(const struct kv_ref *r, const struct head *h)
{
    kv_bucket_enter(r->head);
    write_head(r->item, h, r->item->lengths & ((1ull << KV_STATE_SHIFT) - 1));
    kv_bucket_leave(r->head);
}

void kv_mark_item(struct cl_kv_thread *t, struct kv_partition *p, const struct kv_ref *r, uint32_t expires_s,
                  uint64_t marks)
{
    note_expiry(t, p, expires_s);
    struct head h = {(uint64_t)expires_s << 32 | (uint32_t)r->item->flags_exp, r->item->cas, marks};
    rewrite_head(r, &h);
}

/* What is done to an item that a deletion found. */
static int remove_found(struct cl_kv_thread *t, struct kv_partition *p, const struct kv_removal *d, struct kv_ref *r)
{
    if (d->has_cas && d->cas != kv_told_cas(t->store, r->item->cas))
        return CL_KV_EXISTS;
    if (!d->stale) {
        kv_unlink(p, r);
        return CL_KV_OK;
    }
    uint32_t expires_s = d->new_time ? d->expires_s : (uint32_t)(r->item->flags_exp >> 32);
    note_expiry(t, p, expires_s);
    struct head h = {.flags_exp = (uint64_t)expires_s << 32 | (uint32_t)r->item->flags_exp,
                     .cas = kv_next_cas(t->store, p),
                     .marks = (r->item->lengths & KV_MARKS & ~KV_WON) | KV_STALE};
    rewrite_head(r, &h);
    return CL_KV_OK;
}

int kv_remove(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_removal *d)
{
    struct kv_partition *p = kv_partition_of(t->store, key->hash);
    struct kv_ref r;
    kv_flush_if_due(t, p);
    kv_lock(p);
    int rc = kv_find_live(t, p, key, &r) ? remove_found(t, p, d, &r) : CL_KV_NOT_FOUND;
    kv_unlock(p);
    if (rc == CL_KV_OK && !d->stale)
        COUNT(t, delete_hits);
    else if (rc != CL_KV_OK)
        COUNT(t, delete_misses);
    return rc;
}

int cl_kv_delete_key(struct cl_kv_thread *t, const struct cl_kv_key *key)
{
    return kv_remove(t, key, &(struct kv_removal){0});
}

int cl_kv_touch(struct cl_kv_thread *t, const struct cl_kv_key *key, uint32_t expires_s)
{
    struct kv_partition *p = kv_partition_of(t->store, key->hash);
    struct kv_ref r;
    COUNT(t, cmd_touch);
    kv_flush_if_due(t, p);
    kv_lock(p);
    bool found = kv_find_live(t, p, key, &r);
    if (found) {
        kv_mark_item(t, p, &r, expires_s, (r.item->lengths & KV_KEPT_MARKS) | kv_marks_now(t->now_s));
        kv_ref_use(&r);
    }
    kv_unlock(p);
    cl_count(found ? &t->counters.touch_hits : &t->counters.touch_misses, 1);
    return found ? CL_KV_OK : CL_KV_NOT_FOUND;
}

/* Write a counter's digits over the old value; one that got shorter keeps its length, filled up with spaces. */
static void write_counter(const struct kv_ref *r, const struct head *h, const uint8_t *text, uint32_t n)
{
    uint32_t bytes = (uint32_t)r->item->lengths;
    uint64_t *to = (uint64_t *)kv_item_value(r->item);
    kv_bucket_enter(r->head);
    write_head(r->item, h, r->item->lengths & ((1ull << KV_STATE_SHIFT) - 1));
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0x2020202020202020ull;
        for (uint32_t k = i; k < n && k < i + 8; k++)
            word ^= (uint64_t)(uint8_t)(' ' ^ text[k]) << (8 * (k - i));
        cl_store_relaxed(to++, word);
    }
    kv_bucket_leave(r->head);
    kv_ref_count(r);
}

/* Store the value that a key which is not there begins with. */
static int create_counter(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key,
                          const struct kv_change *d, struct kv_changed *out)
{
    uint8_t text[KV_DECIMAL_MAX];
    struct kv_written written;
    struct kv_write w = {.mode = CL_KV_ADD,
                         .binary_key = d->binary_key,
                         .expires_s = d->created_s,
                         .value = text,
                         .value_bytes = kv_format_u64(text, d->initial)};
    int rc = kv_write_locked(t, p, key, &w, &written);
    if (!rc)
        *out = (struct kv_changed){.value = d->initial, .cas = written.cas, .created = true};
    return rc;
}

static int delta_locked(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key,
                        const struct kv_change *d, struct kv_changed *out)
{
    struct kv_ref r;
    if (!kv_find_live(t, p, key, &r))
        return d->create ? create_counter(t, p, key, d, out) : CL_KV_NOT_FOUND;
    uint32_t old_bytes = (uint32_t)r.item->lengths, expired_s = (uint32_t)(r.item->flags_exp >> 32);
    uint64_t value;
    if (old_bytes && d->cas && d->cas != kv_told_cas(t->store, r.item->cas))
        return CL_KV_EXISTS;
    if (!old_bytes || !kv_parse_u64((const uint8_t *)kv_item_value(r.item), old_bytes, &value))
        return CL_KV_NON_NUMERIC;
    cl_count(d->incr ? &t->counters.incr_hits : &t->counters.decr_hits, 1);
    value = d->incr ? value + d->delta : value > d->delta ? value - d->delta : 0;
    uint8_t text[KV_DECIMAL_MAX];
    uint32_t n = kv_format_u64(text, value), expires_s = d->new_time ? d->expires_s : expired_s;
    struct head h = {.flags_exp = (uint64_t)expires_s << 32 | (uint32_t)r.item->flags_exp,
                     .cas = kv_next_cas(t->store, p),
                     .marks = kv_marks_now(t->now_s) | (r.item->lengths & KV_KEPT_MARKS)};
    note_expiry(t, p, expires_s);
    *out = (struct kv_changed){.value = value, .cas = kv_told_cas(t->store, h.cas), .expired_s = expired_s};
    if (n <= old_bytes) {
        write_counter(&r, &h, text, n);
        return CL_KV_OK;
    }
    struct pieces v = {{text, NULL}, {n, 0}};
    h.marks &= ~(KV_STALE | KV_WON); /* as of an item that is stored anew */
    if (replace_in_place(&r, key, &h, &v))
        return CL_KV_OK;
    return put_new(t, p, key, &h, &v, false);
}

int kv_delta(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_change *d, struct kv_changed *out)
{
    struct kv_partition *p = kv_partition_of(t->store, key->hash);
    kv_flush_if_due(t, p);
    kv_lock(p);
    int rc = delta_locked(t, p, key, d, out);
    kv_unlock(p);
    if (rc == CL_KV_NOT_FOUND)
        cl_count(d->incr ? &t->counters.incr_misses : &t->counters.decr_misses, 1);
    return rc;
}

int cl_kv_delta(struct cl_kv_thread *t, const struct cl_kv_key *key, bool incr, uint64_t delta, uint64_t *out)
{
    struct kv_changed changed;
    int rc = kv_delta(t, key, &(struct kv_change){.incr = incr, .delta = delta}, &changed);
    if (!rc)
        *out = changed.value;
    return rc;
}

void cl_kv_flush_all(struct cl_kv_thread *t, uint32_t at_s)
{
    struct cl_kv *s = t->store;
    COUNT(t, cmd_flush);
    for (uint32_t i = 0; i < s->n_partitions; i++) {
        struct kv_partition *p = &s->partitions[i];
        kv_flush_if_due(t, p);
        kv_lock(p);
        if (at_s <= t->now_s)
            kv_flush_now(s, p);
        else
            cl_store_relaxed(&p->flush_at_s, at_s);
        if (at_s == CL_KV_NEVER_S)
            kv_next_cas(s, p); /* as memcached: a flush at a past day takes a unique, one that waits does not */
        kv_unlock(p);
    }
}

uint32_t cl_kv_sweep(struct cl_kv_thread *t, uint32_t budget)
{
    struct cl_kv *s = t->store;
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < s->n_partitions; i++) {
        struct kv_partition *p = &s->partitions[i];
        kv_flush_if_due(t, p);
        kv_lock(p);
        dropped += kv_log_sweep(p, t->now_s, budget);
        kv_unlock(p);
    }
    return dropped;
}
