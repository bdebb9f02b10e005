/* Calls that copy and close descriptors. */
#include "next.h"

#include <stdio.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2) /* linux/close_range.h */
#endif

NEXT(int, close, (int fd), (fd))
PUBLIC int close(int fd)
{
    return is_ours(fd) && !cl_preload_borrowed() ? (int)ANSWER(cl_posix_close(fd)) : next_close(fd);
}

/* Forget those of ours in a range that is about to be closed. */
static void forget(unsigned first, unsigned last)
{
    for (unsigned fd = first; fd <= last && fd < CL_POSIX_FDS; fd++)
        if (is_ours((int)fd)) {
            cl_preload_inside++;
            cl_posix_closed((int)fd);
            cl_preload_inside--;
        }
}

NEXT(int, close_range, (unsigned first, unsigned last, int flags), (first, last, flags))
PUBLIC int close_range(unsigned first, unsigned last, int flags)
{
    if (cl_preload_on && !((unsigned)flags & CLOSE_RANGE_CLOEXEC) && !cl_preload_borrowed())
        forget(first, last);
    return next_close_range(first, last, flags);
}

PUBLIC void closefrom(int first)
{
    (void)close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0);
}

/* stdio closes by libc's own name for it. */
NEXT(int, fclose, (FILE * file), (file))
PUBLIC int fclose(FILE *file)
{
    int fd = file ? fileno(file) : -1;
    if (is_ours(fd) && !cl_preload_borrowed()) {
        (void)fflush(file);
        forget((unsigned)fd, (unsigned)fd);
    }
    return next_fclose(file);
}

/* A copy of fd has been made, by libc. */
static int copied(int fd, int copy)
{
    return copy >= 0 && is_ours(fd) && !cl_preload_borrowed() ? (int)ANSWER(cl_posix_duplicated(fd, copy)) : copy;
}

NEXT(int, dup, (int fd), (fd))
PUBLIC int dup(int fd)
{
    return copied(fd, next_dup(fd));
}

/* Over one of ours: that is closed. */
static void make_room(int fd, int to)
{
    if (fd != to && is_ours(to) && !cl_preload_borrowed())
        forget((unsigned)to, (unsigned)to);
}

NEXT(int, dup2, (int fd, int to), (fd, to))
PUBLIC int dup2(int fd, int to)
{
    make_room(fd, to);
    int copy = next_dup2(fd, to);
    return fd == to ? copy : copied(fd, copy);
}

NEXT(int, dup3, (int fd, int to, int flags), (fd, to, flags))
PUBLIC int dup3(int fd, int to, int flags)
{
    make_room(fd, to);
    return copied(fd, next_dup3(fd, to, flags));
}
