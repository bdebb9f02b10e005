/* See hist.h. */
#include "hist.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x31484c43 /* "CLH1" */

static const uint16_t buckets_for_digits[] = {0, 20, 200, 2000, 20000};

/* b: 2^(b-1) buckets a doubling make a relative width of at most 10^-digits. */
static uint32_t bits_for(uint32_t digits)
{
    uint32_t need = digits < 5 ? buckets_for_digits[digits] : 200000, bits = 1;
    while ((1u << bits) < need)
        bits++;
    return bits;
}

static bool valid(uint32_t digits, uint64_t limit)
{
    return digits >= 1 && digits <= 5 && limit >= 2 && limit <= (1ull << 62);
}

uint64_t cl_hist_bytes(uint32_t digits, uint64_t limit)
{
    if (!valid(digits, limit))
        return 0;
    return sizeof(struct cl_hist) + 8 * ((uint64_t)cl_hist_index(bits_for(digits), limit) + 1);
}

int cl_hist_init(struct cl_hist *h, uint32_t digits, uint64_t limit)
{
    if (!valid(digits, limit))
        return -EINVAL;
    *h =
        (struct cl_hist){.min = UINT64_MAX, .limit = limit, .bits = bits_for(digits), .digits = digits, .magic = MAGIC};
    h->n_buckets = cl_hist_index(h->bits, limit) + 1;
    return 0;
}

struct cl_hist *cl_hist_new(uint32_t digits, uint64_t limit)
{
    uint64_t bytes = cl_hist_bytes(digits, limit);
    if (!bytes)
        return NULL;
    struct cl_hist *h = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (h == MAP_FAILED)
        return NULL;
    cl_hist_init(h, digits, limit);
    return h;
}

void cl_hist_delete(struct cl_hist *h)
{
    if (h)
        munmap(h, cl_hist_bytes(h->digits, h->limit));
}

static uint64_t *counts_of(const struct cl_hist *h)
{
    return (uint64_t *)(h + 1);
}

uint64_t *cl_hist_counts(struct cl_hist *h)
{
    return counts_of(h);
}

static bool same_layout(const struct cl_hist *a, const struct cl_hist *b)
{
    return a->magic == MAGIC && b->magic == MAGIC && a->digits == b->digits && a->limit == b->limit;
}

void cl_hist_reset(struct cl_hist *h)
{
    uint64_t *counts = counts_of(h);
    for (uint32_t i = 0; i < h->n_buckets; i++)
        if (counts[i]) /* a page never used stays never used */
            cl_store_relaxed(&counts[i], 0);
    cl_store_relaxed(&h->sum, 0);
    cl_store_relaxed(&h->infinite, 0);
    cl_store_relaxed(&h->min, UINT64_MAX);
    cl_store_relaxed(&h->max, 0);
}

void cl_hist_add(struct cl_hist *h, uint64_t value, uint64_t n)
{
    if (n == 0)
        return;
    cl_hist_record(h, value);
    cl_count(&counts_of(h)[cl_hist_index(h->bits, cl_min(value, h->limit))], n - 1);
    cl_count(&h->sum, value * (n - 1));
}

void cl_hist_add_infinite(struct cl_hist *h, uint64_t n)
{
    cl_count(&h->infinite, n);
}

int cl_hist_copy(struct cl_hist *dst, const struct cl_hist *src)
{
    if (!same_layout(dst, src))
        return -EINVAL;
    cl_hist_reset(dst);
    return cl_hist_merge(dst, src);
}

int cl_hist_merge(struct cl_hist *dst, const struct cl_hist *src)
{
    if (!same_layout(dst, src))
        return -EINVAL;
    uint64_t *to = counts_of(dst), *from = counts_of(src);
    for (uint32_t i = 0; i < dst->n_buckets; i++) {
        uint64_t n =
            cl_load_relaxed(&from[i]); /* relaxed: each count is whole; which moment they show is not defined */
        if (n)
            cl_count(&to[i], n);
    }
    cl_count(&dst->sum, cl_load_relaxed(&src->sum));
    cl_count(&dst->infinite, cl_load_relaxed(&src->infinite));
    uint64_t min = cl_load_relaxed(&src->min), max = cl_load_relaxed(&src->max);
    cl_store_relaxed(&dst->min, cl_min(dst->min, min));
    cl_store_relaxed(&dst->max, cl_max(dst->max, max));
    return 0;
}

