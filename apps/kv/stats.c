/* The stats command. Names are memcached's where they mean the same; the store's own begin with "log_" or "index_". */
#include "binary.h"
#include "front.h"
#include "prefix.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Append a statistic, as a line or as an answer of the binary protocol. There was made room for all; one that has none
 * nevertheless is left out whole. */
void kv_stat_text(struct kv_command *c, const char *name, const char *v)
{
    struct cl_kv_out *o = c->out;
    if (c->binary) {
        size_t name_len = strlen(name), len = strlen(v);
        if (o->room - o->len < KV_BINARY_HEADER + name_len + len)
            return;
        uint8_t *p = kv_binary_header(o->data + o->len, c->line, KV_S_OK, 0, (uint32_t)name_len, len, 0);
        memcpy(p, name, name_len);
        memcpy(p + name_len, v, len);
        o->len += KV_BINARY_HEADER + name_len + len;
        return;
    }
    uint64_t room = o->room - o->len;
    int n = snprintf((char *)o->data + o->len, room, "STAT %s %s\r\n", name, v);
    if (n > 0 && (uint64_t)n < room)
        o->len += (uint64_t)n;
}

void kv_stat_u64(struct kv_command *c, const char *name, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, v);
    kv_stat_text(c, name, text);
}

static void counter_lines(struct kv_command *c, const struct cl_kv_counters *n)
{
    kv_stat_u64(c, "cmd_get", n->cmd_get);
    kv_stat_u64(c, "cmd_set", n->cmd_set);
    kv_stat_u64(c, "cmd_flush", n->cmd_flush);
    kv_stat_u64(c, "cmd_touch", n->cmd_touch);
    kv_stat_u64(c, "cmd_meta", n->cmd_meta);
    kv_stat_u64(c, "get_hits", n->get_hits);
    kv_stat_u64(c, "get_misses", n->get_misses);
    kv_stat_u64(c, "get_expired", n->get_expired);
    kv_stat_u64(c, "get_flushed", n->get_flushed);
    kv_stat_u64(c, "delete_misses", n->delete_misses);
    kv_stat_u64(c, "delete_hits", n->delete_hits);
    kv_stat_u64(c, "incr_misses", n->incr_misses);
    kv_stat_u64(c, "incr_hits", n->incr_hits);
    kv_stat_u64(c, "decr_misses", n->decr_misses);
    kv_stat_u64(c, "decr_hits", n->decr_hits);
    kv_stat_u64(c, "cas_misses", n->cas_misses);
    kv_stat_u64(c, "cas_hits", n->cas_hits);
    kv_stat_u64(c, "cas_badval", n->cas_badval);
    kv_stat_u64(c, "touch_hits", n->touch_hits);
    kv_stat_u64(c, "touch_misses", n->touch_misses);
    kv_stat_u64(c, "store_too_large", n->store_too_large);
    kv_stat_u64(c, "store_no_memory", n->store_no_memory);
    kv_stat_u64(c, "auth_cmds", 0);
    kv_stat_u64(c, "auth_errors", 0);
    kv_stat_u64(c, "read_retries", n->read_retries);
    kv_stat_u64(c, "bad_commands", n->bad_commands);
}

static void usage_lines(struct kv_command *c, const struct cl_kv_usage *u)
{
    kv_stat_u64(c, "limit_maxbytes", u->limit_bytes);
    kv_stat_u64(c, "bytes", u->live_bytes);
    kv_stat_u64(c, "curr_items", u->items);
    kv_stat_u64(c, "total_items", u->total_items);
    kv_stat_u64(c, "evictions", u->evictions + u->index_evictions);
    kv_stat_u64(c, "reclaimed", u->reclaimed);
    kv_stat_u64(c, "item_size_max", u->item_max_bytes);
    kv_stat_u64(c, "threads", u->threads);
    kv_stat_u64(c, "log_bytes", u->log_bytes);
    kv_stat_u64(c, "log_dead_bytes", u->dead_bytes);
    kv_stat_u64(c, "log_free_bytes", u->free_bytes);
    kv_stat_u64(c, "log_moved", u->moved);
    kv_stat_u64(c, "index_bytes", u->index_bytes);
    kv_stat_u64(c, "hash_bytes", u->index_bytes); /* memcached's name of it */
    kv_stat_u64(c, "hash_is_expanding", 0);
    kv_stat_u64(c, "index_evictions", u->index_evictions);
    kv_stat_u64(c, "index_overflow_buckets", u->overflow_buckets);
    kv_stat_u64(c, "partitions", u->partitions);
    kv_stat_u64(c, "huge_pages", u->huge_pages);
}

