/* The floor under a durable put of three replicas on one disk: three synchronous direct writes at once, of which the
 * second to complete makes a majority. One thread sends them by one call and polls, so that nothing but the writes is
 * in the time. */
#ifndef CORELANE_BENCH_RAFT_FLOOR_H
#define CORELANE_BENCH_RAFT_FLOOR_H

#include <corelane/drivers/blk.h>

// cffi: begin
/* n times on core `cpu`: 4 KiB to each third of the device, one after the other, durably; the next three begin when all
 * are done. second_ns[i]: from the call that sends them until the second was seen done. block 1: sleeps until something
 * is done; 0: polls, and yields between looks, so that the kernel's worker gets the core if it needs that one. -errno
 * and a reason in err. */
CL_API int cl_bench_raft_floor(struct cl_blk *blk, int cpu, uint32_t block, uint32_t n, uint64_t *second_ns,
                               char err[256]);
// cffi: end

#endif
