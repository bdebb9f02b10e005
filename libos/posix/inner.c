/* Descriptors that the runtime has for itself, in the program's table. They lie above its limit of open files, which is
 * raised while one is made, so that the program finds the numbers that it would find on Linux, and as many; where the
 * limit may not be raised they are the last below it. And it closes none of them, as those that close all they do not
 * know would. */
#include "posix.h"
#include "linux.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#define ROOM 256u /* for them, above the limit of open files, or below */

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

static bool is_marked(int fd)
{
    return (unsigned)fd < CL_POSIX_FDS && cl_load_relaxed(&marks[(unsigned)fd / 64]) >> ((unsigned)fd % 64) & 1;
}

bool cl_posix_is_inner(int fd)
{
    return !forgotten && is_marked(fd);
}

/* The limit of open files, while it is higher for us. */

static uint32_t is_raised;                                                 /* by some thread. RMW */
static struct rlimit before;                                               /* of who has raised it */
static __thread uint32_t depth __attribute__((tls_model("initial-exec"))); /* how often this thread has */

static bool set_limit(uint64_t soft, struct rlimit *was)
{
    const struct rlimit to = {soft, cl_max(before.rlim_max, soft)};
    return cl_linux(SYS_prlimit64, 0, RLIMIT_NOFILE, &to, was) == 0;
}

bool cl_posix_inner_raise(void)
{
    if (depth) {
        depth++;
        return true;
    }
    if (__atomic_exchange_n(&is_raised, 1, __ATOMIC_ACQUIRE))
        return false; /* by another thread; of the parent's, perhaps, which is not there to lower it */
    if (cl_linux(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &before) || before.rlim_cur > CL_POSIX_FDS - ROOM ||
        !set_limit(before.rlim_cur + ROOM, NULL)) {
        cl_store_release(&is_raised, 0);
        return false;
    }
    depth = 1;
    return true;
}

void cl_posix_inner_lower(void)
{
    struct rlimit was;
    if (--depth)
        return;
    (void)cl_linux(SYS_prlimit64, 0, RLIMIT_NOFILE, &before, &was);
    if (was.rlim_cur != before.rlim_cur + ROOM) /* the program has set another one meanwhile */
        (void)cl_linux(SYS_prlimit64, 0, RLIMIT_NOFILE, &was, NULL);
    cl_store_release(&is_raised, 0);
}

/* A copy above the program's. -errno. */
static int copy_above(int fd)
{
    struct rlimit limit = {0};
    if (cl_posix_inner_raise()) {
        int copy = (int)cl_linux(SYS_fcntl, fd, F_DUPFD_CLOEXEC, before.rlim_cur);
        cl_posix_inner_lower();
        if (copy >= 0)
            return copy;
    }
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

int cl_posix_inner_eventfd(void)
{
    int fd = (int)cl_linux(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd == -EMFILE && cl_posix_inner_raise()) {
        fd = (int)cl_linux(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK); /* above: there is no number below */
        cl_posix_inner_lower();
        if (fd >= 0)
            mark(fd, true); /* one below CL_POSIX_FDS, as the limit is */
        return fd;
    }
    return cl_posix_inner(fd);
}

/* The highest of those of which the kernel tells in so many bytes, or `last`. but: not this one. */
static int highest(const char *at, const char *end, int last, int but)
{
    while (at < end) {
        const struct dirent *one = (const struct dirent *)at; /* as the kernel has it, with 64 bits */
        int fd = atoi(one->d_name);                           /* 0 for "." and ".." */
        if (fd != but && !is_marked(fd))
            last = cl_max(last, fd);
        at += one->d_reclen;
    }
    return last;
}

/* By system calls: who has come by a handler of a signal may take no memory. */
int cl_posix_last_of_program(void)
{
    _Alignas(struct dirent) char told[1024];
    int last = 0, rc, fd = (int)cl_linux(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    while ((rc = (int)cl_linux(SYS_getdents64, fd, told, sizeof told)) > 0)
        last = highest(told, told + rc, last, fd);
    (void)cl_linux(SYS_close, fd);
    return rc < 0 ? rc : last;
}
