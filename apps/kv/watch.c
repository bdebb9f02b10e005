/* See watch.h. A record of the ring: its kind, the bytes of its line, the line; padded to 8. */
#include "watch.h"
#include <corelane/libos/spin.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define HEAD_BYTES 8

struct kv_watch {
    struct cl_spin lock; /* of all below */
    uint32_t watchers[KV_WATCH_KINDS];
    uint64_t all, sent, skipped; /* watchers now; lines ever given, and overwritten before a watcher came */
    uint64_t head, tail;         /* bytes ever written, overwritten */
    uint64_t next, first;        /* numbers of the next line, and of that at the tail */
    uint8_t ring[KV_WATCH_BYTES];
};

static void copy_in(struct kv_watch *h, uint64_t at, const void *from, uint64_t n)
{
    uint64_t place = at % KV_WATCH_BYTES, part = cl_min(n, KV_WATCH_BYTES - place);
    memcpy(h->ring + place, from, part);
    memcpy(h->ring, (const uint8_t *)from + part, n - part);
}

static void copy_out(const struct kv_watch *h, uint64_t at, void *to, uint64_t n)
{
    uint64_t place = at % KV_WATCH_BYTES, part = cl_min(n, KV_WATCH_BYTES - place);
    memcpy(to, h->ring + place, part);
    memcpy((uint8_t *)to + part, h->ring, n - part);
}

static uint64_t padded(uint32_t bytes)
{
    return HEAD_BYTES + ((bytes + 7ull) & ~7ull);
}

static void append(struct kv_watch *h, uint32_t kind, const char *line, uint32_t len)
{
    uint32_t head[2] = {kind, len};
    while (h->head + padded(len) - h->tail > KV_WATCH_BYTES) {
        uint32_t old[2];
        copy_out(h, h->tail, old, HEAD_BYTES);
        h->tail += padded(old[1]);
        h->first++;
    }
    copy_in(h, h->head, head, HEAD_BYTES);
    copy_in(h, h->head + HEAD_BYTES, line, len);
    h->head += padded(len);
    h->next++;
}

static void count_watchers(struct cl_kv *s, struct kv_watch *h, uint32_t kinds, uint32_t more)
{
    uint32_t wanted = 0;
    cl_count(&h->all, (uint64_t)(int32_t)more); /* relaxed, as the other two: they are shown */
    for (unsigned i = 0; i < KV_WATCH_KINDS; i++) {
        if (kinds & 1u << i)
            h->watchers[i] += more;
        wanted |= h->watchers[i] ? 1u << i : 0;
    }
    cl_store_relaxed(&s->watched, wanted);
}

int kv_watch_join(struct cl_kv *s, uint32_t kinds, struct kv_watcher *w)
{
    struct kv_watch *none = NULL, *h = cl_load_acquire(&s->watch);
    if (!h) {
        if (!(h = calloc(1, sizeof(*h))))
            return -ENOMEM;
        h->next = h->first = 1;
        /* Release: who sees it sees it whole. Acquire: another one was first, and we see his. */
        if (!__atomic_compare_exchange_n(&s->watch, &none, h, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            free(h);
            h = none;
        }
    }
    cl_spin_lock(&h->lock);
    *w = (struct kv_watcher){kinds, h->head, h->next};
    count_watchers(s, h, kinds, 1);
    cl_spin_unlock(&h->lock);
    return 0;
}

void kv_watch_leave(struct cl_kv *s, struct kv_watcher *w)
{
    struct kv_watch *h = cl_load_acquire(&s->watch);
    if (!w->kinds)
        return;
    cl_spin_lock(&h->lock);
    count_watchers(s, h, w->kinds, -1u);
    cl_spin_unlock(&h->lock);
    w->kinds = 0;
}

/* He was overtaken: tell him of how many lines. Returns the bytes of that. */
static uint64_t tell_skipped(struct kv_watch *h, struct kv_watcher *w, uint8_t *to, uint64_t room)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "skipped=%" PRIu64 "\n", h->first - w->next);
    if ((uint64_t)n > room)
        return 0;
    memcpy(to, text, (size_t)n);
    cl_count(&h->skipped, h->first - w->next);
    w->at = h->tail;
    w->next = h->first;
    return (uint64_t)n;
}

