/* See config.h. Constants are settings that clients ask for, and that have one value here. */
#include "config.h"
#include "command.h"
#include "durable.h"
#include "evict.h"
#include "number.h"
#include "reply.h"

#include <ctype.h>

enum kind { NUMBER, MEMORY, POLICY, NOTIFY, PASSWORD, BUFFERS, APPENDONLY, APPENDFSYNC, CONSTANT };

struct option {
    const char *name;
    enum kind kind;
    uint32_t offset;
    int64_t least, most;
    const char *text; /* of a constant */
};

#define AT(field) offsetof(struct cl_rconfig, field)

static const struct option options[] = {
    {"maxmemory", MEMORY, AT(maxmemory), 0, INT64_MAX, NULL},
    {"maxmemory-policy", POLICY, AT(policy), 0, 0, NULL},
    {"maxmemory-samples", NUMBER, AT(samples), 1, 64, NULL},
    {"lfu-log-factor", NUMBER, AT(lfu_log_factor), 0, INT32_MAX, NULL},
    {"lfu-decay-time", NUMBER, AT(lfu_decay_time), 0, INT32_MAX, NULL},
    {"maxclients", NUMBER, AT(maxclients), 1, UINT32_MAX, NULL},
    {"timeout", NUMBER, AT(timeout_s), 0, INT32_MAX, NULL},
    {"proto-max-bulk-len", MEMORY, AT(bulk_most), 1 << 20, INT32_MAX, NULL},
    {"client-query-buffer-limit", MEMORY, AT(query_most), 1 << 20, UINT32_MAX, NULL},
    {"client-output-buffer-limit", BUFFERS, 0, 0, 0, NULL},
    {"notify-keyspace-events", NOTIFY, AT(notify), 0, 0, NULL},
    {"auto-aof-rewrite-percentage", NUMBER, AT(rewrite_percent), 0, INT32_MAX, NULL},
    {"auto-aof-rewrite-min-size", MEMORY, AT(rewrite_least), 0, INT64_MAX, NULL},
    {"hz", NUMBER, AT(hz), 1, 500, NULL},
    {"slowlog-log-slower-than", NUMBER, AT(slowlog_slower_us), -1, INT64_MAX, NULL},
    {"slowlog-max-len", NUMBER, AT(slowlog_most), 0, INT64_MAX, NULL},
    {"stream-node-max-entries", NUMBER, AT(stream_node_entries), 0, INT64_MAX, NULL},
    {"hash-max-listpack-entries", NUMBER, AT(hash_entries), 0, INT64_MAX, NULL},
    {"hash-max-listpack-value", NUMBER, AT(hash_value), 0, INT64_MAX, NULL},
    {"zset-max-listpack-entries", NUMBER, AT(zset_entries), 0, INT64_MAX, NULL},
    {"zset-max-listpack-value", NUMBER, AT(zset_value), 0, INT64_MAX, NULL},
    {"set-max-intset-entries", NUMBER, AT(set_intset), 0, INT64_MAX, NULL},
    {"list-max-listpack-size", NUMBER, AT(list_size), INT32_MIN, INT32_MAX, NULL},
    {"list-compress-depth", NUMBER, AT(list_depth), 0, INT32_MAX, NULL},
    /* Their names before Redis 7.0, which it still takes and shows. */
    {"hash-max-ziplist-entries", NUMBER, AT(hash_entries), 0, INT64_MAX, NULL},
    {"hash-max-ziplist-value", NUMBER, AT(hash_value), 0, INT64_MAX, NULL},
    {"zset-max-ziplist-entries", NUMBER, AT(zset_entries), 0, INT64_MAX, NULL},
    {"zset-max-ziplist-value", NUMBER, AT(zset_value), 0, INT64_MAX, NULL},
    {"list-max-ziplist-size", NUMBER, AT(list_size), INT32_MIN, INT32_MAX, NULL},
    {"requirepass", PASSWORD, AT(password), 0, 0, NULL},
    {"databases", CONSTANT, 0, 0, 0, "16"},
    {"save", CONSTANT, 0, 0, 0, ""},
    {"appendonly", APPENDONLY, 0, 0, 0, NULL},
    {"appendfsync", APPENDFSYNC, 0, 0, 0, "always"},
    {"no-appendfsync-on-rewrite", CONSTANT, 0, 0, 0, "no"},
    {"aof-load-truncated", CONSTANT, 0, 0, 0, "yes"},
    {"port", CONSTANT, 0, 0, 0, "6379"},
    {"cluster-enabled", CONSTANT, 0, 0, 0, "no"},
};
#define N_OPTIONS (sizeof options / sizeof options[0])

static const struct {
    const char *name;
    int64_t value;
} policies[] = {{"volatile-lru", CL_RE_VOLATILE_LRU},       {"volatile-lfu", CL_RE_VOLATILE_LFU},
                {"volatile-random", CL_RE_VOLATILE_RANDOM}, {"volatile-ttl", CL_RE_VOLATILE_TTL},
                {"allkeys-lru", CL_RE_ALLKEYS_LRU},         {"allkeys-lfu", CL_RE_ALLKEYS_LFU},
                {"allkeys-random", CL_RE_ALLKEYS_RANDOM},   {"noeviction", CL_RE_NO_EVICTION}};
