/* What is to happen in the simulated world, in order of virtual time: a heap of events.
 *
 * Events of one instant come in the order in which they were put in, so that the order never depends on how the heap
 * lies. Times are true virtual nanoseconds; what nodes take for the time is sim_clock's.
 *
 * Tests: tests/apps/raft/sim/test_network.py */
#ifndef CORELANE_APPS_RAFT_SIM_QUEUE_H
#define CORELANE_APPS_RAFT_SIM_QUEUE_H

#include <corelane/runtime/base.h>

struct sim_event {
    uint64_t at_ns;
    uint64_t order; /* a count: what was put in first comes first */
    uint64_t argument;
    uint32_t epoch; /* of the node: events of an incarnation that ended are dropped */
    uint8_t kind, node, from;
};

struct sim_queue {
    struct sim_event *heap; /* four children a place: half the depth of a binary heap, and neighbours in a line */
    uint32_t n, room;
    uint64_t puts;
    uint64_t now_ns; /* of the event taken last */
};

/* 0 or -ENOMEM. */
int sim_queue_put(struct sim_queue *q, struct sim_event event);
/* Take the next event and advance the time. False if there is none. */
bool sim_queue_take(struct sim_queue *q, struct sim_event *out);
/* Forget everything and begin at time 0; keeps its memory. */
void sim_queue_clear(struct sim_queue *q);
void sim_queue_free(struct sim_queue *q);

/* A clock that runs fast or slow and began at some time of its own. */
struct sim_clock {
    int32_t drift_ppm;
    uint64_t offset_ns;
};

static inline uint64_t sim_clock_read(const struct sim_clock *clock, uint64_t true_ns)
{
    return clock->offset_ns + true_ns + (uint64_t)((int64_t)(true_ns / 1000) * clock->drift_ppm / 1000);
}

/* How long a span of this clock takes in truth. */
static inline uint64_t sim_clock_span(const struct sim_clock *clock, uint64_t local_ns)
{
    return local_ns * 1000000 / (uint64_t)(1000000 + clock->drift_ppm);
}

#endif
