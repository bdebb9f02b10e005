/* See wire.h. */
#include "wire.h"
#include "conn.h"
#include "tls.h"

static int64_t wire_write(void *wire, const void *data, int64_t len)
{
    return cl_tcp_write(wire, data, len);
}

static int64_t wire_lend(void *wire, const struct cl_http_file *f, uint64_t from, int64_t len)
{
    return cl_tcp_write_from(wire, f->region, (int64_t)from, len);
}

static void wire_shutdown(void *wire)
{
    cl_tcp_shutdown(wire);
}

static void wire_close(void *wire)
{
    cl_tcp_close(wire);
}

static void wire_abort(void *wire)
{
    cl_tcp_abort(wire);
}

static void wire_handler_begin(void *wire)
{
    cl_tcp_handler_begin(wire);
}

static bool wire_handler_end(void *wire)
{
    return cl_tcp_handler_end(wire);
}

static const struct cl_http_link wire_link = {.write = wire_write,
                                              .lend = wire_lend,
                                              .shutdown = wire_shutdown,
                                              .close = wire_close,
                                              .abort = wire_abort,
                                              .around = {wire_handler_begin, wire_handler_end}};

static uint64_t tick_ns(const struct cl_http_service *s)
{
    return s->options.tick_ms * 1000000ull;
}

/* Without TLS. */

static int64_t on_data(struct cl_tcp_conn *tcp, const uint8_t *data, int64_t len, void *arg)
{
    (void)tcp;
    return cl_http_take(arg, data, len);
}

static void on_writable(struct cl_tcp_conn *tcp, void *arg)
{
    if (cl_http_room(arg))
        cl_tcp_resume(tcp);
}

static void on_eof(struct cl_tcp_conn *tcp, void *arg)
{
    (void)tcp;
    cl_http_eof(arg);
}

static void on_timer(struct cl_tcp_conn *tcp, void *arg)
{
    struct cl_http_conn *c = arg;
    cl_tcp_set_timer(tcp, tick_ns(c->service));
    cl_http_tick(c);
}

static void on_ended(struct cl_tcp_conn *tcp, int error, void *arg)
{
    struct cl_http_conn *c = arg;
    (void)tcp;
    cl_http_conn_delete(c, error && c->state != CL_HTTP_OVER);
}

static void on_released(struct cl_tcp_conn *tcp, int64_t bytes, void *arg)
{
    (void)tcp;
    cl_http_released(arg, bytes);
}

static const struct cl_tcp_events events = {.data = on_data,
                                            .writable = on_writable,
                                            .eof = on_eof,
                                            .ended = on_ended,
                                            .released = on_released,
                                            .timer = on_timer};

/* With TLS. */

static int64_t on_tls_data(struct cl_tcp_conn *tcp, const uint8_t *data, int64_t len, void *arg)
{
    (void)tcp;
    return cl_http_tls_take(arg, data, len);
}

static void on_tls_writable(struct cl_tcp_conn *tcp, void *arg)
{
    if (cl_http_tls_room(arg))
        cl_tcp_resume(tcp);
}

static void on_tls_eof(struct cl_tcp_conn *tcp, void *arg)
{
    (void)tcp;
    cl_http_tls_eof(arg);
}

static void on_tls_timer(struct cl_tcp_conn *tcp, void *arg)
{
    cl_tcp_set_timer(tcp, tick_ns(cl_http_tls_service(arg)));
    cl_http_tls_tick(arg);
}

static void on_tls_ended(struct cl_tcp_conn *tcp, int error, void *arg)
{
    (void)tcp;
    cl_http_tls_delete(arg, error);
}

static const struct cl_tcp_events tls_events = {
    .data = on_tls_data, .writable = on_tls_writable, .eof = on_tls_eof, .ended = on_tls_ended, .timer = on_tls_timer};

/* Both. */

static void begin(struct cl_tcp_conn *tcp, struct cl_http_service *s, const struct cl_tcp_events *with, void *conn)
{
    if (!conn) {
        cl_tcp_abort(tcp);
        return;
    }
    cl_tcp_set_user(tcp, with, conn);
    cl_tcp_no_delay(tcp, true); /* an answer is whole when it is written */
    cl_tcp_set_timer(tcp, tick_ns(s));
}

static void on_opened(struct cl_tcp_conn *tcp, void *arg)
{
    begin(tcp, arg, &events, cl_http_conn_new(arg, &wire_link, tcp));
}

static void on_tls_opened(struct cl_tcp_conn *tcp, void *arg)
{
    begin(tcp, arg, &tls_events, cl_http_tls_new(arg, &wire_link, tcp));
}

/* Until it is opened. */
static const struct cl_tcp_events listen_events = {.opened = on_opened}, tls_listen_events = {.opened = on_tls_opened};

int cl_http_wire_listen(struct cl_http_service *s, struct cl_runtime *rt, uint16_t port, uint32_t backlog, bool tls)
{
    return cl_runtime_listen_tcp(rt, port, backlog, tls ? &tls_listen_events : &listen_events, s);
}
