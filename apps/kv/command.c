/* Splitting input into commands, and all commands but retrieval and statistics. */
#include "binary.h"
#include "meta.h"
#include "prefix.h"

/* Whether the command has from lo to hi words, its name counted; else it is answered ERROR. */
static bool has_words(struct kv_command *c, unsigned lo, unsigned hi)
{
    if (c->n_tokens >= lo && c->n_tokens <= hi)
        return true;
    kv_refuse(c, "ERROR");
    return false;
}

/* Whether a space in the key, or an empty key, may have moved the words, so that another one is the size. */
static bool moved(const struct kv_command *c, unsigned words)
{
    struct kv_token last = c->token[c->n_tokens - 1];
    uint64_t number;
    return c->n_tokens > words ? kv_parse_u64(last.p, last.len, &number) : c->noreply;
}

/* set, add, replace, append, prepend, cas. */
static int do_store(struct kv_command *c, int mode)
{
    const struct kv_token *w = c->token;
    uint64_t flags, block, cas = 0; /* flags over 32 bits are cut, as memcached cuts them */
    int32_t exptime;
    unsigned words = mode == CL_KV_CAS ? 6 : 5;
    if (c->n_tokens < words || c->n_tokens > words + 1)
        return kv_refuse_and_end(c, "ERROR");
    kv_take_noreply(c);
    if (moved(c, words) || !kv_parse_size(w[4], &block))
        return kv_refuse_and_end(c, KV_BAD_FORMAT);
    if (w[1].len > CL_KV_KEY_MAX || !kv_parse_u64(w[2].p, w[2].len, &flags) ||
        !kv_parse_i32(w[3].p, w[3].len, &exptime) || (mode == CL_KV_CAS && !kv_parse_u64(w[5].p, w[5].len, &cas))) {
        kv_refuse(c, KV_BAD_FORMAT);
        c->session->swallow = block;
        return CL_KV_MORE;
    }
    struct cl_kv_key key = kv_key_of(c->thread, w[1]);
    const uint8_t *value;
    int rc = kv_take_block(c, &key, block, &value);
    if (rc != CL_KV_MORE || kv_measured(c, CL_KV_WRITES, KV_SHORT_ANSWER_BYTES, 0))
        return rc;
    kv_prefix_count(c->thread->store, &key, KV_PREFIX_SET);
    struct kv_written written;
    struct kv_write store = {.mode = mode,
                             .flags = (uint32_t)flags,
                             .expires_s = cl_kv_expiry(c->thread, exptime),
                             .value = value,
                             .value_bytes = (uint32_t)(block - 2),
                             .cas = cas};
    rc = kv_write(c->thread, &key, &store, &written);
    kv_answer(c, kv_stored_text(rc));
    return CL_KV_MORE;
}

static void do_delta(struct kv_command *c, bool incr)
{
    uint64_t delta, value;
    kv_take_noreply(c);
    if (c->token[1].len > CL_KV_KEY_MAX) {
        kv_refuse(c, KV_BAD_FORMAT);
        return;
    }
    if (!kv_parse_u64(c->token[2].p, c->token[2].len, &delta)) {
        kv_refuse(c, "CLIENT_ERROR invalid numeric delta argument");
        return;
    }
    struct cl_kv_key key = kv_key_of(c->thread, c->token[1]);
    int rc = cl_kv_delta(c->thread, &key, incr, delta, &value);
    if (rc == CL_KV_OK) {
        char text[KV_DECIMAL_MAX + 1];
        text[kv_format_u64((uint8_t *)text, value)] = 0;
        kv_answer(c, text);
    } else if (rc == CL_KV_NON_NUMERIC) {
        kv_refuse(c, "CLIENT_ERROR cannot increment or decrement non-numeric value");
    } else {
        kv_answer(c, rc == CL_KV_NOT_FOUND ? "NOT_FOUND" : "SERVER_ERROR out of memory");
    }
}

