/* Lists, and the commands that block on them. */
#include "block.h"
#include "bytes.h"
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "first.h"
#include "number.h"
#include "propagate.h"
#include "reply.h"
#include "list.h"

/* LEFT or RIGHT; false: answered. */
static bool side(struct cl_resp_client *c, uint32_t n, bool *head)
{
    *head = ARG_IS(c, n, "left");
    if (*head || ARG_IS(c, n, "right"))
        return true;
    cl_reply_syntax(c);
    return false;
}

static struct cl_entry *list_for_write(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_entry *e;
    if (!cl_rdb_write_as(c, key, CL_R_LIST, &e))
        return NULL;
    if (!e) {
        e = cl_rdb_add(c, key, CL_R_LIST);
        e->list = cl_rlist_new(&c->r->mem);
    }
    return e;
}

static void push(struct cl_resp_client *c, bool head, bool only_existing)
{
    struct cl_entry *e;
    struct cl_slice key = ARG(c, 1);
    if (!cl_rdb_write_as(c, key, CL_R_LIST, &e))
        return;
    if (!e && only_existing) {
        cl_reply_int(c, 0);
        return;
    }
    e = list_for_write(c, key);
    for (uint32_t i = 2; i < c->argc; i++)
        cl_rlist_push(&c->r->mem, e->list, ARG(c, i), head);
    cl_reply_int(c, (int64_t)e->list->count);
    cl_rdb_ready(c, key);
    cl_rdb_wrote(c, CL_RN_LIST, head ? "lpush" : "rpush", key, c->argc - 2);
}

void cl_cmd_lpush(struct cl_resp_client *c)
{
    push(c, true, false);
}

void cl_cmd_rpush(struct cl_resp_client *c)
{
    push(c, false, false);
}

void cl_cmd_lpushx(struct cl_resp_client *c)
{
    push(c, true, true);
}

void cl_cmd_rpushx(struct cl_resp_client *c)
{
    push(c, false, true);
}

/* So many elements were taken. */
static void took(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, const char *event, int64_t n)
{
    cl_rdb_wrote(c, CL_RN_LIST, event, key, (uint64_t)n);
    if (!e->list->count)
        cl_rdb_delete_empty(c, e);
}

static void reply_popped(struct cl_resp_client *c, struct cl_entry *e, bool head)
{
    struct cl_bytes *b = cl_rlist_pop(&c->r->mem, e->list, head);
    cl_reply_slice(c, cl_bytes_slice(b));
    cl_bytes_free(&c->r->mem, b);
}

static const char *pop_event(bool head)
{
    return head ? "lpop" : "rpop";
}

/* A command that has waited, or that may take from one of many, as one that does neither. */
static void say_popped(struct cl_resp_client *c, struct cl_slice key, bool head, int64_t count)
{
    cl_rprop_say_int(c, head ? "LPOP" : "RPOP", key, count);
}

static void reply_popped_array(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, bool head,
                               int64_t count)
{
    int64_t n = cl_min(count, (int64_t)e->list->count);
    cl_reply_array(c, n);
    for (int64_t i = 0; i < n; i++)
        reply_popped(c, e, head);
    if (n)
        took(c, e, key, pop_event(head), n);
}

static void pop(struct cl_resp_client *c, bool head)
{
    struct cl_entry *e;
    int64_t count = 1;
    if (c->argc > 3) {
        cl_reply_error(c, "ERR wrong number of arguments for '%s' command", pop_event(head));
        return;
    }
    if (c->argc == 3 && !cl_arg_in(c, 2, 0, INT64_MAX, &count, "ERR value is out of range, must be positive"))
        return;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    if (!e) {
        if (c->argc == 3)
            cl_reply_null_array(c);
        else
            cl_reply_null(c);
    } else if (c->argc == 3) {
        reply_popped_array(c, e, ARG(c, 1), head, count);
    } else {
        reply_popped(c, e, head);
        took(c, e, ARG(c, 1), pop_event(head), 1);
    }
}

void cl_cmd_lpop(struct cl_resp_client *c)
{
    pop(c, true);
}

void cl_cmd_rpop(struct cl_resp_client *c)
{
    pop(c, false);
}

void cl_cmd_llen(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_LIST, &e))
        cl_reply_int(c, e ? (int64_t)e->list->count : 0);
}

void cl_cmd_lindex(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t index;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    if (!e) {
        cl_reply_null(c);
        return;
    }
    if (!cl_arg_int(c, 2, &index))
        return;
    struct cl_rlist_at at = cl_rlist_at(e->list, index);
    if (at.node)
        cl_reply_slice(c, cl_bytes_slice(cl_rlist_get(at)));
    else
        cl_reply_null(c);
}

