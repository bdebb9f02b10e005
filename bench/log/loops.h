/* The loops behind `corelane bench log`: appends to our log by uthreads, and the least that a durable write of one
 * block can take.
 *
 * All on one pinned thread. A raw loop writes one block of 4096 bytes after another into a file whose blocks have all
 * been written before, each durable before the next, and goes round. */
#ifndef CORELANE_BENCH_LOG_LOOPS_H
#define CORELANE_BENCH_LOG_LOOPS_H

#include <corelane/drivers/blk.h>

// cffi: begin
#define CL_BENCH_LOG_DSYNC 0      /* pwrite, O_DIRECT and O_DSYNC */
#define CL_BENCH_LOG_URING 1      /* io_uring, O_DIRECT and RWF_DSYNC, sleeping in the kernel for each */
#define CL_BENCH_LOG_URING_POLL 2 /* the same, looking at the completion queue between sched_yield()s */
#define CL_BENCH_LOG_FDATASYNC 3  /* pwrite through the page cache, fdatasync */

#define CL_BENCH_LOG_LATE_NS 100000

/* One run of a loop. ns: of each operation, as many as there is room for. */
struct cl_bench_log_result {
    uint64_t operations, ns;
    uint64_t flushes;    /* of the log */
    uint64_t idle_turns; /* of the kthread's loop: those that found nothing to do */
    uint64_t at;         /* where in its file a raw loop ended, and the next one begins */
    uint32_t *each_ns;
    uint64_t room, kept;
    /* Of arrivals. */
    uint64_t late; /* began CL_BENCH_LOG_LATE_NS or more after they were due: the kthread had something else to do */
};

/* Write durably, one block at a time, for `for_ns`. -errno with a reason in err. */
CL_API int cl_bench_log_raw(uint32_t what, const char *path, int cpu, uint64_t for_ns, struct cl_bench_log_result *out,
                            char err[256]);

struct cl_bench_log_config {
    struct cl_blk *blk; /* an area with a log; queue 0 */
    int cpu;
    uint32_t writers;      /* uthreads, each with one append at a time; 0: arrivals */
    uint32_t record_bytes; /* up to 4000 */
    uint32_t in_flight;    /* 0: the log's own */
    uint32_t fixed_records, pad;
    uint64_t fixed_wait_ns;
    uint64_t for_ns; /* of writers */
    /* Open loop: when each append is due, from the beginning on, ascending. Each is a uthread; one that begins late is
     * charged from when it was due. */
    const uint64_t *due_ns;
    uint64_t arrivals;
};

/* Open the log, append for so long, or until all arrivals are durable, close it. */
CL_API int cl_bench_log_append(const struct cl_bench_log_config *config, struct cl_bench_log_result *out,
                               char err[256]);
/* Fill a fresh log with records until `bytes` of flushes are written; it is left as a crash would leave it. */
CL_API int cl_bench_log_fill(struct cl_blk *blk, uint64_t bytes, uint32_t record_bytes, uint64_t *records,
                             char err[256]);
/* Open it: how long recovery took and how many bytes it read. */
CL_API int cl_bench_log_recover(struct cl_blk *blk, uint64_t *ns, uint64_t *bytes, uint64_t *records, char err[256]);
/* Read `bytes` of the device in order, 256 KiB a request, `depth` at a time: the time. */
CL_API int cl_bench_log_read(struct cl_blk *blk, uint64_t bytes, uint32_t depth, uint64_t *ns, char err[256]);
// cffi: end

#endif
