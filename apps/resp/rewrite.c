/* The rewrite: see durable.h. */
#include "bytes.h"
#include "db.h"
#include "durable.h"
#include "list.h"
#include "number.h"
#include "propagate.h"
#include "set.h"
#include "stream.h"
#include "value.h"
#include "zset.h"

#define NAMED_MOST 256 /* elements that one command names */

/* Commands that name some of n elements each: the i-th begins one where it is the first of them. */
static void begin(struct cl_resp *r, uint32_t db, const char *name, struct cl_slice key, uint64_t i, uint64_t n,
                  uint32_t args)
{
    if (i % NAMED_MOST)
        return;
    cl_rprop_begin(r, db, 2 + args * (uint32_t)cl_min(n - i, (uint64_t)NAMED_MOST));
    cl_rprop_text(r, name);
    cl_rprop_arg(r, key);
}

static void put_string(struct cl_resp *r, uint32_t db, const struct cl_entry *e)
{
    char text[24];
    cl_rprop_begin(r, db, 3);
    cl_rprop_text(r, "SET");
    cl_rprop_arg(r, cl_entry_key(e));
    cl_rprop_arg(r, cl_rvalue_text(e, text));
}

static void put_list(struct cl_resp *r, uint32_t db, const struct cl_entry *e)
{
    uint64_t i = 0;
    for (struct cl_rlist_at at = cl_rlist_at(e->list, 0); at.node; at = cl_rlist_step(at, true), i++) {
        begin(r, db, "RPUSH", cl_entry_key(e), i, e->list->count, 1);
        cl_rprop_arg(r, cl_bytes_slice(cl_rlist_get(at)));
    }
}

static void put_set(struct cl_resp *r, uint32_t db, const struct cl_entry *e)
{
    uint64_t i = 0;
    CL_RDICT_EACH(&e->set->dict, n)
    {
        begin(r, db, "SADD", cl_entry_key(e), i++, e->set->dict.count, 1);
        cl_rprop_arg(r, cl_rmember_key(n));
    }
}

static void put_hash(struct cl_resp *r, uint32_t db, const struct cl_entry *e)
{
    uint64_t i = 0;
    CL_RDICT_EACH(&e->hash->dict, n)
    {
        begin(r, db, "HSET", cl_entry_key(e), i++, e->hash->dict.count, 2);
        cl_rprop_arg(r, cl_rfield_key(n));
        cl_rprop_arg(r, cl_rfield_value(n));
    }
}

static void put_zset(struct cl_resp *r, uint32_t db, const struct cl_entry *e)
{
    uint64_t i = 0;
    for (struct cl_rznode *n = cl_rz_next(e->zset, NULL); n; n = cl_rz_next(e->zset, n)) {
        char text[CL_RNUM_DOUBLE_ROOM];
        begin(r, db, "ZADD", cl_entry_key(e), i++, e->zset->dict.count, 2);
        cl_rprop_arg(r, (struct cl_slice){(uint8_t *)text, cl_rnum_format_double(text, n->score)});
        cl_rprop_arg(r, cl_rz_member(n));
    }
}

static void put_id(struct cl_resp *r, struct cl_rid id)
{
    char text[48];
    int n = snprintf(text, sizeof text, "%llu-%llu", (unsigned long long)id.ms, (unsigned long long)id.seq);
    cl_rprop_arg(r, (struct cl_slice){(uint8_t *)text, (uint32_t)n});
}

static void put_entry(struct cl_resp *r, uint32_t db, struct cl_slice key, const struct cl_rsentry *s)
{
    cl_rprop_begin(r, db, 3 + s->n);
    cl_rprop_text(r, "XADD");
    cl_rprop_arg(r, key);
    put_id(r, s->id);
    for (uint32_t k = 0, at = 0; k < s->n; k++)
        cl_rprop_arg(r, cl_rsentry_text(s, &at));
}

