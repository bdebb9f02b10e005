/* See in_call.h.
 *
 * A durable write in the calling thread takes 0.9 of one by a ring on the CPU that takes the disk's interrupts, and the
 * node is deaf meanwhile. That costs nothing where nothing comes: one client that waits for each of its commands. So
 *   - work that is handled right after a call has waited for its end: no calls for 1 ms, and for twice as long, up to
 *     64 ms, each time that the first call after that has work wait again. Of two clients that ask in turns each write
 *     would be lone, and each would hold up the other's. What comes once a client was answered is not meant: a client
 *     on a core of its own asks again within a microsecond;
 *   - a call that was longer than a quarter of an election timeout came near to costing the lead: none for 1 s, and in
 *     the same way up to 64 s. With a timeout below 80 ms there are none at all: each stall of the disk would cost the
 *     lead, which a leader that hears keeps by its followers' disks. */
#include "in_call.h"

#define HELD_UP_NS 1000000ull
#define SLOW_NS 1000000000ull
#define LONGEST 64                 /* times the first */
#define LEAST_LIMIT_NS 20000000ull /* a disk that stalls for so long does so seldom */

uint64_t cl_raft_in_call_limit(uint64_t election_ns)
{
    return election_ns / 4 < LEAST_LIMIT_NS ? 0 : election_ns / 4;
}

static void rest(struct cl_raft_in_call *c, struct cl_raft_rest *r, uint64_t first_ns, uint64_t now_ns)
{
    bool again = r->ns && now_ns - r->last_ns < 2 * r->ns;
    r->ns = again ? cl_min(2 * r->ns, LONGEST * first_ns) : first_ns;
    r->last_ns = now_ns;
    c->off_until_ns = cl_max(c->off_until_ns, now_ns + r->ns);
}

bool cl_raft_in_call_may(const struct cl_raft_in_call *c, uint64_t now_ns)
{
    return c->limit_ns && now_ns >= c->off_until_ns;
}

void cl_raft_in_call_ended(struct cl_raft_in_call *c, uint64_t began_ns, uint64_t ended_ns)
{
    cl_count(&c->calls, 1);
    c->ended_ns = ended_ns;
    c->answered = 0;
    if (ended_ns - began_ns <= c->limit_ns)
        return;
    cl_count(&c->long_ones, 1);
    rest(c, &c->slow, SLOW_NS, ended_ns);
}

void cl_raft_in_call_answered(struct cl_raft_in_call *c, uint64_t turn)
{
    if (!c->answered)
        c->answered = turn;
}

void cl_raft_in_call_work(struct cl_raft_in_call *c, uint64_t now_ns, uint64_t turn)
{
    if (!c->ended_ns || now_ns - c->ended_ns > CL_RAFT_IN_CALL_NEAR_NS)
        return;
    if (c->answered && c->answered < turn)
        return;
    cl_count(&c->late, 1);
    c->ended_ns = 0; /* one burst of it is enough */
    rest(c, &c->held_up, HELD_UP_NS, now_ns);
}
