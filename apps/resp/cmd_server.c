/* Commands about the server: INFO, CONFIG, TIME, DEBUG, MONITOR, MEMORY, SLOWLOG and what else clients ask for. */
#include "bytes.h"
#include "call.h"
#include "commands.h"
#include "config.h"
#include "db.h"
#include "durable.h"
#include "evict.h"
#include "number.h"
#include "reply.h"
#include "value.h"

#include <stdarg.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* INFO. */

struct text {
    struct cl_resp *r;
    struct cl_bytes *bytes;
};

static void say(struct text *t, const char *fmt, ...) CL_PRINTF(2, 3);
static void say(struct text *t, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    t->bytes = cl_bytes_append(&t->r->mem, t->bytes, line, (uint64_t)cl_min(n, (int)sizeof line - 1));
}

#define U(v) ((unsigned long long)(v))
#define MANUAL_MOST_MS (INT64_MAX / 4) /* of a clock that tests move: times behind it can be counted */

static void info_server(struct text *t)
{
    int64_t up = (t->r->now_ms - t->r->started_ms) / 1000;
    say(t, "# Server\r\nredis_version:%s\r\nserver_name:corelane\r\nredis_mode:standalone\r\n", CL_RESP_VERSION);
    say(t, "arch_bits:64\r\nprocess_id:%d\r\nuptime_in_seconds:%lld\r\nuptime_in_days:%lld\r\nhz:%lld\r\n", getpid(),
        (long long)up, (long long)up / 86400, (long long)t->r->config.hz);
}

static void info_clients(struct text *t)
{
    say(t, "# Clients\r\nconnected_clients:%u\r\nmaxclients:%lld\r\nblocked_clients:%u\r\n", t->r->n_clients,
        (long long)t->r->config.maxclients, t->r->n_blocked + t->r->n_postponed);
}

static void info_memory(struct text *t)
{
    const struct cl_rmem *m = &t->r->mem;
    say(t, "# Memory\r\nused_memory:%llu\r\nused_memory_peak:%llu\r\n", U(m->used), U(m->peak));
    say(t, "used_memory_slabs:%llu\r\nused_memory_large:%llu\r\n", U(m->spans), U(m->large));
    say(t, "maxmemory:%llu\r\nmaxmemory_limit:%llu\r\nmaxmemory_policy:%s\r\n", U(t->r->config.maxmemory),
        U(cl_resp_limit(t->r)), cl_rconfig_policy(t->r));
    say(t, "lazyfree_pending_objects:0\r\nlazyfreed_objects:0\r\n"); /* what is removed is free at once */
}

static void info_persistence(struct text *t)
{
    const struct cl_rdurable *d = &t->r->durable;
    say(t, "# Persistence\r\nloading:0\r\nrdb_changes_since_last_save:%llu\r\naof_enabled:%d\r\n", U(t->r->dirty),
        cl_rdurable_logs(t->r));
    say(t, "aof_rewrite_in_progress:%d\r\naof_rewrite_scheduled:%d\r\naof_last_write_status:%s\r\n",
        d->rewriting || d->finishing, d->asked, d->error ? "err" : "ok");
    if (!cl_rdurable_logs(t->r))
        return;
    say(t, "aof_current_size:%llu\r\naof_base_size:%llu\r\naof_rewrites:%llu\r\n", U(d->bytes), U(d->base_bytes),
        U(d->rewrites));
    say(t, "aof_buffer_length:%llu\r\naof_room:%llu\r\naof_refused_writes:%llu\r\naof_unanswered_clients:%llu\r\n",
        U(t->r->propagation.open.len), U(d->error ? 0 : d->room), U(d->refused), U(d->unanswered));
}

static void info_stats(struct text *t)
{
    const struct cl_rstats *s = &t->r->stats;
    say(t, "# Stats\r\ntotal_connections_received:%llu\r\ntotal_commands_processed:%llu\r\n", U(s->connections),
        U(s->commands));
    say(t, "total_net_input_bytes:%llu\r\ntotal_net_output_bytes:%llu\r\nrejected_connections:%llu\r\n", U(s->bytes_in),
        U(s->bytes_out), U(s->rejected));
    say(t, "expired_keys:%llu\r\nevicted_keys:%llu\r\nkeyspace_hits:%llu\r\nkeyspace_misses:%llu\r\n", U(s->expired),
        U(s->evicted), U(s->hits), U(s->misses));
    say(t, "pubsub_channels:%u\r\npubsub_patterns:%u\r\ntotal_error_replies:%llu\r\n", t->r->channels.by_name.count,
        t->r->patterns.by_name.count, U(s->errors));
    say(t, "client_output_buffer_limit_disconnections:%llu\r\n", U(s->pubsub_dropped));
}

