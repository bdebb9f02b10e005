/* What the files of the command layer share. Private to apps/kv. */
#ifndef CORELANE_APPS_KV_COMMAND_LAYOUT_H
#define CORELANE_APPS_KV_COMMAND_LAYOUT_H

#include "command.h"
#include "layout.h"
#include "number.h"

#define KV_MAX_TOKENS 24          /* no command but a retrieval has more words that mean something */
#define KV_SHORT_ANSWER_BYTES 128 /* longer than any answer of one line */
#define KV_VALUE_LINE_MAX (6 + CL_KV_KEY_MAX + 1 + 10 + 1 + 10 + 1 + 20 + 2)
#define KV_VERSION "1.6.18-corelane-0.1.0" /* libmemcached wants three numbers, and more than 0.x */
#define KV_BAD_FORMAT "CLIENT_ERROR bad command line format"

struct kv_token {
    const uint8_t *p;
    uint32_t len;
};

/* One command being executed. */
struct kv_command {
    struct cl_kv_session *session;
    struct cl_kv_thread *thread;
    struct cl_kv_out *out;
    const uint8_t *line, *line_end;       /* without its end of line */
    struct kv_token token[KV_MAX_TOKENS]; /* the first ones */
    unsigned n_tokens;                    /* KV_MAX_TOKENS + 1 if there are more */
    const uint8_t *data;                  /* what follows the line */
    uint64_t data_len;
    uint64_t data_used;
    bool noreply;
    bool binary; /* of statistics: answers of the binary protocol */
};

/* The next token from p on; len 0 at the end. Tokens are separated by spaces alone. */
static inline struct kv_token kv_next_token(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p == ' ')
        p++;
    struct kv_token t = {p, 0};
    while (p < end && *p != ' ')
        p++;
    t.len = (uint32_t)(p - t.p);
    return t;
}

static inline bool kv_token_is(struct kv_token t, const char *word)
{
    return t.len == strlen(word) && memcmp(t.p, word, t.len) == 0;
}

static inline struct cl_kv_key kv_key_of(const struct cl_kv_thread *t, struct kv_token token)
{
    return (struct cl_kv_key){token.p, token.len, kv_hash(&t->store->secret, token.p, token.len)};
}

/* n bytes of room in the answer, without taking them; NULL if there are not so many. */
static inline uint8_t *kv_out_room(struct cl_kv_out *o, uint64_t n)
{
    if (cl_likely(o->room - o->len >= n))
        return o->data + o->len;
    if (!o->spill || o->spill_room < o->len + n)
        return NULL;
    memcpy(o->spill, o->data, o->len);
    o->data = o->spill;
    o->room = o->spill_room;
    o->spill = NULL;
    return o->data + o->len;
}

/* Append an answer of less than KV_SHORT_ANSWER_BYTES and its end of line, unless the client wants none. There is
 * room. */
static inline void kv_answer(struct kv_command *c, const char *text)
{
    if (c->noreply)
        return;
    size_t n = strlen(text);
    uint8_t *p = c->out->data + c->out->len;
    memcpy(p, text, n);
    memcpy(p + n, "\r\n", 2);
    c->out->len += n + 2;
}

/* "VALUE <key> <flags> <bytes>[ <cas>]\r\n" at p; returns its end. KV_VALUE_LINE_MAX bytes at most. */
static inline uint8_t *kv_format_value_line(uint8_t *p, const uint8_t *key, uint32_t key_len,
                                            const struct cl_kv_meta *meta, bool with_cas)
{
    memcpy(p, "VALUE ", 6);
    p += 6;
    uint32_t i = 0;
    for (; i + 8 <= key_len; i += 8)
        memcpy(p + i, key + i, 8);
    for (; i < key_len; i++)
        p[i] = key[i];
    p += key_len;
    *p++ = ' ';
    p += kv_format_u64(p, meta->flags);
    *p++ = ' ';
    p += kv_format_u64(p, meta->value_bytes);
    if (with_cas) {
        *p++ = ' ';
        p += kv_format_u64(p, meta->cas);
    }
    memcpy(p, "\r\n", 2);
    return p + 2;
}

/* Where a command would be executed: whether it is only measured (cl_kv_measure), which is done with this. */
static inline bool kv_measured(struct kv_command *c, uint32_t does, uint64_t answer, uint32_t keys)
{
    struct cl_kv_extent *e = c->thread->measured;
    if (cl_likely(!e))
        return false;
    e->does = does;
    e->answer = answer;
    e->keys = keys;
    return true;
}

