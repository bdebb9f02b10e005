/* read and write, recv and send, in all their forms. */
#include "../linux.h"
#include "../memory.h"
#include "next.h"

#include <limits.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* As a file's read and write: memory must reach so far (fs/read_write.c: vfs_read). */
static bool is_outside(const void *data, size_t len)
{
    return (int64_t)len < 0 || cl_linux_is_outside(data, len);
}

/* As recv and send, which take as much of it as a call goes (net/socket.c: __sys_recvfrom). */
static size_t bounded(size_t len)
{
    return len < CL_LINUX_CALL_BYTES ? len : CL_LINUX_CALL_BYTES;
}

static int64_t read_into(int fd, void *data, size_t len)
{
    struct iovec vec = {data, len};
    if (is_outside(data, len))
        return -EFAULT;
    return cl_posix_read(fd, &vec, 1, 0);
}

static int64_t read_from(int fd, void *data, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    struct iovec vec = {data, bounded(len)};
    bool has_len = from && cl_posix_can_read(from_len, sizeof *from_len), negative = has_len && *from_len > INT_MAX;
    struct msghdr m = {
        .msg_iov = &vec, .msg_iovlen = 1, .msg_name = from, .msg_namelen = has_len && !negative ? *from_len : 0};
    int64_t rc = cl_posix_receive(fd, &m, flags);
    if (rc < 0 || !from)
        return rc;
    if (negative || !has_len || !cl_posix_can_write(from_len, sizeof *from_len))
        return negative ? -EINVAL : -EFAULT; /* what was read is gone */
    *from_len = m.msg_namelen;
    return rc;
}

static int64_t send_from(int fd, const void *data, size_t len, int flags)
{
    struct iovec vec = {(void *)(uintptr_t)data, bounded(len)};
    return cl_posix_write(fd, &vec, 1, flags);
}

static int64_t write_from(int fd, const void *data, size_t len)
{
    struct iovec vec = {(void *)(uintptr_t)data, len};
    return is_outside(data, len) ? -EFAULT : cl_posix_write(fd, &vec, 1, 0);
}

/* What is wrong with the pieces of a vector themselves. */
static int64_t check_pieces(const struct iovec *vec, int n)
{
    return n < 0 || n > IOV_MAX ? -EINVAL : cl_posix_can_read(vec, (size_t)n * sizeof *vec) ? 0 : -EFAULT;
}

static int64_t read_pieces(int fd, const struct iovec *vec, int n, int flags)
{
    int64_t wrong = check_pieces(vec, n);
    return wrong ? wrong : cl_posix_read(fd, vec, n, flags);
}

/* Pieces without a byte are not asked of a file (fs/read_write.c: vfs_writev). */
static int64_t write_pieces(int fd, const struct iovec *vec, int n, int flags)
{
    int64_t wrong = check_pieces(vec, n);
    for (int i = 0; !wrong && i < n; i++)
        if (vec[i].iov_len)
            return cl_posix_write(fd, vec, n, flags);
    return wrong;
}

WRAP(ssize_t, read, (int fd, void *data, size_t len), (fd, data, len), fd, POINT(read, read_into(fd, data, len)))

WRAP(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len), fd,
     POINT(write, write_from(fd, data, len)))

WRAP(ssize_t, readv, (int fd, const struct iovec *vec, int n), (fd, vec, n), fd,
     POINT(readv, read_pieces(fd, vec, n, 0)))

WRAP(ssize_t, writev, (int fd, const struct iovec *vec, int n), (fd, vec, n), fd,
     POINT(writev, write_pieces(fd, vec, n, 0)))

WRAP(ssize_t, recv, (int fd, void *data, size_t len, int flags), (fd, data, len, flags), fd,
     POINT(recv, read_from(fd, data, len, flags, NULL, NULL)))

WRAP(ssize_t, send, (int fd, const void *data, size_t len, int flags), (fd, data, len, flags), fd,
     POINT(send, send_from(fd, data, len, flags)))

