/* See zset.h. */
#include "zset.h"

struct path {
    struct cl_rzlink *link[CL_RZ_LEVELS]; /* the last one before the place, by level */
    uint64_t rank[CL_RZ_LEVELS];          /* where its node stands, from 1; the head is 0 */
    struct cl_rznode *before;             /* node of level 0; NULL: the head */
};

int cl_slice_order(struct cl_slice a, struct cl_slice b)
{
    int c = memcmp(a.p, b.p, cl_min(a.len, b.len));
    return c ? c : a.len < b.len ? -1 : a.len > b.len;
}

static uint64_t node_bytes(uint32_t key_len, uint32_t levels)
{
    return sizeof(struct cl_rznode) + ((key_len + 7u) & ~7u) + levels * sizeof(struct cl_rzlink);
}
_Static_assert(offsetof(struct cl_rznode, key) % 8 == 0, "links behind the key are aligned");

struct cl_rzset *cl_rz_new(struct cl_rmem *m)
{
    struct cl_rzset *z = cl_rmem_zero(m, sizeof *z);
    cl_rdict_init(&z->dict, offsetof(struct cl_rznode, key));
    z->levels = 1;
    z->head[0].span = 1;
    return z;
}

static void free_node(struct cl_rmem *m, struct cl_rznode *n)
{
    cl_rmem_free(m, n, node_bytes(n->node.key_len, n->levels));
}

void cl_rz_free(struct cl_rmem *m, struct cl_rzset *z)
{
    CL_RDICT_EACH(&z->dict, n)
    free_node(m, (struct cl_rznode *)n);
    cl_rdict_end(m, &z->dict);
    cl_rmem_free(m, z, sizeof *z);
}

struct cl_rznode *cl_rz_find(struct cl_resp *r, const struct cl_rzset *z, struct cl_slice member)
{
    return (struct cl_rznode *)cl_rdict_find(&z->dict, cl_rdict_hash(&r->secret, member), member);
}

typedef bool (*before_fn)(const struct cl_rznode *n, const void *arg);

/* The way to the last node for which `before` holds; it holds for all before that one. */
static void seek(struct cl_rzset *z, before_fn before, const void *arg, struct path *path)
{
    struct cl_rzlink *links = z->head;
    struct cl_rznode *at = NULL;
    uint64_t rank = 0;
    path->rank[0] = 0; /* there is a level 0; a compiler does not know */
    for (int i = (int)z->levels - 1; i >= 0; i--) {
        while (links[i].next && before(links[i].next, arg)) {
            rank += links[i].span;
            at = links[i].next;
            links = cl_rz_links(at);
        }
        path->link[i] = &links[i];
        path->rank[i] = rank;
    }
    path->before = at;
}

struct place {
    double score;
    struct cl_slice member;
};

static bool before_place(const struct cl_rznode *n, const void *arg)
{
    const struct place *p = arg;
    return n->score < p->score || (n->score == p->score && cl_slice_order(cl_rz_member(n), p->member) < 0);
}

static uint32_t random_levels(struct cl_resp *r)
{
    uint32_t n = 1;
    for (uint64_t bits = cl_resp_random(r); n < CL_RZ_LEVELS && (bits & 3) == 0; bits >>= 2)
        n++;
    return n;
}

/* Put a node of z->dict into the skip list. */
static void link_in(struct cl_rzset *z, struct cl_rznode *n)
{
    struct path path;
    struct place place = {n->score, cl_rz_member(n)};
    struct cl_rzlink *links = cl_rz_links(n);
    uint64_t length = z->dict.count; /* with n */
    while (z->levels < n->levels)
        z->head[z->levels++] = (struct cl_rzlink){NULL, length};
    seek(z, before_place, &place, &path);
    uint64_t rank = path.rank[0] + 1;
    for (uint32_t i = 0; i < z->levels; i++) {
        if (i >= n->levels) {
            path.link[i]->span++;
            continue;
        }
        uint64_t passed = rank - path.rank[i];
        links[i] = (struct cl_rzlink){path.link[i]->next, path.link[i]->span + 1 - passed};
        *path.link[i] = (struct cl_rzlink){n, passed};
    }
    n->back = path.before;
    if (links[0].next)
        links[0].next->back = n;
    else
        z->last = n;
}

