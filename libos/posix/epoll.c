/* epoll over both worlds. Every epoll descriptor that the program makes is ours, too, from the beginning: a thread may
 * sleep in it when the first socket of ours is put in. The real one keeps what is Linux', and has the eventfd of our
 * set and the descriptors of the kthreads whose keepers wait here. What it tells of those is told by numbers that are
 * addresses inside of our object, which nobody else gives. */
#include "family.h"
#include "kthreads.h"
#include "linux.h"
#include "memory.h"
#include "waits.h"

#include <corelane/libos/sched.h>

#include <limits.h>

#define LOOK_EVERY 8  /* times that something of ours was ready, between two looks at what is Linux' */
#define SPINS_EVERY 8 /* turns without a result, between two looks at Linux */
#define SIGNALS_BYTES 8

struct epoll {
    struct cl_posix_object object; /* first */
    struct cl_posix_set set;
    uint64_t kthreads; /* bit k: kthread k's descriptor is in the real one. RMW: who waits */
    uint32_t holds;    /* others of epoll are in it, or were */
    uint32_t waits;    /* that found something of ours; a count for LOOK_EVERY */
    char tags[CL_SCHED_MAX_KTHREADS];
};

static uint64_t tag_of(const void *at)
{
    return (uint64_t)(uintptr_t)at;
}

static void on_closed(struct cl_posix_object *o)
{
    cl_posix_forget_set(&((struct epoll *)o)->set);
}

static void on_end(struct cl_posix_object *o)
{
    cl_posix_set_close(&((struct epoll *)o)->set);
}

static int put_in(int epfd, int fd, const void *tag)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = tag_of(tag)};
    return (int)cl_linux(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, fd, &e);
}

static void take_out(int epfd, unsigned k)
{
    (void)cl_linux(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, cl_posix_kthread_fd(k), NULL);
}

/* It is put by the caller. */
static int take_on(int epfd, struct epoll **out)
{
    struct epoll *e = (struct epoll *)cl_posix_new(CL_POSIX_EPOLL, sizeof *e);
    if (!e)
        return -ENOMEM;
    int rc = cl_posix_set_open(&e->set);
    if (rc == 0) {
        e->object.end = on_end;
        e->object.closed = on_closed;
        if ((rc = put_in(epfd, e->set.event_fd, &e->set)) == 0)
            rc = cl_posix_enter(epfd, &e->object);
    }
    if (rc)
        cl_posix_put(&e->object);
    *out = e;
    return rc;
}

int cl_posix_epoll_create(int epfd)
{
    struct epoll *e;
    if (cl_posix_is_forked())
        return epfd;
    int rc = take_on(epfd, &e);
    if (rc == 0) {
        cl_posix_put(&e->object);
        return epfd;
    }
    (void)cl_linux(SYS_close, epfd);
    return rc;
}

void cl_posix_epoll_lend(int epfd)
{
    struct epoll *e = (struct epoll *)cl_posix_get(epfd, CL_POSIX_EPOLL);
    if (!e)
        return;
    cl_posix_set_lend(&e->set);
    uint64_t inside = __atomic_exchange_n(&e->kthreads, 0, __ATOMIC_SEQ_CST);
    for (unsigned k = 0; inside; k++, inside >>= 1) /* whoever is told of it is not told of those */
        if (inside & 1)
            take_out(epfd, k);
    cl_posix_put(&e->object);
}

/* One that we have not seen made, too. */
static int epoll_of(int epfd, struct epoll **out)
{
    if (cl_posix_kind(epfd) == CL_POSIX_SOCKET)
        return -EINVAL;
    *out = (struct epoll *)cl_posix_get(epfd, CL_POSIX_EPOLL);
    return *out ? 0 : take_on(epfd, out);
}

/* One in another one: Linux tells of it. */
static int nest(int epfd, int op, int fd, struct epoll_event *event)
{
    int rc = (int)cl_linux(SYS_epoll_ctl, epfd, op, fd, event);
    struct epoll *e = rc || op == EPOLL_CTL_DEL ? NULL : (struct epoll *)cl_posix_get(epfd, CL_POSIX_EPOLL);
    if (!e)
        return rc;
    cl_posix_epoll_lend(fd);
    cl_store_relaxed(&e->holds, 1);
    cl_posix_put(&e->object);
    return 0;
}

