/* select over both worlds, by poll. Sets have as many bits as the call says, in words: a program's may have less room
 * than an fd_set, or more. */
#include "posix.h"
#include "linux.h"
#include "memory.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define ON_STACK 32 /* descriptors for which no memory has to be taken */

#define SELECT_IN (POLLIN | POLLRDNORM | POLLHUP | POLLERR) /* as Linux has them (fs/select.c) */
#define SELECT_OUT (POLLOUT | POLLWRNORM | POLLERR)
#define SELECT_EXCEPT POLLPRI

/* How many bits Linux' table of files has, at the least, that has so many (fs/file.c: alloc_fdtable). */
static int64_t table_for(int64_t n)
{
    int64_t bits = FD_SETSIZE;
    while (bits < n)
        bits *= 2;
    return bits;
}

static int64_t limit_of_files(void)
{
    struct rlimit limit = {FD_SETSIZE, FD_SETSIZE};
    (void)cl_linux(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
    return (int64_t)cl_min(limit.rlim_cur, (rlim_t)INT_MAX);
}

int cl_posix_select_within(int n)
{
    if (n <= FD_SETSIZE)
        return n;
    int last = cl_posix_last_of_program();
    int64_t most = last < 0 ? limit_of_files() : table_for((int64_t)last + 1); /* perhaps it has as many as it may */
    return (int)cl_min((int64_t)n, most);
}

static short events_of(int fd, const fd_set *in, const fd_set *out, const fd_set *except)
{
    return (short)((cl_posix_in_set(fd, in) ? POLLIN : 0) | (cl_posix_in_set(fd, out) ? POLLOUT : 0) |
                   (cl_posix_in_set(fd, except) ? POLLPRI : 0));
}

static int note(fd_set *set, short asked, short found, short bit, int fd)
{
    if (!set || !(asked & bit))
        return 0;
    short wanted = bit == POLLIN ? SELECT_IN : bit == POLLOUT ? SELECT_OUT : SELECT_EXCEPT;
    if (!(found & wanted))
        return 0;
    ((unsigned long *)set)[fd / NFDBITS] |= 1ul << fd % NFDBITS;
    return 1;
}

/* Those that are in one of the sets; NULL: only count them. */
static nfds_t fill(struct pollfd *fds, int n, const fd_set *in, const fd_set *out, const fd_set *except)
{
    nfds_t used = 0;
    for (int fd = 0; fd < n; fd++) {
        short events = events_of(fd, in, out, except);
        if (!events)
            continue;
        if (fds)
            fds[used] = (struct pollfd){fd, events, 0};
        used++;
    }
    return used;
}

/* Linux leaves the words alone of which it was not asked. */
static int clear(fd_set *set, int n)
{
    size_t bytes = cl_posix_set_bytes(n);
    if (set && !cl_posix_can_write(set, bytes))
        return -EFAULT;
    if (set)
        memset(set, 0, bytes);
    return 0;
}

static int select_by(struct pollfd *fds, nfds_t used, int n, fd_set *in, fd_set *out, fd_set *except,
                     int64_t timeout_ns, const sigset_t *mask)
{
    int sum = 0;
    int rc = cl_posix_poll(fds, used, timeout_ns, mask);
    if (rc < 0)
        return rc;
    for (nfds_t i = 0; i < used; i++)
        if (fds[i].revents & POLLNVAL)
            return -EBADF;
    if ((rc = clear(in, n)) || (rc = clear(out, n)) || (rc = clear(except, n)))
        return rc;
    for (nfds_t i = 0; i < used; i++) {
        sum += note(in, fds[i].events, fds[i].revents, POLLIN, fds[i].fd);
        sum += note(out, fds[i].events, fds[i].revents, POLLOUT, fds[i].fd);
        sum += note(except, fds[i].events, fds[i].revents, POLLPRI, fds[i].fd);
    }
    return sum;
}

int cl_posix_select(int n, fd_set *in, fd_set *out, fd_set *except, int64_t timeout_ns, const sigset_t *mask)
{
    struct pollfd few[ON_STACK], *fds = few;
    if (n < 0)
        return -EINVAL;
    nfds_t used = fill(NULL, n, in, out, except);
    if (used > ON_STACK && !(fds = malloc(used * sizeof *fds)))
        return -ENOMEM;
    fill(fds, n, in, out, except);
    int rc = select_by(fds, used, n, in, out, except, timeout_ns, mask);
    if (fds != few)
        free(fds);
    return rc;
}
