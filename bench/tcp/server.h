/* Servers in event form for the client of drivers/nic/tcpload: one that echoes, one that takes bytes, one that makes
 * them. All of them close when the client does. The latter two may connect, too: to each other, or to Linux. */
#ifndef CORELANE_BENCH_TCP_SERVER_H
#define CORELANE_BENCH_TCP_SERVER_H

#include <corelane/libos/tcp.h>

// cffi: begin
#define CL_BENCH_TCP_ECHO 0
#define CL_BENCH_TCP_SINK 1   /* copies what comes to a buffer of its own */
#define CL_BENCH_TCP_SOURCE 2 /* the bytes of cl_tcpload_pattern, without end */
#define CL_BENCH_TCP_FLOWS 64

/* Of all listeners and connections that it was given to. Writer: the kthread, of which there is one; readers: anybody
 * (relaxed). */
struct cl_bench_tcp_server {
    uint64_t accepted, ended;
    uint64_t failed;   /* connections that did not end in order: resets, mostly of the client's when its run is over */
    uint64_t bytes_in; /* that a sink took */
    uint64_t wrong;    /* pieces with other bytes than expected, if `check` is set */
    /* Of bytes_in, by connection: the one that was opened as the n-th adds to n modulo CL_BENCH_TCP_FLOWS. */
    uint64_t flow_bytes[CL_BENCH_TCP_FLOWS];
    uint32_t check; /* a sink compares each byte with the pattern, besides. Constant */
};

/* Connections to open. */
struct cl_bench_tcp_connect {
    struct cl_runtime *rt;
    struct cl_bench_tcp_server *server;
    uint32_t ipv4; /* host byte order */
    uint16_t port;
    uint32_t kind; /* what this end is: CL_BENCH_TCP_SINK or _SOURCE */
    uint32_t n;
    int32_t error; /* of the first call that failed */
};

/* Listen on a port. `server` stays the caller's, until the runtime is deleted. As cl_runtime_listen_tcp. */
CL_API int cl_bench_tcp_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog, uint32_t kind,
                               struct cl_bench_tcp_server *server);
/* An echo server in blocking form, a uthread for each connection (corelane/libos/stream.h), from when the runtime
 * runs. */
CL_API int cl_bench_tcp_block(struct cl_runtime *rt, uint16_t port, uint32_t backlog,
                              struct cl_bench_tcp_server *server);
/* A uthread; arg: a struct cl_bench_tcp_connect. */
CL_API void cl_bench_tcp_connect(void *arg);
// cffi: end

#endif
