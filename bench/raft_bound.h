/* The floor under a durable put of three writers that share one core: what is left of three replicas without protocol, packets and
 * logs. A client on a core of its own asks by a word in shared memory; the leader hands on to two followers by a word each, and
 * all three write their own file and wait for their own completion. Who waits calls sched_yield, the cheapest way to hand the core
 * to the next one. The put is answered when two of the three writes are done. */
#ifndef CORELANE_BENCH_RAFT_BOUND_H
#define CORELANE_BENCH_RAFT_BOUND_H

#include "../drivers/blk.h"

// cffi: begin
/* n puts. blks: of the leader and its two followers, each with queue 0 unused otherwise. client_cpu: where the client waits,
 * yielding like the others, so that the kernel's worker gets that core if it needs it; writers_cpu: of the three writers. Durable writes of 4 KiB, one after the other through each device, which goes round.
 * put_ns[i]: from the client's word until it sees the answer. The next put begins when the third write is done, too. -errno and a
 * reason in err. */
CL_API int cl_bench_raft_bound(struct cl_blk **blks, int client_cpu, int writers_cpu, uint32_t n, uint64_t *put_ns,
                               char err[256]);
// cffi: end

#endif
