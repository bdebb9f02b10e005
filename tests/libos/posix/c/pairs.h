/* Listeners and connections of the programs that are compared, both ends of one process. */
#ifndef TESTS_LIBOS_POSIX_PAIRS_H
#define TESTS_LIBOS_POSIX_PAIRS_H

#include "here.h"

#include <unistd.h>

static inline int listener(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *at = here;
    if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof *at) || listen(fd, 8) ||
        getsockname(fd, (struct sockaddr *)at, &len)) {
        printf("no listener: %s\n", name_of(errno));
        exit(1);
    }
    return fd;
}

/* A connection with both ends: c opened it, s accepted it. */
static inline void pair(int *c, int *s)
{
    struct sockaddr_in at;
    int l = listener(&at);
    *c = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(*c, (struct sockaddr *)&at, sizeof at)) {
        printf("no connection: %s\n", name_of(errno));
        exit(1);
    }
    *s = accept(l, NULL, NULL);
    if (*s < 0) {
        printf("nothing accepted: %s\n", name_of(errno));
        exit(1);
    }
    close(l);
}

#endif