/* The longest answer with an item's value, but for its value line or header. */
static inline uint64_t kv_value_most(const struct kv_command *c)
{
    return c->thread->store->item_max_bytes + 2;
}

/* A command of a session begins. Its words are not touched: there is room for more than most commands have. */
static inline void kv_begin(struct kv_command *c, struct cl_kv_session *s, struct cl_kv_out *out)
{
    c->session = s;
    c->thread = s->thread;
    c->out = out;
    c->data_used = 0;
    c->noreply = false;
}

/* Whether what waits of the session is for another turn. */
static inline bool kv_turn_over(const struct cl_kv_session *s)
{
    return cl_unlikely(s->most && s->done >= s->most);
}

/* apps/kv/binary.c: cl_kv_process of a session in that protocol; and the refusal of the request, as far as it has come,
 * that a datagram ends in, or whose answer has no room. */
int kv_binary_process(struct cl_kv_session *s, const uint8_t *in, uint64_t len, uint64_t *consumed,
                      struct cl_kv_out *out);
void kv_binary_refuse_rest(const uint8_t *request, uint64_t len, bool no_room, struct cl_kv_out *out);

/* apps/kv/line.c */
/* flush_all of either protocol: at a time of the store's clock, 0 for now. */
void kv_flush(struct cl_kv_thread *t, uint32_t at_s);
#define KV_DATA_MISSING (-1)
void kv_refuse(struct kv_command *c, const char *text);
void kv_take_noreply(struct kv_command *c);
/* Refuse a line whose data block, if it has one, has no known end. The block must not be taken for commands. */
int kv_refuse_and_end(struct kv_command *c, const char *text);
/* What a storage command is answered. */
const char *kv_stored_text(int rc);
/* A value's size in words, to that of its data block, its end of line counted. */
static inline bool kv_parse_size(struct kv_token t, uint64_t *block)
{
    int32_t bytes;
    if (!kv_parse_i32(t.p, t.len, &bytes) || bytes < 0 || bytes > INT32_MAX - 2)
        return false;
    *block = (uint64_t)bytes + 2;
    return true;
}
/* Whether the command, of which session->want bytes are needed, may wait for the rest. */
static inline bool kv_may_wait(const struct kv_command *c)
{
    return !c->session->keeps || c->session->want <= c->session->keeps;
}
/* The data block of a command that stores. CL_KV_MORE: *value is the value; or the item is too large, or *value is
 * NULL, as there is no memory for it, which the store will say, and the block is thrown away. KV_DATA_MISSING: it has
 * not all come yet. CL_KV_QUIT: it does not end as one. */
int kv_take_block(struct kv_command *c, const struct cl_kv_key *key, uint64_t block, const uint8_t **value);

/* Meta commands: apps/kv/meta.c and meta_write.c. False or CL_KV_FULL: no room for the answer, nothing was done. */
bool kv_meta_get(struct kv_command *c);
bool kv_meta_debug(struct kv_command *c);
int kv_meta_set(struct kv_command *c);
bool kv_meta_delete(struct kv_command *c);
bool kv_meta_arithmetic(struct kv_command *c);

/* apps/kv/admin.c. False: no room. kv_admin_absent: commands that mean nothing here. */
void kv_admin_verbosity(struct kv_command *c);
void kv_admin_memlimit(struct kv_command *c);
bool kv_admin_crawler(struct kv_command *c);
void kv_admin_watch(struct kv_command *c);
void kv_admin_absent(struct kv_command *c);
/* apps/kv/dump.c: lru_crawler metadump, or stats cachedump, of all items, or of `limit`. False: no room; the session
 * knows where to go on. */
bool kv_dump(struct kv_command *c, bool crawler, uint32_t limit);

/* apps/kv/retrieve.c. False: no room for the next value; session->skip says where to go on. */
bool kv_retrieve(struct kv_command *c);
/* apps/kv/stats.c. False: no room for CL_KV_ANSWER_MAX bytes. */
bool kv_stats(struct kv_command *c);
/* The same of the binary protocol; what: which statistics, or empty. */
bool kv_stats_binary(struct kv_command *c, struct kv_token what);

#endif
