/* A token bucket: see corelane/libos/state.h. Time is kept in 256ths of a ns, so that the time between tokens is right
 * to half of one: 0.2 % at 10^9 tokens a second, 2 in 10^6 at 10^6. */
#include <corelane/libos/state.h>
#include <corelane/runtime/base.h>
#include <corelane/runtime/clock.h>

#include <errno.h>
#include <stdlib.h>

#define UNITS 256ull /* a ns */
#define SECOND (1000000000ull * UNITS)
#define MOST_PER_SECOND 1000000000ull
#define YEAR (366ull * 86400 * SECOND)

struct CL_ALIGNED(64) cl_token_bucket {
    uint64_t full_at;      /* RMW: when it is full again, after begin */
    uint64_t begin_ns;     /* RMW, once: of the first take */
    uint64_t between, all; /* constant: time for one token, and for burst */
    uint64_t burst;        /* constant */
    uint64_t taken, refused;
};

int cl_token_bucket_new(uint64_t per_second, uint64_t burst, struct cl_token_bucket **out)
{
    if (per_second < 1 || per_second > MOST_PER_SECOND || burst < 1 || burst > UINT32_MAX)
        return -EINVAL;
    uint64_t between = (SECOND + per_second / 2) / per_second;
    if (burst > YEAR / between)
        return -EINVAL;
    struct cl_token_bucket *b = aligned_alloc(64, sizeof *b);
    if (!b)
        return -ENOMEM;
    *b = (struct cl_token_bucket){.between = between, .all = burst * between, .burst = burst};
    *out = b;
    return 0;
}

void cl_token_bucket_delete(struct cl_token_bucket *b)
{
    free(b);
}

/* Since the first take, and never 0 before it: `begin_ns` is that instant + 1. */
static uint64_t since_begin(struct cl_token_bucket *b, uint64_t now_ns)
{
    uint64_t begin = cl_load_relaxed(&b->begin_ns);
    if (cl_unlikely(!begin) &&
        __atomic_compare_exchange_n(&b->begin_ns, &begin, now_ns + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        begin = now_ns + 1;
    return now_ns + 1 > begin ? (now_ns + 1 - begin) * UNITS : 0;
}

int64_t cl_token_bucket_take_at(struct cl_token_bucket *b, uint64_t n, uint64_t now_ns)
{
    if (n > b->burst)
        return -EINVAL;
    uint64_t now = since_begin(b, now_ns), cost = n * b->between, old = cl_load_relaxed(&b->full_at);
    for (;;) {
        uint64_t after = cl_max(old, now) + cost;
        if (after > now + b->all) {
            __atomic_fetch_add(&b->refused, 1, __ATOMIC_RELAXED);
            return (int64_t)((after - now - b->all + UNITS - 1) / UNITS);
        }
        /* Relaxed: it orders nothing else. */
        if (__atomic_compare_exchange_n(&b->full_at, &old, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            break;
    }
    __atomic_fetch_add(&b->taken, n, __ATOMIC_RELAXED);
    return 0;
}

int64_t cl_token_bucket_take(struct cl_token_bucket *b, uint64_t n)
{
    const struct cl_sched *s = cl_sched_self();
    return cl_token_bucket_take_at(b, n, s ? cl_sched_now_ns(s) : (uint64_t)cl_clock_ns(cl_clock_default()));
}

uint64_t cl_token_bucket_taken(const struct cl_token_bucket *b)
{
    return cl_load_relaxed(&b->taken);
}

uint64_t cl_token_bucket_refused(const struct cl_token_bucket *b)
{
    return cl_load_relaxed(&b->refused);
}
