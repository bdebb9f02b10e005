/* Sorted sets: adding, scores, ranks, popping. Ranges: cmd_zrange.c. Several of them: cmd_zalgebra.c. */
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "first.h"
#include "number.h"
#include "pick.h"
#include "propagate.h"
#include "reply.h"
#include "scan.h"
#include "zset.h"
#include "zsets.h"

#include <math.h>

/* ZADD. */

#define ADD_NX 1u
#define ADD_XX 2u
#define ADD_GT 4u
#define ADD_LT 8u
#define ADD_CH 16u
#define ADD_INCR 32u

static bool add_options(struct cl_resp_client *c, uint32_t *flags, uint32_t *first)
{
    static const char *const names[] = {"nx", "xx", "gt", "lt", "ch", "incr"};
    *flags = 0;
    for (*first = 2; *first < c->argc; (*first)++) {
        uint32_t bit = 0;
        for (unsigned k = 0; k < 6; k++)
            if (ARG_IS(c, *first, names[k]))
                bit = 1u << k;
        if (!bit)
            break;
        *flags |= bit;
    }
    uint32_t n = c->argc - *first, f = *flags;
    if (n == 0 || n % 2)
        return cl_reply_syntax(c), false;
    if ((f & ADD_NX) && (f & ADD_XX))
        cl_reply_error(c, "ERR XX and NX options at the same time are not compatible");
    else if (((f & ADD_GT) && (f & (ADD_LT | ADD_NX))) || ((f & ADD_LT) && (f & ADD_NX)))
        cl_reply_error(c, "ERR GT, LT, and/or NX options at the same time are not compatible");
    else if ((f & ADD_INCR) && n != 2)
        cl_reply_error(c, "ERR INCR option supports a single increment-element pair");
    else
        return true;
    return false;
}

struct added {
    int64_t fresh, changed;
    bool none; /* conditions left it as it was */
    double score;
};

/* One pair. False: answered. */
static bool add_one(struct cl_resp_client *c, struct cl_rzset *z, double score, struct cl_slice member, uint32_t flags,
                    struct added *a)
{
    struct cl_rznode *n = cl_rz_find(c->r, z, member);
    a->none = true;
    if (!n) {
        if (flags & ADD_XX)
            return true;
        cl_rz_add(c->r, z, member, score);
        a->fresh++;
        a->score = score;
        a->none = false;
        return true;
    }
    if (flags & ADD_NX)
        return true;
    if (flags & ADD_INCR) {
        score += n->score;
        if (isnan(score)) {
            cl_reply_error(c, "ERR resulting score is not a number (NaN)");
            return false;
        }
    }
    if (((flags & ADD_LT) && score >= n->score) || ((flags & ADD_GT) && score <= n->score))
        return true;
    a->none = false;
    a->score = score;
    if (score != n->score) {
        cl_rz_move(c->r, z, n, score);
        a->changed++;
    }
    return true;
}

static bool scores_of(struct cl_resp_client *c, uint32_t first, double *out)
{
    for (uint32_t i = first; i < c->argc; i += 2)
        if (!cl_arg_double(c, i, &out[(i - first) / 2]))
            return false;
    return true;
}

static struct cl_entry *zset_for_write(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_entry *e = cl_rdb_add(c, key, CL_R_ZSET);
    e->zset = cl_rz_new(&c->r->mem);
    return e;
}

static void add_all(struct cl_resp_client *c, const double *scores, uint32_t flags, uint32_t first)
{
    struct cl_entry *e;
    struct added a = {.none = true};
    bool right = true;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    if (!e && !(flags & ADD_XX))
        e = zset_for_write(c, ARG(c, 1));
    for (uint32_t i = first; e && right && i < c->argc; i += 2)
        right = add_one(c, e->zset, scores[(i - first) / 2], ARG(c, i + 1), flags, &a);
    if (a.fresh || a.changed) {
        cl_rdb_ready(c, ARG(c, 1));
        cl_rdb_wrote(c, CL_RN_ZSET, flags & ADD_INCR ? "zincr" : "zadd", ARG(c, 1), (uint64_t)(a.fresh + a.changed));
    }
    if (!right)
        return;
    if (!(flags & ADD_INCR))
        cl_reply_int(c, a.fresh + (flags & ADD_CH ? a.changed : 0));
    else if (a.none)
        cl_reply_null(c);
    else
        cl_reply_double(c, a.score);
}

