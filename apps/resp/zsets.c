/* See zsets.h. */
#include "zsets.h"
#include "db.h"
#include "reply.h"

void cl_zsets_took(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, const char *event, int64_t n)
{
    cl_rdb_wrote(c, CL_RN_ZSET, event, key, (uint64_t)n);
    if (!e->zset->dict.count)
        cl_rdb_delete_empty(c, e);
}

void cl_zsets_reply_member(struct cl_resp_client *c, const struct cl_rznode *n, bool with_score)
{
    if (with_score && c->protocol == 3)
        cl_reply_array(c, 2);
    cl_reply_slice(c, cl_rz_member(n));
    if (with_score)
        cl_reply_double(c, n->score);
}

void cl_zsets_reply_count(struct cl_resp_client *c, int64_t n, bool with_scores)
{
    cl_reply_array(c, with_scores && c->protocol == 2 ? 2 * n : n);
}

void cl_zsets_store(struct cl_resp_client *c, struct cl_slice key, struct cl_rzset *z, const char *event)
{
    struct cl_entry *e = cl_rdb_write(c, key);
    int64_t n = z->dict.count;
    if (!n) {
        cl_rz_free(&c->r->mem, z);
        if (e)
            cl_rdb_delete(c, e);
        cl_reply_int(c, 0);
        return;
    }
    cl_rdb_replace(c, e, key, CL_R_ZSET)->zset = z;
    cl_rdb_ready(c, key);
    cl_rdb_wrote(c, CL_RN_ZSET, event, key, 1);
    cl_reply_int(c, n);
}
