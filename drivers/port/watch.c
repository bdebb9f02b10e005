/* Attaching a port, watching its iokernel, attaching again. See port.h; nothing here is on the data path. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 15000 /* a control thread on a busy machine may be late by seconds */
#define TELLING_NAP_NS 100000
#define PUBLISH_MS 250
#define HEARTBEAT_CHECK_MS 2000 /* no heartbeat from one check to the next: stalled */

static void wake_all(struct port *port)
{
    for (unsigned q = 0; q < port->nic.n_queues; q++)
        cl_park_wake(&port->parkers[q]);
}

/* Have the port's doorbell ring for the iokernel of `a`. Nothing that fails: the number is ours, and open. */
static void hang_doorbell(struct port *port, struct port_arena *a)
{
    if (port->doorbell < 0)
        port->doorbell = a->passed_doorbell;
    else {
        while (dup3(a->passed_doorbell, port->doorbell, O_CLOEXEC) < 0 && (errno == EINTR || errno == EBUSY))
            continue;
        close(a->passed_doorbell);
    }
    a->passed_doorbell = -1;
    a->doorbell = port->doorbell;
}

/* Make a new attachment the current one. Under lock (or before there are other threads). */
static void publish(struct port *port, struct port_arena *a, const struct cl_control_accept *acc, int fd)
{
    struct cl_nic *nic = &port->nic;
    port->control_fd = fd;
    hang_doorbell(port, a);
    cl_store_release(&a->older, port->current); /* release: who follows it sees a whole arena */
    cl_store_relaxed(&a->tag, a->older ? a->older->tag + 1 : 1);
    if (a->older)
        cl_memory_shut(&a->older->memory); /* nothing of it is mapped any more */
    const struct cl_state_header *s = a->state.base;
    port->note_is_new = *acc->note && strcmp(acc->note, port->info.note) != 0;
    port->info = (struct cl_port_info){.state = CL_PORT_ATTACHED,
                                       .app = acc->app,
                                       .loop = acc->loop,
                                       .attached = a->tag,
                                       .generation = acc->generation,
                                       .may_spin = acc->may_spin,
                                       .managed = acc->managed,
                                       .iokernel_pid = s->pid,
                                       .gateway = acc->gateway,
                                       .member = acc->member,
                                       .arena_bytes = a->layout.total_bytes};
    memcpy(port->info.cpus, acc->cpus, sizeof port->info.cpus);
    snprintf(port->info.text, sizeof port->info.text, "attached to the iokernel with pid %u on %s", s->pid,
             port->socket_path);
    memcpy(port->info.note, acc->note, sizeof port->info.note);
    cl_store_release(&port->current, a); /* release: see rx_sync in port.c */
    cl_store_relaxed(&nic->gone, 0);
}

/* What an iokernel has granted, before it counts. */
struct grant {
    int fd;
    struct cl_control_accept acc;
    struct port_arena *arena;
};

/* Let port_close end the handshake on `fd`, or, with -1, no more. False: it has begun already. */
static bool may_wait_on(struct port *port, int fd)
{
    pthread_mutex_lock(&port->lock);
    port->joining_fd = fd;
    bool may = !cl_load_relaxed(&port->stopping); /* relaxed: port_close sets it under the lock */
    pthread_mutex_unlock(&port->lock);
    return may;
}

/* Connect and register. Without the lock, since a stopped iokernel answers only by the timeout; of two threads that
 * try, `attaching` lets one in, which therefore has `wishes` for itself. */
static int request_grant(struct port *port, struct grant *g, char *err)
{
    int fds[CL_CONTROL_FDS];
    g->fd = cl_control_connect(port->socket_path, (int)port->timeout_ms, err);
    if (g->fd < 0)
        return g->fd;
    int rc = -ECANCELED;
    if (may_wait_on(port, g->fd))
        rc = cl_control_attach(g->fd, &port->wishes, &g->acc, fds, (int)port->timeout_ms, err);
    else
        snprintf(err, CL_CONTROL_ERR_BYTES, "the port is being closed");
    may_wait_on(port, -1);
    g->arena = rc < 0 ? NULL : port_arena_new(port, &g->acc, fds, &rc, err);
    if (!g->arena)
        close(g->fd);
    return rc;
}