static int64_t write_to(int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    struct iovec vec = {(void *)(uintptr_t)data, bounded(len)};
    /* A name without a byte is too short for datagrams; in a message it would be none. */
    socklen_t len_of_name = !to ? 0 : to_len ? to_len : 1;
    struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1, .msg_name = (void *)(uintptr_t)to, .msg_namelen = len_of_name};
    if (to && to_len > sizeof(struct sockaddr_storage))
        return -EINVAL;
    return cl_posix_send(fd, &m, flags);
}

WRAP(ssize_t, recvfrom, (int fd, void *data, size_t len, int flags, __SOCKADDR_ARG from, socklen_t *from_len),
     (fd, data, len, flags, from, from_len), fd,
     POINT(recvfrom, read_from(fd, data, len, flags, from.__sockaddr__, from_len)))

WRAP(ssize_t, sendto, (int fd, const void *data, size_t len, int flags, __CONST_SOCKADDR_ARG to, socklen_t to_len),
     (fd, data, len, flags, to, to_len), fd, POINT(sendto, write_to(fd, data, len, flags, to.__sockaddr__, to_len)))

static ssize_t receive_for_runtime(int fd, struct msghdr *m, int flags)
{
    ssize_t n = cl_preload_linux(SYS_recvmsg, fd, m, flags);
    if (n >= 0)
        cl_preload_got(m);
    return n;
}

NEXT(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
PUBLIC ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    if (is_ours(fd))
        return POINT(recvmsg, cl_posix_receive_message(fd, m, flags));
    return BY_RUNTIME ? receive_for_runtime(fd, m, flags) : next_recvmsg(fd, m, flags);
}

/* Of ours another process would get the placeholder. Of a message that is nowhere Linux says so. */
static bool gives_ours(const struct msghdr *m)
{
    struct msghdr all = *m;
    if (!cl_posix_can_read(all.msg_control, all.msg_controllen))
        return false;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&all); c; c = CMSG_NXTHDR(&all, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const unsigned char *at = CMSG_DATA(c), *end = (const unsigned char *)c + c->cmsg_len;
        for (int fd; at < end && (size_t)(end - at) >= sizeof fd; at += sizeof fd) {
            memcpy(&fd, at, sizeof fd);
            if (kind_of(fd) == CL_POSIX_SOCKET)
                return true;
        }
    }
    return false;
}

/* n messages, one each `bytes`. False, with errno: they may not be sent. */
static bool may_give(const struct msghdr *m, unsigned n, size_t bytes)
{
    bool ours = false;
    for (unsigned i = 0; cl_preload_on && i < n && i < IOV_MAX && !ours && cl_posix_can_read(m, sizeof *m); i++) {
        ours = m->msg_controllen && gives_ours(m);
        m = (const struct msghdr *)((const char *)m + bytes);
    }
    if (ours)
        errno =
            (int)-cl_posix_refuse("a socket of the dataplane cannot be given to another process (sendmsg with "
                                  "SCM_RIGHTS), where it would not be connected: have one process open and serve it",
                                  EOPNOTSUPP);
    return !ours;
}

NEXT(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
PUBLIC ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    if (is_ours(fd))
        return POINT(sendmsg, cl_posix_send_message(fd, m, flags));
    return may_give(m, 1, sizeof *m) ? next_sendmsg(fd, m, flags) : -1;
}

WRAP(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t), (fd, m, n, flags, t), fd,
     POINT(recvmmsg, cl_preload_wrong_time(t, NULL) ?: cl_posix_receive_many(fd, m, n, flags, t)))

NEXT(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags), (fd, m, n, flags))
PUBLIC int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
    if (is_ours(fd))
        return (int)POINT(sendmmsg, cl_posix_send_many(fd, m, n, flags));
    return may_give(&m->msg_hdr, n, sizeof *m) ? next_sendmmsg(fd, m, n, flags) : -1;
}

NEXT(ssize_t, sendfile, (int fd, int from, off_t *offset, size_t len), (fd, from, offset, len))
PUBLIC ssize_t sendfile(int fd, int from, off_t *offset, size_t len)
{
    return is_ours(fd) || is_ours(from) ? POINT(sendfile, cl_posix_sendfile(fd, from, (int64_t *)offset, (int64_t)len))
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
               ? POINT(splice, cl_posix_splice(in, (int64_t *)in_at, out, (int64_t *)out_at, len, flags))
               : next_splice(in, in_at, out, out_at, len, flags);
}

