/* A connection with TLS. See tls.h. */
#include "tls.h"

#include <stdlib.h>

/* What is to be done with what is below, when `out` has left. */
enum ending { NOT = 0, SHUTS, CLOSES };

struct cl_http_tls {
    const struct cl_openssl *ssl;
    struct ssl_st *session;
    struct bio_st *in, *out; /* the session's */
    struct cl_http_conn *conn;
    struct cl_http_service *service;
    const struct cl_http_link *below;
    void *wire;
    uint8_t *plain; /* decrypted, and not taken; or NULL */
    uint32_t plain_at, plain_len;
    uint32_t ticks; /* of the handshake, or of the end */
    uint8_t ends;   /* enum ending */
    bool open;      /* the handshake is done */
    bool over;      /* nothing is read or written any more */
};

static struct cl_http_counts *counts_of(const struct cl_http_tls *t)
{
    return &cl_http_here(t->service)->counts;
}

/* Bytes out. */

/* Take n bytes off `out`. */
static void drop_out(struct cl_http_tls *t, int64_t n, int64_t all)
{
    char sink[1024];
    if (n == all) {
        t->ssl->BIO_ctrl(t->out, CL_BIO_CTRL_RESET, 0, NULL);
        return;
    }
    while (n > 0)
        n -= t->ssl->BIO_read(t->out, sink, (int)cl_min(n, (int64_t)sizeof sink));
}

static void end_below(struct cl_http_tls *t)
{
    if (t->ends == SHUTS)
        t->below->shutdown(t->wire);
    else if (t->ends == CLOSES)
        t->below->close(t->wire);
}

/* Give what waits in `out` to what is below. True: all has left. */
static bool flush(struct cl_http_tls *t)
{
    char *data;
    int64_t all = t->ssl->BIO_ctrl(t->out, CL_BIO_CTRL_INFO, 0, &data);
    if (all <= 0)
        return true;
    int64_t n = t->below->write(t->wire, data, all);
    if (n < 0) {
        t->over = true;
        return false;
    }
    drop_out(t, n, all);
    return n == all;
}

static void flush_and_end(struct cl_http_tls *t)
{
    if (flush(t))
        end_below(t);
}

static int64_t tls_write(void *wire, const void *data, int64_t len)
{
    struct cl_http_tls *t = wire;
    int64_t done = 0;
    if (t->over)
        return -1;
    while (done < len && t->ssl->BIO_ctrl_pending(t->out) < CL_HTTP_TLS_OUT) {
        int n = (int)cl_min(len - done, (int64_t)CL_HTTP_TLS_RECORD);
        t->ssl->ERR_clear_error();
        if (t->ssl->SSL_write(t->session, (const char *)data + done, n) != n) /* a memory BIO takes all */
            return -1;
        done += n;
        if (!flush(t) && t->over)
            return -1;
    }
    return done;
}

static void tls_end(struct cl_http_tls *t, enum ending how)
{
    if (!t->ends && t->open && !t->over) {
        t->ssl->ERR_clear_error();
        (void)t->ssl->SSL_shutdown(t->session); /* says that no more comes */
    }
    t->ends = (uint8_t)how;
    t->ticks = 0;
    flush_and_end(t);
}

static void tls_shutdown(void *wire)
{
    tls_end(wire, SHUTS);
}

static void tls_close(void *wire)
{
    tls_end(wire, CLOSES);
}

static void tls_abort(void *wire)
{
    struct cl_http_tls *t = wire;
    t->over = true;
    t->below->abort(t->wire);
}

static void tls_handler_begin(void *wire)
{
    struct cl_http_tls *t = wire;
    t->below->around.begin(t->wire);
}

static bool tls_handler_end(void *wire)
{
    struct cl_http_tls *t = wire;
    return t->below->around.end(t->wire);
}

static const struct cl_http_link tls_link = {.write = tls_write,
                                             .shutdown = tls_shutdown,
                                             .close = tls_close,
                                             .abort = tls_abort,
                                             .around = {tls_handler_begin, tls_handler_end}};

/* The peer has broken the protocol: it is told why, and that is all. */
static void fail(struct cl_http_tls *t)
{
    (void)flush(t);
    t->over = true;
    t->below->close(t->wire);
}

/* Bytes in. */

struct handshake {
    struct cl_http_tls *tls;
    int rc, error;
};

static void shake_hands(void *arg)
{
    struct handshake *h = arg;
    h->tls->ssl->ERR_clear_error();
    h->rc = h->tls->ssl->SSL_do_handshake(h->tls->session);
    h->error = h->rc == 1 ? 0 : h->tls->ssl->SSL_get_error(h->tls->session, h->rc);
}

/* False: it is not open, and wants more or has failed. */
static bool open_up(struct cl_http_tls *t)
{
    struct handshake h = {.tls = t};
    if (cl_kthread_call(shake_hands, &h)) /* on no uthread: a test's thread, which has a large stack */
        shake_hands(&h);
    if (h.rc == 1) {
        t->open = true;
        cl_count(&counts_of(t)->handshakes, 1);
        if (t->ssl->SSL_session_reused(t->session))
            cl_count(&counts_of(t)->resumed, 1);
    } else if (h.error != CL_SSL_ERROR_WANT_READ) {
        cl_count(&counts_of(t)->failed_handshakes, 1);
        fail(t);
        return false;
    }
    (void)flush(t);
    return t->open && !t->over;
}