static void do_touch(struct kv_command *c)
{
    int32_t exptime;
    kv_take_noreply(c);
    if (c->token[1].len > CL_KV_KEY_MAX) {
        kv_refuse(c, KV_BAD_FORMAT);
        return;
    }
    if (!kv_parse_i32(c->token[2].p, c->token[2].len, &exptime)) {
        kv_refuse(c, "CLIENT_ERROR invalid exptime argument");
        return;
    }
    struct cl_kv_key key = kv_key_of(c->thread, c->token[1]);
    int rc = cl_kv_touch(c->thread, &key, cl_kv_expiry(c->thread, exptime));
    kv_answer(c, rc == CL_KV_OK ? "TOUCHED" : "NOT_FOUND");
}

static void do_delete(struct kv_command *c)
{
    if (c->n_tokens > 2) {
        /* A time of 0 is taken, as clients of old send it. */
        bool zero = kv_token_is(c->token[2], "0");
        kv_take_noreply(c);
        if (!(c->n_tokens == 3 ? zero || c->noreply : zero && c->noreply)) {
            kv_refuse(c, KV_BAD_FORMAT ".  Usage: delete <key> [noreply]");
            return;
        }
    }
    if (c->token[1].len > CL_KV_KEY_MAX) {
        kv_refuse(c, KV_BAD_FORMAT);
        return;
    }
    struct cl_kv_key key = kv_key_of(c->thread, c->token[1]);
    kv_prefix_count(c->thread->store, &key, KV_PREFIX_DELETE);
    kv_answer(c, cl_kv_delete_key(c->thread, &key) == CL_KV_OK ? "DELETED" : "NOT_FOUND");
}

static void do_flush_all(struct kv_command *c)
{
    int32_t delay = 0;
    kv_take_noreply(c);
    if (c->thread->store->forbids & CL_KV_NO_FLUSH) {
        kv_answer(c, "CLIENT_ERROR flush_all not allowed");
        return;
    }
    if (c->n_tokens != (c->noreply ? 2u : 1u) && !kv_parse_i32(c->token[1].p, c->token[1].len, &delay)) {
        kv_refuse(c, "CLIENT_ERROR invalid exptime argument");
        return;
    }
    kv_flush(c->thread, delay > 0 ? cl_kv_expiry(c->thread, delay) : 0);
    kv_answer(c, "OK");
}

enum verb {
    V_NONE,
    V_GET,
    V_GETS,
    V_GAT,
    V_GATS,
    V_SET,
    V_ADD,
    V_REPLACE,
    V_APPEND,
    V_PREPEND,
    V_CAS,
    V_MG,
    V_MS,
    V_MD,
    V_MA,
    V_ME,
    V_MN,
    V_INCR,
    V_DECR,
    V_TOUCH,
    V_DELETE,
    V_FLUSH_ALL,
    V_VERSION,
    V_VERBOSITY,
    V_STATS,
    V_CRAWLER,
    V_MEMLIMIT,
    V_WATCH,
    V_ABSENT,
    V_QUIT
};

/* Words that a command may have, its name counted. Those that store look for themselves. */
static const struct form {
    const char *name;
    enum verb verb;
    unsigned lo, hi;
} FORMS[] = {{"set", V_SET, 1, ~0u},
             {"get", V_GET, 2, ~0u},
             {"gets", V_GETS, 2, ~0u},
             {"mg", V_MG, 2, ~0u},
             {"ms", V_MS, 1, ~0u},
             {"md", V_MD, 2, ~0u},
             {"ma", V_MA, 2, ~0u},
             {"me", V_ME, 1, ~0u},
             {"mn", V_MN, 1, ~0u},
             {"add", V_ADD, 1, ~0u},
             {"replace", V_REPLACE, 1, ~0u},
             {"append", V_APPEND, 1, ~0u},
             {"prepend", V_PREPEND, 1, ~0u},
             {"cas", V_CAS, 1, ~0u},
             {"incr", V_INCR, 3, 4},
             {"decr", V_DECR, 3, 4},
             {"touch", V_TOUCH, 3, 4},
             {"delete", V_DELETE, 2, 4},
             {"gat", V_GAT, 2, ~0u},
             {"gats", V_GATS, 2, ~0u},
             {"flush_all", V_FLUSH_ALL, 1, 3},
             {"version", V_VERSION, 1, ~0u},
             {"verbosity", V_VERBOSITY, 2, 3},
             {"stats", V_STATS, 1, ~0u},
             {"quit", V_QUIT, 1, ~0u},
             {"bget", V_GET, 2, ~0u},
             {"lru_crawler", V_CRAWLER, 1, ~0u},
             {"cache_memlimit", V_MEMLIMIT, 2, 3},
             {"watch", V_WATCH, 1, ~0u},
             {"slabs", V_ABSENT, 1, ~0u},
             {"lru", V_ABSENT, 1, ~0u},
             {"extstore", V_ABSENT, 1, ~0u},
             {"shutdown", V_ABSENT, 1, ~0u},
             {"refresh_certs", V_ABSENT, 1, ~0u}};

