/* See dict.h. */
#include "dict.h"

#define LEAST 4u

static struct cl_rnode **slot(const struct cl_rdict *d, uint32_t i)
{
    if (i < CL_RDICT_SEGMENT)
        return &d->first[i];
    return &d->more[i / CL_RDICT_SEGMENT - 1][i % CL_RDICT_SEGMENT];
}

static unsigned level(uint32_t buckets)
{
    return 31 - (unsigned)__builtin_clz(buckets);
}

static uint32_t index_of(const struct cl_rdict *d, uint32_t hash)
{
    uint32_t low = 1u << level(d->buckets), i = hash & (2 * low - 1);
    return i < d->buckets ? i : i - low;
}

void cl_rdict_init(struct cl_rdict *d, uint32_t key_at)
{
    *d = (struct cl_rdict){.key_at = key_at};
}

void cl_rdict_end(struct cl_rmem *m, struct cl_rdict *d)
{
    uint32_t segments = d->buckets ? (d->buckets - 1) / CL_RDICT_SEGMENT : 0;
    for (uint32_t i = 0; i < segments; i++)
        cl_rmem_free(m, d->more[i], CL_RDICT_SEGMENT * sizeof **d->more);
    cl_rmem_free(m, d->more, d->more_room * sizeof *d->more);
    cl_rmem_free(m, d->first, d->first_room * sizeof *d->first);
    cl_rdict_init(d, d->key_at);
}

/* Room for bucket d->buckets. */
static void make_room(struct cl_rmem *m, struct cl_rdict *d)
{
    uint32_t n = d->buckets, segment = n / CL_RDICT_SEGMENT;
    if (n < CL_RDICT_SEGMENT) {
        if (n < d->first_room)
            return;
        uint32_t room = cl_max(2 * d->first_room, LEAST);
        d->first = cl_rmem_resize(m, d->first, d->first_room * sizeof *d->first, room * sizeof *d->first);
        d->first_room = room;
        return;
    }
    if (n % CL_RDICT_SEGMENT)
        return;
    if (segment > d->more_room) {
        uint32_t room = cl_max(2 * d->more_room, 4u);
        d->more = cl_rmem_resize(m, d->more, d->more_room * sizeof *d->more, room * sizeof *d->more);
        d->more_room = room;
    }
    d->more[segment - 1] = cl_rmem_new(m, CL_RDICT_SEGMENT * sizeof **d->more);
}

/* One bucket more: it takes its part of the one that had both. */
static void split(struct cl_rmem *m, struct cl_rdict *d)
{
    make_room(m, d);
    uint32_t n = d->buckets++, low = 1u << level(n);
    struct cl_rnode **from = slot(d, n - low), **to = slot(d, n);
    while (*from) {
        struct cl_rnode *node = *from;
        if ((node->hash & (2 * low - 1)) == n) {
            *from = node->next;
            *to = node;
            to = &node->next;
        } else {
            from = &node->next;
        }
    }
    *to = NULL;
}

/* One bucket less. */
static void merge(struct cl_rmem *m, struct cl_rdict *d)
{
    uint32_t n = --d->buckets, low = 1u << level(n);
    struct cl_rnode **to = slot(d, n - low);
    while (*to)
        to = &(*to)->next;
    *to = *slot(d, n);
    if (n >= CL_RDICT_SEGMENT && n % CL_RDICT_SEGMENT == 0)
        cl_rmem_free(m, d->more[n / CL_RDICT_SEGMENT - 1], CL_RDICT_SEGMENT * sizeof **d->more);
}

struct cl_rnode **cl_rdict_place(const struct cl_rdict *d, uint32_t hash, struct cl_slice key)
{
    if (!d->count)
        return NULL;
    for (struct cl_rnode **at = slot(d, index_of(d, hash)); *at; at = &(*at)->next)
        if ((*at)->hash == hash && (*at)->key_len == key.len &&
            memcmp((const uint8_t *)*at + d->key_at, key.p, key.len) == 0)
            return at;
    return NULL;
}

struct cl_rnode *cl_rdict_find(const struct cl_rdict *d, uint32_t hash, struct cl_slice key)
{
    struct cl_rnode **at = cl_rdict_place(d, hash, key);
    return at ? *at : NULL;
}

void cl_rdict_add(struct cl_rmem *m, struct cl_rdict *d, struct cl_rnode *node)
{
    if (cl_unlikely(!d->buckets)) {
        make_room(m, d);
        memset(d->first, 0, LEAST * sizeof *d->first);
        d->buckets = LEAST;
    } else if (d->count >= d->buckets) {
        split(m, d);
    }
    struct cl_rnode **at = slot(d, index_of(d, node->hash));
    node->next = *at;
    *at = node;
    d->count++;
}

void cl_rdict_shrink(struct cl_rmem *m, struct cl_rdict *d)
{
    if (!d->count && d->buckets) {
        cl_rdict_end(m, d);
        return;
    }
    while (d->buckets > LEAST && d->count < d->buckets / 4)
        merge(m, d);
}

struct cl_rnode *cl_rdict_take(struct cl_rmem *m, struct cl_rdict *d, struct cl_rnode **place, bool keep)
{
    struct cl_rnode *node = *place;
    *place = node->next;
    d->count--;
    if (!keep)
        cl_rdict_shrink(m, d);
    return node;
}

struct cl_rnode *cl_rdict_bucket(const struct cl_rdict *d, uint32_t i)
{
    return *slot(d, i);
}

static uint32_t reversed(uint32_t v)
{
    v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
    v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(v);
}

struct cl_rnode *cl_rdict_scan(const struct cl_rdict *d, uint64_t *cursor)
{
    if (!d->buckets) {
        *cursor = 0;
        return NULL;
    }
    uint32_t at = (uint32_t)*cursor, i = index_of(d, reversed(at)), low = 1u << level(d->buckets);
    unsigned depth = level(d->buckets) + (i < d->buckets - low || i >= low);
    uint64_t width = 1ull << (32 - depth), next = (at & ~(width - 1)) + width;
    *cursor = next >> 32 ? 0 : next;
    return *slot(d, i);
}

#define FAIR_CHAIN                                                                                                     \
    8 /* places that each bucket is taken to have; longer chains are rare, and their nodes a little too */

/* A place of a bucket is drawn, and drawn again while nobody is there: so the nodes of short chains are not
 * preferred. */
struct cl_rnode *cl_rdict_random(const struct cl_rdict *d, uint64_t (*random)(void *arg), void *arg)
{
    if (!d->count)
        return NULL;
    for (;;) {
        struct cl_rnode *n = *slot(d, (uint32_t)(random(arg) % d->buckets));
        uint32_t len = 0;
        for (struct cl_rnode *at = n; at; at = at->next)
            len++;
        uint32_t k = (uint32_t)(random(arg) % cl_max(len, (uint32_t)FAIR_CHAIN));
        if (k >= len)
            continue;
        for (; k; k--)
            n = n->next;
        return n;
    }
}

uint64_t cl_rdict_bytes(const struct cl_rdict *d)
{
    uint32_t segments = d->buckets ? (d->buckets - 1) / CL_RDICT_SEGMENT : 0;
    return (d->first_room + (uint64_t)segments * CL_RDICT_SEGMENT + d->more_room) * sizeof(void *);
}
