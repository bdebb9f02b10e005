/* Meta commands that read: mg, me; and the flags of all of them. */
#include "meta.h"
#include "watch.h"
#include <stdio.h>

#define BAD_TOKEN "CLIENT_ERROR bad token in command line format"

static const char *time_of(const struct kv_command *c, struct kv_token value, uint32_t *expires_s)
{
    int32_t time;
    if (!kv_parse_i32(value.p, value.len, &time))
        return BAD_TOKEN;
    *expires_s = cl_kv_expiry(c->thread, time);
    return NULL;
}

static const char *number_of(struct kv_token value, uint64_t *out, const char *refusal)
{
    return kv_parse_u64(value.p, value.len, out) ? NULL : refusal;
}

static const char *decode_key(const struct kv_command *c, struct kv_meta *m)
{
    m->binary_key = true;
    m->key.len = kv_base64_decode(c->token[1].p, c->token[1].len, m->decoded);
    m->key.data = m->decoded;
    return m->key.len ? NULL : "CLIENT_ERROR error decoding key";
}

/* Flags with a value. NULL, or why not. */
static const char *take_value(const struct kv_command *c, struct kv_meta *m, char letter, struct kv_token value)
{
    uint64_t flags = 0;
    const char *why = NULL;
    switch (letter) {
    case 'N':
        m->changes = m->vivify = true;
        return time_of(c, value, &m->vivify_s);
    case 'T':
        m->changes = true;
        why = time_of(c, value, &m->expires_s);
        m->new_time = !why;
        return why;
    case 'R':
        m->changes = true;
        return time_of(c, value, &m->recache_s);
    case 'F':
        why = number_of(value, &flags, KV_BAD_FORMAT);
        m->client_flags = (uint32_t)flags;
        return why;
    case 'C':
        why = number_of(value, &m->cas, BAD_TOKEN);
        m->has_cas = !why;
        return why;
    case 'J':
        return number_of(value, &m->initial, "CLIENT_ERROR invalid numeric initial value");
    case 'D':
        return number_of(value, &m->delta, "CLIENT_ERROR invalid numeric delta value");
    case 'M':
        m->mode = value.len == 1 ? (char)value.p[0] : 0;
        return value.len == 1 ? NULL : "CLIENT_ERROR incorrect length for M token";
    default: /* O */
        m->opaque_too_long = value.len + 1 > KV_META_OPAQUE_MAX;
        return NULL;
    }
}

/* One flag. NULL, or why not; *known: whether there is such a flag. */
static const char *take_flag(const struct kv_command *c, struct kv_meta *m, struct kv_token word, bool *known)
{
    struct kv_token value = {word.p + 1, word.len - 1};
    char letter = (char)word.p[0];
    switch (letter) {
    case 'b':
        return decode_key(c, m);
    case 'v':
        m->value = true;
        break;
    case 'u':
        m->peek = true;
        break;
    case 'q':
        m->quiet = true;
        break;
    case 'I':
        m->stale = true;
        break;
    case 'h':
        m->hit = true;
        break;
    case 'l': /* looks at the item, or means something to a proxy */
    case 'k':
    case 's':
    case 't':
    case 'c':
    case 'f':
    case 'P':
    case 'L':
        break;
    default:
        *known = strchr("NTRFCJDMO", letter) != NULL;
        return *known ? take_value(c, m, letter, value) : "CLIENT_ERROR invalid flag";
    }
    return NULL;
}

const char *kv_meta_parse(struct kv_command *c, unsigned first, struct kv_meta *m)
{
    uint8_t seen[128] = {0};
    const char *why = NULL;
    *m = (struct kv_meta){.first = first, .delta = 1, .key = {.data = c->token[1].p, .len = c->token[1].len}};
    for (unsigned i = first; i < c->n_tokens; i++) {
        uint8_t letter = c->token[i].p[0];
        bool known = true;
        if (letter >= 127 || seen[letter]++)
            return "CLIENT_ERROR duplicate flag";
        const char *wrong = take_flag(c, m, c->token[i], &known);
        if (!known)
            return wrong;
        why = wrong ? wrong : why; /* the last one is told */
    }
    m->key.hash = kv_hash(&c->thread->store->secret, m->key.data, m->key.len);
    return why;
}

