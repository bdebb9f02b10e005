/* A durable server that takes as many requests to a write as there are clients, and does nothing but that: what one
 * comes to that has all else for nothing, on the same link and disk. It waits for the last of a group however long that
 * takes, so it is no bound of one that does not. Each piece that comes is a request. When as many wait as make a group
 * they are written in one call, durably, and all are answered "+OK". It reads no request and keeps none. For a runtime
 * with one kthread.
 * Test: tests/bench/resp_durable. */
#ifndef CORELANE_BENCH_RESP_DURABLE_GROUPED_H
#define CORELANE_BENCH_RESP_DURABLE_GROUPED_H

#include <corelane/libos/tcp.h>

// cffi: begin
struct cl_bench_grouped;

/* fd: of a file of so many bytes, open with O_DIRECT and O_DSYNC, which is written over and over. It stays the
 * caller's. -EINVAL, -ENOMEM. */
CL_API int cl_bench_grouped_new(int fd, uint64_t file_bytes, uint32_t group, struct cl_bench_grouped **out);
/* Before the runtime runs. As cl_runtime_listen_tcp. */
CL_API int cl_bench_grouped_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog, struct cl_bench_grouped *g);
/* Writes so far. Any thread. */
CL_API uint64_t cl_bench_grouped_writes(const struct cl_bench_grouped *g);
/* The errno of a write that failed: nobody is answered from then on. 0: none has. Any thread. */
CL_API int cl_bench_grouped_error(const struct cl_bench_grouped *g);
/* The runtime was deleted. NULL is allowed. */
CL_API void cl_bench_grouped_delete(struct cl_bench_grouped *g);
// cffi: end

#endif
