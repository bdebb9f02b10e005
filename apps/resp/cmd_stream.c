/* Streams: appending, reading, trimming. Without consumer groups. */
#include "block.h"
#include "bytes.h"
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "number.h"
#include "propagate.h"
#include "reply.h"
#include "stream.h"

#define ID_ROOM 48

/* IDs. */

static unsigned format(char text[ID_ROOM], struct cl_rid id)
{
    return (unsigned)snprintf(text, ID_ROOM, "%llu-%llu", (unsigned long long)id.ms, (unsigned long long)id.seq);
}

static void reply_id(struct cl_resp_client *c, struct cl_rid id)
{
    char text[ID_ROOM];
    cl_reply_bulk(c, text, format(text, id));
}

/* "ms" or "ms-seq"; `missing` is the seq of the former. *any: "ms-*" is allowed, and was given. */
static bool id_of(struct cl_slice s, uint64_t missing, bool *any, struct cl_rid *id)
{
    const uint8_t *dash = memchr(s.p, '-', s.len);
    struct cl_slice ms = {s.p, dash ? (uint32_t)(dash - s.p) : s.len};
    bool star = any != NULL;
    if (any)
        *any = false;
    id->seq = missing;
    if (s.len > 127 || !cl_rnum_uint(ms, &id->ms))
        return false;
    if (!dash)
        return true;
    struct cl_slice seq = {dash + 1, s.len - ms.len - 1};
    if (star && seq.len == 1 && seq.p[0] == '*') {
        *any = true;
        id->seq = 0;
        return true;
    }
    return cl_rnum_uint(seq, &id->seq);
}

static void reply_bad_id(struct cl_resp_client *c)
{
    cl_reply_error(c, "ERR Invalid stream ID specified as stream command argument");
}

static bool arg_id(struct cl_resp_client *c, uint32_t n, uint64_t missing, struct cl_rid *id)
{
    if (id_of(ARG(c, n), missing, NULL, id))
        return true;
    reply_bad_id(c);
    return false;
}

static bool next_id(struct cl_rid *id)
{
    if (++id->seq)
        return true;
    return ++id->ms != 0;
}

static bool previous_id(struct cl_rid *id)
{
    if (id->seq--)
        return true;
    return id->ms-- != 0;
}

/* An end of a range: "-", "+", "(id", "id". */
static bool arg_bound(struct cl_resp_client *c, uint32_t n, bool is_start, struct cl_rid *id)
{
    struct cl_slice s = ARG(c, n);
    bool open = s.len > 1 && s.p[0] == '(';
    if (s.len == 1 && (s.p[0] == '-' || s.p[0] == '+')) {
        *id = s.p[0] == '-' ? (struct cl_rid){0, 0} : (struct cl_rid){UINT64_MAX, UINT64_MAX};
        return true;
    }
    if (open) {
        s.p++;
        s.len--;
    }
    if (!id_of(s, is_start ? 0 : UINT64_MAX, NULL, id)) {
        reply_bad_id(c);
        return false;
    }
    if (open && !(is_start ? next_id(id) : previous_id(id))) {
        cl_reply_error(c, "ERR invalid %s ID for the interval", is_start ? "start" : "end");
        return false;
    }
    return true;
}

/* Trimming. */

struct trim {
    enum { TRIM_NOT, TRIM_LENGTH, TRIM_ID } how;
    bool approximate, limited;
    int64_t length, limit;
    struct cl_rid least;
};

