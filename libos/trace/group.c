/* Groups of messages in a ring, and their doorbell. See runtime/trace.h, and open.c for which these are. */
#include "internal.h"

/* Words of a group, and of the records behind it. */
#define SENT 3
#define FIRST 5
#define RAN 7
#define MORE 2
_Static_assert(sizeof(struct cl_trace_plain) == sizeof(struct cl_trace_member) &&
                   offsetof(struct cl_trace_member, flow) == 8 && offsetof(struct cl_trace_member, flags) == 14,
               "copied as it is");
_Static_assert(offsetof(struct cl_trace_group, sent) == SENT * 8 && offsetof(struct cl_trace_group, ran) == RAN * 8 &&
                   offsetof(struct cl_trace_group, first) == FIRST * 8 &&
                   offsetof(struct cl_trace_more, of) == MORE * 8 && offsetof(struct cl_trace_more, ran) == 4,
               "put word by word");

/* Member i of the group that is at `at`, and how long it ran: our own stores, word by word, as they were made. */
static struct cl_trace_plain member(const struct cl_tracer *t, uint64_t at, uint32_t i, uint64_t *ran)
{
    uint32_t k = (i - 1) % CL_TRACE_MORE_EACH;
    uint64_t of = i ? at + 1 + (i - 1) / CL_TRACE_MORE_EACH : at;
    const uint64_t *line = cl_trace_slot(t->ring, t->records, of), *words = line + (i ? MORE + 2 * k : FIRST);
    uint64_t both = cl_load_relaxed(&line[i == 0 ? RAN : k ? 1 : 0]);
    *ran = k == 1 || i == 0 ? (uint32_t)both : both >> 32;
    return (struct cl_trace_plain){cl_load_relaxed(&words[0]), cl_load_relaxed(&words[1])};
}

/* Latency of some of a group of n, which began at `start` (latency.c). */
static void tell_latency(struct cl_tracer *t, uint64_t at, uint32_t n, bool in_row, uint64_t start, uint64_t now)
{
    uint32_t next = 0, i = (uint32_t)t->untold;
    for (; i < n; i += 1 + (uint32_t)t->untold) {
        uint64_t ran;
        for (; in_row && next < i; next++) {
            (void)member(t, at, next, &ran);
            start += ran;
        }
        struct cl_trace_plain m = member(t, at, i, &ran);
        if (!in_row)
            (void)member(t, at, 0, &ran);
        uint64_t begin = start - (uint32_t)m.times, end = start + ran;
        bool answered = m.what >> 48 & CL_TRACE_ANSWERED;
        cl_tracer_latency_take(t, (uint8_t)(m.what >> 56), cl_trace_ticks(begin, answered ? cl_max(end, now) : end));
    }
    t->untold = (int32_t)(i - n);
}

/* The doorbell of a group of n is known. */
static inline void settled(struct cl_tracer *t, uint64_t at, uint32_t n, bool in_row, uint64_t start, uint64_t now)
{
    if (cl_unlikely(t->untold < (int32_t)n))
        tell_latency(t, at, n, in_row, start, now);
    else
        t->untold -= (int32_t)n;
}

void cl_tracer_put_group(struct cl_tracer *t, uint64_t sent)
{
    struct cl_trace_together *o = &t->open;
    uint32_t n = t->n_open;
    uint64_t from = t->head + t->pending, at = from, kthread = (uint64_t)t->index << 8;
    bool in_row = o->until != 0;
    uint64_t *to = cl_trace_slot(t->ring, t->records, at);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* as cl_trace_put, once for all */
    cl_store_relaxed(&to[0], CL_TRACE_GROUP | kthread | (uint64_t)n << 16 | (uint64_t)in_row << 32);
    cl_store_relaxed(&to[1], t->ids + 1);
    cl_store_relaxed(&to[2], o->start);
    cl_store_relaxed(&to[SENT], sent);
    cl_store_relaxed(&to[4], o->counted);
    cl_store_relaxed(&to[5], o->of[0].times);
    cl_store_relaxed(&to[6], o->of[0].what);
    cl_store_relaxed(&to[RAN], in_row ? o->ran[0] : o->end - o->start);
    for (uint32_t i = 1; i < n; i += CL_TRACE_MORE_EACH) { /* what is behind the last one is not looked at */
        const struct cl_trace_plain *m = &o->of[i];
        const uint32_t *ran = &o->ran[i];
        to = cl_trace_slot(t->ring, t->records, ++at);
        cl_store_relaxed(&to[0], CL_TRACE_MORE | kthread | (in_row ? (uint64_t)ran[0] << 32 : 0));
        if (in_row)
            cl_store_relaxed(&to[1], cl_trace_both(ran[1], ran[2]));
        for (unsigned k = 0; k < CL_TRACE_MORE_EACH; k++) {
            cl_store_relaxed(&to[MORE + 2 * k], m[k].times);
            cl_store_relaxed(&to[MORE + 1 + 2 * k], m[k].what);
        }
    }
    t->pending = (uint16_t)(at + 1 - t->head);
    t->ids += n;
    if (sent)
        settled(t, from, n, in_row, o->start, sent);
}

uint32_t cl_tracer_settle_group(struct cl_tracer *t, uint64_t at, uint64_t now)
{
    uint64_t *words = cl_trace_slot(t->ring, t->records, at), first = cl_load_relaxed(&words[0]);
    uint32_t n = (uint16_t)(first >> 16);
    cl_store_relaxed(&words[SENT], now);
    settled(t, at, n, first >> 32, cl_load_relaxed(&words[2]), now);
    return 1 + (n - 1 + CL_TRACE_MORE_EACH - 1) / CL_TRACE_MORE_EACH;
}
