/* A connection with TLS. See tls.h. */
#include "tls.h"

#include <stdlib.h>

#define RECORD_HEAD 256 /* bytes that a record takes beyond its text */
#define WANTS_MORE (CL_BIO_FLAGS_READ | CL_BIO_FLAGS_SHOULD_RETRY)

/* What is to be done with what is below, when `out` has left. */
enum ending { NOT = 0, SHUTS, CLOSES };

struct cl_http_tls {
    const struct cl_openssl *ssl;
    struct ssl_st *session;
    struct cl_http_conn *conn;
    struct cl_http_service *service;
    const struct cl_http_link *below;
    void *wire;
    const uint8_t *in; /* what came and OpenSSL has not read, while cl_http_tls_take runs */
    int64_t in_len;
    uint8_t *out; /* records for which below had no room; NULL: none */
    uint32_t out_at, out_len, out_room;
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

/* What OpenSSL reads and writes: the bytes that came, where they lie, and what is below. */

static int bio_read(struct bio_st *bio, char *data, int room)
{
    const struct cl_openssl *ssl = cl_openssl_loaded();
    struct cl_http_tls *t = ssl->BIO_get_data(bio);
    int n = (int)cl_min(t->in_len, (int64_t)room);
    ssl->BIO_clear_flags(bio, WANTS_MORE);
    if (n == 0) {
        ssl->BIO_set_flags(bio, WANTS_MORE);
        return -1;
    }
    memcpy(data, t->in, (size_t)n);
    t->in += n;
    t->in_len -= n;
    return n;
}

/* Keep what there was no room for. */
static bool keep_out(struct cl_http_tls *t, const char *data, uint32_t len)
{
    uint32_t need = t->out_at + t->out_len + len;
    if (need > t->out_room) {
        uint32_t room = cl_max(need, (uint32_t)CL_HTTP_TLS_RECORD + RECORD_HEAD);
        uint8_t *fresh = realloc(t->out, room);
        if (!fresh)
            return false;
        t->out = fresh;
        t->out_room = room;
    }
    memcpy(t->out + t->out_at + t->out_len, data, len);
    t->out_len += len;
    return true;
}

static int bio_write(struct bio_st *bio, const char *data, int len)
{
    struct cl_http_tls *t = cl_openssl_loaded()->BIO_get_data(bio);
    int64_t n = t->over ? -1 : t->out_len ? 0 : t->below->write(t->wire, data, len);
    if (n >= 0 && (n == len || keep_out(t, data + n, (uint32_t)(len - n))))
        return len;
    t->over = true;
    return -1;
}

static long bio_ctrl(struct bio_st *bio, int op, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return op == CL_BIO_CTRL_FLUSH;
}

struct bio_method_st *cl_http_tls_method(const struct cl_openssl *ssl)
{
    struct bio_method_st *method = ssl->BIO_meth_new(CL_BIO_TYPE_SOURCE_SINK, "corelane");
    if (method) {
        ssl->BIO_meth_set_read(method, bio_read);
        ssl->BIO_meth_set_write(method, bio_write);
        ssl->BIO_meth_set_ctrl(method, bio_ctrl);
    }
    return method;
}

/* Bytes out. */

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
    if (t->out_len == 0)
        return true;
    int64_t n = t->below->write(t->wire, t->out + t->out_at, t->out_len);
    if (n < 0) {
        t->over = true;
        return false;
    }
    t->out_at += (uint32_t)n;
    t->out_len -= (uint32_t)n;
    if (t->out_len)
        return false;
    free(t->out);
    t->out = NULL;
    t->out_at = t->out_room = 0;
    return true;
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
    while (done < len && t->out_len == 0) {
        int n = (int)cl_min(len - done, (int64_t)CL_HTTP_TLS_RECORD);
        if (t->ssl->SSL_write(t->session, (const char *)data + done, n) != n) /* the BIO takes all */
            return -1;
        done += n;
    }
    return done;
}

static void tls_end(struct cl_http_tls *t, enum ending how)
{
    if (!t->ends && t->open && !t->over)
        (void)t->ssl->SSL_shutdown(t->session); /* says that no more comes */
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
    t->over = true;
    t->ssl->ERR_clear_error();
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
    return t->open && !t->over;
}

static bool busy(const struct cl_http_tls *t)
{
    return t->conn->state == CL_HTTP_ANSWERS;
}

/* Memory of a record that was decrypted: as a rule its kthread's, since it is taken before this turn ends. */
static bool take_plain(struct cl_http_tls *t)
{
    struct cl_http_thread *here = cl_http_here(t->service);
    t->plain = here->record ? here->record : malloc(CL_HTTP_TLS_RECORD);
    here->record = NULL;
    return t->plain != NULL;
}

static void give_plain(struct cl_http_tls *t)
{
    struct cl_http_thread *here = cl_http_here(t->service);
    if (here->record)
        free(t->plain);
    else
        here->record = t->plain;
    t->plain = NULL;
}

/* The peer makes OpenSSL answer (alerts, say, each time that it wants to renegotiate), and does not read that. */
static bool fails_to_read(const struct cl_http_tls *t)
{
    return t->out_len >= CL_HTTP_TLS_RECORD;
}

/* Decrypt the next record's bytes. False: there are none. OpenSSL reads no further than a record, and there is room for
 * the largest: so nothing waits in it when all that came was read. */
static bool decrypt(struct cl_http_tls *t)
{
    if (t->in_len == 0)
        return false;
    if (!t->plain && !take_plain(t)) {
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
    if (!t->open && (fails_to_read(t) || !open_up(t)))
        return;
    while (!t->over && t->conn->state != CL_HTTP_OVER && !busy(t) && !fails_to_read(t) &&
           (t->plain_len || decrypt(t))) {
        int64_t took = cl_http_take(t->conn, t->plain + t->plain_at, t->plain_len);
        t->plain_at += (uint32_t)took;
        t->plain_len -= (uint32_t)took;
    }
    if (t->plain && !t->plain_len)
        give_plain(t);
}

int64_t cl_http_tls_take(struct cl_http_tls *t, const uint8_t *data, int64_t len)
{
    t->in = data;
    t->in_len = len;
    if (!t->over)
        pump(t);
    int64_t left = t->in_len;
    t->in = NULL;
    t->in_len = 0;
    return t->over || t->conn->state == CL_HTTP_OVER ? len : len - left; /* then nobody wants it */
}

bool cl_http_tls_room(struct cl_http_tls *t)
{
    if (t->over)
        return false;
    flush_and_end(t);
    if (t->over || t->out_len || !cl_http_room(t->conn))
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
    struct bio_st *bio = c->ssl->BIO_new(c->method);
    t->session = c->ssl->SSL_new(c->ctx);
    if (!t->session || !bio) {
        c->ssl->BIO_free(bio);
        return false;
    }
    c->ssl->BIO_set_data(bio, t);
    c->ssl->SSL_set_bio(t->session, bio, bio);
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
    t->ssl->SSL_free(t->session); /* and the BIO */
    free(t->plain);
    free(t->out);
    cl_http_refund(t->service, CL_HTTP_TLS_BYTES);
    free(t);
}
