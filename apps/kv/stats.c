/* The stats command. Names are memcached's where they mean the same; the store's own begin with "log_" or "index_". */
#include "binary.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* Append a statistic, as a line or as an answer of the binary protocol. kv_stats made room for all. */
static void line_text(struct kv_command *c, const char *name, const char *v)
{
    struct cl_kv_out *o = c->out;
    if (c->binary) {
        size_t name_len = strlen(name), len = strlen(v);
        uint8_t *p = kv_binary_header(o->data + o->len, c->line, KV_S_OK, 0, (uint32_t)name_len, len, 0);
        memcpy(p, name, name_len);
        memcpy(p + name_len, v, len);
        o->len += KV_BINARY_HEADER + name_len + len;
        return;
    }
    uint64_t room = o->room - o->len;
    int n = snprintf((char *)o->data + o->len, room, "STAT %s %s\r\n", name, v);
    if (n > 0 && (uint64_t)n < room) /* a line that does not fit is left out whole */
        o->len += (uint64_t)n;
}

static void line_u64(struct kv_command *c, const char *name, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, v);
    line_text(c, name, text);
}

static void counter_lines(struct kv_command *c, const struct cl_kv_counters *n)
{
    line_u64(c, "cmd_get", n->cmd_get);
    line_u64(c, "cmd_set", n->cmd_set);
    line_u64(c, "cmd_flush", n->cmd_flush);
    line_u64(c, "cmd_touch", n->cmd_touch);
    line_u64(c, "get_hits", n->get_hits);
    line_u64(c, "get_misses", n->get_misses);
    line_u64(c, "get_expired", n->get_expired);
    line_u64(c, "get_flushed", n->get_flushed);
    line_u64(c, "delete_misses", n->delete_misses);
    line_u64(c, "delete_hits", n->delete_hits);
    line_u64(c, "incr_misses", n->incr_misses);
    line_u64(c, "incr_hits", n->incr_hits);
    line_u64(c, "decr_misses", n->decr_misses);
    line_u64(c, "decr_hits", n->decr_hits);
    line_u64(c, "cas_misses", n->cas_misses);
    line_u64(c, "cas_hits", n->cas_hits);
    line_u64(c, "cas_badval", n->cas_badval);
    line_u64(c, "touch_hits", n->touch_hits);
    line_u64(c, "touch_misses", n->touch_misses);
    line_u64(c, "store_too_large", n->store_too_large);
    line_u64(c, "store_no_memory", n->store_no_memory);
    line_u64(c, "read_retries", n->read_retries);
    line_u64(c, "bad_commands", n->bad_commands);
}

static void usage_lines(struct kv_command *c, const struct cl_kv_usage *u)
{
    line_u64(c, "limit_maxbytes", u->memory_bytes);
    line_u64(c, "bytes", u->live_bytes);
    line_u64(c, "curr_items", u->items);
    line_u64(c, "total_items", u->total_items);
    line_u64(c, "evictions", u->evictions + u->index_evictions);
    line_u64(c, "reclaimed", u->reclaimed);
    line_u64(c, "item_size_max", u->item_max_bytes);
    line_u64(c, "threads", u->threads);
    line_u64(c, "log_bytes", u->log_bytes);
    line_u64(c, "log_dead_bytes", u->dead_bytes);
    line_u64(c, "log_free_bytes", u->free_bytes);
    line_u64(c, "log_moved", u->moved);
    line_u64(c, "index_bytes", u->index_bytes);
    line_u64(c, "index_evictions", u->index_evictions);
    line_u64(c, "index_overflow_buckets", u->overflow_buckets);
    line_u64(c, "partitions", u->partitions);
    line_u64(c, "huge_pages", u->huge_pages);
}

/* What `stats` alone says. */
static void all_lines(struct kv_command *c)
{
    struct cl_kv *s = c->thread->store;
    struct cl_kv_usage usage;
    struct cl_kv_counters counters;
    cl_kv_usage(s, &usage);
    cl_kv_counters(s, &counters);
    line_u64(c, "pid", (uint64_t)getpid());
    line_u64(c, "uptime", kv_uptime_s(s));
    line_u64(c, "time", (uint64_t)(s->unix_base_s + c->thread->now_s));
    line_text(c, "version", KV_VERSION);
    line_u64(c, "pointer_size", 8 * sizeof(void *));
    counter_lines(c, &counters);
    usage_lines(c, &usage);
}

bool kv_stats(struct kv_command *c)
{
    c->binary = false;
    if (c->session->no_stats) {
        kv_answer(c, "SERVER_ERROR stats must be alone in its request");
        return true;
    }
    if (c->n_tokens > 1) {
        if (!kv_token_is(c->token[1], "reset")) {
            kv_refuse(c, "ERROR");
            return true;
        }
        cl_kv_counters_reset(c->thread->store);
        kv_answer(c, "RESET");
        return true;
    }
    if (!kv_out_room(c->out, CL_KV_ANSWER_MAX))
        return false;
    all_lines(c);
    kv_answer(c, "END");
    return true;
}

/* What memcached says to statistics that there are not. */
static void refuse_binary(struct kv_command *c, enum kv_status status, const char *text)
{
    struct cl_kv_out *o = c->out;
    uint8_t *p = kv_binary_header(o->data + o->len, c->line, status, 0, 0, strlen(text), 0);
    memcpy(p, text, strlen(text));
    o->len += KV_BINARY_HEADER + strlen(text);
}

bool kv_stats_binary(struct kv_command *c, struct kv_token what)
{
    c->binary = true;
    if (!kv_out_room(c->out, CL_KV_ANSWER_MAX))
        return false;
    if (c->session->no_stats) {
        refuse_binary(c, KV_S_NOT_SUPPORTED, "stats must be alone in its request");
        return true;
    }
    if (!what.len) {
        all_lines(c);
    } else if (kv_token_is(what, "reset")) {
        cl_kv_counters_reset(c->thread->store);
    } else {
        refuse_binary(c, KV_S_NOT_FOUND, "Not found");
        return true;
    }
    line_text(c, "", "");
    return true;
}
