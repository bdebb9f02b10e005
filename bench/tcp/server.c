/* See server.h. */
#include "server.h"

#include "../../drivers/nic/tcpload/tcpload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A connection of a sink or a source. */
struct stream {
    struct cl_bench_tcp_server *server;
    uint32_t place, number;
    uint8_t user[]; /* where a sink copies to: CL_TCPLOAD_ROOM bytes */
};

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    cl_tcp_no_delay(c, true);
    cl_count(&((struct cl_bench_tcp_server *)arg)->accepted, 1);
}

static void count_end(struct cl_bench_tcp_server *server, int error)
{
    cl_count(&server->ended, 1);
    cl_count(&server->failed, error != 0);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    (void)c;
    count_end(arg, error);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

/* Echo. */

static int64_t echo_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    return cl_tcp_write(c, data, len);
}

static void echo_writable(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_resume(c);
}

/* Sink and source. */

static void stream_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct stream *s = arg;
    (void)c;
    count_end(s->server, error);
    free(s);
}

static int64_t sink_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct stream *s = arg;
    (void)c;
    for (int64_t done = 0; done < len;) {
        int64_t n = cl_min(len - done, (int64_t)CL_TCPLOAD_ROOM);
        memcpy(s->user, data + done, (size_t)n);
        if (cl_unlikely(s->server->check)) {
            cl_count(&s->server->wrong, memcmp(s->user, cl_tcpload_pattern() + s->place, (size_t)n) != 0);
            s->place = (s->place + (uint32_t)n) % CL_TCPLOAD_PATTERN;
        }
        done += n;
    }
    cl_count(&s->server->bytes_in, (uint64_t)len);
    cl_count(&s->server->flow_bytes[s->number % CL_BENCH_TCP_FLOWS], (uint64_t)len);
    return len;
}

static const struct cl_tcp_events sink = {.data = sink_data, .eof = on_eof, .ended = stream_ended};

/* Write until no more is taken; `writable` comes then. */
static void source_more(struct cl_tcp_conn *c, void *arg)
{
    struct stream *s = arg;
    int64_t put;
    do {
        put = cl_tcp_write(c, cl_tcpload_pattern() + s->place, CL_TCPLOAD_ROOM);
        s->place = (s->place + (uint32_t)(put > 0 ? put : 0)) % CL_TCPLOAD_PATTERN;
    } while (put == CL_TCPLOAD_ROOM);
}

static const struct cl_tcp_events source = {.writable = source_more, .eof = on_eof, .ended = stream_ended};

/* The connection gets a state of its own, and then what serves it. connects: this end did. */
static struct stream *begin(struct cl_tcp_conn *c, struct cl_bench_tcp_server *server,
                            const struct cl_tcp_events *events, size_t user_bytes, bool connects)
{
    uint32_t peer;
    uint16_t port, own;
    struct stream *s = malloc(sizeof *s + user_bytes);
    on_opened(c, server);
    if (!s) {
        cl_tcp_abort(c);
        return NULL;
    }
    cl_tcp_ends(c, &peer, &port, &own);
    *s = (struct stream){
        .server = server, .place = cl_tcpload_place(connects ? own : port), .number = (uint32_t)server->accepted - 1};
    cl_tcp_set_user(c, events, s);
    return s;
}

static void sink_opened(struct cl_tcp_conn *c, void *arg)
{
    begin(c, arg, &sink, CL_TCPLOAD_ROOM, false);
}

static void sink_connected(struct cl_tcp_conn *c, void *arg)
{
    begin(c, arg, &sink, CL_TCPLOAD_ROOM, true);
}

static void source_opened(struct cl_tcp_conn *c, void *arg)
{
    struct stream *s = begin(c, arg, &source, 0, false);
    if (s)
        source_more(c, s);
}

static void source_connected(struct cl_tcp_conn *c, void *arg)
{
    struct stream *s = begin(c, arg, &source, 0, true);
    if (s)
        source_more(c, s);
}

static const struct cl_tcp_events listeners[] = {
    [CL_BENCH_TCP_ECHO] =
        {.opened = on_opened, .data = echo_data, .writable = echo_writable, .eof = on_eof, .ended = on_ended},
    [CL_BENCH_TCP_SINK] = {.opened = sink_opened, .ended = on_ended},
    [CL_BENCH_TCP_SOURCE] = {.opened = source_opened, .ended = on_ended},
};

int cl_bench_tcp_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog, uint32_t kind,
                        struct cl_bench_tcp_server *server)
{
    if (kind > CL_BENCH_TCP_SOURCE)
        return -EINVAL;
    return cl_runtime_listen_tcp(rt, port, backlog, &listeners[kind], server);
}

static const struct cl_tcp_events connectors[] = {
    [CL_BENCH_TCP_SINK] = {.opened = sink_connected, .ended = on_ended},
    [CL_BENCH_TCP_SOURCE] = {.opened = source_connected, .ended = on_ended},
};

void cl_bench_tcp_connect(void *arg)
{
    struct cl_bench_tcp_connect *c = arg;
    for (uint32_t i = 0; i < c->n && !c->error; i++)
        c->error = cl_runtime_connect_tcp(c->rt, c->ipv4, c->port, &connectors[c->kind], c->server);
}
