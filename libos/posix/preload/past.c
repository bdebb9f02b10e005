/* Calls by libc's syscall(), which goes past all that this library puts before libc. The runtime makes its own so. Of
 * the program's each that would do otherwise by libc's function of that name is made by it: those on descriptors of
 * ours, and those that make or close descriptors. Unlike that function they are no points at which a thread is
 * cancelled. io_uring, which would do them in the kernel, is not to be had: programs that can do without do so. */
#include "../memory.h"
#include "next.h"

#include <aio.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS 6 /* of a system call at most */
#define SIGNALS_BYTES 8
#define S 1000000000ll /* ns */

/* Of the arguments `a`: a number, a pointer. GAVE: libc's function has done it. */
#define N(i) ((int)a[i])
#define P(i) ((void *)a[i])
#define GAVE(call)                                                                                                     \
    ({                                                                                                                 \
        int state, unused;                                                                                             \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);                                                        \
        *rc = (call);                                                                                                  \
        pthread_setcancelstate(state, &unused);                                                                        \
        true;                                                                                                          \
    })

static long (*next_syscall)(long number, ...);

static CL_NOINLINE void find(void)
{
    next_syscall = (long (*)(long number, ...))dlsym(RTLD_NEXT, "syscall");
}

static long pass(long number, const long *a)
{
    if (cl_unlikely(!next_syscall))
        find();
    return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Those that are not there are not looked at, as in libc's. */
#define ALL_ARGUMENTS(a, before)                                                                                       \
    long a[ARGUMENTS];                                                                                                 \
    va_list arguments;                                                                                                 \
    va_start(arguments, before);                                                                                       \
    for (int i = 0; i < ARGUMENTS; i++)                                                                                \
        a[i] = va_arg(arguments, long);                                                                                \
    va_end(arguments)

long cl_preload_linux(long number, ...)
{
    ALL_ARGUMENTS(a, number);
    return pass(number, a);
}

static bool transfers(long number, const long *a, long *rc)
{
    bool known = is_known(N(0));
    switch (number) {
    case SYS_read:
        return known && GAVE(read(N(0), P(1), (size_t)a[2]));
    case SYS_write:
        return known && GAVE(write(N(0), P(1), (size_t)a[2]));
    case SYS_readv:
        return known && GAVE(readv(N(0), P(1), N(2)));
    case SYS_writev:
        return known && GAVE(writev(N(0), P(1), N(2)));
    case SYS_preadv2:
        return known && GAVE(preadv2(N(0), P(1), N(2), a[3], N(5)));
    case SYS_pwritev2:
        return known && GAVE(pwritev2(N(0), P(1), N(2), a[3], N(5)));
    case SYS_recvfrom:
        return known && GAVE(recvfrom(N(0), P(1), (size_t)a[2], N(3), P(4), P(5)));
    case SYS_sendto:
        return known && GAVE(sendto(N(0), P(1), (size_t)a[2], N(3), P(4), (socklen_t)a[5]));
    case SYS_recvmsg:
        return known && GAVE(recvmsg(N(0), P(1), N(2)));
    case SYS_sendmsg:
        return GAVE(sendmsg(N(0), P(1), N(2)));
    case SYS_recvmmsg:
        return known && GAVE(recvmmsg(N(0), P(1), (unsigned)a[2], N(3), P(4)));
    case SYS_sendmmsg:
        return GAVE(sendmmsg(N(0), P(1), (unsigned)a[2], N(3)));
    case SYS_sendfile:
        return (known || is_known(N(1))) && GAVE(sendfile(N(0), N(1), P(2), (size_t)a[3]));
    case SYS_splice:
        return (known || is_known(N(2))) && GAVE(splice(N(0), P(1), N(2), P(3), (size_t)a[4], (unsigned)a[5]));
    default:
        return false;
    }
}

static bool sets_sockets(long number, const long *a, long *rc)
{
    if (number == SYS_socket)
        return GAVE(socket(N(0), N(1), N(2)));
    if (!is_known(N(0)))
        return false;
    switch (number) {
    case SYS_bind:
        return GAVE(bind(N(0), P(1), (socklen_t)a[2]));
    case SYS_listen:
        return GAVE(listen(N(0), N(1)));
    case SYS_accept:
        return GAVE(accept(N(0), P(1), P(2)));
    case SYS_accept4:
        return GAVE(accept4(N(0), P(1), P(2), N(3)));
    case SYS_connect:
        return GAVE(connect(N(0), P(1), (socklen_t)a[2]));
    case SYS_shutdown:
        return GAVE(shutdown(N(0), N(1)));
    case SYS_getsockname:
        return GAVE(getsockname(N(0), P(1), P(2)));
    case SYS_getpeername:
        return GAVE(getpeername(N(0), P(1), P(2)));
    case SYS_setsockopt:
        return GAVE(setsockopt(N(0), N(1), N(2), P(3), (socklen_t)a[4]));
    case SYS_getsockopt:
        return GAVE(getsockopt(N(0), N(1), N(2), P(3), P(4)));
    case SYS_fcntl:
        return GAVE(fcntl(N(0), N(1), P(2)));
    case SYS_ioctl:
        return GAVE(ioctl(N(0), (unsigned long)a[1], P(2)));
    default:
        return false;
    }
}

static bool copies_and_closes(long number, const long *a, long *rc)
{
    switch (number) {
    case SYS_close:
        return GAVE(close(N(0)));
    case SYS_close_range:
        return GAVE(close_range((unsigned)a[0], (unsigned)a[1], N(2)));
    case SYS_dup:
        return GAVE(dup(N(0)));
#ifdef SYS_dup2
    case SYS_dup2:
        return GAVE(dup2(N(0), N(1)));
#endif
    case SYS_dup3:
        return GAVE(dup3(N(0), N(1), N(2)));
    default:
        return false;
    }
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * S + t.tv_nsec;
}

/* Linux' calls tell what is left of a time that they were given, libc's ppoll and pselect do not (fs/select.c:
 * poll_select_finish). */
static void tell_left(struct timespec *t, int64_t begin_ns)
{
    if (!t || !cl_posix_can_write(t, sizeof *t) || t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec >= S ||
        (t->tv_sec == 0 && t->tv_nsec == 0))
        return;
    int64_t ns = cl_posix_ns(t->tv_sec, t->tv_nsec) - (now_ns() - begin_ns);
    *t = ns > 0 ? (struct timespec){ns / S, ns % S} : (struct timespec){0, 0};
}

static int ppoll_that_tells(struct pollfd *fds, nfds_t n, struct timespec *t, const sigset_t *mask)
{
    int64_t begin_ns = t ? now_ns() : 0;
    int rc = ppoll(fds, n, t, mask);
    tell_left(t, begin_ns);
    return rc;
}

/* Of pselect6. */
struct signals {
    const sigset_t *mask;
    size_t bytes;
};

static int pselect_that_tells(int n, fd_set *in, fd_set *out, fd_set *except, struct timespec *t,
                              const struct signals *signals)
{
    int64_t begin_ns = t ? now_ns() : 0;
    int rc = pselect(n, in, out, except, t, signals ? signals->mask : NULL);
    tell_left(t, begin_ns);
    return rc;
}

/* Linux' own select takes us of more than a second, for which libc's has an int (kern_select). */
static int select_by_long(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *t)
{
    struct timeval left = t ? (struct timeval){0, t->tv_usec % 1000000} : (struct timeval){0};
    if (t && __builtin_add_overflow(t->tv_sec, t->tv_usec / 1000000, &left.tv_sec))
        left.tv_sec = -1;
    int rc = select(n, in, out, except, t ? &left : NULL);
    if (t && (rc >= 0 || errno != EINVAL))
        *t = left;
    return rc;
}

/* Of what is given by pointer and is nowhere Linux says so; libc's own functions look at it themselves. */
static bool is_there(const void *p, size_t bytes)
{
    return !p || cl_posix_can_read(p, bytes);
}

/* A mask of another size is wrong, as Linux says. */
static bool is_mask(const void *mask, size_t bytes)
{
    return !mask || bytes == SIGNALS_BYTES;
}

static bool waits(long number, const long *a, long *rc)
{
    const struct signals *signals = P(5);
    switch (number) {
#ifdef SYS_epoll_create
    case SYS_epoll_create:
        return GAVE(epoll_create(N(0)));
    case SYS_epoll_wait:
        return is_known(N(0)) && GAVE(epoll_wait(N(0), P(1), N(2), N(3)));
#endif
    case SYS_epoll_create1:
        return GAVE(epoll_create1(N(0)));
    case SYS_epoll_ctl:
        return is_known(N(2)) && GAVE(epoll_ctl(N(0), N(1), N(2), P(3)));
    case SYS_epoll_pwait:
        return is_known(N(0)) && is_mask(P(4), (size_t)a[5]) && GAVE(epoll_pwait(N(0), P(1), N(2), N(3), P(4)));
    case SYS_epoll_pwait2:
        return is_known(N(0)) && is_mask(P(4), (size_t)a[5]) && GAVE(epoll_pwait2(N(0), P(1), N(2), P(3), P(4)));
#ifdef SYS_poll
    case SYS_poll:
        return cl_preload_polls_ours(P(0), (unsigned)a[1]) && GAVE(poll(P(0), (unsigned)a[1], N(2)));
    case SYS_select:
        return is_there(P(4), sizeof(struct timeval)) && GAVE(select_by_long(N(0), P(1), P(2), P(3), P(4)));
#endif
    case SYS_ppoll:
        return is_there(P(2), sizeof(struct timespec)) && cl_preload_polls_ours(P(0), (unsigned)a[1]) &&
               is_mask(P(3), (size_t)a[4]) && GAVE(ppoll_that_tells(P(0), (unsigned)a[1], P(2), P(3)));
    case SYS_pselect6:
        return is_there(P(4), sizeof(struct timespec)) && is_there(signals, sizeof *signals) &&
               (!signals || is_mask(signals->mask, signals->bytes)) &&
               GAVE(pselect_that_tells(N(0), P(1), P(2), P(3), P(4), signals));
    default:
        return false;
    }
}

/* False: it is Linux'. */
static bool is_by_name(long number, const long *a, long *rc)
{
    return transfers(number, a, rc) || sets_sockets(number, a, rc) || copies_and_closes(number, a, rc) ||
           waits(number, a, rc);
}

PUBLIC long syscall(long number, ...)
{
    long rc;
    bool own = BY_RUNTIME || !cl_preload_on;
    ALL_ARGUMENTS(a, number);
    if (!own && cl_unlikely(number == SYS_io_uring_setup)) {
        errno = (int)-cl_posix_refuse(
            "io_uring is not to be had, as its calls on sockets would go past the dataplane: have "
            "the program use epoll",
            ENOSYS);
        return -1;
    }
    return !own && is_by_name(number, a, &rc) ? rc : pass(number, a);
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
