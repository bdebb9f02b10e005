/* Requests in mode full that are written down together. See trace.h.
 *
 * A stamp costs 10 to 15 ns, and the handler of an echo some 60. So short handlers of a service that run one after the
 * other share their start and their end: from the stamp before the first until the doorbell that answers them, or until
 * something else begins on their kthread. Their records say by how many they are shared. The stamp of a doorbell is
 * taken when it has been rung, and is the end of all that it answers: the bell's own time is charged to them. Of one or
 * two, and where a doorbell is a system call, the end is stamped before it. Where a handler turns out to be long, each
 * of the next ALONE has a stamp of its own: what a slow service does is known for each request, and costs little beside
 * it.
 *
 * Where handlers have stamps anyway, as turns of connections do, those that run one after the other are a row: each has
 * its own start and end, and what they share is their doorbell.
 *
 * Records are made of them when their end is known, in one go: that costs half of what it does beside each handler.
 * What they share is written once, in a group (runtime/trace.h): two stores a request in place of eight, and a ring
 * holds up to 2.7 times as many. Those with times that a group has no room for have records of their own. */
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

void cl_tracer_end_open(struct cl_tracer *t, uint64_t at)
{
    struct cl_trace_together *o = &t->open;
    if (!t->n_open || o->end)
        return;
    uint64_t begin = o->start - (uint32_t)o->of[0].times;
    o->end = o->ended = o->until ? o->until : at;
    if (!o->until)
        judge(t, cl_max(o->end, o->start) - o->start, t->n_open);
    if (cl_unlikely(begin < t->taken.end))
        cl_tracer_tell_taken(t);
    o->counted = cl_tracer_counted(t, cl_max(o->end, begin) - begin, t->ids + (o->until ? t->n_open : 1));
}

void cl_tracer_follow(struct cl_tracer *t, struct cl_trace_plain m, uint64_t start, uint64_t end)
{
    struct cl_trace_together *o = &t->open;
    if (t->n_open && (o->until != start || end - o->start >= CL_TRACER_SOON))
        cl_tracer_close_open(t);
    if (t->n_open == 0)
        o->start = start;
    o->ran[t->n_open] = (uint32_t)(end - start);
    o->until = end;
    cl_tracer_add(t, m);
    /* Whose thread may have stood still is the last of a row: what the kernel has counted is its. */
    if (t->n_open == CL_TRACER_TOGETHER || end - start > t->gap_ticks)
        cl_tracer_close_open(t);
}

/* Put what is open, whose end is known, each as a record of its own, for its doorbell to complete. */
static CL_NOINLINE void put_each(struct cl_tracer *t)
{
    struct cl_trace_together *o = &t->open;
    uint32_t n = t->n_open, shared = o->until ? 1 : n, counts = o->until ? n - 1 : 0;
    uint64_t start = o->start;
    for (uint32_t i = 0; i < n; i++) {
        struct cl_trace_member m;
        memcpy(&m, &o->of[i], sizeof m);
        uint64_t begin = start - m.start, flags = m.flags | CL_TRACE_DRAWN | (shared > 1 ? CL_TRACE_SHARED : 0);
        uint64_t ends = o->until ? start + o->ran[i] : o->end;
        uint32_t end = cl_max(m.start, cl_trace_ticks(begin, ends));
        flags |= m.flags & CL_TRACE_ANSWERED ? CL_TRACE_UNSENT : 0;
        uint64_t words[CL_TRACE_WORDS] = {CL_TRACE_MESSAGE | (uint64_t)t->index << 8 | (uint64_t)m.service << 16 |
                                              flags << 32,
                                          ++t->ids,
                                          begin,
                                          cl_trace_both(m.start - m.picked, m.start),
                                          cl_trace_both(end, end),
                                          0,
                                          m.flow | (uint64_t)m.bytes << 32 | (uint64_t)shared << 48,
                                          i == counts ? o->counted : 0};
        cl_trace_put(t->ring, t->records, t->head + t->pending++, words);
        start = o->until ? ends : start;
    }
}

/* Put what is open, and has ended. There is room. sent: its doorbell, or 0. Whether that is told. */
static inline bool put(struct cl_tracer *t, uint64_t sent)
{
    struct cl_trace_together *o = &t->open;
    bool grouped = t->n_open >= GROUP_LEAST && o->end - o->start < CL_TRACER_SOON;
    if (cl_likely(grouped))
        cl_tracer_put_group(t, sent);
    else
        put_each(t);
    t->n_open = 0;
    o->end = o->until = 0;
    return grouped;
}

void cl_tracer_rings(struct cl_tracer *t, uint64_t at)
{
    if (t->open.until || at)
        cl_tracer_end_open(t, at);
    else if (t->n_open < GROUP_LEAST) /* else the doorbell's stamp is theirs */
        cl_tracer_end_open(t, cl_tracer_stamp(t));
}

void cl_tracer_close_open(struct cl_tracer *t)
{
    if (!t->n_open)
        return;
    cl_tracer_end_open(t, t->open.end | t->open.until ? 0 : cl_tracer_stamp(t));
    if (t->pending + t->n_open >= CL_TRACE_AHEAD)
        cl_tracer_settle(t, 0);
    (void)put(t, 0);
}

void cl_tracer_sent(struct cl_tracer *t, uint64_t now)
{
    if (!now)
        cl_tracer_close_open(t);
    if (t->pending)
        cl_tracer_settle(t, now);
    if (t->n_open) {
        cl_tracer_end_open(t, now);
        if (cl_likely(put(t, now)))
            cl_tracer_publish(t);
        else
            cl_tracer_settle(t, now);
    }
    /* A look at what the kernel counts is nobody's time. */
    t->open.ended = cl_max(cl_max(t->open.ended, now), t->seen.looked);
}
