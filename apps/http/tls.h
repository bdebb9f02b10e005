/* TLS 1.2 and 1.3 between a connection of HTTP (conn.h) and what carries its bytes, by OpenSSL through memory BIOs.
 *
 *   bytes -> in -> SSL_read -> cl_http_take          the connection's link -> SSL_write -> out -> bytes
 *
 * As without TLS nothing is taken while an answer is being sent, and no more than CL_HTTP_TLS_OUT bytes and a record
 * wait in `out`, so what a peer can have us hold is bounded. ALPN: http/1.1. A session is resumed by a ticket, which
 * holds it for us; no session is kept here. No renegotiation, no early data. Handshakes run on the kthread's own stack
 * (cl_kthread_call); so nothing blocks in them. */
#ifndef CORELANE_APPS_HTTP_TLS_H
#define CORELANE_APPS_HTTP_TLS_H

#include "conn.h"
#include "openssl.h"

#define CL_HTTP_TLS_RECORD 16384
#define CL_HTTP_TLS_OUT 16384 /* with less in `out`, another record is made */
#define CL_HTTP_TLS_BYTES                                                                                              \
    65536 /* what a connection counts for in memory_bytes: both BIOs at their largest, and the
rest */

struct cl_http_tls_context {
    const struct cl_openssl *ssl;
    struct ssl_ctx_st *ctx;
};

/* certificates: a file with the server's and those that it was signed with; key: its private key; both PEM. -ENOSYS: no
 * OpenSSL, -EINVAL; with a sentence in err. */
int cl_http_tls_context_new(const char *certificates, const char *key, struct cl_http_tls_context **out, char err[256]);
void cl_http_tls_context_delete(struct cl_http_tls_context *ctx);

struct cl_http_tls;

/* As cl_http_conn_new; below and wire carry the bytes. */
struct cl_http_tls *cl_http_tls_new(struct cl_http_service *s, const struct cl_http_link *below, void *wire);
struct cl_http_service *cl_http_tls_service(const struct cl_http_tls *t);
/* As the calls of conn.h. */
int64_t cl_http_tls_take(struct cl_http_tls *t, const uint8_t *data, int64_t len);
bool cl_http_tls_room(struct cl_http_tls *t);
void cl_http_tls_eof(struct cl_http_tls *t);
void cl_http_tls_tick(struct cl_http_tls *t);
void cl_http_tls_delete(struct cl_http_tls *t, bool failed);

#endif
