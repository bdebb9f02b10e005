/* See value.h. */
#include "value.h"
#include "bytes.h"
#include "list.h"
#include "number.h"
#include "set.h"
#include "stream.h"
#include "zset.h"

#define EMBEDDED_MOST 44 /* bytes: Redis keeps longer strings apart from their object */

const char *const cl_rtype_names[CL_R_TYPES + 2] = {"string", "list", "set", "zset", "hash", "stream", "", "none"};

void cl_rvalue_free(struct cl_resp *r, struct cl_entry *e)
{
    struct cl_rmem *m = &r->mem;
    bool integer = e->type == CL_R_STRING && e->how == CL_R_INT;
    if (integer || !e->value)
        return;
    switch (e->type) {
    case CL_R_STRING:
        cl_bytes_free(m, e->bytes);
        break;
    case CL_R_LIST:
        cl_rlist_free(m, e->list);
        break;
    case CL_R_SET:
        cl_rset_free(m, e->set);
        break;
    case CL_R_ZSET:
        cl_rz_free(m, e->zset);
        break;
    case CL_R_HASH:
        cl_rhash_free(m, e->hash);
        break;
    case CL_R_STREAM:
        cl_rstream_free(m, e->stream);
        break;
    default:
        break;
    }
    e->value = NULL;
}

void cl_rvalue_clear(struct cl_resp *r, struct cl_entry *e)
{
    cl_rvalue_free(r, e);
    e->type = CL_R_STRING;
    e->how = CL_R_INT;
    e->integer = 0;
}

static uint64_t scaled(uint64_t bytes, uint64_t seen, uint64_t count)
{
    return seen ? bytes * count / seen : 0;
}

static uint64_t nodes_bytes(const struct cl_rdict *d, uint64_t samples, uint64_t (*bytes_of)(const struct cl_rnode *n))
{
    uint64_t bytes = 0, seen = 0;
    for (uint32_t i = 0; i < d->buckets && (!samples || seen < samples); i++)
        for (const struct cl_rnode *n = cl_rdict_bucket(d, i); n && (!samples || seen < samples); n = n->next) {
            bytes += cl_rmem_round(bytes_of(n));
            seen++;
        }
    return scaled(bytes, seen, d->count) + cl_rdict_bytes(d);
}

static uint64_t member_bytes(const struct cl_rnode *n)
{
    return sizeof(struct cl_rmember) + n->key_len;
}

static uint64_t field_bytes(const struct cl_rnode *n)
{
    return sizeof(struct cl_rfield) + ((const struct cl_rfield *)n)->room;
}

static uint64_t znode_bytes(const struct cl_rnode *n)
{
    return sizeof(struct cl_rznode) + n->key_len + ((const struct cl_rznode *)n)->levels * sizeof(struct cl_rzlink);
}

static uint64_t list_bytes(const struct cl_rlist *l, uint64_t samples)
{
    uint64_t bytes = 0, seen = 0;
    for (struct cl_rlist_at at = cl_rlist_at(l, 0); at.node && (!samples || seen < samples);
         at = cl_rlist_step(at, true)) {
        bytes += sizeof(struct cl_bytes) + cl_rlist_get(at)->room + sizeof(void *);
        seen++;
    }
    return scaled(bytes, seen, l->count) + sizeof *l + sizeof(struct cl_rlist_node);
}

static uint64_t stream_bytes(const struct cl_rstream *s, uint64_t samples)
{
    uint64_t bytes = 0, seen = 0;
    for (; seen < s->n && (!samples || seen < samples); seen++)
        bytes += cl_rmem_round(cl_rstream_at(s, seen)->bytes);
    return scaled(bytes, seen, s->n) + sizeof *s + s->room * sizeof *s->items;
}

uint64_t cl_rvalue_bytes(const struct cl_resp *r, const struct cl_entry *e, uint64_t samples)
{
    (void)r;
    uint64_t bytes = cl_rmem_round(sizeof *e + e->node.key_len) + sizeof(void *);
    switch (e->type) {
    case CL_R_STRING:
        return bytes + (e->how == CL_R_INT ? 0 : sizeof(struct cl_bytes) + e->bytes->room);
    case CL_R_LIST:
        return bytes + list_bytes(e->list, samples);
    case CL_R_SET:
        return bytes + nodes_bytes(&e->set->dict, samples, member_bytes);
    case CL_R_ZSET:
        return bytes + sizeof *e->zset + nodes_bytes(&e->zset->dict, samples, znode_bytes);
    case CL_R_HASH:
        return bytes + nodes_bytes(&e->hash->dict, samples, field_bytes);
    default:
        return bytes + stream_bytes(e->stream, samples);
    }
}

