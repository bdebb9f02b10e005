/* lru_crawler metadump: a line for each item, as far as there is room; the session knows where to go on. */
#include "command_layout.h"
#include <inttypes.h>
#include <stdio.h>

#define LINE_MAX_BYTES 1024 /* a key of 250 bytes, each in three, and numbers */
#define PLACES_AT_ONCE 64   /* with the partition's lock held */

struct dump {
    struct kv_command *c;
    struct kv_partition *partition;
    bool full;
};

/* A key as in a URI: bytes that are not plain as %XX. Returns its end. */
static uint8_t *put_escaped(uint8_t *p, const uint8_t *key, uint32_t len)
{
    static const char hex[] = "0123456789ABCDEF";
    for (uint32_t i = 0; i < len; i++) {
        uint8_t c = key[i];
        bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (letter || (c >= '0' && c <= '9') || (c && strchr("-._~", c))) {
            *p++ = c;
        } else {
            *p++ = '%';
            *p++ = (uint8_t)hex[c >> 4];
            *p++ = (uint8_t)hex[c & 15];
        }
    }
    return p;
}

/* One item's line. False: no room for it. */
static bool put_item(void *arg, const struct kv_item *it)
{
    struct dump *d = arg;
    const struct cl_kv_thread *t = d->c->thread;
    struct kv_ref r;
    if (kv_item_gone(d->partition, it->flags_exp, it->cas, t->now_s) || !kv_index_locate(d->partition, it, &r))
        return true;
    uint8_t *start = kv_out_room(d->c->out, LINE_MAX_BYTES), *p = start;
    d->full = !start;
    if (!start)
        return false;
    int64_t base = t->store->unix_base_s;
    uint32_t expires_s = (uint32_t)(it->flags_exp >> 32);
    char text[200];
    int n = snprintf(text, sizeof(text),
                     " exp=%" PRId64 " la=%" PRId64 " cas=%" PRIu64 " fetch=%s cls=1 size=%" PRIu64 "\n",
                     expires_s ? expires_s + base : -1, t->now_s - kv_age_s(it->lengths, t->now_s) + base, it->cas,
                     kv_ref_hit(&r) ? "yes" : "no", kv_item_bytes(it));
    memcpy(p, "key=", 4);
    p = put_escaped(p + 4, (const uint8_t *)it->body, kv_item_key_len(it));
    memcpy(p, text, (size_t)n);
    d->c->out->len += (uint64_t)(p - start) + (uint64_t)n;
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
        more = s->dump_at < cl_min(p->head, s->dump_end);
        kv_unlock(p);
    }
    return !d->full;
}

bool kv_dump(struct kv_command *c)
{
    struct cl_kv_session *s = c->session;
    struct cl_kv *store = c->thread->store;
    for (; s->dump_partition < store->n_partitions; s->dump_partition++) {
        struct dump d = {.c = c, .partition = &store->partitions[s->dump_partition]};
        if (!dump_partition(&d, s))
            return false;
        s->dump_at = s->dump_end = 0;
    }
    if (!kv_out_room(c->out, KV_SHORT_ANSWER_BYTES))
        return false;
    s->dump_partition = 0;
    kv_answer(c, "END");
    return true;
}