/* The store's front, or NULL: acquire, what it is was written before. */
static void *front_of(const struct kv_command *c)
{
    return cl_load_acquire(&c->thread->store->front);
}

static void time_line(struct kv_command *c, const char *name, const struct timeval *t)
{
    char text[48];
    snprintf(text, sizeof(text), "%lld.%06ld", (long long)t->tv_sec, (long)t->tv_usec);
    kv_stat_text(c, name, text);
}

/* CPU time of the process. */
static void usage_of_process(struct kv_command *c)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        return;
    time_line(c, "rusage_user", &usage.ru_utime);
    time_line(c, "rusage_system", &usage.ru_stime);
}

/* What `stats` alone says. */
static void all_lines(struct kv_command *c)
{
    struct cl_kv *s = c->thread->store;
    struct cl_kv_usage usage;
    struct cl_kv_counters counters;
    cl_kv_usage(s, &usage);
    cl_kv_counters(s, &counters);
    kv_stat_u64(c, "pid", (uint64_t)getpid());
    kv_stat_u64(c, "uptime", kv_uptime_s(s));
    kv_stat_u64(c, "time", (uint64_t)(s->unix_base_s + c->thread->now_s));
    kv_stat_text(c, "version", KV_VERSION);
    kv_stat_u64(c, "pointer_size", 8 * sizeof(void *));
    usage_of_process(c);
    if (front_of(c))
        s->front_ops->general(front_of(c), c);
    counter_lines(c, &counters);
    usage_lines(c, &usage);
}

static void settings_lines(struct kv_command *c)
{
    const struct cl_kv *s = c->thread->store;
    kv_stat_u64(c, "maxbytes", cl_load_relaxed(&s->limit_bytes));
    kv_stat_u64(c, "verbosity", cl_load_relaxed(&s->verbosity));
    if (front_of(c))
        s->front_ops->settings(front_of(c), c);
    kv_stat_u64(c, "oldest", 0);
    kv_stat_text(c, "evictions", s->no_evict ? "off" : "on");
    kv_stat_text(c, "shutdown_command", "no");
    kv_stat_u64(c, "num_threads", s->n_threads);
    kv_stat_text(c, "stat_key_prefix", ":");
    kv_stat_text(c, "detail_enabled", cl_load_relaxed(&s->detail) ? "yes" : "no");
    kv_stat_text(c, "inline_ascii_response", "no");
    kv_stat_text(c, "cas_enabled", s->no_cas ? "no" : "yes");
    kv_stat_text(c, "binding_protocol",
                 s->forbids & CL_KV_NO_TEXT     ? "binary"
                 : s->forbids & CL_KV_NO_BINARY ? "ascii"
                                                : "auto-negotiate");
    kv_stat_text(c, "auth_enabled_sasl", "no");
    kv_stat_text(c, "auth_enabled_ascii", "no");
    kv_stat_u64(c, "item_size_max", s->item_max_bytes);
    kv_stat_text(c, "slab_reassign", "no");
    kv_stat_u64(c, "slab_automove", 0);
    kv_stat_text(c, "lru_crawler", cl_load_relaxed(&s->crawler_off) ? "no" : "yes");
    kv_stat_u64(c, "lru_crawler_sleep", cl_load_relaxed(&s->crawler_sleep_us));
    kv_stat_u64(c, "lru_crawler_tocrawl", cl_load_relaxed(&s->crawler_tocrawl));
    kv_stat_text(c, "flush_enabled", s->forbids & CL_KV_NO_FLUSH ? "no" : "yes");
    kv_stat_text(c, "dump_enabled", s->forbids & CL_KV_NO_DUMP ? "no" : "yes");
    kv_stat_text(c, "lru_maintainer_thread", "no");
    kv_stat_text(c, "lru_segmented", "no");
    kv_stat_text(c, "track_sizes", "no");
    kv_stat_text(c, "ssl_enabled", "no");
}

