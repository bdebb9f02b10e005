/* See host.h. */
#include "host.h"
#include "conn.h"
#include "tls.h"

#include <errno.h>
#include <stdlib.h>

struct cl_http_host {
    struct cl_http_service *service;
    struct cl_http_conn *conn; /* one of both, or none */
    struct cl_http_tls *tls;
    int state;
    uint64_t now_ms;
    uint64_t room, bytes; /* of out */
    int64_t lent;         /* bytes that were lent since `out` was empty */
    uint8_t out[];
};

static int64_t host_write(void *wire, const void *data, int64_t len)
{
    struct cl_http_host *h = wire;
    if (h->state != CL_HTTP_HOST_OPEN)
        return -EPIPE;
    int64_t n = cl_min(len, (int64_t)(h->room - h->bytes));
    memcpy(h->out + h->bytes, data, (size_t)n);
    h->bytes += (uint64_t)n;
    return n;
}

static int64_t host_lend(void *wire, const struct cl_http_file *f, uint64_t from, int64_t len)
{
    int64_t n = host_write(wire, f->data + from, len);
    if (n > 0)
        ((struct cl_http_host *)wire)->lent += n;
    return n;
}

static void give_back(struct cl_http_host *h)
{
    if (h->conn && h->lent)
        cl_http_released(h->conn, h->lent);
    h->lent = 0;
}

static void host_shutdown(void *wire)
{
    struct cl_http_host *h = wire;
    h->state = cl_max(h->state, CL_HTTP_HOST_SHUT);
}

static void host_close(void *wire)
{
    struct cl_http_host *h = wire;
    h->state = cl_max(h->state, CL_HTTP_HOST_CLOSED);
}

static void host_abort(void *wire)
{
    struct cl_http_host *h = wire;
    h->state = CL_HTTP_HOST_ABORTED;
}

static void host_handler_begin(void *wire)
{
    (void)wire;
}

static bool host_handler_end(void *wire)
{
    (void)wire;
    return false;
}

static const struct cl_http_link host_link = {.write = host_write,
                                              .lend = host_lend,
                                              .shutdown = host_shutdown,
                                              .close = host_close,
                                              .abort = host_abort,
                                              .around = {host_handler_begin, host_handler_end}};

struct cl_http_host *cl_http_host_new(struct cl_http_service *s, uint64_t room)
{
    struct cl_http_host *h = calloc(1, sizeof *h + room);
    if (!h)
        return NULL;
    h->service = s;
    h->room = room;
    h->now_ms = 1;
    return h;
}

static void drop(struct cl_http_host *h)
{
    give_back(h);
    if (h->conn)
        cl_http_conn_delete(h->conn, false);
    if (h->tls)
        cl_http_tls_delete(h->tls, false);
    h->conn = NULL;
    h->tls = NULL;
}

void cl_http_host_delete(struct cl_http_host *h)
{
    drop(h);
    free(h);
}

int cl_http_host_open(struct cl_http_host *h, bool tls)
{
    drop(h);
    h->state = CL_HTTP_HOST_OPEN;
    h->bytes = 0;
    if (tls)
        h->tls = cl_http_tls_new(h->service, &host_link, h);
    else
        h->conn = cl_http_conn_new(h->service, &host_link, h);
    return h->conn || h->tls ? 0 : -ENOBUFS;
}

int64_t cl_http_host_send(struct cl_http_host *h, const uint8_t *data, int64_t len)
{
    if (h->state >= CL_HTTP_HOST_CLOSED)
        return len;
    return h->tls ? cl_http_tls_take(h->tls, data, len) : cl_http_take(h->conn, data, len);
}

void cl_http_host_end(struct cl_http_host *h)
{
    if (h->state >= CL_HTTP_HOST_CLOSED)
        return;
    if (h->tls)
        cl_http_tls_eof(h->tls);
    else
        cl_http_eof(h->conn);
}

int64_t cl_http_host_read(struct cl_http_host *h, uint8_t *data, int64_t room)
{
    int64_t n = cl_min(room, (int64_t)h->bytes);
    memcpy(data, h->out, (size_t)n);
    h->bytes -= (uint64_t)n;
    memmove(h->out, h->out + n, h->bytes);
    if (h->bytes == 0)
        give_back(h);
    if (n && h->state < CL_HTTP_HOST_CLOSED)
        (void)(h->tls ? cl_http_tls_room(h->tls) : cl_http_room(h->conn));
    return n;
}

void cl_http_host_pass(struct cl_http_host *h, uint32_t ticks, int64_t date_s)
{
    for (; ticks; ticks--) {
        h->now_ms += h->service->options.tick_ms;
        cl_http_set_time(h->service, h->now_ms, date_s);
        if (h->state >= CL_HTTP_HOST_CLOSED)
            continue;
        if (h->tls)
            cl_http_tls_tick(h->tls);
        else if (h->conn)
            cl_http_tick(h->conn);
    }
}

int cl_http_host_state(const struct cl_http_host *h)
{
    return h->state;
}
