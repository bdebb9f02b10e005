/* Requests in mode full that one stamp ends. See trace.h.
 *
 * A stamp costs 10 to 15 ns, and the handler of an echo some 60. So short handlers of a service that run one after the
 * other share their start and their end: from the stamp before the first until the doorbell that answers them, or until
 * something else begins on their kthread. Their records say by how many they are shared. Where one turns out to be
 * long, each of the next ALONE has a stamp of its own: what a slow service does is known for each request, and costs
 * little beside it.
 *
 * Records are made of them when their end is known, in one go: that costs half of what it does beside each handler.
 * What they share is written once, in a group (runtime/trace.h): two stores a request in place of eight, and a ring
 * holds up to 2.7 times as many. Those whose doorbell is to come, and those with times that a group has no room for,
 * have records of their own. */
#include "internal.h"

#include <string.h>

#define ALONE 64
#define GROUP_LEAST 3 /* requests: a group of fewer takes as many records */
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
    if (!t->n_open || o->end)
        return;
    uint64_t begin = o->start - (uint32_t)o->of[0].times;
    o->end = o->ended = cl_tracer_stamp(t);
    judge(t, cl_max(o->end, o->start) - o->start, t->n_open);
    if (cl_unlikely(begin < t->taken.end))
        cl_tracer_tell_taken(t);
    o->counted = cl_tracer_counted(t, cl_max(o->end, begin) - begin, t->ids + 1);
}

_Static_assert(sizeof(struct cl_trace_plain) == sizeof(struct cl_trace_member) &&
                   offsetof(struct cl_trace_member, flow) == 8 && offsetof(struct cl_trace_member, flags) == 14,
               "copied as it is");

static struct cl_trace_member member(const struct cl_trace_together *o, uint32_t i)
{
    struct cl_trace_member m;
    memcpy(&m, &o->of[i], sizeof m);
    return m;
}

/* Latency of some of n that ran so long, and waited so long for their doorbell (latency.c). */
static void tell_latency(struct cl_tracer *t, uint32_t n, uint64_t ran, uint64_t reply)
{
    uint32_t i = (uint32_t)t->untold;
    for (; i < n; i += 1 + (uint32_t)t->untold) {
        struct cl_trace_member m = member(&t->open, i);
        uint64_t took = m.start + ran + (m.flags & CL_TRACE_ANSWERED ? reply : 0);
        cl_tracer_latency_take(t, m.service, (uint32_t)cl_min(took, (uint64_t)UINT32_MAX));
    }
    t->untold = (int32_t)(i - n);
}

/* Put what is open, whose end is known, each as a record of its own. sent: the stamp of their doorbell; 0: it is to
 * come. */
static CL_NOINLINE void put_each(struct cl_tracer *t, uint64_t sent)
{
    struct cl_trace_together *o = &t->open;
    uint32_t n = t->n_open;
    for (uint32_t i = 0; i < n; i++) {
        struct cl_trace_member m = member(o, i);
        uint64_t begin = o->start - m.start, flags = m.flags | CL_TRACE_DRAWN | (n > 1 ? CL_TRACE_SHARED : 0);
        uint32_t end = cl_max(m.start, cl_trace_ticks(begin, o->end)), until = end;
        if ((m.flags & CL_TRACE_ANSWERED) && sent)
            until = cl_max(end, cl_trace_ticks(begin, sent));
        else if (m.flags & CL_TRACE_ANSWERED)
            flags |= CL_TRACE_UNSENT;
        uint64_t words[CL_TRACE_WORDS] = {CL_TRACE_MESSAGE | (uint64_t)t->index << 8 | (uint64_t)m.service << 16 |
                                              flags << 32,
                                          ++t->ids,
                                          begin,
                                          cl_trace_both(m.start - m.picked, m.start),
                                          cl_trace_both(end, until),
                                          0,
                                          m.flow | (uint64_t)m.bytes << 32 | (uint64_t)n << 48,
                                          i == 0 ? o->counted : 0};
        cl_trace_put(t->ring, t->records, t->head + t->pending++, words);
    }
}

/* The same as one group, with its doorbell. */
static void put_group(struct cl_tracer *t, uint64_t ran, uint64_t reply)
{
    struct cl_trace_together *o = &t->open;
    uint32_t n = t->n_open;
    uint64_t at = t->head + t->pending, kthread = (uint64_t)t->index << 8;
    const struct cl_trace_plain *m = &o->of[1], *end = &o->of[n];
    uint64_t *to = cl_trace_slot(t->ring, t->records, at);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* as cl_trace_put, once for all */
    cl_store_relaxed(&to[0], CL_TRACE_GROUP | kthread | (uint64_t)n << 16);
    cl_store_relaxed(&to[1], t->ids + 1);
    cl_store_relaxed(&to[2], o->start);
    cl_store_relaxed(&to[3], ran | reply << 32);
    cl_store_relaxed(&to[4], o->counted);
    cl_store_relaxed(&to[5], o->of[0].times);
    cl_store_relaxed(&to[6], o->of[0].what);
    for (; m < end; m += CL_TRACE_MORE_EACH) { /* what is behind the last one is not looked at */
        to = cl_trace_slot(t->ring, t->records, ++at);
        cl_store_relaxed(&to[0], CL_TRACE_MORE | kthread);
        for (unsigned i = 0; i < CL_TRACE_MORE_EACH; i++) {
            cl_store_relaxed(&to[1 + 2 * i], m[i].times);
            cl_store_relaxed(&to[2 + 2 * i], m[i].what);
        }
    }
    t->pending = (uint16_t)(at + 1 - t->head);
    t->ids += n;
    tell_latency(t, n, ran, reply);
}

static void put(struct cl_tracer *t, uint64_t sent)
{
    struct cl_trace_together *o = &t->open;
    uint64_t ran = o->end - o->start, reply = sent - o->end;
    if (cl_likely(t->n_open >= GROUP_LEAST && (ran | reply) < CL_TRACER_SOON)) { /* else it is to come, or was long */
        put_group(t, ran, reply);
    } else {
        put_each(t, sent);
        if (sent)
            tell_latency(t, t->n_open, cl_trace_ticks(o->start, o->end), cl_trace_ticks(o->end, sent));
    }
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
