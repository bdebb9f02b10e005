/* A thread that drives adopted kthreads as an event loop does: it turns them while they are busy, and sleeps in
 * epoll. */
#ifndef TESTS_LIBOS_SCHED_ADOPTED_H
#define TESTS_LIBOS_SCHED_ADOPTED_H

#include "check.h"

#include <corelane/libos/adopt.h>

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/wait.h>

struct driver {
    struct cl_sched *sched;
    unsigned first, n; /* kthreads */
    pthread_t thread;
    uint64_t sleeps, for_nothing; /* that ended by a descriptor whose turn returned 0 at once */
};

static inline bool readable(const struct cl_sched *s, unsigned k, int timeout_ms)
{
    struct pollfd p = {cl_kthread_fd(s, k), POLLIN, 0};
    return poll(&p, 1, timeout_ms) == 1;
}

static inline void adopt(struct cl_sched *s, unsigned k)
{
    char err[256] = "";
    int rc = cl_kthread_adopt(s, k, err);
    if (rc)
        fprintf(stderr, "cl_kthread_adopt: %d %s\n", rc, err);
    CHECK_EQ(rc, 0);
}

/* Turn them until the scheduler has stopped. */
static inline void *drive(void *arg)
{
    struct driver *d = arg;
    int epoll = epoll_create1(0);
    for (unsigned k = d->first; k < d->first + d->n; k++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = k};
        char err[256];
        int rc = cl_kthread_adopt(d->sched, k, err);
        CHECK(rc == 0 || rc == -ESHUTDOWN || rc == -EALREADY, "%s", err);
        CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, cl_kthread_fd(d->sched, k), &e), 0);
    }
    for (bool slept = false;;) {
        struct epoll_event events[8];
        bool again = false;
        for (unsigned k = d->first; k < d->first + d->n; k++) {
            int rc = cl_kthread_turn(d->sched, k);
            if (rc == -ESHUTDOWN) {
                close(epoll);
                return NULL;
            }
            CHECK(rc == 0 || rc == 1, "%s", cl_adopt_error(rc));
            again |= rc;
        }
        d->for_nothing += slept && !again;
        slept = !again;
        d->sleeps += slept;
        CHECK(epoll_wait(epoll, events, 8, again ? 0 : -1) >= 0 || errno == EINTR); /* the iokernel's signal */
    }
}

#endif