/* Take what was granted. The first time the iokernel chooses what the user left open; later all must be as it was.
 * Under lock (or before there are other threads). */
static int adopt_grant(struct port *port, struct grant *g, char *err)
{
    struct port_arena *a = g->arena;
    struct cl_nic *nic = &port->nic;
    if (!port->current) {
        nic->n_queues = a->layout.n_kthreads;
        nic->n_buffers = a->layout.n_rx + a->layout.n_tx;
        nic->buffer_bytes = a->layout.buffer_bytes;
        nic->mtu = g->acc.mtu;
        nic->ipv4 = g->acc.ipv4;
        nic->ipv4_prefix = g->acc.ipv4_prefix;
        memcpy(nic->mac, g->acc.mac, sizeof nic->mac);
        struct cl_control_hello *w = &port->wishes;
        w->n_kthreads = a->layout.n_kthreads;
        w->rx_slots = a->layout.rx_slots;
        w->tx_slots = a->layout.tx_slots;
        w->n_rx = a->layout.n_rx;
        w->n_tx = a->layout.n_tx;
        w->buffer_bytes = a->layout.buffer_bytes;
        w->ipv4 = g->acc.ipv4;
        w->member = g->acc.member;
    } else if (memcmp(&a->layout, &port->current->layout, sizeof a->layout) || memcmp(g->acc.mac, nic->mac, 6) ||
               g->acc.ipv4 != nic->ipv4) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "the new iokernel on %s gives this application another address or layout",
                 port->socket_path);
        port_arena_discard(port, a);
        close(g->fd);
        return -EPROTO;
    }
    publish(port, a, &g->acc, g->fd);
    int rc = port->state == port->wishes.state ? 0 : port_say_again(port, err);
    if (rc == 0 && a->managed && port->kthreads.n)
        rc = port_cores_manage(port, err);
    if (rc < 0) {
        close(g->fd); /* as if it had refused; its arena is one more that nobody fills */
        port->control_fd = -1;
        port->info.state = CL_PORT_GONE;
        cl_store_relaxed(&nic->gone, 1);
    }
    return rc;
}

/* Record a change of state. Under lock, together with what has changed: a reader, or a cl_port_reattach in between,
 * must not see one without the other. */
static void record(struct port *port, int state, const char *text)
{
    port->info.state = state;
    snprintf(port->info.text, sizeof port->info.text, "%s", text);
}

/* Tell the user. Without the lock: the callback may ask for cl_port_info. */
static void tell(struct port *port, int state, const char *text)
{
    if (port->on_change)
        port->on_change(port->arg, state, text);
}

/* A change of state that changes nothing else. By the watcher, which alone ends an attachment. */
static void report(struct port *port, int state, const char *text)
{
    pthread_mutex_lock(&port->lock);
    record(port, state, text);
    pthread_mutex_unlock(&port->lock);
    tell(port, state, text);
}

/* Whether this thread is the one to attach again; -EALREADY with the reason if not. */
static int begin_attaching(struct port *port, char *err)
{
    int rc = -EALREADY;
    pthread_mutex_lock(&port->lock);
    if (port->control_fd >= 0) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "still attached");
    } else if (port->attaching) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "another thread is attaching it again");
    } else {
        port->attaching = true;
        port->wishes.state = port->state;
        rc = 0;
    }
    pthread_mutex_unlock(&port->lock);
    return rc;
}

static int reattach(struct port *port, char *err)
{
    struct grant g;
    int rc = begin_attaching(port, err);
    if (rc < 0)
        return rc;
    rc = request_grant(port, &g, err);
    pthread_mutex_lock(&port->lock);
    port->attaching = false;
    if (rc == 0)
        rc = adopt_grant(port, &g, err);
    if (rc == 0)
        port_vacate_old(port);
    pthread_mutex_unlock(&port->lock);
    if (rc == 0) {
        wake_all(port); /* they take over the new arena */
        if (cl_load_acquire(&port->managed))
            port_cores_interrupt(port);
    }
    return rc;
}

