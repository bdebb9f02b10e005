/* The client: see linux_tcp.h. Connections that are idle are asked in turn. */
#include "linux_tcp.h"

#include "../harness/pinned.h"
#include "../../drivers/nic/tcpload/tcpload.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 64
#define GAPS 65536 /* drawn beforehand, and used again */
#define LATE_NS 10000
#define BULK_BYTES (128 << 10)
#define BULK_WAIT_MS 10

struct conn {
    int fd;
    uint32_t got;
    uint64_t intended_ns; /* 0: nothing is under way */
    uint16_t out_place, in_place;
    bool spoiled, measured;
};

struct client {
    const struct cl_linux_tcp_client_config *config;
    struct cl_hist *latency;
    struct cl_linux_tcp_result *out;
    struct conn *conns;
    uint32_t *idle; /* ring of connections */
    uint32_t idle_head, idle_tail;
    double *gaps;
    double due_ns; /* of the next request */
    uint32_t at;
    uint64_t begin_ns, from_ns, end_ns; /* warm-up, measured time */
    uint32_t under_way;
    uint8_t *pattern; /* BULK_BYTES of it from any place on */
    uint8_t *buffer;  /* BULK_BYTES */
    int epoll;
    int rc;
    char *err;
};

static int failed(struct client *c, const char *what)
{
    int code = errno;
    snprintf(c->err, 256, "%s: %s", what, strerror(code));
    return c->rc = -code;
}

static int connect_one(struct client *c, struct conn *conn, uint32_t index)
{
    const struct cl_linux_tcp_client_config *config = c->config;
    const char *congestion = config->congestion;
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(config->port), .sin_addr.s_addr = htonl(config->ipv4)};
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    int on = 1;
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->fd < 0)
        return failed(c, "cannot open a TCP socket");
    if (congestion && setsockopt(conn->fd, IPPROTO_TCP, TCP_CONGESTION, congestion, strlen(congestion)))
        return failed(c, "cannot set the congestion control");
    if (connect(conn->fd, (struct sockaddr *)&at, sizeof at) || getsockname(conn->fd, (struct sockaddr *)&own, &len))
        return failed(c, "cannot connect");
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    conn->out_place = conn->in_place = (uint16_t)cl_tcpload_place(ntohs(own.sin_port));
    struct epoll_event e = {.events = config->traffic == CL_LINUX_TCP_SEND ? EPOLLOUT : EPOLLIN, .data.u32 = index};
    if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, conn->fd, &e))
        return failed(c, "cannot watch a connection");
    c->idle[c->idle_tail++ % config->connections] = index;
    return 0;
}

static void draw_next(struct client *c)
{
    c->due_ns += c->gaps[c->at++ % GAPS] * 1e9 / c->config->rate;
}