/* An item as a meta command sees it, and leaves it. */
struct view {
    struct cl_kv_meta item;
    uint64_t marks;
    bool hit, created, won;
};

/* What flags that look at an item say of it; p is moved on. False: the flag is none of those. */
static bool put_fact(const struct kv_command *c, const struct kv_meta *m, const struct view *v, unsigned i, uint8_t **p)
{
    switch (kv_meta_flag(c, i)) {
    case 's':
        *p = kv_meta_put_number(*p, 's', v->item.value_bytes);
        return true;
    case 't':
        *p = kv_meta_put_time(*p, v->item.expires_s, c->thread->now_s);
        return true;
    case 'c':
        *p = kv_meta_put_number(*p, 'c', v->item.cas);
        return true;
    case 'f':
        *p = kv_meta_put_number(*p, 'f', v->item.flags);
        return true;
    case 'l':
        *p = kv_meta_put_number(*p, 'l', kv_age_s(v->marks, c->thread->now_s));
        return true;
    case 'h':
        *p = kv_meta_put_number(*p, 'h', v->hit);
        return true;
    case 'O':
        *p = kv_meta_put_word(*p, c->token[i]);
        return true;
    case 'k':
        *p = kv_meta_put_key(*p, &m->key, v->marks & KV_BINARY_KEY);
        return true;
    default:
        return false;
    }
}

/* What flags that change an item do to it, in their order. */
static void apply(const struct kv_command *c, const struct kv_meta *m, struct view *v, char letter)
{
    if (letter == 'T') {
        v->item.expires_s = m->expires_s;
        v->marks = (v->marks & KV_KEPT_MARKS) | kv_marks_now(c->thread->now_s);
    } else if (letter == 'N' && v->created) {
        v->item.expires_s = m->vivify_s;
        v->won = true;
    } else if (letter == 'R' && !v->created && !(v->marks & KV_WON) && v->item.expires_s &&
               v->item.expires_s < m->recache_s) {
        v->won = true;
    }
}

/* Who is to store the item anew: nobody, this client, another one. */
static uint8_t *put_win(struct view *v, uint8_t *p)
{
    bool sent = v->marks & KV_WON;
    if (sent)
        p = kv_meta_put_text(p, " Z");
    if (v->marks & KV_STALE) {
        p = kv_meta_put_text(p, " X");
        v->won = v->won || !sent;
    }
    if (v->won) {
        p = kv_meta_put_text(p, " W");
        v->marks |= KV_WON;
    }
    return p;
}

/* The answer to mg of an item. Returns its end; KV_META_LINE_MAX and the value and 2 bytes at most. */
static uint8_t *put_hit(const struct kv_command *c, const struct kv_meta *m, struct view *v, const uint64_t *value,
                        uint8_t *p)
{
    if (m->value) {
        p = kv_meta_put_text(p, "VA ");
        p += kv_format_u64(p, v->item.value_bytes);
    } else {
        p = kv_meta_put_text(p, "HD");
    }
    for (unsigned i = m->first; i < c->n_tokens; i++)
        if (!put_fact(c, m, v, i, &p))
            apply(c, m, v, kv_meta_flag(c, i));
    p = kv_meta_put_text(put_win(v, p), "\r\n");
    if (m->value) {
        kv_copy_out(p, value, v->item.value_bytes);
        p = kv_meta_put_text(p + v->item.value_bytes, "\r\n");
    }
    return p;
}