const char *cl_rvalue_encoding(const struct cl_resp *r, const struct cl_entry *e)
{
    static const char *const strings[] = {"int", "embstr", "raw"};
    static const char *const others[CL_R_TYPES] = {"", "quicklist", "hashtable", "skiplist", "hashtable", "stream"};
    (void)r;
    return e->type == CL_R_STRING ? strings[e->how] : others[e->type];
}

struct cl_slice cl_rvalue_text(const struct cl_entry *e, char text[24])
{
    if (e->how == CL_R_INT)
        return (struct cl_slice){(uint8_t *)text, cl_rnum_format(text, e->integer)};
    return cl_bytes_slice(e->bytes);
}

void cl_rvalue_set(struct cl_resp *r, struct cl_entry *e, struct cl_slice s)
{
    int64_t v;
    struct cl_bytes *fresh = NULL;
    bool integer = s.len <= 20 && cl_rnum_int(s, &v);
    if (!integer)
        fresh = cl_bytes_new(&r->mem, s); /* before the old one goes, of which s may be a part */
    cl_rvalue_free(r, e);
    if (integer) {
        e->how = CL_R_INT;
        e->integer = v;
    } else {
        e->how = s.len <= EMBEDDED_MOST ? CL_R_EMBEDDED : CL_R_RAW;
        e->bytes = fresh;
    }
}

void cl_rvalue_set_int(struct cl_resp *r, struct cl_entry *e, int64_t v)
{
    cl_rvalue_free(r, e);
    e->how = CL_R_INT;
    e->integer = v;
}

struct cl_bytes *cl_rvalue_raw(struct cl_resp *r, struct cl_entry *e, uint64_t len)
{
    char text[24];
    if (e->how == CL_R_INT)
        e->bytes = cl_bytes_new(&r->mem, cl_rvalue_text(e, text));
    e->how = CL_R_RAW;
    if (len > e->bytes->len) {
        e->bytes = cl_bytes_reserve(&r->mem, e->bytes, len);
        memset(e->bytes->data + e->bytes->len, 0, len - e->bytes->len);
        e->bytes->len = (uint32_t)len;
    }
    return e->bytes;
}

static struct cl_rlist *copy_list(struct cl_resp *r, const struct cl_rlist *from)
{
    struct cl_rlist *l = cl_rlist_new(&r->mem);
    for (struct cl_rlist_at at = cl_rlist_at(from, 0); at.node; at = cl_rlist_step(at, true))
        cl_rlist_push(&r->mem, l, cl_bytes_slice(cl_rlist_get(at)), false);
    return l;
}

static struct cl_rstream *copy_stream(struct cl_resp *r, const struct cl_rstream *from)
{
    struct cl_rstream *s = cl_rstream_new(&r->mem);
    struct cl_slice texts[64];
    for (uint64_t i = 0; i < from->n; i++) {
        const struct cl_rsentry *e = cl_rstream_at(from, i);
        struct cl_slice *all = e->n <= 64 ? texts : cl_rmem_new(&r->mem, e->n * sizeof *all);
        for (uint32_t k = 0, at = 0; k < e->n; k++)
            all[k] = cl_rsentry_text(e, &at);
        cl_rstream_add(&r->mem, s, e->id, all, e->n);
        if (all != texts)
            cl_rmem_free(&r->mem, all, e->n * sizeof *all);
    }
    s->last_id = from->last_id;
    s->max_deleted = from->max_deleted;
    s->added = from->added;
    return s;
}

void cl_rvalue_copy(struct cl_resp *r, struct cl_entry *to, const struct cl_entry *from)
{
    to->type = from->type;
    to->how = from->how;
    switch (from->type) {
    case CL_R_STRING:
        if (from->how == CL_R_INT)
            to->integer = from->integer;
        else
            to->bytes = cl_bytes_new(&r->mem, cl_bytes_slice(from->bytes));
        break;
    case CL_R_LIST:
        to->list = copy_list(r, from->list);
        break;
    case CL_R_SET:
        to->set = cl_rset_new(&r->mem);
        CL_RDICT_EACH(&from->set->dict, n)
        cl_rset_add(r, to->set, cl_rmember_key(n));
        break;
    case CL_R_ZSET:
        to->zset = cl_rz_new(&r->mem);
        for (struct cl_rznode *n = cl_rz_next(from->zset, NULL); n; n = cl_rz_next(from->zset, n))
            cl_rz_add(r, to->zset, cl_rz_member(n), n->score);
        break;
    case CL_R_HASH:
        to->hash = cl_rhash_new(&r->mem);
        CL_RDICT_EACH(&from->hash->dict, n)
        cl_rhash_set(r, to->hash, cl_rfield_key(n), cl_rfield_value(n));
        break;
    default:
        to->stream = copy_stream(r, from->stream);
        break;
    }
}
