/* Sleeping until something is told: time, and both worlds by ppoll. See waits.h. */
#include "kthreads.h"
#include "linux.h"
#include "waits.h"

#include <time.h>

#define NEVER UINT64_MAX
#define COLLECTED 16    /* at a time, of the thread's own set */
#define SIGNALS_BYTES 8 /* of a set of signals, as the kernel has it */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t cl_posix_deadline(int64_t timeout_ns)
{
    uint64_t now = timeout_ns > 0 ? now_ns() : 0;
    return timeout_ns < 0 || (uint64_t)timeout_ns >= NEVER - now ? NEVER : now + (uint64_t)timeout_ns;
}

int64_t cl_posix_left(uint64_t deadline_ns)
{
    if (deadline_ns == NEVER)
        return -1;
    uint64_t now = now_ns();
    return deadline_ns > now ? (int64_t)(deadline_ns - now) : 0;
}

bool cl_posix_goes_on(uint64_t deadline_ns)
{
    return deadline_ns == NEVER && cl_posix_handlers_restart();
}

static int ask_linux(struct pollfd *fds, nfds_t n, int64_t ns, const sigset_t *mask)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    return (int)cl_linux(SYS_ppoll, fds, n, ns < 0 ? NULL : &t, mask, SIGNALS_BYTES);
}

int cl_posix_sleep(struct cl_posix_set *set, struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask)
{
    int kthread_fd;
    if (cl_posix_turn(false) || !cl_posix_set_arm(set))
        return n ? ask_linux(fds, n, 0, mask) : 0;
    if (!cl_posix_sleep_begin(&kthread_fd)) {
        cl_posix_set_disarm(set);
        return 0;
    }
    fds[n] = (struct pollfd){set->event_fd, POLLIN, 0};
    fds[n + 1] = (struct pollfd){kthread_fd, POLLIN, 0};
    int rc = -ECANCELED;
    if (cl_posix_interrupted_begin(set, NULL)) {
        rc = ask_linux(fds, n + 2, cl_posix_left(deadline_ns), mask);
        cl_posix_interrupted_end();
    }
    cl_posix_sleep_end();
    cl_posix_set_disarm(set);
    if (cl_posix_is_cancelled())
        return -ECANCELED;
    return rc <= 0 ? rc : rc - (fds[n].revents != 0) - (fds[n + 1].revents != 0);
}

int cl_posix_wait(struct cl_posix_socket *s, uint32_t events, uint64_t deadline_ns)
{
    return cl_posix_wait_while(s, events, deadline_ns, NULL, NULL);
}

int cl_posix_wait_while(struct cl_posix_socket *s, uint32_t events, uint64_t deadline_ns, bool (*waits)(void *arg),
                        void *arg)
{
    struct cl_posix_set *set = cl_posix_own_set();
    struct cl_posix_watch *w = set ? cl_posix_own_watches(set, 1) : NULL;
    struct epoll_event found[COLLECTED];
    struct pollfd fds[2];
    int rc = 0;
    if (!w)
        return -ENOMEM;
    if (cl_posix_socket_carries(s))
        cl_posix_keep();
    *w = (struct cl_posix_watch){.events = events};
    cl_posix_join(w, s, set);
    cl_posix_own_joined(set, 1);
    while (rc == 0 && (cl_posix_collect(set, found, COLLECTED) == 0 || (waits && waits(arg)))) {
        rc = cl_posix_sleep(set, fds, 0, deadline_ns, NULL);
        if (rc == -EINTR && cl_posix_goes_on(deadline_ns))
            rc = 0;
        if (rc == 0 && cl_posix_left(deadline_ns) == 0)
            rc = -EAGAIN;
    }
    cl_posix_own_joined(set, 0);
    cl_posix_part(w);
    return rc;
}
