/* Ranges of sorted sets: by rank, by score, by member; to read, to count, to store, to remove. */
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "number.h"
#include "reply.h"
#include "zset.h"
#include "zsets.h"

enum by { BY_RANK, BY_SCORE, BY_LEX };

struct query {
    enum by by;
    bool reverse, scores, limited;
    int64_t offset, count; /* LIMIT; count below 0: all */
    int64_t from, to;      /* by rank */
    struct cl_rzrange range;
};

static bool score_bound(struct cl_slice s, double *v, bool *open)
{
    *open = s.len && s.p[0] == '(';
    if (*open) {
        s.p++;
        s.len--;
    }
    return cl_rnum_double(s, v);
}

static bool lex_bound(struct cl_slice s, struct cl_slice *text, bool *open, int8_t *end)
{
    *open = s.len && s.p[0] == '(';
    *end = 0;
    *text = (struct cl_slice){s.p + 1, s.len ? s.len - 1 : 0};
    if (s.len == 1 && (s.p[0] == '-' || s.p[0] == '+')) {
        *end = s.p[0] == '-' ? -1 : 1;
        return true;
    }
    return s.len && (s.p[0] == '(' || s.p[0] == '[');
}

/* The bounds in arguments min and max. False: answered. */
static bool bounds(struct cl_resp_client *c, uint32_t min, uint32_t max, struct query *q)
{
    struct cl_rzrange *r = &q->range;
    if (q->by == BY_RANK)
        return cl_arg_int(c, min, &q->from) && cl_arg_int(c, max, &q->to);
    r->lex = q->by == BY_LEX;
    if (q->by == BY_SCORE) {
        if (score_bound(ARG(c, min), &r->min, &r->min_open) && score_bound(ARG(c, max), &r->max, &r->max_open))
            return true;
        cl_reply_error(c, "ERR min or max is not a float");
        return false;
    }
    if (lex_bound(ARG(c, min), &r->min_text, &r->min_open, &r->min_end) &&
        lex_bound(ARG(c, max), &r->max_text, &r->max_open, &r->max_end))
        return true;
    cl_reply_error(c, "ERR min or max not valid string range item");
    return false;
}

