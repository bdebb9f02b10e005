/* See linux_udp.h. */
#include "linux_udp.h"

#include "../../apps/spin.h"
#include "../harness/pinned.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define STOP_LOOK_US 50000 /* how often a blocked thread looks whether it should stop */

/* One request's place. The handler gets `req`, which is first, so that cl_linux_udp_reply_more finds the rest. */
struct place {
    struct cl_udp_req req;
    struct cl_linux_udp *server;
    struct sockaddr_in peer;
    struct iovec in, out;
    uint8_t *request, *reply;
};

struct cl_linux_udp {
    struct cl_linux_udp_config config;
    struct cl_linux_udp_stats stats;
    int fd;
    uint16_t port;
    uint32_t stop; /* writer: cl_linux_udp_stop; reader: the thread (relaxed: a flag alone) */
    pthread_t thread;
    uint32_t started; /* 0 not yet, 1 serving, 2 failed; the thread releases, start acquires */
    int rc;
    char err[256];
    uint8_t *memory;
    size_t memory_bytes;
    struct place place[CL_LINUX_BATCH_MAX];
    struct mmsghdr rx[CL_LINUX_BATCH_MAX], tx[CL_LINUX_BATCH_MAX];
};

static int failed(struct cl_linux_udp *s, const char *what)
{
    int code = errno;
    snprintf(s->err, sizeof(s->err), "%s: %s", what, strerror(code));
    return -code;
}

static int open_socket(struct cl_linux_udp *s)
{
    const struct cl_linux_udp_config *c = &s->config;
    if (c->netns_fd >= 0 && setns(c->netns_fd, CLONE_NEWNET) != 0)
        return failed(s, "cannot enter the network namespace");
    s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return failed(s, "cannot open a UDP socket");
    int bytes = c->socket_bytes ? (int)c->socket_bytes : 4 << 20;
    int force = setsockopt(s->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    if (force != 0) /* without CAP_NET_ADMIN: as much as net.core.rmem_max allows */
        setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    setsockopt(s->fd, SOL_SOCKET, force ? SO_SNDBUF : SO_SNDBUFFORCE, &bytes, sizeof(bytes));
    struct timeval look = {0, STOP_LOOK_US};
    setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof(look));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(c->port), .sin_addr.s_addr = htonl(c->ipv4)};
    socklen_t len = sizeof(at);
    if (bind(s->fd, (struct sockaddr *)&at, len) != 0 || getsockname(s->fd, (struct sockaddr *)&at, &len) != 0)
        return failed(s, "cannot bind the UDP socket");
    s->port = ntohs(at.sin_port);
    return 0;
}

static void echo(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < n; i++) {
        reqs[i].reply_len = cl_min(reqs[i].len, reqs[i].room);
        memcpy(reqs[i].reply, reqs[i].data, (size_t)reqs[i].reply_len);
    }
}

static void ready_place(struct cl_linux_udp *s, struct place *p, int64_t len)
{
    p->req = (struct cl_udp_req){.data = p->request,
                                 .len = len,
                                 .reply = p->reply,
                                 .room = s->config.datagram_bytes,
                                 .peer = {ntohl(p->peer.sin_addr.s_addr), ntohs(p->peer.sin_port), 0},
                                 .port = s->port};
}

static void call(struct cl_linux_udp *s, struct cl_udp_req *reqs, unsigned n)
{
    (s->config.handler ? s->config.handler : echo)(reqs, n, s->config.arg);
    cl_count(&s->stats.received, n); /* relaxed: one writer */
}

/* The handler takes an array of requests; their places hold what is ours beside each. */
static void take_back(struct cl_linux_udp *s, const struct cl_udp_req *req, struct place *p)
{
    p->req = *req;
    if (req->reply_len <= 0)
        cl_count(req->reply_len ? &s->stats.failed : &s->stats.silent, 1);
}

static void count_look(struct cl_linux_udp *s, bool empty)
{
    cl_count(&s->stats.looks, 1);
    cl_count(&s->stats.empty, empty);
}

/* By syscall(), as drivers/nic/af_xdp/xsk.c does: recvfrom() and sendto() are cancellation points, which cost
 * something. */
static void serve_one(struct cl_linux_udp *s, int flags)
{
    struct place *p = &s->place[0];
    socklen_t len = sizeof(p->peer);
    cl_count(&s->stats.syscalls, 1);
    ssize_t got = syscall(SYS_recvfrom, s->fd, p->request, s->config.datagram_bytes, flags, &p->peer, &len);
    count_look(s, got < 0);
    if (got < 0)
        return;
    ready_place(s, p, got);
    call(s, &p->req, 1);
    take_back(s, &p->req, p);
    if (p->req.reply_len > 0) {
        cl_count(&s->stats.syscalls, 1);
        ssize_t put = syscall(SYS_sendto, s->fd, p->req.reply, p->req.reply_len, 0, &p->peer, len);
        cl_count(put == p->req.reply_len ? &s->stats.answered : &s->stats.failed, 1);
    }
}

/* Send the answers of a batch; what the kernel refuses is counted and left out. */
static void send_batch(struct cl_linux_udp *s, unsigned n)
{
    unsigned done = 0;
    while (done < n) {
        int put = sendmmsg(s->fd, s->tx + done, n - done, 0);
        cl_count(&s->stats.syscalls, 1);
        if (put > 0)
            cl_count(&s->stats.answered, (unsigned)put);
        else
            cl_count(&s->stats.failed, 1);
        done += put > 0 ? (unsigned)put : 1;
    }
}