/* MAXLEN or MINID at argument i. Returns the argument behind; 0: answered. */
static uint32_t trim_options(struct cl_resp_client *c, uint32_t i, struct trim *t)
{
    bool by_length = ARG_IS(c, i, "maxlen");
    if (t->how != TRIM_NOT) {
        cl_reply_error(c, "ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
        return 0;
    }
    t->how = by_length ? TRIM_LENGTH : TRIM_ID;
    if (++i < c->argc && (ARG_IS(c, i, "~") || ARG_IS(c, i, "=")) && i + 1 < c->argc)
        t->approximate = ARG_IS(c, i++, "~");
    if (i >= c->argc) {
        cl_reply_syntax(c);
        return 0;
    }
    if (!by_length)
        return arg_id(c, i, 0, &t->least) ? i + 1 : 0;
    if (!cl_arg_int(c, i, &t->length))
        return 0;
    if (t->length < 0) {
        cl_reply_error(c, "ERR The MAXLEN argument must be >= 0.");
        return 0;
    }
    return i + 1;
}

static bool limit_option(struct cl_resp_client *c, uint32_t i, struct trim *t)
{
    if (!cl_arg_int(c, i, &t->limit))
        return false;
    if (t->limit < 0) {
        cl_reply_error(c, "ERR The LIMIT argument must be >= 0.");
        return false;
    }
    t->limited = true;
    return true;
}

static bool trim_valid(struct cl_resp_client *c, const struct trim *t)
{
    if (!t->limited)
        return true;
    if (t->how == TRIM_NOT)
        cl_reply_error(c, "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
    else if (!t->approximate)
        cl_reply_error(c, "ERR syntax error, LIMIT cannot be used without the special ~ option");
    else
        return true;
    return false;
}

/* Returns how many entries went. An approximate trim removes whole nodes' worth of entries, as Redis' does. */
static uint64_t trim(struct cl_resp_client *c, struct cl_rstream *s, const struct trim *t)
{
    uint64_t node = (uint64_t)c->r->config.stream_node_entries, n = 0;
    if (t->how == TRIM_LENGTH)
        n = s->n > (uint64_t)t->length ? s->n - (uint64_t)t->length : 0;
    else if (t->how == TRIM_ID)
        n = cl_rstream_seek(s, t->least);
    if (t->approximate && node) {
        uint64_t most = t->limited ? (uint64_t)t->limit : 100 * node;
        if (most)
            n = cl_min(n, most);
        if (n < s->n) /* what goes altogether goes whatever its nodes are */
            n -= n % node;
    }
    cl_rstream_trim(&c->r->mem, s, n);
    return n;
}

/* XADD. */

struct xadd {
    bool no_create, auto_id, auto_seq;
    struct cl_rid id;
    struct trim trim;
    uint32_t fields; /* the first of them */
};

static bool xadd_options(struct cl_resp_client *c, struct xadd *o)
{
    uint32_t i = 2;
    *o = (struct xadd){0};
    for (;; i++) {
        if (i >= c->argc)
            return cl_reply_error(c, "ERR wrong number of arguments for 'xadd' command"), false;
        if (ARG_IS(c, i, "nomkstream")) {
            o->no_create = true;
        } else if ((ARG_IS(c, i, "maxlen") || ARG_IS(c, i, "minid")) && i + 1 < c->argc) {
            if (!(i = trim_options(c, i, &o->trim)))
                return false;
            i--;
        } else if (ARG_IS(c, i, "limit") && i + 1 < c->argc) {
            if (!limit_option(c, ++i, &o->trim))
                return false;
        } else {
            break;
        }
    }
    o->auto_id = ARG_IS(c, i, "*");
    if (!o->auto_id && !id_of(ARG(c, i), 0, &o->auto_seq, &o->id))
        return reply_bad_id(c), false;
    if (!trim_valid(c, &o->trim))
        return false;
    o->fields = i + 1;
    if (o->fields >= c->argc || (c->argc - o->fields) % 2)
        return cl_reply_error(c, "ERR wrong number of arguments for 'xadd' command"), false;
    if (o->auto_id || o->auto_seq || o->id.ms || o->id.seq)
        return true;
    cl_reply_error(c, "ERR The ID specified in XADD must be greater than 0-0");
    return false;
}

/* The ID of the new entry; false: answered. */
static bool choose_id(struct cl_resp_client *c, const struct xadd *o, struct cl_rid last, struct cl_rid *id)
{
    *id = o->id;
    if (last.ms == UINT64_MAX && last.seq == UINT64_MAX) {
        cl_reply_error(c, "ERR The stream has exhausted the last possible ID, unable to add more items");
        return false;
    }
    if (o->auto_id) {
        *id = (struct cl_rid){(uint64_t)c->r->now_ms, 0};
        if (cl_rid_order(*id, last) <= 0) {
            *id = last;
            (void)next_id(id);
        }
        return true;
    }
    if (o->auto_seq && id->ms == last.ms) {
        *id = last;
        if (!next_id(id) || id->ms != last.ms) {
            cl_reply_error(c, "ERR The ID specified in XADD is equal or smaller than the target stream top item");
            return false;
        }
    }
    if (cl_rid_order(*id, last) > 0)
        return true;
    cl_reply_error(c, "ERR The ID specified in XADD is equal or smaller than the target stream top item");
    return false;
}

/* With the ID that it got; and how long the stream is now: settings have a say in that. */
static void say_trimmed(struct cl_resp_client *c, const struct cl_rstream *s)
{
    char text[CL_RNUM_ROOM];
    CL_RPROP(c, cl_slice_of("XTRIM"), ARG(c, 1), cl_slice_of("MAXLEN"),
             {(uint8_t *)text, cl_rnum_format(text, (int64_t)s->n)});
}

static void say_added(struct cl_resp_client *c, struct cl_rid id, uint32_t fields)
{
    char text[ID_ROOM];
    if (!cl_rprop_on(c->r))
        return;
    cl_rprop_instead(c);
    cl_rprop_begin(c->r, c->db, 3 + c->argc - fields);
    cl_rprop_text(c->r, "XADD");
    cl_rprop_arg(c->r, ARG(c, 1));
    cl_rprop_arg(c->r, (struct cl_slice){(uint8_t *)text, format(text, id)});
    for (uint32_t i = fields; i < c->argc; i++)
        cl_rprop_arg(c->r, ARG(c, i));
}

void cl_cmd_xadd(struct cl_resp_client *c)
{
    struct xadd o;
    struct cl_entry *e;
    struct cl_rid id;
    if (!xadd_options(c, &o) || !cl_rdb_write_as(c, ARG(c, 1), CL_R_STREAM, &e))
        return;
    if (!e && o.no_create) {
        cl_reply_null(c);
        return;
    }
    if (!choose_id(c, &o, e ? e->stream->last_id : (struct cl_rid){0, 0}, &id))
        return;
    if (!e) {
        e = cl_rdb_add(c, ARG(c, 1), CL_R_STREAM);
        e->stream = cl_rstream_new(&c->r->mem);
    }
    cl_rstream_add(&c->r->mem, e->stream, id, c->argv + o.fields, c->argc - o.fields);
    reply_id(c, id);
    cl_rdb_wrote(c, CL_RN_STREAM, "xadd", ARG(c, 1), 1);
    say_added(c, id, o.fields);
    if (trim(c, e->stream, &o.trim)) {
        say_trimmed(c, e->stream);
        cl_rdb_notify(c->r, CL_RN_STREAM, "xtrim", ARG(c, 1), c->db);
    }
    cl_rdb_ready(c, ARG(c, 1));
}

void cl_cmd_xtrim(struct cl_resp_client *c)
{
    struct trim t = {0};
    struct cl_entry *e;
    for (uint32_t i = 2; i < c->argc;) {
        if ((ARG_IS(c, i, "maxlen") || ARG_IS(c, i, "minid")) && i + 1 < c->argc) {
            if (!(i = trim_options(c, i, &t)))
                return;
        } else if (ARG_IS(c, i, "limit") && i + 1 < c->argc) {
            if (!limit_option(c, i + 1, &t))
                return;
            i += 2;
        } else {
            cl_reply_syntax(c);
            return;
        }
    }
    if (t.how == TRIM_NOT) {
        cl_reply_error(c, "ERR syntax error, XTRIM must be called with MAXLEN or MINID");
        return;
    }
    if (!trim_valid(c, &t) || !cl_rdb_write_as(c, ARG(c, 1), CL_R_STREAM, &e))
        return;
    uint64_t n = e ? trim(c, e->stream, &t) : 0;
    if (n) {
        cl_rdb_wrote(c, CL_RN_STREAM, "xtrim", ARG(c, 1), n);
        say_trimmed(c, e->stream);
    }
    cl_reply_int(c, (int64_t)n);
}

void cl_cmd_xlen(struct cl_resp_client *c)
{
    struct cl_entry *e;
    if (cl_rdb_read_as(c, ARG(c, 1), CL_R_STREAM, &e))
        cl_reply_int(c, e ? (int64_t)e->stream->n : 0);
}

void cl_cmd_xdel(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t n = 0;
    struct cl_rid id;
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_STREAM, &e))
        return;
    for (uint32_t i = 2; e && i < c->argc; i++)
        if (!arg_id(c, i, 0, &id))
            return;
    for (uint32_t i = 2; e && i < c->argc; i++) {
        (void)id_of(ARG(c, i), 0, NULL, &id);
        uint64_t at = cl_rstream_seek(e->stream, id);
        if (at == e->stream->n || cl_rid_order(cl_rstream_at(e->stream, at)->id, id))
            continue;
        cl_rstream_remove(&c->r->mem, e->stream, at);
        if (cl_rid_order(id, e->stream->max_deleted) > 0)
            e->stream->max_deleted = id;
        n++;
    }
    if (n)
        cl_rdb_wrote(c, CL_RN_STREAM, "xdel", ARG(c, 1), (uint64_t)n);
    cl_reply_int(c, n);
}

