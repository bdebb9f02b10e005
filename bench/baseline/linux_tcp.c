/* The servers: see linux_tcp.h. */
#include "linux_tcp.h"

#include "../harness/pinned.h"
#include "../../drivers/nic/tcpload/tcpload.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EVENTS 64
#define STOP_LOOK_MS 50 /* how often a blocked thread looks whether it should stop */
#define BACKLOG 4096
#define READ_BYTES (256 << 10)
#define WRITE_BYTES (128 << 10)
#define FDS 65536

struct cl_linux_tcp {
    struct cl_linux_tcp_config config;
    struct cl_linux_tcp_stats stats;
    int listener, epoll;
    uint32_t stop;    /* writer: cl_linux_tcp_stop; reader: the thread (relaxed: a flag alone) */
    uint32_t started; /* 0 not yet, 1 serving, 2 failed; the thread releases, start acquires */
    pthread_t thread;
    int rc;
    char err[256];
    uint8_t *buffer;  /* READ_BYTES */
    uint8_t *pattern; /* CL_TCPLOAD_PATTERN + WRITE_BYTES */
    uint8_t *numbers; /* [FDS] of connections, modulo CL_LINUX_TCP_FLOWS */
    uint64_t flow_bytes[CL_LINUX_TCP_FLOWS];
    uint16_t *places; /* [FDS] of a source's connections, by descriptor */
    bool *open;       /* [FDS] */
};

static int failed(struct cl_linux_tcp *s, const char *what)
{
    int code = errno;
    snprintf(s->err, sizeof s->err, "%s: %s", what, strerror(code));
    return -code;
}

/* Ten thousand connections take as many descriptors. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int watch(struct cl_linux_tcp *s, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.fd = fd};
    cl_count(&s->stats.syscalls, 1);
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e);
}

static int listen_at(struct cl_linux_tcp *s)
{
    const struct cl_linux_tcp_config *c = &s->config;
    if (c->netns_fd >= 0 && setns(c->netns_fd, CLONE_NEWNET) != 0)
        return failed(s, "cannot enter the network namespace");
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->listener < 0 || s->epoll < 0)
        return failed(s, "cannot open a TCP socket");
    int on = 1;
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (c->congestion && setsockopt(s->listener, IPPROTO_TCP, TCP_CONGESTION, c->congestion, strlen(c->congestion)))
        return failed(s, "cannot set the congestion control");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(c->port), .sin_addr.s_addr = htonl(c->ipv4)};
    if (bind(s->listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(s->listener, BACKLOG) != 0)
        return failed(s, "cannot listen");
    return watch(s, s->listener, EPOLLIN) ? failed(s, "cannot watch the listener") : 0;
}

static void end(struct cl_linux_tcp *s, int fd, bool well)
{
    cl_count(&s->stats.ended, 1);
    cl_count(&s->stats.failed, !well);
    cl_count(&s->stats.syscalls, 1);
    s->open[fd] = false;
    close(fd); /* which takes it out of the epoll set */
}

static void accept_all(struct cl_linux_tcp *s)
{
    for (unsigned i = 0; i < EVENTS; i++) {
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;
        cl_count(&s->stats.syscalls, 1);
        int fd = accept4(s->listener, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
        if (fd < 0)
            return;
        cl_count(&s->stats.accepted, 1);
        cl_count(&s->stats.syscalls, 1);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        uint32_t events = EPOLLIN | (s->config.kind == CL_LINUX_TCP_SOURCE ? EPOLLOUT : 0);
        if (fd >= FDS || watch(s, fd, events)) {
            cl_count(&s->stats.failed, 1);
            close(fd);
            continue;
        }
        s->open[fd] = true;
        s->numbers[fd] = (uint8_t)((s->stats.accepted - 1) % CL_LINUX_TCP_FLOWS);
        s->places[fd] = (uint16_t)cl_tcpload_place(ntohs(peer.sin_port));
    }
}

/* By syscall(), as linux_udp.c does: recv() and send() are cancellation points, which cost something. */
static ssize_t put(struct cl_linux_tcp *s, int fd, const void *data, size_t len)
{
    cl_count(&s->stats.syscalls, 1);
    ssize_t rc = syscall(SYS_sendto, fd, data, len, MSG_NOSIGNAL, NULL, 0);
    if (rc > 0)
        cl_count(&s->stats.bytes_out, (uint64_t)rc);
    return rc;
}

static void read_some(struct cl_linux_tcp *s, int fd)
{
    cl_count(&s->stats.syscalls, 1);
    ssize_t got = syscall(SYS_recvfrom, fd, s->buffer, READ_BYTES, 0, NULL, NULL);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            end(s, fd, got == 0);
        return;
    }
    cl_count(&s->stats.received, 1);
    cl_count(&s->stats.bytes_in, (uint64_t)got);
    cl_count(&s->flow_bytes[s->numbers[fd]], (uint64_t)got);
    /* What is asked is shorter than a socket's buffer, and one request at a time: a short write is none of ours. */
    if (s->config.kind == CL_LINUX_TCP_ECHO && put(s, fd, s->buffer, (size_t)got) != got)
        end(s, fd, false);
}