/* The peer is gone: links down, everybody awake. */
static void detach(struct port *port)
{
    char text[256], demoted[96] = "";
    pthread_mutex_lock(&port->lock);
    close(port->control_fd);
    port->control_fd = -1;
    cl_store_relaxed(&port->nic.gone, 1); /* relaxed: a flag; whoever misses it sends into a dead arena once more */
    unsigned stay = port_cores_unmanage(port);
    if (stay)
        snprintf(demoted, sizeof demoted, "; %u kthreads stay in SCHED_IDLE: raise RLIMIT_NICE to 20 (ulimit -e)",
                 stay);
    snprintf(text, sizeof text, "the iokernel on %s is gone: %s%s", port->socket_path,
             port->reattach_ms ? "attaching again when one listens there"
                               : "no packets until this port is attached again",
             demoted);
    cl_memory_shut(&port->current->memory); /* it is mapped no more from here on */
    record(port, CL_PORT_GONE, text);
    pthread_mutex_unlock(&port->lock);
    wake_all(port);
    tell(port, CL_PORT_GONE, text);
}

static bool is_attached(struct port *port)
{
    pthread_mutex_lock(&port->lock);
    bool attached = port->control_fd >= 0;
    pthread_mutex_unlock(&port->lock);
    return attached;
}

/* Take what was written to stop_fd off it, lest poll() return for it for ever. */
static void drain_stop(struct port *port)
{
    uint64_t drained;
    ssize_t ignored = read(port->stop_fd, &drained, sizeof drained); /* EAGAIN: nothing was written */
    (void)ignored;
}

/* Try until an iokernel accepts, or wait until cl_port_reattach has found one. Returns false to stop. Reports a refusal
 * once per text, not once per attempt. */
static bool attach_again(struct port *port)
{
    char err[CL_CONTROL_ERR_BYTES], told[CL_CONTROL_ERR_BYTES] = "";
    for (;;) {
        struct pollfd p = {port->stop_fd, POLLIN, 0};
        poll(&p, 1, port->reattach_ms ? (int)port->reattach_ms : -1);
        if (cl_load_acquire(&port->stopping))
            return false;
        drain_stop(port);
        if (port->reattach_ms == 0) {
            if (is_attached(port))
                return true;
            continue;
        }
        int rc = reattach(port, err);
        if (rc == 0)
            return true;
        if (rc != -ECANCELED && !cl_load_acquire(&port->stopping) && rc != -ENOENT && rc != -ECONNREFUSED &&
            rc != -EAGAIN && strcmp(err, told)) {
            snprintf(told, sizeof told, "%s", err);
            report(port, CL_PORT_GONE, err);
        }
    }
}

/* The watcher's memory from one check of the iokernel to the next. */
struct looks {
    uint64_t beat;
    bool rung; /* it slept, and was woken for the sake of a heartbeat */
    bool stalled;
};

/* A look at the heartbeat. One that sleeps shows no sign of life: it is woken, and has beaten by the next look unless
 * it is stopped. That is once in HEARTBEAT_CHECK_MS, some microseconds of an idle iokernel's time. */
static void check_heartbeat(struct port *port, struct looks *l)
{
    const struct port_arena *a = port->current;
    uint64_t beat = cl_load_relaxed(&a->loop->heartbeat_tsc);
    bool sleeping = cl_load_relaxed(&a->loop->sleeping); /* relaxed: wrong at one look, it is right at the next */
    bool silent = beat == l->beat && (!sleeping || l->rung);
    l->beat = beat;
    l->rung = sleeping;
    if (sleeping) {
        uint64_t one = 1;
        ssize_t ignored = write(a->doorbell, &one, sizeof one); /* EAGAIN: a ring is pending anyway */
        (void)ignored;
    }
    if (silent == l->stalled)
        return;
    l->stalled = silent;
    report(port, silent ? CL_PORT_STALLED : CL_PORT_ATTACHED,
           silent ? "the iokernel does not poll: is it stopped, or its core taken away?" : "the iokernel polls again");
}

