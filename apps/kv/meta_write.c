/* Meta commands that write: ms, md, ma. */
#include "meta.h"

/* Key and number of flags, which all of them check. NULL, or why not. */
static const char *check_words(const struct kv_command *c)
{
    if (c->token[1].len > CL_KV_KEY_MAX)
        return KV_BAD_FORMAT;
    return c->n_tokens > KV_META_WORDS ? "CLIENT_ERROR options flags too long" : NULL;
}

/* How ms stores. -1: no such mode. */
static int mode_of(const struct kv_meta *m)
{
    switch (m->mode) {
    case 0:
    case 'S':
        return m->has_cas ? CL_KV_CAS : CL_KV_SET;
    case 'R':
        return m->has_cas ? CL_KV_CAS : CL_KV_REPLACE;
    case 'E':
        return CL_KV_ADD;
    case 'A':
        return CL_KV_APPEND;
    case 'P':
        return CL_KV_PREPEND;
    default:
        return -1;
    }
}

static const char *code_of(int rc)
{
    switch (rc) {
    case CL_KV_OK:
        return "HD";
    case CL_KV_EXISTS:
        return "EX";
    case CL_KV_NOT_FOUND:
        return "NF";
    default:
        return "NS";
    }
}

static void answer_stored(struct kv_command *c, const struct kv_meta *m, int rc, const struct kv_written *written)
{
    if (rc == CL_KV_OK && m->quiet)
        return;
    uint8_t *start = c->out->data + c->out->len, *p = kv_meta_put_text(start, code_of(rc));
    for (unsigned i = m->first; i < c->n_tokens; i++)
        if (!kv_meta_put_common(c, m, i, &p) && kv_meta_flag(c, i) == 'c')
            p = kv_meta_put_number(p, 'c', written->cas);
    c->out->len += (uint64_t)(kv_meta_put_text(p, "\r\n") - start);
}

/* The line's flags and mode. NULL, or why not. */
static const char *parse_set(struct kv_command *c, struct kv_meta *m, int *mode)
{
    const char *why = check_words(c);
    why = why ? why : kv_meta_parse(c, 3, m);
    if (why)
        return why;
    *mode = mode_of(m);
    if (*mode < 0)
        return "CLIENT_ERROR invalid mode for ms M token";
    return m->opaque_too_long ? KV_META_TOO_LONG : NULL;
}

/* Whether a space in the key, or an empty key, may have moved the words, so that another one is the size: among the
 * flags is a number, or a word that means something elsewhere. */
static bool moved(const struct kv_command *c)
{
    for (unsigned i = 3; i < cl_min(c->n_tokens, (unsigned)KV_MAX_TOKENS); i++) {
        uint8_t first = c->token[i].p[0];
        if ((first >= '0' && first <= '9') || first == '-' || first == '+' || kv_token_is(c->token[i], "noreply"))
            return true;
    }
    return c->n_tokens > KV_MAX_TOKENS;
}

int kv_meta_set(struct kv_command *c)
{
    struct kv_meta m;
    uint64_t block;
    int mode = CL_KV_SET;
    if (!kv_out_room(c->out, KV_META_LINE_MAX))
        return CL_KV_FULL;
    if (c->n_tokens < 2)
        return kv_refuse_and_end(c, "ERROR");
    if (c->n_tokens == 2 || !kv_parse_size(c->token[2], &block))
        return kv_refuse_and_end(c, KV_BAD_FORMAT);
    const char *why = parse_set(c, &m, &mode);
    if (why && moved(c))
        return kv_refuse_and_end(c, why);
    if (why) {
        kv_refuse(c, why);
        c->session->swallow = block;
        return CL_KV_MORE;
    }
    bool joins = mode == CL_KV_APPEND || mode == CL_KV_PREPEND;
    struct kv_written written = {0};
    struct kv_write w = {.mode = mode,
                         .stale = m.stale,
                         .binary_key = m.binary_key,
                         .drops_old = true,
                         .flags = m.client_flags,
                         .expires_s = m.expires_s,
                         .value_bytes = (uint32_t)(block - 2),
                         .cas = mode == CL_KV_CAS || joins ? m.cas : 0};
    int rc = kv_take_block(c, &m.key, block, &w.value);
    if (rc != CL_KV_MORE || kv_measured(c, CL_KV_WRITES, KV_META_LINE_MAX, 0))
        return rc;
    rc = kv_write(c->thread, &m.key, &w, &written);
    if (rc == CL_KV_TOO_LARGE || rc == CL_KV_NO_MEMORY)
        kv_answer(c, kv_stored_text(rc));
    else
        answer_stored(c, &m, rc, &written);
    return CL_KV_MORE;
}

