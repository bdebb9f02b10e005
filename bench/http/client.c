/* See client.h. */
#include "client.h"
#include "answer.h"
#include "tls.h"

#include <corelane/libos/tcp.h>
#include <corelane/libos/uthread.h>
#include <errno.h>
#include <stdio.h>

struct conn {
    struct cl_bench_http *client;
    struct cl_tls *tls; /* NULL: plain */
    uint64_t since_ns;
    bool asked; /* an answer is awaited */
    struct cl_bench_answer answer;
};

struct cl_bench_http {
    struct cl_runtime *rt;
    struct cl_bench_http_config config;
    size_t request_len;
    struct cl_tls_client *context; /* NULL: plain */
    struct cl_hist *latency;
    struct cl_bench_http_counts counts;
    uint32_t stopped;
    struct conn *conns;
    uint8_t plain[CL_TLS_PLAIN]; /* of the callback that runs: there is one kthread, and they do not block */
};

static uint64_t now_ns(const struct cl_bench_http *client)
{
    return cl_sched_now_ns(cl_runtime_sched(client->rt));
}

static void fail(struct cl_tcp_conn *tcp, struct cl_bench_http *client)
{
    cl_count(&client->counts.failed, 1);
    cl_tcp_abort(tcp);
}

static void ask(struct cl_tcp_conn *tcp, struct conn *c)
{
    struct cl_bench_http *client = c->client;
    if (cl_load_relaxed(&client->stopped)) {
        cl_tcp_abort(tcp);
        return;
    }
    if (client->config.keep)
        c->since_ns = now_ns(client);
    cl_bench_answer_begin(&c->answer);
    c->asked = true;
    int64_t len = (int64_t)client->request_len;
    int64_t n = c->tls ? cl_bench_tls_write(c->tls, tcp, client->config.request, len)
                       : cl_tcp_write(tcp, client->config.request, len);
    if (n != len) /* a request is small, and nothing is under way */
        fail(tcp, client);
}

/* An answer is whole. */
static void answered(struct cl_tcp_conn *tcp, struct conn *c)
{
    struct cl_bench_http *client = c->client;
    c->asked = false;
    cl_hist_add(client->latency, now_ns(client) - c->since_ns, 1);
    cl_count(&client->counts.answers, 1);
    cl_count(&client->counts.bytes, c->answer.body);
    if (client->config.keep)
        ask(tcp, c);
}

static bool take(struct cl_tcp_conn *tcp, struct conn *c, const uint8_t *data, int64_t len)
{
    while (len && c->asked) {
        int64_t n = cl_bench_answer_take(&c->answer, data, len);
        if (n < 0) {
            cl_count(&c->client->counts.wrong, 1);
            cl_tcp_abort(tcp);
            return false;
        }
        data += n;
        len -= n;
        if (c->answer.left == 0)
            answered(tcp, c);
    }
    return true;
}

static void on_opened(struct cl_tcp_conn *tcp, void *arg)
{
    struct conn *c = arg;
    cl_tcp_no_delay(tcp, true);
    cl_count(&c->client->counts.connections, 1);
    if (!c->tls)
        ask(tcp, c);
    else if (cl_bench_tls_begin(c->tls, tcp) < 0)
        fail(tcp, c->client);
}

static int64_t on_tls_data(struct cl_tcp_conn *tcp, struct conn *c, const uint8_t *data, int64_t len)
{
    uint8_t *plain = c->client->plain;
    bool was_open = cl_tls_is_open(c->tls);
    if (cl_bench_tls_put(c->tls, tcp, data, len) < 0) {
        fail(tcp, c->client);
        return len;
    }
    if (!was_open && cl_tls_is_open(c->tls)) {
        if (cl_tls_resumed(c->tls))
            cl_count(&c->client->counts.resumed, 1);
        ask(tcp, c);
    }
    for (int64_t n; cl_tls_is_open(c->tls) && (n = cl_tls_read(c->tls, plain, CL_TLS_PLAIN)) > 0;)
        if (!take(tcp, c, plain, n))
            break;
    return len;
}

