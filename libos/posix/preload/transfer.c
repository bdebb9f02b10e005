/* read and write, recv and send, in all their forms. */
#include "next.h"

#include <string.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

static int64_t read_into(int fd, void *data, size_t len)
{
    struct iovec vec = {data, len};
    return cl_posix_read(fd, &vec, 1, 0);
}

static int64_t read_from(int fd, void *data, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    struct iovec vec = {data, len};
    struct msghdr m = {
        .msg_iov = &vec, .msg_iovlen = 1, .msg_name = from, .msg_namelen = from && from_len ? *from_len : 0};
    int64_t rc = cl_posix_receive(fd, &m, flags);
    if (rc >= 0 && from_len)
        *from_len = m.msg_namelen;
    return rc;
}

static int64_t write_from(int fd, const void *data, size_t len, int flags)
{
    struct iovec vec = {(void *)(uintptr_t)data, len};
    return cl_posix_write(fd, &vec, 1, flags);
}

/* Pieces without a byte are not asked of a file (fs/read_write.c: vfs_writev). */
static int64_t write_pieces(int fd, const struct iovec *vec, int n)
{
    for (int i = 0; i < n; i++)
        if (vec[i].iov_len)
            return cl_posix_write(fd, vec, n, 0);
    return n < 0 ? -EINVAL : 0;
}

NEXT(ssize_t, read, (int fd, void *data, size_t len), (fd, data, len))
PUBLIC ssize_t read(int fd, void *data, size_t len)
{
    return is_ours(fd) ? ANSWER(read, read_into(fd, data, len)) : next_read(fd, data, len);
}

NEXT(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len))
PUBLIC ssize_t write(int fd, const void *data, size_t len)
{
    return is_ours(fd) ? ANSWER(write, write_from(fd, data, len, 0)) : next_write(fd, data, len);
}

NEXT(ssize_t, readv, (int fd, const struct iovec *vec, int n), (fd, vec, n))
PUBLIC ssize_t readv(int fd, const struct iovec *vec, int n)
{
    return is_ours(fd) ? ANSWER(readv, cl_posix_read(fd, vec, n, 0)) : next_readv(fd, vec, n);
}

NEXT(ssize_t, writev, (int fd, const struct iovec *vec, int n), (fd, vec, n))
PUBLIC ssize_t writev(int fd, const struct iovec *vec, int n)
{
    return is_ours(fd) ? ANSWER(writev, write_pieces(fd, vec, n)) : next_writev(fd, vec, n);
}

NEXT(ssize_t, recv, (int fd, void *data, size_t len, int flags), (fd, data, len, flags))
PUBLIC ssize_t recv(int fd, void *data, size_t len, int flags)
{
    return is_ours(fd) ? ANSWER(recv, read_from(fd, data, len, flags, NULL, NULL)) : next_recv(fd, data, len, flags);
}

NEXT(ssize_t, send, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags))
PUBLIC ssize_t send(int fd, const void *data, size_t len, int flags)
{
    return is_ours(fd) ? ANSWER(send, write_from(fd, data, len, flags)) : next_send(fd, data, len, flags);
}

static int64_t write_to(int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    struct iovec vec = {(void *)(uintptr_t)data, len};
    struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1, .msg_name = (void *)(uintptr_t)to, .msg_namelen = to_len};
    return cl_posix_send(fd, &m, flags);
}

NEXT(ssize_t, recvfrom, (int fd, void *data, size_t len, int flags, __SOCKADDR_ARG from, socklen_t *from_len),
     (fd, data, len, flags, from, from_len))
PUBLIC ssize_t recvfrom(int fd, void *data, size_t len, int flags, __SOCKADDR_ARG from, socklen_t *from_len)
{
    return is_ours(fd) ? ANSWER(recvfrom, read_from(fd, data, len, flags, from.__sockaddr__, from_len))
                       : next_recvfrom(fd, data, len, flags, from, from_len);
}