static void write_some(struct cl_linux_tcp *s, int fd)
{
    ssize_t done = put(s, fd, s->pattern + s->places[fd], WRITE_BYTES);
    if (done > 0)
        s->places[fd] = (uint16_t)((s->places[fd] + (size_t)done) % CL_TCPLOAD_PATTERN);
    else if (done < 0 && errno != EAGAIN)
        end(s, fd, false);
}

static void serve_once(struct cl_linux_tcp *s, struct epoll_event *events, int timeout_ms)
{
    cl_count(&s->stats.syscalls, 1);
    cl_count(&s->stats.looks, 1);
    int n = epoll_wait(s->epoll, events, EVENTS, timeout_ms);
    cl_count(&s->stats.empty, n <= 0);
    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd;
        if (fd == s->listener) {
            accept_all(s);
            continue;
        }
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            read_some(s, fd);
        if ((events[i].events & EPOLLOUT) && s->open[fd])
            write_some(s, fd);
    }
}

static void *serve(void *arg)
{
    struct cl_linux_tcp *s = arg;
    struct epoll_event events[EVENTS];
    s->rc = listen_at(s);
    cl_store_release(&s->started, s->rc ? 2u : 1u); /* release: the reason is there for whoever sees the flag */
    int timeout_ms = s->config.poll == CL_LINUX_SPIN ? 0 : STOP_LOOK_MS;
    while (!s->rc && !cl_load_relaxed(&s->stop))
        serve_once(s, events, timeout_ms);
    return NULL;
}

static void destroy(struct cl_linux_tcp *s)
{
    for (int fd = 0; s->open && fd < FDS; fd++)
        if (s->open[fd])
            close(fd);
    if (s->listener >= 0)
        close(s->listener);
    if (s->epoll >= 0)
        close(s->epoll);
    free(s->buffer);
    free(s->pattern);
    free(s->numbers);
    free(s->places);
    free(s->open);
    free(s);
}

static int start_thread(struct cl_linux_tcp *s, char *err)
{
    int rc;
    if (s->config.cpu >= 0) {
        rc = cl_bench_start_pinned(&s->thread, s->config.cpu, serve, s, err);
    } else {
        rc = -pthread_create(&s->thread, NULL, serve, s);
        if (rc)
            snprintf(err, 256, "cannot start a thread: %s", strerror(-rc));
    }
    if (rc)
        return rc;
    while (!cl_load_acquire(&s->started)) /* acquire: see serve */
        usleep(100);
    if (s->rc) {
        pthread_join(s->thread, NULL);
        memcpy(err, s->err, 256);
    }
    return s->rc;
}

int cl_linux_tcp_start(const struct cl_linux_tcp_config *config, struct cl_linux_tcp **out, char err[256])
{
    struct cl_linux_tcp *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct cl_linux_tcp){.config = *config, .listener = -1, .epoll = -1};
        s->buffer = malloc(READ_BYTES);
        s->pattern = cl_linux_tcp_pattern(WRITE_BYTES);
        s->numbers = calloc(FDS, sizeof *s->numbers);
        s->places = calloc(FDS, sizeof *s->places);
        s->open = calloc(FDS, sizeof *s->open);
    }
    if (!s || !s->buffer || !s->pattern || !s->numbers || !s->places || !s->open) {
        snprintf(err, 256, "out of memory");
        if (s)
            destroy(s);
        return -ENOMEM;
    }
    raise_limit();
    int rc = start_thread(s, err);
    if (rc) {
        destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void cl_linux_tcp_stop(struct cl_linux_tcp *s)
{
    if (!s)
        return;
    cl_store_relaxed(&s->stop, 1);
    pthread_join(s->thread, NULL);
    destroy(s);
}

void cl_linux_tcp_stats(const struct cl_linux_tcp *s, struct cl_linux_tcp_stats *out)
{
    const uint64_t *from = (const uint64_t *)&s->stats;
    for (unsigned i = 0; i < sizeof *out / 8; i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}

void cl_linux_tcp_flow_bytes(const struct cl_linux_tcp *s, uint64_t *out)
{
    for (unsigned i = 0; i < CL_LINUX_TCP_FLOWS; i++)
        out[i] = cl_load_relaxed(&s->flow_bytes[i]);
}

uint8_t *cl_linux_tcp_pattern(uint32_t room)
{
    uint8_t *bytes = malloc(CL_TCPLOAD_PATTERN + room);
    for (uint32_t at = 0; bytes && at < CL_TCPLOAD_PATTERN + room; at += CL_TCPLOAD_PATTERN)
        memcpy(bytes + at, cl_tcpload_pattern(), cl_min((uint32_t)CL_TCPLOAD_PATTERN, CL_TCPLOAD_PATTERN + room - at));
    return bytes;
}
