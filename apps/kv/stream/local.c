/* See local.h. One epoll set; a connection is in it for what it waits for: bytes, or room for its answers. What comes
 * is looked at first and taken off the socket when the connection has taken it, so nothing has to be kept here. */
#include "local.h"
#include "shown.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ROOM 65536
#define EVENTS 32
#define LOOK_MS                                                                                                        \
    250 /* between looks for idle connections and for what a watcher is to see; of a pause of the listener */
#define REJECTED "ERROR Too many open connections\r\n"

struct cl_kv_local {
    struct cl_kv_front *front;
    struct kv_side *side;
    int listener, set, wake;
    uint64_t listens_ns; /* paused: when it listens again */
    pthread_t thread;
    uint8_t room[ROOM];
};

static int fd_of(const struct kv_conn *c)
{
    return (int)(intptr_t)c->link;
}

static int64_t write_local(void *link, const void *data, int64_t len)
{
    ssize_t n;
    do
        n = send((int)(intptr_t)link, data, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    return n;
}

static void end(struct kv_conn *c)
{
    kv_shown_closed(c, c->kicked ? "idle_timeout" : "normal");
    close(fd_of(c)); /* which takes it out of the set */
    kv_front_close(c);
}

/* Wait for what it waits for, or end it. */
static void settle(struct cl_kv_local *l, struct kv_conn *c)
{
    struct epoll_event want = {.events = c->out.len ? EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (kv_conn_done(c) || epoll_ctl(l->set, EPOLL_CTL_MOD, fd_of(c), &want) != 0)
        end(c);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int watch_for(struct cl_kv_local *l, int *fd)
{
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = fd};
    return epoll_ctl(l->set, EPOLL_CTL_ADD, *fd, &want) ? -errno : 0;
}

/* Whoever wants in waits in the kernel's queue, and we do not spin beside it. */
static void pause_listener(struct cl_kv_local *l)
{
    epoll_ctl(l->set, EPOLL_CTL_DEL, l->listener, NULL);
    l->listens_ns = now_ns() + (uint64_t)LOOK_MS * 1000000;
    cl_store_relaxed(&l->front->paused, 1);
    cl_count(&l->front->pauses, 1);
}

static void listen_again(struct cl_kv_local *l)
{
    if (l->front->paused && now_ns() >= l->listens_ns && watch_for(l, &l->listener) == 0)
        cl_store_relaxed(&l->front->paused, 0);
}

static void accept_one(struct cl_kv_local *l)
{
    int fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        pause_listener(l);
    if (fd < 0)
        return;
    struct kv_conn *c = kv_front_open(l->front, KV_UNIX);
    if (!c) {
        (void)write_local((void *)(intptr_t)fd, REJECTED, sizeof(REJECTED) - 1);
        close(fd);
        return;
    }
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = c};
    c->write = write_local;
    c->link = (void *)(intptr_t)fd;
    c->last_s = l->side->thread->now_s;
    cl_store_relaxed(&c->state, KV_CONN_READ);
    kv_shown_opened(c);
    if (epoll_ctl(l->set, EPOLL_CTL_ADD, fd, &want) != 0)
        end(c);
}

static void read_some(struct cl_kv_local *l, struct kv_conn *c)
{
    ssize_t n = recv(fd_of(c), l->room, ROOM, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (n < 0)
            end(c);
        else if (kv_conn_end(c))
            end(c);
        else
            settle(l, c);
        return;
    }
    int64_t took = kv_conn_take(c, l->side, l->room, n);
    if (took > 0 && recv(fd_of(c), l->room, (size_t)took, MSG_DONTWAIT) != took)
        c->over = true;
    settle(l, c);
}

static void go_on(struct cl_kv_local *l, struct kv_conn *c)
{
    (void)kv_conn_go_on(c, l->side);
    settle(l, c);
}

/* What time asks of a connection. Returns whether it watches. */
static bool look_at(struct cl_kv_local *l, struct kv_conn *c)
{
    if (kv_conn_watches(c)) {
        kv_conn_show(c, l->side);
        settle(l, c);
        return true;
    }
    if (kv_front_idle(l->front, c, l->side->thread->now_s)) {
        kv_front_count_kick(l->front);
        c->kicked = true;
        end(c);
    }
    return false;
}

/* Returns how many connections watch. */
static uint32_t look_at_all(struct cl_kv_local *l)
{
    struct cl_kv_front *f = l->front;
    uint32_t watch = 0;
    for (uint32_t i = 0; i < cl_load_relaxed(&f->most); i++) {
        struct kv_conn *c = &f->conns[i];
        if (cl_load_relaxed(&c->state) != KV_CONN_CLOSED && cl_load_relaxed(&c->kind) == KV_UNIX)
            watch += look_at(l, c);
    }
    return watch;
}

/* One of the set is ready. False: it is the end. */
static bool serve_one(struct cl_kv_local *l, void *what)
{
    struct kv_conn *c = what;
    if (what == &l->wake)
        return false;
    if (what == &l->listener)
        accept_one(l);
    else if (c->out.len)
        go_on(l, c);
    else
        read_some(l, c);
    return true;
}

static void *run(void *arg)
{
    struct cl_kv_local *l = arg;
    struct epoll_event events[EVENTS];
    uint32_t watch = 0;
    for (;;) {
        bool looks = watch || l->front->config.idle_timeout_s || l->front->paused;
        int n = epoll_wait(l->set, events, EVENTS, looks ? LOOK_MS : -1);
        cl_kv_tick(l->side->thread);
        for (int i = 0; i < n; i++)
            if (!serve_one(l, events[i].data.ptr))
                return NULL;
        watch = look_at_all(l);
        listen_again(l);
    }
}

/* Bind the listener to the path. It has its mode before anybody can connect, whatever the process' umask. */
static int bind_to(int fd, const char *path, mode_t mode)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof(to.sun_path))
        return -EINVAL;
    memcpy(to.sun_path, path, strlen(path));
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        bool lives = probe >= 0 && (connect(probe, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EAGAIN);
        if (probe >= 0)
            close(probe);
        if (lives)
            return -EADDRINUSE;
        unlink(path);
    }
    if (fchmod(fd, mode) != 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        return -errno;
    if (chmod(path, mode) == 0 && listen(fd, 128) == 0)
        return 0;
    int rc = -errno;
    unlink(path);
    return rc;
}

