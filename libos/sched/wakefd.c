/* See wakefd.h. Tests: tests/libos/sched/c/adopt.c, and the model in tests/libos/sched/test_adopt_model.py. */
#include "wakefd.h"

#include <corelane/libos/adopt.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LOOK_EVERY 16  /* turns for nothing between two looks at what is readable of it */
#define LEAVE_AFTER 64 /* turns with work: they take far longer than to leave the device, and to take it in again */
#define FAILED_LOOK_NS                                                                                                 \
    10000000 /* between two looks at a device that shows an error and nothing to read, as in park.c */

struct cl_wakefd {
    int epoll_fd, timer_fd;
    int device_fd;        /* -1: the NIC wakes the parker */
    bool device_out;      /* it shows an error, which would make us readable for ever */
    bool device_left;     /* it is not in epoll_fd: the kthread has been up for long */
    bool alone;           /* cl_kthread_alone. Relaxed: one may look as another changes it */
    unsigned busy;        /* turns with work since it was up */
    uint64_t timer_ns;    /* for when the timerfd is set, by the scheduler's clock; CL_NEVER: it is not */
    unsigned for_nothing; /* turns in a row */
};

static int watch(struct cl_wakefd *w, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

static int open_all(struct cl_kthread *k, struct cl_wakefd *w)
{
    const struct cl_work_source *source = &k->sched->source;
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (w->epoll_fd < 0 || w->timer_fd < 0)
        return -errno;
    int rc = cl_park_give_fd(k->parker);
    if (rc)
        return rc;
    w->device_fd = source->fd ? source->fd(source->arg, k->index) : -1;
    if (w->device_fd < -1)
        return w->device_fd;
    rc = watch(w, k->parker->event_fd);
    if (rc == 0)
        rc = watch(w, w->timer_fd);
    if (rc == 0 && w->device_fd >= 0)
        rc = watch(w, w->device_fd);
    return rc;
}

int cl_wakefd_new(struct cl_kthread *k, char err[256])
{
    struct cl_wakefd *w = k->wakefd = malloc(sizeof *w);
    if (!w) {
        snprintf(err, 256, "out of memory for kthread %u", k->index);
        return -ENOMEM;
    }
    *w = (struct cl_wakefd){.epoll_fd = -1, .timer_fd = -1, .device_fd = -1, .timer_ns = CL_NEVER};
    int rc = open_all(k, w);
    if (rc)
        snprintf(err, 256, "a descriptor for kthread %u: %s", k->index, strerror(-rc));
    else
        cl_wakefd_call(k);
    return rc;
}

void cl_wakefd_delete(struct cl_kthread *k)
{
    struct cl_wakefd *w = k->wakefd;
    if (!w)
        return;
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
    if (w->timer_fd >= 0)
        close(w->timer_fd);
    cl_park_close_given(&k->own_parker); /* a NIC closes what its own was given */
    free(w);
    k->wakefd = NULL;
}

int cl_kthread_fd(const struct cl_sched *s, unsigned index)
{
    return index < s->n_kthreads && s->kthreads[index].wakefd ? s->kthreads[index].wakefd->epoll_fd : -EINVAL;
}

void cl_wakefd_call(struct cl_kthread *k)
{
    uint64_t one = 1;
    ssize_t ignored = write(k->parker->event_fd, &one, sizeof one); /* EAGAIN: it is readable */
    (void)ignored;
}

static void take_call(struct cl_kthread *k)
{
    uint64_t calls;
    ssize_t ignored = read(k->parker->event_fd, &calls, sizeof calls); /* EAGAIN: a waker has yet to write */
    (void)ignored;
}

void cl_wakefd_settle(struct cl_kthread *k)
{
    const struct cl_work_source *source = &k->sched->source;
    if (source->wait)
        source->wait(source->arg, k->index, 0);
}

void cl_wakefd_parked(struct cl_kthread *k)
{
    const struct cl_work_source *source = &k->sched->source;
    if (source->parked)
        source->parked(source->arg, k->index);
}

static void set_timer(struct cl_kthread *k, int64_t ns)
{
    struct itimerspec at = {.it_value = {ns / 1000000000, ns % 1000000000}};
    timerfd_settime(k->wakefd->timer_fd, 0, &at, NULL);
}

/* A timer that is set too early ends a sleep for nothing, once, and is set anew then: that costs less than a call of
 * the kernel each time that the deadline moves later. */
static void set_deadline(struct cl_kthread *k, uint64_t deadline_ns, uint64_t now)
{
    struct cl_wakefd *w = k->wakefd;
    if (deadline_ns >= w->timer_ns && now < w->timer_ns)
        return;
    if (deadline_ns == CL_NEVER && w->timer_ns == CL_NEVER)
        return;
    w->timer_ns = deadline_ns;
    set_timer(k, deadline_ns == CL_NEVER ? 0 : (int64_t)cl_max(deadline_ns - now, 1ull)); /* 0 disarms it */
}

/* Whether the device shows an error and nothing to read. */
static bool device_failed(const struct cl_wakefd *w)
{
    struct pollfd p = {.fd = w->device_fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0 && !(p.revents & POLLIN);
}

static void look_at_device(struct cl_wakefd *w)
{
    bool failed = device_failed(w);
    if (failed == w->device_out)
        return;
    w->device_out = failed;
    if (failed)
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, w->device_fd, NULL);
    else
        watch(w, w->device_fd);
}

/* What has come meanwhile makes the descriptor readable at once. If there is no memory it is tried again soon. */
static void take_in(struct cl_wakefd *w)
{
    w->busy = 0;
    if (cl_unlikely(w->device_left))
        w->device_left = watch(w, w->device_fd) != 0;
}

void cl_wakefd_worked(struct cl_kthread *k)
{
    struct cl_wakefd *w = k->wakefd;
    if (!cl_load_relaxed(&w->alone))
        take_in(w);
    else if (cl_unlikely(++w->busy == LEAVE_AFTER) && w->device_fd >= 0 && !w->device_out && !w->device_left)
        w->device_left = epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, w->device_fd, NULL) == 0;
}

