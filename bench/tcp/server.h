/* Servers in event form for the client of drivers/nic/tcpload: one that echoes, one that takes bytes, one that makes
 * them. All of them close when the client does. */
#ifndef CORELANE_BENCH_TCP_SERVER_H
#define CORELANE_BENCH_TCP_SERVER_H

#include <corelane/libos/tcp.h>

// cffi: begin
#define CL_BENCH_TCP_ECHO 0
#define CL_BENCH_TCP_SINK 1   /* copies what comes to a buffer of its own */
#define CL_BENCH_TCP_SOURCE 2 /* the bytes of cl_tcpload_pattern, without end */

/* Of all listeners that it was given to. Writer: the kthread, of which there is one; readers: anybody (relaxed). */
struct cl_bench_tcp_server {
    uint64_t accepted, ended;
    uint64_t failed;   /* connections that did not end in order: resets, mostly of the client's when its run is over */
    uint64_t bytes_in; /* that a sink took */
    uint64_t wrong;    /* pieces with other bytes than expected, if `check` is set */
    uint32_t check;    /* a sink compares each byte with the pattern, besides. Constant */
};

/* Listen on a port. `server` stays the caller's, until the runtime is deleted. As cl_runtime_listen_tcp. */
CL_API int cl_bench_tcp_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog, uint32_t kind,
                               struct cl_bench_tcp_server *server);
// cffi: end

#endif