static int begin(struct cl_kv_local *l)
{
    l->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    l->set = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC);
    if (l->listener < 0 || l->set < 0 || l->wake < 0)
        return -errno;
    int rc = watch_for(l, &l->listener);
    if (!rc)
        rc = watch_for(l, &l->wake);
    if (!rc)
        rc = bind_to(l->listener, l->front->path, (mode_t)l->front->config.path_mode);
    return rc;
}

/* Signals are for other threads. */
static int start(struct cl_kv_local *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = -pthread_create(&l->thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void close_all(struct cl_kv_local *l)
{
    const int fds[] = {l->listener, l->set, l->wake};
    for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(l);
}

int cl_kv_listen_local(struct cl_kv_front *f, struct cl_kv_local **out)
{
    if (!f->path || f->n_sides <= f->config.kthreads)
        return -EINVAL;
    struct cl_kv_local *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->front = f;
    l->side = kv_front_side(f, f->n_sides - 1);
    l->listener = l->set = l->wake = -1;
    int rc = begin(l);
    if (!rc && (rc = start(l)))
        unlink(f->path);
    if (rc)
        close_all(l);
    else
        *out = l;
    return rc;
}

void cl_kv_local_delete(struct cl_kv_local *l)
{
    if (!l)
        return;
    uint64_t one = 1;
    ssize_t n = write(l->wake, &one, sizeof(one)); /* of a counter at 0: it cannot fail */
    (void)n;
    pthread_join(l->thread, NULL);
    for (uint32_t i = 0; i < l->front->most; i++) {
        struct kv_conn *c = &l->front->conns[i];
        if (c->state != KV_CONN_CLOSED && c->kind == KV_UNIX)
            end(c);
    }
    unlink(l->front->path);
    close_all(l);
}
