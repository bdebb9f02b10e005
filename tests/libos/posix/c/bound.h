/* Datagram sockets of programs that are compared. */
#ifndef TESTS_LIBOS_POSIX_BOUND_H
#define TESTS_LIBOS_POSIX_BOUND_H

#include "here.h"

static inline int new_socket(void)
{
    return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

/* Bound to a port of the address, which *at gets. */
static inline int bound(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = new_socket();
    *at = here;
    if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof *at) || getsockname(fd, (struct sockaddr *)at, &len)) {
        printf("not bound: %s\n", name_of(errno));
        exit(1);
    }
    return fd;
}

static inline long send_at(int fd, const void *data, size_t len, int flags, const struct sockaddr_in *to)
{
    return sendto(fd, data, len, flags, (const struct sockaddr *)to, sizeof *to);
}

#endif
