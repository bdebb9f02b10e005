/* See evict.h. Of some keys drawn at random the one that the policy wants gone most is removed (maxmemory-samples), as
 * Redis does; the one that expires first is known exactly. */
#include "evict.h"
#include "db.h"
#include "propagate.h"
#include "reply.h"

#define SPARE_BYTES (4u << 20) /* a span of each class, and some that are empty */

static bool volatile_only(int64_t policy)
{
    return policy == CL_RE_VOLATILE_LFU || policy == CL_RE_VOLATILE_LRU || policy == CL_RE_VOLATILE_RANDOM ||
           policy == CL_RE_VOLATILE_TTL;
}

static struct cl_entry *draw(struct cl_resp *r, struct cl_rdb *db)
{
    if (!volatile_only(r->config.policy))
        return (struct cl_entry *)cl_rdict_random(&db->keys, cl_resp_random, r);
    if (!db->heap_n)
        return NULL;
    return db->heap[r->config.policy == CL_RE_VOLATILE_TTL ? 0 : cl_resp_random(r) % db->heap_n];
}

/* How much the policy wants it gone. */
static uint32_t weight(const struct cl_resp *r, const struct cl_entry *e)
{
    if (r->config.policy & 1)
        return 255 - cl_entry_frequency(r, e);
    return cl_entry_idle_s(r, e);
}

static struct cl_entry *victim(struct cl_resp *r, struct cl_rdb *db)
{
    struct cl_entry *best = draw(r, db);
    for (int64_t i = 1; best && i < r->config.samples; i++) {
        struct cl_entry *other = draw(r, db);
        if (weight(r, other) > weight(r, best))
            best = other;
    }
    return best;
}

static void evict(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e)
{
    struct cl_slice key = cl_entry_key(e);
    uint8_t *name = cl_rmem_new(&r->mem, key.len + 1ull);
    memcpy(name, key.p, key.len);
    key.p = name;
    r->stats.evicted++;
    cl_rprop_gone(r, db->number, key);
    cl_rdb_remove(r, db, e, false);
    cl_rdb_changed_in(r, db, key);
    cl_rdb_notify(r, CL_RN_EVICTED, "evicted", key, db->number);
    cl_rmem_free(&r->mem, name, key.len + 1ull);
}

/* Within the limit; and what slabs hold, blocks that are free between others included, within twice that. */
static bool fits(const struct cl_resp *r, uint64_t bytes, uint64_t limit)
{
    return r->mem.used + bytes <= limit && r->mem.spans + r->mem.large + bytes <= 2 * limit + SPARE_BYTES;
}

bool cl_evict_for(struct cl_resp *r, uint64_t bytes)
{
    uint64_t limit = cl_resp_limit(r);
    uint32_t empty = 0;
    if (cl_likely(fits(r, bytes, limit)))
        return true;
    if (r->config.policy == CL_RE_NO_EVICTION || bytes > limit)
        return false;
    while (!fits(r, bytes, limit) && empty < CL_RESP_DATABASES) {
        struct cl_rdb *db = &r->db[r->evict_db++ % CL_RESP_DATABASES];
        struct cl_entry *e = victim(r, db);
        empty = e ? 0 : empty + 1;
        if (e)
            evict(r, db, e);
    }
    return fits(r, bytes, limit);
}

void cl_evict_refuse(struct cl_resp_client *c)
{
    cl_reply_error(c, "OOM command not allowed when used memory > 'maxmemory'.");
}

bool cl_evict_or_refuse(struct cl_resp_client *c, uint64_t bytes)
{
    if (cl_evict_for(c->r, bytes))
        return true;
    cl_evict_refuse(c);
    return false;
}
