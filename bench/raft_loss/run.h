/* What is sent over a link that loses: a stream that keeps the window full, and requests at times drawn beforehand. In
 * virtual time, on one thread: the same settings give the same result on every machine. */
#ifndef CORELANE_BENCH_RAFT_LOSS_RUN_H
#define CORELANE_BENCH_RAFT_LOSS_RUN_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_BENCH_LOSS_CHANNEL 0
#define CL_BENCH_LOSS_GO_BACK_N 1
#define CL_BENCH_LOSS_FATES 4096
#define CL_BENCH_LOSS_NOT_SENT 2
#define CL_BENCH_LOSS_FRAME_BYTES 1408    /* the longest frame, one datagram */
#define CL_BENCH_LOSS_DATAGRAM_BYTES 1538 /* what it takes of the link */

struct cl_bench_loss_settings {
    uint64_t seed;
    uint32_t protocol;
    uint64_t bits_per_s, delay_ns; /* of each direction; delay: one way */
    double loss;                   /* of each datagram, 0 to 1 */
};

struct cl_bench_loss_result {
    uint64_t delivered, ns; /* frames at the receiver (answers at the sender) in the time that was measured */
    uint64_t twice, disordered;
    uint64_t datagrams, lost;                                    /* both directions */
    uint64_t sent_again, timeouts, probes, duplicates, given_up; /* both sides */
    uint8_t fates[CL_BENCH_LOSS_FATES];                          /* of the first datagrams there: 1 lost, 0 not */
};

/* Frames of full length one way, the window full, for warm_ns and then for measure_ns. 0, or -errno with a reason in
 * err. */
CL_API int cl_bench_loss_stream(const struct cl_bench_loss_settings *settings, uint64_t warm_ns, uint64_t measure_ns,
                                struct cl_bench_loss_result *result, char err[256]);
/* n requests of request_bytes (at least 8), answered at once with answer_bytes; Poisson arrivals. latency_ns[i]: from
 * the intended time to the answer; UINT64_MAX: none came within 1 s after the last was due. */
CL_API int cl_bench_loss_requests(const struct cl_bench_loss_settings *settings, double per_s, uint32_t n,
                                  uint32_t request_bytes, uint32_t answer_bytes, uint64_t *latency_ns,
                                  struct cl_bench_loss_result *result, char err[256]);
// cffi: end

#endif
