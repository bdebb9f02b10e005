/* See complete.h. */
#include <corelane/libos/complete.h>

#include "runq.h"

#include <corelane/runtime/clock.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STOP_TAG UINT64_MAX
#define EVERY_KTHREAD UINT32_MAX

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER; /* the list and the watcher of any scheduler: seldom */

/* The thread that sleeps on descriptors for kthreads that sleep. */
struct cl_watcher {
    struct cl_sched *sched;
    int epoll_fd, stop_fd;
    pthread_t thread;
};

/* Acquire: the element is whole. It stays until the scheduler has stopped. */
static struct cl_completions *first_of(const struct cl_sched *s)
{
    return cl_load_acquire(&s->completions);
}

unsigned cl_completions_poll(struct cl_kthread *k, struct cl_kthread *of)
{
    unsigned n = 0;
    for (struct cl_completions *c = first_of(k->sched); c; c = c->next)
        n += c->poll(c->arg, k->index, of->index);
    return n;
}

unsigned cl_completions_check(struct cl_kthread *k)
{
    uint64_t now = cl_clock_stamp(k->sched->clock);
    k->looked_ns = cl_sched_clock(k->sched);
    if (now - k->let_go_tsc >= k->sched->let_go_ticks) {
        k->let_go_tsc = now;
        sched_yield();
    }
    unsigned n = cl_completions_poll(k, k);
    /* What was announced has been seen to, also if what it was part of is still in flight (landed comes later).
     * Relaxed: signals; one that the watcher adds meanwhile is seen at the next turn. */
    cl_store_relaxed(&k->signals->storage_done, cl_load_relaxed(&k->signals->storage_seen));
    return n;
}

struct cl_completions *cl_completions_only(const struct cl_kthread *k)
{
    struct cl_completions *c = first_of(k->sched);
    return c && !c->next && c->ready && c->sleep ? c : NULL;
}

bool cl_flights_done(void *arg)
{
    struct cl_flights *f = arg;
    struct cl_kthread *k = f->kthread;
    if (f->armed || !f->only->ready(f->only->arg, k->index))
        return false;
    /* Relaxed: signals. How many is not known before they are collected, and does not matter to who sees their age. */
    uint32_t seen = cl_load_relaxed(&k->signals->storage_seen);
    if (cl_load_relaxed(&k->signals->storage_done) == seen)
        cl_store_relaxed(&k->signals->storage_done, seen + 1);
    return true;
}

bool cl_flights_sleep(void *arg, const uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    struct cl_flights *f = arg;
    if (f->armed)
        return false;
    if (f->only->sleep(f->only->arg, f->kthread->index, word, value, timeout_ns) == 0)
        return true;
    f->armed = true;
    cl_completions_arm(f->kthread, true); /* announces what is there already */
    return false;
}

void cl_completions_arm(struct cl_kthread *k, bool on)
{
    for (struct cl_completions *c = first_of(k->sched); c; c = c->next)
        c->arm(c->arg, k->index, on);
}

void cl_sched_in_flight(unsigned n)
{
    struct cl_kthread *k = cl_kthread_self();
    /* Relaxed: what is in flight is found under its queue's lock, and the owner reads its own writes. */
    if (!__atomic_fetch_add(&k->in_flight, n, __ATOMIC_RELAXED)) { /* what has only just begun is not done yet */
        k->let_go_tsc = cl_clock_stamp(k->sched->clock);
        k->looked_ns = cl_sched_clock(k->sched);
    }
    if (k->budget > 0)
        k->budget = -k->budget; /* time ends the run of uthreads, too: see may_go_on in uthread.c */
}

bool cl_sched_alone(void)
{
    const struct cl_sched *s = cl_kthread_self()->sched;
    return s->n_kthreads == 1 && !cl_managed(s);
}

uint64_t cl_sched_turn(void)
{
    return cl_kthread_self()->turns;
}

void cl_sched_landed(struct cl_sched *s, unsigned index, unsigned n)
{
    struct cl_kthread *k = &s->kthreads[index];
    __atomic_fetch_sub(&k->in_flight, n, __ATOMIC_RELAXED); /* as above; a sibling's comes late by a poll at worst */
    uint32_t seen = __atomic_add_fetch(&k->signals->storage_seen, n, __ATOMIC_RELAXED);
    cl_store_relaxed(&k->signals->storage_done, seen); /* what the watcher added was a guess */
}

/* The watcher may have counted what had just been collected. Relaxed: signals. */
void cl_completions_export(struct cl_kthread *k)
{
    uint32_t seen = cl_load_relaxed(&k->signals->storage_seen);
    if (!cl_load_relaxed(&k->in_flight) && cl_load_relaxed(&k->signals->storage_done) != seen)
        cl_store_relaxed(&k->signals->storage_done, seen);
}

