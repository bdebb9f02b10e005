/* See prefix.h. */
#include "prefix.h"
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct prefix {
    uint64_t count[KV_PREFIX_KINDS];
    uint8_t used, len;
    uint8_t name[CL_KV_KEY_MAX];
};

struct kv_prefixes {
    uint32_t lock, used;
    struct prefix slot[KV_PREFIX_SLOTS];
};

/* NULL: nobody ever counted. */
static struct kv_prefixes *take(struct cl_kv *s)
{
    struct kv_prefixes *t = cl_load_acquire(&s->prefixes); /* acquire: its zeros are seen */
    while (t && cl_exchange(&t->lock, 1))
        sched_yield();
    return t;
}

static void give(struct kv_prefixes *t)
{
    if (t)
        cl_store_release(&t->lock, 0); /* release: the next holder sees what we did */
}

int kv_prefix_switch(struct cl_kv *s, bool on)
{
    if (on && !cl_load_acquire(&s->prefixes)) {
        struct kv_prefixes *none = NULL, *made = calloc(1, sizeof(*made));
        if (!made)
            return -ENOMEM;
        /* Release: who sees the table sees its zeros. Another one may have been quicker. */
        if (!__atomic_compare_exchange_n(&s->prefixes, &none, made, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            free(made);
    }
    cl_store_relaxed(&s->detail, on);
    return 0;
}

/* The slot of a prefix, a free one if it has none; NULL: there is no room. */
static struct prefix *slot_of(struct kv_prefixes *t, const uint8_t *name, uint8_t len, uint64_t hash)
{
    for (uint32_t i = 0; i < KV_PREFIX_SLOTS; i++) {
        struct prefix *p = &t->slot[(hash + i) % KV_PREFIX_SLOTS];
        if (!p->used)
            return t->used < KV_PREFIX_SLOTS / 4 * 3 ? p : NULL;
        if (p->len == len && memcmp(p->name, name, len) == 0)
            return p;
    }
    return NULL;
}

void kv_prefix_note(struct cl_kv *s, const struct cl_kv_key *key, enum kv_prefix_what what)
{
    const uint8_t *end = key->data;
    while (end<key->data + key->len && * end> ' ' && *end != ':')
        end++;
    if (end == key->data + key->len || *end != ':') /* none, or one that cannot stand in a line */
        return;
    struct kv_prefixes *t = take(s);
    if (!t)
        return;
    uint8_t len = (uint8_t)(end - key->data);
    struct prefix *p = slot_of(t, key->data, len, kv_hash(&s->secret, key->data, len));
    if (p && !p->used) {
        p->used = 1;
        p->len = len;
        memcpy(p->name, key->data, len);
        t->used++;
    }
    if (p)
        p->count[what]++;
    give(t);
}

void kv_prefix_clear(struct cl_kv *s)
{
    struct kv_prefixes *t = take(s);
    if (!t)
        return;
    memset(t->slot, 0, sizeof(t->slot));
    t->used = 0;
    give(t);
}

uint32_t kv_prefix_line(struct cl_kv *s, uint32_t i, uint8_t *p)
{
    struct kv_prefixes *t = take(s);
    const struct prefix *of = t ? &t->slot[i] : NULL;
    int n = 0;
    if (of && of->used)
        n = snprintf((char *)p, KV_PREFIX_LINE_MAX,
                     "PREFIX %.*s get %" PRIu64 " hit %" PRIu64 " set %" PRIu64 " del %" PRIu64 "\r\n", of->len,
                     (const char *)of->name, of->count[KV_PREFIX_GET], of->count[KV_PREFIX_HIT],
                     of->count[KV_PREFIX_SET], of->count[KV_PREFIX_DELETE]);
    give(t);
    return (uint32_t)n;
}
