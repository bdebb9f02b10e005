/* The log on a disk and a clock that are modelled: the same load gives the same numbers on every machine.
 *
 * The disk is one of lanes (lanes.h). The log, its uthreads and their scheduler are the real ones, on one kthread that
 * is stepped by hand. What they cost is modelled, too: the disk's submit_ns for a flush, CL_BENCH_LOG_MODEL_APPEND_NS
 * for an append, CL_BENCH_LOG_MODEL_TURN_NS for a turn of the kthread's loop. Tests:
 * tests/bench/log/test_batching.py. */
#ifndef CORELANE_BENCH_LOG_MODEL_H
#define CORELANE_BENCH_LOG_MODEL_H

#include "lanes.h"

// cffi: begin
#define CL_BENCH_LOG_MODEL_APPEND_NS 200
#define CL_BENCH_LOG_MODEL_TURN_NS 100

struct cl_bench_log_model {
    struct cl_bench_lanes_config disk;
    uint32_t record_bytes; /* up to 4000 */
    /* The log's configuration (corelane/libos/log.h); zeros: adaptive batching. */
    uint32_t in_flight, fixed_records;
    uint64_t fixed_wait_ns;
    /* Closed loop: so many uthreads append for warm_ns, which are not measured, and for for_ns. 0: open loop. */
    uint64_t writers, warm_ns, for_ns;
    /* Open loop: when each append is due, from the beginning on, ascending. One that begins late is charged from
     * here. */
    const uint64_t *due_ns;
    uint64_t arrivals;
};

/* each_ns: the caller's, of each append in the order in which they ended: from when it was due, or began, until it was
 * durable. */
struct cl_bench_log_modelled {
    uint32_t *each_ns;
    uint64_t room, appends;    /* there is room for; measured: all of an open loop */
    uint64_t ns;               /* until the last one was durable, from the beginning on, or from the end of warm_ns */
    uint64_t worker_ns;        /* in which the kthread computed, of all of the run */
    uint64_t flushes, disk_ns; /* the same; disk_ns: of all lanes together */
    uint64_t width;            /* flushes in flight at most, at the end */
};

/* 0, or -errno with a reason in err. */
CL_API int cl_bench_log_model(const struct cl_bench_log_model *model, struct cl_bench_log_modelled *out, char err[256]);
// cffi: end

#endif