void cl_cmd_xsetid(struct cl_resp_client *c)
{
    struct cl_entry *e;
    struct cl_rid id, deleted = {0, 0};
    int64_t added = -1;
    bool has_deleted = false;
    if (!arg_id(c, 2, 0, &id))
        return;
    for (uint32_t i = 3; i < c->argc; i += 2) {
        if (ARG_IS(c, i, "entriesadded") && i + 1 < c->argc) {
            if (!cl_arg_int(c, i + 1, &added))
                return;
            if (added < 0) {
                cl_reply_error(c, "ERR entries_added must be positive");
                return;
            }
        } else if (ARG_IS(c, i, "maxdeletedid") && i + 1 < c->argc) {
            if (!arg_id(c, i + 1, 0, &deleted))
                return;
            has_deleted = true;
        } else {
            cl_reply_syntax(c);
            return;
        }
    }
    if (has_deleted && cl_rid_order(id, deleted) < 0 && !c->r->applying) { /* another XSETID may have left that */
        cl_reply_error(c, "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");
        return;
    }
    if (!cl_rdb_write_as(c, ARG(c, 1), CL_R_STREAM, &e))
        return;
    if (!e) {
        cl_reply_error(c, "ERR no such key");
        return;
    }
    struct cl_rstream *s = e->stream;
    if (s->n && cl_rid_order(id, cl_rstream_at(s, s->n - 1)->id) < 0) {
        cl_reply_error(c, "ERR The ID specified in XSETID is smaller than the target stream top item");
        return;
    }
    if (s->n && added >= 0 && (uint64_t)added < s->n) {
        cl_reply_error(c, "ERR The entries_added specified in XSETID is smaller than the target stream length");
        return;
    }
    s->last_id = id;
    s->added = added >= 0 ? (uint64_t)added : s->added;
    s->max_deleted = has_deleted ? deleted : s->max_deleted;
    c->r->dirty++;
    cl_rdb_notify(c->r, CL_RN_STREAM, "xsetid", ARG(c, 1), c->db); /* who watches it is not told, as in Redis */
    cl_reply_ok(c);
}

