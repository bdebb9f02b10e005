/* poll over both worlds: a watch for each descriptor of ours, in the thread's own set, and the rest by ppoll. */
#include "family.h"
#include "kthreads.h"
#include "linux.h"
#include "memory.h"
#include "waits.h"

#include <stdlib.h>
#include <string.h>

#define ON_STACK 32 /* descriptors for which no memory has to be taken */
#define COLLECTED 16

struct asked {
    struct pollfd *fds; /* [n + 2] as Linux is asked: those of ours are -1 */
    struct cl_posix_watch *watches;
    struct cl_posix_set *set;
    nfds_t n;
    bool has_ours, carries;
    bool holds; /* descriptors of epoll, of which Linux tells */
};

/* poll's bits are epoll's. */
_Static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLERR == EPOLLERR && POLLHUP == EPOLLHUP &&
                   POLLRDHUP == EPOLLRDHUP && POLLRDNORM == EPOLLRDNORM && POLLWRNORM == EPOLLWRNORM,
               "one is the other");

static void begin(struct asked *a, const struct pollfd *fds)
{
    for (nfds_t i = 0; i < a->n; i++) {
        a->fds[i] = fds[i];
        a->watches[i] = (struct cl_posix_watch){.events = (uint16_t)fds[i].events, .data = i};
        if (cl_posix_kind(fds[i].fd) == CL_POSIX_EPOLL) {
            cl_posix_epoll_lend(fds[i].fd);
            a->holds = true;
        }
        struct cl_posix_socket *s = cl_posix_socket_of(fds[i].fd);
        if (!s)
            continue;
        a->fds[i].fd = -1;
        a->has_ours = true;
        a->carries |= cl_posix_socket_carries(s);
        cl_posix_join(&a->watches[i], s, a->set);
    }
    cl_posix_own_joined(a->set, a->n);
}

/* How many of all are ready, into fds. theirs: whether Linux was asked. */
static int collect(struct asked *a, struct pollfd *fds, bool theirs)
{
    int ready = 0;
    for (nfds_t i = 0; i < a->n; i++) {
        const struct cl_posix_watch *w = &a->watches[i];
        fds[i].revents = w->socket ? (short)cl_posix_watch_ready(w) : theirs ? a->fds[i].revents : 0;
        ready += fds[i].revents != 0;
    }
    return ready;
}

/* Ready, -errno, or 0: the time is over. */
static int wait_all(struct asked *a, struct pollfd *fds, uint64_t deadline_ns, const sigset_t *mask)
{
    struct epoll_event found[COLLECTED];
    struct timespec at_once = {0, 0};
    int rc, theirs;
    if (a->carries)
        cl_posix_keep();
    for (;;) {
        (void)cl_posix_turn(false);
        if (a->holds)
            (void)cl_posix_lent_look();
        bool ours = cl_posix_collect(a->set, found, COLLECTED), over = cl_posix_left(deadline_ns) == 0;
        if (ours || over)
            theirs = (int)cl_linux(SYS_ppoll, a->fds, a->n, &at_once, NULL, 8);
        else
            theirs = cl_posix_sleep(a->set, a->fds, a->n, deadline_ns, mask);
        if (theirs < 0)
            return theirs;
        if ((rc = collect(a, fds, true)) || over)
            return rc;
    }
}

/* While another process has the runtime. False: *rc is what there is of Linux', or what is wrong. */
static bool wait_for_turn(struct asked *a, struct pollfd *fds, uint64_t deadline_ns, const sigset_t *mask, int *rc)
{
    while (!cl_posix_start(rc)) {
        bool ready = collect(a, fds, false);
        if (*rc == -EAGAIN)
            *rc = cl_posix_family_sleep(a->fds, a->n, ready ? 0 : deadline_ns, mask, NULL);
        if (*rc >= 0)
            *rc = collect(a, fds, true);
        if (*rc || cl_posix_left(deadline_ns) == 0)
            return false;
    }
    return true;
}

static int poll_all(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask)
{
    struct pollfd few[ON_STACK + 2];
    struct asked a = {.fds = few, .set = cl_posix_own_set(), .n = n};
    int rc = -ENOMEM;
    if (cl_posix_is_child())
        return -ECHILD;
    if (n > ON_STACK)
        a.fds = malloc((n + 2) * sizeof *a.fds);
    if (a.set)
        a.watches = cl_posix_own_watches(a.set, n);
    if (a.set && a.fds && a.watches) {
        begin(&a, fds);
        a.has_ours |= a.holds && cl_posix_lent_look();
        uint64_t deadline_ns = cl_posix_deadline(timeout_ns);
        if (!a.has_ours || wait_for_turn(&a, fds, deadline_ns, mask, &rc))
            rc = wait_all(&a, fds, deadline_ns, mask);
        cl_posix_told_of(rc);
        cl_posix_own_part();
    }
    if (n > ON_STACK)
        free(a.fds);
    return rc;
}

/* It waits as ever, and then cannot tell (fs/select.c: do_sys_poll). */
static CL_NOINLINE int poll_nowhere(const struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask)
{
    struct pollfd *copy = malloc(n * sizeof *copy);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, fds, n * sizeof *copy);
    int rc = poll_all(copy, n, timeout_ns, mask);
    free(copy);
    return cl_min(rc, -EFAULT);
}

int cl_posix_poll(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask)
{
    return cl_likely(cl_posix_can_write(fds, n * sizeof *fds)) ? poll_all(fds, n, timeout_ns, mask)
                                                               : poll_nowhere(fds, n, timeout_ns, mask);
}
