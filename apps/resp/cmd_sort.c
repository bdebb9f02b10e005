/* SORT and SORT_RO: elements of a list, set or sorted set by their value or by other keys'. */
#include "bytes.h"
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "list.h"
#include "number.h"
#include "propagate.h"
#include "reply.h"
#include "set.h"
#include "value.h"
#include "zset.h"

#include <stdlib.h>

#define STORED_MOST 1024 /* elements that one command names */

struct element {
    struct cl_slice value;
    struct cl_slice by; /* with ALPHA and BY: what it is compared by; p NULL: there is none */
    double score;
    char text[24]; /* of `by`, if it is an integer */
};

struct sort {
    struct cl_resp_client *c;
    bool alpha, reverse, by, as_is;
    struct cl_slice by_pattern;
    int64_t offset, count;
    uint32_t n_get, get[64]; /* arguments that are patterns of GET */
    uint32_t store;          /* the argument; 0: none */
    struct element *elements;
    uint64_t n;
};

static bool options(struct cl_resp_client *c, bool read_only, struct sort *s)
{
    s->count = -1;
    for (uint32_t i = 2; i < c->argc; i++) {
        uint32_t left = c->argc - i - 1;
        if (ARG_IS(c, i, "asc")) {
            s->reverse = false;
        } else if (ARG_IS(c, i, "desc")) {
            s->reverse = true;
        } else if (ARG_IS(c, i, "alpha")) {
            s->alpha = true;
        } else if (ARG_IS(c, i, "limit") && left >= 2) {
            if (!cl_arg_int(c, i + 1, &s->offset) || !cl_arg_int(c, i + 2, &s->count))
                return false;
            i += 2;
        } else if (!read_only && ARG_IS(c, i, "store") && left >= 1) {
            s->store = ++i;
        } else if (ARG_IS(c, i, "by") && left >= 1) {
            s->by_pattern = ARG(c, ++i);
            s->by = memchr(s->by_pattern.p, '*', s->by_pattern.len) != NULL;
            s->as_is = !s->by;
        } else if (ARG_IS(c, i, "get") && left >= 1 && s->n_get < sizeof s->get / sizeof s->get[0]) {
            s->get[s->n_get++] = ++i;
        } else {
            return cl_reply_syntax(c), false;
        }
    }
    return true;
}

/* What a pattern gives for an element: '#' is the element; '*' in a key's name is it; "key->field" a hash's field. */
static struct cl_slice looked_up(struct cl_resp_client *c, struct cl_slice pattern, struct cl_slice element,
                                 char text[24])
{
    static const struct cl_slice none = {NULL, 0};
    struct cl_slice key, field = none, found = none;
    if (pattern.len == 1 && pattern.p[0] == '#')
        return element;
    const uint8_t *star = memchr(pattern.p, '*', pattern.len), *end = pattern.p + pattern.len;
    if (!star)
        return none;
    const uint8_t *arrow = memmem(star, (size_t)(end - star), "->", 2);
    if (arrow && arrow + 2 < end) {
        field = (struct cl_slice){arrow + 2, (uint32_t)(end - arrow - 2)};
        end = arrow;
    }
    uint32_t before = (uint32_t)(star - pattern.p), behind = (uint32_t)(end - star - 1);
    uint64_t bytes = (uint64_t)before + element.len + behind + 1;
    uint8_t *name = cl_rmem_new(&c->r->mem, bytes);
    memcpy(name, pattern.p, before);
    memcpy(name + before, element.p, element.len);
    memcpy(name + before + element.len, star + 1, behind);
    key = (struct cl_slice){name, (uint32_t)bytes - 1};
    struct cl_entry *e = cl_rdb_read(c, key);
    struct cl_rnode *n = e && field.p && e->type == CL_R_HASH ? cl_rhash_find(c->r, e->hash, field) : NULL;
    if (n)
        found = cl_rfield_value(n);
    else if (e && !field.p && e->type == CL_R_STRING)
        found = cl_rvalue_text(e, text);
    cl_rmem_free(&c->r->mem, name, bytes);
    return found;
}

static void gather(struct sort *s, const struct cl_entry *e)
{
    struct element *to = s->elements;
    if (e->type == CL_R_LIST) {
        bool back = s->as_is && s->reverse;
        for (struct cl_rlist_at at = cl_rlist_at(e->list, back ? -1 : 0); at.node; at = cl_rlist_step(at, !back))
            (to++)->value = cl_bytes_slice(cl_rlist_get(at));
    } else if (e->type == CL_R_SET) {
        CL_RDICT_EACH(&e->set->dict, n)
        (to++)->value = cl_rmember_key(n);
    } else {
        struct cl_rzset *z = e->zset;
        for (struct cl_rznode *n = s->reverse ? z->last : cl_rz_next(z, NULL); n;
             n = s->reverse ? n->back : cl_rz_next(z, n))
            (to++)->value = cl_rz_member(n);
    }
}

/* What each is compared by. False: a number is none, which was answered. */
static bool weigh(struct sort *s)
{
    for (uint64_t i = 0; i < s->n; i++) {
        struct element *e = &s->elements[i];
        e->by = s->by ? looked_up(s->c, s->by_pattern, e->value, e->text) : e->value;
        if (s->alpha || !e->by.p)
            continue;
        if (!cl_rnum_double(e->by, &e->score)) {
            cl_reply_error(s->c, "ERR One or more scores can't be converted into double");
            return false;
        }
    }
    return true;
}