static void answer_miss(struct kv_command *c, const struct kv_meta *m)
{
    cl_count(&c->thread->counters.cmd_get, 1);
    cl_count(&c->thread->counters.get_misses, 1);
    if (m->quiet)
        return;
    uint8_t *start = c->out->data + c->out->len, *p = kv_meta_put_text(start, "EN");
    for (unsigned i = m->first; i < c->n_tokens; i++)
        kv_meta_put_common(c, m, i, &p);
    c->out->len += (uint64_t)(kv_meta_put_text(p, "\r\n") - start);
}

static void answer_hit(struct kv_command *c, const struct kv_meta *m, const uint8_t *start, const uint8_t *end)
{
    struct cl_kv_counters *n = &c->thread->counters;
    c->out->len += (uint64_t)(end - start);
    cl_count(m->new_time ? &n->cmd_touch : &n->cmd_get, 1);
    cl_count(m->new_time ? &n->touch_hits : &n->get_hits, 1);
}

static uint8_t *room_for(struct kv_command *c, const struct kv_meta *m, uint32_t value_bytes)
{
    return kv_out_room(c->out, KV_META_LINE_MAX + (m->value ? value_bytes + 2ull : 0));
}

static struct view view_of(const struct kv_ref *r, const struct cl_kv_meta *item)
{
    return (struct view){.item = *item, .marks = cl_load_relaxed(&r->item->lengths) & KV_MARKS, .hit = kv_ref_hit(r)};
}

/* mg that changes the item, or may. False: no room, and nothing was changed. */
static bool get_locked(struct kv_command *c, const struct kv_meta *m)
{
    struct cl_kv_thread *t = c->thread;
    struct kv_partition *p = kv_partition_of(t->store, m->key.hash);
    struct kv_ref r;
    bool created = false;
    kv_flush_if_due(t, p);
    kv_lock(p);
    bool there = kv_find_live(t, p, &m->key, &r);
    uint8_t *start = room_for(c, m, there ? (uint32_t)r.item->lengths : 0), *end = start;
    if (start && !there && m->vivify) {
        struct kv_write w = {.mode = CL_KV_ADD, .binary_key = m->binary_key};
        struct kv_written written;
        created = kv_write_locked(t, p, &m->key, &w, &written) == CL_KV_OK;
        there = kv_find_live(t, p, &m->key, &r);
    }
    if (start && there) {
        struct cl_kv_meta item = {kv_told_cas(t->store, r.item->cas), (uint32_t)r.item->flags_exp,
                                  (uint32_t)r.item->lengths, (uint32_t)(r.item->flags_exp >> 32)};
        struct view v = view_of(&r, &item);
        uint64_t marks = v.marks;
        v.created = created;
        end = put_hit(c, m, &v, kv_item_value(r.item), start);
        if (v.marks != marks || v.item.expires_s != item.expires_s)
            kv_mark_item(t, p, &r, v.item.expires_s, v.marks);
        if (!m->peek)
            kv_ref_use(&r);
    }
    uint32_t bytes = there ? (uint32_t)r.item->lengths : 0;
    kv_unlock(p);
    if (start)
        kv_watch_get(t, &m->key, there, bytes);
    if (start && there)
        answer_hit(c, m, start, end);
    else if (start)
        answer_miss(c, m);
    return start != NULL;
}

/* mg that only looks. False: no room. */
static bool get_plain(struct kv_command *c, const struct kv_meta *m)
{
    if (!room_for(c, m, 0))
        return false;
    for (unsigned tries = 0;; tries++) {
        struct kv_ref r;
        struct cl_kv_meta item;
        bool locked = tries >= KV_READ_TRIES;
        if (!kv_lookup(c->thread, &m->key, &r, &item, &locked)) {
            kv_watch_get(c->thread, &m->key, false, 0);
            answer_miss(c, m);
            return true;
        }
        struct view v = view_of(&r, &item);
        uint8_t *start = room_for(c, m, item.value_bytes), *end = start;
        bool wins = (v.marks & (KV_STALE | KV_WON)) == KV_STALE;
        if (start)
            end = put_hit(c, m, &v, kv_item_value(r.item), start);
        if (!(m->peek || wins ? kv_lookup_peeked(c->thread, &m->key, &r, locked)
                              : kv_lookup_done(c->thread, &m->key, &r, locked)))
            continue;
        if (wins)
            return get_locked(c, m);
        if (start) {
            kv_watch_get(c->thread, &m->key, true, item.value_bytes);
            answer_hit(c, m, start, end);
        }
        return start != NULL;
    }
}