#define N_POLICIES (sizeof policies / sizeof policies[0])

static const struct {
    char letter;
    uint32_t bits;
} events[] = {{'A', CL_RN_ALL},      {'g', CL_RN_GENERIC},  {'$', CL_RN_STRING}, {'l', CL_RN_LIST},
              {'s', CL_RN_SET},      {'h', CL_RN_HASH},     {'z', CL_RN_ZSET},   {'x', CL_RN_EXPIRED},
              {'e', CL_RN_EVICTED},  {'t', CL_RN_STREAM},   {'d', CL_RN_MODULE}, {'n', CL_RN_NEW},
              {'K', CL_RN_KEYSPACE}, {'E', CL_RN_KEYEVENT}, {'m', CL_RN_MISS}};
#define N_EVENTS (sizeof events / sizeof events[0])

void cl_rconfig_default(struct cl_rconfig *f)
{
    *f = (struct cl_rconfig){.samples = 5,
                             .lfu_log_factor = 10,
                             .lfu_decay_time = 1,
                             .databases = CL_RESP_DATABASES,
                             .maxclients = 10000,
                             .bulk_most = 512 << 20,
                             .query_most = 1 << 30,
                             .pubsub_hard = 32 << 20,
                             .pubsub_soft = 8 << 20,
                             .pubsub_soft_s = 60,
                             .rewrite_percent = 100,
                             .rewrite_least = 1 << 20,
                             .hz = 10,
                             .slowlog_slower_us = 10000,
                             .slowlog_most = 128,
                             .stream_node_entries = 100,
                             .hash_entries = 128,
                             .hash_value = 64,
                             .zset_entries = 128,
                             .zset_value = 64,
                             .set_intset = 512,
                             .list_size = -2};
}

/* "100mb" and the like. */
static bool memory(struct cl_slice s, int64_t *out)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {{"b", 1},        {"k", 1000},       {"kb", 1024},    {"m", 1000000},
                 {"mb", 1 << 20}, {"g", 1000000000}, {"gb", 1 << 30}, {"", 1}};
    struct cl_slice digits = {s.p, 0}, unit;
    while (digits.len < s.len && isdigit(s.p[digits.len]))
        digits.len++;
    unit = (struct cl_slice){s.p + digits.len, s.len - digits.len};
    if (!cl_rnum_int(digits, out))
        return false;
    for (unsigned i = 0; i < sizeof units / sizeof units[0]; i++)
        if (cl_slice_is(unit, units[i].name))
            return !__builtin_mul_overflow(*out, units[i].bytes, out);
    return false;
}

static bool notify(struct cl_slice s, int64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < s.len; i++) {
        unsigned k = 0;
        while (k < N_EVENTS && events[k].letter != s.p[i])
            k++;
        if (k == N_EVENTS)
            return false;
        *out |= events[k].bits;
    }
    return true;
}

static void notify_text(int64_t bits, char *out)
{
    for (unsigned k = 0; k < N_EVENTS; k++) {
        bool all = (bits & CL_RN_ALL) == CL_RN_ALL;
        if (k > 0 && all && (events[k].bits & CL_RN_ALL))
            continue;
        if ((bits & events[k].bits) == events[k].bits)
            *out++ = events[k].letter;
    }
    *out = 0;
}

/* "class hard soft seconds" and so on. Returns why not, or NULL. */
static const char *buffers(struct cl_rconfig *f, struct cl_slice s)
{
    struct cl_slice word[16];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s.len && n < 16;) {
        uint32_t from = i;
        while (i < s.len && s.p[i] != ' ')
            i++;
        if (i > from)
            word[n++] = (struct cl_slice){s.p + from, i - from};
        i += i < s.len;
    }
    if (n == 0 || n % 4)
        return "Wrong number of arguments in buffer limit configuration.";
    for (uint32_t i = 0; i < n; i += 4) {
        bool replica = cl_slice_is(word[i], "replica") || cl_slice_is(word[i], "slave");
        int64_t v[3];
        if (!replica && !cl_slice_is(word[i], "normal") && !cl_slice_is(word[i], "pubsub"))
            return "Invalid client class specified in buffer limit configuration.";
        if (!memory(word[i + 1], &v[0]) || !memory(word[i + 2], &v[1]) || !cl_rnum_int(word[i + 3], &v[2]) || v[2] < 0)
            return "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        if (cl_slice_is(word[i], "normal")) {
            f->normal_hard = v[0];
            f->normal_soft = v[1];
            f->normal_soft_s = v[2];
        } else if (!replica) {
            f->pubsub_hard = v[0];
            f->pubsub_soft = v[1];
            f->pubsub_soft_s = v[2];
        }
    }
    return NULL;
}

static bool policy(struct cl_slice s, int64_t *out)
{
    for (unsigned i = 0; i < N_POLICIES; i++)
        if (cl_slice_is(s, policies[i].name)) {
            *out = policies[i].value;
            return true;
        }
    return false;
}

