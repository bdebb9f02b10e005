/* See traced.h. */
#include "traced.h"
#include <corelane/libos/sched.h>
#include "../../runtime/trace.h"

static uint64_t now_of(const struct cl_resp_traced *t)
{
    return cl_sched_now_ns(cl_runtime_sched(t->rt));
}

static void over(struct cl_resp_traced *t, uint32_t *number, uint16_t kind, uint16_t what, uint64_t since_ns)
{
    if (!*number)
        *number = cl_runtime_trace_service(t->rt, kind, t->port);
    if (*number)
        cl_runtime_trace_call(
            t->rt, &(struct cl_runtime_call){.since_ns = since_ns, .service = *number, .what = what, .leaves = 1});
}

static void trace_held(struct cl_resp_traced *t, struct cl_resp_since *s, const struct cl_resp_waits *w)
{
    for (; s->opened != w->opened && s->held_ns[0]; s->opened++) {
        over(t, &t->held, CL_TRACE_RESP, t->held_for, s->held_ns[0]);
        s->held_ns[0] = s->held_ns[1];
        s->held_ns[1] = 0;
    }
    s->opened = w->opened;
    if (!w->held) /* they were dropped */
        s->held_ns[0] = s->held_ns[1] = 0;
    else if (!s->held_ns[w->held - 1])
        s->held_ns[w->held - 1] = now_of(t);
    if (w->held == 2 && !s->held_ns[0])
        s->held_ns[0] = s->held_ns[1];
}

void cl_resp_trace(struct cl_resp_traced *t, struct cl_resp_since *since, const struct cl_resp_client *c)
{
    struct cl_resp_waits w;
    cl_resp_waits(c, &w);
    if (cl_unlikely(w.held || since->held_ns[0]))
        trace_held(t, since, &w);
    else
        since->opened = w.opened;
    if (cl_likely(!w.blocked == !since->blocked_ns))
        return;
    if (since->blocked_ns)
        over(t, &t->blocking, CL_TRACE_BLOCKING, CL_TRACE_WAITS_KEYS, since->blocked_ns);
    since->blocked_ns = w.blocked ? now_of(t) : 0;
}
