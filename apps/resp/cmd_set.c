/* Sets. */
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "number.h"
#include "pick.h"
#include "propagate.h"
#include "reply.h"
#include "scan.h"
#include "set.h"
#include "value.h"

#define POPPED_MOST 1024 /* members that one command names */

static struct cl_entry *set_for_write(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_entry *e;
    if (!cl_rdb_write_as(c, key, CL_R_SET, &e))
        return NULL;
    if (!e) {
        e = cl_rdb_add(c, key, CL_R_SET);
        e->set = cl_rset_new(&c->r->mem);
    }
    return e;
}

void cl_cmd_sadd(struct cl_resp_client *c)
{
    struct cl_entry *e = set_for_write(c, ARG(c, 1));
    int64_t n = 0;
    if (!e)
        return;
    for (uint32_t i = 2; i < c->argc; i++)
        n += cl_rset_add(c->r, e->set, ARG(c, i));
    if (n)
        cl_rdb_wrote(c, CL_RN_SET, "sadd", ARG(c, 1), (uint64_t)n);
    cl_reply_int(c, n);
}

/* So many members were taken. */
static void took(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, const char *event, uint64_t n)
{
    cl_rdb_wrote(c, CL_RN_SET, event, key, n);
    if (!e->set->dict.count)
        cl_rdb_delete_empty(c, e);
}

void cl_cmd_srem(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t n = 0;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_SET, &e))
        return;
    for (uint32_t i = 2; e && i < c->argc; i++)
        n += cl_rset_remove(c->r, e->set, ARG(c, i));
    if (n)
        took(c, e, ARG(c, 1), "srem", (uint64_t)n);
    cl_reply_int(c, n);
}

void cl_cmd_smove(struct cl_resp_client *c)
{
    struct cl_entry *from, *to;
    from = cl_rdb_write(c, ARG(c, 1));
    to = cl_rdb_write(c, ARG(c, 2));
    if (!from) {
        cl_reply_int(c, 0);
        return;
    }
    if (from->type != CL_R_SET || (to && to->type != CL_R_SET)) {
        cl_reply_wrong_type(c);
        return;
    }
    if (from == to) {
        cl_reply_int(c, cl_rset_has(c->r, from->set, ARG(c, 3)));
        return;
    }
    if (!cl_rset_remove(c->r, from->set, ARG(c, 3))) {
        cl_reply_int(c, 0);
        return;
    }
    took(c, from, ARG(c, 1), "srem", 1);
    to = set_for_write(c, ARG(c, 2));
    if (cl_rset_add(c->r, to->set, ARG(c, 3)))
        cl_rdb_wrote(c, CL_RN_SET, "sadd", ARG(c, 2), 1);
    cl_reply_int(c, 1);
}

void cl_cmd_sismember(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_SET, &e))
        cl_reply_int(c, e && cl_rset_has(c->r, e->set, ARG(c, 2)));
}

void cl_cmd_smismember(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_SET, &e))
        return;
    cl_reply_array(c, c->argc - 2);
    for (uint32_t i = 2; i < c->argc; i++)
        cl_reply_int(c, e && cl_rset_has(c->r, e->set, ARG(c, i)));
}

void cl_cmd_scard(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_SET, &e))
        cl_reply_int(c, e ? e->set->dict.count : 0);
}

static void emit_picked(struct cl_resp_client *c, struct cl_rnode *n, bool with)
{
    (void)with;
    cl_reply_slice(c, cl_rmember_key(n));
}

void cl_cmd_srandmember(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t count;
    if (c->argc > 3) {
        cl_reply_syntax(c);
        return;
    }
    if (c->argc == 3) {
        if (cl_arg_count(c, 2, &count) && cl_rdb_read_as(c, ARG(c, 1), CL_R_SET, &e))
            cl_rpick_reply(c, e ? &e->set->dict : NULL, count, false, emit_picked);
        return;
    }
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_SET, &e))
        return;
    if (e)
        cl_reply_slice(c, cl_rmember_key(cl_rdict_random(&e->set->dict, cl_resp_random, c->r)));
    else
        cl_reply_null(c);
}

/* Chance has chosen them. */
static void say_popped(struct cl_resp_client *c, struct cl_rnode **nodes, uint64_t n)
{
    if (!cl_rprop_on(c->r))
        return;
    cl_rprop_instead(c);
    for (uint64_t i = 0; i < n; i++) {
        if (i % POPPED_MOST == 0) {
            cl_rprop_begin(c->r, c->db, 2 + (uint32_t)cl_min(n - i, (uint64_t)POPPED_MOST));
            cl_rprop_text(c->r, "SREM");
            cl_rprop_arg(c->r, ARG(c, 1));
        }
        cl_rprop_arg(c->r, cl_rmember_key(nodes[i]));
    }
}

