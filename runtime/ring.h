/* Single-producer single-consumer ring of 16-byte descriptors.
 *
 * A descriptor carries its own phase bit (bit 63 of `word`), which flips every lap. The consumer learns that a slot is
 * filled from the slot itself, so an idle poll touches one cache line, a message moves one line for four descriptors,
 * and no head or tail index bounces between the cores. The producer learns of free space from `head`, a counter that
 * the consumer publishes once a burst in a line of its own and that the producer reads only when its cached copy is
 * used up. (The idea is that of Shenango's and Caladan's lrpc channels; after zeroed memory the first lap's phase
 * is 1.)
 *
 * The two halves are in private memory of their owners; only the slots and `head` are shared. Each side may distrust
 * the other: a producer takes a `head` that cannot be as "no space" and counts it, a consumer copies each slot once
 * before it reads. Positions count modulo 2^32, of which every size is a divisor, so nothing happens at the wrap.
 *
 *   slots   writer: producer; reader: consumer. `word` is stored with release after `payload`, loaded with acquire.
 *   head    writer: consumer (release: the slots before it have been copied out); reader: producer (acquire).
 *
 * Tests: tests/runtime/test_ring.py (model), tests/runtime/c/ring_stress.c (TSan). */
#ifndef CORELANE_RUNTIME_RING_H
#define CORELANE_RUNTIME_RING_H

#include <corelane/runtime/base.h>
#include <errno.h>

#define CL_RING_PHASE (1ull << 63)
#define CL_RING_AHEAD                                                                                                  \
    32u /* slots between a push and the line that it sends for: a burst of them takes as long as a line */

// cffi: begin
/* One slot. `word`: bit 63 phase, bits 0..62 the sender's. */
struct cl_desc {
    uint64_t word;
    uint64_t payload;
};

/* The producer's half. Private to one thread. */
struct cl_ring_tx {
    struct cl_desc *slots;
    uint32_t *shared_head;
    uint32_t size;       /* slots; a power of two */
    uint32_t tail;       /* descriptors ever pushed, modulo 2^32 */
    uint32_t head_cache; /* last `head` seen that could be true */
    uint32_t lies;       /* times that the consumer published an impossible head */
};

/* The consumer's half. Private to one thread, or to the holder of a lock. */
struct cl_ring_rx {
    struct cl_desc *slots;
    uint32_t *shared_head;
    uint32_t size;
    uint32_t head;      /* descriptors ever popped, modulo 2^32 */
    uint32_t published; /* last value stored to *shared_head */
};
// cffi: end
_Static_assert(sizeof(struct cl_desc) == 16, "four descriptors a cache line");

/* Attach a half to zeroed shared memory. -EINVAL unless size is a power of two from 2 to 2^20. */
static inline int cl_ring_tx_init(struct cl_ring_tx *r, struct cl_desc *slots, uint32_t *shared_head, uint32_t size)
{
    if (size < 2 || size > (1u << 20) || (size & (size - 1)))
        return -EINVAL;
    *r = (struct cl_ring_tx){slots, shared_head, size, 0, 0, 0};
    return 0;
}

static inline int cl_ring_rx_init(struct cl_ring_rx *r, struct cl_desc *slots, uint32_t *shared_head, uint32_t size)
{
    if (size < 2 || size > (1u << 20) || (size & (size - 1)))
        return -EINVAL;
    *r = (struct cl_ring_rx){slots, shared_head, size, 0, 0};
    return 0;
}

/* Phase bit of the lap that position `pos` belongs to. */
static inline uint64_t cl_ring_phase(uint32_t size, uint32_t pos)
{
    return (pos & size) ? 0 : CL_RING_PHASE;
}

/* Slots free for the producer, re-reading the consumer's head only when fewer than `want` are known to be free. */
static inline uint32_t cl_ring_tx_space(struct cl_ring_tx *r, uint32_t want)
{
    uint32_t used = r->tail - r->head_cache;
    if (cl_likely(r->size - used >= want))
        return r->size - used;
    /* Acquire: the consumer's copy of the slots happens before we overwrite them. */
    uint32_t head = cl_load_acquire(r->shared_head);
    if (cl_unlikely(r->tail - head > used)) { /* ahead of tail, or moved back: impossible */
        r->lies++;
        return r->size - used;
    }
    r->head_cache = head;
    return r->size - (r->tail - head);
}

/* The consumer has read the lines ahead a lap ago. Stores become visible in order, so one that had to fetch its line
 * would hold up all that follow: send for a line a burst early. Not for one that may hold what is not consumed yet. */
static inline void cl_ring_fetch_ahead(struct cl_ring_tx *r)
{
    if ((r->tail & 3) == 0 && r->size >= 4 * CL_RING_AHEAD &&
        cl_ring_tx_space(r, CL_RING_AHEAD + 4) >= CL_RING_AHEAD + 4)
        cl_prefetch_write(&r->slots[(r->tail + CL_RING_AHEAD) & (r->size - 1)]);
}

/* Push one descriptor. Returns false, with nothing written, if the ring is full. */
static inline bool cl_ring_push(struct cl_ring_tx *r, uint64_t word, uint64_t payload)
{
    if (cl_unlikely(cl_ring_tx_space(r, 1) == 0))
        return false;
    cl_ring_fetch_ahead(r);
    struct cl_desc *d = &r->slots[r->tail & (r->size - 1)];
    /* Relaxed: the release store of `word` below publishes it. Atomic at all since a hostile peer may read it early. */
    cl_store_relaxed(&d->payload, payload);
    cl_store_release(&d->word, (word & ~CL_RING_PHASE) | cl_ring_phase(r->size, r->tail));
    r->tail++;
    return true;
}

