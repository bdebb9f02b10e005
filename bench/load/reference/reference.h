/* A server of known latency: it keeps each request as long as the request says, and then answers it.
 *
 * Requests are those of the load tool's echo protocol (struct cl_sockload_head, in sockload/sockload.h): a head of 40
 * bytes, filled up to `bytes`; the answer is the same head, filled up to `reply_bytes`, hold_ns after the request
 * had come, by the kernel's stamp (../sockload/came.h). How long it really kept each one, from there to the stamp
 * before its answer is sent, goes into a histogram: that is what a tool that measures from outside ought to report, but
 * for the way there and back. What waited in the server's socket was kept by the server, too. A second histogram has
 * the time from when a request was to be sent, by its head, to that stamp: the way there is in it, and by how much the
 * tool sent it too late. What is left for the tool to report is the way back.
 *
 * One thread, which never sleeps while it serves: over UDP one socket, over TCP any number of connections. Requests
 * that wait are in a heap by the time of their answer. So on one connection, too, what is kept shorter is answered
 * first: a client with several outstanding must give them all the same time. Garbage ends a connection, or is ignored
 * (UDP).
 * With hold_ns 0 it is the loopback reflector that the client's own share is measured against.
 * Tests: tests/bench/load/reference/. */
#ifndef CORELANE_BENCH_LOAD_REFERENCE_REFERENCE_H
#define CORELANE_BENCH_LOAD_REFERENCE_REFERENCE_H

#include <corelane/runtime/base.h>
#include "../../../runtime/hist.h"

// cffi: begin
struct cl_reference;

struct cl_reference_counts {
    uint64_t requests, answers, refused; /* garbage, or more waiting than there is room for */
    uint64_t late;                       /* answered more than 1 us after the time */
    uint64_t connections;                /* TCP, so far */
};

/* Start serving on 127.0.0.1: udp 0 or 1; port 0: any. Its thread is pinned to cpu (-1: nowhere). -errno with a reason
 * in err[256]. */
CL_API int cl_reference_start(uint32_t udp, uint32_t port, int cpu, struct cl_reference **out, char *err);
CL_API uint32_t cl_reference_port(const struct cl_reference *r);
/* Forget the histogram and the counts at the thread's next look; returns when it has. */
CL_API void cl_reference_clear(struct cl_reference *r);
/* How long requests were kept, ns. Written by the server's thread (relaxed words). */
CL_API const struct cl_hist *cl_reference_kept(const struct cl_reference *r);
/* How long after they were to be sent requests were answered, ns: of those that say when that was. As above. */
CL_API const struct cl_hist *cl_reference_since_due(const struct cl_reference *r);
CL_API void cl_reference_counts(const struct cl_reference *r, struct cl_reference_counts *out);
/* End the thread, close everything. */
CL_API void cl_reference_stop(struct cl_reference *r);
// cffi: end

#endif
