/* splice and sendfile. splice between a pipe and a TCP socket of ours. The bytes are copied: what it saves a program is
 * not had here, but it works. SPLICE_F_NONBLOCK is of the pipe; the socket goes by its own flag (fs/splice.c). */
#include "kthreads.h"
#include "linux.h"
#include "memory.h"
#include "waits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES 16384 /* of a file at a time. On the heap: of the size of the caller's stack nothing is known */

static bool is_pipe(int fd)
{
    struct stat st;
    return cl_linux(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) == 0 && S_ISFIFO(st.st_mode);
}

static bool waits_for_pipe(int fd, unsigned flags)
{
    return !(flags & SPLICE_F_NONBLOCK) && !(cl_linux(SYS_fcntl, fd, F_GETFL, 0) & O_NONBLOCK);
}

/* Until it can be written or read. A pipe with room has that of PIPE_BUF bytes (pipe(7)). */
static int64_t pipe_ready(int fd, short events, unsigned flags)
{
    struct pollfd p = {fd, events, 0};
    int64_t rc = cl_linux(SYS_ppoll, &p, 1, waits_for_pipe(fd, flags) ? NULL : &(struct timespec){0, 0}, NULL, 0);
    return rc < 0 ? rc : rc == 0 ? -EAGAIN : 0;
}

/* What has come stays until the pipe has it. */
static int64_t from_socket(int in, int out, size_t len, unsigned flags)
{
    char data[PIPE_BUF];
    struct iovec vec = {data, cl_min(len, sizeof data)};
    int64_t rc = pipe_ready(out, POLLOUT, flags);
    if (rc == 0)
        rc = cl_posix_read(in, &vec, 1, MSG_PEEK);
    if (rc <= 0)
        return rc;
    int64_t took = cl_linux(SYS_write, out, data, rc);
    vec.iov_len = (size_t)cl_max(took, (int64_t)0);
    return took <= 0 ? took : cl_posix_read(in, &vec, 1, MSG_DONTWAIT);
}

/* How much the socket takes without waiting. */
static int64_t room_of(struct cl_posix_socket *s, bool waits)
{
    struct cl_tcp_info info;
    int rc;
    for (;;) {
        if ((rc = cl_posix_socket_info(s, &info)))
            return rc == -ENOTCONN ? PIPE_BUF : rc; /* the write says why */
        if (info.unacked_bytes < info.send_limit)
            return info.send_limit - info.unacked_bytes;
        if (!waits)
            return -EAGAIN;
        if ((rc = cl_posix_wait(s, EPOLLOUT, cl_posix_deadline(s->send_ns))))
            return rc;
    }
}

/* All that the pipe has given is written: there is nobody to take it back. */
static int64_t write_all(int out, const char *data, int64_t len, unsigned flags)
{
    int64_t done = 0, rc = 0;
    while (done < len) {
        struct iovec vec = {(void *)(uintptr_t)(data + done), (size_t)(len - done)};
        rc = cl_posix_write(out, &vec, 1, flags & SPLICE_F_MORE ? MSG_MORE : 0);
        if (rc == -EAGAIN)
            cl_posix_turn_all(); /* memory is short: it takes a moment */
        else if (rc < 0)
            break;
        done += cl_max(rc, (int64_t)0);
    }
    return done ? done : rc;
}

static int64_t to_socket(int in, int out, struct cl_posix_socket *s, size_t len, unsigned flags)
{
    char data[PIPE_BUF];
    bool connected = cl_load_acquire(&s->state) > CL_POSIX_LISTENS;
    int64_t rc = pipe_ready(in, POLLIN, flags);
    if (rc == 0 && connected)
        rc = room_of(s, !cl_load_relaxed(&s->non_blocking));
    if (rc < 0)
        return rc;
    if (!connected) /* as the write would */
        return write_all(out, data, 1, flags);
    rc = cl_linux(SYS_read, in, data, cl_min(len, cl_min((size_t)rc, sizeof data)));
    return rc <= 0 ? rc : write_all(out, data, rc, flags);
}