int cl_hist_subtract(struct cl_hist *dst, const struct cl_hist *src)
{
    if (!same_layout(dst, src))
        return -EINVAL;
    uint64_t *to = counts_of(dst), *from = counts_of(src);
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t i = 0; i < dst->n_buckets; i++) {
        uint64_t n = cl_load_relaxed(&from[i]);
        if (n)
            cl_store_relaxed(&to[i], to[i] > n ? to[i] - n : 0);
        if (to[i]) {
            low = cl_min(low, i);
            high = i;
        }
    }
    cl_store_relaxed(&dst->sum, dst->sum - cl_load_relaxed(&src->sum));
    cl_store_relaxed(&dst->infinite, dst->infinite - cl_load_relaxed(&src->infinite));
    /* The exact extremes of the difference are not known any more: the buckets' bounds, within the old extremes. */
    uint64_t min = low == UINT32_MAX ? UINT64_MAX : cl_max(dst->min, cl_hist_bucket_low(dst, low));
    uint64_t max = low == UINT32_MAX ? 0 : cl_min(dst->max, cl_hist_bucket_high(dst, high));
    cl_store_relaxed(&dst->min, min);
    cl_store_relaxed(&dst->max, max);
    return 0;
}

static uint64_t finite_count(const struct cl_hist *h)
{
    const uint64_t *counts = counts_of(h);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < h->n_buckets; i++)
        sum += cl_load_relaxed(&counts[i]);
    return sum;
}

uint64_t cl_hist_count(const struct cl_hist *h)
{
    return finite_count(h) + cl_load_relaxed(&h->infinite);
}

uint64_t cl_hist_percentile(const struct cl_hist *h, double percent)
{
    const uint64_t *counts = counts_of(h);
    uint64_t total = cl_hist_count(h);
    if (total == 0)
        return 0;
    /* Nearest rank. The small term undoes the rounding of, say, 99.9 * 1000 / 100 to a little above 999. */
    double exact = ceil(percent * (double)total / 100.0 - 1e-6);
    uint64_t rank = exact < 1 ? 1 : exact > (double)total ? total : (uint64_t)exact, seen = 0;
    for (uint32_t i = 0; i < h->n_buckets; i++) {
        seen += cl_load_relaxed(&counts[i]);
        if (seen >= rank) {
            uint64_t high = cl_hist_bucket_high(h, i), max = cl_load_relaxed(&h->max);
            return cl_min(high, max);
        }
    }
    return CL_HIST_INFINITE;
}

uint64_t cl_hist_count_upto(const struct cl_hist *h, uint64_t value)
{
    const uint64_t *counts = counts_of(h);
    uint64_t sum = 0;
    uint32_t last = cl_hist_bucket(h, value);
    for (uint32_t i = 0; i <= last; i++)
        sum += cl_load_relaxed(&counts[i]);
    return sum;
}

uint32_t cl_hist_bucket(const struct cl_hist *h, uint64_t value)
{
    return cl_hist_index(h->bits, cl_min(value, h->limit));
}

uint64_t cl_hist_bucket_low(const struct cl_hist *h, uint32_t bucket)
{
    uint32_t half = 1u << (h->bits - 1);
    if (bucket < 2 * half)
        return bucket;
    uint32_t shift = bucket / half - 1;
    return (uint64_t)(bucket - shift * half) << shift;
}

uint64_t cl_hist_bucket_high(const struct cl_hist *h, uint32_t bucket)
{
    /* The last bucket also holds what is above the limit: no upper bound but the largest value seen. */
    return bucket + 1 >= h->n_buckets ? UINT64_MAX - 1 : cl_hist_bucket_low(h, bucket + 1) - 1;
}

uint32_t cl_hist_used(const struct cl_hist *h, struct cl_hist_used *out, uint32_t n)
{
    const uint64_t *counts = counts_of(h);
    uint32_t used = 0;
    for (uint32_t i = 0; i < h->n_buckets && used < n; i++) {
        uint64_t count = cl_load_relaxed(&counts[i]);
        if (count)
            out[used++] = (struct cl_hist_used){cl_hist_bucket_low(h, i), cl_hist_bucket_high(h, i), count};
    }
    if (used) { /* the max is behind all others, and may be behind its own count */
        struct cl_hist_used *last = &out[used - 1];
        last->high = cl_max(last->low, cl_min(last->high, cl_load_relaxed(&h->max)));
    }
    return used;
}