static int order(const void *a, const void *b, void *arg)
{
    const struct element *x = a, *y = b;
    const struct sort *s = arg;
    int c;
    if (!s->alpha)
        c = x->score < y->score ? -1 : x->score > y->score ? 1 : cl_slice_order(x->value, y->value);
    else if (!x->by.p || !y->by.p)
        c = (x->by.p != NULL) - (y->by.p != NULL);
    else
        c = cl_slice_order(x->by, y->by);
    return s->reverse ? -c : c;
}

static uint64_t count_of(const struct cl_entry *e)
{
    return e->type == CL_R_LIST ? e->list->count : e->type == CL_R_SET ? e->set->dict.count : e->zset->dict.count;
}

/* The elements of the answer: from first on. */
static uint64_t clipped(const struct sort *s, uint64_t *first)
{
    int64_t n = (int64_t)s->n, from = cl_min(cl_max(s->offset, (int64_t)0), n);
    int64_t to = s->count < 0 ? n : cl_min(s->count, n - from) + from;
    *first = (uint64_t)from;
    return (uint64_t)(to - from);
}

static void reply_all(struct sort *s, uint64_t first, uint64_t n)
{
    char text[24];
    cl_reply_array(s->c, (int64_t)(n * cl_max(s->n_get, 1u)));
    for (uint64_t i = first; i < first + n; i++) {
        if (!s->n_get)
            cl_reply_slice(s->c, s->elements[i].value);
        for (uint32_t k = 0; k < s->n_get; k++) {
            struct cl_slice v = looked_up(s->c, ARG(s->c, s->get[k]), s->elements[i].value, text);
            if (v.p)
                cl_reply_slice(s->c, v);
            else
                cl_reply_null(s->c);
        }
    }
}

/* What was stored, in the order that it has: that depends on other keys, and may on how a table lies. */
static void say_stored(struct cl_resp_client *c, struct cl_slice key, const struct cl_rlist *l, bool was)
{
    struct cl_rlist_at at = cl_rlist_at(l, 0);
    if (!cl_rprop_on(c->r))
        return;
    cl_rprop_instead(c);
    if (was || !l->count)
        cl_rprop_gone(c->r, c->db, key);
    for (uint64_t i = 0; i < l->count; i++, at = cl_rlist_step(at, true)) {
        if (i % STORED_MOST == 0) {
            cl_rprop_begin(c->r, c->db, 2 + (uint32_t)cl_min(l->count - i, (uint64_t)STORED_MOST));
            cl_rprop_text(c->r, "RPUSH");
            cl_rprop_arg(c->r, key);
        }
        cl_rprop_arg(c->r, cl_bytes_slice(cl_rlist_get(at)));
    }
}

static void store_all(struct sort *s, uint64_t first, uint64_t n)
{
    struct cl_resp_client *c = s->c;
    struct cl_slice key = ARG(c, s->store);
    struct cl_rlist *l = cl_rlist_new(&c->r->mem);
    char text[24];
    for (uint64_t i = first; i < first + n; i++) {
        if (!s->n_get)
            cl_rlist_push(&c->r->mem, l, s->elements[i].value, false);
        for (uint32_t k = 0; k < s->n_get; k++) {
            struct cl_slice v = looked_up(c, ARG(c, s->get[k]), s->elements[i].value, text);
            cl_rlist_push(&c->r->mem, l, v, false);
        }
    }
    int64_t count = (int64_t)l->count;
    struct cl_entry *e = cl_rdb_write(c, key);
    if (count || e)
        say_stored(c, key, l, e != NULL);
    if (!count) {
        cl_rlist_free(&c->r->mem, l);
        if (e)
            cl_rdb_delete(c, e);
    } else {
        cl_rdb_replace(c, e, key, CL_R_LIST)->list = l;
        cl_rdb_ready(c, key);
        cl_rdb_wrote(c, CL_RN_LIST, "sortstore", key, (uint64_t)count);
    }
    cl_reply_int(c, count);
}

static void run(struct sort *s)
{
    uint64_t first, n;
    if (!s->as_is) {
        if (!weigh(s))
            return;
        qsort_r(s->elements, s->n, sizeof *s->elements, order, s);
    }
    n = clipped(s, &first);
    if (s->store)
        store_all(s, first, n);
    else
        reply_all(s, first, n);
}

static void sort(struct cl_resp_client *c, bool read_only)
{
    struct sort s = {.c = c};
    if (!options(c, read_only, &s))
        return;
    struct cl_entry *e = cl_rdb_read(c, ARG(c, 1));
    if (e && e->type != CL_R_LIST && e->type != CL_R_SET && e->type != CL_R_ZSET) {
        cl_reply_wrong_type(c);
        return;
    }
    s.n = e ? count_of(e) : 0;
    uint64_t bytes = s.n * sizeof *s.elements + 1;
    if (c->r->mem.used + 2 * bytes > cl_resp_limit(c->r)) {
        cl_evict_refuse(c); /* evicting might remove the source */
        return;
    }
    if (s.as_is && s.store && e &&
        e->type == CL_R_SET) { /* a set has no order of its own, and what is stored has one */
        s.as_is = false;
        s.alpha = true;
    }
    s.elements = cl_rmem_zero(&c->r->mem, bytes);
    if (e)
        gather(&s, e);
    run(&s);
    cl_rmem_free(&c->r->mem, s.elements, bytes);
}

void cl_cmd_sort(struct cl_resp_client *c)
{
    sort(c, false);
}

void cl_cmd_sort_ro(struct cl_resp_client *c)
{
    sort(c, true);
}
