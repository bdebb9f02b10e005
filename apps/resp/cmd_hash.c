/* Hashes. */
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "number.h"
#include "pick.h"
#include "propagate.h"
#include "reply.h"
#include "scan.h"
#include "set.h"

#include <math.h>

static struct cl_entry *hash_for_write(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_entry *e;
    if (!cl_rdb_write_as(c, key, CL_R_HASH, &e))
        return NULL;
    if (!e) {
        e = cl_rdb_add(c, key, CL_R_HASH);
        e->hash = cl_rhash_new(&c->r->mem);
    }
    return e;
}

/* Whether pairs follow the key; else that was answered. */
static bool pairs(struct cl_resp_client *c, const char *name)
{
    if (c->argc % 2 == 0)
        return true;
    cl_reply_error(c, "ERR wrong number of arguments for '%s' command", name);
    return false;
}

/* Returns how many fields are new; -1: answered. */
static int64_t set_all(struct cl_resp_client *c)
{
    int64_t fresh = 0;
    struct cl_entry *e = hash_for_write(c, ARG(c, 1));
    if (!e)
        return -1;
    for (uint32_t i = 2; i < c->argc; i += 2)
        fresh += cl_rhash_set(c->r, e->hash, ARG(c, i), ARG(c, i + 1));
    cl_rdb_wrote(c, CL_RN_HASH, "hset", ARG(c, 1), c->argc / 2 - 1);
    return fresh;
}

void cl_cmd_hset(struct cl_resp_client *c)
{
    int64_t fresh = pairs(c, "hset") ? set_all(c) : -1;
    if (fresh >= 0)
        cl_reply_int(c, fresh);
}

void cl_cmd_hmset(struct cl_resp_client *c)
{
    if (pairs(c, "hmset") && set_all(c) >= 0)
        cl_reply_ok(c);
}

void cl_cmd_hsetnx(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_HASH, &e))
        return;
    if (e && cl_rhash_find(c->r, e->hash, ARG(c, 2))) {
        cl_reply_int(c, 0);
        return;
    }
    e = hash_for_write(c, ARG(c, 1));
    cl_rhash_set(c->r, e->hash, ARG(c, 2), ARG(c, 3));
    cl_rdb_wrote(c, CL_RN_HASH, "hset", ARG(c, 1), 1);
    cl_reply_int(c, 1);
}

static void reply_field(struct cl_resp_client *c, const struct cl_entry *e, struct cl_slice field)
{
    struct cl_rnode *n = e ? cl_rhash_find(c->r, e->hash, field) : NULL;
    if (n)
        cl_reply_slice(c, cl_rfield_value(n));
    else
        cl_reply_null(c);
}

void cl_cmd_hget(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        reply_field(c, e, ARG(c, 2));
}

void cl_cmd_hmget(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        return;
    cl_reply_array(c, c->argc - 2);
    for (uint32_t i = 2; i < c->argc; i++)
        reply_field(c, e, ARG(c, i));
}

void cl_cmd_hdel(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t n = 0;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_HASH, &e))
        return;
    for (uint32_t i = 2; e && i < c->argc; i++)
        n += cl_rhash_remove(c->r, e->hash, ARG(c, i));
    if (n) {
        cl_rdb_wrote(c, CL_RN_HASH, "hdel", ARG(c, 1), (uint64_t)n);
        if (!e->hash->dict.count)
            cl_rdb_delete_empty(c, e);
    }
    cl_reply_int(c, n);
}

void cl_cmd_hexists(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        cl_reply_int(c, e && cl_rhash_find(c->r, e->hash, ARG(c, 2)));
}

void cl_cmd_hlen(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        cl_reply_int(c, e ? e->hash->dict.count : 0);
}

void cl_cmd_hstrlen(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        return;
    struct cl_rnode *n = e ? cl_rhash_find(c->r, e->hash, ARG(c, 2)) : NULL;
    cl_reply_int(c, n ? cl_rfield_value(n).len : 0);
}

static void all(struct cl_resp_client *c, bool fields, bool values)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        return;
    int64_t n = e ? e->hash->dict.count : 0;
    if (fields && values)
        cl_reply_map(c, n);
    else
        cl_reply_array(c, n);
    if (!e)
        return;
    CL_RDICT_EACH(&e->hash->dict, node)
    {
        if (fields)
            cl_reply_slice(c, cl_rfield_key(node));
        if (values)
            cl_reply_slice(c, cl_rfield_value(node));
    }
}

