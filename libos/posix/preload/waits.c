/* epoll, poll and select. */
#include "../memory.h"
#include "next.h"

#include <sys/resource.h>
#include <time.h>

#define MS 1000000ll
#define SIGNALS_BYTES 8 /* of a set, as the kernel has it */

static int64_t ns_of_ms(int ms)
{
    return ms < 0 ? -1 : ms * MS;
}

static int64_t ns_of(const struct timespec *t)
{
    return t ? cl_posix_ns(t->tv_sec, t->tv_nsec) : -1;
}

int cl_preload_wrong_time(const struct timespec *t, const sigset_t *mask)
{
    if (t && !cl_posix_can_read(t, sizeof *t))
        return -EFAULT;
    if (t && (t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec >= 1000000000))
        return -EINVAL;
    return mask && !cl_posix_can_read(mask, SIGNALS_BYTES) ? -EFAULT : 0;
}

NEXT_FIRST(int, epoll_create1, (int flags), (flags))

static int created(int epfd, bool by_runtime)
{
    if (by_runtime)
        return cl_posix_inner(epfd);
    return epfd >= 0 && cl_preload_on && !cl_preload_inside ? (int)ANSWER(epoll_create1, cl_posix_epoll_create(epfd))
                                                            : epfd;
}

NEXT_FIRST(int, epoll_create, (int size), (size))
PUBLIC int epoll_create(int size)
{
    return created(next_epoll_create(size), BY_RUNTIME);
}

PUBLIC int epoll_create1(int flags)
{
    return created(next_epoll_create1(flags), BY_RUNTIME);
}

WRAP(int, epoll_ctl, (int epfd, int op, int fd, struct epoll_event *e), (epfd, op, fd, e), fd,
     ANSWER(epoll_ctl, cl_posix_epoll_ctl(epfd, op, fd, e)))

WRAP(int, epoll_wait, (int epfd, struct epoll_event *events, int n, int ms), (epfd, events, n, ms), epfd,
     POINT(epoll_wait, cl_posix_epoll_wait(epfd, events, n, ns_of_ms(ms), NULL)))

WRAP(int, epoll_pwait, (int epfd, struct epoll_event *events, int n, int ms, const sigset_t *mask),
     (epfd, events, n, ms, mask), epfd,
     POINT(epoll_pwait, cl_preload_wrong_time(NULL, mask) ?: cl_posix_epoll_wait(epfd, events, n, ns_of_ms(ms), mask)))

WRAP(int, epoll_pwait2, (int epfd, struct epoll_event *events, int n, const struct timespec *t, const sigset_t *mask),
     (epfd, events, n, t, mask), epfd,
     POINT(epoll_pwait2, cl_preload_wrong_time(t, mask) ?: cl_posix_epoll_wait(epfd, events, n, ns_of(t), mask)))

/* More than there may be descriptors: Linux says so, and looks at none of them. */
static bool are_too_many(nfds_t n)
{
    struct rlimit limit;
    return cl_unlikely(n > FD_SETSIZE) && getrlimit(RLIMIT_NOFILE, &limit) == 0 && n > limit.rlim_cur;
}

bool cl_preload_polls_ours(struct pollfd *fds, nfds_t n)
{
    if (are_too_many(n) || !cl_posix_can_read(fds, n * sizeof *fds))
        return false; /* Linux says what is wrong */
    for (nfds_t i = 0; i < n; i++)
        if (is_ours(fds[i].fd))
            return true;
    return false;
}

NEXT(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
PUBLIC int poll(struct pollfd *fds, nfds_t n, int ms)
{
    return cl_preload_polls_ours(fds, n) ? (int)POINT(poll, cl_posix_poll(fds, n, ns_of_ms(ms), NULL))
                                         : next_poll(fds, n, ms);
}

NEXT(int, ppoll, (struct pollfd * fds, nfds_t n, const struct timespec *t, const sigset_t *mask), (fds, n, t, mask))
PUBLIC int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    return cl_preload_polls_ours(fds, n)
               ? (int)POINT(ppoll, cl_preload_wrong_time(t, mask) ?: cl_posix_poll(fds, n, ns_of(t), mask))
               : next_ppoll(fds, n, t, mask);
}

