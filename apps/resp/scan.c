/* See scan.h. */
#include "scan.h"
#include "number.h"
#include "reply.h"
#include "value.h"

#define BUCKETS_PER_ELEMENT 10 /* looked at at most, in a table that is nearly empty */

bool cl_rscan_begin(struct cl_resp_client *c, uint32_t n, struct cl_rscan *scan)
{
    *scan = (struct cl_rscan){.count = 10, .type = -1};
    if (cl_rnum_uint(ARG(c, n), &scan->cursor))
        return true;
    cl_reply_error(c, "ERR invalid cursor");
    return false;
}

bool cl_rscan_options(struct cl_resp_client *c, uint32_t n, bool keys, struct cl_rscan *scan)
{
    for (uint32_t i = n; i < c->argc; i += 2) {
        bool more = i + 1 < c->argc;
        if (more && ARG_IS(c, i, "count")) {
            if (!cl_arg_int(c, i + 1, &scan->count))
                return false;
            if (scan->count < 1)
                return cl_reply_syntax(c), false;
        } else if (more && ARG_IS(c, i, "match")) {
            scan->pattern = ARG(c, i + 1);
            scan->match = !(scan->pattern.len == 1 && scan->pattern.p[0] == '*');
        } else if (more && keys && ARG_IS(c, i, "type")) {
            scan->type = CL_R_NONE;
            for (int t = 0; t < CL_R_TYPES; t++)
                if (cl_slice_is(ARG(c, i + 1), cl_rtype_names[t]))
                    scan->type = t;
        } else {
            return cl_reply_syntax(c), false;
        }
    }
    return true;
}

void cl_rscan_reply(struct cl_resp_client *c, struct cl_rscan *scan, const struct cl_rdict *d,
                    int64_t (*emit)(struct cl_resp_client *c, const struct cl_rscan *scan, struct cl_rnode *n))
{
    cl_reply_array(c, 2);
    struct cl_rchunk *cursor_at = cl_reply_defer(c), *at = cl_reply_defer(c);
    int64_t texts = 0, seen = 0, buckets = scan->count * BUCKETS_PER_ELEMENT;
    do {
        for (struct cl_rnode *n = cl_rdict_scan(d, &scan->cursor), *next; n; n = next) {
            next = n->next;
            texts += emit(c, scan, n);
            seen++;
        }
    } while (scan->cursor && seen < scan->count && --buckets > 0);
    cl_reply_deferred(c, at, '*', texts);
    if (!cursor_at)
        return;
    char text[CL_RNUM_ROOM];
    unsigned len = cl_rnum_format(text, (int64_t)scan->cursor);
    int n = snprintf((char *)cursor_at->data, cursor_at->room, "$%u\r\n%.*s\r\n", len, (int)len, text);
    cursor_at->len = (uint32_t)n;
    c->out.bytes += (uint64_t)n;
    c->r->unread += (uint64_t)n;
}

void cl_rscan_empty(struct cl_resp_client *c)
{
    cl_reply_array(c, 2);
    cl_reply_text(c, "0");
    cl_reply_array(c, 0);
}
