/* Keys of any type: existence, names, time, copies, scans. */
#include "commands.h"
#include "block.h"
#include "db.h"
#include "evict.h"
#include "number.h"
#include "propagate.h"
#include "reply.h"
#include "scan.h"
#include "value.h"

static void del(struct cl_resp_client *c)
{
    int64_t n = 0;
    for (uint32_t i = 1; i < c->argc; i++) {
        struct cl_entry *e = cl_rdb_look(c, ARG(c, i));
        if (!e)
            continue;
        cl_rdb_delete(c, e);
        n++;
    }
    cl_reply_int(c, n);
}

void cl_cmd_del(struct cl_resp_client *c)
{
    del(c);
}

void cl_cmd_unlink(struct cl_resp_client *c)
{
    del(c);
}

void cl_cmd_exists(struct cl_resp_client *c)
{
    int64_t n = 0;
    for (uint32_t i = 1; i < c->argc; i++) {
        struct cl_entry *e = cl_rdb_look(c, ARG(c, i));
        *(e ? &c->r->stats.hits : &c->r->stats.misses) += 1;
        n += e != NULL;
    }
    cl_reply_int(c, n);
}

void cl_cmd_touch(struct cl_resp_client *c)
{
    int64_t n = 0;
    for (uint32_t i = 1; i < c->argc; i++)
        n += cl_rdb_read(c, ARG(c, i)) != NULL;
    cl_reply_int(c, n);
}

void cl_cmd_type(struct cl_resp_client *c)
{
    struct cl_entry *e = cl_rdb_look(c, ARG(c, 1));
    cl_reply_status(c, cl_rtype_names[e ? e->type : CL_R_NONE]);
}

/* Time. */

#define EXPIRE_NX 1u
#define EXPIRE_XX 2u
#define EXPIRE_GT 4u
#define EXPIRE_LT 8u

