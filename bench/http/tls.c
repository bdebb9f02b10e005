/* See tls.h. */
#include "tls.h"
#include "../../apps/http/openssl.h"

#include <corelane/libos/sched.h>
#include <errno.h>
#include <stdlib.h>

struct cl_bench_tls_context {
    const struct cl_openssl *ssl;
    struct ssl_ctx_st *ctx;
};

struct cl_bench_tls {
    const struct cl_openssl *ssl;
    struct ssl_st *session;
    struct bio_st *in, *out;
    bool open;
};

int cl_bench_tls_context_new(struct cl_bench_tls_context **out, char err[256])
{
    const struct cl_openssl *ssl = cl_openssl_load(err);
    struct cl_bench_tls_context *c = ssl ? calloc(1, sizeof *c) : NULL;
    if (!ssl)
        return -ENOSYS;
    if (c)
        c->ctx = ssl->SSL_CTX_new(ssl->TLS_client_method());
    if (!c || !c->ctx) {
        free(c);
        return -ENOMEM;
    }
    c->ssl = ssl;
    *out = c;
    return 0;
}

void cl_bench_tls_context_delete(struct cl_bench_tls_context *c)
{
    if (!c)
        return;
    c->ssl->SSL_CTX_free(c->ctx);
    free(c);
}

struct cl_bench_tls *cl_bench_tls_new(struct cl_bench_tls_context *c)
{
    struct cl_bench_tls *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->ssl = c->ssl;
    t->session = c->ssl->SSL_new(c->ctx);
    t->in = c->ssl->BIO_new(c->ssl->BIO_s_mem());
    t->out = c->ssl->BIO_new(c->ssl->BIO_s_mem());
    if (!t->session || !t->in || !t->out) {
        c->ssl->SSL_free(t->session);
        c->ssl->BIO_free(t->in);
        c->ssl->BIO_free(t->out);
        free(t);
        return NULL;
    }
    c->ssl->SSL_set_bio(t->session, t->in, t->out);
    c->ssl->SSL_set_connect_state(t->session);
    return t;
}

void cl_bench_tls_delete(struct cl_bench_tls *t)
{
    if (!t)
        return;
    t->ssl->SSL_free(t->session);
    free(t);
}

/* All that is to be sent is small: it fits into the send buffer. */
static int flush(struct cl_bench_tls *t, struct cl_tcp_conn *tcp)
{
    char *data;
    int64_t len = t->ssl->BIO_ctrl(t->out, CL_BIO_CTRL_INFO, 0, &data);
    if (len <= 0)
        return 0;
    int64_t n = cl_tcp_write(tcp, data, len);
    t->ssl->BIO_ctrl(t->out, CL_BIO_CTRL_RESET, 0, NULL);
    return n == len ? 0 : -EIO;
}

struct handshake {
    struct cl_bench_tls *tls;
    bool failed;
};

static void shake_hands(void *arg)
{
    struct handshake *h = arg;
    const struct cl_openssl *ssl = h->tls->ssl;
    ssl->ERR_clear_error();
    int rc = ssl->SSL_do_handshake(h->tls->session);
    h->tls->open = rc == 1;
    h->failed = rc != 1 && ssl->SSL_get_error(h->tls->session, rc) != CL_SSL_ERROR_WANT_READ;
}

int cl_bench_tls_begin(struct cl_bench_tls *t, struct cl_tcp_conn *tcp)
{
    struct handshake h = {.tls = t};
    (void)cl_kthread_call(shake_hands, &h);
    return h.failed ? -EPROTO : flush(t, tcp);
}

int cl_bench_tls_put(struct cl_bench_tls *t, struct cl_tcp_conn *tcp, const uint8_t *data, int64_t len)
{
    if (t->ssl->BIO_write(t->in, data, (int)len) != len)
        return -ENOMEM;
    return t->open ? 0 : cl_bench_tls_begin(t, tcp);
}

bool cl_bench_tls_is_open(const struct cl_bench_tls *t)
{
    return t->open;
}

bool cl_bench_tls_resumed(const struct cl_bench_tls *t)
{
    return t->ssl->SSL_session_reused(t->session) == 1;
}

int64_t cl_bench_tls_get(struct cl_bench_tls *t, uint8_t plain[CL_BENCH_TLS_PLAIN])
{
    t->ssl->ERR_clear_error();
    int n = t->open ? t->ssl->SSL_read(t->session, plain, CL_BENCH_TLS_PLAIN) : 0;
    return cl_max(n, 0);
}

int64_t cl_bench_tls_write(struct cl_bench_tls *t, struct cl_tcp_conn *tcp, const void *data, int64_t len)
{
    t->ssl->ERR_clear_error();
    if (t->ssl->SSL_write(t->session, data, (int)len) != len)
        return -EIO;
    return flush(t, tcp) < 0 ? -EIO : len;
}
