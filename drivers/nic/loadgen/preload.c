/* Setting every key before the first run: a sliding window of SETs, and again those that were not answered in 20 ms. */
#include "engine.h"

/* Keys that may be sent now. */
unsigned cl_preload_due(struct cl_loadgen *lg, uint64_t now, unsigned n)
{
    struct cl_preload *p = &lg->preload;
    if (p->base != p->next && p->resend == p->next && now - p->progress_tsc > lg->resend_ticks) {
        p->resend = p->base;
        p->progress_tsc = now;
    }
    uint32_t room = cl_min(lg->config.preload_window - (p->next - p->base), lg->config.keys - p->next);
    return cl_min(n, p->next - p->resend + room);
}

/* The next keys to be sent, n at most; returns how many. */
unsigned cl_preload_take(struct cl_loadgen *lg, uint32_t *keys, unsigned n)
{
    struct cl_preload *p = &lg->preload;
    uint32_t mask = lg->config.preload_window - 1;
    unsigned k = 0;
    for (; k < n && p->resend != p->next; p->resend++) {
        if (p->done[p->resend & mask])
            continue;
        keys[k++] = p->resend;
        cl_count(&lg->other.preload_resent, 1);
    }
    bool caught_up = p->resend == p->next;
    while (k < n && p->next < lg->config.keys && p->next - p->base <= mask) {
        p->done[p->next & mask] = 0;
        keys[k++] = p->next++;
    }
    if (caught_up)
        p->resend = p->next;
    return k;
}

void cl_preload_stored(struct cl_loadgen *lg, uint64_t now, uint32_t key, bool well)
{
    struct cl_preload *p = &lg->preload;
    uint32_t mask = lg->config.preload_window - 1;
    if (key - p->base >= p->next - p->base || p->done[key & mask]) {
        cl_count(&lg->other.stray, 1); /* the answer to an earlier sending of the same key */
        return;
    }
    p->done[key & mask] = 1;
    p->progress_tsc = p->started_tsc = now;
    if (well)
        cl_count(&lg->other.preloaded, 1);
    else
        cl_count(&lg->other.preload_refused, 1);
    bool resending = p->resend != p->next;
    while (p->base != p->next && p->done[p->base & mask])
        p->base++;
    if (resending && (int32_t)(p->resend - p->base) < 0)
        p->resend = p->base;
    p->finished = p->base == lg->config.keys;
}
