/* A log or replicas behind the engine: replies that wait until what they tell of is durable, writes that are refused
 * where it takes none, and the rewrite by which the log is kept short.
 *
 * Replies. What a client is answered may tell of all that was done before it, its own writes and those of others. So
 * its replies wait until the last unit (propagate.h) that was complete when they were written is durable. A client has
 * two portions that wait at most, each with its unit: what is answered behind the first joins the second, so that a
 * client is not kept waiting by what is done later and later.
 *
 * Replicas. Where others may have gone on without this engine, what a reply tells may be out of date though nothing was
 * written. So with `confirms` replies that tell of no unit that is still to be taken get a number of their own, behind
 * the units so far, and wait until whoever takes units says that at that number this engine was still the one
 * (apps/raft).
 *
 * Rewriting. Units that build every key as it is now are put between those of writes, some keys at a time. Before a
 * write touches a key whose turn has not come yet, that key's unit is put first. So the log from the pass's beginning
 * alone leaves the state, at each of its places from the pass's end on, and what lies before it can go. An entry has
 * the number of the pass that has put it, or in which it was made. */
#ifndef CORELANE_APPS_RESP_DURABLE_H
#define CORELANE_APPS_RESP_DURABLE_H

#include "command.h"

/* Bytes were added to a client's replies, or may be: to be called before another unit is complete. */
void cl_rdurable_replied(struct cl_resp_client *c);
/* n bytes were taken of those that do not wait. */
void cl_rdurable_taken(struct cl_resp_client *c, uint64_t n);
/* How many bytes of its replies wait. */
uint64_t cl_rdurable_held(const struct cl_resp_client *c);
/* Units up to that one are durable: those who wait for them are woken. */
void cl_rdurable_until(struct cl_resp *r, uint64_t unit);
/* The log has failed, for good: who waits gets no answer, and its connection ends. error: errno. */
void cl_rdurable_failed(struct cl_resp *r, int error);
/* None of its replies wait any more. */
static inline void cl_rdurable_forget(struct cl_resp_client *c)
{
    if (!c->held.listed)
        return;
    *(c->held.prev ? &c->held.prev->held.next : &c->r->durable.holding) = c->held.next;
    if (c->held.next)
        c->held.next->held.prev = c->held.prev;
    c->held.listed = false;
    c->r->durable.n_holding--;
}
/* Whether there is a log of this engine's own. */
static inline bool cl_rdurable_logs(const struct cl_resp *r)
{
    return r->durable.on && !r->durable.confirms;
}
/* Whether a command may write; else that was answered. */
bool cl_rdurable_may_write(struct cl_resp_client *c, const struct cl_rcmd *cmd);

/* Begin a pass. No unit is begun, and none was complete that was not taken. */
void cl_rrewrite_begin(struct cl_resp *r);
/* Put keys whose turn has not come, about so many bytes of them. True: the pass is over with the last unit. */
bool cl_rrewrite_step(struct cl_resp *r, uint64_t bytes);
/* Run a command's function, and say what it has done; keys whose turn has not come are put before. */
void cl_rdurable_run(struct cl_resp_client *c, const struct cl_rcmd *cmd);

#endif