/* Reading. */

static void reply_entry(struct cl_resp_client *c, const struct cl_rsentry *e)
{
    cl_reply_array(c, 2);
    reply_id(c, e->id);
    cl_reply_array(c, e->n);
    for (uint32_t i = 0, at = 0; i < e->n; i++)
        cl_reply_slice(c, cl_rsentry_text(e, &at));
}

static void range(struct cl_resp_client *c, bool reverse)
{
    struct cl_entry *e;
    struct cl_rid from, to;
    int64_t count = -1;
    if (!arg_bound(c, reverse ? 3 : 2, true, &from) || !arg_bound(c, reverse ? 2 : 3, false, &to))
        return;
    for (uint32_t i = 4; i < c->argc; i += 2) {
        if (!ARG_IS(c, i, "count") || i + 1 >= c->argc) {
            cl_reply_syntax(c);
            return;
        }
        if (!cl_arg_int(c, i + 1, &count))
            return;
        count = cl_max(count, (int64_t)0);
    }
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STREAM, &e))
        return;
    if (!e) {
        cl_reply_array(c, 0);
        return;
    }
    if (count == 0) {
        cl_reply_null_array(c);
        return;
    }
    uint64_t first = cl_rstream_seek(e->stream, from), end = cl_rstream_seek(e->stream, to);
    if (end < e->stream->n && cl_rid_order(cl_rstream_at(e->stream, end)->id, to) == 0)
        end++;
    uint64_t n = end > first ? end - first : 0;
    if (count > 0)
        n = cl_min(n, (uint64_t)count);
    cl_reply_array(c, (int64_t)n);
    for (uint64_t i = 0; i < n; i++)
        reply_entry(c, cl_rstream_at(e->stream, reverse ? end - 1 - i : first + i));
}

