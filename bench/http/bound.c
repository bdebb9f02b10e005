/* See bound.h. */
#include "bound.h"

#include <corelane/libos/tcp.h>

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_no_delay(c, true);
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    const struct cl_bench_http_bound *b = arg;
    (void)data;
    if (cl_tcp_write(c, b->answer, b->bytes) != b->bytes)
        cl_tcp_abort(c); /* it asks for more than it reads: no client of this benchmark */
    return len;
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static const struct cl_tcp_events events = {.opened = on_opened, .data = on_data, .eof = on_eof};

int cl_bench_http_bound_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog,
                               struct cl_bench_http_bound *bound)
{
    return cl_runtime_listen_tcp(rt, port, backlog, &events, bound);
}
