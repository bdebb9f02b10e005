/* Token buckets, and what frames cost when applications take turns.
 *
 * Bucket: tokens in units of 1/2^16 grow at a fixed rate up to the burst. It is open from `need` tokens on: one for
 * frames; any for bytes, where it may go below zero by one frame, which is then paid back, so that a frame longer than
 * what is left is neither refused for ever nor free. No division in the hot path. Time is passed in. (The usual
 * construction; RFC 2697 describes such a meter.)
 *
 * Turns: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995), with the work that a frame makes for the loop in
 * place of its length: a neighbour that floods is kept to its share of the loop's time, whatever it sends. */
#ifndef CORELANE_IOKERNEL_STATE_LIMITS_H
#define CORELANE_IOKERNEL_STATE_LIMITS_H

#include <corelane/runtime/base.h>

#define BUCKET_UNIT 65536

/* About the nanoseconds that each takes on a 3 GHz core; only their proportions matter. */
#define COST_FRAME 48      /* descriptor, header, lookup, ring push */
#define COST_LINE 6        /* copying 64 bytes */
#define COST_DROP 24       /* a frame that ends before the copy */
#define COST_RETURN 6      /* a buffer that comes back by itself */
#define QUANTUM_ALONE 2048 /* a turn while nobody else has work: some 32 small frames */
#define QUANTUM_SHARED 448 /* a turn while others have: some 8 small frames, so that they wait half a microsecond */
#define QUANTUM_GREEDY                                                                                                 \
    112                 /* a turn of who was backlogged for long beside one that was not: some 2 small frames, so that
                            * what queued up for the modest one while it or the loop stood still drains as if alone */
#define GREEDY_TURNS 64 /* turns in a row that ended with frames left, until an application counts as greedy, */
#define GREEDY_NS 10000000 /* and how long they took: what queued up while the machine stood still is no flood */
#define SHARED_ROUNDS 256  /* how long others count as present after their last work */

/* Writer: the home loop. */
struct cl_bucket {
    int64_t tokens, burst, need; /* units of 1/BUCKET_UNIT */
    uint64_t rate;               /* units a tick, times 2^16; 0: unlimited */
    uint64_t last;               /* stamp of the last refill */
    uint64_t remainder;          /* of the last refill, so that no time is lost to rounding */
    uint64_t full_ticks;         /* a longer pause fills the bucket: keeps the multiplication in 64 bits */
};

/* `per_s` tokens a second, at most `burst` at once, on a clock of `hz`. Starts full. whole: needs a whole token. */
void cl_bucket_init(struct cl_bucket *b, uint64_t per_s, uint64_t burst, bool whole, uint64_t hz, uint64_t now);
/* Ticks until the bucket is open; 0 if it is. */
uint64_t cl_bucket_wait(const struct cl_bucket *b);

static inline void cl_bucket_refill(struct cl_bucket *b, uint64_t now)
{
    if (b->rate == 0)
        return;
    uint64_t ticks = now - b->last;
    if ((int64_t)ticks <= 0)
        return;
    b->last = now;
    if (ticks >= b->full_ticks) {
        b->tokens = b->burst;
        b->remainder = 0;
        return;
    }
    uint64_t grown = ticks * b->rate + b->remainder;
    b->remainder = grown & 0xffff;
    b->tokens = cl_min(b->tokens + (int64_t)(grown >> 16), b->burst);
}

static inline bool cl_bucket_open(const struct cl_bucket *b)
{
    return b->rate == 0 || b->tokens >= b->need;
}

static inline void cl_bucket_take(struct cl_bucket *b, uint64_t n)
{
    if (b->rate)
        b->tokens -= (int64_t)(n * BUCKET_UNIT);
}

#endif
