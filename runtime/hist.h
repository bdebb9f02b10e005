/* Latency histogram with a bounded relative error (the layout known as HDR histogram: log-linear buckets).
 *
 * Values below 2^b have a bucket each; every doubling above is cut into 2^(b-1) buckets, so a bucket is at most
 * 1/2^(b-1) of its value wide. b follows from the number of significant decimal digits (3 digits: b = 11, error 0.1 %).
 * Recording is a count of leading zeros, a shift and an add: no division, no branch that depends on the value.
 *
 * An infinite bucket counts what never came back: a request without an answer is slower than any that had one, so the
 * percentiles count it as infinite instead of forgetting it.
 *
 * One thread records; anybody reads at any time. Counts are whole (relaxed atomics), but the header and the buckets may
 * be some records apart: take a snapshot and compute from that. Values are nanoseconds by convention; nothing here
 * minds.
 *
 * Tests: tests/runtime/test_hist.py (against sorted lists). */
#ifndef CORELANE_RUNTIME_HIST_H
#define CORELANE_RUNTIME_HIST_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_HIST_DIGITS 3                    /* default precision */
#define CL_HIST_LIMIT_NS 100000000000       /* default range: 1 ns .. 100 s */
#define CL_HIST_INFINITE 0xffffffffffffffff /* a percentile that falls into the infinite bucket */

/* Header; n_buckets counts follow it at once. Writer: the recording thread; readers: any (relaxed). */
struct cl_hist {
    uint64_t sum;       /* of finite values, modulo 2^64 */
    uint64_t min;       /* smallest finite value; UINT64_MAX if none */
    uint64_t max;       /* largest finite value, exact also beyond the limit */
    uint64_t infinite;  /* values that are infinite */
    uint64_t limit;     /* values above share the last bucket. Constant */
    uint32_t bits;      /* b of the header comment. Constant */
    uint32_t digits;    /* constant */
    uint32_t n_buckets; /* constant */
    uint32_t magic;     /* constant */
    uint64_t reserved;
};

/* A bucket: both bounds are included. The highest that has something in it ends at max. */
struct cl_hist_used {
    uint64_t low, high, count;
};

/* Bytes of a histogram, 0 if digits is not 1..5 or limit not 2..2^62. */
CL_API uint64_t cl_hist_bytes(uint32_t digits, uint64_t limit);
/* Make one in given zeroed memory (shared, for example), 8-byte aligned. -EINVAL as above. */
CL_API int cl_hist_init(struct cl_hist *h, uint32_t digits, uint64_t limit);
/* A private one, of fresh pages that take no memory until used. NULL if arguments or memory do not allow it. */
CL_API struct cl_hist *cl_hist_new(uint32_t digits, uint64_t limit);
CL_API void cl_hist_delete(struct cl_hist *h);
CL_API void cl_hist_reset(struct cl_hist *h);
CL_API void cl_hist_add(struct cl_hist *h, uint64_t value, uint64_t n);
CL_API void cl_hist_add_infinite(struct cl_hist *h, uint64_t n);
/* dst = src, dst += src, dst -= src (src an earlier snapshot of the same: what came since). -EINVAL: other layouts. */
CL_API int cl_hist_copy(struct cl_hist *dst, const struct cl_hist *src);
CL_API int cl_hist_merge(struct cl_hist *dst, const struct cl_hist *src);
CL_API int cl_hist_subtract(struct cl_hist *dst, const struct cl_hist *src);
/* All values recorded, infinite ones too. */
CL_API uint64_t cl_hist_count(const struct cl_hist *h);
/* Smallest v so that at least percent % of all values are <= v, to the histogram's precision (never below the true
 * one). CL_HIST_INFINITE if that value is infinite, 0 if the histogram is empty. */
CL_API uint64_t cl_hist_percentile(const struct cl_hist *h, double percent);
/* How many values are <= value, to the precision. */
CL_API uint64_t cl_hist_count_upto(const struct cl_hist *h, uint64_t value);
CL_API uint32_t cl_hist_bucket(const struct cl_hist *h, uint64_t value);
CL_API uint64_t cl_hist_bucket_low(const struct cl_hist *h, uint32_t bucket);
CL_API uint64_t cl_hist_bucket_high(const struct cl_hist *h, uint32_t bucket);
CL_API uint64_t *cl_hist_counts(struct cl_hist *h);
/* The buckets with something in them, upwards, at most n of them. Returns how many. */
CL_API uint32_t cl_hist_used(const struct cl_hist *h, struct cl_hist_used *out, uint32_t n);
// cffi: end
_Static_assert(sizeof(struct cl_hist) == 64, "the header is one cache line; the counts follow");

/* Bucket of a value not above the limit. */
static inline uint32_t cl_hist_index(uint32_t bits, uint64_t value)
{
    /* The mask makes small values take shift 0 without a branch. */
    uint32_t shift = 64 - bits - (uint32_t)__builtin_clzll(value | ((1ull << bits) - 1));
    return (shift << (bits - 1)) + (uint32_t)(value >> shift);
}

/* Record one value: the hot path. Single writer, so relaxed loads and stores and no locked instruction. */
static inline void cl_hist_record(struct cl_hist *h, uint64_t value)
{
    uint64_t *counts = (uint64_t *)(h + 1);
    cl_count(&counts[cl_hist_index(h->bits, cl_min(value, h->limit))], 1);
    cl_count(&h->sum, value);
    if (cl_unlikely(value < h->min))
        cl_store_relaxed(&h->min, value);
    if (cl_unlikely(value > h->max))
        cl_store_relaxed(&h->max, value);
}

CL_EXTERN_C_END
#endif
