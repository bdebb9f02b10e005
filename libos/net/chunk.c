/* See chunk.h. */
#include "chunk.h"

#include "../../runtime/ahead.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct counts {
    uint64_t taken, given, refused; /* chunks; refused: chains that could not be made */
};

struct cl_chunks {
    struct cl_pool *pool;
    struct cl_chunk *all; /* by index */
    struct cl_ahead ahead;
    uint64_t bytes;
    unsigned n_kthreads;
    struct counts (*counts)[CL_CHUNKS_HOLDERS]; /* by kthread */
};

struct cl_chunks *cl_chunks_new(uint64_t bytes, unsigned n_kthreads)
{
    struct cl_chunks *c = calloc(1, sizeof *c);
    uint64_t n = bytes / CL_CHUNK_BYTES;
    if (!c)
        return NULL;
    c->n_kthreads = n_kthreads;
    c->counts = calloc(n_kthreads, sizeof *c->counts);
    c->pool = n <= UINT32_MAX ? cl_pool_new(0, (uint32_t)n, n_kthreads) : NULL;
    void *all =
        n ? mmap(NULL, n * CL_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
          : NULL;
    if (all != MAP_FAILED) {
        c->all = all;
        c->bytes = n * CL_CHUNK_BYTES;
    }
    if (c->counts && c->pool && all != MAP_FAILED) {
        c->ahead = (struct cl_ahead){
            .pool = c->pool, .base = all, .item_bytes = CL_CHUNK_BYTES, .ahead = (uint32_t)(n / CL_CHUNKS_AHEAD)};
        return c;
    }
    cl_chunks_delete(c);
    return NULL;
}

void cl_chunks_delete(struct cl_chunks *c)
{
    if (!c)
        return;
    if (c->all)
        munmap(c->all, c->bytes);
    cl_pool_delete(c->pool);
    free(c->counts);
    free(c);
}

uint32_t cl_chunk_number(const struct cl_chunks *c, const struct cl_chunk *chunk)
{
    return (uint32_t)(chunk - c->all);
}

struct cl_chunk *cl_chunk_of(const struct cl_chunks *c, uint32_t number)
{
    return &c->all[number];
}

void cl_chunks_free(struct cl_chunks *c, unsigned kthread, unsigned holder, struct cl_chunk *chain)
{
    uint64_t n = 0;
    for (; chain; n++) {
        struct cl_chunk *next = chain->next;
        uint32_t index = cl_chunk_number(c, chain);
        if (cl_unlikely(cl_chunk_is_foreign(chain)))
            cl_chunk_owner(chain)->done(cl_chunk_owner(chain), kthread);
        cl_pool_put_one(c->pool, kthread, index);
        chain = next;
    }
    cl_count(&c->counts[kthread][holder].given, n);
}

struct cl_chunk *cl_chunks_get(struct cl_chunks *c, unsigned kthread, unsigned holder)
{
    struct counts *counts = &c->counts[kthread][holder];
    uint32_t index;
    if (!cl_pool_get_one(c->pool, kthread, &index)) {
        cl_count(&counts->refused, 1);
        return NULL;
    }
    cl_count(&counts->taken, 1);
    struct cl_chunk *chunk = &c->all[index];
    chunk->next = NULL;
    chunk->bytes = chunk->data;
    chunk->from = chunk->len = 0;
    return chunk;
}

struct cl_chunk *cl_chunks_copy(struct cl_chunks *c, unsigned kthread, unsigned holder, const void *data, uint32_t len)
{
    struct cl_chunk *first = NULL, **end = &first;
    const uint8_t *from = data;
    do {
        uint32_t part = cl_min(len, (uint32_t)CL_CHUNK_ROOM);
        struct cl_chunk *chunk = cl_chunks_get(c, kthread, holder);
        if (!chunk) {
            cl_chunks_free(c, kthread, holder, first);
            return NULL;
        }
        chunk->len = (uint16_t)part;
        memcpy(chunk->data, from, part);
        *end = chunk;
        end = &chunk->next;
        from += part;
        len -= part;
    } while (len);
    return first;
}

const uint8_t *cl_chunks_base(const struct cl_chunks *c)
{
    return (const uint8_t *)c->all;
}

uint32_t cl_chunks_read(const struct cl_chunk *chain, void *data, uint64_t room)
{
    uint8_t *to = data;
    uint32_t n = 0;
    for (; chain && n < room; chain = chain->next) {
        uint32_t part = (uint32_t)cl_min((uint64_t)chain->len, room - n);
        memcpy(to + n, chain->data, part);
        n += part;
    }
    return n;
}

bool cl_chunks_fetch(struct cl_chunks *c)
{
    return cl_ahead_fetch(&c->ahead);
}

uint64_t cl_chunks_left(const struct cl_chunks *c, uint64_t *bound)
{
    *bound = c->bytes;
    return (uint64_t)cl_pool_available(c->pool) * CL_CHUNK_BYTES;
}

void cl_chunks_stats(const struct cl_chunks *c, unsigned holder, struct cl_chunk_stats *out)
{
    *out = (struct cl_chunk_stats){.bound_bytes = c->bytes};
    uint64_t taken = 0, given = 0;
    for (unsigned k = 0; k < c->n_kthreads; k++) {
        const struct counts *of = &c->counts[k][holder];
        given += cl_load_relaxed(&of->given);
        taken += cl_load_relaxed(&of->taken);
        out->refused += cl_load_relaxed(&of->refused);
    }
    out->taken = taken;
    out->held_bytes = taken > given ? (taken - given) * CL_CHUNK_BYTES : 0;
}
