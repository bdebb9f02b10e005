/* lru_crawler metadump and stats cachedump: a line for each item, as far as there is room; the session knows where to
 * go on. */
#include "command_layout.h"
#include "watch.h"
#include <inttypes.h>
#include <stdio.h>

#define LINE_MAX_BYTES 1024 /* a key of 250 bytes, each in three, and numbers */
#define NUMBERS_BYTES 200
#define PLACES_AT_ONCE 64 /* with the partition's lock held */

struct dump {
    struct kv_command *c;
    struct kv_partition *partition;
    bool crawler;   /* the lines are metadump's */
    uint32_t limit; /* lines at most */
    bool full;
};

/* metadump's line of an item; returns its end. */
static uint8_t *put_meta(const struct dump *d, const struct kv_item *it, bool hit, uint8_t *p)
{
    const struct cl_kv_thread *t = d->c->thread;
    int64_t base = t->store->unix_base_s;
    uint32_t expires_s = (uint32_t)(it->flags_exp >> 32);
    memcpy(p, "key=", 4);
    p = kv_put_escaped(p + 4, (const uint8_t *)it->body, kv_item_key_len(it));
    return p + snprintf((char *)p, NUMBERS_BYTES,
                        " exp=%" PRId64 " la=%" PRId64 " cas=%" PRIu64 " fetch=%s cls=1 size=%" PRIu64 "\n",
                        expires_s ? expires_s + base : -1, t->now_s - kv_age_s(it->lengths, t->now_s) + base,
                        kv_told_cas(t->store, it->cas), hit ? "yes" : "no", kv_item_bytes(it));
}

/* cachedump's line, of a key that can stand in one. */
static uint8_t *put_short(const struct dump *d, const struct kv_item *it, uint8_t *p)
{
    const uint8_t *key = (const uint8_t *)it->body;
    uint32_t expires_s = (uint32_t)(it->flags_exp >> 32), len = kv_item_key_len(it);
    for (uint32_t i = 0; i < len; i++)
        if (key[i] <= ' ')
            return p;
    memcpy(p, "ITEM ", 5);
    memcpy(p + 5, key, len);
    p += 5 + len;
    return p + snprintf((char *)p, NUMBERS_BYTES, " [%u b; %" PRId64 " s]\r\n", (uint32_t)it->lengths,
                        expires_s ? expires_s + d->c->thread->store->unix_base_s : 0);
}

/* One item's line. False: no room for it, or there have been enough. */
static bool put_item(void *arg, const struct kv_item *it)
{
    struct dump *d = arg;
    struct cl_kv_session *s = d->c->session;
    struct kv_ref r;
    if (s->skip == d->limit)
        return false;
    if (kv_item_gone(d->partition, it->flags_exp, it->cas, d->c->thread->now_s) ||
        !kv_index_locate(d->partition, it, &r))
        return true;
    uint8_t *start = kv_out_room(d->c->out, LINE_MAX_BYTES), *end;
    d->full = !start;
    if (!start)
        return false;
    end = d->crawler ? put_meta(d, it, kv_ref_hit(&r), start) : put_short(d, it, start);
    d->c->out->len += (uint64_t)(end - start);
    s->skip++;
    return true;
}

/* A partition's items, from where the session stands. False: no room. */
static bool dump_partition(struct dump *d, struct cl_kv_session *s)
{
    struct kv_partition *p = d->partition;
    bool more = true;
    while (more && !d->full) {
        kv_lock(p);
        if (!s->dump_end) /* once round: what is moved meanwhile comes once more, what is new does not go on for ever */
            s->dump_end = p->head + p->log_bytes;
        kv_log_walk(p, &s->dump_at, PLACES_AT_ONCE, put_item, d);
        more = s->skip < d->limit && s->dump_at < cl_min(p->head, s->dump_end);
        kv_unlock(p);
    }
    return !d->full;
}

bool kv_dump(struct kv_command *c, bool crawler, uint32_t limit)
{
    struct cl_kv_session *s = c->session;
    struct cl_kv *store = c->thread->store;
    for (; s->dump_partition < store->n_partitions; s->dump_partition++) {
        struct dump d = {c, &store->partitions[s->dump_partition], crawler, limit, false};
        if (!dump_partition(&d, s))
            return false;
        s->dump_at = s->dump_end = 0;
    }
    if (!kv_out_room(c->out, KV_SHORT_ANSWER_BYTES))
        return false;
    s->dump_partition = s->skip = 0;
    kv_answer(c, "END");
    return true;
}
