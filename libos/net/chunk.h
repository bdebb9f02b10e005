/* Memory of bytes: chunks of one size from one pool per application, for what outlives a burst.
 *
 * A received frame lies in a buffer of the NIC. Those are one pool for everybody's frames, so nothing that may wait
 * long keeps one: what waits for a reader is copied into chunks. The pool has a bound in bytes. Whoever finds it used
 * up is refused, and that is counted.
 *
 * Each kthread has a cache of free chunks (runtime/pool.h), at most half of the pool in all caches together: so close
 * to the bound one kthread may be refused while another still has some. Memory that was never needed is never touched;
 * of what will be needed next kthreads fetch the pages while they have nothing to do, the more the more is in use, and
 * up to CL_CHUNKS_AHEAD of the pool (runtime/ahead.h). So strangers who make many connections hold chunks for the first
 * time delay nobody.
 *
 * A chunk may stand for memory of another owner, so that nothing is copied: `bytes` points there, and `data` begins
 * with a struct cl_chunk_owner, which hears when the chunk is given back. Whoever reads goes by `bytes`; only chunks of
 * their own are written to.
 *
 * Threads: a kthread's calls name its own cache; any kthread may put what another got. Counters: writer the kthread,
 * readers anybody. Invariant: taken - given, over all kthreads and holders, is what is out. */
#ifndef CORELANE_LIBOS_NET_CHUNK_H
#define CORELANE_LIBOS_NET_CHUNK_H

#include <corelane/libos/reasons.h>
#include "../../runtime/pool.h"

#define CL_CHUNK_BYTES 2048 /* with its head */
#define CL_CHUNKS_AHEAD 32  /* one part of so many of the pool */
#define CL_CHUNK_ROOM (CL_CHUNK_BYTES - 24)

struct cl_chunk {
    struct cl_chunk *next; /* of the same datagram or queue; NULL: the last */
    const uint8_t *bytes;  /* `data`, or another owner's memory */
    uint16_t from;         /* where in `bytes` it begins; 0 of a datagram */
    uint16_t len;          /* bytes in it, behind `from` */
    uint32_t seq;          /* TCP's, see tcp/buffer.h */
    uint8_t data[CL_CHUNK_ROOM];
};
_Static_assert(sizeof(struct cl_chunk) == CL_CHUNK_BYTES, "the pool counts in these");

/* Whose memory it is. */
struct cl_chunk_owner {
    /* The chunk is given back by that kthread, or while none runs by queue 0's. */
    void (*done)(struct cl_chunk_owner *owner, unsigned kthread);
};

static inline bool cl_chunk_is_foreign(const struct cl_chunk *chunk)
{
    return chunk->bytes != chunk->data;
}

/* Of a foreign one. */
static inline struct cl_chunk_owner *cl_chunk_owner(struct cl_chunk *chunk)
{
    return (struct cl_chunk_owner *)(void *)chunk->data;
}

struct cl_chunks;

/* New pool of at most `bytes`, of which each chunk takes CL_CHUNK_BYTES, for n kthreads. NULL: no memory. */
struct cl_chunks *cl_chunks_new(uint64_t bytes, unsigned n_kthreads);
void cl_chunks_delete(struct cl_chunks *c);

/* Copy `len` bytes into a chain, for a holder (CL_CHUNKS_...), through the cache of `kthread`. NULL: refused. A chain
 * of 0 bytes is one empty chunk. */
struct cl_chunk *cl_chunks_copy(struct cl_chunks *c, unsigned kthread, unsigned holder, const void *data, uint32_t len);
/* One empty chunk. NULL: refused. */
struct cl_chunk *cl_chunks_get(struct cl_chunks *c, unsigned kthread, unsigned holder);
/* A chunk's number, and back: four bytes instead of eight. */
uint32_t cl_chunk_number(const struct cl_chunks *c, const struct cl_chunk *chunk);
struct cl_chunk *cl_chunk_of(const struct cl_chunks *c, uint32_t number);
/* Where they all lie, each on whole cache lines. */
const uint8_t *cl_chunks_base(const struct cl_chunks *c);
/* Copy up to `room` bytes out of a chain. Returns how many. */
uint32_t cl_chunks_read(const struct cl_chunk *chain, void *data, uint64_t room);
/* Give a chain back. */
void cl_chunks_free(struct cl_chunks *c, unsigned kthread, unsigned holder, struct cl_chunk *chain);
/* Bytes that nobody has, as far as a look without a lock tells; *bound: of the whole pool. Any thread. */
uint64_t cl_chunks_left(const struct cl_chunks *c, uint64_t *bound);
/* Nothing else is to be done: fetch some pages of chunks that nobody had yet. False: enough are there. Any thread. */
bool cl_chunks_fetch(struct cl_chunks *c);
/* What a holder has. Whole counters, not all of one instant. Any thread. */
void cl_chunks_stats(const struct cl_chunks *c, unsigned holder, struct cl_chunk_stats *out);

#endif
