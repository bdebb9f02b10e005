/* TCP on the kernel's own sockets: the servers that the dataplane is compared with, and a client for them.
 *
 * A server is one pinned thread with epoll over non-blocking sockets, TCP_NODELAY set, one recv an event and one send
 * an answer. Waiting is the kernel's (CL_LINUX_BLOCK) or the thread's (CL_LINUX_SPIN: epoll_wait with no time to wait).
 * It serves what drivers/nic/tcpload asks for: it echoes, takes bytes, or makes those of the pattern. The client is one
 * pinned thread with the same schedule and the same comparison of each byte. It spins while it asks; bulk waits for
 * epoll.
 *
 * Each thread enters a network namespace of its own; the process stays where it is. */
#ifndef CORELANE_BENCH_BASELINE_LINUX_TCP_H
#define CORELANE_BENCH_BASELINE_LINUX_TCP_H

#include "linux_udp.h"
#include "../../runtime/hist.h"

// cffi: begin
#define CL_LINUX_TCP_ECHO 0
#define CL_LINUX_TCP_SINK 1
#define CL_LINUX_TCP_SOURCE 2

struct cl_linux_tcp_config {
    int32_t netns_fd; /* -1: this one */
    int32_t cpu;      /* -1: not pinned */
    uint32_t ipv4;    /* host byte order */
    uint16_t port;
    uint16_t poll; /* CL_LINUX_BLOCK, CL_LINUX_SPIN */
    uint32_t kind;
    const char *congestion; /* name of the congestion control; NULL: the system's */
};

#define CL_LINUX_TCP_FLOWS 64

/* Writer: the serving thread; readers: anybody (relaxed). */
struct cl_linux_tcp_stats {
    uint64_t accepted, ended;
    uint64_t failed;   /* connections that ended by an error, or that it could not serve */
    uint64_t received; /* recv calls that brought bytes */
    uint64_t bytes_in, bytes_out;
    uint64_t syscalls;
    uint64_t looks; /* epoll_wait calls ... */
    uint64_t empty; /* ... and those that brought nothing */
};

struct cl_linux_tcp;

/* Start serving. It listens when this returns. -errno with a reason in err. */
CL_API int cl_linux_tcp_start(const struct cl_linux_tcp_config *config, struct cl_linux_tcp **out, char err[256]);
CL_API void cl_linux_tcp_stop(struct cl_linux_tcp *server);
CL_API void cl_linux_tcp_stats(const struct cl_linux_tcp *server, struct cl_linux_tcp_stats *out);
/* bytes_in by connection: the one that was accepted as the n-th adds to n modulo CL_LINUX_TCP_FLOWS. */
CL_API void cl_linux_tcp_flow_bytes(const struct cl_linux_tcp *server, uint64_t *out);

#define CL_LINUX_TCP_ASK 0
#define CL_LINUX_TCP_SEND 1
#define CL_LINUX_TCP_RECEIVE 2

struct cl_linux_tcp_client_config {
    int32_t netns_fd, cpu; /* as above */
    uint32_t ipv4;         /* of the server */
    uint16_t port;
    uint16_t traffic;
    uint32_t connections;
    uint32_t request_bytes;
    double rate; /* ask: requests a second, Poisson; 0: a closed loop */
    uint64_t warm_ns, measured_ns, drain_ns;
    uint64_t seed;
    const char *congestion;
};

/* Of the measured time. */
struct cl_linux_tcp_result {
    uint64_t offered, sent, answered, dropped, late, wrong;
    uint64_t bytes_in, bytes_out; /* bulk: bytes that came and were right; that the kernel took */
    uint64_t start_ns, last_ns;   /* CLOCK_MONOTONIC: the begin of the measured time, the last right answer */
};

/* Run to the end, on a thread of its own. latency: ns from the intended time, unanswered requests as infinite. -errno
 * with a reason in err. */
CL_API int cl_linux_tcp_client(const struct cl_linux_tcp_client_config *config, struct cl_hist *latency,
                               struct cl_linux_tcp_result *out, char err[256]);
// cffi: end

/* The bytes of every stream from any place on, `room` of them; for free. NULL: no memory. */
uint8_t *cl_linux_tcp_pattern(uint32_t room);

#endif
