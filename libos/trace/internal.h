/* What the files of this room share. */
#ifndef CORELANE_LIBOS_TRACE_INTERNAL_H
#define CORELANE_LIBOS_TRACE_INTERNAL_H

#include "trace.h"

static inline uint64_t cl_trace_both(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

/* Saturating, and 0 where a stamp of another core is a little later. */
static inline uint32_t cl_trace_ticks(uint64_t from, uint64_t to)
{
    return to <= from ? 0 : (uint32_t)cl_min(to - from, (uint64_t)UINT32_MAX);
}

/* records.c. One more, for its doorbell to be published; or when there are as many as may be. */
void cl_tracer_put_words(struct cl_tracer *t, const uint64_t words[CL_TRACE_WORDS]);
/* A record of what waits for no doorbell. */
void cl_tracer_put(struct cl_tracer *t, const void *record);

/* trace.c. What the kernel has counted of the thread of a message that took so long, if that is worth a look; 0:
 * nothing.
 */
uint64_t cl_tracer_counted(struct cl_tracer *t, uint64_t took, uint64_t id);
/* Who waited for a core that was another's is told of. */
void cl_tracer_tell_taken(struct cl_tracer *t);

/* records.c. Complete what is put, and publish it: its doorbell was rung at `now`; 0: it was not. */
void cl_tracer_settle(struct cl_tracer *t, uint64_t now);
/* group.c. Put what is open, whose end is known, as a group. sent: its doorbell; 0: that is to come, and completes it.
 * There is room. */
void cl_tracer_put_group(struct cl_tracer *t, uint64_t sent);
/* As cl_tracer_settle, of one that begins with record `at` and waits for it; returns how many records it has. */
uint32_t cl_tracer_settle_group(struct cl_tracer *t, uint64_t at, uint64_t now);

static inline void cl_tracer_publish(struct cl_tracer *t)
{
    t->head += t->pending;
    t->pending = 0;
    cl_trace_publish(t->ring, t->head);
}

/* gaps.c. What the kernel counts of a thread; not by a virtual clock, for each run of a seed is the same. */
void cl_tracer_watch(struct cl_tracer *t, const struct cl_clock *clock);
/* Let go of what the kernel says of its thread. */
void cl_tracer_unwatch(struct cl_tracer *t);
/* Whether it is known to have been switched away from since the last look. */
bool cl_tracer_switched(const struct cl_tracer *t);
/* Once a millisecond: look, if the thread was switched away from. */
void cl_tracer_check(struct cl_tracer *t);
/* Look at what the kernel has counted since the last time, and tell of the time that it took. took, id: of the message
 * that was slow, or 0. Returns page faults, and times that the kernel took the CPU in the upper half; 0: nothing is
 * known. */
uint64_t cl_tracer_look(struct cl_tracer *t, uint64_t took, uint64_t id);

/* sampled.c. */
int cl_tracer_sampled(struct cl_tracer *t);
/* Put what was noted since the last time into the ring. */
void cl_tracer_tell_samples(struct cl_tracer *t);

/* latency.c. The pages of so many kthreads: -ENOMEM. */
int cl_tracer_latency_new(uint32_t n_rings, void **out);
void cl_tracer_latency_delete(void *part, uint32_t n_rings);
/* A service has that number from now on. The first have one after the other; those beyond CL_LATENCY_SERVICES are not
 * told of. */
void cl_tracer_latency_name(void *part, uint32_t n_rings, uint16_t service, const char *name);
/* A message that was drawn took so many ticks. */
void cl_tracer_latency_take(struct cl_tracer *t, uint16_t service, uint32_t took);

static inline void cl_tracer_latency_record(struct cl_tracer *t, uint16_t service, uint32_t took)
{
    if (t->mode != CL_TRACE_FULL || --t->untold < 0)
        cl_tracer_latency_take(t, service, took);
}

/* As cl_trace_tell_latency, of the pages of so many kthreads. */
void cl_tracer_latency_tell(const void *part, void *out, uint32_t n_rings, const struct cl_trace_serving *now);

#endif
