/* Strings and counters. */
#include "bytes.h"
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "expiry.h"
#include "number.h"
#include "propagate.h"
#include "reply.h"
#include "value.h"

#include <math.h>

static void reply_value(struct cl_resp_client *c, const struct cl_entry *e)
{
    char text[24];
    cl_reply_slice(c, cl_rvalue_text(e, text));
}

/* SET and its kin. */

struct set_options {
    bool nx, xx, get, keep_ttl;
    struct cl_expiry expiry;
};

/* Options from argument 3 on. */
static bool set_options(struct cl_resp_client *c, struct set_options *o)
{
    *o = (struct set_options){0};
    for (uint32_t i = 3; i < c->argc; i++) {
        if (ARG_IS(c, i, "nx") && !o->xx)
            o->nx = true;
        else if (ARG_IS(c, i, "xx") && !o->nx)
            o->xx = true;
        else if (ARG_IS(c, i, "get"))
            o->get = true;
        else if (ARG_IS(c, i, "keepttl") && !o->expiry.at)
            o->keep_ttl = true;
        else if (i + 1 < c->argc && !o->keep_ttl && !o->expiry.at && cl_expiry_unit(ARG(c, i), &o->expiry))
            o->expiry.at = ++i;
        else
            return cl_reply_syntax(c), false;
    }
    return true;
}

static void say_set(struct cl_resp_client *c, struct cl_slice key, struct cl_slice value, int64_t expires_ms,
                    bool keep_ttl)
{
    char text[CL_RNUM_ROOM];
    if (expires_ms)
        CL_RPROP(c, cl_slice_of("SET"), key, value, cl_slice_of("PXAT"),
                 {(uint8_t *)text, cl_rnum_format(text, expires_ms)});
    else if (keep_ttl)
        CL_RPROP(c, cl_slice_of("SET"), key, value, cl_slice_of("KEEPTTL"));
    else
        CL_RPROP(c, cl_slice_of("SET"), key, value);
}

/* Set the key, whose entry is e if it exists. */
static void store(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, struct cl_slice value,
                  int64_t expires_ms, bool keep_ttl)
{
    if (!e) {
        e = cl_rdb_add(c, key, CL_R_STRING);
        e->how = CL_R_INT;
    } else if (e->type != CL_R_STRING) {
        cl_rvalue_clear(c->r, e);
    }
    cl_rvalue_set(c->r, e, value);
    if (!keep_ttl)
        cl_entry_expire_at(c->r, cl_rdb_of(c), e, expires_ms);
    cl_rdb_wrote(c, CL_RN_STRING, "set", key, 1);
}

void cl_cmd_set(struct cl_resp_client *c)
{
    struct set_options o;
    int64_t at_ms = 0;
    if (!set_options(c, &o) || (o.expiry.at && !cl_expiry_at(c, &o.expiry, "set", &at_ms)))
        return;
    struct cl_entry *e;
    if (o.get) {
        if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
            return;
        if (e)
            reply_value(c, e);
        else
            cl_reply_null(c);
    } else {
        e = cl_rdb_write(c, ARG(c, 1));
    }
    if ((o.nx && e) || (o.xx && !e)) {
        if (!o.get)
            cl_reply_null(c);
        return;
    }
    store(c, e, ARG(c, 1), ARG(c, 2), at_ms, o.keep_ttl);
    say_set(c, ARG(c, 1), ARG(c, 2), at_ms, o.keep_ttl);
    if (o.expiry.at)
        cl_rdb_notify(c->r, CL_RN_GENERIC, "expire", ARG(c, 1), c->db);
    if (!o.get)
        cl_reply_ok(c);
}

void cl_cmd_setnx(struct cl_resp_client *c)
{
    struct cl_entry *e = cl_rdb_write(c, ARG(c, 1));
    if (!e)
        store(c, NULL, ARG(c, 1), ARG(c, 2), 0, false);
    cl_reply_int(c, !e);
}

