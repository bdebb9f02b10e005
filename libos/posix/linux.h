/* Linux' own calls, past whoever has put himself before libc's: -errno or what they return. */
#ifndef CORELANE_LIBOS_POSIX_LINUX_H
#define CORELANE_LIBOS_POSIX_LINUX_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The function is libc's own; what preload/ has before it lets the runtime's calls through. */
#define cl_linux(...)                                                                                                  \
    ({                                                                                                                 \
        long linux_rc = syscall(__VA_ARGS__);                                                                          \
        linux_rc < 0 ? -errno : linux_rc;                                                                              \
    })

#endif
