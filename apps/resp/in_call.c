/* See in_call.h. Writes are left to the ring for 1 s, and each time that it is soon so again for twice as long, up to
 * 64 s:
 *   - while a write takes longer than 1 ms as a rule: nothing is served meanwhile. The rule is the median. A mean would
 *     not do: beside others on the core some calls take as long as a slice of theirs, and are still the better way. Who
 *     sleeps for the disk is let in again before those who compute; who looks for the ring's completion computes, too,
 *     and the kernel's workers wait for the core, twice for each write;
 *   - where the device keeps nothing (no io_uring, a polling thread of the kernel's, a log on memory): who writes then
 *     gathers for nothing, and holds the next one up. One miss only says that something else was in flight. */
#include "in_call.h"

#define MOST_NS 1000000ull
#define USUAL_PART 16 /* step of the usual length: up and down as often, so it is the median */
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

/* The first one alone never makes the disk a slow one. */
static void learn(struct cl_resp_in_call *c, uint64_t took_ns)
{
    uint64_t step = c->usual_ns / USUAL_PART + 1;
    if (!c->usual_ns)
        c->usual_ns = cl_min(took_ns, MOST_NS);
    else if (took_ns > c->usual_ns)
        c->usual_ns += step;
    else
        c->usual_ns -= step;
}

void cl_resp_in_call_ended(struct cl_resp_in_call *c, uint64_t took_ns, uint64_t now_ns)
{
    c->missed = took_ns ? 0 : c->missed + 1;
    if (took_ns)
        learn(c, took_ns);
    if (c->missed == MISSES || c->usual_ns > MOST_NS)
        rest(c, now_ns);
}
