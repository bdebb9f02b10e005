/* See reference.h. */
#include "reference.h"
#include "../sockload/came.h"
#include "../sockload/sockload.h"
#include <corelane/runtime/clock.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAITING_MOST (1u << 17)
#define PEERS_MOST 16384u
#define BUFFER 65536u
#define REPLY_MOST (1u << 20)
#define EVENTS 64
#define BURST 32
#define TICK_NS 1000

/* A request that waits for its answer's time. */
struct waiting {
    uint64_t due, came; /* stamps */
    uint64_t number;    /* of what is due at the same time, who came first is answered first */
    struct cl_sockload_head head;
    struct sockaddr_in from; /* UDP */
    uint32_t peer, turn;     /* TCP: which connection; of that descriptor the how manieth */
};

struct peer {
    int fd;
    uint32_t turn;
    uint32_t len;
    uint8_t *in;
    uint8_t *out;
    uint32_t out_len, out_room;
};

struct cl_reference {
    uint32_t udp;
    int cpu, socket, epoll;
    uint32_t port;
    pthread_t thread;
    uint32_t stop, clear; /* writer: the caller; reader: the thread */
    const struct cl_clock *clock;
    struct cl_hist *kept, *since_due;
    struct cl_reference_counts counts;
    struct waiting *heap;
    uint64_t numbers; /* requests so far */
    uint32_t n;
    struct peer *peers;
    uint8_t *reply;
};

/* A binary heap, the earliest first. */

static bool before(const struct waiting *a, const struct waiting *b)
{
    return a->due < b->due || (a->due == b->due && a->number < b->number);
}

