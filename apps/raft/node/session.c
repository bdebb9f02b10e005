/* See session.h. */
#include "session.h"
#include "../core/bytes.h"
#include <errno.h>
#include <stdlib.h>

#define SAVED_BYTES                                                                                                    \
    28 /* id, sequence, used_ms, reply's bytes with the status in the uppermost 8 bits; then the reply */
#define STATUS_SHIFT 24

static void clear(struct raft_sessions *s)
{
    for (uint32_t i = 0; i < s->max; i++)
        s->all[i] = (struct raft_session){.after = i + 1 < s->max ? i + 1 : RAFT_NO_SESSION};
    for (uint32_t i = 0; i <= s->mask; i++)
        s->buckets[i] = RAFT_NO_SESSION;
    s->unused = 0;
    s->oldest = s->newest = RAFT_NO_SESSION;
    s->count = 0;
}

int raft_sessions_new(struct raft_sessions *s, uint32_t max, uint32_t reply_room)
{
    uint32_t buckets = 16;
    if (max > RAFT_SESSIONS_MOST)
        return -EINVAL;
    while (buckets < 2 * max)
        buckets *= 2;
    s->mask = buckets - 1;
    s->max = max;
    s->reply_room = reply_room;
    s->all = calloc(max, sizeof(*s->all));
    s->replies = malloc((uint64_t)max * reply_room);
    s->buckets = malloc(buckets * sizeof(*s->buckets));
    if (!s->all || !s->replies || !s->buckets)
        return -ENOMEM;
    clear(s);
    return 0;
}

void raft_sessions_free(struct raft_sessions *s)
{
    free(s->all);
    free(s->replies);
    free(s->buckets);
}

static uint32_t *bucket(const struct raft_sessions *s, uint64_t id)
{
    return &s->buckets[(id * 0x9e3779b97f4a7c15ull) >> 40 & s->mask];
}

uint32_t raft_session_find(const struct raft_sessions *s, uint64_t id)
{
    uint32_t i = *bucket(s, id);
    while (i != RAFT_NO_SESSION && s->all[i].id != id)
        i = s->all[i].chain;
    return i;
}

static void unlink_use(struct raft_sessions *s, uint32_t i)
{
    struct raft_session *x = &s->all[i];
    *(x->before == RAFT_NO_SESSION ? &s->oldest : &s->all[x->before].after) = x->after;
    *(x->after == RAFT_NO_SESSION ? &s->newest : &s->all[x->after].before) = x->before;
}

static void link_newest(struct raft_sessions *s, uint32_t i)
{
    struct raft_session *x = &s->all[i];
    x->before = s->newest;
    x->after = RAFT_NO_SESSION;
    *(s->newest == RAFT_NO_SESSION ? &s->oldest : &s->all[s->newest].after) = i;
    s->newest = i;
}

/* The word stands in the place of the answer, which one that was not used yet has not. */
uint32_t raft_session_opened(const struct raft_sessions *s, uint64_t word)
{
    uint32_t i = s->newest;
    while (i != RAFT_NO_SESSION && (s->all[i].sequence || s->all[i].reply_bytes != sizeof(word) ||
                                    get64(s->replies + (uint64_t)i * s->reply_room) != word))
        i = s->all[i].before;
    return i;
}

bool raft_session_open(struct raft_sessions *s, uint64_t id, uint64_t word, uint64_t now_ms)
{
    bool full = s->unused == RAFT_NO_SESSION;
    if (full)
        raft_session_close(s, s->oldest);
    uint32_t i = s->unused;
    s->unused = s->all[i].after;
    uint32_t *at = bucket(s, id);
    s->all[i] = (struct raft_session){.id = id, .used_ms = now_ms, .chain = *at};
    *at = i;
    link_newest(s, i);
    s->count++;
    if (word) {
        s->all[i].reply_bytes = sizeof(word);
        put64(s->replies + (uint64_t)i * s->reply_room, word);
    }
    return full;
}

void raft_session_close(struct raft_sessions *s, uint32_t i)
{
    uint32_t *at = bucket(s, s->all[i].id);
    while (*at != i)
        at = &s->all[*at].chain;
    *at = s->all[i].chain;
    unlink_use(s, i);
    s->all[i] = (struct raft_session){.after = s->unused};
    s->unused = i;
    s->count--;
}

void raft_session_used(struct raft_sessions *s, uint32_t i, uint64_t sequence, uint64_t now_ms, int status,
                       const uint8_t *reply, uint32_t bytes)
{
    struct raft_session *x = &s->all[i];
    unlink_use(s, i);
    link_newest(s, i);
    x->sequence = sequence;
    x->used_ms = now_ms;
    x->status = (uint8_t)status;
    x->reply_bytes = bytes;
    if (bytes)
        memcpy(s->replies + (uint64_t)i * s->reply_room, reply, bytes);
}

const uint8_t *raft_session_reply(const struct raft_sessions *s, uint32_t i, uint32_t *bytes)
{
    *bytes = s->all[i].reply_bytes;
    return s->replies + (uint64_t)i * s->reply_room;
}

uint32_t raft_sessions_expire(struct raft_sessions *s, uint64_t before_ms)
{
    uint32_t n = 0;
    for (; s->oldest != RAFT_NO_SESSION && s->all[s->oldest].used_ms < before_ms; n++)
        raft_session_close(s, s->oldest);
    return n;
}

void raft_sessions_shift(struct raft_sessions *s, uint64_t from_ms, uint64_t to_ms)
{
    for (uint32_t i = s->oldest; i != RAFT_NO_SESSION; i = s->all[i].after) {
        uint64_t age = from_ms - s->all[i].used_ms;
        s->all[i].used_ms = to_ms > age ? to_ms - age : 0;
    }
}

uint64_t raft_sessions_most(uint32_t max, uint32_t reply_room)
{
    return (uint64_t)max * (SAVED_BYTES + reply_room);
}

uint64_t raft_sessions_save(const struct raft_sessions *s, uint8_t *out)
{
    uint64_t at = 0;
    for (uint32_t i = s->oldest; i != RAFT_NO_SESSION; i = s->all[i].after) {
        const struct raft_session *x = &s->all[i];
        if (out) {
            put64(out + at, x->id);
            put64(out + at + 8, x->sequence);
            put64(out + at + 16, x->used_ms);
            put32(out + at + 24, x->reply_bytes | (uint32_t)x->status << STATUS_SHIFT);
            memcpy(out + at + SAVED_BYTES, s->replies + (uint64_t)i * s->reply_room, x->reply_bytes);
        }
        at += SAVED_BYTES + x->reply_bytes;
    }
    return at;
}

int raft_sessions_load(struct raft_sessions *s, const uint8_t *in, uint64_t bytes)
{
    clear(s);
    for (uint64_t at = 0; at < bytes;) {
        if (bytes - at < SAVED_BYTES)
            return -EINVAL;
        uint64_t id = get64(in + at);
        int status = (int)(get32(in + at + 24) >> STATUS_SHIFT);
        uint32_t reply = get32(in + at + 24) & ((1u << STATUS_SHIFT) - 1);
        if (!id || reply > s->reply_room || reply > bytes - at - SAVED_BYTES || s->count == s->max ||
            raft_session_find(s, id) != RAFT_NO_SESSION)
            return -EINVAL;
        raft_session_open(s, id, 0, 0);
        raft_session_used(s, s->newest, get64(in + at + 8), get64(in + at + 16), status, in + at + SAVED_BYTES, reply);
        at += SAVED_BYTES + reply;
    }
    return 0;
}
