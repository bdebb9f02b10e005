/* What a loop does when a round found nothing: spin, then pause, then sleep in epoll_wait. Before it sleeps it yields
 * to whom else the kernel has for its CPU: more often while somebody took it of late (state/yields.h).
 *
 * Going to sleep is Dekker's handshake with everybody who gives us work: sleeping = which sleep it is; fence; a last
 * full round; sleep. They publish; fence; read `sleeping` (applications: drivers/port/port.c; other loops: wake.c), or
 * use the parker of an uplink's queue, which is pointed at our event descriptor.
 *
 * Doorbells are watched edge-triggered and never read: the eventfd is shared with an application, which could clear its
 * O_NONBLOCK and empty it between our poll and our read, and so block the loop for ever. Every write makes a new edge
 * (fs/eventfd.c wakes on each write).
 *
 * An uplink that has neither a descriptor, nor a parker, nor a time at which it has something (nic.h, next_tsc) keeps
 * the loop polling. One whose device went away is watched no more: its descriptor shows an error for ever. */
#include "../state/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEVER UINT64_MAX
#define PAUSES 32         /* cl_relax calls between rounds when pausing */
#define SHORTEST_NS 3000  /* a sleep shorter than going to sleep takes is no sleep */
#define RETRY_NS 100000   /* how often frames that an uplink did not take are offered again; doubled each time, ... */
#define RETRY_DOUBLINGS 7 /* ... up to so often: its interface may be down for long */

int io_idle_watch(struct io_loop *loop, int fd, bool edge)
{
    struct epoll_event e = {.events = EPOLLIN | (edge ? EPOLLET : 0u), .data.fd = fd};
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

void io_idle_forget(struct io_loop *loop, int fd)
{
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Event descriptors that an uplink's parker had. Whoever fills that uplink's queue (the other end of a memory link) may
 * have read the number before it was taken back, and write to it any time later. So these are never closed, lest the
 * write go to a stranger's file, but serve the next loop, which such a write wakes once for nothing. */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static int spare[64];
static unsigned n_spare;

static int take_event_fd(void)
{
    int fd = -1;
    pthread_mutex_lock(&spare_lock);
    if (n_spare)
        fd = spare[--n_spare];
    pthread_mutex_unlock(&spare_lock);
    return fd >= 0 ? fd : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void io_idle_close(struct io_loop *loop)
{
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->event_fd >= 0 && !loop->event_fd_shared)
        close(loop->event_fd);
    if (loop->event_fd >= 0 && loop->event_fd_shared) {
        pthread_mutex_lock(&spare_lock);
        if (n_spare < sizeof spare / sizeof spare[0])
            spare[n_spare++] = loop->event_fd; /* beyond that: left open, for the same reason */
        pthread_mutex_unlock(&spare_lock);
    }
    loop->epoll_fd = loop->event_fd = -1;
}

int io_idle_init(struct io_loop *loop, char *err)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->event_fd = take_event_fd();
    if (loop->epoll_fd < 0 || loop->event_fd < 0 || io_idle_watch(loop, loop->event_fd, false) < 0) {
        int code = errno;
        snprintf(err, IO_ERR_BYTES, "cannot make a loop's epoll descriptor: %s", strerror(code));
        return -code;
    }
    return 0;
}

/* Calls fn for each receive queue of an uplink that this loop polls. */
#define FOR_EACH_QUEUE(loop, i, q)                                                                                     \
    for (uint32_t i = 0; i < (loop)->n_uplinks; i++)                                                                   \
        for (uint32_t q = (loop)->index; q < (loop)->uplinks[i].nic->n_queues; q += (loop)->io->config.n_loops)

/* Watch the uplinks whose device went away no more. */
static void forget_gone(struct io_loop *loop)
{
    for (uint32_t i = 0; i < loop->n_uplinks; i++) {
        struct io_uplink *u = &loop->uplinks[i];
        if (cl_likely(u->forgotten || !cl_load_relaxed(&u->nic->gone)))
            continue;
        u->forgotten = true;
        for (uint32_t q = loop->index; q < u->nic->n_queues; q += loop->io->config.n_loops)
            if (u->nic->ops->fd(u->nic, q) >= 0)
                io_idle_forget(loop, u->nic->ops->fd(u->nic, q));
    }
}

/* A descriptor that shows an error and nothing to read: from now on each change of it ends one sleep, and not its state
 * every one. What is readable is read to its end before a sleep. */
static void watch_edges(struct io_loop *loop, int fd)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &e);
    io_count(loop->stats.syscalls, 1);
}