static bool push(struct cl_reference *r, const struct waiting *w)
{
    if (r->n == WAITING_MOST)
        return false;
    uint32_t i = r->n++;
    for (; i && before(w, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = *w;
    return true;
}

static struct waiting pop(struct cl_reference *r)
{
    struct waiting first = r->heap[0], last = r->heap[--r->n];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < r->n; i = child) {
        child += child + 1 < r->n && before(&r->heap[child + 1], &r->heap[child]);
        if (!before(&r->heap[child], &last))
            break;
        r->heap[i] = r->heap[child];
    }
    r->heap[i] = last;
    return first;
}

static void close_peer(struct cl_reference *r, struct peer *p)
{
    (void)r;
    close(p->fd);
    free(p->in);
    free(p->out);
    *p = (struct peer){.fd = -1, .turn = p->turn + 1};
}

static bool flush(struct peer *p)
{
    ssize_t n = send(p->fd, p->out, p->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN;
    p->out_len -= (uint32_t)n;
    memmove(p->out, p->out + n, p->out_len);
    return true;
}

static bool send_tcp(struct cl_reference *r, const struct waiting *w)
{
    struct peer *p = &r->peers[w->peer];
    if (p->fd < 0 || p->turn != w->turn)
        return false;
    uint32_t n = w->head.reply_bytes, sent = 0;
    if (!p->out_len) {
        ssize_t took = send(p->fd, r->reply, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent = took > 0 ? (uint32_t)took : 0;
        if (sent == n)
            return true;
    }
    if (p->out_len + n - sent > p->out_room) {
        uint32_t room = 2 * (p->out_len + n);
        uint8_t *grown = room < 64 * REPLY_MOST ? realloc(p->out, room) : NULL;
        if (!grown) {
            close_peer(r, p);
            return false;
        }
        p->out = grown;
        p->out_room = room;
    }
    memcpy(p->out + p->out_len, r->reply + sent, n - sent);
    p->out_len += n - sent;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = w->peer};
    epoll_ctl(r->epoll, EPOLL_CTL_MOD, p->fd, &event);
    return true;
}

static void answer(struct cl_reference *r, const struct waiting *w)
{
    memcpy(r->reply, &w->head, sizeof(w->head)); /* what follows is letters all the time */
    uint64_t now = cl_tsc();
    uint64_t kept = (uint64_t)cl_ticks_to_ns(r->clock, (int64_t)(now - w->came));
    bool sent;
    if (r->udp) {
        ssize_t n = sendto(r->socket, r->reply, w->head.reply_bytes, MSG_DONTWAIT, (const struct sockaddr *)&w->from,
                           sizeof(w->from));
        sent = n >= 0;
    } else {
        sent = send_tcp(r, w);
    }
    if (!sent) {
        cl_count(&r->counts.refused, 1);
        return;
    }
    cl_count(&r->counts.answers, 1);
    cl_count(&r->counts.late, kept > w->head.hold_ns + TICK_NS);
    cl_hist_record(r->kept, kept);
    if (w->head.due && w->head.due <= now)
        cl_hist_record(r->since_due, (uint64_t)cl_ticks_to_ns(r->clock, (int64_t)(now - w->head.due)));
}

static void accept_request(struct cl_reference *r, struct waiting *w)
{
    cl_count(&r->counts.requests, 1);
    w->number = r->numbers++;
    w->due = w->came + (uint64_t)cl_ns_to_ticks(r->clock, (int64_t)w->head.hold_ns);
    if (w->head.hold_ns == 0)
        answer(r, w);
    else if (!push(r, w))
        cl_count(&r->counts.refused, 1);
}

static bool sane(const struct cl_sockload_head *h, uint32_t most)
{
    uint32_t least = sizeof(*h);
    return h->bytes >= least && h->bytes <= most && h->reply_bytes >= least && h->reply_bytes <= REPLY_MOST &&
           h->hold_ns < 100000000000ull;
}

/* What a socket has, when that came, and from whom. */
static ssize_t receive(const struct cl_reference *r, int fd, uint8_t *data, size_t room, struct waiting *w)
{
    union cl_came control;
    struct iovec part = {data, room};
    struct msghdr m = {.msg_name = &w->from,
                       .msg_namelen = sizeof(w->from),
                       .msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    if (n > 0)
        w->came = cl_came_at(&m, r->clock);
    return n;
}

static void read_udp(struct cl_reference *r)
{
    uint8_t buffer[BUFFER];
    for (unsigned i = 0; i < BURST; i++) {
        struct waiting w = {0};
        ssize_t n = receive(r, r->socket, buffer, sizeof(buffer), &w);
        if (n < 0)
            return;
        if ((size_t)n < sizeof(w.head)) {
            cl_count(&r->counts.refused, 1);
            continue;
        }
        memcpy(&w.head, buffer, sizeof(w.head));
        if (sane(&w.head, BUFFER) && w.head.bytes == (size_t)n && w.head.reply_bytes < BUFFER)
            accept_request(r, &w);
        else
            cl_count(&r->counts.refused, 1);
    }
}

static void read_tcp(struct cl_reference *r, struct peer *p)
{
    struct waiting all = {.peer = (uint32_t)(p - r->peers), .turn = p->turn};
    ssize_t n = receive(r, p->fd, p->in + p->len, BUFFER - p->len, &all);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        close_peer(r, p);
        return;
    }
    p->len += (uint32_t)n;
    uint32_t at = 0;
    while (p->len - at >= sizeof(struct cl_sockload_head)) {
        struct waiting w = all;
        memcpy(&w.head, p->in + at, sizeof(w.head));
        if (!sane(&w.head, BUFFER)) {
            cl_count(&r->counts.refused, 1);
            close_peer(r, p);
            return;
        }
        if (p->len - at < w.head.bytes)
            break;
        at += w.head.bytes;
        accept_request(r, &w);
        if (p->fd < 0)
            return;
    }
    p->len -= at;
    memmove(p->in, p->in + at, p->len);
}

static void accept_peer(struct cl_reference *r)
{
    int one = 1, fd = accept4(r->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    uint32_t i = 0;
    while (i < PEERS_MOST && r->peers[i].fd >= 0)
        i++;
    uint8_t *in = i < PEERS_MOST ? malloc(BUFFER) : NULL;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
    if (!in || epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &event)) {
        free(in);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    r->peers[i] = (struct peer){.fd = fd, .turn = r->peers[i].turn + 1, .in = in};
    cl_count(&r->counts.connections, 1);
}

static void handle(struct cl_reference *r, const struct epoll_event *event)
{
    if (event->data.u32 == UINT32_MAX) {
        accept_peer(r);
        return;
    }
    struct peer *p = &r->peers[event->data.u32];
    if (p->fd >= 0 && event->events & EPOLLOUT) {
        struct epoll_event in = {.events = EPOLLIN, .data.u32 = event->data.u32};
        if (!flush(p))
            close_peer(r, p);
        else if (!p->out_len)
            epoll_ctl(r->epoll, EPOLL_CTL_MOD, p->fd, &in);
    }
    if (p->fd >= 0 && event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        read_tcp(r, p);
}

/* What is due, some of it. */
static void answer_due(struct cl_reference *r)
{
    for (unsigned i = 0; i < BURST && r->n && r->heap[0].due <= cl_tsc(); i++) {
        struct waiting w = pop(r);
        answer(r, &w);
    }
}

/* What has come. Whether there was anything. */
static bool look(struct cl_reference *r)
{
    struct epoll_event events[EVENTS];
    uint64_t before = r->counts.requests;
    if (r->udp) {
        read_udp(r);
        return r->counts.requests != before;
    }
    int n = epoll_wait(r->epoll, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        handle(r, &events[i]);
        answer_due(r); /* an answer has its time; what comes has its stamp already */
    }
    return n > 0;
}

static void *serve(void *arg)
{
    struct cl_reference *r = arg;
    while (!cl_load_relaxed(&r->stop)) { /* relaxed: a wish; the thread is joined */
        answer_due(r);
        bool busy = look(r);
        if (cl_load_acquire(&r->clear)) { /* acquire and release: the caller reads what is cleared afterwards */
            cl_hist_reset(r->kept);
            cl_hist_reset(r->since_due);
            memset(&r->counts, 0, sizeof(r->counts));
            cl_store_release(&r->clear, 0);
        }
        if (!busy)
            sched_yield(); /* on a machine with one core the client would else wait for the tick */
    }
    return NULL;
}

static int open_socket(struct cl_reference *r, uint32_t port, char *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(0x7f000001)}};
    socklen_t len = sizeof(at);
    int one = 1, room = 8 << 20;
    r->socket = socket(AF_INET, (r->udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r->socket < 0)
        return -errno;
    if (r->udp) {
        setsockopt(r->socket, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
        setsockopt(r->socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    } else {
        setsockopt(r->socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    }
    cl_came_ask(r->socket);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UINT32_MAX};
    int rc = bind(r->socket, (struct sockaddr *)&at, sizeof(at)) ? -errno : 0;
    rc = rc || getsockname(r->socket, (struct sockaddr *)&at, &len) == 0 ? rc : -errno;
    if (!rc && !r->udp)
        rc = listen(r->socket, 4096) || epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->socket, &event) ? -errno : 0;
    r->port = ntohs(at.sin_port);
    if (rc)
        snprintf(err, 256, "cannot listen on port %u of 127.0.0.1: %s", port, strerror(-rc));
    return rc;
}

static int start_thread(struct cl_reference *r)
{
    pthread_attr_t attr;
    cpu_set_t set;
    pthread_attr_init(&attr);
    CPU_ZERO(&set);
    if (r->cpu >= 0) {
        CPU_SET(r->cpu, &set);
        pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
    }
    int rc = pthread_create(&r->thread, &attr, serve, r);
    pthread_attr_destroy(&attr);
    return -rc;
}

static void free_all(struct cl_reference *r)
{
    for (uint32_t i = 0; r->peers && i < PEERS_MOST; i++)
        if (r->peers[i].fd >= 0)
            close_peer(r, &r->peers[i]);
    if (r->socket >= 0)
        close(r->socket);
    if (r->epoll >= 0)
        close(r->epoll);
    cl_hist_delete(r->kept);
    cl_hist_delete(r->since_due);
    free(r->heap);
    free(r->peers);
    free(r->reply);
    free(r);
}

int cl_reference_start(uint32_t udp, uint32_t port, int cpu, struct cl_reference **out, char *err)
{
    struct cl_reference *r = calloc(1, sizeof(*r));
    snprintf(err, 256, "not enough memory");
    if (!r)
        return -ENOMEM;
    r->udp = udp;
    r->cpu = cpu;
    r->socket = -1;
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->clock = cl_clock_default();
    r->kept = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS);
    r->since_due = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS);
    r->heap = calloc(WAITING_MOST, sizeof(*r->heap));
    r->peers = calloc(PEERS_MOST, sizeof(*r->peers));
    r->reply = malloc(REPLY_MOST);
    int rc = r->kept && r->since_due && r->heap && r->peers && r->reply ? 0 : -ENOMEM;
    for (uint32_t i = 0; !rc && i < PEERS_MOST; i++)
        r->peers[i].fd = -1;
    if (!rc) {
        memset(r->reply, 'e', REPLY_MOST);
        rc = open_socket(r, port, err);
    }
    rc = rc ? rc : start_thread(r);
    if (rc) {
        free_all(r);
        return rc;
    }
    *out = r;
    return 0;
}

uint32_t cl_reference_port(const struct cl_reference *r)
{
    return r->port;
}

void cl_reference_clear(struct cl_reference *r)
{
    cl_store_release(&r->clear, 1);
    while (cl_load_acquire(&r->clear))
        sched_yield();
}

const struct cl_hist *cl_reference_kept(const struct cl_reference *r)
{
    return r->kept;
}

const struct cl_hist *cl_reference_since_due(const struct cl_reference *r)
{
    return r->since_due;
}

void cl_reference_counts(const struct cl_reference *r, struct cl_reference_counts *out)
{
    const uint64_t *from = (const uint64_t *)&r->counts;
    for (unsigned i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}

void cl_reference_stop(struct cl_reference *r)
{
    if (!r)
        return;
    cl_store_relaxed(&r->stop, 1);
    pthread_join(r->thread, NULL);
    free_all(r);
}
