/* See first.h. */
#include "first.h"
#include "block.h"
#include "db.h"
#include "reply.h"

bool cl_rfirst_awaited(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type, struct cl_entry **e)
{
    if (!(c->flags & CL_RC_RETRY))
        return cl_rdb_write_as(c, key, type, e);
    *e = cl_rdb_write(c, key);
    if (*e && (*e)->type != type)
        *e = NULL;
    return true;
}

void cl_rfirst_one(struct cl_resp_client *c, const struct cl_rfirst *of, bool end)
{
    int64_t deadline;
    uint32_t n = c->argc - 2;
    if (!cl_arg_deadline(c, c->argc - 1, &deadline))
        return;
    for (uint32_t i = 1; i <= n; i++) {
        struct cl_entry *e;
        if (!cl_rfirst_awaited(c, ARG(c, i), of->type, &e))
            return;
        if (!e)
            continue;
        of->one(c, e, ARG(c, i), end);
        return;
    }
    if (!cl_rblock_on(c, &ARG(c, 1), n, deadline))
        cl_reply_null_array(c);
}

struct asked {
    int64_t keys, count, deadline;
    bool end;
};

static bool read_options(struct cl_resp_client *c, const struct cl_rfirst *of, uint32_t n, bool waits, struct asked *o)
{
    *o = (struct asked){.count = 1};
    bool counted = false;
    if (waits && !cl_arg_deadline(c, 1, &o->deadline))
        return false;
    if (!cl_arg_in(c, n, 1, INT32_MAX, &o->keys, "ERR numkeys should be greater than 0"))
        return false;
    uint32_t where = n + (uint32_t)o->keys + 1;
    if (where >= c->argc)
        return cl_reply_syntax(c), false;
    o->end = ARG_IS(c, where, of->ends[1]);
    if (!o->end && !ARG_IS(c, where, of->ends[0]))
        return cl_reply_syntax(c), false;
    for (uint32_t i = where + 1; i < c->argc; i += 2) {
        if (counted || i + 1 >= c->argc || !ARG_IS(c, i, "count"))
            return cl_reply_syntax(c), false;
        if (!cl_arg_in(c, i + 1, 1, INT32_MAX, &o->count, "ERR count should be greater than 0"))
            return false;
        counted = true;
    }
    return true;
}

void cl_rfirst_many(struct cl_resp_client *c, const struct cl_rfirst *of, uint32_t n, bool waits)
{
    struct asked o;
    if (!read_options(c, of, n, waits, &o))
        return;
    for (uint32_t i = n + 1; i <= n + (uint32_t)o.keys; i++) {
        struct cl_entry *e;
        if (!cl_rfirst_awaited(c, ARG(c, i), of->type, &e))
            return;
        if (!e)
            continue;
        of->many(c, e, ARG(c, i), o.end, o.count);
        return;
    }
    if (!waits || !cl_rblock_on(c, &ARG(c, n + 1), (uint32_t)o.keys, o.deadline))
        cl_reply_null_array(c);
}
