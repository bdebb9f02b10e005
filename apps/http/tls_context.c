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
    if (c)
        c->ctx = ssl->SSL_CTX_new(ssl->TLS_server_method());
    if (!c || !c->ctx) {
        free(c);
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    c->ssl = ssl;
    int rc = set_up(c, certificates, key, err);
    if (rc)
        cl_http_tls_context_delete(c);
    else
        *out = c;
    return rc;
}

void cl_http_tls_context_delete(struct cl_http_tls_context *c)
{
    if (!c)
        return;
    c->ssl->SSL_CTX_free(c->ctx);
    free(c);
}
