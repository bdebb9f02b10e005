/* recvmmsg and sendmmsg, of both kinds of sockets (net/socket.c: do_recvmmsg, __sys_sendmmsg). */
#include "posix.h"
#include "waits.h"

#include <limits.h>
#include <time.h>

int64_t cl_posix_receive_many(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *left)
{
    uint64_t deadline_ns = cl_posix_deadline(left ? cl_posix_ns(left->tv_sec, left->tv_nsec) : -1);
    unsigned done = 0;
    int64_t rc = 0;
    int error = 0;
    socklen_t len = sizeof error;
    if (cl_posix_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error)
        return -error; /* before what there is to be read */
    while (done < n && (rc = cl_posix_receive(fd, &m[done].msg_hdr, flags & ~MSG_WAITFORONE)) >= 0) {
        m[done++].msg_len = (unsigned)rc;
        if (flags & MSG_WAITFORONE)
            flags |= MSG_DONTWAIT;
        if (left && cl_posix_left(deadline_ns) == 0)
            break;
    }
    if (left && done) {
        int64_t ns = cl_posix_left(deadline_ns);
        *left = (struct timespec){ns / 1000000000, ns % 1000000000};
    }
    return done ? (int64_t)done : rc;
}

int64_t cl_posix_send_many(int fd, struct mmsghdr *m, unsigned n, int flags)
{
    unsigned done = 0;
    int64_t rc = 0;
    n = cl_min(n, (unsigned)IOV_MAX);
    while (done < n && (rc = cl_posix_send(fd, &m[done].msg_hdr, flags)) >= 0)
        m[done++].msg_len = (unsigned)rc;
    return done ? (int64_t)done : rc;
}
