/* Which of a sender's numbers have come: all up to `got`, none above `highest`, and between them those of the window
 * whose bit is set. */
#ifndef CORELANE_APPS_RAFT_TRANSPORT_NUMBERS_H
#define CORELANE_APPS_RAFT_TRANSPORT_NUMBERS_H

#include <corelane/runtime/base.h>

#define RAFT_CHANNEL_WINDOW 1024 /* a power of two, and a multiple of 64 */
#define RAFT_NUMBERS_WORDS (RAFT_CHANNEL_WINDOW / 64)

struct raft_numbers {
    uint64_t got, highest; /* highest <= got + RAFT_CHANNEL_WINDOW */
    uint64_t bits[RAFT_NUMBERS_WORDS];
};

static inline uint64_t *raft_numbers_word(struct raft_numbers *n, uint64_t number)
{
    return &n->bits[number % RAFT_CHANNEL_WINDOW / 64];
}

/* Of a number that is at most got + RAFT_CHANNEL_WINDOW. */
static inline bool raft_numbers_has(struct raft_numbers *n, uint64_t number)
{
    if (number <= n->got || number > n->highest)
        return number <= n->got;
    return *raft_numbers_word(n, number) >> number % 64 & 1;
}

static inline void raft_numbers_advance(struct raft_numbers *n)
{
    while (n->got < n->highest && raft_numbers_has(n, n->got + 1)) {
        n->got++;
        *raft_numbers_word(n, n->got) &= ~(1ull << n->got % 64);
    }
}

static inline void raft_numbers_add(struct raft_numbers *n, uint64_t number)
{
    *raft_numbers_word(n, number) |= 1ull << number % 64;
    n->highest = cl_max(n->highest, number);
    raft_numbers_advance(n);
}

/* Those below `first` will not come any more. Whether some of them had not. */
static inline bool raft_numbers_skip(struct raft_numbers *n, uint64_t first)
{
    if (first <= n->got + 1)
        return false;
    for (uint64_t i = n->got + 1, end = cl_min(first - 1, n->highest); i <= end; i++)
        *raft_numbers_word(n, i) &= ~(1ull << i % 64);
    n->got = first - 1;
    n->highest = cl_max(n->highest, n->got);
    raft_numbers_advance(n);
    return true;
}

/* Bit i of the k-th word: got + 2 + 64 * k + i has come. */
static inline uint64_t raft_numbers_selective(struct raft_numbers *n, uint32_t k)
{
    uint64_t from = n->got + 2 + 64 * (uint64_t)k, shift = from % 64;
    if (n->highest < from)
        return 0;
    uint64_t low = *raft_numbers_word(n, from) >> shift;
    return shift ? low | *raft_numbers_word(n, from + 64) << (64 - shift) : low;
}

/* Words that are not all 0, and those between them. */
static inline uint32_t raft_numbers_words(const struct raft_numbers *n)
{
    return n->highest < n->got + 2 ? 0 : (uint32_t)((n->highest - n->got - 2) / 64 + 1);
}

#endif