static void pop_many(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t count;
    if (!cl_arg_in(c, 2, 0, INT64_MAX, &count, "ERR value is out of range, must be positive"))
        return;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_SET, &e))
        return;
    if (!e || !count) {
        cl_reply_set(c, 0);
        return;
    }
    uint64_t n = cl_min((uint64_t)count, (uint64_t)e->set->dict.count);
    struct cl_rnode **nodes = cl_rmem_new(&c->r->mem, n * sizeof *nodes);
    uint64_t got = cl_rpick(c->r, &e->set->dict, n, nodes);
    say_popped(c, nodes, got);
    cl_reply_set(c, (int64_t)got);
    for (uint64_t i = 0; i < got; i++) {
        cl_reply_slice(c, cl_rmember_key(nodes[i]));
        cl_rset_remove(c->r, e->set, cl_rmember_key(nodes[i]));
    }
    cl_rmem_free(&c->r->mem, nodes, n * sizeof *nodes);
    took(c, e, ARG(c, 1), "spop", got);
}

void cl_cmd_spop(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (c->argc > 3) {
        cl_reply_syntax(c);
        return;
    }
    if (c->argc == 3) {
        pop_many(c);
        return;
    }
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_SET, &e))
        return;
    if (!e) {
        cl_reply_null(c);
        return;
    }
    struct cl_rnode *node = cl_rdict_random(&e->set->dict, cl_resp_random, c->r);
    say_popped(c, &node, 1);
    cl_reply_slice(c, cl_rmember_key(node));
    cl_rset_remove(c->r, e->set, cl_rmember_key(node));
    took(c, e, ARG(c, 1), "spop", 1);
}

static int64_t emit(struct cl_resp_client *c, const struct cl_rscan *scan, struct cl_rnode *n)
{
    if (scan->match && !cl_glob(scan->pattern, cl_rmember_key(n), false))
        return 0;
    cl_reply_slice(c, cl_rmember_key(n));
    return 1;
}

void cl_cmd_sscan(struct cl_resp_client *c)
{
    struct cl_rscan scan;
    struct cl_entry *e;
    if (!cl_rscan_begin(c, 2, &scan) || !cl_rdb_read_as(c, ARG(c, 1), CL_R_SET, &e))
        return;
    if (!e)
        cl_rscan_empty(c);
    else if (cl_rscan_options(c, 3, false, &scan))
        cl_rscan_reply(c, &scan, &e->set->dict, emit);
}

/* Several sets. */

enum algebra { SET_INTER, SET_UNION, SET_DIFF };

/* The sets of n keys; one that does not exist is NULL. False: answered. */
static bool sets_of(struct cl_resp_client *c, uint32_t first, uint32_t n, struct cl_rset **out)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cl_entry *e;
        if (!cl_rdb_read_as(c, ARG(c, first + i), CL_R_SET, &e))
            return false;
        out[i] = e ? e->set : NULL;
    }
    return true;
}

static bool in_all(struct cl_resp *r, struct cl_rset **sets, uint32_t n, const struct cl_rset *but,
                   struct cl_slice member)
{
    for (uint32_t i = 0; i < n; i++)
        if (sets[i] != but && !cl_rset_has(r, sets[i], member))
            return false;
    return true;
}

static struct cl_rset *smallest(struct cl_rset **sets, uint32_t n)
{
    struct cl_rset *least = sets[0];
    for (uint32_t i = 0; i < n; i++) {
        if (!sets[i])
            return NULL;
        if (sets[i]->dict.count < least->dict.count)
            least = sets[i];
    }
    return least;
}

/* How many are in all of them, `most` at most (0: no limit); into `out` if not NULL. */
static int64_t intersect(struct cl_resp *r, struct cl_rset **sets, uint32_t n, int64_t most, struct cl_rset *out)
{
    struct cl_rset *least = smallest(sets, n);
    int64_t found = 0;
    if (!least)
        return 0;
    CL_RDICT_EACH(&least->dict, node)
    {
        if ((most && found == most) || !in_all(r, sets, n, least, cl_rmember_key(node)))
            continue;
        if (out)
            cl_rset_add(r, out, cl_rmember_key(node));
        found++;
    }
    return found;
}

static void add_all(struct cl_resp *r, struct cl_rset *out, const struct cl_rset *from)
{
    CL_RDICT_EACH(&from->dict, node)
    cl_rset_add(r, out, cl_rmember_key(node));
}

static bool in_any(struct cl_resp *r, struct cl_rset **sets, uint32_t n, struct cl_slice member)
{
    for (uint32_t i = 0; i < n; i++)
        if (sets[i] && cl_rset_has(r, sets[i], member))
            return true;
    return false;
}

