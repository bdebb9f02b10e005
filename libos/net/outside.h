/* Sockets for threads that are no kthread of the runtime, such as Python's: each call runs on a uthread, for which the
 * calling thread sleeps. Some 10 to 20 us more than on a uthread. */
#ifndef CORELANE_LIBOS_NET_OUTSIDE_H
#define CORELANE_LIBOS_NET_OUTSIDE_H

#include <corelane/libos/poll.h>

// cffi: begin
/* As cl_udp_sendto, or cl_udp_send if `to` is NULL. -EINVAL, too: the runtime was not started; -ESHUTDOWN: it stops. */
CL_API int64_t cl_outside_send(struct cl_udp_socket *s, const void *data, int64_t len, const struct cl_udp_addr *to);
/* As cl_udp_recvfrom. The same. */
CL_API int64_t cl_outside_receive(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_addr *from,
                                  int64_t timeout_ns);
/* As cl_udp_close, also before the start and after the end. */
CL_API int64_t cl_outside_close(struct cl_udp_socket *s);
/* As cl_poll_wait. */
CL_API int64_t cl_outside_poll(struct cl_poll *set, struct cl_poll_event *events, int64_t n, int64_t timeout_ns);
// cffi: end

#endif