/* Options from argument i on. `any`: BYSCORE, BYLEX and REV are allowed. */
static bool options(struct cl_resp_client *c, uint32_t i, bool any, bool store, struct query *q)
{
    q->count = -1;
    for (; i < c->argc; i++) {
        if (!store && ARG_IS(c, i, "withscores")) {
            q->scores = true;
        } else if (ARG_IS(c, i, "limit") && i + 2 < c->argc) {
            if (!cl_arg_int(c, i + 1, &q->offset) || !cl_arg_int(c, i + 2, &q->count))
                return false;
            q->limited = true;
            i += 2;
        } else if (any && ARG_IS(c, i, "rev")) {
            q->reverse = true;
        } else if (any && q->by == BY_RANK && ARG_IS(c, i, "byscore")) {
            q->by = BY_SCORE;
        } else if (any && q->by == BY_RANK && ARG_IS(c, i, "bylex")) {
            q->by = BY_LEX;
        } else {
            return cl_reply_syntax(c), false;
        }
    }
    if (q->limited && q->count != -1 && q->by == BY_RANK) {
        cl_reply_error(c, "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
        return false;
    }
    if (q->scores && q->by == BY_LEX) {
        cl_reply_error(c, "ERR syntax error, WITHSCORES not supported in combination with BYLEX");
        return false;
    }
    return true;
}

/* Nodes of the answer: the first, in its direction, and how many. */
struct found {
    struct cl_rznode *first;
    uint64_t n;
};

static struct found by_rank(struct cl_rzset *z, const struct query *q)
{
    int64_t len = z->dict.count, from = q->from < 0 ? q->from + len : q->from, to = q->to < 0 ? q->to + len : q->to;
    from = cl_max(from, (int64_t)0);
    to = cl_min(to, len - 1);
    if (from > to || from >= len)
        return (struct found){NULL, 0};
    return (struct found){cl_rz_at(z, (uint64_t)(q->reverse ? len - 1 - from : from)), (uint64_t)(to - from + 1)};
}

static struct found by_bounds(struct cl_rzset *z, const struct query *q)
{
    struct cl_rznode *low = cl_rz_first_in(z, &q->range), *high = low ? cl_rz_last_in(z, &q->range) : NULL;
    if (!high)
        return (struct found){NULL, 0};
    uint64_t from = cl_rz_rank(z, low), to = cl_rz_rank(z, high);
    if (from > to)
        return (struct found){NULL, 0};
    uint64_t n = to - from + 1;
    if (q->offset < 0 || (uint64_t)q->offset >= n || q->count == 0)
        return (struct found){NULL, 0};
    struct cl_rznode *first = q->reverse ? high : low;
    if (q->offset)
        first = cl_rz_at(z, q->reverse ? to - (uint64_t)q->offset : from + (uint64_t)q->offset);
    n -= (uint64_t)q->offset;
    return (struct found){first, q->count < 0 ? n : cl_min(n, (uint64_t)q->count)};
}

static struct found find(struct cl_rzset *z, const struct query *q)
{
    return q->by == BY_RANK ? by_rank(z, q) : by_bounds(z, q);
}

static struct cl_rznode *step(struct cl_rzset *z, struct cl_rznode *n, bool reverse)
{
    return reverse ? n->back : cl_rz_next(z, n);
}

static void reply_found(struct cl_resp_client *c, struct cl_rzset *z, const struct query *q)
{
    struct found f = z ? find(z, q) : (struct found){NULL, 0};
    cl_zsets_reply_count(c, (int64_t)f.n, q->scores);
    for (struct cl_rznode *n = f.first; f.n; f.n--, n = step(z, n, q->reverse))
        cl_zsets_reply_member(c, n, q->scores);
}

/* by, reverse: what the command's name says; `any`: its options say it. */
static void range(struct cl_resp_client *c, enum by by, bool reverse, bool any)
{
    struct query q = {.by = by, .reverse = reverse};
    struct cl_entry *e;
    if (!options(c, 4, any, false, &q))
        return;
    bool turned = q.reverse && q.by != BY_RANK; /* max comes first then */
    if (bounds(c, turned ? 3 : 2, turned ? 2 : 3, &q) && cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        reply_found(c, e ? e->zset : NULL, &q);
}

void cl_cmd_zrange(struct cl_resp_client *c)
{
    range(c, BY_RANK, false, true);
}

void cl_cmd_zrevrange(struct cl_resp_client *c)
{
    range(c, BY_RANK, true, false);
}

void cl_cmd_zrangebyscore(struct cl_resp_client *c)
{
    range(c, BY_SCORE, false, false);
}

void cl_cmd_zrevrangebyscore(struct cl_resp_client *c)
{
    range(c, BY_SCORE, true, false);
}

void cl_cmd_zrangebylex(struct cl_resp_client *c)
{
    range(c, BY_LEX, false, false);
}

void cl_cmd_zrevrangebylex(struct cl_resp_client *c)
{
    range(c, BY_LEX, true, false);
}

void cl_cmd_zrangestore(struct cl_resp_client *c)
{
    struct query q = {.by = BY_RANK};
    struct cl_entry *e;
    if (!options(c, 5, true, true, &q))
        return;
    bool turned = q.reverse && q.by != BY_RANK;
    if (!bounds(c, turned ? 4 : 3, turned ? 3 : 4, &q) || !cl_rdb_read_as(c, ARG(c, 2), CL_R_ZSET, &e))
        return;
    if (e && c->r->mem.used + e->zset->dict.count * 128ull > cl_resp_limit(c->r)) {
        cl_evict_refuse(c);
        return;
    }
    struct cl_rzset *out = cl_rz_new(&c->r->mem);
    struct found f = e ? find(e->zset, &q) : (struct found){NULL, 0};
    for (struct cl_rznode *n = f.first; f.n; f.n--, n = step(e->zset, n, q.reverse))
        cl_rz_add(c->r, out, cl_rz_member(n), n->score);
    cl_zsets_store(c, ARG(c, 1), out, "zrangestore");
}

static void count(struct cl_resp_client *c, enum by by)
{
    struct query q = {.by = by, .count = -1};
    struct cl_entry *e;
    if (bounds(c, 2, 3, &q) && cl_rdb_read_as(c, ARG(c, 1), CL_R_ZSET, &e))
        cl_reply_int(c, e ? (int64_t)find(e->zset, &q).n : 0);
}

void cl_cmd_zcount(struct cl_resp_client *c)
{
    count(c, BY_SCORE);
}

void cl_cmd_zlexcount(struct cl_resp_client *c)
{
    count(c, BY_LEX);
}

static void remove_range(struct cl_resp_client *c, enum by by, const char *event)
{
    struct query q = {.by = by, .count = -1};
    struct cl_entry *e;
    if (!bounds(c, 2, 3, &q) || !cl_rdb_write_as(c, ARG(c, 1), CL_R_ZSET, &e))
        return;
    struct found f = e ? find(e->zset, &q) : (struct found){NULL, 0};
    int64_t n = (int64_t)f.n;
    for (struct cl_rznode *node = f.first, *next; f.n; f.n--, node = next) {
        next = cl_rz_next(e->zset, node);
        cl_rz_remove(c->r, e->zset, node);
    }
    if (n)
        cl_zsets_took(c, e, ARG(c, 1), event, n);
    cl_reply_int(c, n);
}

void cl_cmd_zremrangebyrank(struct cl_resp_client *c)
{
    remove_range(c, BY_RANK, "zremrangebyrank");
}

void cl_cmd_zremrangebyscore(struct cl_resp_client *c)
{
    remove_range(c, BY_SCORE, "zremrangebyscore");
}

void cl_cmd_zremrangebylex(struct cl_resp_client *c)
{
    remove_range(c, BY_LEX, "zremrangebylex");
}
