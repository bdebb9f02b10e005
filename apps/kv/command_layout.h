/* What the files of the command layer share. Private to apps/kv. */
#ifndef CORELANE_APPS_KV_COMMAND_LAYOUT_H
#define CORELANE_APPS_KV_COMMAND_LAYOUT_H

#include "command.h"
#include "layout.h"
#include "number.h"

#define KV_MAX_TOKENS 8           /* commands with a fixed form have at most 7 */
#define KV_SHORT_ANSWER_BYTES 128 /* longer than any answer of one line */
#define KV_VALUE_LINE_MAX (6 + CL_KV_KEY_MAX + 1 + 10 + 1 + 10 + 1 + 20 + 2)
#define KV_VERSION "corelane-0.1.0"
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

/* Append an answer of less than KV_SHORT_ANSWER_BYTES and its end of line, unless the client wants none. There is room. */
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

/* apps/kv/retrieve.c. False: no room for the next value; session->skip says where to go on. */
bool kv_retrieve(struct kv_command *c);
/* apps/kv/stats.c. False: no room for CL_KV_ANSWER_MAX bytes. */
bool kv_stats(struct kv_command *c);

#endif
