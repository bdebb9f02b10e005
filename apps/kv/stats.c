/* The stats command. Names are memcached's where they mean the same; the store's own begin with "log_" or "index_". */
#include "command_layout.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static void line_text(struct cl_kv_out *o, const char *name, const char *v)
{
    uint64_t room = o->room - o->len;
    int n = snprintf((char *)o->data + o->len, room, "STAT %s %s\r\n", name, v);
    if (n > 0 && (uint64_t)n < room) /* a line that does not fit is left out whole; kv_stats made room for all */
        o->len += (uint64_t)n;
}

static void line_u64(struct cl_kv_out *o, const char *name, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, v);
    line_text(o, name, text);
}

static void counter_lines(struct cl_kv_out *o, const struct cl_kv_counters *n)
{
    line_u64(o, "cmd_get", n->cmd_get);
    line_u64(o, "cmd_set", n->cmd_set);
    line_u64(o, "cmd_flush", n->cmd_flush);
    line_u64(o, "cmd_touch", n->cmd_touch);
    line_u64(o, "get_hits", n->get_hits);
    line_u64(o, "get_misses", n->get_misses);
    line_u64(o, "get_expired", n->get_expired);
    line_u64(o, "get_flushed", n->get_flushed);
    line_u64(o, "delete_misses", n->delete_misses);
    line_u64(o, "delete_hits", n->delete_hits);
    line_u64(o, "incr_misses", n->incr_misses);
    line_u64(o, "incr_hits", n->incr_hits);
    line_u64(o, "decr_misses", n->decr_misses);
    line_u64(o, "decr_hits", n->decr_hits);
    line_u64(o, "cas_misses", n->cas_misses);
    line_u64(o, "cas_hits", n->cas_hits);
    line_u64(o, "cas_badval", n->cas_badval);
    line_u64(o, "touch_hits", n->touch_hits);
    line_u64(o, "touch_misses", n->touch_misses);
    line_u64(o, "store_too_large", n->store_too_large);
    line_u64(o, "store_no_memory", n->store_no_memory);
    line_u64(o, "read_retries", n->read_retries);
    line_u64(o, "bad_commands", n->bad_commands);
}

static void usage_lines(struct cl_kv_out *o, const struct cl_kv_usage *u)
{
    line_u64(o, "limit_maxbytes", u->memory_bytes);
    line_u64(o, "bytes", u->live_bytes);
    line_u64(o, "curr_items", u->items);
    line_u64(o, "total_items", u->total_items);
    line_u64(o, "evictions", u->evictions + u->index_evictions);
    line_u64(o, "reclaimed", u->reclaimed);
    line_u64(o, "item_size_max", u->item_max_bytes);
    line_u64(o, "threads", u->threads);
    line_u64(o, "log_bytes", u->log_bytes);
    line_u64(o, "log_dead_bytes", u->dead_bytes);
    line_u64(o, "log_free_bytes", u->free_bytes);
    line_u64(o, "log_moved", u->moved);
    line_u64(o, "index_bytes", u->index_bytes);
    line_u64(o, "index_evictions", u->index_evictions);
    line_u64(o, "index_overflow_buckets", u->overflow_buckets);
    line_u64(o, "partitions", u->partitions);
    line_u64(o, "huge_pages", u->huge_pages);
}

bool kv_stats(struct kv_command *c)
{
    struct cl_kv *s = c->thread->store;
    if (c->session->no_stats) {
        kv_answer(c, "SERVER_ERROR stats must be alone in its request");
        return true;
    }
    if (c->n_tokens > 1) {
        if (!kv_token_is(c->token[1], "reset")) {
            cl_count(&c->thread->counters.bad_commands, 1);
            kv_answer(c, "ERROR");
            return true;
        }
        cl_kv_counters_reset(s);
        kv_answer(c, "RESET");
        return true;
    }
    if (!kv_out_room(c->out, CL_KV_ANSWER_MAX))
        return false;
    struct cl_kv_usage usage;
    struct cl_kv_counters counters;
    cl_kv_usage(s, &usage);
    cl_kv_counters(s, &counters);
    line_u64(c->out, "pid", (uint64_t)getpid());
    line_u64(c->out, "uptime", kv_uptime_s(s));
    line_u64(c->out, "time", (uint64_t)(s->unix_base_s + c->thread->now_s));
    line_text(c->out, "version", KV_VERSION);
    line_u64(c->out, "pointer_size", 8 * sizeof(void *));
    counter_lines(c->out, &counters);
    usage_lines(c->out, &usage);
    kv_answer(c, "END");
    return true;
}