bool kv_meta_get(struct kv_command *c)
{
    struct kv_meta m;
    if (c->token[1].len > CL_KV_KEY_MAX || c->n_tokens > KV_META_WORDS) {
        kv_refuse(c, c->token[1].len > CL_KV_KEY_MAX ? KV_BAD_FORMAT : "CLIENT_ERROR options flags are too long");
        return true;
    }
    const char *why = kv_meta_parse(c, 2, &m);
    if (!why && m.opaque_too_long)
        why = KV_META_TOO_LONG;
    if (!why && m.hit && c->session->replicated) /* reads are not replicated */
        why = "SERVER_ERROR whether an item was read is not replicated: leave h out";
    if (why) {
        kv_refuse(c, why);
        return true;
    }
    return m.changes ? get_locked(c, &m) : get_plain(c, &m);
}

/* The answer to me of an item. */
static uint8_t *put_debug(const struct kv_command *c, const struct cl_kv_key *key, const struct view *v, uint64_t bytes,
                          uint8_t *p)
{
    char text[128];
    uint32_t now_s = c->thread->now_s;
    p = kv_meta_put_text(p, "ME ");
    if (v->marks & KV_BINARY_KEY) {
        p = kv_base64_encode(p, key->data, key->len);
    } else {
        memcpy(p, key->data, key->len);
        p += key->len;
    }
    snprintf(text, sizeof(text), " exp=%d la=%u cas=%llu fetch=%s cls=1 size=%llu\r\n",
             v->item.expires_s ? (int)(now_s - v->item.expires_s) : -1, kv_age_s(v->marks, now_s),
             (unsigned long long)v->item.cas, v->hit ? "yes" : "no", (unsigned long long)bytes);
    return kv_meta_put_text(p, text);
}

bool kv_meta_debug(struct kv_command *c)
{
    uint8_t decoded[CL_KV_KEY_MAX], *start = kv_out_room(c->out, KV_META_LINE_MAX);
    if (!start)
        return false;
    if (c->session->replicated) { /* it says whether the item was read, which each node knows for itself */
        kv_refuse(c, "SERVER_ERROR me must be alone in its request");
        return true;
    }
    struct kv_token word = c->n_tokens > 1 ? c->token[1] : (struct kv_token){NULL, CL_KV_KEY_MAX + 1};
    bool fits = word.len <= CL_KV_KEY_MAX;
    if (fits && c->n_tokens > 2 && kv_token_is(c->token[2], "b"))
        word = (struct kv_token){decoded, kv_base64_decode(word.p, word.len, decoded)};
    if (!fits || !word.len) {
        kv_refuse(c, KV_BAD_FORMAT);
        return true;
    }
    struct cl_kv_key key = kv_key_of(c->thread, word);
    cl_count(&c->thread->counters.cmd_meta, 1); /* as memcached counts: me alone */
    for (unsigned tries = 0;; tries++) {
        struct kv_ref r;
        struct cl_kv_meta item;
        bool locked = tries >= KV_READ_TRIES;
        if (!kv_lookup(c->thread, &key, &r, &item, &locked)) {
            kv_answer(c, "EN");
            return true;
        }
        struct view v = view_of(&r, &item);
        uint64_t bytes = kv_item_bytes(r.item);
        if (!kv_lookup_peeked(c->thread, &key, &r, locked))
            continue;
        c->out->len += (uint64_t)(put_debug(c, &key, &v, bytes, start) - start);
        return true;
    }
}