void cl_cmd_lset(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t index;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    if (!e) {
        cl_reply_error(c, "ERR no such key");
        return;
    }
    if (!cl_arg_int(c, 2, &index))
        return;
    struct cl_rlist_at at = cl_rlist_at(e->list, index);
    if (!at.node) {
        cl_reply_error(c, "ERR index out of range");
        return;
    }
    cl_rlist_set(&c->r->mem, at, ARG(c, 3));
    cl_reply_ok(c);
    cl_rdb_wrote(c, CL_RN_LIST, "lset", ARG(c, 1), 1);
}

/* From and to of a range of n, both in it. Returns how many that are. */
static int64_t clipped(int64_t *from, int64_t *to, int64_t n)
{
    *from = *from < 0 ? cl_max(*from + n, (int64_t)0) : *from;
    *to = *to < 0 ? *to + n : cl_min(*to, n - 1);
    return *from > *to || *from >= n ? 0 : *to - *from + 1;
}

void cl_cmd_lrange(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t from, to;
    if (!cl_arg_int(c, 2, &from) || !cl_arg_int(c, 3, &to) || !cl_rdb_read_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    int64_t n = e ? clipped(&from, &to, (int64_t)e->list->count) : 0;
    cl_reply_array(c, n);
    if (!n)
        return;
    for (struct cl_rlist_at at = cl_rlist_at(e->list, from); n; n--, at = cl_rlist_step(at, true))
        cl_reply_slice(c, cl_bytes_slice(cl_rlist_get(at)));
}

void cl_cmd_ltrim(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t from, to;
    if (!cl_arg_int(c, 2, &from) || !cl_arg_int(c, 3, &to) || !cl_rdb_write_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    if (!e) {
        cl_reply_ok(c);
        return;
    }
    int64_t count = (int64_t)e->list->count, n = clipped(&from, &to, count);
    int64_t before = n ? from : count, behind = n ? count - from - n : 0;
    for (; before; before--)
        cl_bytes_free(&c->r->mem, cl_rlist_pop(&c->r->mem, e->list, true));
    for (; behind; behind--)
        cl_bytes_free(&c->r->mem, cl_rlist_pop(&c->r->mem, e->list, false));
    took(c, e, ARG(c, 1), "ltrim", count - n);
    cl_reply_ok(c);
}

static bool at_is(struct cl_rlist_at at, struct cl_slice value)
{
    return cl_slice_same(cl_bytes_slice(cl_rlist_get(at)), value);
}

void cl_cmd_lrem(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t count, n = 0;
    if (!cl_arg_int(c, 2, &count) || !cl_rdb_write_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    bool forward = count >= 0;
    uint64_t most = count == 0 ? UINT64_MAX : forward ? (uint64_t)count : 0 - (uint64_t)count;
    struct cl_rlist_at at = e ? cl_rlist_at(e->list, forward ? 0 : -1) : (struct cl_rlist_at){NULL, 0};
    while (at.node && (uint64_t)n < most) {
        bool hit = at_is(at, ARG(c, 3));
        n += hit;
        at = hit ? cl_rlist_remove(&c->r->mem, e->list, at, forward) : cl_rlist_step(at, forward);
    }
    if (n)
        took(c, e, ARG(c, 1), "lrem", n);
    cl_reply_int(c, n);
}

void cl_cmd_linsert(struct cl_resp_client *c)
{
    struct cl_entry *e;
    bool before = ARG_IS(c, 2, "before");
    if (!before && !ARG_IS(c, 2, "after")) {
        cl_reply_syntax(c);
        return;
    }
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    if (!e) {
        cl_reply_int(c, 0);
        return;
    }
    for (struct cl_rlist_at at = cl_rlist_at(e->list, 0); at.node; at = cl_rlist_step(at, true)) {
        if (!at_is(at, ARG(c, 3)))
            continue;
        cl_rlist_insert(&c->r->mem, e->list, at, ARG(c, 4), before);
        cl_rdb_wrote(c, CL_RN_LIST, "linsert", ARG(c, 1), 1);
        cl_reply_int(c, (int64_t)e->list->count);
        return;
    }
    cl_reply_int(c, -1);
}

struct lpos {
    int64_t rank, count, most;
    bool many;
};

static bool lpos_options(struct cl_resp_client *c, struct lpos *o)
{
    *o = (struct lpos){.rank = 1, .count = 1};
    for (uint32_t i = 3; i < c->argc; i += 2) {
        if (i + 1 >= c->argc)
            return cl_reply_syntax(c), false;
        if (ARG_IS(c, i, "rank")) {
            if (!cl_arg_int(c, i + 1, &o->rank))
                return false;
            if (o->rank == 0) {
                cl_reply_error(c, "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... "
                                  "or use negative to start from the end of the list");
                return false;
            }
        } else if (ARG_IS(c, i, "count")) {
            o->many = true;
            if (!cl_arg_in(c, i + 1, 0, INT64_MAX, &o->count, "ERR COUNT can't be negative"))
                return false;
        } else if (ARG_IS(c, i, "maxlen")) {
            if (!cl_arg_in(c, i + 1, 0, INT64_MAX, &o->most, "ERR MAXLEN can't be negative"))
                return false;
        } else
            return cl_reply_syntax(c), false;
    }
    return true;
}

void cl_cmd_lpos(struct cl_resp_client *c)
{
    struct lpos o;
    struct cl_entry *e;
    if (!lpos_options(c, &o) || !cl_rdb_read_as(c, ARG(c, 1), CL_R_LIST, &e))
        return;
    bool forward = o.rank > 0;
    int64_t skip = (forward ? o.rank : -cl_max(o.rank, -INT64_MAX)) - 1, seen = 0, found = 0,
            count = e ? (int64_t)e->list->count : 0;
    struct cl_rchunk *head = o.many ? cl_reply_defer(c) : NULL;
    struct cl_rlist_at at = e ? cl_rlist_at(e->list, forward ? 0 : -1) : (struct cl_rlist_at){NULL, 0};
    for (; at.node && (!o.most || seen < o.most); at = cl_rlist_step(at, forward), seen++) {
        if (!at_is(at, ARG(c, 2)) || skip-- > 0)
            continue;
        cl_reply_int(c, forward ? seen : count - 1 - seen);
        found++;
        if (!o.many || (o.count && found == o.count))
            break;
    }
    if (o.many)
        cl_reply_deferred(c, head, '*', found);
    else if (!found)
        cl_reply_null(c);
}

/* From one list to another. */

/* The source has an element. False: the target is no list, which was answered. */
static bool move(struct cl_resp_client *c, struct cl_entry *from, bool from_head, bool to_head)
{
    struct cl_slice source = ARG(c, 1), target = ARG(c, 2);
    struct cl_entry *to;
    if (!cl_rdb_write_as(c, target, CL_R_LIST, &to))
        return false;
    struct cl_bytes *b = cl_rlist_pop(&c->r->mem, from->list, from_head);
    to = list_for_write(c, target);
    cl_rlist_push(&c->r->mem, to->list, cl_bytes_slice(b), to_head);
    cl_reply_slice(c, cl_bytes_slice(b));
    cl_bytes_free(&c->r->mem, b);
    cl_rdb_ready(c, target);
    cl_rdb_wrote(c, CL_RN_LIST, to_head ? "lpush" : "rpush", target, 1);
    took(c, from, source, pop_event(from_head), 0);
    CL_RPROP(c, cl_slice_of("LMOVE"), source, target, cl_slice_of(from_head ? "LEFT" : "RIGHT"),
             cl_slice_of(to_head ? "LEFT" : "RIGHT"));
    return true;
}

static void move_now(struct cl_resp_client *c, bool from_head, bool to_head)
{
    struct cl_entry *from;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_LIST, &from))
        return;
    if (from)
        move(c, from, from_head, to_head);
    else
        cl_reply_null(c);
}

static void move_or_wait(struct cl_resp_client *c, bool from_head, bool to_head, uint32_t timeout_at)
{
    struct cl_entry *from;
    int64_t deadline;
    if (!cl_arg_deadline(c, timeout_at, &deadline) || !cl_rfirst_awaited(c, ARG(c, 1), CL_R_LIST, &from))
        return;
    if (from)
        move(c, from, from_head, to_head);
    else if (!cl_rblock_on(c, &ARG(c, 1), 1, deadline))
        cl_reply_null(c);
}

void cl_cmd_lmove(struct cl_resp_client *c)
{
    bool from, to;
    if (side(c, 3, &from) && side(c, 4, &to))
        move_now(c, from, to);
}

void cl_cmd_rpoplpush(struct cl_resp_client *c)
{
    move_now(c, false, true);
}

void cl_cmd_blmove(struct cl_resp_client *c)
{
    bool from, to;
    if (side(c, 3, &from) && side(c, 4, &to))
        move_or_wait(c, from, to, 5);
}

void cl_cmd_brpoplpush(struct cl_resp_client *c)
{
    move_or_wait(c, false, true, 3);
}

static void pop_first(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, bool head)
{
    cl_reply_array(c, 2);
    cl_reply_slice(c, key);
    reply_popped(c, e, head);
    say_popped(c, key, head, 1);
    took(c, e, key, pop_event(head), 1);
}

static void pop_many(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, bool head, int64_t count)
{
    cl_reply_array(c, 2);
    cl_reply_slice(c, key);
    say_popped(c, key, head, cl_min(count, (int64_t)e->list->count));
    reply_popped_array(c, e, key, head, count);
}

static const struct cl_rfirst pops = {CL_R_LIST, {"right", "left"}, pop_first, pop_many};

void cl_cmd_blpop(struct cl_resp_client *c)
{
    cl_rfirst_one(c, &pops, true);
}

void cl_cmd_brpop(struct cl_resp_client *c)
{
    cl_rfirst_one(c, &pops, false);
}

void cl_cmd_lmpop(struct cl_resp_client *c)
{
    cl_rfirst_many(c, &pops, 1, false);
}

void cl_cmd_blmpop(struct cl_resp_client *c)
{
    cl_rfirst_many(c, &pops, 2, true);
}
