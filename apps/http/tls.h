/* TLS 1.2 and 1.3 between a connection of HTTP (conn.h) and what carries its bytes, by OpenSSL through a BIO of ours.
 *
 *   bytes -> SSL_read -> plain -> cl_http_take          the connection's link -> SSL_write -> bytes
 *
 * OpenSSL reads the bytes from where they lie, a record at a time and no further, and writes its records to what is
 * below; only one for which that has no room is kept, in `out`. As without TLS nothing is taken while an answer is
 * being sent, nor while a record's worth waits in `out`: so what a peer can have us hold is bounded, and who does not
 * read is held back by TCP. ALPN: http/1.1. A session is resumed by a ticket, which holds it for us; no session is kept
 * here. No renegotiation, no early data. Handshakes run on the kthread's own stack (cl_kthread_call); so nothing blocks
 * in them. */
#ifndef CORELANE_APPS_HTTP_TLS_H
#define CORELANE_APPS_HTTP_TLS_H

#include "conn.h"
#include "openssl.h"

#define CL_HTTP_TLS_RECORD 16384 /* bytes of text in a record, at most */
/* What a connection counts for in memory_bytes: OpenSSL's two buffers, `plain` and `out`, each as long as a record. */
#define CL_HTTP_TLS_BYTES 65536

/* A certificate, and what all connections that have it share. */
struct cl_http_tls_context {
    const struct cl_openssl *ssl;
    struct ssl_ctx_st *ctx;
    struct bio_method_st *method;
    struct cl_http_tls_context *next; /* of the other names of the same server, in the order in which they were added */
};

/* certificates: a file with the server's and those that it was signed with; key: its private key; both PEM. -ENOSYS: no
 * OpenSSL, -EINVAL; with a sentence in err. */
int cl_http_tls_context_new(const char *certificates, const char *key, struct cl_http_tls_context **out, char err[256]);
/* Add one for the clients that name its host (SNI: RFC 6066, section 3); who names none, or none of ours, gets the
 * first's. Before connections begin. */
void cl_http_tls_context_add(struct cl_http_tls_context *first, struct cl_http_tls_context *more);
/* With all that were added. NULL is allowed. */
void cl_http_tls_context_delete(struct cl_http_tls_context *ctx);

struct cl_http_tls;

/* How connections read and write; the caller's. NULL: no memory. */
struct bio_method_st *cl_http_tls_method(const struct cl_openssl *ssl);

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