void cl_kthread_alone(struct cl_sched *s, unsigned index, bool alone)
{
    struct cl_wakefd *w = s->kthreads[index].wakefd;
    if (cl_unlikely(cl_load_relaxed(&w->alone) != alone))
        cl_store_relaxed(&w->alone, alone);
}

void cl_wakefd_set(struct cl_kthread *k, int64_t ns)
{
    struct cl_wakefd *w = k->wakefd;
    const struct cl_work_source *source = &k->sched->source;
    int64_t source_ns = source->unannounced_ns ? source->unannounced_ns(source->arg, k->index) : -1;
    take_in(w);
    if (cl_unlikely(w->device_out))
        look_at_device(w);
    if (cl_unlikely(w->device_out || w->device_left))
        ns = ns < 0 ? FAILED_LOOK_NS : cl_min(ns, (int64_t)FAILED_LOOK_NS);
    if (source_ns >= 0)
        ns = ns < 0 ? source_ns : cl_min(ns, source_ns);
    w->for_nothing = 0;
    if (ns < 0 && w->timer_ns == CL_NEVER)
        return; /* the clock need not be read */
    uint64_t now = cl_sched_clock(k->sched);
    set_deadline(k, ns < 0 ? CL_NEVER : now + (uint64_t)ns, now);
}

bool cl_wakefd_due(const struct cl_kthread *k)
{
    return k->wakefd->timer_ns != CL_NEVER && cl_sched_clock(k->sched) >= k->wakefd->timer_ns;
}

bool cl_wakefd_called(const struct cl_kthread *k)
{
    /* Relaxed: a hint; the descriptor says it again. A pointer that moves: see cl_park_wake_fenced. */
    return cl_load_relaxed(cl_load_relaxed(&k->parker->word)) != CL_PARK_PARKED;
}

void cl_wakefd_up(struct cl_kthread *k)
{
    if (k->sleep.managed || cl_exchange(cl_load_relaxed(&k->parker->word), CL_PARK_RUNNING) != CL_PARK_PARKED)
        take_call(k);
}

bool cl_wakefd_look(struct cl_kthread *k)
{
    struct cl_wakefd *w = k->wakefd;
    if (++w->for_nothing % LOOK_EVERY)
        return false;
    take_call(k);
    if (w->device_fd < 0 || w->device_out)
        return false;
    look_at_device(w);
    return w->device_out;
}

void cl_wakefd_too_early(struct cl_kthread *k)
{
    if (!cl_wakefd_due(k))
        return;
    k->wakefd->timer_ns = CL_NEVER;
    set_timer(k, 0);
}