static void info_replication(struct text *t)
{
    const struct cl_relsewhere *e = &t->r->elsewhere;
    say(t, "# Replication\r\nrole:%s\r\n", e->error[0] ? "slave" : "master");
    if (e->error[0])
        say(t, "master_host:%s\r\nmaster_port:%u\r\nmaster_link_status:%s\r\n", e->host, e->port,
            e->port ? "up" : "down");
    /* Nothing is sent by Redis' protocol of replication. */
    say(t, "connected_slaves:%u\r\nmaster_repl_offset:0\r\n", t->r->durable.replicas);
}

static void info_cpu(struct text *t)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    say(t, "# CPU\r\nused_cpu_sys:%ld.%06ld\r\nused_cpu_user:%ld.%06ld\r\n", use.ru_stime.tv_sec, use.ru_stime.tv_usec,
        use.ru_utime.tv_sec, use.ru_utime.tv_usec);
}

static void say_commandstat(struct text *t, const struct cl_rcmd *cmd)
{
    const struct cl_rcmd_stats *s = &t->r->command_stats[cl_rcall_number(t->r, cmd)];
    char name[64];
    if (!s->calls && !s->rejected)
        return;
    cl_rcall_name(t->r, cmd, name);
    say(t, "cmdstat_%s:calls=%llu,rejected_calls=%llu,failed_calls=%llu\r\n", name, U(s->calls), U(s->rejected),
        U(s->failed));
}

static void info_commandstats(struct text *t)
{
    say(t, "# Commandstats\r\n");
    for (uint32_t i = 0; i < t->r->n_commands; i++) {
        say_commandstat(t, &t->r->commands[i]);
        for (const struct cl_rcmd *sub = t->r->commands[i].subs; sub && sub->name; sub++)
            say_commandstat(t, sub);
    }
}

static void info_cluster(struct text *t)
{
    say(t, "# Cluster\r\ncluster_enabled:0\r\n");
}

static void info_keyspace(struct text *t)
{
    say(t, "# Keyspace\r\n");
    for (uint32_t i = 0; i < CL_RESP_DATABASES; i++) {
        const struct cl_rdb *db = &t->r->db[i];
        int64_t sum = 0;
        for (uint32_t k = 0; k < cl_min(db->heap_n, 64u); k++)
            sum += cl_max(db->heap[k]->expires_ms - t->r->now_ms, (int64_t)0);
        if (db->keys.count)
            say(t, "db%u:keys=%u,expires=%u,avg_ttl=%lld\r\n", i, db->keys.count, db->heap_n,
                (long long)(db->heap_n ? sum / cl_min(db->heap_n, 64u) : 0));
    }
}

static const struct {
    const char *name;
    void (*fn)(struct text *t);
    bool by_default;
} sections[] = {{"server", info_server, true},   {"clients", info_clients, true},
                {"memory", info_memory, true},   {"persistence", info_persistence, true},
                {"stats", info_stats, true},     {"replication", info_replication, true},
                {"cpu", info_cpu, true},         {"commandstats", info_commandstats, false},
                {"cluster", info_cluster, true}, {"keyspace", info_keyspace, true}};

static bool wanted(struct cl_resp_client *c, unsigned section)
{
    bool by_default = sections[section].by_default;
    if (c->argc == 1)
        return by_default;
    for (uint32_t i = 1; i < c->argc; i++)
        if (ARG_IS(c, i, sections[section].name) || ARG_IS(c, i, "all") || ARG_IS(c, i, "everything") ||
            (by_default && ARG_IS(c, i, "default")))
            return true;
    return false;
}

void cl_cmd_info(struct cl_resp_client *c)
{
    struct text t = {c->r, cl_bytes_room(&c->r->mem, 4000)};
    for (unsigned i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        if (!wanted(c, i))
            continue;
        if (t.bytes->len)
            say(&t, "\r\n");
        sections[i].fn(&t);
    }
    cl_reply_verbatim(c, (const char *)t.bytes->data, t.bytes->len, "txt");
    cl_bytes_free(&c->r->mem, t.bytes);
}

