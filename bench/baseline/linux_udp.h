/* UDP servers on the kernel's own sockets: what the dataplane is compared with.
 *
 * One pinned thread serves one socket with a burst handler of libos' own signature (NULL: echo), so that the very same
 * application code runs on both sides. Waiting is the kernel's (CL_LINUX_BLOCK: the thread sleeps in the receive call)
 * or the thread's (CL_LINUX_SPIN: MSG_DONTWAIT in a loop). batch 1 uses recvfrom and sendto, more uses recvmmsg and
 * sendmmsg. Which form carries more depends on kernel, link and load, and differs little on a veth pair: `corelane
 * bench kv` measures both first and compares with the stronger one, `corelane bench echo` shows both.
 *
 * The thread can enter a network namespace of its own; the process stays where it is. */
#ifndef CORELANE_BENCH_BASELINE_LINUX_UDP_H
#define CORELANE_BENCH_BASELINE_LINUX_UDP_H

#include <corelane/libos/udp.h>

// cffi: begin
#define CL_LINUX_BLOCK 0
#define CL_LINUX_SPIN 1
#define CL_LINUX_BATCH_MAX 64

struct cl_linux_udp_config {
    int32_t netns_fd;        /* namespace to serve in; -1: this one */
    int32_t cpu;             /* -1: not pinned */
    uint32_t ipv4;           /* to bind to, host byte order; 0: any */
    uint16_t port;           /* 0: any free one */
    uint16_t poll;           /* CL_LINUX_BLOCK, CL_LINUX_SPIN */
    uint32_t batch;          /* datagrams a system call: 1..CL_LINUX_BATCH_MAX */
    uint32_t datagram_bytes; /* largest datagram either way; 0: 2048 */
    uint32_t socket_bytes;   /* receive and send buffer of the socket; 0: 4 MiB, or what the kernel allows */
    void (*handler)(struct cl_udp_req *reqs, unsigned n, void *arg); /* NULL: echo */
    void *arg;
};

/* Counters. Writer: the serving thread; readers: anybody (relaxed). received = answered + silent + failed. */
struct cl_linux_udp_stats {
    uint64_t received, answered, silent;
    uint64_t failed;   /* answers that sendto or sendmmsg refused, or that the handler reported as errors */
    uint64_t extra;    /* further datagrams of long answers */
    uint64_t syscalls; /* receive and send calls */
    uint64_t looks;    /* of these: receive calls ... */
    uint64_t empty;    /* ... and those that brought nothing */
};

struct cl_linux_udp;

/* Start serving. The socket is bound when this returns. -errno with a reason in err. */
CL_API int cl_linux_udp_start(const struct cl_linux_udp_config *config, struct cl_linux_udp **out, char err[256]);
/* Stop, join and free. */
CL_API void cl_linux_udp_stop(struct cl_linux_udp *server);
CL_API uint16_t cl_linux_udp_port(const struct cl_linux_udp *server);
CL_API void cl_linux_udp_stats(const struct cl_linux_udp *server, struct cl_linux_udp_stats *out);
/* A burst handler (corelane/libos/udp.h) that calls the spin application's; arg is the cl_spinner. */
CL_API void cl_linux_udp_spin(struct cl_udp_req *reqs, unsigned n, void *arg);
/* Like cl_udp_reply_more, for requests that such a server handed out. */
CL_API int cl_linux_udp_reply_more(struct cl_udp_req *req, int64_t used);
// cffi: end

#endif
