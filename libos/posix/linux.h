/* Linux' own calls, past whoever has put himself before libc's: -errno or what they return. */
#ifndef CORELANE_LIBOS_POSIX_LINUX_H
#define CORELANE_LIBOS_POSIX_LINUX_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CL_LINUX_CALL_BYTES (INT_MAX & ~4095) /* what a call reads or writes at most (linux/fs.h: MAX_RW_COUNT) */

/* The function is libc's own; what preload/ has before it lets the runtime's calls through. */
#define cl_linux(...)                                                                                                  \
    ({                                                                                                                 \
        long linux_rc = syscall(__VA_ARGS__);                                                                          \
        linux_rc < 0 ? -errno : linux_rc;                                                                              \
    })

/* The bytes of n pieces, as far as a call goes. */
static inline int64_t cl_linux_bytes(const struct iovec *vec, int64_t n)
{
    size_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += vec[i].iov_len < CL_LINUX_CALL_BYTES - sum ? vec[i].iov_len : CL_LINUX_CALL_BYTES - sum;
    return (int64_t)sum;
}

/* No program has memory there: Linux looks no further (access_ok). */
static inline bool cl_linux_is_outside(const void *p, size_t len)
{
    uintptr_t at = (uintptr_t)p;
    return (int64_t)at < 0 || (int64_t)(at + len) < 0 || at + len < at;
}

/* What Linux says of n pieces that no memory has, before it looks at the socket; of one it takes as much as a call goes
 * (lib/iov_iter.c: __import_iovec). */
static inline int cl_linux_check(const struct iovec *vec, int64_t n)
{
    bool outside = false;
    if (!vec && n > 0)
        return -EFAULT;
    for (int64_t i = 0; i < n; i++) {
        if ((int64_t)vec[i].iov_len < 0)
            return -EINVAL;
        size_t len = vec[i].iov_len;
        outside |=
            cl_linux_is_outside(vec[i].iov_base, n == 1 && len > CL_LINUX_CALL_BYTES ? CL_LINUX_CALL_BYTES : len);
    }
    return outside ? -EFAULT : 0;
}

#endif