/* Something of kthread k, which sleeps or is about to, is done. */
static void tell(struct cl_sched *s, unsigned index)
{
    struct cl_kthread *k = &s->kthreads[index];
    if (!cl_managed(s)) {
        cl_park_wake(k->parker);
        return;
    }
    /* Relaxed: a position like all signals. One that k stores over it has been seen to by k. */
    __atomic_fetch_add(&k->signals->storage_done, 1, __ATOMIC_RELAXED);
    s->cores->ops->help(s->cores);
}

/* Something of the one queue is done: kthreads that wait for something, perhaps for that, poll it. It was in flight
 * before its kthread slept and armed the queue, and it is in flight until it is collected, so whoever sleeps is found.
 * Relaxed: reading the descriptor came before. */
static void tell_all(struct cl_sched *s)
{
    for (unsigned k = 0; k < s->n_kthreads; k++)
        if (cl_load_relaxed(&s->kthreads[k].in_flight))
            tell(s, k);
}

static void *watch(void *arg)
{
    struct cl_watcher *w = arg;
    struct epoll_event events[16];
    for (;;) {
        int n = epoll_wait(w->epoll_fd, events, 16, -1);
        for (int i = 0; i < n; i++) {
            uint64_t count;
            if (events[i].data.u64 == STOP_TAG)
                return NULL;
            /* Nothing to be read (EAGAIN) is a wake-up too many, no more. */
            uint32_t index = (uint32_t)events[i].data.u64;
            if (read((int)(events[i].data.u64 >> 32), &count, sizeof count) != sizeof count)
                continue;
            if (index == EVERY_KTHREAD)
                tell_all(w->sched);
            else
                tell(w->sched, index);
        }
    }
}

static int watch_fd(struct cl_watcher *w, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};
    return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void watcher_free(struct cl_watcher *w)
{
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
    if (w->stop_fd >= 0)
        close(w->stop_fd);
    free(w);
}

static int watcher_start(struct cl_sched *s)
{
    struct cl_watcher *w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    *w = (struct cl_watcher){s, epoll_create1(EPOLL_CLOEXEC), eventfd(0, EFD_CLOEXEC), 0};
    int rc = w->epoll_fd < 0 || w->stop_fd < 0 ? -errno : watch_fd(w, w->stop_fd, STOP_TAG);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = rc ? rc : -pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        watcher_free(w);
        return rc;
    }
    pthread_setname_np(w->thread, "cl-watcher");
    s->watcher = w;
    return 0;
}

void cl_watcher_stop(struct cl_sched *s)
{
    struct cl_watcher *w = s->watcher;
    if (!w)
        return;
    s->watcher = NULL;
    (void)eventfd_write(w->stop_fd, 1); /* cannot fail: the count is 0 */
    pthread_join(w->thread, NULL);
    watcher_free(w);
}

/* How many descriptors there are to be watched. */
static unsigned n_fds(const struct cl_sched *s, const struct cl_completions *c)
{
    return c->one_queue ? 1 : s->n_kthreads;
}

static void unwatch(struct cl_sched *s, struct cl_completions *c, unsigned n)
{
    for (unsigned k = 0; k < n && s->watcher; k++)
        epoll_ctl(s->watcher->epoll_fd, EPOLL_CTL_DEL, c->fd(c->arg, k), NULL);
}

static int watch_all(struct cl_sched *s, struct cl_completions *c)
{
    int rc = s->watcher ? 0 : watcher_start(s);
    unsigned n = 0;
    for (; n < n_fds(s, c) && !rc; n++) {
        int fd = c->fd(c->arg, n);
        rc = fd < 0 ? -EMFILE : watch_fd(s->watcher, fd, (uint64_t)fd << 32 | (c->one_queue ? EVERY_KTHREAD : n));
    }
    if (rc && n)
        unwatch(s, c, n - 1);
    return rc;
}

int cl_sched_completions_add(struct cl_sched *s, struct cl_completions *c, char err[256])
{
    pthread_mutex_lock(&adding);
    int rc = watch_all(s, c);
    if (!rc) {
        c->next = s->completions;
        cl_store_release(&s->completions, c); /* release: see first_of */
    }
    pthread_mutex_unlock(&adding);
    if (rc)
        snprintf(err, 256, "cannot watch for completions: %s",
                 rc == -EEXIST ? "somebody else uses the device on this scheduler" : strerror(-rc));
    return rc;
}

void cl_sched_completions_remove(struct cl_sched *s, struct cl_completions *c)
{
    struct cl_completions **at = &s->completions;
    while (*at && *at != c)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = c->next;
    unwatch(s, c, n_fds(s, c));
}
