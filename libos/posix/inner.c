/* Descriptors that the runtime has for itself, in the program's table. They lie above its own, as far as its limit goes, so
 * that it finds the numbers that it would find on Linux; and it closes none of them, as those that close all they do not
 * know would. */
#include "posix.h"
#include "linux.h"

#include <fcntl.h>
#include <sys/resource.h>

#define ROOM 256u /* for them, below the limit of open files */

static bool forgotten;                    /* written in a child, while it is alone */
static uint64_t marks[CL_POSIX_FDS / 64]; /* a bit each. RMW; read by who closes */

/* Relaxed, here and below: who asks of a number has it from somebody. */
static void mark(int fd, bool on)
{
    uint64_t bit = 1ull << ((unsigned)fd % 64), *at = &marks[(unsigned)fd / 64];
    if (on)
        __atomic_fetch_or(at, bit, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(at, ~bit, __ATOMIC_RELAXED);
}

bool cl_posix_is_inner(int fd)
{
    return !forgotten && (unsigned)fd < CL_POSIX_FDS &&
           cl_load_relaxed(&marks[(unsigned)fd / 64]) >> ((unsigned)fd % 64) & 1;
}

/* A copy above the program's. -errno. */
static int copy_above(int fd)
{
    struct rlimit limit = {0};
    (void)cl_linux(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
    unsigned most = (unsigned)cl_min((uint64_t)limit.rlim_cur, (uint64_t)CL_POSIX_FDS);
    return (int)cl_linux(SYS_fcntl, fd, F_DUPFD_CLOEXEC, most / 2 > ROOM ? most - ROOM : most / 2);
}

void cl_posix_inner_forget(void)
{
    forgotten = true;
}

void cl_posix_inner_given(int fd)
{
    if (fd >= 0 && fd < (int)CL_POSIX_FDS)
        mark(fd, true);
}

int cl_posix_inner(int fd)
{
    if (fd < 0 || fd >= (int)CL_POSIX_FDS)
        return fd;
    int copy = copy_above(fd);
    if (copy >= 0) {
        (void)cl_linux(SYS_close, fd);
        fd = copy;
    }
    mark(fd, true);
    return fd;
}

int cl_posix_inner_close(int fd)
{
    if (fd >= 0 && fd < (int)CL_POSIX_FDS)
        mark(fd, false); /* before another thread is given the number */
    return (int)cl_linux(SYS_close, fd);
}
