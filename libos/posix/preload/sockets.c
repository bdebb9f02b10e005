/* Calls that make, name, open and set sockets. */
#include "next.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <sys/ioctl.h>

NEXT_FIRST(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
PUBLIC int socket(int domain, int type, int protocol)
{
    int fd = next_socket(domain, type, protocol);
    int kind = type & CL_POSIX_TYPE_MASK;
    bool may_be = (domain == AF_INET || domain == AF_INET6) &&
                  ((kind == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
                   (kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP)));
    if (BY_RUNTIME)
        return cl_posix_inner(fd);
    if (fd < 0 || !may_be || !cl_preload_on || cl_preload_inside)
        return fd;
    return (int)ANSWER(socket, cl_posix_socket(fd, domain, type));
}

WRAP(int, bind, (int fd, __CONST_SOCKADDR_ARG addr, socklen_t len), (fd, addr, len), fd,
     ANSWER(bind, cl_posix_bind(fd, addr.__sockaddr__, len)))

WRAP(int, listen, (int fd, int backlog), (fd, backlog), fd, ANSWER(listen, cl_posix_listen(fd, backlog)))

WRAP(int, accept, (int fd, __SOCKADDR_ARG addr, socklen_t *len), (fd, addr, len), fd,
     POINT(accept, cl_posix_accept(fd, addr.__sockaddr__, len, 0)))

WRAP(int, accept4, (int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags), (fd, addr, len, flags), fd,
     POINT(accept4, cl_posix_accept(fd, addr.__sockaddr__, len, flags)))

WRAP(int, connect, (int fd, __CONST_SOCKADDR_ARG addr, socklen_t len), (fd, addr, len), fd,
     POINT(connect, cl_posix_connect(fd, addr.__sockaddr__, len)))

WRAP(int, shutdown, (int fd, int how), (fd, how), fd, ANSWER(shutdown, cl_posix_shutdown(fd, how)))

WRAP(int, getsockname, (int fd, __SOCKADDR_ARG addr, socklen_t *len), (fd, addr, len), fd,
     ANSWER(getsockname, cl_posix_name(fd, addr.__sockaddr__, len, false)))

WRAP(int, getpeername, (int fd, __SOCKADDR_ARG addr, socklen_t *len), (fd, addr, len), fd,
     ANSWER(getpeername, cl_posix_name(fd, addr.__sockaddr__, len, true)))

WRAP(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len), (fd, level, name, value, len),
     fd, ANSWER(setsockopt, cl_posix_setsockopt(fd, level, name, value, len)))

WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len), (fd, level, name, value, len), fd,
     ANSWER(getsockopt, cl_posix_getsockopt(fd, level, name, value, len)))

/* An argument that is there or not: libc's take it in the same way. */
#define LAST_ARGUMENT(type, before)                                                                                    \
    ({                                                                                                                 \
        va_list arguments;                                                                                             \
        va_start(arguments, before);                                                                                   \
        type last = va_arg(arguments, type);                                                                           \
        va_end(arguments);                                                                                             \
        last;                                                                                                          \
    })

NEXT(int, fcntl, (int fd, int command, ...), (fd, command, LAST_ARGUMENT(void *, command)))
PUBLIC int fcntl(int fd, int command, ...)
{
    void *last = LAST_ARGUMENT(void *, command);
    return is_known(fd) ? (int)ANSWER(fcntl, cl_posix_fcntl(fd, command, (int64_t)(intptr_t)last))
                        : next_fcntl(fd, command, last);
}

NEXT(int, fcntl64, (int fd, int command, ...), (fd, command, LAST_ARGUMENT(void *, command)))
PUBLIC int fcntl64(int fd, int command, ...)
{
    void *last = LAST_ARGUMENT(void *, command);
    return is_known(fd) ? (int)ANSWER(fcntl64, cl_posix_fcntl(fd, command, (int64_t)(intptr_t)last))
                        : next_fcntl64(fd, command, last);
}

NEXT(int, ioctl, (int fd, unsigned long request, ...), (fd, request, LAST_ARGUMENT(void *, request)))
PUBLIC int ioctl(int fd, unsigned long request, ...)
{
    void *last = LAST_ARGUMENT(void *, request);
    return is_ours(fd) ? (int)ANSWER(ioctl, cl_posix_ioctl(fd, request, last)) : next_ioctl(fd, request, last);
}

/* libc's other names for the same functions. */
PUBLIC int __connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len) __attribute__((alias("connect")));
PUBLIC int __fcntl(int fd, int command, ...) __attribute__((alias("fcntl")));
