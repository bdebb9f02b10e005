/* What `watch` shows: fetches, writes, evictions and connections, a line each as memcached 1.6 words it.
 *
 * Off until somebody watches; until then a command looks at one word of the store. Lines go into a ring of
 * KV_WATCH_BYTES under a lock of its own, which is taken last. Each watcher reads the ring at his own pace; what is
 * overwritten before he comes is told to him as skipped. Private to apps/kv. */
#ifndef CORELANE_APPS_KV_WATCH_H
#define CORELANE_APPS_KV_WATCH_H

#include "layout.h"

#define KV_WATCH_FETCHERS 1u
#define KV_WATCH_MUTATIONS 2u
#define KV_WATCH_EVICTIONS 4u
#define KV_WATCH_CONNEVENTS 8u
#define KV_WATCH_KINDS 4
#define KV_WATCH_NOTHING (1u << KV_WATCH_KINDS) /* no event is of this kind */

#define KV_WATCH_BYTES (256u << 10)
#define KV_WATCH_LINE_MAX 1200 /* a key of 250 bytes, each in three, and numbers */

struct kv_watch;

/* Where a watcher is. */
struct kv_watcher {
    uint32_t kinds; /* 0: he does not watch */
    uint64_t at, next;
};

/* Watch those kinds from now on. -ENOMEM. */
int kv_watch_join(struct cl_kv *s, uint32_t kinds, struct kv_watcher *w);
/* No more. */
void kv_watch_leave(struct cl_kv *s, struct kv_watcher *w);
/* The next lines for a watcher, whole ones, of at most `room` bytes. Returns how many bytes they have. */
uint64_t kv_watch_read(struct cl_kv *s, struct kv_watcher *w, uint8_t *to, uint64_t room);

void kv_watch_counts(const struct cl_kv *s, uint64_t *watchers, uint64_t *sent, uint64_t *skipped);

/* A line of a kind, without its time and number. */
void kv_watch_note(struct cl_kv *s, uint32_t kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
void kv_watch_note_get(struct cl_kv_thread *t, const struct cl_kv_key *key, bool found, uint32_t bytes);
void kv_watch_note_store(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_write *w, int rc,
                         uint32_t bytes);
/* Of an item that is about to be evicted. Its partition's lock is held. */
void kv_watch_note_eviction(struct cl_kv *s, const struct kv_item *it, bool hit, uint32_t now_s);

/* Relaxed: who begins to watch sees what happens from about then on. */
static inline bool kv_watched(const struct cl_kv *s, uint32_t kinds)
{
    return cl_unlikely(cl_load_relaxed(&s->watched) & kinds);
}

static inline void kv_watch_get(struct cl_kv_thread *t, const struct cl_kv_key *key, bool found, uint32_t bytes)
{
    if (kv_watched(t->store, KV_WATCH_FETCHERS))
        kv_watch_note_get(t, key, found, bytes);
}

/* A key as in a URI: bytes that are not plain as %XX, three for one. Returns its end. */
uint8_t *kv_put_escaped(uint8_t *p, const uint8_t *key, uint32_t len);

#endif
