/* get (bget, its old name), gets, gat, gats: any number of keys, whose cache misses overlap. */
#include "command_layout.h"
#include "prefix.h"
#include "watch.h"

#define KEYS_AHEAD 16 /* keys fetched together */
#define END_BYTES 5   /* "END\r\n" */

static bool keys_fit(const struct kv_command *c, const uint8_t *at, uint32_t *count)
{
    for (*count = 0;; *count += 1) {
        struct kv_token t = kv_next_token(at, c->line_end);
        if (!t.len)
            return true;
        if (t.len > CL_KV_KEY_MAX)
            return false;
        at = t.p + t.len;
    }
}

/* Append a key's value, if there is one. False: no room. */
static bool append_value(struct kv_command *c, const struct cl_kv_key *key, bool with_cas)
{
    for (unsigned tries = 0;; tries++) {
        struct kv_ref r;
        struct cl_kv_meta meta;
        bool locked = tries >= KV_READ_TRIES;
        if (!kv_lookup(c->thread, key, &r, &meta, &locked)) {
            cl_count(&c->thread->counters.get_misses, 1);
            kv_prefix_count_get(c->thread->store, key, false);
            kv_watch_get(c->thread, key, false, 0);
            return true;
        }
        uint8_t *start = kv_out_room(c->out, KV_VALUE_LINE_MAX + (uint64_t)meta.value_bytes + 2 + END_BYTES),
                *p = start;
        if (start) {
            p = kv_format_value_line(p, key->data, key->len, &meta, with_cas);
            kv_copy_out(p, kv_item_value(r.item), meta.value_bytes);
            p += meta.value_bytes;
            memcpy(p, "\r\n", 2);
            p += 2;
        }
        if (!kv_lookup_done(c->thread, key, &r, locked))
            continue;
        if (!start)
            return false;
        c->out->len += (uint64_t)(p - start);
        cl_count(&c->thread->counters.get_hits, 1);
        kv_prefix_count_get(c->thread->store, key, true);
        kv_watch_get(c->thread, key, true, meta.value_bytes);
        return true;
    }
}

/* Up to KEYS_AHEAD keys from *at on, hashed, with their buckets and items on their way. */
static unsigned fetch_keys(const struct kv_command *c, const uint8_t **at, struct cl_kv_key *keys)
{
    const struct cl_kv *store = c->thread->store;
    unsigned n = 0;
    for (; n < KEYS_AHEAD; n++) {
        struct kv_token t = kv_next_token(*at, c->line_end);
        if (!t.len)
            break;
        keys[n] = kv_key_of(c->thread, t);
        kv_prefetch_bucket(store, keys[n].hash);
        *at = t.p + t.len;
    }
    if (n > 1)
        for (unsigned i = 0; i < n; i++)
            kv_prefetch_item(store, keys[i].hash);
    return n;
}

bool kv_retrieve(struct kv_command *c)
{
    const struct kv_token *name = &c->token[0];
    bool with_cas = name->p[name->len - 1] == 's', touches = name->p[0] == 'g' && name->p[1] == 'a';
    struct cl_kv_session *s = c->session;
    const uint8_t *at = name->p + name->len;
    int32_t exptime = 0;
    uint32_t count = 0;
    if (touches) {
        at = c->token[1].p + c->token[1].len;
        if (!kv_parse_i32(c->token[1].p, c->token[1].len, &exptime)) {
            kv_answer(c, "CLIENT_ERROR invalid exptime argument");
            return true;
        }
    }
    if (s->skip) {
        at = c->line + s->skip;
    } else if (!keys_fit(c, at, &count)) {
        kv_answer(c, KV_BAD_FORMAT);
        return true;
    }
    uint64_t longest = count * (KV_VALUE_LINE_MAX + kv_value_most(c)) + END_BYTES;
    if (kv_measured(c, touches ? CL_KV_WRITES : CL_KV_READS, longest, count))
        return true;
    uint32_t expires_s = cl_kv_expiry(c->thread, exptime);
    struct cl_kv_key keys[KEYS_AHEAD];
    for (;;) {
        unsigned n = fetch_keys(c, &at, keys);
        for (unsigned i = 0; i < n; i++) {
            if (!append_value(c, &keys[i], with_cas)) {
                s->skip = (uint32_t)(keys[i].data - c->line);
                return false;
            }
            if (touches) /* after: a time in the past is for those who come later */
                cl_kv_touch(c->thread, &keys[i], expires_s);
            cl_count(&c->thread->counters.cmd_get, 1);
        }
        if (n < KEYS_AHEAD)
            break;
    }
    uint8_t *end = kv_out_room(c->out, END_BYTES);
    if (!end) {
        s->skip = (uint32_t)(c->line_end - c->line);
        return false;
    }
    s->skip = 0;
    memcpy(end, "END\r\n", END_BYTES);
    c->out->len += END_BYTES;
    return true;
}
