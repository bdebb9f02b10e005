/* Seeded random numbers for drawing tables and choosing faults: splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
 * One addition and two multiplications; the same seed gives the same numbers on every machine. */
#ifndef CORELANE_DRIVERS_RANDOM_H
#define CORELANE_DRIVERS_RANDOM_H

#include <corelane/runtime/base.h>
#include <math.h>

struct cl_random {
    uint64_t state;
};

static inline uint64_t cl_random_next(struct cl_random *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Uniform in (0, 1]: never 0, so that a logarithm may be taken. */
static inline double cl_random_unit(struct cl_random *r)
{
    return (double)((cl_random_next(r) >> 11) + 1) * 0x1p-53;
}

/* Exponential with mean 1. */
static inline double cl_random_exp(struct cl_random *r)
{
    return -log(cl_random_unit(r));
}

/* Uniform in 0..n-1 (n > 0), biased by at most n / 2^64. */
static inline uint64_t cl_random_below(struct cl_random *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)cl_random_next(r) * n) >> 64);
}

#endif
