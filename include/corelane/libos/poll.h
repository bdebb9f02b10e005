/* Waiting for many sockets at once: a poll set. Part of the C API.
 *
 *   struct cl_poll *set;
 *   cl_poll_new(rt, &set);
 *   cl_poll_add(set, socket, CL_POLL_LEVEL, 7);
 *   struct cl_poll_event events[16];
 *   int n = cl_poll_wait(set, events, 16, -1);
 *
 * A socket is ready while a datagram waits in it (CL_POLL_IN), an ICMP error does (CL_POLL_ERROR), or nothing will come
 * any more (CL_POLL_END). Level: each wait tells of it again for as long as it is ready. Edge: it is told once for what
 * has come since it was told last, so that the reader must read until -EAGAIN. Sockets that are ready take turns.
 *
 * Stream sockets are in sets, too (stream.h says when they are ready).
 *
 * A socket is in one set at a time, and leaves it when it is closed. Several uthreads may wait on one set; each event
 * goes to one of them. A set costs a datagram one more lock, and nothing if the socket is told of already. */
#ifndef CORELANE_LIBOS_POLL_H
#define CORELANE_LIBOS_POLL_H

#include <corelane/libos/udp.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_POLL_LEVEL 0
#define CL_POLL_EDGE 1

#define CL_POLL_IN 1        /* a datagram waits */
#define CL_POLL_ERROR 2     /* the next call on it returns an error that came by ICMP */
#define CL_POLL_END 4       /* the runtime stops: nothing will come any more */
#define CL_POLL_OUT 8       /* of a stream socket (stream.h): there is room to write */
#define CL_POLL_RELEASED 16 /* the same: some of what it has written from regions is released (cl_stream_released) */

struct cl_poll;

struct cl_poll_event {
    uint64_t data;  /* as given to cl_poll_add */
    uint32_t ready; /* CL_POLL_IN, ... */
    uint32_t pad;
};

/* New set. -ENOMEM. Any thread. */
CL_API int cl_poll_new(struct cl_runtime *rt, struct cl_poll **out);
/* -EBUSY: a uthread waits on it, or a socket is in it. NULL is allowed. Before its runtime is deleted. */
CL_API int cl_poll_delete(struct cl_poll *set);
/* Put a socket into the set; it is told at once if it is ready. -EBUSY: it is in a set already; -EINVAL: closed, of
 * another runtime, or an unknown `how`. Any thread. */
CL_API int cl_poll_add(struct cl_poll *set, struct cl_udp_socket *s, uint32_t how, uint64_t data);
/* Take it out. -ENOENT: it is not in. An event of it that a wait has returned is not taken back. Any thread. */
CL_API int cl_poll_remove(struct cl_poll *set, struct cl_udp_socket *s);
/* Wait until a socket is ready; timeout_ns < 0 for ever, 0 not at all. Returns how many events were stored, 1 to n, or
 * 0: the time is over. -EINVAL (n < 1), -EDEADLK (not on a uthread, and it would have to wait), -EPERM (not on a
 * kthread of the runtime). Once the runtime stops its sockets are ready for good (CL_POLL_END), and a wait that finds
 * none ready returns -ESHUTDOWN. */
CL_API int cl_poll_wait(struct cl_poll *set, struct cl_poll_event *events, int64_t n, int64_t timeout_ns);
// cffi: end

CL_EXTERN_C_END
#endif
