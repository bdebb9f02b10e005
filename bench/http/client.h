/* A client of HTTP, in a closed loop: so many connections of corelane's TCP, each of which asks again when its answer
 * has come. With `keep` they stay, else each request has a connection of its own, which the server ends. With TLS by
 * OpenSSL through memory BIOs, as the server has it.
 *
 * An answer counts if its status is 200 and its Content-Length bytes have come. Latency: from the request's write (of
 * one with a connection of its own, from the start of the connection) to the last byte. Threads: the connections are on
 * kthread 0 of the client's runtime, which must have no other. Counts are read by anybody (relaxed); the histogram by
 * who has stopped it. */
#ifndef CORELANE_BENCH_HTTP_CLIENT_H
#define CORELANE_BENCH_HTTP_CLIENT_H

#include <corelane/libos/runtime.h>
#include "../../runtime/hist.h"

// cffi: begin
struct cl_bench_http_config {
    uint32_t ipv4; /* of the server, host byte order */
    uint16_t port;
    bool keep, tls;
    uint32_t connections;
    const char *request; /* its bytes, constant while it runs */
};

struct cl_bench_http_counts {
    uint64_t answers, bytes;      /* whole ones; bytes of their bodies */
    uint64_t wrong;               /* another status, or no length */
    uint64_t connections, failed; /* opened; ended with an error, or in the middle of an answer */
    uint64_t resumed;             /* handshakes that resumed a session: none, so that each is a whole one */
};

struct cl_bench_http;

/* Begin. The runtime runs. -errno with a sentence in err. */
CL_API int cl_bench_http_start(struct cl_runtime *rt, const struct cl_bench_http_config *config,
                               struct cl_bench_http **out, char err[256]);
CL_API void cl_bench_http_counts(const struct cl_bench_http *c, struct cl_bench_http_counts *out);
/* Of latencies in ns. */
CL_API struct cl_hist *cl_bench_http_latency(struct cl_bench_http *c);
/* Ask no more; connections end with their next event. */
CL_API void cl_bench_http_stop(struct cl_bench_http *c);
/* The runtime must have stopped. */
CL_API void cl_bench_http_delete(struct cl_bench_http *c);
// cffi: end

#endif
