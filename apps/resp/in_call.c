/* See in_call.h. Writes are left to the ring for 1 s, and each time that it is soon so again for twice as long, up to
 * 64 s:
 *   - while the disk takes longer than 1 ms in the mean: nothing is served meanwhile. A stall counts for 4 ms, so that
 *     a lone one says nothing;
 *   - while others have the core. Who waits in the kernel gives it away, and gets it back when their slice of
 *     milliseconds ends: a few calls take many times as long as the others, and together a good part of the time. By a
 *     ring the kthread waits awake. So calls are looked at by the thousand: whether those of ten times the usual length
 *     took a quarter of all. The machine's own gaps take a few hundredths;
 *   - where the device keeps nothing (no io_uring, a polling thread of the kernel's, a log on memory): who writes then
 *     gathers for nothing, and holds the next one up. One miss only says that something else was in flight. */
#include "in_call.h"

#define MOST_NS 1000000ull
#define STALL_NS (4 * MOST_NS)
#define MEAN_PART 8   /* weight of the newest one */
#define USUAL_PART 16 /* step of the usual length: up and down as often, so it is the median */
#define USUAL_TIMES 10
#define LOOK_CALLS 1024
#define STALLED_PART 4
#define MISSES 8
#define REST_NS 1000000000ull
#define REST_MOST_NS (64 * REST_NS)

bool cl_resp_in_call_may(const struct cl_resp_in_call *c, uint64_t now_ns)
{
    return now_ns >= c->off_until_ns;
}

static void rest(struct cl_resp_in_call *c, uint64_t now_ns)
{
    bool soon = now_ns < c->off_until_ns + c->rest_ns;
    uint64_t rest_ns = soon ? cl_min(2 * c->rest_ns, REST_MOST_NS) : REST_NS;
    *c = (struct cl_resp_in_call){.rest_ns = rest_ns, .off_until_ns = now_ns + rest_ns};
}

/* Whether the last calls were stalled for a good part of their time. */
static bool stalls(struct cl_resp_in_call *c, uint64_t took_ns)
{
    uint64_t step = c->usual_ns / USUAL_PART;
    if (!c->usual_ns)
        c->usual_ns = took_ns;
    else
        c->usual_ns = took_ns > c->usual_ns ? c->usual_ns + step + 1 : c->usual_ns - step;
    c->all_ns += took_ns;
    c->stalled_ns += took_ns > USUAL_TIMES * c->usual_ns ? took_ns : 0;
    if (++c->calls < LOOK_CALLS)
        return false;
    bool is_much = c->stalled_ns > c->all_ns / STALLED_PART;
    c->calls = 0;
    c->all_ns = c->stalled_ns = 0;
    return is_much;
}

void cl_resp_in_call_ended(struct cl_resp_in_call *c, uint64_t took_ns, uint64_t now_ns)
{
    c->missed = took_ns ? 0 : c->missed + 1;
    if (c->missed == MISSES)
        rest(c, now_ns);
    if (!took_ns)
        return;
    took_ns = cl_min(took_ns, STALL_NS);
    c->mean_ns += took_ns / MEAN_PART - c->mean_ns / MEAN_PART;
    if (stalls(c, took_ns) || c->mean_ns > MOST_NS)
        rest(c, now_ns);
}