/* CONFIG. */

void cl_cmd_config_get(struct cl_resp_client *c)
{
    struct cl_rchunk *at = cl_reply_defer(c);
    cl_reply_deferred(c, at, '%', cl_rconfig_show(c, c->argv + 2, c->argc - 2));
}

static bool named_before(const struct cl_resp_client *c, uint32_t n)
{
    for (uint32_t i = 2; i < n; i += 2)
        if (ARG(c, i).len == ARG(c, n).len &&
            strncasecmp((const char *)ARG(c, i).p, (const char *)ARG(c, n).p, ARG(c, n).len) == 0)
            return true;
    return false;
}

void cl_cmd_config_set(struct cl_resp_client *c)
{
    struct cl_rconfig was = c->r->config;
    if (c->argc % 2) {
        cl_reply_syntax(c);
        return;
    }
    for (uint32_t i = 2; i < c->argc; i += 2) {
        const char *why = NULL;
        struct cl_slice name = ARG(c, i);
        if (named_before(c, i))
            why = "duplicate parameter";
        else if (cl_rconfig_set(c->r, name, ARG(c, i + 1), &why))
            continue;
        c->r->config = was;
        if (!why)
            cl_reply_error(c, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                           (int)cl_min(name.len, 128u), name.p);
        else
            cl_reply_error(c, "ERR CONFIG SET failed (possibly related to argument '%.*s') - %s",
                           (int)cl_min(name.len, 128u), name.p, why);
        return;
    }
    (void)cl_evict_for(c->r, 0);
    cl_reply_ok(c);
}

void cl_cmd_config_resetstat(struct cl_resp_client *c)
{
    c->r->stats = (struct cl_rstats){0};
    memset(c->r->command_stats, 0, c->r->n_stats * sizeof *c->r->command_stats);
    c->r->mem.peak = c->r->mem.used;
    cl_reply_ok(c);
}

void cl_cmd_config_rewrite(struct cl_resp_client *c)
{
    cl_reply_error(c, "ERR The server is running without a config file");
}

/* Others. */

void cl_cmd_time(struct cl_resp_client *c)
{
    cl_reply_array(c, 2);
    cl_reply_bulk_int(c, c->r->now_ms / 1000);
    cl_reply_bulk_int(c, c->r->now_ms % 1000 * 1000);
}

void cl_cmd_lastsave(struct cl_resp_client *c)
{
    cl_reply_int(c, (c->r->durable.rewritten_ms ? c->r->durable.rewritten_ms : c->r->started_ms) / 1000);
}

void cl_cmd_bgrewriteaof(struct cl_resp_client *c)
{
    struct cl_rdurable *d = &c->r->durable;
    if (d->confirms)
        cl_reply_error(c, "ERR the group's log is not rewritten but compacted, by itself");
    else if (!d->on)
        cl_reply_error(c, "ERR there is no log to rewrite: start the server with --option log=PATH");
    else if (d->error)
        cl_reply_error(c, "MISCONF Errors writing to the AOF file: %s", strerror(d->error));
    else if (d->rewriting || d->finishing || d->asked)
        cl_reply_error(c, "ERR Background append only file rewriting already in progress");
    else {
        d->asked = true;
        cl_reply_status(c, "Background append only file rewriting started");
    }
}

