/* See memory.h. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 64
#define SPARE_MOST 16 /* empty spans that are kept: 1 MiB */

struct free_block {
    struct free_block *next;
};

/* At the start of its 64 KiB. */
struct cl_rmem_span {
    struct cl_rmem_span *next, *prev; /* in `partial` or `spare` */
    struct free_block *free;
    uint32_t in_use; /* blocks */
    uint32_t unused; /* offset of what was never given out */
    uint32_t bytes;  /* of a block */
    uint32_t listed; /* in `partial` */
};
_Static_assert(sizeof(struct cl_rmem_span) <= HEADER_BYTES, "the header of a span");

/* 16 to 128 in steps of 16, then four classes for each doubling. */
static unsigned class_of(uint64_t n, uint32_t *bytes)
{
    if (n <= 128) {
        unsigned k = n ? (unsigned)((n - 1) / 16) : 0;
        *bytes = (k + 1) * 16;
        return k;
    }
    unsigned log = 63 - (unsigned)__builtin_clzll(n - 1); /* 7 for 129 to 256 */
    uint64_t step = 1ull << (log - 2), part = (n - 1 - (1ull << log)) / step;
    *bytes = (uint32_t)((1ull << log) + (part + 1) * step);
    return 8 + (log - 7) * 4 + (unsigned)part;
}

static uint64_t large_bytes(uint64_t n)
{
    return (n + 31) & ~15ull; /* malloc's own word, and its rounding */
}

uint64_t cl_rmem_round(uint64_t n)
{
    uint32_t bytes;
    if (n > CL_RMEM_LARGE)
        return large_bytes(n) - 16;
    class_of(n, &bytes);
    return bytes;
}

static void unlist(struct cl_rmem *m, unsigned k, struct cl_rmem_span *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        m->partial[k] = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->listed = 0;
}

static void list(struct cl_rmem *m, unsigned k, struct cl_rmem_span *s)
{
    s->prev = NULL;
    s->next = m->partial[k];
    if (s->next)
        s->next->prev = s;
    m->partial[k] = s;
    s->listed = 1;
}

static struct cl_rmem_span *new_span(struct cl_rmem *m, uint32_t bytes)
{
    struct cl_rmem_span *s = m->spare;
    if (s) {
        m->spare = s->next;
        m->n_spare--;
    } else {
        s = aligned_alloc(CL_RMEM_SPAN_BYTES, CL_RMEM_SPAN_BYTES);
        if (!s)
            __builtin_trap();
        m->spans += CL_RMEM_SPAN_BYTES;
    }
    *s = (struct cl_rmem_span){.unused = HEADER_BYTES, .bytes = bytes};
    return s;
}

static void *new_small(struct cl_rmem *m, uint64_t n)
{
    uint32_t bytes;
    unsigned k = class_of(n, &bytes);
    struct cl_rmem_span *s = m->partial[k];
    if (cl_unlikely(!s)) {
        s = new_span(m, bytes);
        list(m, k, s);
    }
    void *p = s->free;
    if (p) {
        s->free = s->free->next;
    } else {
        p = (uint8_t *)s + s->unused;
        s->unused += bytes;
    }
    s->in_use++;
    if (!s->free && s->unused + bytes > CL_RMEM_SPAN_BYTES)
        unlist(m, k, s);
    m->used += bytes;
    return p;
}

static void free_small(struct cl_rmem *m, void *p, uint64_t n)
{
    uint32_t bytes;
    unsigned k = class_of(n, &bytes);
    struct cl_rmem_span *s = (struct cl_rmem_span *)((uintptr_t)p & ~(uintptr_t)(CL_RMEM_SPAN_BYTES - 1));
    struct free_block *block = p;
    block->next = s->free;
    s->free = block;
    m->used -= bytes;
    if (!s->listed)
        list(m, k, s);
    if (--s->in_use)
        return;
    unlist(m, k, s);
    if (m->n_spare < SPARE_MOST) {
        s->next = m->spare;
        m->spare = s;
        m->n_spare++;
    } else {
        m->spans -= CL_RMEM_SPAN_BYTES;
        free(s);
    }
}

void *cl_rmem_new(struct cl_rmem *m, uint64_t n)
{
    void *p;
    if (cl_likely(n <= CL_RMEM_LARGE)) {
        p = new_small(m, n);
    } else {
        p = malloc(large_bytes(n) - 16);
        if (!p)
            __builtin_trap();
        m->used += large_bytes(n);
        m->large += large_bytes(n);
    }
    m->peak = cl_max(m->peak, m->used);
    return p;
}

void *cl_rmem_zero(struct cl_rmem *m, uint64_t n)
{
    return memset(cl_rmem_new(m, n), 0, n);
}

void cl_rmem_free(struct cl_rmem *m, void *p, uint64_t n)
{
    if (!p)
        return;
    if (cl_likely(n <= CL_RMEM_LARGE)) {
        free_small(m, p, n);
        return;
    }
    m->used -= large_bytes(n);
    m->large -= large_bytes(n);
    free(p);
}

void *cl_rmem_resize(struct cl_rmem *m, void *p, uint64_t was, uint64_t n)
{
    if (p && cl_rmem_round(was) == cl_rmem_round(n))
        return p;
    if (p && was > CL_RMEM_LARGE && n > CL_RMEM_LARGE) {
        void *to = realloc(p, large_bytes(n) - 16);
        if (!to)
            __builtin_trap();
        m->used += large_bytes(n) - large_bytes(was);
        m->large += large_bytes(n) - large_bytes(was);
        m->peak = cl_max(m->peak, m->used);
        return to;
    }
    void *to = cl_rmem_new(m, n);
    if (p)
        memcpy(to, p, cl_min(was, n));
    cl_rmem_free(m, p, was);
    return to;
}

void cl_rmem_end(struct cl_rmem *m)
{
    for (struct cl_rmem_span *s = m->spare, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    *m = (struct cl_rmem){0};
}