static void set_expiring(struct cl_resp_client *c, const char *name, int64_t unit_ms)
{
    struct cl_expiry x = {.unit_ms = unit_ms, .at = 2};
    int64_t at_ms;
    if (!cl_expiry_at(c, &x, name, &at_ms))
        return;
    store(c, cl_rdb_write(c, ARG(c, 1)), ARG(c, 1), ARG(c, 3), at_ms, false);
    say_set(c, ARG(c, 1), ARG(c, 3), at_ms, false);
    cl_rdb_notify(c->r, CL_RN_GENERIC, "expire", ARG(c, 1), c->db);
    cl_reply_ok(c);
}

void cl_cmd_setex(struct cl_resp_client *c)
{
    set_expiring(c, "setex", 1000);
}

void cl_cmd_psetex(struct cl_resp_client *c)
{
    set_expiring(c, "psetex", 1);
}

void cl_cmd_get(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    if (e)
        reply_value(c, e);
    else
        cl_reply_null(c);
}

void cl_cmd_getset(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    if (e)
        reply_value(c, e);
    else
        cl_reply_null(c);
    store(c, e, ARG(c, 1), ARG(c, 2), 0, false);
}

void cl_cmd_getdel(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    if (!e) {
        cl_reply_null(c);
        return;
    }
    reply_value(c, e);
    cl_rdb_delete(c, e);
}

void cl_cmd_getex(struct cl_resp_client *c)
{
    struct cl_expiry x = {0};
    bool persist = false;
    int64_t at_ms = 0;
    for (uint32_t i = 2; i < c->argc; i++) {
        if (ARG_IS(c, i, "persist") && !x.at && !persist)
            persist = true;
        else if (i + 1 < c->argc && !persist && !x.at && cl_expiry_unit(ARG(c, i), &x))
            x.at = ++i;
        else {
            cl_reply_syntax(c);
            return;
        }
    }
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    if (!e) {
        cl_reply_null(c);
        return;
    }
    if (x.at && !cl_expiry_at(c, &x, "getex", &at_ms))
        return;
    reply_value(c, e);
    if (x.at && at_ms <= c->r->now_ms) {
        cl_rdb_delete(c, e);
        CL_RPROP(c, cl_slice_of("DEL"), ARG(c, 1));
    } else if (x.at || (persist && e->expires_ms)) {
        cl_entry_expire_at(c->r, cl_rdb_of(c), e, at_ms);
        cl_rdb_wrote(c, CL_RN_GENERIC, x.at ? "expire" : "persist", ARG(c, 1), 1);
        if (x.at)
            cl_rprop_say_int(c, "PEXPIREAT", ARG(c, 1), at_ms);
        else
            CL_RPROP(c, cl_slice_of("PERSIST"), ARG(c, 1));
    }
}

void cl_cmd_mget(struct cl_resp_client *c)
{
    cl_reply_array(c, c->argc - 1);
    for (uint32_t i = 1; i < c->argc; i++) {
        struct cl_entry *e = cl_rdb_read(c, ARG(c, i));
        if (e && e->type == CL_R_STRING)
            reply_value(c, e);
        else
            cl_reply_null(c);
    }
}

static bool even(struct cl_resp_client *c, const char *name)
{
    if (c->argc % 2)
        return true;
    cl_reply_error(c, "ERR wrong number of arguments for '%s' command", name);
    return false;
}

static void set_pairs(struct cl_resp_client *c)
{
    for (uint32_t i = 1; i < c->argc; i += 2)
        store(c, cl_rdb_write(c, ARG(c, i)), ARG(c, i), ARG(c, i + 1), 0, false);
}

void cl_cmd_mset(struct cl_resp_client *c)
{
    if (!even(c, "mset"))
        return;
    set_pairs(c);
    cl_reply_ok(c);
}

void cl_cmd_msetnx(struct cl_resp_client *c)
{
    if (!even(c, "msetnx"))
        return;
    for (uint32_t i = 1; i < c->argc; i += 2)
        if (cl_rdb_write(c, ARG(c, i))) {
            cl_reply_int(c, 0);
            return;
        }
    set_pairs(c);
    cl_reply_int(c, 1);
}

/* Parts of strings. */

void cl_cmd_strlen(struct cl_resp_client *c)
{
    struct cl_entry *e;
    char text[24];
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        cl_reply_int(c, e ? cl_rvalue_text(e, text).len : 0);
}

