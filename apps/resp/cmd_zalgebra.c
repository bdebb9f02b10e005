/* Several sorted sets, or sets, of which each member has the score 1: union, intersection, difference. */
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "number.h"
#include "reply.h"
#include "set.h"
#include "zset.h"
#include "zsets.h"

#include <math.h>

enum algebra { Z_UNION, Z_INTER, Z_DIFF };
enum aggregate { AGGREGATE_SUM, AGGREGATE_MIN, AGGREGATE_MAX };

struct source {
    struct cl_rzset *zset;
    struct cl_rset *set; /* both NULL: there is no such key */
    double weight;
};

struct query {
    enum algebra how;
    enum aggregate aggregate;
    bool scores;
    uint32_t n;
    struct source *sources;
};

static uint32_t count_of(const struct source *s)
{
    return s->zset ? s->zset->dict.count : s->set ? s->set->dict.count : 0;
}

static bool score_in(struct cl_resp *r, const struct source *s, struct cl_slice member, double *score)
{
    *score = 1;
    if (s->set)
        return cl_rset_has(r, s->set, member);
    struct cl_rznode *n = s->zset ? cl_rz_find(r, s->zset, member) : NULL;
    if (n)
        *score = n->score;
    return n != NULL;
}

static double weighted(const struct source *s, double score)
{
    double v = s->weight * score;
    return isnan(v) ? 0 : v;
}

static double aggregated(enum aggregate how, double a, double b)
{
    if (how == AGGREGATE_MIN)
        return cl_min(a, b);
    if (how == AGGREGATE_MAX)
        return cl_max(a, b);
    return isnan(a + b) ? 0 : a + b;
}

/* Call fn for each member of a source. */
static void each(struct cl_resp *r, const struct source *s, const struct query *q, struct cl_rzset *out,
                 void (*fn)(struct cl_resp *r, const struct query *q, const struct source *s, struct cl_rzset *out,
                            struct cl_slice member, double score))
{
    if (s->zset) {
        CL_RDICT_EACH(&s->zset->dict, n)
        fn(r, q, s, out, cl_rz_member((struct cl_rznode *)n), ((struct cl_rznode *)n)->score);
    } else if (s->set) {
        CL_RDICT_EACH(&s->set->dict, n)
        fn(r, q, s, out, cl_rmember_key(n), 1);
    }
}

static void unite(struct cl_resp *r, const struct query *q, const struct source *s, struct cl_rzset *out,
                  struct cl_slice member, double score)
{
    struct cl_rznode *n = cl_rz_find(r, out, member);
    score = weighted(s, score);
    if (n)
        cl_rz_move(r, out, n, aggregated(q->aggregate, n->score, score));
    else
        cl_rz_add(r, out, member, score);
}

/* s is the smallest source: the scores are put together in the order from it on. */
static void intersect(struct cl_resp *r, const struct query *q, const struct source *s, struct cl_rzset *out,
                      struct cl_slice member, double score)
{
    double sum = weighted(s, score), other;
    for (uint32_t i = 0; i < q->n; i++) {
        const struct source *o = &q->sources[i];
        if (o == s)
            continue;
        if (!score_in(r, o, member, &other))
            return;
        sum = aggregated(q->aggregate, sum, weighted(o, other));
    }
    if (!cl_rz_find(r, out, member))
        cl_rz_add(r, out, member, sum);
}

static void subtract(struct cl_resp *r, const struct query *q, const struct source *s, struct cl_rzset *out,
                     struct cl_slice member, double score)
{
    double other;
    for (uint32_t i = 1; i < q->n; i++)
        if (score_in(r, &q->sources[i], member, &other))
            return;
    (void)s;
    cl_rz_add(r, out, member, score);
}

static const struct source *smallest(const struct query *q)
{
    const struct source *least = &q->sources[0];
    for (uint32_t i = 1; i < q->n; i++)
        if (count_of(&q->sources[i]) < count_of(least))
            least = &q->sources[i];
    return least;
}

static struct cl_rzset *compute(struct cl_resp *r, const struct query *q)
{
    struct cl_rzset *out = cl_rz_new(&r->mem);
    if (q->how == Z_UNION)
        for (uint32_t i = 0; i < q->n; i++)
            each(r, &q->sources[i], q, out, unite);
    else if (q->how == Z_INTER)
        each(r, smallest(q), q, out, intersect);
    else
        each(r, &q->sources[0], q, out, subtract);
    return out;
}

/* numkeys at argument `at`, and the keys behind it. False: answered. */
static bool sources_of(struct cl_resp_client *c, uint32_t at, const char *name, struct query *q, uint64_t *members)
{
    int64_t n;
    *members = 0;
    if (!cl_arg_int(c, at, &n))
        return false;
    if (n < 1) {
        cl_reply_error(c, "ERR at least 1 input key is needed for '%s' command", name);
        return false;
    }
    if (n > (int64_t)c->argc - at - 1)
        return cl_reply_syntax(c), false;
    q->sources = cl_rmem_zero(&c->r->mem, (uint64_t)n * sizeof *q->sources);
    q->n = (uint32_t)n;
    for (uint32_t i = 0; i < q->n; i++) {
        struct cl_entry *e = cl_rdb_read(c, ARG(c, at + 1 + i));
        q->sources[i].weight = 1;
        if (e && e->type == CL_R_ZSET)
            q->sources[i].zset = e->zset;
        else if (e && e->type == CL_R_SET)
            q->sources[i].set = e->set;
        else if (e)
            return cl_reply_wrong_type(c), false;
        *members += count_of(&q->sources[i]);
    }
    return true;
}

