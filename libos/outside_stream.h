/* Stream sockets for threads that are no kthread of the runtime, such as Python's: each call runs on a uthread, for
 * which the calling thread sleeps. As outside_udp.h does it for UDP. */
#ifndef CORELANE_LIBOS_OUTSIDE_STREAM_H
#define CORELANE_LIBOS_OUTSIDE_STREAM_H

#include <corelane/libos/stream.h>

// cffi: begin
enum cl_stream_do {
    CL_STREAM_DO_ACCEPT = 0, /* s: listener, then the connection */
    CL_STREAM_DO_CONNECT,    /* from, to; s: the connection, also with -EINPROGRESS */
    CL_STREAM_DO_WAIT_OPEN,
    CL_STREAM_DO_READ,          /* data, len */
    CL_STREAM_DO_PEEK,          /* data, len */
    CL_STREAM_DO_WRITE,         /* data, len */
    CL_STREAM_DO_LEASE,         /* lease: out */
    CL_STREAM_DO_WRITE_FROM,    /* region, value: offset, len */
    CL_STREAM_DO_WAIT_RELEASED, /* value: bytes */
    CL_STREAM_DO_SHUTDOWN,      /* value: sides */
    CL_STREAM_DO_CLOSE,         /* timeout_ns: linger */
    CL_STREAM_DO_ABORT,
    CL_STREAM_DO_SET,            /* option, value */
    CL_STREAM_DO_GET,            /* option */
    CL_STREAM_DO_SET_CONGESTION, /* name */
    CL_STREAM_DO_CONGESTION,     /* name: out */
    CL_STREAM_DO_INFO,           /* info: out */
    CL_STREAM_DO_ERROR,          /* these four from any thread */
    CL_STREAM_DO_ENDS,           /* from, to: out */
    CL_STREAM_DO_RELEASED,
    CL_STREAM_DO_POLL_ADD,   /* poll; option: events; value: how; data: its number */
    CL_STREAM_DO_POLL_REMOVE /* poll */
};

/* One call, by its name in stream.h. Other threads may close the socket at any time: it is known by its address and its
 * `life`, which is another one each time that its memory is used anew. */
struct cl_stream_call {
    uint32_t what; /* enum cl_stream_do */
    int32_t option;
    struct cl_stream *s;
    uint32_t life, pad; /* of s; of an accepted or opened connection: out */
    struct cl_tcp_addr from, to;
    void *data;
    int64_t len, timeout_ns, value;
    const char *name;
    struct cl_poll *poll;
    struct cl_tcp_info info;
    struct cl_lease lease;
    struct cl_region *region;
    int64_t rc;
};

/* Returns what the call returns. -EINVAL, too: the runtime was not started; -ESHUTDOWN: it stops. Closing works before
 * the start and after the end as well. */
CL_API int64_t cl_outside_stream(struct cl_runtime *rt, struct cl_stream_call *call);
/* Of a socket that was just made. */
CL_API uint32_t cl_stream_life(const struct cl_stream *s);
// cffi: end

#endif
