/* Of programs that call libos/posix directly: what fails ends the program, and what is said is printed. */
#ifndef TESTS_POSIX_DIRECT_H
#define TESTS_POSIX_DIRECT_H

#include "../../../../libos/posix/posix.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            printf("%d: %s (%s)\n", __LINE__, #x, strerror(errno));                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void say(const char *sentence)
{
    printf("said: %s\n", sentence);
}

/* type: SOCK_STREAM or SOCK_DGRAM. */
static int new_socket_of(int type)
{
    int fd = (int)syscall(SYS_socket, AF_INET, type, 0);
    CHECK(fd >= 0 && cl_posix_socket(fd, AF_INET, type) == fd);
    return fd;
}

#endif