void cl_cmd_zadd(struct cl_resp_client *c)
{
    uint32_t flags, first;
    if (!add_options(c, &flags, &first))
        return;
    uint64_t bytes = (c->argc - first) / 2 * sizeof(double);
    double *scores = cl_rmem_new(&c->r->mem, bytes);
    if (scores_of(c, first, scores))
        add_all(c, scores, flags, first);
    cl_rmem_free(&c->r->mem, scores, bytes);
}

void cl_cmd_zincrby(struct cl_resp_client *c)
{
    double by;
    struct cl_entry *e;
    struct added a = {0};
    if (!cl_arg_double(c, 2, &by) || !cl_rdb_write_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    if (!e)
        e = zset_for_write(c, ARG(c, 1));
    if (!add_one(c, e->zset, by, ARG(c, 3), ADD_INCR, &a))
        return;
    if (a.fresh || a.changed) {
        cl_rdb_ready(c, ARG(c, 1));
        cl_rdb_wrote(c, CL_RN_ZSET, "zincr", ARG(c, 1), 1);
    }
    cl_reply_double(c, a.score);
}

/* Reading one. */

void cl_cmd_zcard(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        cl_reply_int(c, e ? e->zset->dict.count : 0);
}

static void reply_score(struct cl_resp_client *c, const struct cl_entry *e, struct cl_slice member)
{
    struct cl_rznode *n = e ? cl_rz_find(c->r, e->zset, member) : NULL;
    if (n)
        cl_reply_double(c, n->score);
    else
        cl_reply_null(c);
}

void cl_cmd_zscore(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        reply_score(c, e, ARG(c, 2));
}

void cl_cmd_zmscore(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    cl_reply_array(c, c->argc - 2);
    for (uint32_t i = 2; i < c->argc; i++)
        reply_score(c, e, ARG(c, i));
}

static void rank(struct cl_resp_client *c, bool reverse)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    struct cl_rznode *n = e ? cl_rz_find(c->r, e->zset, ARG(c, 2)) : NULL;
    if (!n) {
        cl_reply_null(c);
        return;
    }
    uint64_t at = cl_rz_rank(e->zset, n);
    cl_reply_int(c, (int64_t)(reverse ? e->zset->dict.count - 1 - at : at));
}

void cl_cmd_zrank(struct cl_resp_client *c)
{
    rank(c, false);
}

void cl_cmd_zrevrank(struct cl_resp_client *c)
{
    rank(c, true);
}

void cl_cmd_zrem(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t n = 0;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    for (uint32_t i = 2; e && i < c->argc; i++) {
        struct cl_rznode *node = cl_rz_find(c->r, e->zset, ARG(c, i));
        if (!node)
            continue;
        cl_rz_remove(c->r, e->zset, node);
        n++;
    }
    if (n)
        cl_zsets_took(c, e, ARG(c, 1), "zrem", n);
    cl_reply_int(c, n);
}

static int64_t emit(struct cl_resp_client *c, const struct cl_rscan *scan, struct cl_rnode *n)
{
    const struct cl_rznode *node = (const struct cl_rznode *)n;
    char text[CL_RNUM_DOUBLE_ROOM];
    if (scan->match && !cl_glob(scan->pattern, cl_rz_member(node), false))
        return 0;
    cl_reply_slice(c, cl_rz_member(node));
    cl_reply_bulk(c, text, cl_rnum_format_double(text, node->score));
    return 2;
}