int cl_posix_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    struct epoll *e;
    if (cl_posix_kind(fd) == CL_POSIX_EPOLL)
        return nest(epfd, op, fd, event);
    if (cl_posix_is_child())
        return -ECHILD;
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s) /* it has gone meanwhile: Linux knows */
        return (int)cl_linux(SYS_epoll_ctl, epfd, op, fd, event);
    bool nowhere = op != EPOLL_CTL_DEL && !cl_posix_can_read(event, sizeof *event);
    int rc = nowhere ? -EFAULT : op < EPOLL_CTL_ADD || op > EPOLL_CTL_MOD ? -EINVAL : 0;
    if (rc == 0 && (rc = epoll_of(epfd, &e)) == 0) {
        rc = cl_posix_watch(&e->set, s, op, epfd, fd, event);
        int unused;
        if (rc == 0 && cl_load_relaxed(&e->set.sleepers)) /* who sleeps there has not made the runtime, perhaps */
            (void)cl_posix_start(&unused);
        cl_posix_put(&e->object);
    }
    cl_posix_socket_put(s);
    return rc;
}

/* Take what is told of our own out of n events. Returns how many are left. */
static int without_own(struct epoll *e, int epfd, struct epoll_event *events, int n)
{
    int left = 0;
    uint64_t from = tag_of(e->tags);
    for (int i = 0; i < n; i++) {
        uint64_t data = events[i].data.u64;
        if (data == tag_of(&e->set))
            continue;
        if (data - from >= sizeof e->tags) {
            events[left++] = events[i];
            continue;
        }
        unsigned k = (unsigned)(data - from);
        if (cl_posix_turn_for(k))
            continue;
        /* The caretaker has it again. */
        take_out(epfd, k);
        __atomic_fetch_and(&e->kthreads, ~(1ull << k), __ATOMIC_RELAXED); /* a hint of who adds it */
    }
    return left;
}

static int all_events(int epfd, struct epoll_event *events, int n, int64_t ns, const sigset_t *mask)
{
    int ms = ns < 0 ? -1 : (int)cl_min((ns + 999999) / 1000000, (int64_t)INT_MAX);
    return (int)cl_linux(SYS_epoll_pwait, epfd, events, n, ms, mask, SIGNALS_BYTES);
}

/* Linux cannot tell of the first: whether that is of the program's. */
static CL_NOINLINE int events_nowhere(struct epoll *e, int epfd)
{
    struct epoll_event some[CL_SCHED_MAX_KTHREADS + 2];
    int found = all_events(epfd, some, CL_SCHED_MAX_KTHREADS + 2, 0, NULL);
    return found > 0 && without_own(e, epfd, some, found) ? -EFAULT : cl_min(found, 0);
}

/* Of what all_events has found. */
static int of_program(struct epoll *e, int epfd, struct epoll_event *events, int found)
{
    if (cl_unlikely(found == -EFAULT))
        return events_nowhere(e, epfd);
    return found <= 0 ? found : without_own(e, epfd, events, found);
}

static int ask_linux(struct epoll *e, int epfd, struct epoll_event *events, int n, int64_t ns, const sigset_t *mask)
{
    return of_program(e, epfd, events, all_events(epfd, events, n, ns, mask));
}

/* Have the descriptor of the kthread among those for which we sleep. */
static void watch_kthread(struct epoll *e, int epfd, unsigned k, int fd)
{
    uint64_t bit = 1ull << k;
    if (cl_load_relaxed(&e->kthreads) & bit)
        return;
    (void)put_in(epfd, fd, &e->tags[k]); /* EEXIST: another thread has just done it */
    __atomic_fetch_or(&e->kthreads, bit, __ATOMIC_SEQ_CST);
    if (cl_posix_set_is_lent(&e->set) && __atomic_fetch_and(&e->kthreads, ~bit, __ATOMIC_SEQ_CST) & bit)
        take_out(epfd, k); /* just now: of the two at least one sees the other */
}

/* Until one of the two is readable: of one that others wait for, in which there is nothing but what is for them. 0,
 * -EINTR. */
static int sleep_beside(int epfd, int kthread_fd, int64_t ns, const sigset_t *mask)
{
    struct pollfd fds[2] = {{epfd, POLLIN, 0}, {kthread_fd, POLLIN, 0}};
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    int rc = (int)cl_linux(SYS_ppoll, fds, 2, ns < 0 ? NULL : &t, mask, SIGNALS_BYTES);
    return rc < 0 ? rc : 0;
}

static int sleep_now(struct epoll *e, int epfd, struct epoll_event *events, int n, int64_t left_ns,
                     const sigset_t *mask, int kthread_fd)
{
    int found = -ECANCELED;
    bool beside = kthread_fd >= 0 && cl_posix_set_is_lent(&e->set);
    if (!beside && kthread_fd >= 0)
        watch_kthread(e, epfd, cl_posix_kept(), kthread_fd);
    if (cl_posix_interrupted_begin(&e->set, &e->object)) {
        found = beside ? sleep_beside(epfd, kthread_fd, left_ns, mask) : all_events(epfd, events, n, left_ns, mask);
        cl_posix_interrupted_end();
    }
    if (beside && found == 0)
        found = all_events(epfd, events, n, 0, mask);
    return of_program(e, epfd, events, found);
}

