/* What all connections with TLS share. See tls.h. */
#include "tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Nobody can be asked while the server runs, so a key with a passphrase is refused. */
static int no_passphrase(char *buf, int size, int writes, void *arg)
{
    (void)buf, (void)size, (void)writes, (void)arg;
    return 0;
}

/* http/1.1 if it is among those offered; else the handshake fails (RFC 7301, section 3.2). */
static int choose(struct ssl_st *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                  unsigned int in_len, void *arg)
{
    static const char ours[] = "http/1.1";
    (void)ssl, (void)arg;
    for (unsigned at = 0; at < in_len && at + 1 + in[at] <= in_len; at += 1u + in[at])
        if (in[at] == sizeof ours - 1 && memcmp(in + at + 1, ours, sizeof ours - 1) == 0) {
            *out = in + at + 1;
            *out_len = in[at];
            return CL_SSL_TLSEXT_ERR_OK;
        }
    return CL_SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* The certificate of the name that the client gives (RFC 6066, section 3). It is asked of OpenSSL, which knows
 * wildcards. A name that is none of ours is no error: as a rule the client will not like the certificate. */
static int choose_name(struct ssl_st *ssl, int *alert, void *arg)
{
    const struct cl_http_tls_context *c = arg;
    const struct cl_openssl *f = c->ssl;
    const char *name = f->SSL_get_servername(ssl, CL_TLSEXT_NAMETYPE_HOST_NAME);
    (void)alert;
    for (; name && c; c = c->next)
        if (f->X509_check_host(f->SSL_CTX_get0_certificate(c->ctx), name, 0, 0, NULL) == 1) {
            (void)f->SSL_set_SSL_CTX(ssl, c->ctx);
            return CL_SSL_TLSEXT_ERR_OK;
        }
    return CL_SSL_TLSEXT_ERR_NOACK;
}

void cl_http_tls_context_add(struct cl_http_tls_context *first, struct cl_http_tls_context *more)
{
    struct cl_http_tls_context *last = first;
    while (last->next)
        last = last->next;
    last->next = more;
    first->ssl->SSL_CTX_callback_ctrl(first->ctx, CL_SSL_CTRL_SET_TLSEXT_SERVERNAME_CB, (void (*)(void))choose_name);
    first->ssl->SSL_CTX_ctrl(first->ctx, CL_SSL_CTRL_SET_TLSEXT_SERVERNAME_ARG, 0, first);
}

static int wrong(const struct cl_openssl *ssl, const char *what, const char *name, char err[256])
{
    char reason[160] = "";
    ssl->ERR_error_string_n(ssl->ERR_get_error(), reason, sizeof reason);
    const char *last = strrchr(reason, ':');
    snprintf(err, 256, "%s %.80s: %s", what, name, last && last[1] ? last + 1 : reason);
    ssl->ERR_clear_error();
    return -EINVAL;
}

static int set_up(const struct cl_http_tls_context *c, const char *certificates, const char *key, char err[256])
{
    static const unsigned char context[] = "corelane";
    const struct cl_openssl *ssl = c->ssl;
    ssl->SSL_CTX_ctrl(c->ctx, CL_SSL_CTRL_SET_MIN_PROTO_VERSION, CL_SSL_TLS1_2_VERSION, NULL);
    ssl->SSL_CTX_ctrl(c->ctx, CL_SSL_CTRL_MODE, CL_SSL_MODE_RELEASE_BUFFERS, NULL);
    ssl->SSL_CTX_ctrl(c->ctx, CL_SSL_CTRL_SET_SESS_CACHE_MODE, CL_SSL_SESS_CACHE_OFF, NULL);
    ssl->SSL_CTX_set_options(c->ctx, CL_SSL_OP_NO_RENEGOTIATION | CL_SSL_OP_CIPHER_SERVER_PREFERENCE);
    ssl->SSL_CTX_set_session_id_context(c->ctx, context, sizeof context - 1);
    ssl->SSL_CTX_set_alpn_select_cb(c->ctx, choose, NULL);
    ssl->SSL_CTX_set_default_passwd_cb(c->ctx, no_passphrase);
    ssl->ERR_clear_error();
    if (ssl->SSL_CTX_use_certificate_chain_file(c->ctx, certificates) != 1)
        return wrong(ssl, "cannot use the certificates in", certificates, err);
    if (ssl->SSL_CTX_use_PrivateKey_file(c->ctx, key, CL_SSL_FILETYPE_PEM) != 1)
        return wrong(ssl, "cannot use the key in", key, err);
    if (ssl->SSL_CTX_check_private_key(c->ctx) != 1)
        return wrong(ssl, "the key is not that of the certificate:", key, err);
    return 0;
}

int cl_http_tls_context_new(const char *certificates, const char *key, struct cl_http_tls_context **out, char err[256])
{
    const struct cl_openssl *ssl = cl_openssl_load(err);
    if (!ssl)
        return -ENOSYS;
    struct cl_http_tls_context *c = calloc(1, sizeof *c);
    if (c) {
        c->ssl = ssl;
        c->ctx = ssl->SSL_CTX_new(ssl->TLS_server_method());
        c->method = cl_http_tls_method(ssl);
    }
    if (!c || !c->ctx || !c->method) {
        cl_http_tls_context_delete(c);
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    int rc = set_up(c, certificates, key, err);
    if (rc)
        cl_http_tls_context_delete(c);
    else
        *out = c;
    return rc;
}

void cl_http_tls_context_delete(struct cl_http_tls_context *c)
{
    for (struct cl_http_tls_context *next; c; c = next) {
        next = c->next;
        c->ssl->SSL_CTX_free(c->ctx);
        c->ssl->BIO_meth_free(c->method);
        free(c);
    }
}