void cl_cmd_zscan(struct cl_resp_client *c)
{
    struct cl_rscan scan;
    struct cl_entry *e;
    if (!cl_rscan_begin(c, 2, &scan) || !cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    if (!e)
        cl_rscan_empty(c);
    else if (cl_rscan_options(c, 3, false, &scan))
        cl_rscan_reply(c, &scan, &e->zset->dict, emit);
}

static void emit_picked(struct cl_resp_client *c, struct cl_rnode *n, bool with)
{
    cl_zsets_reply_member(c, (struct cl_rznode *)n, with);
}

void cl_cmd_zrandmember(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t count;
    if (c->argc == 2) {
        if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
            return;
        if (e)
            cl_reply_slice(c, cl_rz_member((struct cl_rznode *)cl_rdict_random(&e->zset->dict, cl_resp_random, c->r)));
        else
            cl_reply_null(c);
        return;
    }
    if (!cl_arg_count(c, 2, &count))
        return;
    bool with = c->argc == 4 && ARG_IS(c, 3, "withscores");
    if (c->argc > 4 || (c->argc == 4 && !with)) {
        cl_reply_syntax(c);
        return;
    }
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        cl_rpick_reply(c, e ? &e->zset->dict : NULL, count, with, emit_picked);
}

/* Popping. */

static struct cl_rznode *end_of(struct cl_rzset *z, bool max)
{
    return max ? z->last : cl_rz_next(z, NULL);
}

static const char *pop_event(bool max)
{
    return max ? "zpopmax" : "zpopmin";
}

/* A command that has waited, or that may take from one of many, as one that does neither. */
static void say_popped(struct cl_resp_client *c, struct cl_slice key, bool max, int64_t count)
{
    cl_rprop_say_int(c, max ? "ZPOPMAX" : "ZPOPMIN", key, count);
}

static void pop(struct cl_resp_client *c, bool max)
{
    struct cl_entry *e;
    int64_t count = 1;
    if (c->argc > 3) {
        cl_reply_syntax(c);
        return;
    }
    if (c->argc == 3 && !cl_arg_in(c, 2, 0, INT64_MAX, &count, "ERR value is out of range, must be positive"))
        return;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    int64_t n = e ? cl_min(count, (int64_t)e->zset->dict.count) : 0;
    bool pairs = c->protocol == 3 && c->argc == 3;
    cl_reply_array(c, pairs ? n : 2 * n);
    for (int64_t i = 0; i < n; i++) {
        struct cl_rznode *node = end_of(e->zset, max);
        if (pairs)
            cl_reply_array(c, 2);
        cl_reply_slice(c, cl_rz_member(node));
        cl_reply_double(c, node->score);
        cl_rz_remove(c->r, e->zset, node);
    }
    if (n)
        cl_zsets_took(c, e, ARG(c, 1), pop_event(max), n);
}

void cl_cmd_zpopmin(struct cl_resp_client *c)
{
    pop(c, false);
}

void cl_cmd_zpopmax(struct cl_resp_client *c)
{
    pop(c, true);
}

static void pop_first(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, bool max)
{
    struct cl_rznode *node = end_of(e->zset, max);
    cl_reply_array(c, 3);
    cl_reply_slice(c, key);
    cl_reply_slice(c, cl_rz_member(node));
    cl_reply_double(c, node->score);
    cl_rz_remove(c->r, e->zset, node);
    say_popped(c, key, max, 1);
    cl_zsets_took(c, e, key, pop_event(max), 1);
}

static void pop_many(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, bool max, int64_t count)
{
    int64_t n = cl_min(count, (int64_t)e->zset->dict.count);
    say_popped(c, key, max, n);
    cl_reply_array(c, 2);
    cl_reply_slice(c, key);
    cl_reply_array(c, n);
    for (int64_t i = 0; i < n; i++) {
        struct cl_rznode *node = end_of(e->zset, max);
        cl_reply_array(c, 2);
        cl_reply_slice(c, cl_rz_member(node));
        cl_reply_double(c, node->score);
        cl_rz_remove(c->r, e->zset, node);
    }
    cl_zsets_took(c, e, key, pop_event(max), n);
}

static const struct cl_rfirst pops = {CL_R_ZSET, {"min", "max"}, pop_first, pop_many};

void cl_cmd_bzpopmin(struct cl_resp_client *c)
{
    cl_rfirst_one(c, &pops, false);
}

void cl_cmd_bzpopmax(struct cl_resp_client *c)
{
    cl_rfirst_one(c, &pops, true);
}

void cl_cmd_zmpop(struct cl_resp_client *c)
{
    cl_rfirst_many(c, &pops, 1, false);
}

void cl_cmd_bzmpop(struct cl_resp_client *c)
{
    cl_rfirst_many(c, &pops, 2, true);
}
