/* See limits.h. */
#include "limits.h"

void cl_bucket_init(struct cl_bucket *b, uint64_t per_s, uint64_t burst, bool whole, uint64_t hz, uint64_t now)
{
    *b = (struct cl_bucket){.last = now, .need = whole ? BUCKET_UNIT : 1};
    if (per_s == 0)
        return;
    burst = cl_min(cl_max(burst, 1u), 1ull << 28);
    b->burst = b->tokens = (int64_t)(burst * BUCKET_UNIT);
    /* tokens/s * 2^16 units * 2^16 fraction / (ticks/s): 2^32 * per_s / hz. */
    b->rate = (uint64_t)cl_max(((unsigned __int128)per_s << 32) / hz, (unsigned __int128)1);
    unsigned __int128 full = (((unsigned __int128)b->burst * 2) << 16) / b->rate;
    b->full_ticks = (uint64_t)cl_min(full + 1, (unsigned __int128)1 << 62);
}

uint64_t cl_bucket_wait(const struct cl_bucket *b)
{
    if (cl_bucket_open(b))
        return 0;
    unsigned __int128 missing = ((unsigned __int128)(uint64_t)(b->need - b->tokens) << 16) - b->remainder;
    return (uint64_t)((missing + b->rate - 1) / b->rate);
}
