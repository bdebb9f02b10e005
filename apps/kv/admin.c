/* Commands about the server: verbosity, cache_memlimit, lru_crawler; and those that steer what this store does not
 * have. */
#include "command_layout.h"
#include "watch.h"

static bool word_is(const struct kv_command *c, unsigned i, const char *word)
{
    return i < c->n_tokens && i < KV_MAX_TOKENS && kv_token_is(c->token[i], word);
}

static bool number_of(const struct kv_command *c, unsigned i, uint32_t *out)
{
    uint64_t v;
    if (!kv_parse_u64(c->token[i].p, c->token[i].len, &v))
        return false;
    *out = (uint32_t)v; /* cut, as memcached cuts it */
    return true;
}

void kv_admin_verbosity(struct kv_command *c)
{
    uint32_t level;
    kv_take_noreply(c);
    if (!number_of(c, 1, &level)) {
        kv_refuse(c, KV_BAD_FORMAT);
        return;
    }
    cl_store_relaxed(&c->thread->store->verbosity, cl_min(level, 2u)); /* there is no log to make more talkative */
    kv_answer(c, "OK");
}

void kv_admin_memlimit(struct kv_command *c)
{
    uint32_t mib;
    kv_take_noreply(c);
    if (!number_of(c, 1, &mib))
        kv_refuse(c, "ERROR");
    else if (mib < 8)
        kv_answer(c, "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m");
    else if (mib > 1000000000)
        kv_answer(c, "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes");
    else
        kv_answer(c, cl_kv_set_limit(c->thread->store, (uint64_t)mib << 20) == 0
                         ? "OK"
                         : "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust");
}

/* Classes that the crawler is sent to: all, hash, or numbers from 1 to 63 with commas between them. *ours: whether the
 * one class that there is, 1, is among them. */
static bool classes(struct kv_token t, bool *ours)
{
    *ours = kv_token_is(t, "all") || kv_token_is(t, "hash");
    if (*ours)
        return true;
    uint32_t number = 0;
    for (uint32_t i = 0; i <= t.len; i++) {
        uint8_t c = i < t.len ? t.p[i] : ',';
        if (c == ',') {
            if (number < 1 || number > 63)
                return false;
            *ours = *ours || number == 1;
            number = 0;
        } else if (c < '0' || c > '9' || number > 63) {
            return false;
        } else {
            number = number * 10 + c - '0';
        }
    }
    return true;
}

/* crawl, metadump. False: no room. */
static bool crawl(struct kv_command *c)
{
    bool ours, dumps = word_is(c, 1, "metadump");
    struct cl_kv *s = c->thread->store;
    if (cl_load_relaxed(&s->crawler_off)) {
        kv_answer(c, "CLIENT_ERROR lru crawler disabled");
        return true;
    }
    if (dumps && s->forbids & CL_KV_NO_DUMP) {
        kv_answer(c, "ERROR metadump not allowed");
        return true;
    }
    if (!classes(c->token[2], &ours)) {
        kv_answer(c, "BADCLASS invalid class id");
        return true;
    }
    if (dumps && ours)
        return kv_dump(c, true, UINT32_MAX);
    if (!dumps && kv_token_is(c->token[2], "hash")) { /* its crawler goes by class alone */
        kv_answer(c, "ERROR an unknown error happened");
        return true;
    }
    kv_answer(c, dumps ? "END" : "OK"); /* the sweep drops what has expired, crawl or not */
    return true;
}

static void set_crawl(struct kv_command *c, uint32_t *setting, uint32_t most, const char *refusal)
{
    uint32_t v;
    if (!number_of(c, 2, &v)) {
        kv_refuse(c, KV_BAD_FORMAT);
    } else if (v > most) {
        kv_refuse(c, refusal);
    } else {
        cl_store_relaxed(setting, v);
        kv_answer(c, "OK");
    }
}

static void switch_crawler(struct kv_command *c, bool off)
{
    struct cl_kv *s = c->thread->store;
    bool was_off = cl_load_relaxed(&s->crawler_off);
    cl_store_relaxed(&s->crawler_off, off);
    kv_answer(c, off || was_off ? "OK" : "ERROR failed to start lru crawler thread"); /* it was running */
}

bool kv_admin_crawler(struct kv_command *c)
{
    struct cl_kv *s = c->thread->store;
    if (c->n_tokens == 3 && (word_is(c, 1, "crawl") || word_is(c, 1, "metadump")))
        return crawl(c);
    if (c->n_tokens == 3 && word_is(c, 1, "tocrawl"))
        set_crawl(c, &s->crawler_tocrawl, UINT32_MAX, "");
    else if (c->n_tokens == 3 && word_is(c, 1, "sleep"))
        set_crawl(c, &s->crawler_sleep_us, 1000000, "CLIENT_ERROR sleep must be one second or less");
    else if (c->n_tokens == 2 && (word_is(c, 1, "enable") || word_is(c, 1, "disable")))
        switch_crawler(c, word_is(c, 1, "disable"));
    else
        kv_refuse(c, "ERROR");
    return true;
}

/* Kinds of events by their names; rawcmds is taken, and shows nothing, as in memcached 1.6. 0: there is no such. */
static uint32_t kind_of(struct kv_token t)
{
    static const struct {
        const char *name;
        uint32_t kind;
    } kinds[] = {{"fetchers", KV_WATCH_FETCHERS},
                 {"mutations", KV_WATCH_MUTATIONS},
                 {"evictions", KV_WATCH_EVICTIONS},
                 {"connevents", KV_WATCH_CONNEVENTS},
                 {"rawcmds", KV_WATCH_NOTHING}};
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kv_token_is(t, kinds[i].name))
            return kinds[i].kind;
    return 0;
}

void kv_admin_watch(struct kv_command *c)
{
    uint32_t kinds = c->n_tokens == 1 ? KV_WATCH_FETCHERS : 0;
    if (!c->session->may_watch || c->thread->store->forbids & CL_KV_NO_WATCH) {
        kv_refuse(c, "CLIENT_ERROR watch commands not allowed");
        return;
    }
    for (unsigned i = 1; i < c->n_tokens; i++) {
        uint32_t kind = i < KV_MAX_TOKENS ? kind_of(c->token[i]) : 0;
        if (!kind) {
            kv_refuse(c, "ERROR");
            return;
        }
        kinds |= kind;
    }
    c->session->watches = kinds;
    kv_answer(c, "OK");
}

void kv_admin_absent(struct kv_command *c)
{
    if (kv_token_is(c->token[0], "shutdown"))
        kv_refuse(c, "ERROR: shutdown not enabled");
    else if (kv_token_is(c->token[0], "refresh_certs"))
        kv_refuse(c, "Error TLS not enabled");
    else if (kv_token_is(c->token[0], "slabs") && c->n_tokens == 4 && word_is(c, 1, "reassign"))
        kv_refuse(c, "CLIENT_ERROR slab reassignment disabled");
    else
        kv_refuse(c, "ERROR");
}
