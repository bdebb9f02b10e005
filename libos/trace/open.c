/* Requests in mode full that one stamp ends. See trace.h.
 *
 * A stamp costs 10 to 15 ns, and the handler of an echo some 60. So short handlers of a service that run one after the
 * other share their start and their end: from the stamp before the first until the doorbell that answers them, or until
 * something else begins on their kthread. Their records say by how many they are shared. Where one turns out to be long,
 * each of the next ALONE has a stamp of its own: what a slow service does is known for each request, and costs little
 * beside it.
 *
 * Records are made of them when their end is known, in one go: that costs half of what it does beside each handler. */
#include "internal.h"

#define ALONE 64
#define SOON (1ull << 30) /* ticks: what is below adds up to less than 32 bits */
#define FLAG(flag) ((uint64_t)(flag) << 32)
#define ANSWERED FLAG(CL_TRACE_ANSWERED)

/* n requests took so long together. */
static void judge(struct cl_tracer *t, uint64_t took, unsigned n)
{
    if (took > n * t->short_ticks)
        t->open.alone = ALONE;
    else if (t->open.alone)
        t->open.alone--;
}

void cl_tracer_end_open(struct cl_tracer *t)
{
    struct cl_trace_together *o = &t->open;
    uint64_t begin = o->of[0].begin;
    if (!t->n_open || o->end)
        return;
    o->end = o->ended = cl_tracer_stamp(t);
    judge(t, cl_max(o->end, o->start) - o->start, t->n_open);
    if (cl_unlikely(begin < t->taken.end))
        cl_tracer_tell_taken(t);
    o->counted = cl_tracer_counted(t, cl_max(o->end, begin) - begin, t->ids + 1);
}

/* Latency of n of them whose records begin at number `first`: of about 1 of 8 (latency.c). */
static void tell_latency(struct cl_tracer *t, uint64_t first, uint32_t n)
{
    uint32_t i = (uint32_t)t->untold;
    for (; i < n; i += 1 + (uint32_t)t->untold) {
        const uint64_t *words = cl_trace_slot(t->ring, t->records, first + i);
        cl_tracer_latency_take(t, (uint16_t)(t->open.of[i].first >> 16), (uint32_t)(cl_load_relaxed(&words[4]) >> 32));
    }
    t->untold = (int32_t)(i - n);
}

/* The time of one that is not as it should be: picked up after its start, by the counter of another core; or it has come
 * long ago. Words 3 and 4. */
static CL_NOINLINE void put_odd(const struct cl_trace_together *o, const struct cl_trace_plain *m, uint64_t sent,
                                uint64_t *to)
{
    uint32_t start = cl_max((uint32_t)m->pickup, cl_trace_ticks(m->begin, o->start));
    uint32_t end = cl_max(start, cl_trace_ticks(m->begin, o->end));
    uint32_t until = m->first & ANSWERED ? cl_max(end, cl_trace_ticks(m->begin, sent)) : end;
    cl_store_relaxed(&to[3], cl_trace_both((uint32_t)m->pickup, start));
    cl_store_relaxed(&to[4], cl_trace_both(end, until));
}

/* Put records of what is open, whose end is known. sent: the stamp of their doorbell; 0: it is to come. */
static void put(struct cl_tracer *t, uint64_t sent)
{
    struct cl_trace_together *o = &t->open;
    uint32_t n = t->n_open, records = t->records;
    uint64_t at = t->head + t->pending, ids = t->ids, began = o->start, shared = (uint64_t)n << 48;
    uint64_t kind = CL_TRACE_MESSAGE | (uint64_t)t->index << 8 | FLAG(CL_TRACE_DRAWN | (n > 1 ? CL_TRACE_SHARED : 0));
    uint64_t unsent = sent ? 0 : FLAG(CL_TRACE_UNSENT); /* of those that are answered */
    uint64_t ran = o->end - began, reply = sent ? sent - o->end : 0;
    bool odd = (ran | reply) >= SOON;
    struct cl_trace_ring *ring = t->ring;
    __atomic_thread_fence(__ATOMIC_RELEASE); /* as cl_trace_put, once for all */
    for (uint32_t i = 0; i < n; i++) {
        const struct cl_trace_plain *m = &o->of[i];
        uint64_t *to = cl_trace_slot(ring, records, at + i);
        uint64_t answered = m->first & ANSWERED ? UINT64_MAX : 0, start = began - m->begin, end = start + ran;
        cl_store_relaxed(&to[0], m->first | kind | (unsent & answered));
        cl_store_relaxed(&to[1], ++ids);
        cl_store_relaxed(&to[2], m->begin);
        if (cl_unlikely(odd || start - m->pickup >= SOON)) {
            put_odd(o, m, sent, to);
        } else {
            cl_store_relaxed(&to[3], m->pickup | start << 32);
            cl_store_relaxed(&to[4], end | (end + (reply & answered)) << 32);
        }
        cl_store_relaxed(&to[5], 0);
        cl_store_relaxed(&to[6], m->flow | shared);
        cl_store_relaxed(&to[7], 0);
    }
    if (cl_unlikely(o->counted))
        cl_store_relaxed(&cl_trace_slot(ring, records, at)[7], o->counted);
    if (sent)
        tell_latency(t, at, n);
    t->ids = ids;
    t->pending = (uint16_t)(t->pending + n);
    t->n_open = 0;
    o->end = 0;
}

void cl_tracer_close_open(struct cl_tracer *t)
{
    if (!t->n_open)
        return;
    cl_tracer_end_open(t);
    if (t->pending + t->n_open >= CL_TRACE_AHEAD)
        cl_tracer_settle(t, 0);
    put(t, 0);
}

void cl_tracer_sent(struct cl_tracer *t, uint64_t now)
{
    if (!now)
        cl_tracer_close_open(t);
    if (t->pending)
        cl_tracer_settle(t, now);
    if (t->n_open) {
        cl_tracer_end_open(t);
        put(t, now);
        cl_tracer_publish(t);
    }
    t->open.ended = cl_max(t->open.ended, now);
}
