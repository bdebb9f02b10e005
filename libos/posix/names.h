/* Addresses of sockets: IPv4, and IPv4 in the disguise of IPv6 (RFC 4291, section 2.5.5.2). */
#ifndef CORELANE_LIBOS_POSIX_NAMES_H
#define CORELANE_LIBOS_POSIX_NAMES_H

#include <corelane/libos/stream.h>

#include <sys/socket.h>

/* A name that a call is given, whatever the socket. -EINVAL: no name has that length; -EFAULT: it is nowhere. */
int cl_posix_name_check(const struct sockaddr *name, socklen_t len);
/* Of a socket of `domain`. 0: *out is it, and 0.0.0.0 for `::`, which stands for all of both; *is_ipv4 false: it is an
 * address of IPv6 alone. -EINVAL: too short, or longer than any; -EFAULT; -EAFNOSUPPORT. */
int cl_posix_name_read(int domain, const struct sockaddr *name, socklen_t len, struct cl_tcp_addr *out, bool *is_ipv4);
/* As much of it as *len has room for; *len becomes its length. -EINVAL: a length below 0; -EFAULT: there
 * is no length, or no room for the name. */
int cl_posix_name_write(int domain, const struct cl_tcp_addr *a, struct sockaddr *name, socklen_t *len);

#endif
