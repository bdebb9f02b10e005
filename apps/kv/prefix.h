/* What `stats detail` counts: gets, hits, sets and deletions for each prefix of keys, up to the first ':'.
 *
 * Off until somebody asks for it; until then a command looks at one word of the store. A bounded table under a lock of
 * its own: when it is full, prefixes that are new are not counted. Private to apps/kv. */
#ifndef CORELANE_APPS_KV_PREFIX_H
#define CORELANE_APPS_KV_PREFIX_H

#include "layout.h"

enum kv_prefix_what { KV_PREFIX_GET, KV_PREFIX_HIT, KV_PREFIX_SET, KV_PREFIX_DELETE, KV_PREFIX_KINDS };

#define KV_PREFIX_SLOTS 512 /* of which three quarters are used at most */
#define KV_PREFIX_LINE_MAX (CL_KV_KEY_MAX + 128)

/* Count from now on, or no more. -ENOMEM. */
int kv_prefix_switch(struct cl_kv *s, bool on);
void kv_prefix_note(struct cl_kv *s, const struct cl_kv_key *key, enum kv_prefix_what what);
void kv_prefix_clear(struct cl_kv *s);
/* The line of slot i at p (KV_PREFIX_LINE_MAX bytes at most); returns its bytes, 0 if the slot is free. */
uint32_t kv_prefix_line(struct cl_kv *s, uint32_t i, uint8_t *p);

static inline void kv_prefix_count(struct cl_kv *s, const struct cl_kv_key *key, enum kv_prefix_what what)
{
    if (cl_unlikely(cl_load_relaxed(&s->detail)))
        kv_prefix_note(s, key, what);
}

/* A look for a key, and whether it was there. */
static inline void kv_prefix_count_get(struct cl_kv *s, const struct cl_kv_key *key, bool hit)
{
    if (cl_likely(!cl_load_relaxed(&s->detail)))
        return;
    kv_prefix_note(s, key, KV_PREFIX_GET);
    if (hit)
        kv_prefix_note(s, key, KV_PREFIX_HIT);
}

#endif