NEXT(ssize_t, sendto, (int fd, const void *data, size_t len, int flags, __CONST_SOCKADDR_ARG to, socklen_t to_len),
     (fd, data, len, flags, to, to_len))
PUBLIC ssize_t sendto(int fd, const void *data, size_t len, int flags, __CONST_SOCKADDR_ARG to, socklen_t to_len)
{
    return is_ours(fd) ? ANSWER(sendto, write_to(fd, data, len, flags, to.__sockaddr__, to_len))
                       : next_sendto(fd, data, len, flags, to, to_len);
}

NEXT(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
PUBLIC ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    if (is_ours(fd))
        return ANSWER(recvmsg, cl_posix_receive(fd, m, flags));
    ssize_t n = next_recvmsg(fd, m, flags);
    if (BY_RUNTIME && n >= 0)
        cl_preload_got(m);
    return n;
}

NEXT(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
PUBLIC ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    return is_ours(fd) ? ANSWER(sendmsg, cl_posix_send(fd, m, flags)) : next_sendmsg(fd, m, flags);
}

static bool is_time(const struct timespec *t)
{
    return !t || (t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < 1000000000);
}

NEXT(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t), (fd, m, n, flags, t))
PUBLIC int recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t)
{
    return is_ours(fd) ? (int)ANSWER(recvmmsg, is_time(t) ? cl_posix_receive_many(fd, m, n, flags, t) : -EINVAL)
                       : next_recvmmsg(fd, m, n, flags, t);
}

NEXT(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags), (fd, m, n, flags))
PUBLIC int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
    return is_ours(fd) ? (int)ANSWER(sendmmsg, cl_posix_send_many(fd, m, n, flags)) : next_sendmmsg(fd, m, n, flags);
}

NEXT(ssize_t, sendfile, (int fd, int from, off_t *offset, size_t len), (fd, from, offset, len))
PUBLIC ssize_t sendfile(int fd, int from, off_t *offset, size_t len)
{
    return is_ours(fd) ? ANSWER(sendfile, cl_posix_sendfile(fd, from, (int64_t *)offset, (int64_t)len))
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
               ? ANSWER(splice, cl_posix_splice(in, (int64_t *)in_at, out, (int64_t *)out_at, len, flags))
               : next_splice(in, in_at, out, out_at, len, flags);
}

/* Of programs that were compiled with _FORTIFY_SOURCE: `room` is what the compiler knows of the buffer. libc's ends the
 * program if that is too small; so does it here. */

NEXT(ssize_t, __read_chk, (int fd, void *data, size_t len, size_t room), (fd, data, len, room))
PUBLIC ssize_t __read_chk(int fd, void *data, size_t len, size_t room)
{
    return is_ours(fd) && len <= room ? ANSWER(__read_chk, read_into(fd, data, len))
                                      : next___read_chk(fd, data, len, room);
}

NEXT(ssize_t, __recv_chk, (int fd, void *data, size_t len, size_t room, int flags), (fd, data, len, room, flags))
PUBLIC ssize_t __recv_chk(int fd, void *data, size_t len, size_t room, int flags)
{
    return is_ours(fd) && len <= room ? ANSWER(__recv_chk, read_from(fd, data, len, flags, NULL, NULL))
                                      : next___recv_chk(fd, data, len, room, flags);
}

NEXT(ssize_t, __recvfrom_chk,
     (int fd, void *data, size_t len, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *from_len),
     (fd, data, len, room, flags, from, from_len))
PUBLIC ssize_t __recvfrom_chk(int fd, void *data, size_t len, size_t room, int flags, __SOCKADDR_ARG from,
                              socklen_t *from_len)
{
    return is_ours(fd) && len <= room
               ? ANSWER(__recvfrom_chk, read_from(fd, data, len, flags, from.__sockaddr__, from_len))
               : next___recvfrom_chk(fd, data, len, room, flags, from, from_len);
}
