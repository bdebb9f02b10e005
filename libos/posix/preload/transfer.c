/* read and write, recv and send, in all their forms. */
#include "next.h"

#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

static int64_t read_into(int fd, void *data, size_t len, int flags)
{
    struct iovec vec = {data, len};
    return cl_posix_read(fd, &vec, 1, flags);
}

static int64_t write_from(int fd, const void *data, size_t len, int flags)
{
    struct iovec vec = {(void *)(uintptr_t)data, len};
    return cl_posix_write(fd, &vec, 1, flags);
}

NEXT(ssize_t, read, (int fd, void *data, size_t len), (fd, data, len))
PUBLIC ssize_t read(int fd, void *data, size_t len)
{
    return is_ours(fd) ? ANSWER(read_into(fd, data, len, 0)) : next_read(fd, data, len);
}

NEXT(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len))
PUBLIC ssize_t write(int fd, const void *data, size_t len)
{
    return is_ours(fd) ? ANSWER(write_from(fd, data, len, 0)) : next_write(fd, data, len);
}

NEXT(ssize_t, readv, (int fd, const struct iovec *vec, int n), (fd, vec, n))
PUBLIC ssize_t readv(int fd, const struct iovec *vec, int n)
{
    return is_ours(fd) ? ANSWER(cl_posix_read(fd, vec, n, 0)) : next_readv(fd, vec, n);
}

NEXT(ssize_t, writev, (int fd, const struct iovec *vec, int n), (fd, vec, n))
PUBLIC ssize_t writev(int fd, const struct iovec *vec, int n)
{
    return is_ours(fd) ? ANSWER(cl_posix_write(fd, vec, n, 0)) : next_writev(fd, vec, n);
}

NEXT(ssize_t, recv, (int fd, void *data, size_t len, int flags), (fd, data, len, flags))
PUBLIC ssize_t recv(int fd, void *data, size_t len, int flags)
{
    return is_ours(fd) ? ANSWER(read_into(fd, data, len, flags)) : next_recv(fd, data, len, flags);
}

NEXT(ssize_t, send, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags))
PUBLIC ssize_t send(int fd, const void *data, size_t len, int flags)
{
    return is_ours(fd) ? ANSWER(write_from(fd, data, len, flags)) : next_send(fd, data, len, flags);
}

/* Of a connection nobody is told whom it came from. */
static int64_t no_name(int64_t rc, socklen_t *len)
{
    if (rc >= 0 && len)
        *len = 0;
    return rc;
}

NEXT(ssize_t, recvfrom, (int fd, void *data, size_t len, int flags, __SOCKADDR_ARG from, socklen_t *from_len),
     (fd, data, len, flags, from, from_len))
PUBLIC ssize_t recvfrom(int fd, void *data, size_t len, int flags, __SOCKADDR_ARG from, socklen_t *from_len)
{
    return is_ours(fd) ? ANSWER(no_name(read_into(fd, data, len, flags), from_len))
                       : next_recvfrom(fd, data, len, flags, from, from_len);
}

NEXT(ssize_t, sendto, (int fd, const void *data, size_t len, int flags, __CONST_SOCKADDR_ARG to, socklen_t to_len),
     (fd, data, len, flags, to, to_len))
PUBLIC ssize_t sendto(int fd, const void *data, size_t len, int flags, __CONST_SOCKADDR_ARG to, socklen_t to_len)
{
    return is_ours(fd) ? ANSWER(write_from(fd, data, len, flags)) : next_sendto(fd, data, len, flags, to, to_len);
}

static int64_t receive(int fd, struct msghdr *m, int flags)
{
    int64_t rc = cl_posix_read(fd, m->msg_iov, (int64_t)m->msg_iovlen, flags);
    if (rc >= 0) {
        m->msg_namelen = 0;
        m->msg_controllen = 0;
        m->msg_flags = 0;
    }
    return rc;
}

NEXT(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
PUBLIC ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    return is_ours(fd) ? ANSWER(receive(fd, m, flags)) : next_recvmsg(fd, m, flags);
}

static int64_t send_message(int fd, const struct msghdr *m, int flags)
{
    if (m->msg_control && m->msg_controllen)
        return cl_posix_refuse("sendmsg with control data is not to be had of sockets of the dataplane", EINVAL);
    return cl_posix_write(fd, m->msg_iov, (int64_t)m->msg_iovlen, flags);
}

NEXT(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
PUBLIC ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    return is_ours(fd) ? ANSWER(send_message(fd, m, flags)) : next_sendmsg(fd, m, flags);
}

NEXT(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t), (fd, m, n, flags, t))
PUBLIC int recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t)
{
    return is_ours(fd) ? (int)ANSWER(cl_posix_refuse(
                             "recvmmsg is not to be had of sockets of the dataplane: use recvmsg", ENOSYS))
                       : next_recvmmsg(fd, m, n, flags, t);
}

NEXT(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags), (fd, m, n, flags))
PUBLIC int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
    return is_ours(fd) ? (int)ANSWER(cl_posix_refuse(
                             "sendmmsg is not to be had of sockets of the dataplane: use sendmsg", ENOSYS))
                       : next_sendmmsg(fd, m, n, flags);
}

NEXT(ssize_t, sendfile, (int fd, int from, off_t *offset, size_t len), (fd, from, offset, len))
PUBLIC ssize_t sendfile(int fd, int from, off_t *offset, size_t len)
{
    return is_ours(fd) ? ANSWER(cl_posix_sendfile(fd, from, (int64_t *)offset, (int64_t)len))
                       : next_sendfile(fd, from, offset, len);
}

PUBLIC ssize_t sendfile64(int fd, int from, off64_t *offset, size_t len)
{
    return sendfile(fd, from, (off_t *)offset, len);
}

NEXT(ssize_t, splice, (int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned flags),
     (in, in_at, out, out_at, len, flags))
PUBLIC ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned flags)
{
    return is_ours(in) || is_ours(out)
               ? ANSWER(
                     cl_posix_refuse("splice is not to be had of sockets of the dataplane: use read and write", EINVAL))
               : next_splice(in, in_at, out, out_at, len, flags);
}

/* Of programs that were compiled with _FORTIFY_SOURCE: `room` is what the compiler knows of the buffer. libc's ends the
 * program if that is too small; so does it here. */

NEXT(ssize_t, __read_chk, (int fd, void *data, size_t len, size_t room), (fd, data, len, room))
PUBLIC ssize_t __read_chk(int fd, void *data, size_t len, size_t room)
{
    return is_ours(fd) && len <= room ? ANSWER(read_into(fd, data, len, 0)) : next___read_chk(fd, data, len, room);
}

NEXT(ssize_t, __recv_chk, (int fd, void *data, size_t len, size_t room, int flags), (fd, data, len, room, flags))
PUBLIC ssize_t __recv_chk(int fd, void *data, size_t len, size_t room, int flags)
{
    return is_ours(fd) && len <= room ? ANSWER(read_into(fd, data, len, flags))
                                      : next___recv_chk(fd, data, len, room, flags);
}

NEXT(ssize_t, __recvfrom_chk,
     (int fd, void *data, size_t len, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *from_len),
     (fd, data, len, room, flags, from, from_len))
PUBLIC ssize_t __recvfrom_chk(int fd, void *data, size_t len, size_t room, int flags, __SOCKADDR_ARG from,
                              socklen_t *from_len)
{
    return is_ours(fd) && len <= room ? ANSWER(no_name(read_into(fd, data, len, flags), from_len))
                                      : next___recvfrom_chk(fd, data, len, room, flags, from, from_len);
}