void cl_cmd_xrange(struct cl_resp_client *c)
{
    range(c, false);
}

void cl_cmd_xrevrange(struct cl_resp_client *c)
{
    range(c, true);
}

struct xread {
    int64_t count, block_ms; /* block_ms -1: not */
    uint32_t first, n;       /* the first key, how many */
};

static bool xread_options(struct cl_resp_client *c, struct xread *o)
{
    *o = (struct xread){.block_ms = -1};
    for (uint32_t i = 1; i < c->argc && !o->first; i++) {
        bool more = i + 1 < c->argc;
        if (ARG_IS(c, i, "block") && more) {
            if (!cl_rnum_int(ARG(c, ++i), &o->block_ms)) {
                cl_reply_error(c, "ERR timeout is not an integer or out of range");
                return false;
            }
            if (o->block_ms < 0) {
                cl_reply_error(c, "ERR timeout is negative");
                return false;
            }
        } else if (ARG_IS(c, i, "count") && more) {
            if (!cl_arg_int(c, ++i, &o->count))
                return false;
            o->count = cl_max(o->count, (int64_t)0);
        } else if (ARG_IS(c, i, "streams") && more) {
            o->first = i + 1;
        } else {
            return cl_reply_syntax(c), false;
        }
    }
    if (!o->first)
        return cl_reply_syntax(c), false;
    if ((c->argc - o->first) % 2) {
        cl_reply_error(c, "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be "
                          "specified.");
        return false;
    }
    o->n = (c->argc - o->first) / 2;
    return true;
}

/* What is read behind; "$": behind what there is now. */
static bool read_behind(struct cl_resp_client *c, const struct xread *o, uint32_t i, struct cl_rid *id)
{
    struct cl_slice s = ARG(c, o->first + o->n + i);
    if (s.len == 1 && s.p[0] == '$') {
        struct cl_entry *e;
        if (!cl_rdb_read_as(c, ARG(c, o->first + i), CL_R_STREAM, &e))
            return false;
        *id = e ? e->stream->last_id : (struct cl_rid){0, 0};
        return true;
    }
    if (s.len == 1 && s.p[0] == '>') {
        cl_reply_error(c, "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> "
                          "<consumer> option.");
        return false;
    }
    return arg_id(c, o->first + o->n + i, 0, id);
}

/* Answer the entries of one stream behind an ID, if there are any. */
static bool read_one(struct cl_resp_client *c, struct cl_slice key, struct cl_entry *e, struct cl_rid behind,
                     int64_t count)
{
    if (!e || e->type != CL_R_STREAM || cl_rid_order(e->stream->last_id, behind) <= 0)
        return false;
    uint64_t first = next_id(&behind) ? cl_rstream_seek(e->stream, behind) : e->stream->n, n = e->stream->n - first;
    if (!n)
        return false;
    if (count)
        n = cl_min(n, (uint64_t)count);
    if (c->protocol == 2)
        cl_reply_array(c, 2);
    cl_reply_slice(c, key);
    cl_reply_array(c, (int64_t)n);
    for (uint64_t i = 0; i < n; i++)
        reply_entry(c, cl_rstream_at(e->stream, first + i));
    return true;
}

static bool has_behind(const struct cl_entry *e, struct cl_rid behind)
{
    return e && e->type == CL_R_STREAM && e->stream->n &&
           cl_rid_order(cl_rstream_at(e->stream, e->stream->n - 1)->id, behind) > 0;
}

/* Wait, with "$" as what it means now. */
static bool wait(struct cl_resp_client *c, const struct xread *o, const struct cl_rid *behind)
{
    uint64_t bytes = c->argc * sizeof(struct cl_slice), text_bytes = o->n * (uint64_t)ID_ROOM;
    struct cl_slice *argv = cl_rmem_new(&c->r->mem, bytes);
    const struct cl_slice *was = c->argv;
    char(*texts)[ID_ROOM] = cl_rmem_new(&c->r->mem, text_bytes);
    memcpy(argv, c->argv, bytes);
    for (uint32_t i = 0; i < o->n; i++)
        argv[o->first + o->n + i] = (struct cl_slice){(uint8_t *)texts[i], format(texts[i], behind[i])};
    c->argv = argv;
    bool waits = cl_rblock_on(c, argv + o->first, o->n, o->block_ms ? c->r->now_ms + o->block_ms : 0);
    c->argv = was;
    cl_rmem_free(&c->r->mem, texts, text_bytes);
    cl_rmem_free(&c->r->mem, argv, bytes);
    return waits;
}

