/* See cache.h. */
#include "cache.h"

#include <stdlib.h>
#include <string.h>

int cl_blk_cache_init(struct cl_blk_cache *c, struct cl_blk *inner, struct cl_blk_fault_counts *counts)
{
    *c = (struct cl_blk_cache){.inner = inner,
                               .piece_bytes = inner->atomic_bytes,
                               .left = UINT64_MAX,
                               .counts = counts,
                               .scratch = aligned_alloc(inner->block_bytes, inner->block_bytes)};
    return c->scratch ? 0 : -ENOMEM;
}

void cl_blk_cache_fini(struct cl_blk_cache *c)
{
    for (struct cl_blk_dirty *d = c->first, *next; d; d = next) {
        next = d->next;
        free(d->data);
        free(d);
    }
    for (unsigned i = 0; i < CL_BLK_CACHE_CLASSES; i++)
        for (struct cl_blk_dirty *d = c->free[i], *next; d; d = next) {
            next = d->next;
            free(d->data);
            free(d);
        }
    free(c->scratch);
}

static unsigned class_of(uint32_t bytes)
{
    return bytes <= 1 ? 0 : 32 - (unsigned)__builtin_clz(bytes - 1);
}

static uint32_t words_of(const struct cl_blk_cache *c, uint32_t bytes)
{
    return (bytes / c->piece_bytes + 63) / 64;
}

struct cl_blk_dirty *cl_blk_cache_copy(struct cl_blk_cache *c, uint64_t offset, const void *data, uint32_t bytes)
{
    unsigned class = class_of(cl_max(bytes, c->inner->block_bytes));
    struct cl_blk_dirty *d = c->free[class];
    if (d) {
        c->free[class] = d->next;
    } else {
        uint32_t capacity = 1u << class;
        d = calloc(1, sizeof(*d) + 8ull * words_of(c, capacity));
        if (!d || !(d->data = aligned_alloc(c->inner->block_bytes, capacity))) {
            free(d);
            return NULL;
        }
        d->capacity = capacity;
        d->gone = (uint64_t *)(d + 1);
    }
    d->next = d->prev = NULL;
    d->offset = offset;
    d->bytes = bytes;
    d->done = 0;
    d->orphan = false;
    memset(d->gone, 0, 8ull * words_of(c, bytes));
    memcpy(d->data, data, bytes);
    return d;
}

void cl_blk_cache_free(struct cl_blk_cache *c, struct cl_blk_dirty *d)
{
    unsigned class = class_of(d->capacity);
    d->next = c->free[class];
    c->free[class] = d;
}

static bool is_gone(const struct cl_blk_dirty *d, uint32_t piece)
{
    return d->gone[piece / 64] >> (piece % 64) & 1;
}

static void set_gone(struct cl_blk_dirty *d, uint32_t piece)
{
    d->gone[piece / 64] |= 1ull << (piece % 64);
}

uint64_t cl_blk_cache_pieces(const struct cl_blk_cache *c, const struct cl_blk_dirty *d)
{
    uint64_t gone = 0;
    for (uint32_t i = 0; i < words_of(c, d->bytes); i++)
        gone += (uint64_t)__builtin_popcountll(d->gone[i]);
    return d->bytes / c->piece_bytes - gone;
}

void cl_blk_cache_add(struct cl_blk_cache *c, struct cl_blk_dirty *d)
{
    d->done = ++c->n_done;
    d->prev = c->last;
    d->next = NULL;
    if (c->last)
        c->last->next = d;
    else
        c->first = d;
    c->last = d;
    c->bytes += d->bytes;
    c->counts->pieces_cached += cl_blk_cache_pieces(c, d);
}

static void take_out(struct cl_blk_cache *c, struct cl_blk_dirty *d)
{
    *(d->prev ? &d->prev->next : &c->first) = d->next;
    *(d->next ? &d->next->prev : &c->last) = d->prev;
    c->bytes -= d->bytes;
    c->counts->pieces_cached -= cl_blk_cache_pieces(c, d);
}

/* Copy the pieces that are there from the write to `to`, which holds the bytes of the device from `offset` on. */
static void copy_pieces(const struct cl_blk_cache *c, const struct cl_blk_dirty *d, uint64_t offset, uint8_t *to,
                        uint32_t bytes)
{
    uint64_t from = cl_max(offset, d->offset), end = cl_min(offset + bytes, d->offset + d->bytes);
    for (uint64_t at = from; at < end; at += c->piece_bytes)
        if (!is_gone(d, (uint32_t)((at - d->offset) / c->piece_bytes)))
            memcpy(to + (at - offset), d->data + (at - d->offset), c->piece_bytes);
}

/* The wrapped device takes whole blocks: what is missing of them is read first. */
static int store_in_parts(struct cl_blk_cache *c, unsigned queue, struct cl_blk_dirty *d, unsigned flags)
{
    uint32_t block = c->inner->block_bytes, per_block = block / c->piece_bytes;
    for (uint32_t at = 0; at < d->bytes; at += block) {
        uint32_t first = at / c->piece_bytes, here = 0;
        for (uint32_t i = 0; i < per_block; i++)
            here += !is_gone(d, first + i);
        if (!here)
            continue;
        int rc = cl_blk_read(c->inner, queue, d->offset + at, c->scratch, block);
        copy_pieces(c, d, d->offset + at, c->scratch, block);
        rc = rc ? rc : cl_blk_write(c->inner, queue, d->offset + at, c->scratch, block, flags);
        if (rc)
            return rc;
    }
    return 0;
}

/* Of the pieces that are there keep the first n. */
static void keep_first(const struct cl_blk_cache *c, struct cl_blk_dirty *d, uint64_t n)
{
    for (uint32_t i = 0; i < d->bytes / c->piece_bytes; i++)
        if (!is_gone(d, i) && (n == 0 || n-- == 0))
            set_gone(d, i);
}