static bool busy(const struct cl_http_tls *t)
{
    return t->conn->state == CL_HTTP_ANSWERS;
}

/* Decrypt the next record's bytes. False: there are none. */
static bool decrypt(struct cl_http_tls *t)
{
    if (!t->plain && !(t->plain = malloc(CL_HTTP_TLS_RECORD))) {
        tls_abort(t);
        return false;
    }
    t->ssl->ERR_clear_error();
    int n = t->ssl->SSL_read(t->session, t->plain, CL_HTTP_TLS_RECORD);
    if (n > 0) {
        t->plain_at = 0;
        t->plain_len = (uint32_t)n;
        return true;
    }
    int error = t->ssl->SSL_get_error(t->session, n);
    if (error == CL_SSL_ERROR_ZERO_RETURN)
        cl_http_eof(t->conn);
    else if (error != CL_SSL_ERROR_WANT_READ)
        fail(t);
    return false;
}

/* Have the connection take what is there, until it is busy or there is no more. */
static void pump(struct cl_http_tls *t)
{
    if (!t->open && !open_up(t))
        return;
    while (!t->over && t->conn->state != CL_HTTP_OVER && !busy(t) && (t->plain_len || decrypt(t))) {
        int64_t took = cl_http_take(t->conn, t->plain + t->plain_at, t->plain_len);
        t->plain_at += (uint32_t)took;
        t->plain_len -= (uint32_t)took;
    }
    if (!t->plain_len) {
        free(t->plain);
        t->plain = NULL;
    }
    if (!t->over)
        (void)flush(t); /* what OpenSSL itself has to say */
}

int64_t cl_http_tls_take(struct cl_http_tls *t, const uint8_t *data, int64_t len)
{
    int64_t done = 0;
    while (done < len) {
        if (t->over || t->conn->state == CL_HTTP_OVER)
            return len; /* nobody wants it */
        if (busy(t) || t->plain_len)
            break;
        int n = t->ssl->BIO_write(t->in, data + done, (int)cl_min(len - done, (int64_t)CL_HTTP_TLS_RECORD));
        if (n <= 0) {
            tls_abort(t);
            return len;
        }
        done += n;
        pump(t);
    }
    return done;
}

bool cl_http_tls_room(struct cl_http_tls *t)
{
    if (t->over)
        return false;
    flush_and_end(t);
    if (t->over || t->ssl->BIO_ctrl_pending(t->out) >= CL_HTTP_TLS_OUT || !cl_http_room(t->conn))
        return false;
    pump(t); /* what was read before, and not taken */
    return !busy(t);
}

void cl_http_tls_eof(struct cl_http_tls *t)
{
    if (t->over)
        return;
    if (t->open)
        cl_http_eof(t->conn);
    else
        tls_abort(t);
}

void cl_http_tls_tick(struct cl_http_tls *t)
{
    const struct cl_http_options *o = &t->service->options;
    uint32_t most_ms = t->open ? o->window_ms : o->head_ms;
    if (t->over)
        return;
    if (t->open && t->conn->state != CL_HTTP_OVER) {
        cl_http_tick(t->conn);
        return;
    }
    if ((uint64_t)++t->ticks * o->tick_ms < most_ms && !(cl_load_relaxed(&t->service->draining) && !t->open))
        return;
    cl_count(t->open ? &counts_of(t)->slow_readers : &counts_of(t)->late_heads, 1);
    tls_abort(t);
}

/* From the beginning to the end. */

struct cl_http_service *cl_http_tls_service(const struct cl_http_tls *t)
{
    return t->service;
}

static bool new_session(struct cl_http_tls *t, const struct cl_http_tls_context *c)
{
    t->session = c->ssl->SSL_new(c->ctx);
    t->in = c->ssl->BIO_new(c->ssl->BIO_s_mem());
    t->out = c->ssl->BIO_new(c->ssl->BIO_s_mem());
    if (!t->session || !t->in || !t->out) {
        c->ssl->SSL_free(t->session);
        c->ssl->BIO_free(t->in);
        c->ssl->BIO_free(t->out);
        return false;
    }
    c->ssl->SSL_set_bio(t->session, t->in, t->out);
    c->ssl->SSL_set_accept_state(t->session);
    return true;
}

struct cl_http_tls *cl_http_tls_new(struct cl_http_service *s, const struct cl_http_link *below, void *wire)
{
    if (!cl_http_charge(s, CL_HTTP_TLS_BYTES))
        return NULL;
    struct cl_http_tls *t = calloc(1, sizeof *t);
    if (t) {
        t->ssl = s->tls->ssl;
        t->service = s;
        t->below = below;
        t->wire = wire;
        t->conn = new_session(t, s->tls) ? cl_http_conn_new(s, &tls_link, t) : NULL;
    }
    if (t && t->conn)
        return t;
    if (t && t->session)
        t->ssl->SSL_free(t->session);
    free(t);
    cl_http_refund(s, CL_HTTP_TLS_BYTES);
    return NULL;
}

void cl_http_tls_delete(struct cl_http_tls *t, bool failed)
{
    cl_http_conn_delete(t->conn, failed && !t->over && t->conn->state != CL_HTTP_OVER);
    t->ssl->SSL_free(t->session); /* and the BIOs */
    free(t->plain);
    cl_http_refund(t->service, CL_HTTP_TLS_BYTES);
    free(t);
}
