/* SO_LINGER with a time: what close waits for. */
#include "kthreads.h"
#include "waits.h"

#include <errno.h>

#define LINGER_LOOK_NS 1000000

/* Our FIN is acknowledged, or the connection is over. */
static bool is_flushed(const struct cl_posix_socket *s)
{
    struct cl_tcp_info info;
    return cl_posix_socket_info(s, &info) || info.state == CL_POSIX_TCP_CLOSED ||
           info.state == CL_POSIX_TCP_FIN_WAIT_2 || info.state == CL_POSIX_TCP_TIME_WAIT;
}

struct shutting {
    struct cl_stream *stream;
    int rc;
};

static void shut_now(void *arg)
{
    struct shutting *s = arg;
    s->rc = cl_stream_shutdown(s->stream, CL_STREAM_WRITE);
}

static void shut(struct cl_stream *stream)
{
    struct shutting s = {.stream = stream};
    while (cl_posix_run(shut_now, &s) == 0 && s.rc == -EDEADLK) /* somebody works on it: finish that */
        cl_posix_turn_all();
}

void cl_posix_linger(struct cl_posix_socket *s)
{
    uint64_t deadline_ns = cl_posix_deadline(s->linger_ns);
    struct cl_posix_set *set = cl_posix_own_set();
    struct pollfd fds[2];
    if (!set || s->datagram || cl_load_acquire(&s->state) <= CL_POSIX_LISTENS || cl_posix_socket_error(s))
        return;
    struct cl_stream *stream = cl_load_acquire(&s->stream);
    struct cl_tcp_info info;
    if (!stream || cl_posix_socket_info(s, &info) || info.to_read) /* what is unread makes it a reset */
        return;
    shut(stream);
    while (!is_flushed(s) && cl_posix_left(deadline_ns)) /* acknowledgements tell nobody: looked for once a ms */
        if (cl_posix_sleep(set, fds, 0, cl_posix_deadline(LINGER_LOOK_NS), NULL) < 0)
            return; /* a handler has run, or the thread was cancelled */
}