static int64_t on_data(struct cl_tcp_conn *tcp, const uint8_t *data, int64_t len, void *arg)
{
    struct conn *c = arg;
    if (c->tls)
        return on_tls_data(tcp, c, data, len);
    (void)take(tcp, c, data, len);
    return len;
}

static void on_eof(struct cl_tcp_conn *tcp, void *arg)
{
    struct conn *c = arg;
    if (c->asked)
        fail(tcp, c->client);
    else
        cl_tcp_close(tcp);
}

static void open_one(void *arg);

static void on_ended(struct cl_tcp_conn *tcp, int error, void *arg)
{
    struct conn *c = arg;
    struct cl_bench_http *client = c->client;
    (void)tcp;
    cl_tls_delete(c->tls);
    c->tls = NULL;
    c->asked = false;
    if (cl_load_relaxed(&client->stopped) || error == ESHUTDOWN)
        return;
    if (error && error != ECONNABORTED)
        cl_count(&client->counts.failed, 1);
    if (cl_uthread_spawn(open_one, c, NULL))
        cl_count(&client->counts.failed, 1);
}

static const struct cl_tcp_events events = {.opened = on_opened, .data = on_data, .eof = on_eof, .ended = on_ended};

static void open_one(void *arg)
{
    struct conn *c = arg;
    struct cl_bench_http *client = c->client;
    c->since_ns = now_ns(client);
    if (client->context && !(c->tls = cl_tls_new(client->context, NULL))) {
        cl_count(&client->counts.failed, 1);
        return;
    }
    if (cl_runtime_connect_tcp(client->rt, client->config.ipv4, client->config.port, &events, c))
        cl_count(&client->counts.failed, 1);
}

static void open_all(void *arg)
{
    struct cl_bench_http *client = arg;
    for (uint32_t i = 0; i < client->config.connections; i++)
        open_one(&client->conns[i]);
}

int cl_bench_http_start(struct cl_runtime *rt, const struct cl_bench_http_config *config, struct cl_bench_http **out,
                        char err[256])
{
    struct cl_bench_http *c = calloc(1, sizeof *c);
    int rc = -ENOMEM;
    snprintf(err, 256, "out of memory");
    if (!c)
        return rc;
    c->rt = rt;
    c->config = *config;
    c->request_len = strlen(config->request);
    c->latency = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS);
    c->conns = calloc(config->connections, sizeof *c->conns);
    if (c->latency && c->conns)
        rc = config->tls ? cl_tls_client_new(false, NULL, &c->context, err) : 0;
    for (uint32_t i = 0; rc == 0 && i < config->connections; i++)
        c->conns[i].client = c;
    if (rc == 0 && (rc = cl_runtime_spawn(rt, open_all, c)))
        snprintf(err, 256, "cannot start a uthread: %s", strerror(-rc));
    if (rc)
        cl_bench_http_delete(c);
    else
        *out = c;
    return rc;
}

void cl_bench_http_counts(const struct cl_bench_http *c, struct cl_bench_http_counts *out)
{
    *out = (struct cl_bench_http_counts){.answers = cl_load_relaxed(&c->counts.answers),
                                         .bytes = cl_load_relaxed(&c->counts.bytes),
                                         .wrong = cl_load_relaxed(&c->counts.wrong),
                                         .connections = cl_load_relaxed(&c->counts.connections),
                                         .failed = cl_load_relaxed(&c->counts.failed),
                                         .resumed = cl_load_relaxed(&c->counts.resumed)};
}

struct cl_hist *cl_bench_http_latency(struct cl_bench_http *c)
{
    return c->latency;
}

void cl_bench_http_stop(struct cl_bench_http *c)
{
    cl_store_relaxed(&c->stopped, 1);
}

void cl_bench_http_delete(struct cl_bench_http *c)
{
    if (!c)
        return;
    cl_tls_client_delete(c->context);
    cl_hist_delete(c->latency);
    free(c->conns);
    free(c);
}
