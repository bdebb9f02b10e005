/* The thread of a wire. It sleeps in poll on all queues of both NICs: each has a park word and an eventfd, and many
 * have a descriptor of their device. A NIC that sleeps on a futex is given an eventfd (cl_park_open_fd) while the
 * thread lives. */
#include "wire.h"

#include <corelane/runtime/park.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SPINS 200          /* steps without work before it sleeps */
#define LONGEST_NS 5000000 /* sleep: finds what a device did not announce */

struct bed {
    struct cl_parker *parkers[2 * CL_NIC_MAX_QUEUES];
    bool lent[2 * CL_NIC_MAX_QUEUES]; /* the parker's eventfd is ours */
    struct pollfd fds[4 * CL_NIC_MAX_QUEUES + 1];
    unsigned n_parkers, n_fds;
};

static void add_fd(struct bed *b, int fd)
{
    if (fd >= 0)
        b->fds[b->n_fds++] = (struct pollfd){fd, POLLIN, 0};
}

static int make_bed(struct bed *b, struct cl_wire *w)
{
    *b = (struct bed){.n_parkers = 0};
    add_fd(b, w->stop_fd);
    for (unsigned i = 0; i < 2; i++)
        for (unsigned q = 0; q < w->nics[i]->n_queues; q++) {
            struct cl_parker *p = w->nics[i]->ops->parker(w->nics[i], q);
            b->lent[b->n_parkers] = p->event_fd < 0;
            int rc = b->lent[b->n_parkers] ? cl_park_open_fd(p, p->word) : 0;
            if (rc)
                return rc;
            b->parkers[b->n_parkers++] = p;
            add_fd(b, p->event_fd);
            add_fd(b, w->nics[i]->ops->fd(w->nics[i], q));
        }
    return 0;
}

static void strip_bed(struct bed *b)
{
    for (unsigned i = 0; i < b->n_parkers; i++)
        if (b->lent[i])
            cl_park_close_fd(b->parkers[i]);
}

static void drain_event(int fd)
{
    uint64_t ignored;
    if (read(fd, &ignored, sizeof ignored) < 0)
        return; /* EAGAIN: nobody rang */
}

static void sleep_on_bed(struct bed *b, const struct cl_clock *clock, uint64_t next_tsc)
{
    uint64_t now = cl_clock_stamp(clock);
    int64_t left = LONGEST_NS;
    if (next_tsc != UINT64_MAX)
        left = next_tsc <= now ? 0 : cl_min(left, cl_ticks_to_ns(clock, (int64_t)(next_tsc - now)) + 1);
    struct timespec ts = {0, left};
    int n = ppoll(b->fds, b->n_fds, &ts, NULL);
    for (unsigned i = 0; i < b->n_parkers; i++)
        if (n > 0)
            drain_event(b->parkers[i]->event_fd);
}

static void *wire_thread(void *arg)
{
    struct cl_wire *w = arg;
    struct bed bed;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* frames are late by what a sleep is too long */
    if (make_bed(&bed, w))
        bed.n_fds = 1; /* no descriptors left: it looks every 5 ms */
    for (unsigned idle = 0; !cl_load_relaxed(&w->stop);) {
        if (cl_wire_step(w)) {
            idle = 0;
            continue;
        }
        if (++idle < SPINS) {
            cl_relax();
            continue;
        }
        for (unsigned i = 0; i < bed.n_parkers; i++)
            cl_park_begin(bed.parkers[i]);
        if (cl_wire_step(w) == 0)
            sleep_on_bed(&bed, w->clock, cl_wire_next_tsc(w));
        for (unsigned i = 0; i < bed.n_parkers; i++)
            cl_park_cancel(bed.parkers[i]);
    }
    strip_bed(&bed);
    return NULL;
}

int cl_wire_start(struct cl_wire *w, char *err)
{
    if (w->clock->word) {
        if (err)
            snprintf(err, 256, "the wire lives by a virtual clock: step it, for no thread can sleep by that");
        return -EINVAL;
    }
    if (w->threaded) {
        if (err)
            snprintf(err, 256, "a thread moves the wire already");
        return -EALREADY;
    }
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = w->stop_fd < 0 ? -errno : -pthread_create(&w->thread, NULL, wire_thread, w);
    w->threaded = rc == 0;
    if (rc && err)
        snprintf(err, 256, "a thread for the wire: %s", strerror(-rc));
    if (rc && w->stop_fd >= 0)
        close(w->stop_fd);
    return rc;
}

void cl_wire_close(struct cl_wire *w)
{
    if (w->threaded) {
        uint64_t one = 1;
        cl_store_relaxed(&w->stop, 1);
        ssize_t ignored = write(w->stop_fd, &one, sizeof one); /* cannot fail on a fresh eventfd */
        (void)ignored;
        pthread_join(w->thread, NULL);
        close(w->stop_fd);
    }
    cl_wire_free(w);
}