int cl_blk_cache_store(struct cl_blk_cache *c, unsigned queue, struct cl_blk_dirty *d, unsigned flags)
{
    uint64_t pieces = cl_blk_cache_pieces(c, d), wanted = pieces;
    if (c->left != UINT64_MAX) {
        if (pieces > c->left)
            keep_first(c, d, pieces = c->left);
        c->left -= pieces;
    }
    bool whole = pieces == d->bytes / c->piece_bytes;
    int rc = 0;
    if (pieces)
        rc = whole ? cl_blk_write(c->inner, queue, d->offset, d->data, d->bytes, flags)
                   : store_in_parts(c, queue, d, flags);
    if (rc)
        pieces = 0; /* as far as anybody knows */
    c->counts->pieces_stored += pieces;
    c->counts->pieces_lost += wanted - pieces;
    cl_blk_cache_free(c, d);
    return rc ? rc : pieces < wanted ? -EIO : 0;
}

/* Returns whether nothing is left of it. */
static bool supersede_one(struct cl_blk_cache *c, struct cl_blk_dirty *d, const struct cl_blk_dirty *by)
{
    uint64_t from = cl_max(by->offset, d->offset), end = cl_min(by->offset + by->bytes, d->offset + d->bytes), n = 0;
    for (uint64_t at = from; at < end; at += c->piece_bytes) {
        uint32_t i = (uint32_t)((at - d->offset) / c->piece_bytes);
        if (is_gone(d, i) || is_gone(by, (uint32_t)((at - by->offset) / c->piece_bytes)))
            continue;
        set_gone(d, i);
        n++;
    }
    c->counts->pieces_superseded += n;
    c->counts->pieces_cached -= n;
    return n && cl_blk_cache_pieces(c, d) == 0;
}

void cl_blk_cache_supersede(struct cl_blk_cache *c, const struct cl_blk_dirty *by, uint64_t upto)
{
    for (struct cl_blk_dirty *d = c->first, *next; d && d->done <= upto; d = next) {
        next = d->next;
        if (supersede_one(c, d, by)) {
            take_out(c, d);
            cl_blk_cache_free(c, d);
        }
    }
}

/* Store a write of the list. Orphans before it are seen by reads, but no more where this one wrote over them. */
static int store_cached(struct cl_blk_cache *c, unsigned queue, struct cl_blk_dirty *d)
{
    take_out(c, d);
    cl_blk_cache_supersede(c, d, d->done - 1);
    return cl_blk_cache_store(c, queue, d, 0);
}

void cl_blk_cache_overlay(const struct cl_blk_cache *c, uint64_t offset, void *buf, uint32_t bytes)
{
    for (const struct cl_blk_dirty *d = c->first; d; d = d->next)
        copy_pieces(c, d, offset, buf, bytes);
}

int cl_blk_cache_flush(struct cl_blk_cache *c, unsigned queue, uint64_t upto)
{
    int rc = 0;
    for (struct cl_blk_dirty *d = c->first, *next; d && d->done <= upto && !rc; d = next) {
        next = d->next;
        if (d->orphan)
            continue;
        rc = store_cached(c, queue, d);
    }
    return rc ? rc : cl_blk_flush(c->inner, queue);
}

void cl_blk_cache_flush_badly(struct cl_blk_cache *c, unsigned queue, uint64_t upto, struct cl_random *random)
{
    for (struct cl_blk_dirty *d = c->first, *next; d && d->done <= upto; d = next) {
        next = d->next;
        if (d->orphan || cl_random_next(random) & 1) {
            d->orphan = true;
            continue;
        }
        (void)store_cached(c, queue, d); /* an error more changes nothing */
    }
}

int cl_blk_cache_shrink(struct cl_blk_cache *c, unsigned queue, uint64_t bytes)
{
    for (struct cl_blk_dirty *d = c->first, *next; d && c->bytes > bytes; d = next) {
        next = d->next;
        if (d->orphan)
            continue;
        int rc = store_cached(c, queue, d);
        if (rc)
            return rc;
    }
    return 0;
}

void cl_blk_cache_tear(const struct cl_blk_cache *c, struct cl_blk_dirty *d, struct cl_random *random)
{
    uint32_t n = d->bytes / c->piece_bytes;
    uint64_t how = cl_random_below(random, 3), at = cl_random_below(random, n);
    for (uint32_t i = 0; i < n; i++)
        if (how == 0 ? i >= at : how == 1 ? i <= at : cl_random_next(random) & 1)
            set_gone(d, i);
}

void cl_blk_cache_crash_one(struct cl_blk_cache *c, struct cl_blk_dirty *d, const struct cl_blk_fault_config *config,
                            struct cl_random *random)
{
    uint64_t before = cl_blk_cache_pieces(c, d);
    bool survives = cl_random_unit(random) <= config->survive && !d->orphan;
    if (survives && cl_random_unit(random) <= config->torn)
        cl_blk_cache_tear(c, d, random);
    uint64_t after = survives ? cl_blk_cache_pieces(c, d) : 0;
    c->counts->pieces_lost += before - after;
    if (survives)
        (void)cl_blk_cache_store(c, 0, d, 0); /* counted as lost if the wrapped device refuses it */
    else
        cl_blk_cache_free(c, d);
}

void cl_blk_cache_crash(struct cl_blk_cache *c, const struct cl_blk_fault_config *config, struct cl_random *random)
{
    while (c->first) {
        struct cl_blk_dirty *d = c->first;
        take_out(c, d);
        cl_blk_cache_crash_one(c, d, config, random);
    }
}