static const struct form *form_of(struct kv_token name)
{
    for (unsigned i = 0; i < sizeof(FORMS) / sizeof(FORMS[0]); i++)
        if (kv_token_is(name, FORMS[i].name))
            return &FORMS[i];
    return NULL;
}

static void split(struct kv_command *c)
{
    const uint8_t *p = c->line;
    for (c->n_tokens = 0; c->n_tokens <= KV_MAX_TOKENS; c->n_tokens++) {
        struct kv_token t = kv_next_token(p, c->line_end);
        if (!t.len)
            return;
        if (c->n_tokens < KV_MAX_TOKENS)
            c->token[c->n_tokens] = t;
        p = t.p + t.len;
    }
}

/* Fewest words of a command that stores, in any version of the protocol: its name, a key that a line end may cut. */
#define STORING_WORDS 2

/* Whether data may follow an unknown command: "sett a 0 0 9", "mt a 9". A byte that is no character of ASCII that is
 * printed may stand where its sender means a space: a tab, or a space of another alphabet. */
static bool may_store(const struct kv_command *c)
{
    const uint8_t *end = c->data - 1; /* the line's, which may be cut */
    while (end > c->line && end[-1] == '\r')
        end--;
    for (const uint8_t *p = c->line; p < end; p++)
        if (*p < ' ' || *p >= 0x7f)
            return true;
    return c->n_tokens >= STORING_WORDS;
}

/* A page has somebody's browser send it. Not worth an answer, as in memcached. */
static bool is_http(const struct kv_command *c)
{
    if (c->n_tokens == 0 || c->n_tokens > KV_MAX_TOKENS)
        return false;
    struct kv_token last = c->token[c->n_tokens - 1];
    return last.len >= 5 && memcmp(last.p, "HTTP/", 5) == 0;
}

/* Whether it is a get of some key, which is most of what comes: it looks at its words itself. */
static bool is_get(struct kv_command *c)
{
    const uint8_t *p = c->line;
    if (c->line_end - p < 5 || memcmp(p, "get ", 4) != 0 || !kv_next_token(p + 4, c->line_end).len)
        return false;
    c->token[0] = (struct kv_token){p, 3};
    return true;
}

/* Whether a command but for retrieval and storage is only measured. */
static bool is_measured(struct kv_command *c, enum verb verb)
{
    uint64_t value = verb == V_MG ? kv_value_most(c) : 0;
    switch (verb) {
    case V_MG:
    case V_MD:
    case V_MA:
        return kv_measured(c, CL_KV_WRITES, KV_META_LINE_MAX + value, 0);
    case V_ME:
        return kv_measured(c, CL_KV_READS, KV_META_LINE_MAX, 0);
    case V_INCR:
    case V_DECR:
    case V_TOUCH:
    case V_DELETE:
    case V_FLUSH_ALL:
        return kv_measured(c, CL_KV_WRITES, KV_SHORT_ANSWER_BYTES, 0);
    case V_STATS:
        return kv_measured(c, CL_KV_SHOWS, 0, 0);
    case V_CRAWLER:
    case V_MEMLIMIT:
    case V_WATCH:
    case V_ABSENT:
    case V_QUIT:
        return kv_measured(c, CL_KV_STEERS, KV_SHORT_ANSWER_BYTES, 0);
    default: /* those that look for themselves, or do nothing */
        return false;
    }
}