/* The log as the one class that there is, 1. Of an empty store nothing, as in memcached. */
static void items_lines(struct kv_command *c)
{
    struct cl_kv_usage u;
    struct cl_kv_counters n;
    cl_kv_usage(c->thread->store, &u);
    cl_kv_counters(c->thread->store, &n);
    if (!u.items)
        return;
    kv_stat_u64(c, "items:1:number", u.items);
    kv_stat_u64(c, "items:1:mem_requested", u.live_bytes);
    kv_stat_u64(c, "items:1:evicted", u.evictions + u.index_evictions);
    kv_stat_u64(c, "items:1:outofmemory", n.store_no_memory);
    kv_stat_u64(c, "items:1:reclaimed", u.reclaimed);
}

static void slabs_lines(struct kv_command *c)
{
    struct cl_kv_usage u;
    struct cl_kv_counters n;
    cl_kv_usage(c->thread->store, &u);
    cl_kv_counters(c->thread->store, &n);
    kv_stat_u64(c, "1:chunk_size", 8);
    kv_stat_u64(c, "1:chunks_per_page", u.log_bytes / u.partitions / 8);
    kv_stat_u64(c, "1:total_pages", u.partitions);
    kv_stat_u64(c, "1:total_chunks", u.log_bytes / 8);
    kv_stat_u64(c, "1:used_chunks", (u.live_bytes + u.dead_bytes) / 8);
    kv_stat_u64(c, "1:free_chunks", u.free_bytes / 8);
    kv_stat_u64(c, "1:get_hits", n.get_hits);
    kv_stat_u64(c, "1:cmd_set", n.cmd_set);
    kv_stat_u64(c, "1:delete_hits", n.delete_hits);
    kv_stat_u64(c, "1:incr_hits", n.incr_hits);
    kv_stat_u64(c, "1:decr_hits", n.decr_hits);
    kv_stat_u64(c, "1:cas_hits", n.cas_hits);
    kv_stat_u64(c, "1:cas_badval", n.cas_badval);
    kv_stat_u64(c, "1:touch_hits", n.touch_hits);
    kv_stat_u64(c, "active_slabs", 1);
    kv_stat_u64(c, "total_malloced", u.log_bytes);
}

/* Statistics that are lines and an end. False: there are none of that name. */
static bool lines_of(struct kv_command *c, struct kv_token what)
{
    if (!what.len)
        all_lines(c);
    else if (kv_token_is(what, "settings"))
        settings_lines(c);
    else if (kv_token_is(what, "items"))
        items_lines(c);
    else if (kv_token_is(what, "slabs"))
        slabs_lines(c);
    else if (kv_token_is(what, "sizes")) /* would need a walk through all items, or to be counted all the time */
        kv_stat_text(c, "sizes_status", "disabled");
    else
        return kv_token_is(what, "extstore"); /* there is none */
    return true;
}

static void reset(struct cl_kv *s)
{
    cl_kv_counters_reset(s);
    kv_prefix_clear(s);
}

/* stats detail dump. False: no room; the session knows where to go on. */
static bool dump_prefixes(struct kv_command *c)
{
    struct cl_kv_session *s = c->session;
    for (; s->skip < KV_PREFIX_SLOTS; s->skip++) {
        uint8_t *p = kv_out_room(c->out, KV_PREFIX_LINE_MAX);
        if (!p)
            return false;
        c->out->len += kv_prefix_line(c->thread->store, s->skip, p);
    }
    if (!kv_out_room(c->out, KV_SHORT_ANSWER_BYTES))
        return false;
    s->skip = 0;
    kv_answer(c, "END");
    return true;
}

