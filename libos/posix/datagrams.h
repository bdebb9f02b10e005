/* Datagram sockets: UDP (RFC 768) over ../net's sockets.
 *
 * One is ours once it is bound to an address that is, or sends to one. It is opened when there is a runtime. One that
 * turns to an address that is not ours is Linux' from then on, with its port, as long as nobody can know that port but
 * those to whom it has sent. Of a server's, only that datagram is Linux'. */
#ifndef CORELANE_LIBOS_POSIX_DATAGRAMS_H
#define CORELANE_LIBOS_POSIX_DATAGRAMS_H

#include "socket.h"

#include <corelane/libos/udp.h>

/* The same of one that is FRESH, too, which gets a port; there is a runtime then. waits: for another process that has
 * it, or -EAGAIN. */
int cl_posix_datagram_ours(struct cl_posix_socket *s, bool waits);
/* It is Linux' from now on, with the port that it has. */
void cl_posix_datagram_to_linux(int fd, struct cl_posix_socket *s);
int cl_posix_datagram_connect(int fd, struct cl_posix_socket *s, const struct sockaddr *addr, socklen_t len);
int cl_posix_datagram_shutdown(struct cl_posix_socket *s, int how);
/* -ENOTCONN */
int cl_posix_datagram_peer(struct cl_posix_socket *s, struct cl_tcp_addr *out);
/* Bytes of the datagram that comes next; 0: none waits. */
int cl_posix_datagram_bytes(const struct cl_posix_socket *s);
/* The error that came by ICMP, which is over with that: errno, or 0. */
int cl_posix_datagram_error(struct cl_posix_socket *s);
/* control.c: what beside a datagram is told, or asked for, in control data. */
/* An option was set, which Linux has taken: whether each datagram's address, TTL or TOS is told goes by such. */
void cl_posix_control_set(int fd, struct cl_posix_socket *s, int level, int name);
/* Tell what is asked for of a datagram that has come: msg_control, msg_controllen; MSG_CTRUNC in msg_flags. */
void cl_posix_control_tell(const struct cl_posix_socket *s, struct msghdr *m, const struct cl_udp_origin *origin);
/* Of one that is to be sent: 0; -ENETUNREACH: from an address that is not ours; -EINVAL, which is said if it is not as
 * on Linux. */
int cl_posix_control_check(const struct msghdr *m);
int64_t cl_posix_datagram_receive(struct cl_posix_socket *s, struct msghdr *m, int flags);
int64_t cl_posix_datagram_send(int fd, struct cl_posix_socket *s, const struct msghdr *m, int flags);

#endif