static int sleep_for_both(struct epoll *e, int epfd, struct epoll_event *events, int n, uint64_t deadline_ns,
                          const sigset_t *mask)
{
    int kthread_fd;
    if (!cl_posix_set_arm(&e->set))
        return 0;
    if (!cl_posix_sleep_begin(&kthread_fd)) {
        cl_posix_set_disarm(&e->set);
        return 0;
    }
    int found = sleep_now(e, epfd, events, n, cl_posix_left(deadline_ns), mask, kthread_fd);
    cl_posix_sleep_end();
    cl_posix_set_disarm(&e->set);
    return cl_posix_is_cancelled() ? -ECANCELED : found;
}

/* Something of ours is ready: whether to look at Linux all the same. */
static bool look_at_linux(struct epoll *e)
{
    cl_count(&e->waits, 1); /* by several threads, perhaps: then one counts for both */
    return cl_load_relaxed(&e->waits) % LOOK_EVERY == 0 || cl_load_relaxed(&e->holds);
}

/* Events, or what is wrong; 0: the time is over. */
static int wait_for_both(struct epoll *e, int epfd, struct epoll_event *events, int n, uint64_t deadline_ns,
                         const sigset_t *mask)
{
    for (unsigned spins = 0;; spins++) {
        bool again = cl_posix_turn(cl_posix_set_is_mine(&e->set));
        if (cl_load_relaxed(&e->holds))
            (void)cl_posix_lent_look();
        int ours = cl_posix_collect(&e->set, events, n), theirs = 0;
        if (ours == n || ours < 0 || (ours && !look_at_linux(e)))
            return ours;
        bool over = cl_posix_left(deadline_ns) == 0;
        if (ours || over || (again && spins % SPINS_EVERY == 0))
            theirs = ask_linux(e, epfd, events + ours, n - ours, 0, mask);
        else if (!again)
            theirs = sleep_for_both(e, epfd, events, n, deadline_ns, mask);
        if (ours || theirs > 0)
            return ours + cl_max(theirs, 0);
        if (theirs < 0 || over)
            return theirs;
    }
}

/* In a child: what the parent's sockets tell is not for it. */
static int wait_for_linux(struct epoll *e, int epfd, struct epoll_event *events, int n, int64_t timeout_ns,
                          const sigset_t *mask)
{
    uint64_t deadline_ns = cl_posix_deadline(timeout_ns);
    int found;
    do
        found = ask_linux(e, epfd, events, n, cl_posix_left(deadline_ns), mask);
    while (found == 0 && cl_posix_left(deadline_ns));
    return found;
}

/* While another process has the runtime. False: *rc is what there is of Linux', or what is wrong. */
static bool wait_for_turn(struct epoll *e, int epfd, struct epoll_event *events, int n, uint64_t deadline_ns,
                          const sigset_t *mask, int *rc)
{
    struct pollfd fds[3] = {{epfd, POLLIN, 0}};
    while (!cl_posix_start(rc)) {
        if (*rc == -EAGAIN)
            *rc = cl_posix_family_sleep(fds, 1, deadline_ns, mask, &e->object);
        if (*rc > 0)
            *rc = ask_linux(e, epfd, events, n, 0, mask);
        if (*rc || cl_posix_left(deadline_ns) == 0)
            return false;
    }
    return true;
}

int cl_posix_epoll_wait(int epfd, struct epoll_event *events, int n, int64_t timeout_ns, const sigset_t *mask)
{
    int rc = 0;
    if (n <= 0 || n > (int)(INT_MAX / sizeof *events))
        return -EINVAL;
    struct epoll *e = (struct epoll *)cl_posix_get(epfd, CL_POSIX_EPOLL);
    if (!e)
        return cl_posix_kind(epfd) == CL_POSIX_SOCKET ? -EINVAL : -EBADF;
    if (cl_linux_is_outside(events, (size_t)n * sizeof *events)) {
        cl_posix_put(&e->object);
        return -EFAULT;
    }
    uint64_t deadline_ns = cl_posix_deadline(timeout_ns);
    bool has_ours = cl_load_relaxed(&e->set.all) || (cl_load_relaxed(&e->holds) && cl_posix_lent_look());
    if (cl_posix_is_forked())
        rc = has_ours && cl_posix_is_child() ? -ECHILD : wait_for_linux(e, epfd, events, n, timeout_ns, mask);
    else if (!has_ours || wait_for_turn(e, epfd, events, n, deadline_ns, mask, &rc)) {
        if (cl_load_relaxed(&e->set.connections))
            cl_posix_keep();
        rc = wait_for_both(e, epfd, events, n, deadline_ns, mask);
        cl_posix_told_of(rc);
    }
    cl_posix_put(&e->object);
    return rc;
}