bool kv_meta_delete(struct kv_command *c)
{
    struct kv_meta m;
    if (!kv_out_room(c->out, KV_META_LINE_MAX))
        return false;
    const char *why = check_words(c);
    if (!why && kv_meta_parse(c, 2, &m))
        why = "CLIENT_ERROR invalid or duplicate flag";
    else if (!why && m.opaque_too_long)
        why = KV_META_TOO_LONG;
    if (why) {
        kv_refuse(c, why);
        return true;
    }
    struct kv_removal d = {m.has_cas, m.stale, m.new_time, m.expires_s, m.cas};
    int rc = kv_remove(c->thread, &m.key, &d);
    if (rc == CL_KV_OK && m.quiet)
        return true;
    uint8_t *start = c->out->data + c->out->len, *p = kv_meta_put_text(start, code_of(rc));
    for (unsigned i = m.first; i < c->n_tokens; i++)
        kv_meta_put_common(c, &m, i, &p);
    c->out->len += (uint64_t)(kv_meta_put_text(p, "\r\n") - start);
    return true;
}

/* The time that N and T leave an item with that ma makes, in the order in which they come. */
static uint32_t created_time(const struct kv_command *c, const struct kv_meta *m)
{
    uint32_t expires_s = 0;
    for (unsigned i = m->first; i < c->n_tokens; i++) {
        if (kv_meta_flag(c, i) == 'T')
            expires_s = m->expires_s;
        else if (kv_meta_flag(c, i) == 'N')
            expires_s = m->vivify_s;
    }
    return expires_s;
}

static uint8_t *put_changed(const struct kv_command *c, const struct kv_meta *m, const struct kv_changed *n, uint8_t *p)
{
    uint8_t text[KV_DECIMAL_MAX];
    unsigned len = kv_format_u64(text, n->value);
    uint32_t expires_s = n->expired_s;
    p = kv_meta_put_text(p, m->value ? "VA " : "HD");
    if (m->value)
        p += kv_format_u64(p, len);
    for (unsigned i = m->first; i < c->n_tokens; i++) {
        char letter = kv_meta_flag(c, i);
        if (letter == 'c')
            p = kv_meta_put_number(p, 'c', n->cas);
        else if (letter == 't')
            p = kv_meta_put_time(p, expires_s, c->thread->now_s);
        else if (letter == 'T')
            expires_s = m->expires_s;
        else if (letter == 'N' && n->created)
            expires_s = m->vivify_s;
        else
            kv_meta_put_common(c, m, i, &p);
    }
    if (m->value) {
        p = kv_meta_put_text(p, "\r\n");
        memcpy(p, text, len);
        p += len;
    }
    return p;
}

/* Whether the mode of ma is one; *incr: which. */
static bool direction(char mode, bool *incr)
{
    *incr = !mode || mode == 'I' || mode == '+';
    return *incr || mode == 'D' || mode == '-';
}

static const char *parse_arithmetic(struct kv_command *c, struct kv_meta *m, bool *incr)
{
    const char *why = check_words(c);
    if (why)
        return why;
    if (kv_meta_parse(c, 2, m))
        return "CLIENT_ERROR invalid or duplicate flag";
    if (!direction(m->mode, incr))
        return "CLIENT_ERROR invalid mode for ma M token";
    return m->opaque_too_long ? KV_META_TOO_LONG : NULL;
}

bool kv_meta_arithmetic(struct kv_command *c)
{
    struct kv_meta m;
    bool incr = true;
    if (!kv_out_room(c->out, KV_META_LINE_MAX))
        return false;
    const char *why = parse_arithmetic(c, &m, &incr);
    if (why) {
        kv_refuse(c, why);
        return true;
    }
    struct kv_change d = {.incr = incr,
                          .delta = m.delta,
                          .cas = m.cas,
                          .create = m.vivify,
                          .binary_key = m.binary_key,
                          .new_time = m.new_time,
                          .expires_s = m.expires_s,
                          .created_s = created_time(c, &m),
                          .initial = m.initial};
    struct kv_changed changed;
    int rc = kv_delta(c->thread, &m.key, &d, &changed);
    if (rc == CL_KV_NON_NUMERIC) {
        kv_refuse(c, "CLIENT_ERROR cannot increment or decrement non-numeric value");
        return true;
    }
    if (rc == CL_KV_NO_MEMORY) {
        kv_answer(c, m.vivify ? "SERVER_ERROR Out of memory allocating new item" : "SERVER_ERROR out of memory");
        return true;
    }
    if (rc == CL_KV_OK && m.quiet && !changed.created) /* that it was made is told, as memcached tells it */
        return true;
    uint8_t *start = c->out->data + c->out->len, *p;
    if (rc == CL_KV_OK) {
        p = put_changed(c, &m, &changed, start);
    } else {
        p = kv_meta_put_text(start, code_of(rc));
        for (unsigned i = m.first; i < c->n_tokens; i++)
            kv_meta_put_common(c, &m, i, &p);
    }
    c->out->len += (uint64_t)(kv_meta_put_text(p, "\r\n") - start);
    return true;
}
