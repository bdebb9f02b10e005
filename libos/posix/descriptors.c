/* Descriptors of sockets: made, copied, closed; and given to Linux for good. */
#include "descriptors.h"
#include "counts.h"
#include "inherited.h"
#include "linux.h"
#include "waits.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

int cl_posix_socket(int fd, int domain, int type)
{
    struct cl_posix_socket *s;
    int rc = cl_posix_socket_new(fd, domain, type, &s);
    if (rc == 0)
        cl_posix_socket_put(s);
    else
        cl_posix_say_once("a socket stays Linux': there is no memory, or its number is above a million");
    return fd;
}

int cl_posix_close(int fd)
{
    struct cl_posix_socket *s = cl_posix_is_forked() ? NULL : cl_posix_socket_of(fd);
    if (s && s->linger_ns && cl_load_relaxed(&s->object.fds) == 1)
        cl_posix_linger(s);
    if (s)
        cl_posix_socket_put(s);
    cl_posix_closed(fd); /* before another thread is given the number */
    return (int)cl_linux(SYS_close, fd);
}

void cl_posix_closed(int fd)
{
    if (cl_posix_is_forked())
        cl_posix_abandon(fd);
    else
        (void)cl_posix_leave(fd);
}

int cl_posix_duplicated(int fd, int copy)
{
    enum cl_posix_kind kind = cl_posix_kind(fd);
    if (kind == CL_POSIX_INHERITED)
        cl_posix_inherit_number(copy);
    struct cl_posix_object *o = kind ? cl_posix_get(fd, kind) : NULL;
    if (!o)
        return copy;
    int rc = cl_posix_enter(copy, o);
    cl_posix_put(o);
    if (rc == 0)
        return copy;
    (void)cl_linux(SYS_close, copy);
    return rc;
}

/* Linux is told of the options of a connection that it was not asked about (options.c). */
static void tell_options(int fd, const struct cl_posix_socket *s)
{
    static const int names[][2] = {{CL_STREAM_NO_DELAY, TCP_NODELAY}, {CL_STREAM_CORK, TCP_CORK}};
    for (unsigned i = 0; i < 2 && !s->datagram; i++)
        if (s->options & 1u << names[i][0])
            (void)cl_linux(SYS_setsockopt, fd, IPPROTO_TCP, names[i][1], &s->option[names[i][0]], sizeof s->option[0]);
}

void cl_posix_give_to_linux(int fd, struct cl_posix_socket *s)
{
    __atomic_fetch_add(&cl_posix_counts()->to_linux[s->datagram], 1, __ATOMIC_RELAXED);
    cl_posix_watches_to_linux(s);
    tell_options(fd, s);
    cl_posix_mark(fd, false);
    (void)cl_posix_leave(fd);
    for (int other = 0; cl_load_relaxed(&s->object.fds) && other < (int)CL_POSIX_FDS;
         other++) { /* copies of it: seldom there are any */
        struct cl_posix_socket *found = cl_posix_socket_of(other);
        if (found == s)
            (void)cl_posix_leave(other);
        if (found)
            cl_posix_socket_put(found);
    }
}
