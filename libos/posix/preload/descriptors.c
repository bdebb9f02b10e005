/* Calls that copy and close descriptors. */
#include "next.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC /* linux/close_range.h */
#define CLOSE_RANGE_UNSHARE (1u << 1)
#define CLOSE_RANGE_CLOEXEC (1u << 2)
#endif

/* The runtime's own, which it alone closes. Not of a child's, who has copies. */
static bool is_kept(int fd)
{
    return cl_unlikely(cl_posix_is_inner(fd)) && !cl_preload_borrowed();
}

NEXT(int, close, (int fd), (fd))
PUBLIC int close(int fd)
{
    if (is_kept(fd)) {
        int rc = BY_RUNTIME ? cl_posix_inner_close(fd) : -EBADF;
        errno = rc < 0 ? -rc : errno;
        return rc < 0 ? -1 : 0;
    }
    return is_known(fd) && !cl_preload_borrowed() ? (int)POINT(close, cl_posix_close(fd)) : next_close(fd);
}

/* Forget those of ours in a range that is about to be closed. */
static void forget(unsigned first, unsigned last)
{
    for (unsigned fd = first; fd <= last && fd < CL_POSIX_FDS; fd++)
        if (is_known((int)fd)) {
            cl_preload_inside++;
            cl_posix_closed((int)fd);
            cl_preload_inside--;
        }
}

NEXT_FIRST(int, close_range, (unsigned first, unsigned last, int flags), (first, last, flags))
PUBLIC int close_range(unsigned first, unsigned last, int flags)
{
    bool closes = !((unsigned)flags & ~CLOSE_RANGE_UNSHARE) && first <= last;
    if (!cl_preload_on || !closes || cl_preload_borrowed())
        return next_close_range(first, last, flags);
    forget(first, last);
    for (unsigned fd = first; fd <= last && fd < CL_POSIX_FDS; fd++)
        if (is_kept((int)fd)) { /* what lies before it; then go on behind it */
            if (fd > first && next_close_range(first, fd - 1, flags))
                return -1;
            first = fd + 1;
        }
    return first > last ? 0 : next_close_range(first, last, flags);
}

PUBLIC void closefrom(int first)
{
    (void)close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0);
}

/* stdio closes by libc's own name for it. */
NEXT_FIRST(int, fclose, (FILE * file), (file))
PUBLIC int fclose(FILE *file)
{
    int fd = file ? fileno(file) : -1;
    if (is_known(fd) && !cl_preload_borrowed()) {
        (void)fflush(file);
        forget((unsigned)fd, (unsigned)fd);
    }
    return next_fclose(file);
}

NEXT_FIRST(int, dup, (int fd), (fd))

/* A copy of fd has been made, by libc. */
static int copied(int fd, int copy)
{
    return copy >= 0 && is_known(fd) && !cl_preload_borrowed() ? (int)ANSWER(dup, cl_posix_duplicated(fd, copy)) : copy;
}

PUBLIC int dup(int fd)
{
    return copied(fd, next_dup(fd));
}

/* Over one of ours: that is closed, if the call is one that works. */
static void make_room(int fd, int to, int flags)
{
    bool works = fd != to && !(flags & ~O_CLOEXEC) && cl_preload_linux(SYS_fcntl, fd, F_GETFD) >= 0;
    if (is_known(to) && works && !cl_preload_borrowed())
        forget((unsigned)to, (unsigned)to);
}

/* Over one of the runtime's: Linux says so of a number that is just being given away. */
static int busy(void)
{
    errno = EBUSY;
    return -1;
}

NEXT_FIRST(int, dup2, (int fd, int to), (fd, to))
PUBLIC int dup2(int fd, int to)
{
    if (is_kept(to))
        return BY_RUNTIME ? next_dup2(fd, to) : busy();
    make_room(fd, to, 0);
    int copy = next_dup2(fd, to);
    return fd == to ? copy : copied(fd, copy);
}

NEXT_FIRST(int, dup3, (int fd, int to, int flags), (fd, to, flags))
PUBLIC int dup3(int fd, int to, int flags)
{
    if (is_kept(to))
        return BY_RUNTIME ? next_dup3(fd, to, flags) : busy();
    make_room(fd, to, flags);
    return copied(fd, next_dup3(fd, to, flags));
}

/* libc's other names for the same functions. */
PUBLIC int __close(int fd) __attribute__((alias("close")));
PUBLIC int __dup2(int fd, int to) __THROW __attribute__((alias("dup2")));
PUBLIC int _IO_fclose(FILE *file) __attribute__((alias("fclose")));
