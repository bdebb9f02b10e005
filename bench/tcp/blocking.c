/* The echo server in blocking form: a uthread that accepts, and one for each connection. */
#include "server.h"

#include <corelane/libos/runtime.h>
#include <corelane/libos/stream.h>

#include <errno.h>
#include <stdlib.h>

#define BYTES 2048

/* What both uthreads have. */
struct blocking {
    struct cl_runtime *rt;
    struct cl_stream *stream;
    struct cl_bench_tcp_server *server;
};

/* A uthread; arg is its own. */
static void serve(void *arg)
{
    struct blocking b = *(struct blocking *)arg;
    uint8_t data[BYTES];
    int64_t got;
    free(arg);
    while ((got = cl_stream_read(b.stream, data, sizeof data, -1)) > 0)
        if ((got = cl_stream_write(b.stream, data, got, -1)) <= 0)
            break;
    cl_count(&b.server->ended, 1);
    cl_count(&b.server->failed, got < 0);
    cl_stream_close(b.stream, 0);
}

static int begin(const struct blocking *of, cl_uthread_fn body)
{
    struct blocking *b = malloc(sizeof *b);
    if (!b)
        return -ENOMEM;
    *b = *of;
    int rc = cl_runtime_spawn(b->rt, body, b);
    if (rc)
        free(b);
    return rc;
}

/* A uthread; arg is its own. It ends with the runtime. */
static void accept_all(void *arg)
{
    struct blocking b = *(struct blocking *)arg;
    struct cl_stream *listener = b.stream;
    free(arg);
    while (cl_stream_accept(listener, -1, &b.stream) == 0) {
        cl_count(&b.server->accepted, 1);
        if (begin(&b, serve))
            cl_stream_abort(b.stream);
    }
    cl_stream_close(listener, 0);
}

int cl_bench_tcp_block(struct cl_runtime *rt, uint16_t port, uint32_t backlog, struct cl_bench_tcp_server *server)
{
    struct blocking b = {.rt = rt, .server = server};
    int rc = cl_stream_listen(rt, port, backlog, &b.stream);
    return rc ? rc : begin(&b, accept_all);
}
