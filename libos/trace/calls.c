/* Calls: what a handler takes in and somebody answers later, and appends to a log. A message with one wait, which of a
 * command of a group and of an append is taken apart. See trace.h. */
#include "internal.h"

/* Where a stage's end lies; one that was not reached is behind all. least: of the stage before it. */
static uint32_t reached(uint64_t begin, uint64_t stamp, uint32_t least)
{
    return stamp ? cl_max(least, cl_trace_ticks(begin, stamp)) : UINT32_MAX;
}

static void put_stages(struct cl_tracer *t, uint64_t id, uint64_t begin, const struct cl_trace_stages *s)
{
    struct cl_trace_command c = {.kind = CL_TRACE_COMMAND,
                                 .kthread = (uint8_t)t->index,
                                 .flags = (uint16_t)s->flags,
                                 .node = s->node,
                                 .id = id,
                                 .begin = begin,
                                 /* When it went is forgotten, perhaps, but it did. */
                                 .gone = s->gone || !s->agreed ? reached(begin, s->gone, 0) : 0,
                                 .index = s->index};
    c.sent = reached(begin, s->sent, c.gone);
    /* Of a log that says nothing of its flushes all is left to being acknowledged. */
    c.flush = s->flush || !s->durable ? reached(begin, s->flush, c.gone) : c.gone;
    c.written = s->written || !s->durable ? reached(begin, s->written, c.flush) : c.flush;
    c.durable = reached(begin, s->durable, c.written);
    c.others = reached(begin, s->others, c.gone);
    c.agreed = reached(begin, s->agreed, c.gone);
    cl_tracer_put(t, &c);
}

bool cl_tracer_called(struct cl_tracer *t, struct cl_trace_call *c, uint64_t now)
{
    c->drawn = cl_tracer_draws(t);
    cl_tracer_served(t, c->service, 1);
    return c->drawn || (t->mode == CL_TRACE_SAMPLED && cl_trace_ticks(c->begin, now) > t->slow_ticks);
}

void cl_tracer_put_call(struct cl_tracer *t, const struct cl_trace_call *c, const struct cl_trace_stages *stages,
                        uint64_t now)
{
    struct cl_trace_open o = {.id = cl_tracer_id(t), .drawn = c->drawn};
    struct cl_trace_wait w = {.what = c->what, .begin = c->begin};
    struct cl_trace_end e = {.begin = c->begin,
                             .pickup = c->begin,
                             .start = c->begin,
                             .end = now,
                             .sent = c->leaves ? 0 : now,
                             .flags = CL_TRACE_ANSWERED | CL_TRACE_FROM_KTHREAD | (c->failed ? CL_TRACE_ERROR : 0),
                             .service = c->service,
                             .shared = 1};
    if (stages) {
        put_stages(t, o.id, c->begin, stages);
        o.blocked = cl_trace_ticks(c->begin, now);
    } else {
        uint64_t ready = c->ready ? c->ready : now;
        if (c->parts)
            cl_tracer_parts(&w, c->parts, ready);
        cl_tracer_waited(t, &o, &w, ready, now);
    }
    cl_tracer_message(t, &o, &e);
    if (!c->leaves && t->pending == 1 && !t->n_open) /* nobody else's doorbell is to come */
        cl_tracer_sent(t, 0);
}