/* stats detail. False: no room. */
static bool do_detail(struct kv_command *c)
{
    struct kv_token what = c->n_tokens > 2 ? c->token[2] : (struct kv_token){0};
    bool on = kv_token_is(what, "on");
    if (kv_token_is(what, "dump"))
        return dump_prefixes(c);
    if (!on && !kv_token_is(what, "off"))
        kv_refuse(c, "CLIENT_ERROR usage: stats detail on|off|dump");
    else if (kv_prefix_switch(c->thread->store, on))
        kv_answer(c, "SERVER_ERROR out of memory");
    else
        kv_answer(c, "OK");
    return true;
}

/* stats cachedump <class> <lines>. False: no room. */
static bool do_cachedump(struct kv_command *c)
{
    uint64_t class, limit;
    if (c->n_tokens < 4)
        kv_refuse(c, "CLIENT_ERROR bad command line");
    else if (c->thread->store->forbids & CL_KV_NO_DUMP)
        kv_answer(c, "CLIENT_ERROR stats cachedump not allowed");
    else if (!kv_parse_u64(c->token[2].p, c->token[2].len, &class) ||
             !kv_parse_u64(c->token[3].p, c->token[3].len, &limit))
        kv_refuse(c, KV_BAD_FORMAT);
    else if (class > 63)
        kv_refuse(c, "CLIENT_ERROR Illegal slab id");
    else if (class == 1)
        return kv_dump(c, false, limit && limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    else
        kv_answer(c, "END");
    return true;
}

/* stats conns. False: no room; the session knows where to go on. */
static bool conns_lines(struct kv_command *c)
{
    struct cl_kv_session *s = c->session;
    void *front = front_of(c);
    for (;; s->skip++) {
        if (!kv_out_room(c->out, KV_FRONT_CONN_BYTES))
            return false;
        if (!front || !c->thread->store->front_ops->conn(front, c, s->skip))
            break;
    }
    s->skip = 0;
    return true;
}

bool kv_stats(struct kv_command *c)
{
    struct kv_token what = c->n_tokens > 1 ? c->token[1] : (struct kv_token){0};
    c->binary = false;
    if (c->session->replicated) {
        kv_answer(c, "SERVER_ERROR stats must be alone in its request");
        return true;
    }
    if (kv_token_is(what, "detail"))
        return do_detail(c);
    if (kv_token_is(what, "cachedump"))
        return do_cachedump(c);
    bool conns = kv_token_is(what, "conns");
    if (conns ? !conns_lines(c) : !kv_out_room(c->out, CL_KV_ANSWER_MAX))
        return false;
    if (kv_token_is(what, "reset")) {
        reset(c->thread->store);
        kv_answer(c, "RESET");
    } else if (conns || lines_of(c, what)) {
        kv_answer(c, "END");
    } else {
        kv_refuse(c, "ERROR");
    }
    return true;
}

static void refuse_binary(struct kv_command *c, enum kv_status status, const char *text)
{
    struct cl_kv_out *o = c->out;
    uint8_t *p = kv_binary_header(o->data + o->len, c->line, status, 0, 0, strlen(text), 0);
    memcpy(p, text, strlen(text));
    o->len += KV_BINARY_HEADER + strlen(text);
}

bool kv_stats_binary(struct kv_command *c, struct kv_token what)
{
    bool on = kv_token_is(what, "detail on");
    bool conns = kv_token_is(what, "conns") && !c->session->replicated;
    c->binary = true;
    if (conns ? !conns_lines(c) : !kv_out_room(c->out, CL_KV_ANSWER_MAX))
        return false;
    if (c->session->replicated) {
        refuse_binary(c, KV_S_NOT_SUPPORTED, "stats must be alone in its request");
        return true;
    }
    if (kv_token_is(what, "reset")) {
        reset(c->thread->store);
    } else if (on || kv_token_is(what, "detail off")) {
        kv_prefix_switch(c->thread->store, on);
    } else if (!conns && !lines_of(c, what)) {
        refuse_binary(c, KV_S_NOT_FOUND, "Not found");
        return true;
    }
    kv_stat_text(c, "", "");
    return true;
}
