/* See set.h. */
#include "set.h"

struct cl_rset *cl_rset_new(struct cl_rmem *m)
{
    struct cl_rset *s = cl_rmem_new(m, sizeof *s);
    cl_rdict_init(&s->dict, offsetof(struct cl_rmember, key));
    return s;
}

void cl_rset_free(struct cl_rmem *m, struct cl_rset *s)
{
    CL_RDICT_EACH(&s->dict, n)
    cl_rmem_free(m, n, sizeof(struct cl_rmember) + n->key_len);
    cl_rdict_end(m, &s->dict);
    cl_rmem_free(m, s, sizeof *s);
}

bool cl_rset_add(struct cl_resp *r, struct cl_rset *s, struct cl_slice member)
{
    uint32_t hash = cl_rdict_hash(&r->secret, member);
    if (cl_rdict_find(&s->dict, hash, member))
        return false;
    struct cl_rmember *n = cl_rmem_new(&r->mem, sizeof *n + member.len);
    n->node = (struct cl_rnode){.hash = hash, .key_len = member.len};
    memcpy(n->key, member.p, member.len);
    cl_rdict_add(&r->mem, &s->dict, &n->node);
    return true;
}

bool cl_rset_has(struct cl_resp *r, const struct cl_rset *s, struct cl_slice member)
{
    return cl_rdict_find(&s->dict, cl_rdict_hash(&r->secret, member), member) != NULL;
}

bool cl_rset_remove(struct cl_resp *r, struct cl_rset *s, struct cl_slice member)
{
    struct cl_rnode **place = cl_rdict_place(&s->dict, cl_rdict_hash(&r->secret, member), member);
    if (!place)
        return false;
    struct cl_rnode *n = cl_rdict_take(&r->mem, &s->dict, place, false);
    cl_rmem_free(&r->mem, n, sizeof(struct cl_rmember) + n->key_len);
    return true;
}

struct cl_rhash *cl_rhash_new(struct cl_rmem *m)
{
    struct cl_rhash *h = cl_rmem_new(m, sizeof *h);
    cl_rdict_init(&h->dict, offsetof(struct cl_rfield, key));
    return h;
}

static void free_field(struct cl_rmem *m, struct cl_rnode *n)
{
    struct cl_rfield *f = (struct cl_rfield *)n;
    cl_rmem_free(m, f, sizeof *f + f->room);
}

void cl_rhash_free(struct cl_rmem *m, struct cl_rhash *h)
{
    CL_RDICT_EACH(&h->dict, n)
    free_field(m, n);
    cl_rdict_end(m, &h->dict);
    cl_rmem_free(m, h, sizeof *h);
}

bool cl_rhash_set(struct cl_resp *r, struct cl_rhash *h, struct cl_slice field, struct cl_slice value)
{
    uint32_t hash = cl_rdict_hash(&r->secret, field);
    struct cl_rnode **place = cl_rdict_place(&h->dict, hash, field);
    struct cl_rfield *old = place ? (struct cl_rfield *)*place : NULL;
    uint64_t bytes = (uint64_t)field.len + value.len;
    if (old && bytes <= old->room && bytes >= old->room / 2) {
        memmove(old->key + field.len, value.p, value.len);
        old->value_len = value.len;
        return false;
    }
    uint64_t whole = cl_rmem_round(sizeof *old + bytes);
    struct cl_rfield *f = cl_rmem_new(&r->mem, whole);
    f->node = (struct cl_rnode){.hash = hash, .key_len = field.len};
    f->room = (uint32_t)(whole - sizeof *f);
    f->value_len = value.len;
    memcpy(f->key, field.p, field.len);
    memcpy(f->key + field.len, value.p, value.len);
    if (!old) {
        cl_rdict_add(&r->mem, &h->dict, &f->node);
        return true;
    }
    f->node.next = old->node.next;
    *place = &f->node;
    free_field(&r->mem, &old->node);
    return false;
}

struct cl_rnode *cl_rhash_find(struct cl_resp *r, const struct cl_rhash *h, struct cl_slice field)
{
    return cl_rdict_find(&h->dict, cl_rdict_hash(&r->secret, field), field);
}

bool cl_rhash_remove(struct cl_resp *r, struct cl_rhash *h, struct cl_slice field)
{
    struct cl_rnode **place = cl_rdict_place(&h->dict, cl_rdict_hash(&r->secret, field), field);
    if (!place)
        return false;
    free_field(&r->mem, cl_rdict_take(&r->mem, &h->dict, place, false));
    return true;
}
