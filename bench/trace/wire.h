/* What a server's NIC sees of its requests: when each came out of it, and when its answer had gone into it. For
 * `trace.sum_error`: the latency of a request as it is measured from outside of the runtime, by the same clock.
 *
 * The NIC's receive and send are called through these, of one queue; UDP datagrams that come and go are taken for pairs
 * in their order: a server that answers each request, one after the other, and nothing else.
 * Threads: the one that uses the queue; reading while that has nothing to do. */
#ifndef CORELANE_BENCH_TRACE_WIRE_H
#define CORELANE_BENCH_TRACE_WIRE_H

#include <corelane/drivers/nic.h>

// cffi: begin
struct cl_bench_wire;

/* Watch a NIC that nobody uses yet, and room pairs of stamps at most. -ENOMEM. */
CL_API int cl_bench_wire_new(struct cl_nic *nic, uint32_t room, struct cl_bench_wire **out);
/* Copy the pairs so far to came and went, and begin anew. Returns how many; -EBUSY: some are without an answer, or more
 * came than there is room for, and all are forgotten. */
CL_API int64_t cl_bench_wire_take(struct cl_bench_wire *w, uint64_t *came, uint64_t *went);
/* Watch no longer: the NIC is as it was. */
CL_API void cl_bench_wire_delete(struct cl_bench_wire *w);
// cffi: end

#endif