static bool weights(struct cl_resp_client *c, uint32_t i, struct query *q)
{
    for (uint32_t k = 0; k < q->n; k++)
        if (!cl_rnum_double(ARG(c, i + k), &q->sources[k].weight)) {
            cl_reply_error(c, "ERR weight value is not a float");
            return false;
        }
    return true;
}

static bool options(struct cl_resp_client *c, uint32_t i, bool store, struct query *q)
{
    for (; i < c->argc; i++) {
        uint32_t left = c->argc - i - 1;
        if (q->how != Z_DIFF && ARG_IS(c, i, "weights") && left >= q->n) {
            if (!weights(c, i + 1, q))
                return false;
            i += q->n;
        } else if (q->how != Z_DIFF && ARG_IS(c, i, "aggregate") && left >= 1) {
            i++;
            if (ARG_IS(c, i, "sum"))
                q->aggregate = AGGREGATE_SUM;
            else if (ARG_IS(c, i, "min"))
                q->aggregate = AGGREGATE_MIN;
            else if (ARG_IS(c, i, "max"))
                q->aggregate = AGGREGATE_MAX;
            else
                return cl_reply_syntax(c), false;
        } else if (!store && ARG_IS(c, i, "withscores")) {
            q->scores = true;
        } else {
            return cl_reply_syntax(c), false;
        }
    }
    return true;
}

static void reply_all(struct cl_resp_client *c, struct cl_rzset *z, bool scores)
{
    cl_zsets_reply_count(c, z->dict.count, scores);
    for (struct cl_rznode *n = cl_rz_next(z, NULL); n; n = cl_rz_next(z, n))
        cl_zsets_reply_member(c, n, scores);
}

/* event NULL: the members are the answer. */
static void algebra(struct cl_resp_client *c, enum algebra how, const char *name, const char *event)
{
    struct query q = {.how = how};
    uint32_t at = event ? 2 : 1;
    uint64_t members;
    if (sources_of(c, at, name, &q, &members) && options(c, at + 1 + q.n, event != NULL, &q)) {
        if (c->r->mem.used + members * 128 > cl_resp_limit(c->r)) {
            cl_evict_refuse(c); /* evicting might remove a source */
        } else {
            struct cl_rzset *out = compute(c->r, &q);
            if (event) {
                cl_zsets_store(c, ARG(c, 1), out, event);
            } else {
                reply_all(c, out, q.scores);
                cl_rz_free(&c->r->mem, out);
            }
        }
    }
    cl_rmem_free(&c->r->mem, q.sources, q.n * sizeof *q.sources);
}

void cl_cmd_zunion(struct cl_resp_client *c)
{
    algebra(c, Z_UNION, "zunion", NULL);
}

void cl_cmd_zinter(struct cl_resp_client *c)
{
    algebra(c, Z_INTER, "zinter", NULL);
}

void cl_cmd_zdiff(struct cl_resp_client *c)
{
    algebra(c, Z_DIFF, "zdiff", NULL);
}

void cl_cmd_zunionstore(struct cl_resp_client *c)
{
    algebra(c, Z_UNION, "zunionstore", "zunionstore");
}

void cl_cmd_zinterstore(struct cl_resp_client *c)
{
    algebra(c, Z_INTER, "zinterstore", "zinterstore");
}

void cl_cmd_zdiffstore(struct cl_resp_client *c)
{
    algebra(c, Z_DIFF, "zdiffstore", "zdiffstore");
}

static int64_t card(struct cl_resp *r, const struct query *q, int64_t most)
{
    const struct source *s = smallest(q);
    struct cl_rdict *d = s->zset ? &s->zset->dict : s->set ? &s->set->dict : NULL;
    int64_t found = 0;
    double score;
    if (!d)
        return 0;
    CL_RDICT_EACH(d, n)
    {
        struct cl_slice member = cl_rnode_key(d, n);
        uint32_t i = 0;
        while (i < q->n && (&q->sources[i] == s || score_in(r, &q->sources[i], member, &score)))
            i++;
        found += i == q->n;
        if (most && found == most)
            return found;
    }
    return found;
}

void cl_cmd_zintercard(struct cl_resp_client *c)
{
    struct query q = {.how = Z_INTER};
    uint64_t members;
    int64_t most = 0;
    bool right = sources_of(c, 1, "zintercard", &q, &members);
    for (uint32_t i = 2 + q.n; right && i < c->argc; i += 2) {
        if (!ARG_IS(c, i, "limit") || i + 1 >= c->argc) {
            cl_reply_syntax(c);
            right = false;
        } else {
            right = cl_arg_in(c, i + 1, 0, INT64_MAX, &most, "ERR LIMIT can't be negative");
        }
    }
    if (right)
        cl_reply_int(c, card(c->r, &q, most));
    cl_rmem_free(&c->r->mem, q.sources, q.n * sizeof *q.sources);
}
