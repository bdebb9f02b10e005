/* The read side: looks for a key without a lock, and what a delayed flush and expiry do to what they find. */
#include "layout.h"

#define COUNT(t, what) cl_count(&(t)->counters.what, 1) /* relaxed: one writer, see cl_kv_counters */

void kv_flush_now(const struct cl_kv *s, struct kv_partition *p)
{
    cl_store_relaxed(&p->flush_cas, kv_next_cas(s, p)); /* relaxed: a read that races with a flush may go either way */
    cl_store_relaxed(&p->flush_at_s, 0);
}

void kv_flush_due(struct cl_kv_thread *t, struct kv_partition *p)
{
    kv_lock(p);
    if (p->flush_at_s && p->flush_at_s <= t->now_s)
        kv_flush_now(t->store, p);
    kv_unlock(p);
}

/* Drop an item that a reader found expired, if it is still that item. */
static void drop_gone(struct cl_kv_thread *t, struct kv_partition *p, const struct cl_kv_key *key)
{
    struct kv_ref r;
    kv_lock(p);
    kv_find(p, key->data, key->len, key->hash, &r);
    if (r.item && kv_item_gone(p, r.item->flags_exp, r.item->cas, t->now_s)) {
        kv_unlink(p, &r);
        p->reclaimed++;
    }
    kv_unlock(p);
}

bool kv_lookup(struct cl_kv_thread *t, const struct cl_kv_key *key, struct kv_ref *r, struct cl_kv_meta *meta,
               bool *locked)
{
    struct kv_partition *p = kv_partition_of(t->store, key->hash);
    kv_flush_if_due(t, p);
    for (unsigned tries = 0;; tries++) {
        *locked = *locked || tries == KV_READ_TRIES;
        if (cl_unlikely(*locked))
            kv_lock(p); /* the first try under the lock is of one piece: no second one takes it again */
        kv_find(p, key->data, key->len, key->hash, r);
        bool even = !(r->version & 1);
        if (r->item) {
            uint64_t flags_exp = cl_load_relaxed(&r->item->flags_exp);
            uint64_t lengths = cl_load_relaxed(&r->item->lengths);
            meta->cas = cl_load_relaxed(&r->item->cas);
            meta->flags = (uint32_t)flags_exp;
            meta->expires_s = (uint32_t)(flags_exp >> 32);
            meta->value_bytes = (uint32_t)lengths;
        }
        if (cl_unlikely(!even || !kv_ref_valid(r))) {
            COUNT(t, read_retries);
            cl_relax();
            continue;
        }
        if (!r->item)
            break;
        if (cl_likely(!kv_item_gone(p, (uint64_t)meta->expires_s << 32, meta->cas, t->now_s))) {
            meta->cas = kv_told_cas(t->store, meta->cas);
            return true;
        }
        if (*locked)
            kv_unlock(p);
        cl_count(meta->cas <= cl_load_relaxed(&p->flush_cas) ? &t->counters.get_flushed : &t->counters.get_expired, 1);
        if (!t->store->no_evict) /* replicas read different things, but must drop the same ones */
            drop_gone(t, p, key);
        return false;
    }
    if (*locked)
        kv_unlock(p);
    return false;
}

bool kv_lookup_peeked(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_ref *r, bool locked)
{
    if (locked) {
        kv_unlock(kv_partition_of(t->store, key->hash));
        return true;
    }
    if (cl_likely(kv_ref_valid(r)))
        return true;
    COUNT(t, read_retries);
    return false;
}

bool kv_lookup_done(struct cl_kv_thread *t, const struct cl_kv_key *key, struct kv_ref *r, bool locked)
{
    if (locked) {
        kv_ref_use(r);
        kv_unlock(kv_partition_of(t->store, key->hash));
        return true;
    }
    if (cl_likely(kv_ref_valid(r))) {
        kv_ref_use(r);
        return true;
    }
    COUNT(t, read_retries);
    return false;
}

int cl_kv_get(struct cl_kv_thread *t, const struct cl_kv_key *key, struct cl_kv_meta *meta, uint8_t *value,
              uint32_t room)
{
    COUNT(t, cmd_get);
    for (unsigned tries = 0;; tries++) {
        struct kv_ref r;
        bool locked = tries >= KV_READ_TRIES;
        if (!kv_lookup(t, key, &r, meta, &locked)) {
            COUNT(t, get_misses);
            return CL_KV_NOT_FOUND;
        }
        kv_copy_out(value, kv_item_value(r.item), cl_min(room, meta->value_bytes));
        if (kv_lookup_done(t, key, &r, locked)) {
            COUNT(t, get_hits);
            return CL_KV_OK;
        }
    }
}
