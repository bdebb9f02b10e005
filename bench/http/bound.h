/* What bounds a server of HTTP on this TCP and link: whatever comes on a connection is answered by the same bytes, and
 * nothing of it is read. For clients of which each request comes in one segment, and has one answer under way. */
#ifndef CORELANE_BENCH_HTTP_BOUND_H
#define CORELANE_BENCH_HTTP_BOUND_H

#include <corelane/libos/runtime.h>

// cffi: begin
/* Constant while the runtime lives, and the caller's until then. */
struct cl_bench_http_bound {
    const uint8_t *answer;
    int64_t bytes;
};

/* Answer on a port. As cl_runtime_listen_tcp. */
CL_API int cl_bench_http_bound_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog,
                                      struct cl_bench_http_bound *bound);
// cffi: end

#endif