static bool is_there(const int64_t *offset)
{
    return !offset || cl_posix_can_read(offset, sizeof *offset);
}

int64_t cl_posix_splice(int in, const int64_t *in_at, int out, const int64_t *out_at, size_t len, unsigned flags)
{
    struct cl_posix_socket *s = NULL;
    bool reads = cl_posix_kind(in) == CL_POSIX_SOCKET;
    if (cl_posix_is_child())
        return -ECHILD;
    if (len == 0)
        return 0;
    if (flags & ~(unsigned)(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT))
        return -EINVAL;
    bool by_pipe = is_pipe(reads ? out : in);
    if (by_pipe && (reads ? out_at : in_at))
        return -ESPIPE;
    if (!is_there(in_at) || !is_there(out_at))
        return -EFAULT;
    if (!by_pipe || in_at || out_at || (int64_t)len < 0)
        return -EINVAL;
    if (!(s = cl_posix_socket_of(reads ? in : out)))
        return cl_posix_no_socket(reads ? in : out);
    int64_t rc = s->datagram ? cl_posix_refuse("splice is not to be had of datagram sockets of the dataplane", EINVAL)
                 : reads     ? 0
                             : to_socket(in, out, s, len, flags);
    cl_posix_socket_put(s);
    return rc || !reads ? rc : from_socket(in, out, len, flags);
}

/* sendfile. */

/* Read a piece of the file at the place, or where it stands. */
static int64_t read_file(int from, char *data, int64_t len, const int64_t *offset)
{
    size_t room = (size_t)cl_min(len, (int64_t)FILE_BYTES);
    return offset ? cl_linux(SYS_pread64, from, data, room, *offset) : cl_linux(SYS_read, from, data, room);
}

static int64_t send_pieces(int fd, int from, char *data, int64_t *offset, int64_t len)
{
    int64_t done = 0, rc = 0;
    bool more = false;
    while (done < len) {
        int64_t got = rc = read_file(from, data, len - done, offset);
        if (got <= 0)
            break;
        struct iovec vec = {data, (size_t)got};
        more = got == FILE_BYTES && done + got < len;
        rc = cl_posix_write(fd, &vec, 1, more ? MSG_MORE : 0);
        int64_t took = cl_max(rc, (int64_t)0);
        if (offset)
            *offset += took;
        else if (took < got) /* what was not sent is to be read again */
            (void)cl_linux(SYS_lseek, from, took - got, SEEK_CUR);
        done += took;
        if (took < got)
            break;
    }
    if (more && rc == 0) /* the file was at its end after a whole piece */
        cl_posix_no_more(fd);
    return done ? done : rc;
}

int64_t cl_posix_sendfile(int fd, int from, int64_t *offset, int64_t len)
{
    if (offset && !cl_posix_can_read(offset, sizeof *offset))
        return -EFAULT;
    if (cl_posix_kind(from) == CL_POSIX_SOCKET && cl_posix_kind(fd) == CL_POSIX_LINUX) /* into a pipe it is a splice */
        return offset ? -ESPIPE : cl_posix_splice(from, NULL, fd, NULL, (size_t)len, 0);
    if (cl_posix_kind(from) != CL_POSIX_LINUX || (!offset && cl_linux(SYS_lseek, from, 0, SEEK_CUR) == -ESPIPE))
        return -EINVAL; /* what was not sent could not be put back (fs/splice.c: splice_direct_to_actor) */
    if (len < 0)
        return -EINVAL;
    int64_t at = offset ? *offset : 0;
    char *data = malloc((size_t)cl_max((int64_t)1, cl_min(len, (int64_t)FILE_BYTES)));
    int64_t rc = data ? send_pieces(fd, from, data, offset ? &at : NULL, len) : -ENOMEM;
    free(data);
    if (offset && !cl_posix_can_write(offset, sizeof *offset))
        return -EFAULT; /* it is sent all the same (fs/read_write.c) */
    if (offset)
        *offset = at;
    return rc;
}