/* Whether the control socket has ended. The iokernel sends only answers after ACCEPT, for whoever is `telling`, who
 * sees the end, too; anything else is skipped. */
static bool ended(struct port *port)
{
    char byte;
    pthread_mutex_lock(&port->lock);
    bool busy = port->telling;
    ssize_t n = busy ? 1 : recv(port->control_fd, &byte, 1, MSG_DONTWAIT);
    bool over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    pthread_mutex_unlock(&port->lock);
    if (busy)
        nanosleep(&(struct timespec){0, TELLING_NAP_NS}, NULL); /* poll() returns for that answer until it is read */
    return over;
}

/* Put what the application counts, and its latency, where the iokernel sees it. */
static void publish_counters(struct port *port)
{
    pthread_mutex_lock(&port->lock);
    struct port_arena *a = port->current;
    if (port->counters && port->control_fd >= 0) {
        struct cl_arena_counters *at = cl_arena_counters_of(a->base, &a->layout);
        unsigned n = port->counters(port->counters_arg, at->counter, CL_ARENA_MAX_COUNTERS);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        cl_store_relaxed(&at->published_ns, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
        cl_store_release(&at->n, n);
    }
    if (port->latency && port->control_fd >= 0)
        port->latency(port->latency_arg, cl_arena_latency(a->base, &a->layout), a->layout.n_kthreads);
    pthread_mutex_unlock(&port->lock);
}

void cl_port_publish(struct cl_nic *nic, cl_counters_fn counters, void *arg)
{
    struct port *port = port_of(nic);
    pthread_mutex_lock(&port->lock);
    port->counters = counters;
    port->counters_arg = arg;
    pthread_mutex_unlock(&port->lock);
}

void cl_port_publish_latency(struct cl_nic *nic, void (*tell)(void *arg, void *part, uint32_t n_kthreads), void *arg)
{
    struct port *port = port_of(nic);
    pthread_mutex_lock(&port->lock);
    port->latency = tell;
    port->latency_arg = arg;
    pthread_mutex_unlock(&port->lock);
}

void cl_port_on_trace(struct cl_nic *nic, void (*ask)(void *arg, uint32_t how), void *arg)
{
    struct port *port = port_of(nic);
    pthread_mutex_lock(&port->lock);
    port->ask_trace = ask;
    port->ask_trace_arg = arg;
    pthread_mutex_unlock(&port->lock);
}

/* An old arena that was still in use when the port attached again: its last frame may have come back, or a sleeping
 * kthread moved on, without a word to anybody. */
static void check_old(struct port *port)
{
    pthread_mutex_lock(&port->lock);
    port_vacate_old(port);
    pthread_mutex_unlock(&port->lock);
}

/* Say that it is attached again, and what it wished for and does not get of this iokernel, unless the last said so. */
static void report_attached(struct port *port)
{
    char text[64 + CL_CONTROL_NOTE_BYTES];
    pthread_mutex_lock(&port->lock);
    snprintf(text, sizeof text, "attached again, to a new iokernel%s%s", port->note_is_new ? "; " : "",
             port->note_is_new ? port->info.note : "");
    pthread_mutex_unlock(&port->lock);
    report(port, CL_PORT_ATTACHED, text);
}

/* Tell the user, once, that it is to drain. */
static void check_drain(struct port *port)
{
    if (port->told_drain || !port_is_to_drain(port->current))
        return;
    port->told_drain = true;
    tell(port, CL_PORT_DRAIN, "another process has taken over the name: it ends when what it has begun is done");
}

/* Pass on how requests are to be traced. A new iokernel has asked for nothing yet. */
static void check_trace(struct port *port)
{
    pthread_mutex_lock(&port->lock);
    const struct cl_arena_preempt *line = (const void *)(port->current->base + CL_ARENA_PREEMPT_OFFSET);
    uint32_t asked = cl_load_relaxed(&line->trace);
    bool news = asked != port->asked_trace && port->ask_trace;
    if (news)
        port->asked_trace = asked;
    if (news && asked)
        port->ask_trace(port->ask_trace_arg, asked & 0xff);
    pthread_mutex_unlock(&port->lock);
}

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *watch(void *arg)
{
    struct port *port = arg;
    struct looks looks = {0};
    int64_t due = monotonic_ms() + PUBLISH_MS;
    for (unsigned turn = 1;;) {
        struct pollfd fds[2] = {{port->stop_fd, POLLIN, 0}, {port->control_fd, POLLIN | POLLRDHUP, 0}};
        int n = poll(fds, 2, (int)cl_max(due - monotonic_ms(), (int64_t)0));
        if (cl_load_acquire(&port->stopping))
            return NULL;
        /* By the clock: answers to whoever asks often end the wait, too. */
        if (monotonic_ms() >= due) {
            due = monotonic_ms() + PUBLISH_MS;
            publish_counters(port);
            check_drain(port);
            check_trace(port);
            if (turn++ % (HEARTBEAT_CHECK_MS / PUBLISH_MS) == 0) {
                check_heartbeat(port, &looks);
                check_old(port);
            }
        }
        if (n > 0 && fds[0].revents)
            drain_stop(port); /* a cl_port_reattach that attach_again has already noticed */
        if (n < 0 || !fds[1].revents || !ended(port))
            continue;
        detach(port);
        if (!attach_again(port))
            return NULL;
        looks = (struct looks){0};
        report_attached(port);
    }
}

int cl_port_reattach(struct cl_nic *nic, char *err)
{
    struct port *port = port_of(nic);
    if (port->reattach_ms) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "this port tries by itself, every %u ms", port->reattach_ms);
        return -EALREADY;
    }
    int rc = reattach(port, err);
    uint64_t one = 1;
    /* The watcher goes back to watching. EAGAIN: the counter is full, and so it is awake. */
    if (rc == 0 && write(port->stop_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        return -errno;
    return rc;
}

void cl_port_info(struct cl_nic *nic, struct cl_port_info *out)
{
    struct port *port = port_of(nic);
    pthread_mutex_lock(&port->lock);
    *out = port->info;
    pthread_mutex_unlock(&port->lock);
}

static void port_close(struct cl_nic *nic)
{
    struct port *port = port_of(nic);
    if (port->watching) {
        uint64_t one = 1;
        pthread_mutex_lock(&port->lock);
        cl_store_release(&port->stopping, true);
        if (port->joining_fd >= 0)
            shutdown(port->joining_fd, SHUT_RDWR); /* ends a handshake that nobody answers */
        pthread_mutex_unlock(&port->lock);
        ssize_t ignored = write(port->stop_fd, &one, sizeof one);
        (void)ignored;
        pthread_join(port->watcher, NULL);
    }
    port_herald_delete(port); /* it reads what is freed below */
    if (port->stop_fd >= 0)
        close(port->stop_fd);
    if (port->control_fd >= 0)
        close(port->control_fd);
    if (port->doorbell >= 0)
        close(port->doorbell);
    for (struct port_arena *a = port->current, *older; a; a = older) {
        older = a->older;
        port_arena_free(a);
    }
    pthread_mutex_destroy(&port->lock);
    port_cores_delete(port);
    for (unsigned q = 0; port->parkers && q < port->nic.n_queues; q++)
        cl_park_close_given(&port->parkers[q]);
    free(port->parkers);
    free(port->rx);
    free(port->tx);
    free(port->socket_path);
    free(port);
}

static const struct cl_nic_ops ops = {
    .name = "port",
    .rx_burst = port_rx_burst,
    .tx_burst = port_tx_burst,
    .prepare = port_prepare,
    .steering = port_steering,
    .may_be_anothers = port_may_be_anothers,
    .tx_stamps = port_tx_stamps,
    .tx_stamps_read = port_tx_stamps_read,
    .alloc = port_alloc,
    .free = port_free,
    .parker = port_parker,
    .wait = port_wait,
    .stats = port_stats,
    .buffers_free = port_buffers_free,
    .fd = port_fd,
    .close = port_close,
};

/* Queue state, all on the first arena from the start. */
static int make_queues(struct port *port)
{
    unsigned n = port->nic.n_queues;
    port->parkers = calloc(n, sizeof *port->parkers);
    port->rx = aligned_alloc(CL_CACHELINE, n * sizeof *port->rx);
    port->tx = aligned_alloc(CL_CACHELINE, n * sizeof *port->tx);
    if (!port->parkers || !port->rx || !port->tx)
        return -ENOMEM;
    memset(port->rx, 0, n * sizeof *port->rx);
    memset(port->tx, 0, n * sizeof *port->tx);
    for (unsigned q = 0; q < n; q++)
        port->parkers[q] = (struct cl_parker){.word = &port_lines(port->current, q)->park, .event_fd = CL_PARK_FUTEX};
    return 0;
}

/* The watcher inherits no signal: those are the application's. */
static int start_watcher(struct port *port)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 128 * 1024);
    int rc = pthread_create(&port->watcher, &attr, watch, port);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    port->watching = rc == 0;
    return -rc;
}