/* False: it would become longer than a bulk may be, or than there is memory; that was answered. */
static bool may_be(struct cl_resp_client *c, uint64_t len)
{
    if (len > (uint64_t)c->r->config.bulk_most || len > UINT32_MAX) {
        cl_reply_error(c, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        return false;
    }
    return cl_evict_or_refuse(c, len + (1 << 20));
}

void cl_cmd_append(struct cl_resp_client *c)
{
    struct cl_entry *e;
    char text[24];
    struct cl_slice key = ARG(c, 1), more = ARG(c, 2);
    if (!cl_rdb_write_as(c, key, CL_R_STRING, &e))
        return;
    uint64_t len = (e ? cl_rvalue_text(e, text).len : 0) + (uint64_t)more.len;
    if (len > CL_BYTES_NEAR) {
        if (!may_be(c, len))
            return;
        e = cl_rdb_look(c, key);
    }
    if (!e) {
        e = cl_rdb_add(c, key, CL_R_STRING);
        cl_rvalue_set(c->r, e, more);
    } else {
        struct cl_bytes *b = cl_rvalue_raw(c->r, e, 0);
        e->bytes = cl_bytes_append(&c->r->mem, b, more.p, more.len);
    }
    cl_rdb_wrote(c, CL_RN_STRING, "append", key, 1);
    cl_reply_int(c, cl_rvalue_text(e, text).len);
}

void cl_cmd_setrange(struct cl_resp_client *c)
{
    struct cl_entry *e;
    char text[24];
    int64_t offset;
    struct cl_slice key = ARG(c, 1), value = ARG(c, 3);
    if (!cl_arg_int(c, 2, &offset))
        return;
    if (offset < 0) {
        cl_reply_error(c, "ERR offset is out of range");
        return;
    }
    if (!cl_rdb_write_as(c, key, CL_R_STRING, &e))
        return;
    if (value.len == 0) {
        cl_reply_int(c, e ? cl_rvalue_text(e, text).len : 0);
        return;
    }
    if ((uint64_t)offset + value.len > CL_BYTES_NEAR) {
        if (!may_be(c, (uint64_t)offset + value.len))
            return;
        e = cl_rdb_look(c, key);
    }
    if (!e) {
        e = cl_rdb_add(c, key, CL_R_STRING);
        e->how = CL_R_RAW;
        e->bytes = cl_bytes_room(&c->r->mem, 0);
    }
    struct cl_bytes *b = cl_rvalue_raw(c->r, e, (uint64_t)offset + value.len);
    memcpy(b->data + offset, value.p, value.len);
    cl_rdb_wrote(c, CL_RN_STRING, "setrange", key, 1);
    cl_reply_int(c, b->len);
}

void cl_cmd_getrange(struct cl_resp_client *c)
{
    struct cl_entry *e;
    char text[24];
    int64_t from, to;
    if (!cl_arg_int(c, 2, &from) || !cl_arg_int(c, 3, &to) || !cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    struct cl_slice s = e ? cl_rvalue_text(e, text) : (struct cl_slice){NULL, 0};
    int64_t len = s.len;
    bool none = from < 0 && to < 0 && from > to;
    from = from < 0 ? cl_max(from + len, (int64_t)0) : from;
    to = to < 0 ? cl_max(to + len, (int64_t)0) : to;
    to = cl_min(to, len - 1);
    if (none || from > to || len == 0)
        cl_reply_bulk(c, "", 0);
    else
        cl_reply_bulk(c, s.p + from, (uint64_t)(to - from + 1));
}

/* Counters. */

static void add(struct cl_resp_client *c, int64_t by)
{
    struct cl_entry *e;
    struct cl_slice key = ARG(c, 1);
    int64_t v = 0;
    if (!cl_rdb_write_as(c, key, CL_R_STRING, &e))
        return;
    if (e && e->how == CL_R_INT)
        v = e->integer;
    else if (e && !cl_rnum_int(cl_bytes_slice(e->bytes), &v)) {
        cl_reply_not_integer(c);
        return;
    }
    if (__builtin_add_overflow(v, by, &v)) {
        cl_reply_error(c, "ERR increment or decrement would overflow");
        return;
    }
    if (!e) {
        e = cl_rdb_add(c, key, CL_R_STRING);
        e->how = CL_R_INT;
    }
    cl_rvalue_set_int(c->r, e, v);
    cl_rdb_wrote(c, CL_RN_STRING, "incrby", key, 1);
    cl_reply_int(c, v);
}

void cl_cmd_incr(struct cl_resp_client *c)
{
    add(c, 1);
}

void cl_cmd_decr(struct cl_resp_client *c)
{
    add(c, -1);
}

void cl_cmd_incrby(struct cl_resp_client *c)
{
    int64_t by;
    if (cl_arg_int(c, 2, &by))
        add(c, by);
}

void cl_cmd_decrby(struct cl_resp_client *c)
{
    int64_t by;
    if (!cl_arg_int(c, 2, &by))
        return;
    if (by == INT64_MIN) {
        cl_reply_error(c, "ERR decrement would overflow");
        return;
    }
    add(c, -by);
}

void cl_cmd_incrbyfloat(struct cl_resp_client *c)
{
    struct cl_entry *e;
    struct cl_slice key = ARG(c, 1);
    char near[24], text[CL_RNUM_LONG_ROOM];
    long double v = 0, by;
    if (!cl_rdb_write_as(c, key, CL_R_STRING, &e))
        return;
    if ((e && !cl_rnum_long_double(cl_rvalue_text(e, near), &v)) || !cl_rnum_long_double(ARG(c, 2), &by)) {
        cl_reply_error(c, "ERR value is not a valid float");
        return;
    }
    v += by;
    if (isnan(v) || isinf(v)) {
        cl_reply_error(c, "ERR increment would produce NaN or Infinity");
        return;
    }
    struct cl_slice s = {(uint8_t *)text, cl_rnum_format_long(text, v)};
    if (!e)
        e = cl_rdb_add(c, key, CL_R_STRING);
    cl_rvalue_set(c->r, e, s);
    if (e->how == CL_R_INT) { /* as Redis keeps what it has computed so: as text */
        cl_rvalue_raw(c->r, e, 0);
        e->how = CL_R_EMBEDDED;
    }
    cl_rdb_wrote(c, CL_RN_STRING, "incrbyfloat", key, 1);
    say_set(c, key, s, 0, true);
    cl_reply_slice(c, s);
}

/* LCS: the longest common subsequence, by the table of lengths. */

struct lcs {
    struct cl_slice a, b;
    uint32_t *lengths; /* [(a.len + 1) * (b.len + 1)] */
};

static uint32_t *lcs_at(const struct lcs *l, uint32_t i, uint32_t j)
{
    return &l->lengths[(uint64_t)i * (l->b.len + 1) + j];
}

static void lcs_fill(struct lcs *l)
{
    for (uint32_t i = 0; i <= l->a.len; i++)
        for (uint32_t j = 0; j <= l->b.len; j++)
            *lcs_at(l, i, j) = !i || !j                         ? 0
                               : l->a.p[i - 1] == l->b.p[j - 1] ? *lcs_at(l, i - 1, j - 1) + 1
                                                                : cl_max(*lcs_at(l, i - 1, j), *lcs_at(l, i, j - 1));
}

struct lcs_range {
    uint32_t a_from, a_to, b_from, b_to;
    bool open;
};

static int64_t lcs_emit(struct cl_resp_client *c, struct lcs_range *x, int64_t least, bool with_len)
{
    int64_t len = x->a_to - x->a_from + 1;
    bool open = x->open;
    x->open = false;
    if (!open || len < least)
        return 0;
    cl_reply_array(c, 2 + with_len);
    cl_reply_array(c, 2);
    cl_reply_int(c, x->a_from);
    cl_reply_int(c, x->a_to);
    cl_reply_array(c, 2);
    cl_reply_int(c, x->b_from);
    cl_reply_int(c, x->b_to);
    if (with_len)
        cl_reply_int(c, len);
    return 1;
}

/* The matches, last first. */
static void lcs_ranges(struct cl_resp_client *c, const struct lcs *l, int64_t least, bool with_len)
{
    struct cl_rchunk *at = cl_reply_defer(c);
    struct lcs_range x = {0};
    int64_t n = 0;
    for (uint32_t i = l->a.len, j = l->b.len; i && j;) {
        if (l->a.p[i - 1] == l->b.p[j - 1]) {
            if (x.open && (x.a_from != i || x.b_from != j))
                n += lcs_emit(c, &x, least, with_len);
            if (!x.open)
                x = (struct lcs_range){.a_to = i - 1, .b_to = j - 1, .open = true};
            x.a_from = i - 1;
            x.b_from = j - 1;
            i--;
            j--;
        } else if (*lcs_at(l, i - 1, j) > *lcs_at(l, i, j - 1)) {
            i--;
        } else {
            j--;
        }
    }
    n += lcs_emit(c, &x, least, with_len);
    cl_reply_deferred(c, at, '*', n);
}

static void lcs_text(struct cl_resp_client *c, const struct lcs *l)
{
    uint32_t at = *lcs_at(l, l->a.len, l->b.len), len = at;
    uint8_t *text = cl_rmem_new(&c->r->mem, len + 1ull);
    for (uint32_t i = l->a.len, j = l->b.len; i && j;)
        if (l->a.p[i - 1] == l->b.p[j - 1]) {
            text[--at] = l->a.p[i - 1];
            i--;
            j--;
        } else if (*lcs_at(l, i - 1, j) > *lcs_at(l, i, j - 1)) {
            i--;
        } else {
            j--;
        }
    cl_reply_bulk(c, text, len);
    cl_rmem_free(&c->r->mem, text, len + 1ull);
}

static bool lcs_options(struct cl_resp_client *c, bool *len, bool *idx, bool *with_len, int64_t *least)
{
    *len = *idx = *with_len = false;
    *least = 0;
    for (uint32_t i = 3; i < c->argc; i++) {
        if (ARG_IS(c, i, "idx"))
            *idx = true;
        else if (ARG_IS(c, i, "len"))
            *len = true;
        else if (ARG_IS(c, i, "withmatchlen"))
            *with_len = true;
        else if (ARG_IS(c, i, "minmatchlen") && i + 1 < c->argc) {
            if (!cl_arg_int(c, ++i, least))
                return false;
            *least = cl_max(*least, (int64_t)0);
        } else
            return cl_reply_syntax(c), false;
    }
    if (*len && *idx) {
        cl_reply_error(c, "ERR If you want both the length and indexes, please just use IDX.");
        return false;
    }
    return true;
}

void cl_cmd_lcs(struct cl_resp_client *c)
{
    struct cl_entry *a = cl_rdb_read(c, ARG(c, 1)), *b = cl_rdb_read(c, ARG(c, 2));
    char a_text[24], b_text[24];
    bool len, idx, with_len;
    int64_t least;
    if ((a && a->type != CL_R_STRING) || (b && b->type != CL_R_STRING)) {
        cl_reply_error(c, "ERR The specified keys must contain string values");
        return;
    }
    if (!lcs_options(c, &len, &idx, &with_len, &least))
        return;
    struct lcs l = {.a = a ? cl_rvalue_text(a, a_text) : (struct cl_slice){NULL, 0},
                    .b = b ? cl_rvalue_text(b, b_text) : (struct cl_slice){NULL, 0}};
    uint64_t bytes = (l.a.len + 1ull) * (l.b.len + 1ull) * sizeof *l.lengths;
    if (c->r->mem.used + bytes > cl_resp_limit(c->r)) {
        cl_reply_error(c, "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
        return;
    }
    l.lengths = cl_rmem_new(&c->r->mem, bytes);
    lcs_fill(&l);
    uint32_t length = *lcs_at(&l, l.a.len, l.b.len);
    if (len) {
        cl_reply_int(c, length);
    } else if (idx) {
        cl_reply_map(c, 2);
        cl_reply_text(c, "matches");
        lcs_ranges(c, &l, least, with_len);
        cl_reply_text(c, "len");
        cl_reply_int(c, length);
    } else {
        lcs_text(c, &l);
    }
    cl_rmem_free(&c->r->mem, l.lengths, bytes);
}