static void link_out(struct cl_rzset *z, struct cl_rznode *n)
{
    struct path path;
    struct place place = {n->score, cl_rz_member(n)};
    struct cl_rzlink *links = cl_rz_links(n);
    seek(z, before_place, &place, &path);
    for (uint32_t i = 0; i < z->levels; i++) {
        if (i < n->levels)
            *path.link[i] = (struct cl_rzlink){links[i].next, path.link[i]->span + links[i].span};
        path.link[i]->span--;
    }
    if (links[0].next)
        links[0].next->back = n->back;
    else
        z->last = n->back;
    while (z->levels > 1 && !z->head[z->levels - 1].next)
        z->levels--;
}

struct cl_rznode *cl_rz_add(struct cl_resp *r, struct cl_rzset *z, struct cl_slice member, double score)
{
    uint32_t levels = random_levels(r);
    struct cl_rznode *n = cl_rmem_new(&r->mem, node_bytes(member.len, levels));
    n->node = (struct cl_rnode){.hash = cl_rdict_hash(&r->secret, member), .key_len = member.len};
    n->score = score;
    n->levels = levels;
    memcpy(n->key, member.p, member.len);
    cl_rdict_add(&r->mem, &z->dict, &n->node);
    link_in(z, n);
    return n;
}

void cl_rz_move(struct cl_resp *r, struct cl_rzset *z, struct cl_rznode *n, double score)
{
    (void)r;
    struct cl_rznode *next = cl_rz_links(n)->next;
    bool stays = (!n->back || n->back->score < score) && (!next || score < next->score);
    if (stays) {
        n->score = score;
        return;
    }
    link_out(z, n);
    n->score = score;
    link_in(z, n);
}

void cl_rz_remove(struct cl_resp *r, struct cl_rzset *z, struct cl_rznode *n)
{
    link_out(z, n);
    cl_rdict_take(&r->mem, &z->dict, cl_rdict_place(&z->dict, n->node.hash, cl_rz_member(n)), false);
    free_node(&r->mem, n);
}

uint64_t cl_rz_rank(struct cl_rzset *z, struct cl_rznode *n)
{
    struct path path;
    struct place place = {n->score, cl_rz_member(n)};
    seek(z, before_place, &place, &path);
    return path.rank[0];
}

struct cl_rznode *cl_rz_at(struct cl_rzset *z, uint64_t rank)
{
    struct cl_rzlink *links = z->head;
    struct cl_rznode *at = NULL;
    uint64_t left = rank + 1;
    if (rank >= z->dict.count)
        return NULL;
    for (int i = (int)z->levels - 1; i >= 0 && left; i--)
        while (left && links[i].next && links[i].span <= left) {
            left -= links[i].span;
            at = links[i].next;
            links = cl_rz_links(at);
        }
    return at;
}

static bool below_min(const struct cl_rznode *n, const void *arg)
{
    const struct cl_rzrange *r = arg;
    if (!r->lex)
        return r->min_open ? n->score <= r->min : n->score < r->min;
    if (r->min_end)
        return r->min_end > 0;
    int c = cl_slice_order(cl_rz_member(n), r->min_text);
    return r->min_open ? c <= 0 : c < 0;
}

static bool not_above_max(const struct cl_rznode *n, const void *arg)
{
    const struct cl_rzrange *r = arg;
    if (!r->lex)
        return r->max_open ? n->score < r->max : n->score <= r->max;
    if (r->max_end)
        return r->max_end > 0;
    int c = cl_slice_order(cl_rz_member(n), r->max_text);
    return r->max_open ? c < 0 : c <= 0;
}

struct cl_rznode *cl_rz_first_in(struct cl_rzset *z, const struct cl_rzrange *range)
{
    struct path path;
    seek(z, below_min, range, &path);
    struct cl_rznode *n = cl_rz_next(z, path.before);
    return n && not_above_max(n, range) ? n : NULL;
}

struct cl_rznode *cl_rz_last_in(struct cl_rzset *z, const struct cl_rzrange *range)
{
    struct path path;
    seek(z, not_above_max, range, &path);
    return path.before && !below_min(path.before, range) ? path.before : NULL;
}
