/* Messages where the program has them, which may be no memory: recvmsg, sendmsg, recvmmsg and sendmmsg, of both kinds
 * of sockets (net/socket.c: ___sys_recvmsg, do_recvmmsg, ___sys_sendmsg, __sys_sendmmsg). */
#include "memory.h"
#include "posix.h"
#include "waits.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

/* It is taken over, and its pieces are there; of too many of those others say so. */
static int take_over(struct msghdr *to, const struct msghdr *m)
{
    if (!cl_posix_can_read(m, sizeof *m))
        return -EFAULT;
    *to = *m;
    return to->msg_iovlen > IOV_MAX || cl_posix_can_read(to->msg_iov, to->msg_iovlen * sizeof *to->msg_iov) ? 0
                                                                                                            : -EFAULT;
}

int64_t cl_posix_receive_message(int fd, struct msghdr *m, int flags)
{
    struct msghdr own;
    int64_t rc = take_over(&own, m);
    if (rc || (rc = cl_posix_receive(fd, &own, flags)) < 0)
        return rc;
    if (!cl_posix_can_write(m, sizeof *m))
        return -EFAULT; /* what was read is gone */
    m->msg_namelen = own.msg_namelen;
    m->msg_controllen = own.msg_controllen;
    m->msg_flags = own.msg_flags;
    return rc;
}

int64_t cl_posix_send_message(int fd, const struct msghdr *m, int flags)
{
    struct msghdr own;
    int64_t rc = take_over(&own, m);
    return rc ? rc : cl_posix_send(fd, &own, flags);
}

/* How many bytes one message has. */
static int tell(struct mmsghdr *m, int64_t n)
{
    if (!cl_posix_can_write(&m->msg_len, sizeof m->msg_len))
        return -EFAULT;
    m->msg_len = (unsigned)n;
    return 0;
}

static int64_t receive_until(int fd, struct mmsghdr *m, unsigned n, int flags, uint64_t deadline_ns)
{
    unsigned done = 0;
    int64_t rc = 0;
    while (done < n && (rc = cl_posix_receive_message(fd, &m[done].msg_hdr, flags & ~MSG_WAITFORONE)) >= 0 &&
           (rc = tell(&m[done], rc)) == 0) {
        done++;
        if (flags & MSG_WAITFORONE)
            flags |= MSG_DONTWAIT;
        if (deadline_ns != UINT64_MAX && cl_posix_left(deadline_ns) == 0)
            break;
    }
    return done ? (int64_t)done : rc;
}

int64_t cl_posix_receive_many(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *left)
{
    uint64_t deadline_ns = cl_posix_deadline(left ? cl_posix_ns(left->tv_sec, left->tv_nsec) : -1);
    int error = 0;
    socklen_t len = sizeof error;
    if (cl_posix_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error)
        return -error; /* before what there is to be read */
    int64_t rc = receive_until(fd, m, n, flags, deadline_ns);
    if (!left || rc <= 0)
        return rc;
    int64_t ns = cl_posix_left(deadline_ns);
    if (!cl_posix_can_write(left, sizeof *left))
        return -EFAULT;
    *left = (struct timespec){ns / 1000000000, ns % 1000000000};
    return rc;
}

int64_t cl_posix_send_many(int fd, struct mmsghdr *m, unsigned n, int flags)
{
    unsigned done = 0;
    int64_t rc = 0;
    n = cl_min(n, (unsigned)IOV_MAX);
    while (done < n && (rc = cl_posix_send_message(fd, &m[done].msg_hdr, flags)) >= 0 && (rc = tell(&m[done], rc)) == 0)
        done++;
    return done ? (int64_t)done : rc;
}