/* Execute one command, whose line is complete. */
static int execute(struct kv_command *c)
{
    if (is_get(c))
        return kv_retrieve(c) ? CL_KV_MORE : CL_KV_FULL;
    split(c);
    const struct form *f = c->n_tokens ? form_of(c->token[0]) : NULL;
    if (!f && is_http(c))
        return CL_KV_QUIT;
    if (!f) {
        kv_refuse(c, "ERROR");
        return may_store(c) ? CL_KV_QUIT : CL_KV_MORE;
    }
    if (!has_words(c, f->lo, f->hi))
        return CL_KV_MORE;
    if (c->session->replicated && (f->verb == V_CRAWLER || f->verb == V_MEMLIMIT || f->verb >= V_WATCH) &&
        f->verb != V_QUIT) {
        kv_refuse(c, "SERVER_ERROR this command is about one server, and is not replicated");
        return CL_KV_MORE;
    }
    if (cl_unlikely(c->thread->measured && is_measured(c, f->verb)))
        return f->verb == V_QUIT ? CL_KV_QUIT : CL_KV_MORE;
    switch (f->verb) {
    case V_GET:
    case V_GETS:
    case V_GAT:
    case V_GATS:
        return kv_retrieve(c) ? CL_KV_MORE : CL_KV_FULL;
    case V_SET:
    case V_ADD:
    case V_REPLACE:
    case V_APPEND:
    case V_PREPEND:
    case V_CAS:
        return do_store(c, (int)f->verb - V_SET + CL_KV_SET);
    case V_MG:
        return kv_meta_get(c) ? CL_KV_MORE : CL_KV_FULL;
    case V_MS:
        return kv_meta_set(c);
    case V_MD:
        return kv_meta_delete(c) ? CL_KV_MORE : CL_KV_FULL;
    case V_MA:
        return kv_meta_arithmetic(c) ? CL_KV_MORE : CL_KV_FULL;
    case V_ME:
        return kv_meta_debug(c) ? CL_KV_MORE : CL_KV_FULL;
    case V_MN:
        kv_answer(c, "MN");
        break;
    case V_INCR:
    case V_DECR:
        do_delta(c, f->verb == V_INCR);
        break;
    case V_TOUCH:
        do_touch(c);
        break;
    case V_DELETE:
        do_delete(c);
        break;
    case V_FLUSH_ALL:
        do_flush_all(c);
        break;
    case V_VERSION:
        kv_answer(c, "VERSION " KV_VERSION);
        break;
    case V_VERBOSITY:
        kv_admin_verbosity(c);
        break;
    case V_STATS:
        return kv_stats(c) ? CL_KV_MORE : CL_KV_FULL;
    case V_CRAWLER:
        return kv_admin_crawler(c) ? CL_KV_MORE : CL_KV_FULL;
    case V_MEMLIMIT:
        kv_admin_memlimit(c);
        break;
    case V_WATCH:
        kv_admin_watch(c);
        break;
    case V_ABSENT:
        kv_admin_absent(c);
        break;
    case V_QUIT:
        return CL_KV_QUIT;
    case V_NONE:
        break;
    }
    return CL_KV_MORE;
}

/* Find the end of the line that starts at in. False: it has not come yet. */
static bool cut_line(struct kv_command *c, const uint8_t *in, uint64_t len)
{
    const uint8_t *end = memchr(in, '\n', cl_min(len, (uint64_t)CL_KV_LINE_MAX));
    if (!end)
        return false;
    c->line = in;
    c->data = end + 1;
    c->data_len = len - (uint64_t)(c->data - in);
    c->line_end = end - in > 1 && end[-1] == '\r' ? end - 1 : end;
    const uint8_t *nul = memchr(in, 0, (size_t)(c->line_end - in));
    if (nul) /* what follows a zero byte in a line is not looked at */
        c->line_end = nul;
    return true;
}

/* Throw away what has come of a refused data block. False: it does not end as one, so its size was not as said. */
static bool throw_away(struct cl_kv_session *s, const uint8_t *in, uint64_t len, uint64_t *at)
{
    bool ends = true;
    uint64_t thrown = cl_min(s->swallow, len - *at);
    for (uint64_t i = cl_max(thrown, 2ull) - 2; i < thrown; i++) {
        uint64_t left = s->swallow - i; /* from this byte on */
        ends = ends && (left > 2 || in[*at + i] == (left == 2 ? '\r' : '\n'));
    }
    *at += thrown;
    s->swallow -= thrown;
    return ends;
}