/* An empty one is made by an entry that is trimmed at once. */
static void put_stream(struct cl_resp *r, uint32_t db, const struct cl_entry *e)
{
    struct cl_slice key = cl_entry_key(e);
    const struct cl_rstream *s = e->stream;
    for (uint64_t i = 0; i < s->n; i++)
        put_entry(r, db, key, cl_rstream_at(s, i));
    if (!s->n) {
        cl_rprop_begin(r, db, 7);
        cl_rprop_text(r, "XADD");
        cl_rprop_arg(r, key);
        cl_rprop_text(r, "MAXLEN");
        cl_rprop_int(r, 0);
        cl_rprop_text(r, "0-1");
        cl_rprop_text(r, "f");
        cl_rprop_text(r, "v");
    }
    cl_rprop_begin(r, db, 7);
    cl_rprop_text(r, "XSETID");
    cl_rprop_arg(r, key);
    put_id(r, s->last_id);
    cl_rprop_text(r, "ENTRIESADDED");
    cl_rprop_int(r, (int64_t)s->added);
    cl_rprop_text(r, "MAXDELETEDID");
    put_id(r, s->max_deleted);
}

static void put(struct cl_resp *r, uint32_t db, struct cl_entry *e)
{
    static void (*const puts[CL_R_TYPES])(struct cl_resp *, uint32_t, const struct cl_entry *) = {
        put_string, put_list, put_set, put_zset, put_hash, put_stream};
    uint64_t was = r->propagation.open.len;
    e->pass = r->durable.pass;
    cl_rprop_gone(r, db, cl_entry_key(e));
    puts[e->type](r, db, e);
    if (e->expires_ms) {
        cl_rprop_begin(r, db, 3);
        cl_rprop_text(r, "PEXPIREAT");
        cl_rprop_arg(r, cl_entry_key(e));
        cl_rprop_int(r, e->expires_ms);
    }
    r->durable.pass_bytes += r->propagation.open.len - was;
}

/* A unit that does nothing: a pass has one at both ends, though there be no key to put. */
static void put_mark(struct cl_resp *r)
{
    cl_rprop_begin(r, 0, 2);
    cl_rprop_text(r, "SELECT");
    cl_rprop_text(r, "0");
    cl_rprop_end(r);
}

void cl_rrewrite_begin(struct cl_resp *r)
{
    r->durable.rewriting = true;
    r->durable.pass++;
    r->durable.pass_bytes = 0;
    for (uint32_t i = 0; i < CL_RESP_DATABASES; i++) {
        r->db[i].rewritten = 0;
        r->db[i].rewriting = r->db[i].keys.count != 0;
    }
    put_mark(r);
}

bool cl_rrewrite_step(struct cl_resp *r, uint64_t bytes)
{
    uint64_t until = r->propagation.open.len + bytes;
    for (uint32_t i = 0; i < CL_RESP_DATABASES; i++) {
        struct cl_rdb *db = &r->db[i];
        while (db->rewriting && r->propagation.open.len < until) {
            for (struct cl_rnode *n = cl_rdict_scan(&db->keys, &db->rewritten); n; n = n->next)
                if (((struct cl_entry *)n)->pass != r->durable.pass)
                    put(r, i, (struct cl_entry *)n);
            db->rewriting = db->rewritten != 0;
        }
        if (db->rewriting)
            break;
        r->durable.rewriting = i + 1 < CL_RESP_DATABASES;
    }
    cl_rprop_end(r);
    r->durable.finishing = !r->durable.rewriting;
    if (r->durable.finishing)
        put_mark(r);
    return r->durable.finishing;
}

static void before_key(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_entry *e = cl_rdb_peek(cl_rdb_of(c), key);
    if (e && e->pass != c->r->durable.pass)
        put(c->r, c->db, e);
}

/* A command is about to be run that may write its keys. */
static void before(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    if (cl_likely(!c->r->durable.rewriting) || !(cmd->flags & CL_RF_WRITE) || !cl_rprop_on(c->r))
        return;
    bool any = cmd->flags & CL_RF_MOVABLE; /* its arguments say which of them are keys: a key too many does no harm */
    int64_t last = any ? c->argc : cmd->last < 0 ? (int64_t)c->argc + cmd->last : cmd->last;
    for (int64_t i = any ? 1 : cmd->first; i && i <= last && i < c->argc; i += any ? 1 : cmd->step)
        before_key(c, ARG(c, i));
}

void cl_rdurable_run(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    struct cl_resp *r = c->r;
    uint64_t dirty = r->dirty;
    before(c, cmd);
    r->propagation.said = false;
    cmd->fn(c);
    /* EXEC is no write: those that it has run have said what they did. */
    if (r->dirty != dirty && (cmd->flags & CL_RF_WRITE) && cl_rprop_on(r) && !r->propagation.said)
        cl_rprop_all(c, c->argv, c->argc);
}
