/* Records into a ring, and their doorbell. See runtime/trace.h. */
#include "internal.h"

#include <string.h>

#define FLAG(flag) ((uint64_t)(flag) << 32) /* in the first word of a record, whose first byte is its kind */

void cl_tracer_put_words(struct cl_tracer *t, const uint64_t words[CL_TRACE_WORDS])
{
    cl_trace_put(t->ring, t->records, t->head + t->pending, words);
    if (++t->pending == CL_TRACE_AHEAD)
        cl_tracer_settle(t, 0);
}

void cl_tracer_put(struct cl_tracer *t, const void *record)
{
    uint64_t words[CL_TRACE_WORDS];
    bool others_wait = t->pending != 0;
    memcpy(words, record, sizeof words);
    cl_tracer_put_words(t, words);
    if (!others_wait)
        cl_tracer_publish(t);
}

void cl_tracer_burst(struct cl_tracer *t, uint64_t rang, uint64_t taken, uint64_t given)
{
    uint32_t until = cl_trace_ticks(rang, taken);
    cl_tracer_put(t, &(struct cl_trace_burst){.kind = CL_TRACE_BURST,
                                              .kthread = (uint8_t)t->index,
                                              .begin = rang,
                                              .taken = until,
                                              .given = cl_max(until, cl_trace_ticks(rang, given))});
}

void cl_tracer_settle(struct cl_tracer *t, uint64_t now)
{
    for (uint32_t i = 0; i < t->pending; i++) {
        /* Our own stores; relaxed: a reader that is slow may look there. */
        uint64_t *words = cl_trace_slot(t->ring, t->records, t->head + i), first = cl_load_relaxed(&words[0]);
        uint64_t ends = cl_load_relaxed(&words[4]);
        if ((uint8_t)first == CL_TRACE_GROUP) {
            i += cl_tracer_settle_group(t, t->head + i, now) - 1;
            continue;
        }
        if ((uint8_t)first != CL_TRACE_MESSAGE)
            continue;
        if (first & FLAG(CL_TRACE_UNSENT)) {
            if (!now)
                continue;
            uint32_t end = (uint32_t)ends, sent = cl_max(end, cl_trace_ticks(cl_load_relaxed(&words[2]), now));
            ends = cl_trace_both(end, sent);
            cl_store_relaxed(&words[4], ends);
            cl_store_relaxed(&words[0], first & ~FLAG(CL_TRACE_UNSENT));
        }
        if ((first & FLAG(CL_TRACE_DRAWN | CL_TRACE_STALLED)) == FLAG(CL_TRACE_DRAWN)) /* of requests alone */
            cl_tracer_latency_record(t, (uint16_t)(first >> 16), (uint32_t)(ends >> 32));
    }
    cl_tracer_publish(t);
}
