/* See tls.h. */
#include "tls.h"
#include "../../apps/http/openssl.h"

#include <arpa/inet.h>
#include <corelane/libos/sched.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cl_tls_client {
    const struct cl_openssl *ssl;
    struct ssl_ctx_st *ctx;
};

struct cl_tls {
    const struct cl_openssl *ssl;
    struct ssl_st *session;
    struct bio_st *in, *out;
    bool open;
    int shaken; /* what the handshake's last step came to, as cl_tls_shake returns it */
    char why[160];
};

static int refuse(char err[256], int rc, const char *what, const char *why)
{
    snprintf(err, 256, "%.90s%.160s", what, why);
    return rc;
}

/* The last part of OpenSSL's text for the oldest error, which is the reason. */
static void reason(const struct cl_openssl *ssl, char *out, size_t room)
{
    char text[160] = "";
    ssl->ERR_error_string_n(ssl->ERR_get_error(), text, sizeof text);
    const char *last = strrchr(text, ':');
    snprintf(out, room, "%s", last && last[1] ? last + 1 : text);
    ssl->ERR_clear_error();
}

static int trust(struct cl_tls_client *c, const char *ca, char err[256])
{
    char why[160];
    c->ssl->ERR_clear_error();
    int rc =
        ca ? c->ssl->SSL_CTX_load_verify_locations(c->ctx, ca, NULL) : c->ssl->SSL_CTX_set_default_verify_paths(c->ctx);
    c->ssl->SSL_CTX_set_verify(c->ctx, CL_SSL_VERIFY_PEER, NULL);
    if (rc == 1)
        return 0;
    reason(c->ssl, why, sizeof why);
    return refuse(err, -EINVAL,
                  ca ? "the certificates of --ca cannot be used: " : "no certificates are trusted: ", why);
}

int cl_tls_client_new(bool verify, const char *ca, struct cl_tls_client **out, char err[256])
{
    const struct cl_openssl *ssl = cl_openssl_load(err);
    if (!ssl)
        return -ENOSYS;
    struct cl_tls_client *c = calloc(1, sizeof *c);
    if (!c)
        return refuse(err, -ENOMEM, "not enough memory", "");
    c->ssl = ssl;
    c->ctx = ssl->SSL_CTX_new(ssl->TLS_client_method());
    int rc = !c->ctx ? refuse(err, -ENOMEM, "not enough memory", "") : verify ? trust(c, ca, err) : 0;
    if (rc) {
        cl_tls_client_delete(c);
        return rc;
    }
    ssl->SSL_CTX_ctrl(c->ctx, CL_SSL_CTRL_SET_MIN_PROTO_VERSION, CL_SSL_TLS1_2_VERSION, NULL);
    ssl->SSL_CTX_ctrl(c->ctx, CL_SSL_CTRL_MODE, CL_SSL_MODE_RELEASE_BUFFERS, NULL);
    *out = c;
    return 0;
}

void cl_tls_client_delete(struct cl_tls_client *c)
{
    if (!c)
        return;
    if (c->ctx)
        c->ssl->SSL_CTX_free(c->ctx);
    free(c);
}

static bool is_address(const char *host)
{
    struct in6_addr any;
    return inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
}

/* SNI names no addresses (RFC 6066, section 3). */
static bool set_host(struct cl_tls *t, const char *host)
{
    const struct cl_openssl *ssl = t->ssl;
    if (is_address(host))
        return ssl->X509_VERIFY_PARAM_set1_ip_asc(ssl->SSL_get0_param(t->session), host) == 1;
    long sni = ssl->SSL_ctrl(t->session, CL_SSL_CTRL_SET_TLSEXT_HOSTNAME, CL_TLSEXT_NAMETYPE_HOST_NAME,
                             (void *)(uintptr_t)host); /* which is only read */
    return sni == 1 && ssl->SSL_set1_host(t->session, host) == 1;
}

struct cl_tls *cl_tls_new(struct cl_tls_client *c, const char *host)
{
    const struct cl_openssl *ssl = c->ssl;
    struct cl_tls *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->ssl = ssl;
    t->session = ssl->SSL_new(c->ctx);
    t->in = ssl->BIO_new(ssl->BIO_s_mem());
    t->out = ssl->BIO_new(ssl->BIO_s_mem());
    if (!t->session || !t->in || !t->out || (host && !set_host(t, host))) {
        if (t->session)
            ssl->SSL_free(t->session);
        ssl->BIO_free(t->in);
        ssl->BIO_free(t->out);
        free(t);
        return NULL;
    }
    ssl->SSL_set_bio(t->session, t->in, t->out);
    ssl->SSL_set_connect_state(t->session);
    return t;
}

void cl_tls_delete(struct cl_tls *t)
{
    if (!t)
        return;
    t->ssl->SSL_free(t->session);
    free(t);
}

int cl_tls_put(struct cl_tls *t, const void *data, int64_t len)
{
    return t->ssl->BIO_write(t->in, data, (int)len) == len ? 0 : -ENOMEM;
}

static void failed(struct cl_tls *t)
{
    const struct cl_openssl *ssl = t->ssl;
    long seen = ssl->SSL_get_verify_result(t->session);
    if (seen == CL_SSL_X509_V_OK) {
        reason(ssl, t->why, sizeof t->why);
        return;
    }
    snprintf(t->why, sizeof t->why, "%s", ssl->X509_verify_cert_error_string(seen));
    ssl->ERR_clear_error();
}

static void shake(void *arg)
{
    struct cl_tls *t = arg;
    t->ssl->ERR_clear_error();
    int rc = t->ssl->SSL_do_handshake(t->session);
    t->open = rc == 1;
    t->shaken = t->open ? 1 : t->ssl->SSL_get_error(t->session, rc) == CL_SSL_ERROR_WANT_READ ? 0 : -EPROTO;
    if (t->shaken < 0)
        failed(t);
}

int cl_tls_shake(struct cl_tls *t)
{
    if (!cl_uthread_self() || cl_kthread_call(shake, t))
        shake(t);
    return t->shaken;
}

const char *cl_tls_why(const struct cl_tls *t)
{
    return t->why;
}

bool cl_tls_is_open(const struct cl_tls *t)
{
    return t->open;
}

bool cl_tls_resumed(const struct cl_tls *t)
{
    return t->ssl->SSL_session_reused(t->session) == 1;
}

int64_t cl_tls_read(struct cl_tls *t, void *plain, int64_t room)
{
    t->ssl->ERR_clear_error();
    int n = t->ssl->SSL_read(t->session, plain, (int)room);
    if (n > 0)
        return n;
    int error = t->ssl->SSL_get_error(t->session, n);
    if (error == CL_SSL_ERROR_WANT_READ)
        return -EAGAIN;
    if (error == CL_SSL_ERROR_ZERO_RETURN)
        return 0;
    failed(t);
    return -EPROTO;
}

int64_t cl_tls_write(struct cl_tls *t, const void *plain, int64_t len)
{
    t->ssl->ERR_clear_error();
    return t->ssl->SSL_write(t->session, plain, (int)len) == len ? len : -EPROTO;
}

int64_t cl_tls_out(struct cl_tls *t, uint8_t **data)
{
    long n = t->ssl->BIO_ctrl(t->out, CL_BIO_CTRL_INFO, 0, data);
    return cl_max(n, 0L);
}

void cl_tls_sent(struct cl_tls *t)
{
    t->ssl->BIO_ctrl(t->out, CL_BIO_CTRL_RESET, 0, NULL);
}
