/* Calls by libc's syscall(), which goes past all that this library puts before libc. The runtime makes its own so; of
 * the program's those on sockets of ours are told of, and io_uring, which would do them in the kernel, is not to be
 * had: programs that can do without do so. */
#include "next.h"

#include <aio.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARGUMENTS 6 /* of a system call at most */

static bool any_is_ours(const struct pollfd *fds, unsigned long n)
{
    for (unsigned long i = 0; fds && i < n; i++)
        if (is_ours(fds[i].fd))
            return true;
    return false;
}

/* A call on a socket of ours, which would meet the placeholder. Most have it as their first argument. Of select, which
 * the architecture has or not, nothing is told. */
static bool is_on_socket(long number, const long *a)
{
    switch (number) {
    case SYS_epoll_ctl:
        return is_ours((int)a[2]) || is_ours((int)a[0]);
    case SYS_fcntl:
        return is_ours((int)a[0]) && (a[1] == F_SETFL || a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC);
    case SYS_splice:
        return is_ours((int)a[0]) || is_ours((int)a[2]);
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll:
        return any_is_ours((const struct pollfd *)a[0], (unsigned long)a[1]);
#ifdef SYS_dup2
    case SYS_dup2:
#endif
    case SYS_dup:
    case SYS_dup3:
    case SYS_ioctl:
    case SYS_epoll_pwait2:
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
    case SYS_close:
    case SYS_bind:
    case SYS_listen:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_shutdown:
    case SYS_recvfrom:
    case SYS_sendto:
    case SYS_recvmsg:
    case SYS_sendmsg:
    case SYS_recvmmsg:
    case SYS_sendmmsg:
    case SYS_setsockopt:
    case SYS_getsockopt:
    case SYS_getsockname:
    case SYS_getpeername:
    case SYS_sendfile:
    case SYS_preadv2:
    case SYS_pwritev2:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        return is_ours((int)a[0]);
    default:
        return false;
    }
}

static long (*next_syscall)(long number, ...);

static CL_NOINLINE void find(void)
{
    next_syscall = (long (*)(long number, ...))dlsym(RTLD_NEXT, "syscall");
}

PUBLIC long syscall(long number, ...)
{
    bool own = BY_RUNTIME || !cl_preload_on;
    long a[ARGUMENTS];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < ARGUMENTS; i++)
        a[i] = va_arg(arguments, long); /* those that are not there are not looked at, as in libc's */
    va_end(arguments);
    if (cl_unlikely(!next_syscall))
        find();
    if (!own && cl_unlikely(number == SYS_io_uring_setup)) {
        errno = (int)-cl_posix_refuse(
            "io_uring is not to be had, as its calls on sockets would go past the dataplane: have "
            "the program use epoll",
            ENOSYS);
        return -1;
    }
    if (!own && is_on_socket(number, a))
        (void)cl_posix_refuse(
            "syscall() on a socket of the dataplane goes past it, to a socket that is not connected: have "
            "the program call libc's function",
            0);
    return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* libc's threads make these calls, by its own names. */

static int refuse_aio(void)
{
    errno =
        (int)-cl_posix_refuse("aio_read, aio_write and lio_listio are not to be had of sockets of the dataplane: have "
                              "the program use epoll",
                              ENOSYS);
    return -1;
}

NEXT(int, aio_read, (struct aiocb * block), (block))
PUBLIC int aio_read(struct aiocb *block)
{
    return is_ours(block->aio_fildes) ? refuse_aio() : next_aio_read(block);
}

NEXT(int, aio_write, (struct aiocb * block), (block))
PUBLIC int aio_write(struct aiocb *block)
{
    return is_ours(block->aio_fildes) ? refuse_aio() : next_aio_write(block);
}

NEXT(int, lio_listio, (int mode, struct aiocb *const list[], int n, struct sigevent *event), (mode, list, n, event))
PUBLIC int lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *event)
{
    for (int i = 0; i < n; i++)
        if (list[i] && is_ours(list[i]->aio_fildes))
            return refuse_aio();
    return next_lio_listio(mode, list, n, event);
}

_Static_assert(sizeof(struct aiocb) == sizeof(struct aiocb64), "one is the other");
PUBLIC int aio_read64(struct aiocb64 *block) __attribute__((alias("aio_read")));
PUBLIC int aio_write64(struct aiocb64 *block) __attribute__((alias("aio_write")));
PUBLIC int lio_listio64(int mode, struct aiocb64 *const list[], int n, struct sigevent *event)
    __attribute__((alias("lio_listio")));