static void combine(struct cl_resp *r, enum algebra how, struct cl_rset **sets, uint32_t n, struct cl_rset *out)
{
    if (how == SET_INTER) {
        intersect(r, sets, n, 0, out);
    } else if (how == SET_UNION) {
        for (uint32_t i = 0; i < n; i++)
            if (sets[i])
                add_all(r, out, sets[i]);
    } else if (sets[0]) {
        CL_RDICT_EACH(&sets[0]->dict, node)
        if (!in_any(r, sets + 1, n - 1, cl_rmember_key(node)))
            cl_rset_add(r, out, cl_rmember_key(node));
    }
}

static void reply_members(struct cl_resp_client *c, const struct cl_rset *s)
{
    cl_reply_set(c, s ? s->dict.count : 0);
    if (!s)
        return;
    CL_RDICT_EACH(&s->dict, node)
    cl_reply_slice(c, cl_rmember_key(node));
}

void cl_cmd_smembers(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_SET, &e))
        reply_members(c, e ? e->set : NULL);
}

/* Bytes that a combination may take. */
static uint64_t most_bytes(struct cl_rset **sets, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += sets[i] ? sets[i]->dict.count * 64ull : 0;
    return bytes;
}

static void store(struct cl_resp_client *c, struct cl_slice key, struct cl_rset *s, const char *event)
{
    struct cl_entry *e = cl_rdb_write(c, key);
    int64_t n = s->dict.count;
    if (!n) {
        cl_rset_free(&c->r->mem, s);
        if (e)
            cl_rdb_delete(c, e);
        cl_reply_int(c, 0);
        return;
    }
    cl_rdb_replace(c, e, key, CL_R_SET)->set = s;
    cl_rdb_wrote(c, CL_RN_SET, event, key, 1);
    cl_reply_int(c, n);
}

/* event NULL: the members are the answer; else they are stored under argument 1. */
static void algebra(struct cl_resp_client *c, enum algebra how, const char *event)
{
    uint32_t first = event ? 2 : 1, n = c->argc - first;
    struct cl_rset **sets = cl_rmem_new(&c->r->mem, n * sizeof *sets);
    if (sets_of(c, first, n, sets)) {
        if (c->r->mem.used + most_bytes(sets, n) > cl_resp_limit(c->r)) {
            cl_evict_refuse(c); /* evicting might remove a source */
        } else {
            struct cl_rset *out = cl_rset_new(&c->r->mem);
            combine(c->r, how, sets, n, out);
            if (event) {
                store(c, ARG(c, 1), out, event);
            } else {
                reply_members(c, out);
                cl_rset_free(&c->r->mem, out);
            }
        }
    }
    cl_rmem_free(&c->r->mem, sets, n * sizeof *sets);
}

void cl_cmd_sinter(struct cl_resp_client *c)
{
    algebra(c, SET_INTER, NULL);
}

void cl_cmd_sunion(struct cl_resp_client *c)
{
    algebra(c, SET_UNION, NULL);
}

void cl_cmd_sdiff(struct cl_resp_client *c)
{
    algebra(c, SET_DIFF, NULL);
}

void cl_cmd_sinterstore(struct cl_resp_client *c)
{
    algebra(c, SET_INTER, "sinterstore");
}

void cl_cmd_sunionstore(struct cl_resp_client *c)
{
    algebra(c, SET_UNION, "sunionstore");
}

void cl_cmd_sdiffstore(struct cl_resp_client *c)
{
    algebra(c, SET_DIFF, "sdiffstore");
}

void cl_cmd_sintercard(struct cl_resp_client *c)
{
    int64_t keys, most = 0;
    if (!cl_arg_in(c, 1, 1, INT32_MAX, &keys, "ERR numkeys should be greater than 0"))
        return;
    if (keys > (int64_t)c->argc - 2) {
        cl_reply_error(c, "ERR Number of keys can't be greater than number of args");
        return;
    }
    for (uint32_t i = (uint32_t)keys + 2; i < c->argc; i += 2) {
        if (!ARG_IS(c, i, "limit") || i + 1 >= c->argc) {
            cl_reply_syntax(c);
            return;
        }
        if (!cl_arg_in(c, i + 1, 0, INT64_MAX, &most, "ERR LIMIT can't be negative"))
            return;
    }
    struct cl_rset **sets = cl_rmem_new(&c->r->mem, (uint64_t)keys * sizeof *sets);
    if (sets_of(c, 2, (uint32_t)keys, sets))
        cl_reply_int(c, intersect(c->r, sets, (uint32_t)keys, most, NULL));
    cl_rmem_free(&c->r->mem, sets, (uint64_t)keys * sizeof *sets);
}
