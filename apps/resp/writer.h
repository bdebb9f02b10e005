/* Who writes units of the engine to its log. A few uthreads take turns: one takes all units that there are, appends
 * them as one record (in pieces, if it is too long for one: all but the last are of kind CL_RESP_PIECE), and waits
 * until it is durable, while the next one takes what has come meanwhile. How many of them share a flush, and how many
 * flushes are under way, is the log's to find out (docs/log.md, "Batching").
 *
 * In the call. On a kthread that is alone, one of them writes in the kernel (cl_log_future_call), and nothing is served
 * meanwhile. Those who wait for the log lose nothing by that: the same write by a ring is begun and ended by kernel
 * workers, for which a core that serves others has no time. What comes meanwhile shares the next write. So that many
 * share it, units gather before it: until as many clients wait for the log as the last two writes have answered, or
 * until none has come for GATHER_NS. What is better left to the ring is so for a while (in_call.c).
 *
 * Two locks, in this order: `submit`, of who takes units and appends them, so that records are in the order of their
 * units; and the engine's, which nobody holds while he waits for the log. */
#ifndef CORELANE_APPS_RESP_WRITER_H
#define CORELANE_APPS_RESP_WRITER_H

#include <corelane/libos/log_shared.h>
#include <corelane/libos/runtime.h>
#include <corelane/libos/sync.h>
#include "engine.h"
#include "serve.h"

#define CL_RESP_PIECE 1

struct cl_resp_writer;

/* The engine says what it does and holds its replies from here on. lock: the engine's. in_call: writes may be made in
 * the call. -ENOMEM, -EAGAIN. */
int cl_resp_writer_new(struct cl_runtime *rt, struct cl_resp *r, struct cl_mutex *lock, struct cl_log_shared *log,
                       bool in_call, struct cl_resp_writer **out);
/* Under the engine's lock: there are units. */
void cl_resp_writer_signal(struct cl_resp_writer *w);
/* Under the engine's lock, on a kthread: something was sent to a client. */
void cl_resp_writer_sent(struct cl_resp_writer *w);
/* The runtime has stopped. NULL is allowed. */
void cl_resp_writer_delete(struct cl_resp_writer *w);
const struct cl_resp_writer_counts *cl_resp_writer_counts(const struct cl_resp_writer *w);

#endif