uint64_t kv_watch_read(struct cl_kv *s, struct kv_watcher *w, uint8_t *to, uint64_t room)
{
    struct kv_watch *h = cl_load_acquire(&s->watch);
    uint64_t done = 0;
    cl_spin_lock(&h->lock);
    if (w->at < h->tail)
        done = tell_skipped(h, w, to, room);
    while (w->at >= h->tail && w->at < h->head) {
        uint32_t head[2];
        copy_out(h, w->at, head, HEAD_BYTES);
        bool wanted = head[0] & w->kinds;
        if (wanted && done + head[1] > room)
            break;
        if (wanted) {
            copy_out(h, w->at + HEAD_BYTES, to + done, head[1]);
            done += head[1];
            cl_count(&h->sent, 1);
        }
        w->at += padded(head[1]);
        w->next++;
    }
    cl_spin_unlock(&h->lock);
    return done;
}

void kv_watch_counts(const struct cl_kv *s, uint64_t *watchers, uint64_t *sent, uint64_t *skipped)
{
    const struct kv_watch *h = cl_load_acquire(&s->watch);
    *watchers = h ? cl_load_relaxed(&h->all) : 0;
    *sent = h ? cl_load_relaxed(&h->sent) : 0;
    *skipped = h ? cl_load_relaxed(&h->skipped) : 0;
}

void kv_watch_note(struct cl_kv *s, uint32_t kind, const char *format, ...)
{
    struct kv_watch *h = cl_load_acquire(&s->watch);
    char line[KV_WATCH_LINE_MAX], text[KV_WATCH_LINE_MAX - 80];
    struct timespec now;
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof(text), format, rest);
    va_end(rest);
    clock_gettime(CLOCK_REALTIME, &now);
    cl_spin_lock(&h->lock);
    int n = snprintf(line, sizeof(line), "ts=%" PRId64 ".%06ld gid=%" PRIu64 " %s\n", (int64_t)now.tv_sec,
                     now.tv_nsec / 1000, h->next, text);
    append(h, kind, line, (uint32_t)n);
    cl_spin_unlock(&h->lock);
}

uint8_t *kv_put_escaped(uint8_t *p, const uint8_t *key, uint32_t len)
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

/* A key as a text that stands in a line. */
static const char *escaped(char text[3 * CL_KV_KEY_MAX + 1], const uint8_t *key, uint32_t len)
{
    *kv_put_escaped((uint8_t *)text, key, len) = 0;
    return text;
}

void kv_watch_note_get(struct cl_kv_thread *t, const struct cl_kv_key *key, bool found, uint32_t bytes)
{
    char text[3 * CL_KV_KEY_MAX + 1];
    kv_watch_note(t->store, KV_WATCH_FETCHERS, "type=item_get key=%s status=%s clsid=%u cfd=%u size=%u",
                  escaped(text, key->data, key->len), found ? "found" : "not_found", found, t->client, bytes);
}

void kv_watch_note_store(struct cl_kv_thread *t, const struct cl_kv_key *key, const struct kv_write *w, int rc,
                         uint32_t bytes)
{
    static const char *const modes[] = {
        [CL_KV_SET] = "set",       [CL_KV_ADD] = "add",         [CL_KV_REPLACE] = "replace",
        [CL_KV_APPEND] = "append", [CL_KV_PREPEND] = "prepend", [CL_KV_CAS] = "cas"};
    static const char *const outcomes[] = {[CL_KV_OK] = "stored",
                                           [CL_KV_NOT_STORED] = "not_stored",
                                           [CL_KV_EXISTS] = "exists",
                                           [CL_KV_NOT_FOUND] = "not_found",
                                           [CL_KV_TOO_LARGE] = "too_large",
                                           [CL_KV_NO_MEMORY] = "no_memory",
                                           [CL_KV_NON_NUMERIC] = "non_numeric"};
    char text[3 * CL_KV_KEY_MAX + 1];
    int32_t ttl = w->expires_s ? (int32_t)(w->expires_s - t->now_s) : 0;
    kv_watch_note(t->store, KV_WATCH_MUTATIONS, "type=item_store key=%s status=%s cmd=%s ttl=%d clsid=1 cfd=%u size=%u",
                  escaped(text, key->data, key->len), outcomes[rc], modes[w->mode], ttl, t->client,
                  rc == CL_KV_TOO_LARGE ? 0 : bytes);
}

void kv_watch_note_eviction(struct cl_kv *s, const struct kv_item *it, bool hit, uint32_t now_s)
{
    char text[3 * CL_KV_KEY_MAX + 1];
    uint32_t expires_s = (uint32_t)(it->flags_exp >> 32);
    kv_watch_note(s, KV_WATCH_EVICTIONS, "type=eviction key=%s fetch=%s ttl=%d la=%u clsid=1 size=%" PRIu64,
                  escaped(text, (const uint8_t *)it->body, kv_item_key_len(it)), hit ? "yes" : "no",
                  expires_s ? (int32_t)(expires_s - now_s) : -1, kv_age_s(it->lengths, now_s), kv_item_bytes(it));
}