static void serve_batch(struct cl_linux_udp *s, int flags)
{
    struct cl_udp_req reqs[CL_LINUX_BATCH_MAX];
    unsigned batch = s->config.batch, answers = 0;
    for (unsigned i = 0; i < batch; i++)
        s->rx[i].msg_hdr.msg_namelen = sizeof(struct sockaddr_in);
    cl_count(&s->stats.syscalls, 1);
    int got = recvmmsg(s->fd, s->rx, batch, flags ? flags : MSG_WAITFORONE, NULL);
    count_look(s, got <= 0);
    if (got <= 0)
        return;
    for (int i = 0; i < got; i++) {
        ready_place(s, &s->place[i], s->rx[i].msg_len);
        reqs[i] = s->place[i].req;
        reqs[i].socket = (struct cl_udp_socket *)&s->place[i]; /* how reply_more finds the place */
    }
    call(s, reqs, (unsigned)got);
    for (int i = 0; i < got; i++) {
        struct place *p = &s->place[i];
        take_back(s, &reqs[i], p);
        if (reqs[i].reply_len <= 0)
            continue;
        p->out = (struct iovec){reqs[i].reply, (size_t)reqs[i].reply_len};
        s->tx[answers].msg_hdr =
            (struct msghdr){.msg_name = &p->peer, .msg_namelen = sizeof(p->peer), .msg_iov = &p->out, .msg_iovlen = 1};
        answers++;
    }
    send_batch(s, answers);
}

int cl_linux_udp_reply_more(struct cl_udp_req *req, int64_t used)
{
    struct place *p = req->socket ? (struct place *)req->socket : (struct place *)req;
    struct cl_linux_udp *s = p->server;
    if (used < 1 || used > req->room)
        return -EINVAL;
    cl_count(&s->stats.syscalls, 1);
    ssize_t put = sendto(s->fd, req->reply, (size_t)used, 0, (struct sockaddr *)&p->peer, sizeof(p->peer));
    if (put != used)
        return -ENOBUFS;
    cl_count(&s->stats.extra, 1);
    return 0;
}

static void *serve(void *arg)
{
    struct cl_linux_udp *s = arg;
    s->rc = open_socket(s);
    /* Release: port or reason are there for whoever sees the flag. */
    cl_store_release(&s->started, s->rc ? 2u : 1u);
    if (s->rc)
        return NULL;
    int flags = s->config.poll == CL_LINUX_SPIN ? MSG_DONTWAIT : 0;
    while (!cl_load_relaxed(&s->stop)) {
        /* No pause between two looks: a datagram that comes meanwhile would wait for its end. */
        if (s->config.batch == 1)
            serve_one(s, flags);
        else
            serve_batch(s, flags);
    }
    return NULL;
}

static int make_places(struct cl_linux_udp *s)
{
    size_t each = s->config.datagram_bytes;
    s->memory_bytes = 2 * each * s->config.batch;
    s->memory = mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->memory == MAP_FAILED)
        return failed(s, "no memory for the datagrams");
    for (unsigned i = 0; i < s->config.batch; i++) {
        struct place *p = &s->place[i];
        p->server = s;
        p->request = s->memory + 2 * i * each;
        p->reply = p->request + each;
        p->in = (struct iovec){p->request, each};
        s->rx[i].msg_hdr =
            (struct msghdr){.msg_name = &p->peer, .msg_namelen = sizeof(p->peer), .msg_iov = &p->in, .msg_iovlen = 1};
    }
    return 0;
}

static int start_thread(struct cl_linux_udp *s, char *err)
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

static void destroy(struct cl_linux_udp *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->memory && s->memory != MAP_FAILED)
        munmap(s->memory, s->memory_bytes);
    free(s);
}

int cl_linux_udp_start(const struct cl_linux_udp_config *config, struct cl_linux_udp **out, char err[256])
{
    if (config->batch < 1 || config->batch > CL_LINUX_BATCH_MAX || config->poll > CL_LINUX_SPIN ||
        config->datagram_bytes > 65536) {
        snprintf(err, 256, "batch must be from 1 to %d, poll 0 or 1, datagram_bytes at most 65536", CL_LINUX_BATCH_MAX);
        return -EINVAL;
    }
    struct cl_linux_udp *s = calloc(1, sizeof(*s));
    if (!s) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    s->config = *config;
    s->fd = -1;
    if (!s->config.datagram_bytes)
        s->config.datagram_bytes = 2048;
    int rc = make_places(s);
    if (rc)
        memcpy(err, s->err, 256);
    else
        rc = start_thread(s, err);
    if (rc) {
        destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void cl_linux_udp_stop(struct cl_linux_udp *s)
{
    if (!s)
        return;
    cl_store_relaxed(&s->stop, 1);
    pthread_join(s->thread, NULL);
    destroy(s);
}

uint16_t cl_linux_udp_port(const struct cl_linux_udp *s)
{
    return s->port;
}

void cl_linux_udp_stats(const struct cl_linux_udp *s, struct cl_linux_udp_stats *out)
{
    const uint64_t *from = (const uint64_t *)&s->stats;
    for (unsigned i = 0; i < sizeof(*out) / 8; i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}

void cl_linux_udp_spin(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    for (unsigned i = 0; i < n; i++)
        reqs[i].reply_len = cl_spinner_handler(reqs[i].data, reqs[i].len, reqs[i].reply, reqs[i].room, arg);
}
