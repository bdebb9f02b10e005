/* UDP sockets and poll sets for threads that are no kthread of the runtime, such as Python's: each call runs on a
 * uthread, for which the calling thread sleeps. Some 10 to 20 us more than on a uthread. As outside_stream.h. */
#ifndef CORELANE_LIBOS_OUTSIDE_UDP_H
#define CORELANE_LIBOS_OUTSIDE_UDP_H

#include <corelane/libos/poll.h>

// cffi: begin
enum cl_udp_do {
    CL_UDP_DO_SEND = 0, /* data, len, peer: to whom; its port 0: to whom it is connected */
    CL_UDP_DO_RECEIVE,  /* data, len: room; peer: out */
    CL_UDP_DO_CLOSE,
    CL_UDP_DO_CONNECT, /* peer; its port 0: to nobody. These four from any thread */
    CL_UDP_DO_PORT,
    CL_UDP_DO_POLL_ADD,   /* poll; value: how; data: its number */
    CL_UDP_DO_POLL_REMOVE /* poll */
};

/* One call. Other threads may close the socket at any time: it is known by its address and its `life`, which is another
 * one each time that its memory is used anew. */
struct cl_udp_call {
    uint32_t what; /* enum cl_udp_do */
    uint32_t life;
    struct cl_udp_socket *s;
    struct cl_udp_addr peer;
    void *data;
    int64_t len, timeout_ns, value;
    struct cl_poll *poll;
    int64_t rc;
};

/* Returns what the call of udp.h or poll.h returns. -EBADF: the socket was closed. -EINVAL, too: the runtime was not
 * started; -ESHUTDOWN: it stops. Closing works before the start and after the end as well. */
CL_API int64_t cl_outside_udp(struct cl_runtime *rt, struct cl_udp_call *call);
/* Of a socket that was just made. */
CL_API uint32_t cl_udp_life(const struct cl_udp_socket *s);
/* As cl_poll_wait. */
CL_API int64_t cl_outside_poll(struct cl_runtime *rt, struct cl_poll *set, struct cl_poll_event *events, int64_t n,
                               int64_t timeout_ns);
// cffi: end

#endif