/* What is not here is refused. */
static const char *appendonly(const struct cl_resp *r, struct cl_slice value)
{
    bool yes = cl_slice_is(value, "yes");
    if (!yes && !cl_slice_is(value, "no"))
        return "argument must be 'yes' or 'no'";
    if (yes == cl_rdurable_logs(r))
        return NULL;
    return yes ? "this server was started without a log: start it with --option log=PATH"
               : "this server has a log, and keeps it: start it without one";
}

static const char *appendfsync(struct cl_slice value)
{
    if (cl_slice_is(value, "always"))
        return NULL;
    if (cl_slice_is(value, "everysec") || cl_slice_is(value, "no"))
        return "'always' is the only one here: a write is answered when it is durable";
    return "argument(s) must be one of the following: always";
}

static const char *out_of_range(struct cl_resp *r, const struct option *o)
{
    snprintf(r->why, sizeof r->why, "argument must be between %lld and %lld inclusive", (long long)o->least,
             (long long)o->most);
    return r->why;
}

static const char *set(struct cl_resp *r, const struct option *o, struct cl_slice value)
{
    struct cl_rconfig *f = &r->config;
    int64_t v = 0, *at = (int64_t *)((char *)f + o->offset);
    switch (o->kind) {
    case NUMBER:
        if (!cl_rnum_int(value, &v))
            return "argument couldn't be parsed into an integer";
        if (v < o->least || v > o->most)
            return out_of_range(r, o);
        break;
    case MEMORY:
        if (!memory(value, &v))
            return "argument must be a memory value";
        if (v < o->least || v > o->most)
            return out_of_range(r, o);
        break;
    case POLICY:
        if (!policy(value, &v))
            return "argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, "
                   "volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction";
        break;
    case NOTIFY:
        if (!notify(value, &v))
            return "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
        break;
    case PASSWORD:
        if (value.len >= sizeof f->password)
            return "the password has 255 bytes at most";
        memcpy(f->password, value.p, value.len);
        f->password[value.len] = 0;
        return NULL;
    case APPENDONLY:
        return appendonly(r, value);
    case APPENDFSYNC:
        return appendfsync(value);
    case BUFFERS:
        return buffers(f, value);
    default: /* what is so already may be asked for */
        return cl_slice_is(value, o->text) ? NULL : "can't set immutable config";
    }
    *at = v;
    return NULL;
}

static const struct option *find(struct cl_slice name)
{
    for (unsigned i = 0; i < N_OPTIONS; i++)
        if (cl_slice_is(name, options[i].name))
            return &options[i];
    return NULL;
}

bool cl_rconfig_set(struct cl_resp *r, struct cl_slice name, struct cl_slice value, const char **why)
{
    const struct option *o = find(name);
    *why = o ? set(r, o, value) : NULL;
    return o && !*why;
}

const char *cl_rconfig_policy(const struct cl_resp *r)
{
    unsigned i = 0;
    while (policies[i].value != r->config.policy)
        i++;
    return policies[i].name;
}

static void text_of(const struct cl_resp *r, const struct option *o, char out[CL_RCONFIG_ROOM])
{
    const struct cl_rconfig *f = &r->config;
    const int64_t *at = (const int64_t *)((const char *)f + o->offset);
    switch (o->kind) {
    case NUMBER:
    case MEMORY:
        snprintf(out, CL_RCONFIG_ROOM, "%lld", (long long)*at);
        break;
    case POLICY:
        snprintf(out, CL_RCONFIG_ROOM, "%s", cl_rconfig_policy(r));
        break;
    case NOTIFY:
        notify_text(*at, out);
        break;
    case PASSWORD:
        snprintf(out, CL_RCONFIG_ROOM, "%s", f->password);
        break;
    case APPENDONLY:
        snprintf(out, CL_RCONFIG_ROOM, "%s", cl_rdurable_logs(r) ? "yes" : "no");
        break;
    case BUFFERS:
        snprintf(out, CL_RCONFIG_ROOM, "normal %lld %lld %lld slave 268435456 67108864 60 pubsub %lld %lld %lld",
                 (long long)f->normal_hard, (long long)f->normal_soft, (long long)f->normal_soft_s,
                 (long long)f->pubsub_hard, (long long)f->pubsub_soft, (long long)f->pubsub_soft_s);
        break;
    default:
        snprintf(out, CL_RCONFIG_ROOM, "%s", o->text);
        break;
    }
}

int64_t cl_rconfig_show(struct cl_resp_client *c, const struct cl_slice *patterns, uint32_t n)
{
    char text[CL_RCONFIG_ROOM];
    int64_t shown = 0;
    for (unsigned i = 0; i < N_OPTIONS; i++) {
        uint32_t k = 0;
        while (k < n && !cl_glob(patterns[k], cl_slice_of(options[i].name), true))
            k++;
        if (k == n)
            continue;
        text_of(c->r, &options[i], text);
        cl_reply_text(c, options[i].name);
        cl_reply_text(c, text);
        shown++;
    }
    return shown;
}