/* What it is answered waits, as all replies do, until what was written before is durable. */
void cl_cmd_waitaof(struct cl_resp_client *c)
{
    int64_t local, replicas, timeout;
    if (!cl_arg_in(c, 1, 0, 1, &local, "ERR value is out of range, must be between 0 and 1") ||
        !cl_arg_in(c, 2, 0, INT64_MAX, &replicas, "ERR value is out of range, must be positive") ||
        !cl_arg_in(c, 3, 0, INT64_MAX, &timeout, "ERR timeout is negative"))
        return;
    if (local && !cl_rdurable_logs(c->r)) {
        cl_reply_error(c, "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
        return;
    }
    cl_reply_array(c, 2);
    cl_reply_int(c, cl_rdurable_logs(c->r) && !c->r->durable.error);
    cl_reply_int(c, c->r->durable.replicas);
}

void cl_cmd_role(struct cl_resp_client *c)
{
    const struct cl_relsewhere *e = &c->r->elsewhere;
    if (e->error[0]) {
        cl_reply_array(c, 5);
        cl_reply_text(c, "slave");
        cl_reply_text(c, e->host);
        cl_reply_int(c, e->port);
        cl_reply_text(c, e->port ? "connected" : "connect");
        cl_reply_int(c, 0);
        return;
    }
    cl_reply_array(c, 3);
    cl_reply_text(c, "master");
    cl_reply_int(c, 0);
    cl_reply_array(c, 0);
}

void cl_cmd_wait(struct cl_resp_client *c)
{
    int64_t n, timeout;
    if (!cl_arg_int(c, 1, &n) ||
        !cl_arg_in(c, 2, INT64_MIN, INT64_MAX, &timeout, "ERR timeout is not an integer or out of range"))
        return;
    if (timeout < 0) {
        cl_reply_error(c, "ERR timeout is negative");
        return;
    }
    cl_reply_int(c, c->r->durable.replicas); /* those that have what was written before, once this reply has gone */
}

void cl_cmd_monitor(struct cl_resp_client *c)
{
    if (!(c->flags & CL_RC_MONITOR))
        c->r->n_monitors++;
    c->flags |= CL_RC_MONITOR;
    cl_reply_ok(c);
}

void cl_cmd_slowlog_get(struct cl_resp_client *c)
{
    int64_t count;
    if (c->argc > 3)
        cl_reply_wrong_part(c);
    else if (c->argc == 2 || cl_arg_in(c, 2, -1, INT64_MAX, &count, "ERR count should be greater than or equal to -1"))
        cl_reply_array(c, 0);
}

void cl_cmd_slowlog_len(struct cl_resp_client *c)
{
    cl_reply_int(c, 0);
}

void cl_cmd_slowlog_reset(struct cl_resp_client *c)
{
    cl_reply_ok(c);
}

void cl_cmd_function_flush(struct cl_resp_client *c)
{
    if (c->argc > 3 || (c->argc == 3 && !ARG_IS(c, 2, "sync") && !ARG_IS(c, 2, "async")))
        cl_reply_error(c, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    else
        cl_reply_ok(c);
}

void cl_cmd_acl_whoami(struct cl_resp_client *c)
{
    cl_reply_text(c, "default");
}

void cl_cmd_memory_doctor(struct cl_resp_client *c)
{
    static const char text[] = "Nothing to report: memory is bounded, and INFO memory says how much is in use.";
    cl_reply_verbatim(c, text, sizeof text - 1, "txt");
}

void cl_cmd_memory_purge(struct cl_resp_client *c)
{
    cl_reply_ok(c);
}

/* DEBUG: for tests. */

static void debug_object(struct cl_resp_client *c)
{
    struct cl_entry *e = c->argc == 3 ? cl_rdb_look(c, ARG(c, 2)) : NULL;
    char text[256];
    if (!e) {
        cl_reply_error(c, "ERR no such key");
        return;
    }
    snprintf(text, sizeof text, "Value at:%p refcount:1 encoding:%s serializedlength:%llu lru:%u lru_seconds_idle:%u",
             e->value, cl_rvalue_encoding(c->r, e), U(cl_rvalue_bytes(c->r, e, 0)), e->used_at & 0xffffff,
             cl_entry_idle_s(c->r, e));
    cl_reply_status(c, text);
}

/* So long that its microseconds are beyond 64 bits is not at all, as in Redis. */
static void debug_sleep(struct cl_resp_client *c)
{
    double s;
    if (!cl_arg_double(c, 2, &s))
        return;
    int64_t us = s > 0 && s * 1e6 < 0x1p63 ? (int64_t)(s * 1e6) : 0;
    if (c->r->durable.confirms || c->r->elsewhere.error[0]) {
        cl_reply_error(c, "ERR DEBUG SLEEP would stop a node of the group, and have the others elect a leader");
        return;
    }
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    if (c->r->manual_clock)
        c->r->moved_ms = cl_min(c->r->moved_ms + us / 1000, MANUAL_MOST_MS);
    else
        nanosleep(&t, NULL); /* all clients wait, as they do with Redis: that is its use */
    cl_reply_ok(c);
}

static void debug_jmap(struct cl_resp_client *c)
{
    cl_reply_map(c, 3);
    cl_reply_text(c, "used");
    cl_reply_int(c, (int64_t)c->r->mem.used);
    cl_reply_text(c, "slabs");
    cl_reply_int(c, (int64_t)c->r->mem.spans);
    cl_reply_text(c, "large");
    cl_reply_int(c, (int64_t)c->r->mem.large);
}

/* What stands before a reply and says something of it. */
static void debug_attribute(struct cl_resp_client *c)
{
    cl_reply_line(c, "|1");
    cl_reply_text(c, "key-popularity");
    cl_reply_array(c, 2);
    cl_reply_text(c, "key:123");
    cl_reply_int(c, 90);
}

/* One of each type of RESP3. */
static void debug_protocol(struct cl_resp_client *c)
{
    if (ARG_IS(c, 2, "string"))
        cl_reply_text(c, "Hello World");
    else if (ARG_IS(c, 2, "integer"))
        cl_reply_int(c, 12345);
    else if (ARG_IS(c, 2, "double"))
        cl_reply_double(c, 3.141);
    else if (ARG_IS(c, 2, "null"))
        cl_reply_null(c);
    else if (ARG_IS(c, 2, "true"))
        cl_reply_bool(c, true);
    else if (ARG_IS(c, 2, "false"))
        cl_reply_bool(c, false);
    else if (ARG_IS(c, 2, "bignum"))
        cl_reply_big(c, "1234567999999999999999999999999999999");
    else if (ARG_IS(c, 2, "attrib")) {
        if (c->protocol == 3)
            debug_attribute(c);
        cl_reply_text(c, "Some real reply following the attribute");
    } else if (ARG_IS(c, 2, "push")) {
        if (c->protocol == 2) {
            cl_reply_error(c, "ERR RESP2 is not supported by this command");
            return;
        }
        cl_reply_push(c, 2);
        cl_reply_text(c, "server-cpu-usage");
        cl_reply_int(c, 42);
        cl_reply_text(c, "Some real reply following the push reply");
    } else if (ARG_IS(c, 2, "verbatim"))
        cl_reply_verbatim(c, "This is a verbatim\nstring", 25, "txt");
    else if (ARG_IS(c, 2, "array") || ARG_IS(c, 2, "set")) {
        if (ARG_IS(c, 2, "array"))
            cl_reply_array(c, 3);
        else
            cl_reply_set(c, 3);
        for (int i = 0; i < 3; i++)
            cl_reply_int(c, i);
    } else if (ARG_IS(c, 2, "map")) {
        cl_reply_map(c, 3);
        for (int i = 0; i < 3; i++) {
            cl_reply_int(c, i);
            cl_reply_bool(c, i == 1);
        }
    } else
        cl_reply_error(c, "ERR Wrong protocol type name. Please use one of the following: "
                          "string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false");
}

static void debug_help(struct cl_resp_client *c)
{
    static const char *const lines[] = {"DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                                        "JMAP",
                                        "    Bytes of values, and of the slabs that they lie in.",
                                        "OBJECT <key>",
                                        "    How a value is kept.",
                                        "PROTOCOL <type>",
                                        "    A reply of that type.",
                                        "QUICKLIST-PACKED-THRESHOLD <size>",
                                        "    Accepted: lists have no nodes of another kind for large elements.",
                                        "SET-ACTIVE-EXPIRE <0|1>",
                                        "    Whether keys that expire are removed before they are asked for.",
                                        "SLEEP <seconds>",
                                        "    Do nothing; all clients wait.",
                                        "HELP",
                                        "    Print this help."};
    cl_reply_array(c, sizeof lines / sizeof lines[0]);
    for (unsigned i = 0; i < sizeof lines / sizeof lines[0]; i++)
        cl_reply_status(c, lines[i]);
}

void cl_cmd_debug(struct cl_resp_client *c)
{
    if (ARG_IS(c, 1, "sleep") && c->argc == 3)
        debug_sleep(c);
    else if (ARG_IS(c, 1, "set-active-expire") && c->argc == 3) {
        c->r->active_expire = ARG_IS(c, 2, "1");
        cl_reply_ok(c);
    } else if (ARG_IS(c, 1, "jmap") && c->argc == 2)
        debug_jmap(c);
    else if (ARG_IS(c, 1, "object"))
        debug_object(c);
    else if (ARG_IS(c, 1, "protocol") && c->argc == 3)
        debug_protocol(c);
    else if (ARG_IS(c, 1, "quicklist-packed-threshold") && c->argc == 3)
        cl_reply_ok(c);
    else if (ARG_IS(c, 1, "help") && c->argc == 2)
        debug_help(c);
    else
        cl_reply_wrong_part(c);
}