/* Take the line of the next descriptor away from a consumer that polls it, while the producer still works on the
 * message: a push finds it there. The consumer's next poll takes it back, so not long before. */
static inline void cl_ring_prepare(const struct cl_ring_tx *r)
{
    cl_prefetch_write(&r->slots[r->tail & (r->size - 1)]);
}

/* Push the line of the last descriptor towards a consumer that polls it (base.h). For single messages: in a stream the
 * producer writes to that line again. */
static inline void cl_ring_demote(const struct cl_ring_tx *r)
{
    cl_demote(&r->slots[(r->tail - 1) & (r->size - 1)]);
}

/* Whether a descriptor is waiting. Asked while another thread pops, it may say so of one that is being popped. */
static inline bool cl_ring_ready(const struct cl_ring_rx *r)
{
    /* Relaxed: the pop that follows loads again with acquire; and a thread that does not pop only guesses. */
    uint32_t head = cl_load_relaxed(&r->head);
    uint64_t word = cl_load_relaxed(&r->slots[head & (r->size - 1)].word);
    return (word & CL_RING_PHASE) == cl_ring_phase(r->size, head);
}

/* Copy up to n descriptors out (word without its phase bit), without publishing. Returns how many. */
static inline unsigned cl_ring_pop(struct cl_ring_rx *r, struct cl_desc *out, unsigned n)
{
    /* Locals: `out` might alias *r for all that the compiler knows. */
    const struct cl_desc *slots = r->slots;
    uint32_t head = r->head, size = r->size;
    unsigned i = 0;
    for (; i < n; i++, head++) {
        const struct cl_desc *d = &slots[head & (size - 1)];
        uint64_t word = cl_load_acquire(&d->word); /* acquire: the payload and the frame it names come after */
        if ((word ^ cl_ring_phase(size, head)) & CL_RING_PHASE)
            break;
        out[i].word = word & ~CL_RING_PHASE;
        out[i].payload = cl_load_relaxed(&d->payload); /* a hostile producer may change it now; it is read only once */
    }
    cl_store_relaxed(&r->head, head); /* relaxed: for cl_ring_ready; one thread at a time pops */
    return i;
}

/* The descriptor that a pop would give next, without taking it. False: there is none. */
static inline bool cl_ring_next(const struct cl_ring_rx *r, struct cl_desc *out)
{
    const struct cl_desc *d = &r->slots[r->head & (r->size - 1)];
    uint64_t word = cl_load_acquire(&d->word); /* acquire: the payload, and what the producer wrote before it */
    if ((word ^ cl_ring_phase(r->size, r->head)) & CL_RING_PHASE)
        return false;
    out->word = word & ~CL_RING_PHASE;
    out->payload = cl_load_relaxed(&d->payload);
    return true;
}

/* Leave the last n of those that were popped and not published in the ring. */
static inline void cl_ring_unpop(struct cl_ring_rx *r, unsigned n)
{
    cl_store_relaxed(&r->head, r->head - n); /* relaxed: as in cl_ring_pop */
}

/* After a pop that found as many as it asked for: copy up to n of the descriptors that wait next, without taking them,
 * and send for the lines of the n slots behind. So a consumer sends for the next burst's frames while it works on this
 * one. What it gets is a guess, for prefetches alone; a later pop decides. */
static inline unsigned cl_ring_peek(const struct cl_ring_rx *r, struct cl_desc *out, unsigned n)
{
    uint32_t head = r->head, mask = r->size - 1;
    for (unsigned i = 0; i < n; i++, head++) {
        const struct cl_desc *d = &r->slots[head & mask];
        uint64_t word = cl_load_relaxed(&d->word); /* relaxed: nothing is read through it */
        if ((word ^ cl_ring_phase(r->size, head)) & CL_RING_PHASE)
            return i;
        out[i].word = word & ~CL_RING_PHASE;
        out[i].payload = cl_load_relaxed(&d->payload);
    }
    for (unsigned k = 0; k < n; k += 4)
        cl_prefetch(&r->slots[(head + k) & mask]);
    return n;
}

/* The word of the descriptor `at` places behind the one that a pop would give next, for prefetches alone; false: none
 * is there. Asked for place by place, it sends for the lines of the slots behind as well. */
static inline bool cl_ring_look(const struct cl_ring_rx *r, unsigned at, uint64_t *word)
{
    uint32_t place = cl_load_relaxed(&r->head) + at, mask = r->size - 1; /* relaxed: another thread may pop */
    if (at >= r->size)
        return false;
    if ((place & 3) == 0)
        cl_prefetch(&r->slots[(place + CL_RING_AHEAD) & mask]);
    *word = cl_load_relaxed(&r->slots[place & mask].word); /* relaxed: nothing is read through it */
    if ((*word ^ cl_ring_phase(r->size, place)) & CL_RING_PHASE)
        return false;
    *word &= ~CL_RING_PHASE;
    return true;
}

/* Give the popped slots back to the producer. Once a burst. */
static inline void cl_ring_publish(struct cl_ring_rx *r)
{
    if (r->published != r->head) {
        cl_store_release(r->shared_head, r->head); /* release: our copies happen before the producer overwrites */
        r->published = r->head;
    }
}

#endif