NEXT(int, __poll_chk, (struct pollfd * fds, nfds_t n, int ms, size_t room), (fds, n, ms, room))
PUBLIC int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t room)
{
    return n * sizeof *fds <= room ? poll(fds, n, ms) : next___poll_chk(fds, n, ms, room);
}

NEXT(int, __ppoll_chk, (struct pollfd * fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t room),
     (fds, n, t, mask, room))
PUBLIC int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t room)
{
    return n * sizeof *fds <= room ? ppoll(fds, n, t, mask) : next___ppoll_chk(fds, n, t, mask, room);
}

/* As many bits as Linux would look at. */
static int looked_at(int n)
{
    int before = errno;
    n = cl_posix_select_within(n);
    errno = before;
    return n;
}

static bool is_set(int n, const fd_set *set)
{
    return !set || cl_posix_can_read(set, cl_posix_set_bytes(n));
}

static bool set_has_ours(int n, const fd_set *set)
{
    for (int fd = 0; set && fd < n; fd++)
        if (cl_posix_in_set(fd, set) && is_ours(fd))
            return true;
    return false;
}

static bool sets_have_ours(int n, const fd_set *in, const fd_set *out, const fd_set *except)
{
    if (n <= 0 || !is_set(n, in) || !is_set(n, out) || !is_set(n, except))
        return false; /* Linux says what is wrong */
    return set_has_ours(n, in) || set_has_ours(n, out) || set_has_ours(n, except);
}

/* libc takes a time whose parts are negative for a wrong one, and has an int for us
 * (sysdeps/unix/sysv/linux/select.c). -EINVAL. */
static int64_t ns_of_span(const struct timeval *t)
{
    int32_t us = t ? (int32_t)t->tv_usec : 0;
    return !t ? -1 : t->tv_sec < 0 || us < 0 ? -EINVAL : cl_posix_ns(t->tv_sec, (int64_t)us * 1000);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ns_of(&t);
}

/* What is left of the time, which libc tells of select alone (fs/select.c: poll_select_finish). */
static void tell_left(struct timeval *t, int64_t end_ns)
{
    int64_t left_ns = end_ns - now_ns();
    left_ns = left_ns > 0 ? left_ns : 0;
    *t = (struct timeval){left_ns / 1000000000, left_ns % 1000000000 / 1000};
}

NEXT(int, select, (int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *t), (n, in, out, except, t))
PUBLIC int select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *t)
{
    n = looked_at(n);
    if (!sets_have_ours(n, in, out, except))
        return next_select(n, in, out, except, t);
    int64_t ns = ns_of_span(t);
    int64_t end_ns = ns > 0 ? now_ns() + ns : 0;
    int ready = (int)POINT(select, ns == -EINVAL ? ns : cl_posix_select(n, in, out, except, ns, NULL));
    if (ns >= 0)
        tell_left(t, end_ns);
    return ready;
}

NEXT(int, pselect, (int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *t, const sigset_t *mask),
     (n, in, out, except, t, mask))
PUBLIC int pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *t, const sigset_t *mask)
{
    n = looked_at(n);
    if (!sets_have_ours(n, in, out, except))
        return next_pselect(n, in, out, except, t, mask);
    return (int)POINT(pselect, cl_preload_wrong_time(t, mask) ?: cl_posix_select(n, in, out, except, ns_of(t), mask));
}

/* libc's other names for the same functions. */
PUBLIC int __poll(struct pollfd *fds, nfds_t n, int ms) __attribute__((alias("poll")));
PUBLIC int __select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *t) __attribute__((alias("select")));