void cl_cmd_hgetall(struct cl_resp_client *c)
{
    all(c, true, true);
}

void cl_cmd_hkeys(struct cl_resp_client *c)
{
    all(c, true, false);
}

void cl_cmd_hvals(struct cl_resp_client *c)
{
    all(c, false, true);
}

void cl_cmd_hincrby(struct cl_resp_client *c)
{
    int64_t by, v = 0;
    char text[CL_RNUM_ROOM];
    struct cl_entry *e;
    if (!cl_arg_int(c, 3, &by) || !(e = hash_for_write(c, ARG(c, 1))))
        return;
    struct cl_rnode *n = cl_rhash_find(c->r, e->hash, ARG(c, 2));
    if (n && !cl_rnum_int(cl_rfield_value(n), &v)) {
        cl_reply_error(c, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(v, by, &v)) {
        cl_reply_error(c, "ERR increment or decrement would overflow");
        return;
    }
    cl_rhash_set(c->r, e->hash, ARG(c, 2), (struct cl_slice){(uint8_t *)text, cl_rnum_format(text, v)});
    cl_rdb_wrote(c, CL_RN_HASH, "hincrby", ARG(c, 1), 1);
    cl_reply_int(c, v);
}

void cl_cmd_hincrbyfloat(struct cl_resp_client *c)
{
    long double by, v = 0;
    char text[CL_RNUM_LONG_ROOM];
    struct cl_entry *e;
    if (!cl_rnum_long_double(ARG(c, 3), &by)) {
        cl_reply_error(c, "ERR value is not a valid float");
        return;
    }
    if (isinf(by)) {
        cl_reply_error(c, "ERR value is NaN or Infinity");
        return;
    }
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_HASH, &e))
        return;
    struct cl_rnode *n = e ? cl_rhash_find(c->r, e->hash, ARG(c, 2)) : NULL;
    if (n && !cl_rnum_long_double(cl_rfield_value(n), &v)) {
        cl_reply_error(c, "ERR hash value is not a float");
        return;
    }
    v += by;
    if (isnan(v) || isinf(v)) {
        cl_reply_error(c, "ERR increment would produce NaN or Infinity");
        return;
    }
    struct cl_slice s = {(uint8_t *)text, cl_rnum_format_long(text, v)};
    e = hash_for_write(c, ARG(c, 1));
    cl_rhash_set(c->r, e->hash, ARG(c, 2), s);
    cl_rdb_wrote(c, CL_RN_HASH, "hincrbyfloat", ARG(c, 1), 1);
    CL_RPROP(c, cl_slice_of("HSET"), ARG(c, 1), ARG(c, 2), s);
    cl_reply_slice(c, s);
}

static int64_t emit(struct cl_resp_client *c, const struct cl_rscan *scan, struct cl_rnode *n)
{
    if (scan->match && !cl_glob(scan->pattern, cl_rfield_key(n), false))
        return 0;
    cl_reply_slice(c, cl_rfield_key(n));
    cl_reply_slice(c, cl_rfield_value(n));
    return 2;
}

void cl_cmd_hscan(struct cl_resp_client *c)
{
    struct cl_rscan scan;
    struct cl_entry *e;
    if (!cl_rscan_begin(c, 2, &scan) || !cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        return;
    if (!e)
        cl_rscan_empty(c);
    else if (cl_rscan_options(c, 3, false, &scan))
        cl_rscan_reply(c, &scan, &e->hash->dict, emit);
}

static void emit_picked(struct cl_resp_client *c, struct cl_rnode *n, bool with)
{
    if (with && c->protocol == 3)
        cl_reply_array(c, 2);
    cl_reply_slice(c, cl_rfield_key(n));
    if (with)
        cl_reply_slice(c, cl_rfield_value(n));
}

void cl_cmd_hrandfield(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t count;
    if (c->argc == 2) {
        if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
            return;
        if (e)
            cl_reply_slice(c, cl_rfield_key(cl_rdict_random(&e->hash->dict, cl_resp_random, c->r)));
        else
            cl_reply_null(c);
        return;
    }
    if (!cl_arg_count(c, 2, &count))
        return;
    bool with = c->argc == 4 && ARG_IS(c, 3, "withvalues");
    if (c->argc > 4 || (c->argc == 4 && !with)) {
        cl_reply_syntax(c);
        return;
    }
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_HASH, &e))
        cl_rpick_reply(c, e ? &e->hash->dict : NULL, count, with, emit_picked);
}
