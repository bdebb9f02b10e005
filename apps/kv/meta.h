/* Flags of meta commands, parsed, and the pieces of their answers. Private to apps/kv. */
#ifndef CORELANE_APPS_KV_META_H
#define CORELANE_APPS_KV_META_H

#include "base64.h"
#include "command_layout.h"

#define KV_META_WORDS 19      /* command, key, flags and all */
#define KV_META_OPAQUE_MAX 32 /* its letter counted */
#define KV_META_LINE_MAX 1024 /* longest answer without a value: key in base64, opaque, numbers of the other flags */
#define KV_META_TOO_LONG "CLIENT_ERROR opaque token too long"

/* What the flags of a command ask for. */
struct kv_meta {
    struct cl_kv_key key; /* decoded */
    unsigned first;       /* the word at which the flags begin */
    bool binary_key;      /* b */
    bool changes;         /* N, T or R: more than a look at the item */
    bool vivify, value, peek, quiet, has_cas, stale, new_time;
    bool opaque_too_long;
    bool hit;  /* h */
    char mode; /* 0: none given */
    uint32_t expires_s, vivify_s, recache_s;
    uint32_t client_flags;
    uint64_t cas, delta, initial;
    uint8_t decoded[CL_KV_KEY_MAX];
};

/* Read the flags from word `first` on, and the key, which is not too long. NULL, or why not. (apps/kv/meta.c) */
const char *kv_meta_parse(struct kv_command *c, unsigned first, struct kv_meta *m);

/* The letter of a flag. */
static inline char kv_meta_flag(const struct kv_command *c, unsigned i)
{
    return (char)c->token[i].p[0];
}

static inline uint8_t *kv_meta_put_text(uint8_t *p, const char *text)
{
    size_t n = strlen(text);
    memcpy(p, text, n);
    return p + n;
}

/* " <letter><number>" */
static inline uint8_t *kv_meta_put_number(uint8_t *p, char letter, uint64_t v)
{
    *p++ = ' ';
    *p++ = (uint8_t)letter;
    return p + kv_format_u64(p, v);
}

/* " t<seconds left>" */
static inline uint8_t *kv_meta_put_time(uint8_t *p, uint32_t expires_s, uint32_t now_s)
{
    return expires_s ? kv_meta_put_number(p, 't', (uint32_t)(expires_s - now_s)) : kv_meta_put_text(p, " t-1");
}

/* " k<key>", or its base64 and the flag that says so. */
static inline uint8_t *kv_meta_put_key(uint8_t *p, const struct cl_kv_key *key, bool binary)
{
    p = kv_meta_put_text(p, " k");
    if (binary)
        return kv_meta_put_text(kv_base64_encode(p, key->data, key->len), " b");
    memcpy(p, key->data, key->len);
    return p + key->len;
}

/* The word of a flag as it came. */
static inline uint8_t *kv_meta_put_word(uint8_t *p, struct kv_token word)
{
    *p++ = ' ';
    memcpy(p, word.p, word.len);
    return p + word.len;
}

/* Flags that come back in the answers to all commands: opaque and key. False: the flag is neither. */
static inline bool kv_meta_put_common(const struct kv_command *c, const struct kv_meta *m, unsigned i, uint8_t **p)
{
    char letter = kv_meta_flag(c, i);
    if (letter == 'O')
        *p = kv_meta_put_word(*p, c->token[i]);
    else if (letter == 'k')
        *p = kv_meta_put_key(*p, &m->key, m->binary_key);
    return letter == 'O' || letter == 'k';
}

#endif