static int fill_wishes(struct port *port, const struct cl_port_config *c, char *err)
{
    size_t n = c->name ? strlen(c->name) : 0;
    if (n == 0 || n >= CL_SHM_NAME_BYTES) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "an application's name must have 1 to %d bytes", CL_SHM_NAME_BYTES - 1);
        return -EINVAL;
    }
    port->wishes = (struct cl_control_hello){.n_kthreads = c->n_kthreads ? c->n_kthreads : 1,
                                             .rx_slots = c->rx_slots,
                                             .tx_slots = c->tx_slots,
                                             .n_rx = c->n_rx,
                                             .n_tx = c->n_tx,
                                             .buffer_bytes = c->buffer_bytes,
                                             .ipv4 = c->ipv4,
                                             .kind = c->kind,
                                             .guaranteed = c->guaranteed,
                                             .maximum = c->maximum,
                                             .weight = c->weight,
                                             .deadline_us = c->deadline_us,
                                             .quantum_us = c->quantum_us,
                                             .quantum_signal = c->quantum_signal};
    memcpy(port->wishes.name, c->name, n);
    return 0;
}

int cl_port_nic_new(const struct cl_port_config *c, struct cl_nic **out, char *err)
{
    struct grant g;
    struct port *port = calloc(1, sizeof *port);
    if (!port) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "out of memory for a port");
        return -ENOMEM;
    }
    port->nic.ops = &ops;
    port->nic.rx_stamped = 1;
    port->control_fd = port->stop_fd = port->joining_fd = port->doorbell = -1;
    port->timeout_ms = c->timeout_ms ? c->timeout_ms : DEFAULT_TIMEOUT_MS;
    port->reattach_ms = c->reattach_ms;
    port->on_change = c->on_change;
    port->arg = c->arg;
    port->socket_path = c->socket_path ? strdup(c->socket_path) : strdup("");
    pthread_mutex_init(&port->lock, NULL);
    int rc = fill_wishes(port, c, err);
    if (rc == 0)
        rc = port->socket_path ? request_grant(port, &g, err) : -ENOMEM;
    if (rc == 0)
        rc = adopt_grant(port, &g, err);
    if (rc == 0) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "cannot make the port's queues and its watcher");
        rc = make_queues(port);
    }
    if (rc == 0)
        rc = port_cores_new(port, err);
    if (rc == 0) {
        port->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        rc = port->stop_fd < 0 ? -errno : start_watcher(port);
    }
    if (rc < 0) {
        port_close(&port->nic);
        return rc;
    }
    *out = &port->nic;
    return 0;
}