static int text_process(struct cl_kv_session *s, const uint8_t *in, uint64_t len, uint64_t *consumed,
                        struct cl_kv_out *out)
{
    uint64_t at = 0;
    int rc = CL_KV_MORE;
    for (;;) {
        if (!throw_away(s, in, len, &at))
            rc = CL_KV_QUIT;
        if (cl_unlikely(s->thread->measured))
            s->thread->measured->from = rc == CL_KV_QUIT ? len : at;
        if (at == len || rc == CL_KV_QUIT)
            break;
        if (kv_turn_over(s)) {
            rc = CL_KV_TURN;
            break;
        }
        struct kv_command c;
        kv_begin(&c, s, out);
        if (!cut_line(&c, in + at, len - at)) {
            if (len - at >= CL_KV_LINE_MAX)
                rc = CL_KV_QUIT;
            break;
        }
        if (!kv_out_room(out, KV_SHORT_ANSWER_BYTES)) {
            rc = CL_KV_FULL;
            break;
        }
        rc = execute(&c);
        if (rc == CL_KV_FULL)
            break;
        if (rc == KV_DATA_MISSING) {
            rc = CL_KV_MORE;
            break;
        }
        at += (uint64_t)(c.data - c.line) + c.data_used;
        if (cl_unlikely(s->thread->measured))
            break;
        s->done++;
        if (s->watches)
            at = len;
    }
    *consumed = rc == CL_KV_QUIT ? len : at;
    return rc;
}

int cl_kv_process(struct cl_kv_session *s, const uint8_t *in, uint64_t len, uint64_t *consumed, struct cl_kv_out *out)
{
    s->want = 0;
    if (cl_unlikely(s->watches)) { /* who watches is not listened to, as in memcached */
        *consumed = len;
        return CL_KV_MORE;
    }
    if (!s->protocol && len) {
        uint32_t forbids = s->thread->store->forbids;
        bool binary = in[0] == KV_BINARY_REQUEST && !(forbids & CL_KV_NO_BINARY);
        if (!binary && forbids & CL_KV_NO_TEXT) {
            *consumed = len;
            return CL_KV_QUIT;
        }
        s->protocol = binary ? CL_KV_BINARY : CL_KV_TEXT;
    }
    return (s->protocol == CL_KV_BINARY ? kv_binary_process : text_process)(s, in, len, consumed, out);
}

int cl_kv_measure(struct cl_kv_session *s, const uint8_t *in, uint64_t len, struct cl_kv_extent *e)
{
    uint8_t refusal[CL_KV_ANSWER_MAX];
    struct cl_kv_out out = {.data = refusal, .room = sizeof(refusal)};
    *e = (struct cl_kv_extent){.does = CL_KV_IDLES, .answer = KV_META_LINE_MAX};
    s->thread->measured = e;
    int rc = cl_kv_process(s, in, len, &e->to, &out);
    s->thread->measured = NULL;
    e->swallow = s->swallow;
    return rc;
}

static void put_text(struct cl_kv_out *out, const char *text)
{
    uint8_t *p = kv_out_room(out, strlen(text));
    if (!p)
        return;
    memcpy(p, text, strlen(text));
    out->len += strlen(text);
}

void cl_kv_process_whole(struct cl_kv_session *s, const uint8_t *in, uint64_t len, struct cl_kv_out *out)
{
    uint64_t consumed;
    int rc = cl_kv_process(s, in, len, &consumed, out);
    bool cut = rc == CL_KV_MORE && consumed < len; /* a stream would wait for the rest; a datagram's never comes */
    if (rc == CL_KV_FULL)
        out->len = 0;
    if (s->protocol == CL_KV_BINARY) {
        if (rc == CL_KV_FULL || cut)
            kv_binary_refuse_rest(in + consumed, len - consumed, rc == CL_KV_FULL, out);
    } else if (rc == CL_KV_FULL) {
        put_text(out, "SERVER_ERROR out of memory writing get response\r\n");
    } else if (cut && !s->swallow) {
        put_text(out, s->want ? "CLIENT_ERROR bad data chunk\r\n" : "ERROR\r\n");
    }
    if (cut || (rc == CL_KV_MORE && s->swallow))
        cl_count(&s->thread->counters.bad_commands, 1);
}