/* When the earliest work falls due that nobody will announce. 0: at any time, so do not sleep. */
static uint64_t next_due(struct io_loop *loop, uint64_t now)
{
    uint64_t due = loop->n_touched || loop->cores.awake ? 0 : NEVER; /* delayed wake-ups; cores that move */
    if (loop->cores.n_apps)
        due = cl_min(due, loop->cores.next_due);
    for (uint32_t i = 0; i < loop->n_apps; i++) {
        const struct io_app *app = loop->apps[i];
        if (!app->throttled)
            continue;
        uint64_t wait = cl_max(cl_bucket_wait(&app->frames), cl_bucket_wait(&app->bytes));
        due = cl_min(due, now + wait);
    }
    for (uint32_t i = 0; i < loop->n_uplinks; i++)
        if (loop->uplinks[i].n_staged)
            due = cl_min(due, now + (uint64_t)cl_ns_to_ticks(loop->io->clock, RETRY_NS << loop->uplinks[i].retries));
    FOR_EACH_QUEUE(loop, i, q)
    {
        struct cl_nic *nic = loop->uplinks[i].nic;
        if (nic->ops->next_tsc)
            due = cl_min(due, nic->ops->next_tsc(nic, q));
        if (nic->ops->fd(nic, q) < 0 && !nic->ops->parker(nic, q) && !nic->ops->next_tsc)
            due = 0;
    }
    return due;
}

static void park_uplinks(struct io_loop *loop, bool parked)
{
    FOR_EACH_QUEUE(loop, i, q)
    {
        struct cl_nic *nic = loop->uplinks[i].nic;
        struct cl_parker *p = nic->ops->fd(nic, q) < 0 ? nic->ops->parker(nic, q) : NULL;
        if (!p)
            continue;
        if (parked)
            cl_park_begin(p);
        else
            cl_park_cancel(p);
    }
}

/* Sleep until an event or `ns` have passed (< 0: for ever). */
static void wait_for_event(struct io_loop *loop, int64_t ns)
{
    struct epoll_event events[8];
    struct timespec ts = {ns / 1000000000, ns % 1000000000};
    int n;
#ifdef SYS_epoll_pwait2
    n = (int)syscall(SYS_epoll_pwait2, loop->epoll_fd, events, 8, ns < 0 ? NULL : &ts, NULL, 0);
    if (n < 0 && errno == ENOSYS) /* before Linux 5.11: milliseconds, rounded down, since late is worse than early */
#endif
        n = epoll_wait(loop->epoll_fd, events, 8, ns < 0 ? -1 : (int)cl_min(ns / 1000000, (int64_t)INT32_MAX));
    (void)ts;
    io_count(loop->stats.syscalls, 1);
    io_count(loop->stats.sleeps, 1);
    for (int i = 0; i < n; i++) {
        uint64_t drained;
        if (events[i].data.fd == loop->event_fd && read(loop->event_fd, &drained, sizeof drained) > 0)
            io_count(loop->stats.syscalls, 1);
        if (cl_unlikely(!(events[i].events & EPOLLIN)))
            watch_edges(loop, events[i].data.fd);
    }
}

static void sleep_unless_work(struct io_loop *loop)
{
    forget_gone(loop);
    cl_store_relaxed(&loop->state->sleeping, ++loop->slept);
    park_uplinks(loop, true);
    cl_fence_seq_cst(); /* our flags before the re-check; see the head of this file */
    uint64_t now = cl_tsc();
    loop->cores.urgent = true; /* re-check the applications' words behind the fence */
    loop->cores.next_urgent = now;
    bool busy = io_round(loop, now);
    uint64_t due = next_due(loop, now);
    int64_t ns = due == NEVER ? -1 : due <= now ? 0 : cl_ticks_to_ns(loop->io->clock, (int64_t)(due - now));
    if (!busy && !io_commands_pending(loop) && !cl_load_relaxed(&loop->stop) && (ns < 0 || ns >= SHORTEST_NS)) {
        wait_for_event(loop, ns);
        loop->woke = cl_min(cl_tsc(), due); /* from when it was due, it was kept from running */
        for (uint32_t i = 0; i < loop->n_uplinks; i++)
            if (loop->uplinks[i].n_staged && loop->uplinks[i].retries < RETRY_DOUBLINGS)
                loop->uplinks[i].retries++;
    }
    cl_store_relaxed(&loop->state->sleeping, 0);
    park_uplinks(loop, false);
    cl_store_relaxed(&loop->state->heartbeat_tsc, cl_tsc());
    if (busy)
        loop->idle_since = now;
}

/* Returns whether it yielded. Not while wake-ups are due, or others' cores depend on its decisions. */
static bool yield(struct io_loop *loop)
{
    uint64_t begun = cl_tsc();
    if (!io_yields_due(&loop->yields, loop->io->clock, begun) || loop->n_touched || loop->cores.n_apps)
        return false;
    sched_yield();
    io_count(loop->stats.syscalls, 1);
    io_yields_done(&loop->yields, loop->io->clock, begun, cl_tsc());
    return true;
}

void io_idle(struct io_loop *loop, bool busy)
{
    const struct cl_io *io = loop->io;
    if (busy || loop->cores.awake) {
        loop->idle_since = loop->now;
        io_yields_work(&loop->yields);
        return;
    }
    if (io->config.poll == CL_IO_SPIN)
        return;
    uint64_t idle = loop->now - loop->idle_since;
    if (io->config.poll != CL_IO_ADAPTIVE || idle >= io->spin_ticks + io->pause_ticks) {
        sleep_unless_work(loop);
        return;
    }
    if (yield(loop))
        return;
    for (unsigned i = 0; i < (idle < io->spin_ticks ? 1 : PAUSES); i++)
        cl_relax();
}