/* Send the request that is due next on the connection that has been idle longest. */
static void ask(struct client *c, uint64_t now)
{
    bool closed = c->config->rate <= 0;
    struct conn *conn = &c->conns[c->idle[c->idle_head++ % c->config->connections]];
    uint64_t intended = closed ? now : (uint64_t)c->due_ns;
    uint32_t len = c->config->request_bytes;
    conn->intended_ns = intended;
    conn->got = 0;
    conn->measured = intended >= c->from_ns && intended < c->end_ns;
    if (!closed)
        draw_next(c);
    if (conn->measured) {
        c->out->offered++;
        c->out->sent++;
        c->out->late += now - intended > LATE_NS;
    }
    c->under_way++;
    if (send(conn->fd, cl_tcpload_pattern() + conn->out_place, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
        conn->spoiled = true; /* never answered */
    conn->out_place = (uint16_t)((conn->out_place + len) % CL_TCPLOAD_PATTERN);
}

static void answered(struct client *c, struct conn *conn, uint64_t now)
{
    c->under_way--;
    c->idle[c->idle_tail++ % c->config->connections] = (uint32_t)(conn - c->conns);
    if (conn->measured && !conn->spoiled) {
        c->out->answered++;
        c->out->last_ns = now;
        cl_hist_record(c->latency, now - conn->intended_ns);
    }
    conn->intended_ns = 0;
}

static void take(struct client *c, struct conn *conn)
{
    const uint8_t *bytes = c->buffer;
    ssize_t got = recv(conn->fd, c->buffer, BULK_BYTES, MSG_DONTWAIT);
    if (got <= 0)
        return;
    uint64_t now = cl_bench_wall_ns();
    bool right = memcmp(bytes, c->pattern + conn->in_place, (size_t)got) == 0;
    conn->in_place = (uint16_t)((conn->in_place + (size_t)got) % CL_TCPLOAD_PATTERN);
    conn->got += (uint32_t)got;
    if (c->config->traffic == CL_LINUX_TCP_ASK)
        right = right && conn->intended_ns && conn->got <= c->config->request_bytes;
    if (!right) {
        c->out->wrong++;
        conn->spoiled = true;
    } else if (now >= c->from_ns && now < c->end_ns) {
        c->out->bytes_in += (uint64_t)got;
    }
    if (c->config->traffic == CL_LINUX_TCP_ASK && conn->intended_ns && conn->got >= c->config->request_bytes)
        answered(c, conn, now);
}

static void put(struct client *c, struct conn *conn)
{
    ssize_t done = send(conn->fd, c->pattern + conn->out_place, BULK_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done <= 0)
        return;
    conn->out_place = (uint16_t)((conn->out_place + (size_t)done) % CL_TCPLOAD_PATTERN);
    c->out->bytes_out += cl_bench_wall_ns() >= c->from_ns ? (uint64_t)done : 0;
}

static void look(struct client *c, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(c->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (c->config->traffic == CL_LINUX_TCP_SEND)
            put(c, &c->conns[events[i].data.u32]);
        else
            take(c, &c->conns[events[i].data.u32]);
    }
}

static bool due(const struct client *c, uint64_t now)
{
    if (c->idle_head == c->idle_tail || now >= c->end_ns + c->config->drain_ns)
        return false;
    return c->config->rate <= 0 ? now < c->end_ns : c->due_ns < (double)c->end_ns && c->due_ns <= (double)now;
}

static void run_ask(struct client *c)
{
    uint64_t now;
    c->due_ns = (double)c->begin_ns;
    if (c->config->rate > 0)
        draw_next(c);
    while ((now = cl_bench_wall_ns()) < c->end_ns ||
           ((c->under_way || c->due_ns < (double)c->end_ns) && now < c->end_ns + c->config->drain_ns)) {
        while (due(c, now))
            ask(c, now);
        look(c, 0);
        if (c->config->rate <= 0)
            c->due_ns = (double)c->end_ns;
    }
    for (; c->config->rate > 0 && c->due_ns < (double)c->end_ns; draw_next(c))
        c->out->offered += c->due_ns >= (double)c->from_ns;
    c->out->dropped = c->out->offered - c->out->sent;
    cl_hist_add_infinite(c->latency, c->out->offered - c->out->answered);
}

static void run_bulk(struct client *c)
{
    while (cl_bench_wall_ns() < c->end_ns)
        look(c, BULK_WAIT_MS);
}

static int open_all(struct client *c)
{
    if (c->config->netns_fd >= 0 && setns(c->config->netns_fd, CLONE_NEWNET) != 0)
        return failed(c, "cannot enter the network namespace");
    if ((c->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return failed(c, "cannot make an epoll set");
    for (uint32_t i = 0; i < c->config->connections; i++)
        if (connect_one(c, &c->conns[i], i))
            return c->rc;
    return 0;
}

static void *client_main(void *arg)
{
    struct client *c = arg;
    if (!open_all(c)) {
        c->begin_ns = cl_bench_wall_ns();
        c->from_ns = c->out->start_ns = c->begin_ns + c->config->warm_ns;
        c->end_ns = c->from_ns + c->config->measured_ns;
        if (c->config->traffic == CL_LINUX_TCP_ASK)
            run_ask(c);
        else
            run_bulk(c);
    }
    for (uint32_t i = 0; i < c->config->connections; i++) {
        struct linger at_once = {1, 0}; /* a reset: no TIME_WAIT keeps the port */
        if (c->conns[i].fd < 0)
            continue;
        setsockopt(c->conns[i].fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(c->conns[i].fd);
    }
    if (c->epoll >= 0)
        close(c->epoll);
    return NULL;
}

static int start_and_join(struct client *c)
{
    pthread_t thread;
    int rc = c->config->cpu >= 0 ? cl_bench_start_pinned(&thread, c->config->cpu, client_main, c, c->err)
                                 : -pthread_create(&thread, NULL, client_main, c);
    if (rc)
        return rc;
    pthread_join(thread, NULL);
    return c->rc;
}

int cl_linux_tcp_client(const struct cl_linux_tcp_client_config *config, struct cl_hist *latency,
                        struct cl_linux_tcp_result *out, char err[256])
{
    uint32_t n = config->connections;
    struct client c = {.config = config, .latency = latency, .out = out, .epoll = -1, .err = err};
    *out = (struct cl_linux_tcp_result){0};
    c.conns = calloc(n, sizeof *c.conns);
    c.idle = calloc(n, sizeof *c.idle);
    c.gaps = malloc(GAPS * sizeof *c.gaps);
    c.pattern = cl_linux_tcp_pattern(BULK_BYTES);
    c.buffer = malloc(BULK_BYTES);
    int rc = -ENOMEM;
    snprintf(err, 256, "out of memory");
    if (c.conns && c.idle && c.gaps && c.pattern && c.buffer) {
        for (uint32_t i = 0; i < n; i++)
            c.conns[i].fd = -1;
        rc = cl_load_draw_gaps(CL_ARRIVALS_POISSON, config->seed, 1, 0, c.gaps, GAPS);
        rc = rc ? rc : start_and_join(&c);
    }
    free(c.conns);
    free(c.idle);
    free(c.gaps);
    free(c.pattern);
    free(c.buffer);
    return rc;
}