static bool conditions(struct cl_resp_client *c, uint32_t *out)
{
    static const char *const names[] = {"nx", "xx", "gt", "lt"};
    *out = 0;
    for (uint32_t i = 3; i < c->argc; i++) {
        uint32_t bit = 0;
        for (unsigned k = 0; k < 4; k++)
            if (ARG_IS(c, i, names[k]))
                bit = 1u << k;
        if (!bit) {
            cl_reply_error(c, "ERR Unsupported option %.*s", (int)cl_min(ARG(c, i).len, 128u), ARG(c, i).p);
            return false;
        }
        *out |= bit;
    }
    if ((*out & EXPIRE_NX) && (*out & ~EXPIRE_NX)) {
        cl_reply_error(c, "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if ((*out & EXPIRE_GT) && (*out & EXPIRE_LT)) {
        cl_reply_error(c, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

static bool holds(uint32_t conditions, int64_t has_ms, int64_t at_ms)
{
    if ((conditions & EXPIRE_NX) && has_ms)
        return false;
    if ((conditions & EXPIRE_XX) && !has_ms)
        return false;
    if ((conditions & EXPIRE_GT) && (!has_ms || at_ms <= has_ms))
        return false;
    return !((conditions & EXPIRE_LT) && has_ms && at_ms >= has_ms);
}

static void expire(struct cl_resp_client *c, const char *name, int64_t base_ms, int64_t unit_ms)
{
    uint32_t when;
    int64_t at_ms;
    if (!conditions(c, &when) || !cl_arg_int(c, 2, &at_ms))
        return;
    if (__builtin_mul_overflow(at_ms, unit_ms, &at_ms) || __builtin_add_overflow(at_ms, base_ms, &at_ms)) {
        cl_reply_error(c, "ERR invalid expire time in '%s' command", name);
        return;
    }
    struct cl_entry *e = cl_rdb_write(c, ARG(c, 1));
    if (!e || !holds(when, e->expires_ms, at_ms)) {
        cl_reply_int(c, 0);
        return;
    }
    if (at_ms <= c->r->now_ms && !c->r->applying) {
        cl_rdb_delete(c, e);
        CL_RPROP(c, cl_slice_of("DEL"), ARG(c, 1));
    } else {
        cl_entry_expire_at(c->r, cl_rdb_of(c), e, at_ms);
        cl_rdb_wrote(c, CL_RN_GENERIC, "expire", ARG(c, 1), 1);
        cl_rprop_say_int(c, "PEXPIREAT", ARG(c, 1), at_ms);
    }
    cl_reply_int(c, 1);
}

void cl_cmd_expire(struct cl_resp_client *c)
{
    expire(c, "expire", c->r->now_ms, 1000);
}

void cl_cmd_pexpire(struct cl_resp_client *c)
{
    expire(c, "pexpire", c->r->now_ms, 1);
}

void cl_cmd_expireat(struct cl_resp_client *c)
{
    expire(c, "expireat", 0, 1000);
}

void cl_cmd_pexpireat(struct cl_resp_client *c)
{
    expire(c, "pexpireat", 0, 1);
}

static void ttl(struct cl_resp_client *c, bool absolute, bool ms)
{
    struct cl_entry *e = cl_rdb_look(c, ARG(c, 1));
    if (!e || !e->expires_ms) {
        cl_reply_int(c, e ? -1 : -2);
        return;
    }
    int64_t left = absolute ? e->expires_ms : cl_max(e->expires_ms - c->r->now_ms, (int64_t)0);
    cl_reply_int(c, ms ? left : (left + 500) / 1000);
}

void cl_cmd_ttl(struct cl_resp_client *c)
{
    ttl(c, false, false);
}

void cl_cmd_pttl(struct cl_resp_client *c)
{
    ttl(c, false, true);
}

void cl_cmd_expiretime(struct cl_resp_client *c)
{
    ttl(c, true, false);
}

void cl_cmd_pexpiretime(struct cl_resp_client *c)
{
    ttl(c, true, true);
}

void cl_cmd_persist(struct cl_resp_client *c)
{
    struct cl_entry *e = cl_rdb_write(c, ARG(c, 1));
    bool had = e && e->expires_ms;
    if (had) {
        cl_entry_expire_at(c->r, cl_rdb_of(c), e, 0);
        cl_rdb_wrote(c, CL_RN_GENERIC, "persist", ARG(c, 1), 1);
    }
    cl_reply_int(c, had);
}

/* Names. */

void cl_cmd_keys(struct cl_resp_client *c)
{
    struct cl_rdb *db = cl_rdb_of(c);
    struct cl_rchunk *at = cl_reply_defer(c);
    int64_t n = 0;
    CL_RDICT_EACH(&db->keys, node)
    {
        const struct cl_entry *e = (const struct cl_entry *)node;
        if (cl_entry_expired(c->r, e) || !cl_glob(ARG(c, 1), cl_entry_key(e), false))
            continue;
        cl_reply_slice(c, cl_entry_key(e));
        n++;
    }
    cl_reply_deferred(c, at, '*', n);
}

static int64_t emit_key(struct cl_resp_client *c, const struct cl_rscan *scan, struct cl_rnode *n)
{
    struct cl_entry *e = (struct cl_entry *)n;
    if (cl_entry_expired(c->r, e)) {
        cl_rdb_expire(c->r, cl_rdb_of(c), e, true);
        return 0;
    }
    if ((scan->match && !cl_glob(scan->pattern, cl_entry_key(e), false)) || (scan->type >= 0 && scan->type != e->type))
        return 0;
    cl_reply_slice(c, cl_entry_key(e));
    return 1;
}

void cl_cmd_scan(struct cl_resp_client *c)
{
    struct cl_rscan scan;
    if (!cl_rscan_begin(c, 1, &scan) || !cl_rscan_options(c, 2, true, &scan))
        return;
    cl_rscan_reply(c, &scan, &cl_rdb_of(c)->keys, emit_key);
    cl_rdict_shrink(&c->r->mem, &cl_rdb_of(c)->keys);
}

void cl_cmd_randomkey(struct cl_resp_client *c)
{
    struct cl_rdb *db = cl_rdb_of(c);
    for (struct cl_entry *e; (e = (struct cl_entry *)cl_rdict_random(&db->keys, cl_resp_random, c->r));) {
        if (!cl_entry_expired(c->r, e)) {
            cl_reply_slice(c, cl_entry_key(e));
            return;
        }
        cl_rdb_expire(c->r, db, e, false);
    }
    cl_reply_null(c);
}

void cl_cmd_dbsize(struct cl_resp_client *c)
{
    cl_reply_int(c, cl_rdb_of(c)->keys.count);
}

/* Whoever blocks on the key may be served from what it has now. */
static void may_serve(struct cl_resp_client *c, struct cl_rdb *db, struct cl_slice key, const struct cl_entry *e)
{
    uint32_t was = c->db;
    if (e->type != CL_R_LIST && e->type != CL_R_ZSET && e->type != CL_R_STREAM)
        return;
    c->db = db->number;
    cl_rdb_ready(c, key);
    c->db = was;
}

/* Give the value of `e` in `from` to another name, in another database perhaps. */
static void move_value(struct cl_resp_client *c, struct cl_rdb *from, struct cl_entry *e, struct cl_rdb *to,
                       struct cl_slice key)
{
    struct cl_entry *fresh = cl_rdb_add_in(c->r, to, key, (enum cl_rtype)e->type);
    int64_t expires_ms = e->expires_ms;
    fresh->how = e->how;
    fresh->value = e->value;
    fresh->used_at = e->used_at;
    e->type = CL_R_STRING;
    e->how = CL_R_INT; /* nothing is left to be freed */
    cl_rdb_remove(c->r, from, e, false);
    if (expires_ms)
        cl_entry_expire_at(c->r, to, fresh, expires_ms);
    may_serve(c, to, key, fresh);
}

static void rename_key(struct cl_resp_client *c, bool nx)
{
    struct cl_slice from = ARG(c, 1), to = ARG(c, 2);
    bool same = cl_slice_same(from, to);
    struct cl_rdb *db = cl_rdb_of(c);
    struct cl_entry *e = cl_rdb_write(c, from), *other;
    if (!e) {
        cl_reply_error(c, "ERR no such key");
        return;
    }
    if (same) {
        if (nx)
            cl_reply_int(c, 0);
        else
            cl_reply_ok(c);
        return;
    }
    if ((other = cl_rdb_write(c, to))) {
        if (nx) {
            cl_reply_int(c, 0);
            return;
        }
        cl_rdb_remove(c->r, db, other, false);
    }
    move_value(c, db, e, db, to);
    cl_rdb_changed(c, to);
    cl_rdb_wrote(c, CL_RN_GENERIC, "rename_from", from, 1);
    cl_rdb_notify(c->r, CL_RN_GENERIC, "rename_to", to, c->db);
    if (nx)
        cl_reply_int(c, 1);
    else
        cl_reply_ok(c);
}

void cl_cmd_rename(struct cl_resp_client *c)
{
    rename_key(c, false);
}

void cl_cmd_renamenx(struct cl_resp_client *c)
{
    rename_key(c, true);
}

static bool db_number(struct cl_resp_client *c, uint32_t n, uint32_t *out)
{
    int64_t v;
    if (!cl_rnum_int(ARG(c, n), &v)) {
        cl_reply_not_integer(c);
        return false;
    }
    if (v < 0 || v >= c->r->config.databases) {
        cl_reply_error(c, "ERR DB index is out of range");
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

/* The key in another database, expired ones removed. */
static struct cl_entry *look_in(struct cl_resp_client *c, uint32_t db, struct cl_slice key)
{
    uint32_t was = c->db;
    c->db = db;
    struct cl_entry *e = cl_rdb_look(c, key);
    c->db = was;
    return e;
}

void cl_cmd_move(struct cl_resp_client *c)
{
    uint32_t to, from = c->db;
    if (!db_number(c, 2, &to))
        return;
    if (to == from) {
        cl_reply_error(c, "ERR source and destination objects are the same");
        return;
    }
    struct cl_entry *e = cl_rdb_write(c, ARG(c, 1));
    if (!e || look_in(c, to, ARG(c, 1))) {
        cl_reply_int(c, 0);
        return;
    }
    move_value(c, cl_rdb_of(c), e, &c->r->db[to], ARG(c, 1));
    cl_rdb_changed_in(c->r, &c->r->db[to], ARG(c, 1));
    cl_rdb_wrote(c, CL_RN_GENERIC, "move_from", ARG(c, 1), 1);
    cl_rdb_notify(c->r, CL_RN_GENERIC, "move_to", ARG(c, 1), to);
    cl_reply_int(c, 1);
}

void cl_cmd_copy(struct cl_resp_client *c)
{
    uint32_t to = c->db;
    bool replace = false;
    for (uint32_t i = 3; i < c->argc; i++) {
        if (ARG_IS(c, i, "replace"))
            replace = true;
        else if (ARG_IS(c, i, "db") && i + 1 < c->argc) {
            if (!db_number(c, ++i, &to))
                return;
        } else {
            cl_reply_syntax(c);
            return;
        }
    }
    if (to == c->db && cl_slice_same(ARG(c, 1), ARG(c, 2))) {
        cl_reply_error(c, "ERR source and destination objects are the same");
        return;
    }
    struct cl_entry *e = cl_rdb_read(c, ARG(c, 1)), *other;
    if (e && !cl_evict_or_refuse(c, cl_rvalue_bytes(c->r, e, 0)))
        return;
    e = cl_rdb_look(c, ARG(c, 1));
    other = e ? look_in(c, to, ARG(c, 2)) : NULL;
    if (!e || (other && !replace)) {
        cl_reply_int(c, 0);
        return;
    }
    if (other)
        cl_rdb_remove(c->r, &c->r->db[to], other, false);
    other = cl_rdb_add_in(c->r, &c->r->db[to], ARG(c, 2), (enum cl_rtype)e->type);
    cl_rvalue_copy(c->r, other, e);
    if (e->expires_ms)
        cl_entry_expire_at(c->r, &c->r->db[to], other, e->expires_ms);
    may_serve(c, &c->r->db[to], ARG(c, 2), other);
    c->r->dirty++;
    cl_rdb_changed_in(c->r, &c->r->db[to], ARG(c, 2));
    cl_rdb_notify(c->r, CL_RN_GENERIC, "copy_to", ARG(c, 2), to);
    cl_reply_int(c, 1);
}

/* Whole databases. */

static bool flush_options(struct cl_resp_client *c)
{
    if (c->argc == 1 || (c->argc == 2 && (ARG_IS(c, 1, "sync") || ARG_IS(c, 1, "async"))))
        return true;
    cl_reply_syntax(c);
    return false;
}

static void flush(struct cl_resp_client *c, struct cl_rdb *db)
{
    cl_rdb_changed_all(c->r, db, NULL);
    c->r->dirty += db->keys.count;
    cl_rdb_flush(c->r, db);
}

void cl_cmd_flushdb(struct cl_resp_client *c)
{
    if (!flush_options(c))
        return;
    flush(c, cl_rdb_of(c));
    cl_reply_ok(c);
}

void cl_cmd_flushall(struct cl_resp_client *c)
{
    if (!flush_options(c))
        return;
    for (uint32_t i = 0; i < CL_RESP_DATABASES; i++)
        flush(c, &c->r->db[i]);
    cl_reply_ok(c);
}

/* Keys that somebody blocks on, in a database that has got others. */
static void serve_all(struct cl_resp_client *c, struct cl_rdb *db)
{
    CL_RDICT_EACH(&db->blocked.by_name, n)
    {
        struct cl_slice key = cl_rtopic_name((struct cl_rtopic *)n);
        struct cl_entry *e = cl_rdb_peek(db, key);
        if (e)
            may_serve(c, db, key, e);
    }
}

void cl_cmd_swapdb(struct cl_resp_client *c)
{
    int64_t n[2];
    for (uint32_t i = 0; i < 2; i++)
        if (!cl_rnum_int(ARG(c, i + 1), &n[i])) {
            cl_reply_error(c, "ERR invalid %s DB index", i ? "second" : "first");
            return;
        }
    if (n[0] < 0 || n[1] < 0 || n[0] >= c->r->config.databases || n[1] >= c->r->config.databases) {
        cl_reply_error(c, "ERR DB index is out of range");
        return;
    }
    struct cl_rdb *a = &c->r->db[n[0]], *b = &c->r->db[n[1]], was = *a;
    c->r->dirty++;
    cl_reply_ok(c);
    if (a == b)
        return;
    cl_rdb_changed_all(c->r, a, b);
    cl_rdb_changed_all(c->r, b, a);
    a->keys = b->keys;
    a->heap = b->heap;
    a->heap_n = b->heap_n;
    a->heap_room = b->heap_room;
    a->rewritten = b->rewritten;
    a->rewriting = b->rewriting;
    b->keys = was.keys;
    b->heap = was.heap;
    b->heap_n = was.heap_n;
    b->heap_room = was.heap_room;
    b->rewritten = was.rewritten;
    b->rewriting = was.rewriting;
    serve_all(c, a);
    serve_all(c, b);
}

/* OBJECT and MEMORY USAGE. */

static struct cl_entry *object(struct cl_resp_client *c)
{
    struct cl_entry *e = cl_rdb_look(c, ARG(c, 2));
    if (!e)
        cl_reply_null(c);
    return e;
}

void cl_cmd_object_encoding(struct cl_resp_client *c)
{
    struct cl_entry *e = object(c);
    if (e)
        cl_reply_text(c, cl_rvalue_encoding(c->r, e));
}

void cl_cmd_object_refcount(struct cl_resp_client *c)
{
    if (object(c))
        cl_reply_int(c, 1);
}

void cl_cmd_object_idletime(struct cl_resp_client *c)
{
    struct cl_entry *e = object(c);
    if (e && (c->r->config.policy & 1))
        cl_reply_error(c, "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when "
                          "switching between policies at runtime LRU and LFU data will take some time to adjust.");
    else if (e)
        cl_reply_int(c, cl_entry_idle_s(c->r, e));
}

void cl_cmd_object_freq(struct cl_resp_client *c)
{
    struct cl_entry *e = object(c);
    if (e && !(c->r->config.policy & 1))
        cl_reply_error(c, "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that "
                          "when switching between policies at runtime LRU and LFU data will take some time to adjust.");
    else if (e)
        cl_reply_int(c, cl_entry_frequency(c->r, e));
}

void cl_cmd_memory_usage(struct cl_resp_client *c)
{
    int64_t samples = 5;
    for (uint32_t i = 3; i < c->argc; i++) {
        if (!ARG_IS(c, i, "samples") || i + 1 >= c->argc) {
            cl_reply_syntax(c);
            return;
        }
        if (!cl_arg_int(c, ++i, &samples))
            return;
        if (samples < 0) {
            cl_reply_syntax(c);
            return;
        }
    }
    struct cl_entry *e = cl_rdb_look(c, ARG(c, 2));
    if (e)
        cl_reply_int(c, (int64_t)cl_rvalue_bytes(c->r, e, (uint64_t)samples));
    else
        cl_reply_null(c);
}