/* readv and writev with flags, where no place is named: one that is has no meaning for a socket, as Linux says of the
 * placeholder. Returns those of recv and send; -EOPNOTSUPP: there are others. */
static int64_t flags_of(int flags)
{
    if (flags & ~(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND))
        return -EOPNOTSUPP;
    return flags & RWF_NOWAIT ? MSG_DONTWAIT : 0;
}

static int64_t read_pieces_with(int fd, const struct iovec *vec, int n, int flags)
{
    int64_t how = flags_of(flags);
    return how < 0 ? how : read_pieces(fd, vec, n, (int)how);
}

static int64_t write_pieces_with(int fd, const struct iovec *vec, int n, int flags)
{
    int64_t how = flags_of(flags);
    return how < 0 ? how : write_pieces(fd, vec, n, (int)how);
}

NEXT(ssize_t, preadv2, (int fd, const struct iovec *vec, int n, off_t at, int flags), (fd, vec, n, at, flags))
PUBLIC ssize_t preadv2(int fd, const struct iovec *vec, int n, off_t at, int flags)
{
    return is_ours(fd) && at == -1 ? POINT(preadv2, read_pieces_with(fd, vec, n, flags))
                                   : next_preadv2(fd, vec, n, at, flags);
}

NEXT(ssize_t, pwritev2, (int fd, const struct iovec *vec, int n, off_t at, int flags), (fd, vec, n, at, flags))
PUBLIC ssize_t pwritev2(int fd, const struct iovec *vec, int n, off_t at, int flags)
{
    return is_ours(fd) && at == -1 ? POINT(pwritev2, write_pieces_with(fd, vec, n, flags))
                                   : next_pwritev2(fd, vec, n, at, flags);
}

/* libc's other names for the same functions. */
PUBLIC ssize_t __read(int fd, void *data, size_t len) __attribute__((alias("read")));
PUBLIC ssize_t __write(int fd, const void *data, size_t len) __attribute__((alias("write")));
PUBLIC ssize_t __send(int fd, const void *data, size_t len, int flags) __attribute__((alias("send")));
PUBLIC ssize_t preadv64v2(int fd, const struct iovec *vec, int n, off64_t at, int flags)
    __attribute__((alias("preadv2")));
PUBLIC ssize_t pwritev64v2(int fd, const struct iovec *vec, int n, off64_t at, int flags)
    __attribute__((alias("pwritev2")));

/* Of programs that were compiled with _FORTIFY_SOURCE: `room` is what the compiler knows of the buffer. libc's ends the
 * program if that is too small; so does it here. */

NEXT(ssize_t, __read_chk, (int fd, void *data, size_t len, size_t room), (fd, data, len, room))
PUBLIC ssize_t __read_chk(int fd, void *data, size_t len, size_t room)
{
    return is_ours(fd) && len <= room ? POINT(__read_chk, read_into(fd, data, len))
                                      : next___read_chk(fd, data, len, room);
}

NEXT(ssize_t, __recv_chk, (int fd, void *data, size_t len, size_t room, int flags), (fd, data, len, room, flags))
PUBLIC ssize_t __recv_chk(int fd, void *data, size_t len, size_t room, int flags)
{
    return is_ours(fd) && len <= room ? POINT(__recv_chk, read_from(fd, data, len, flags, NULL, NULL))
                                      : next___recv_chk(fd, data, len, room, flags);
}

NEXT(ssize_t, __recvfrom_chk,
     (int fd, void *data, size_t len, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *from_len),
     (fd, data, len, room, flags, from, from_len))
PUBLIC ssize_t __recvfrom_chk(int fd, void *data, size_t len, size_t room, int flags, __SOCKADDR_ARG from,
                              socklen_t *from_len)
{
    return is_ours(fd) && len <= room
               ? POINT(__recvfrom_chk, read_from(fd, data, len, flags, from.__sockaddr__, from_len))
               : next___recvfrom_chk(fd, data, len, room, flags, from, from_len);
}
