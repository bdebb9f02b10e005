/* See inherited.h. The mark is the signal that Linux would send instead of SIGIO (F_SETSIG), which goes with the open
 * file description through dup, fork and exec. Nobody sends it: O_ASYNC is refused on sockets of ours. */
#include "inherited.h"
#include "linux.h"
#include "socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>

#define MARK 64 /* the last signal that there is, which libc's SIGRTMAX is, too */

void cl_posix_mark(int fd, bool ours)
{
    (void)cl_linux(SYS_fcntl, fd, F_SETSIG, ours ? MARK : 0);
}

int cl_posix_without_mark(int signal)
{
    return signal == MARK ? 0 : signal;
}

void cl_posix_find_inherited(void)
{
    DIR *all = opendir("/proc/self/fd");
    const struct dirent *one;
    while (all && (one = readdir(all))) {
        int fd = atoi(one->d_name); /* 0 for "." and ".." */
        if (cl_linux(SYS_fcntl, fd, F_GETSIG, 0) == MARK)
            cl_posix_inherit_number(fd);
    }
    if (all)
        (void)closedir(all);
}

bool cl_posix_uses_inherited(int fd)
{
    (void)cl_posix_leave(fd);
    cl_posix_say_once("a socket of the dataplane that came to this program by exec is not connected here: have one "
                      "program open and serve it, or start this one without corelane run --posix");
    return false;
}