static void read_all(struct cl_resp_client *c, const struct xread *o, struct cl_rid *behind)
{
    int64_t ready = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        struct cl_entry *e = cl_rdb_read(c, ARG(c, o->first + i));
        if (e && e->type != CL_R_STREAM && !(c->flags & CL_RC_RETRY)) {
            cl_reply_wrong_type(c);
            return;
        }
        if (!read_behind(c, o, i, &behind[i]))
            return;
        ready += has_behind(e, behind[i]);
    }
    if (!ready) {
        if (o->block_ms < 0 || !wait(c, o, behind))
            cl_reply_null_array(c);
        return;
    }
    if (c->protocol == 3)
        cl_reply_map(c, ready);
    else
        cl_reply_array(c, ready);
    for (uint32_t i = 0; i < o->n; i++)
        read_one(c, ARG(c, o->first + i), cl_rdb_look(c, ARG(c, o->first + i)), behind[i], o->count);
}

void cl_cmd_xread(struct cl_resp_client *c)
{
    struct xread o;
    if (!xread_options(c, &o))
        return;
    struct cl_rid *behind = cl_rmem_new(&c->r->mem, o.n * sizeof *behind + 1);
    read_all(c, &o, behind);
    cl_rmem_free(&c->r->mem, behind, o.n * sizeof *behind + 1);
}

/* FULL and COUNT. False: answered. */
static bool xinfo_options(struct cl_resp_client *c, bool *full, int64_t *count)
{
    *full = c->argc > 3;
    *count = 10;
    if (*full &&
        ((c->argc != 4 && c->argc != 6) || !ARG_IS(c, 3, "full") || (c->argc == 6 && !ARG_IS(c, 4, "count")))) {
        cl_reply_wrong_part(c);
        return false;
    }
    if (c->argc == 6 && !cl_arg_int(c, 5, count))
        return false;
    *count = *count < 0 ? 10 : *count;
    return true;
}

static void reply_ends(struct cl_resp_client *c, const struct cl_rstream *s)
{
    for (int i = 0; i < 2; i++) {
        cl_reply_text(c, i ? "last-entry" : "first-entry");
        if (s->n)
            reply_entry(c, cl_rstream_at(s, i ? s->n - 1 : 0));
        else
            cl_reply_null(c);
    }
}

static void reply_first(struct cl_resp_client *c, const struct cl_rstream *s, int64_t count)
{
    uint64_t n = count ? cl_min(s->n, (uint64_t)count) : s->n;
    cl_reply_text(c, "entries");
    cl_reply_array(c, (int64_t)n);
    for (uint64_t i = 0; i < n; i++)
        reply_entry(c, cl_rstream_at(s, i));
}

void cl_cmd_xinfo_stream(struct cl_resp_client *c)
{
    struct cl_entry *e;
    bool full;
    int64_t count;
    if (!cl_rdb_read_as(c, ARG(c, 2), CL_R_STREAM, &e))
        return;
    if (!e) {
        cl_reply_error(c, "ERR no such key");
        return;
    }
    if (!xinfo_options(c, &full, &count))
        return;
    const struct cl_rstream *s = e->stream;
    cl_reply_map(c, full ? 7 : 8);
    cl_reply_text(c, "length");
    cl_reply_int(c, (int64_t)s->n);
    cl_reply_text(c, "last-generated-id");
    reply_id(c, s->last_id);
    cl_reply_text(c, "max-deleted-entry-id");
    reply_id(c, s->max_deleted);
    cl_reply_text(c, "entries-added");
    cl_reply_int(c, (int64_t)s->added);
    cl_reply_text(c, "recorded-first-entry-id");
    reply_id(c, s->n ? cl_rstream_at(s, 0)->id : (struct cl_rid){0, 0});
    if (full)
        reply_first(c, s, count);
    cl_reply_text(c, "groups");
    if (full) {
        cl_reply_array(c, 0);
        return;
    }
    cl_reply_int(c, 0);
    reply_ends(c, s);
}
