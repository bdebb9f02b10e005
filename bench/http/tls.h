/* The client's side of TLS, by OpenSSL through memory BIOs. Certificates are not looked at: what a handshake costs the
 * server is measured, and the server's is signed by itself. Each handshake is a whole one. */
#ifndef CORELANE_BENCH_HTTP_TLS_H
#define CORELANE_BENCH_HTTP_TLS_H

#include <corelane/libos/tcp.h>

#define CL_BENCH_TLS_PLAIN 16384 /* of one record */

struct cl_bench_tls_context;
struct cl_bench_tls;

/* -ENOSYS: there is no OpenSSL, -ENOMEM; with a sentence in err. */
int cl_bench_tls_context_new(struct cl_bench_tls_context **out, char err[256]);
void cl_bench_tls_context_delete(struct cl_bench_tls_context *c);
/* A session. NULL: no memory. */
struct cl_bench_tls *cl_bench_tls_new(struct cl_bench_tls_context *c);
void cl_bench_tls_delete(struct cl_bench_tls *t);
/* Send the first message of the handshake. < 0: it failed. */
int cl_bench_tls_begin(struct cl_bench_tls *t, struct cl_tcp_conn *tcp);
/* Bytes came; the handshake goes on, if it is not done. < 0: it failed. */
int cl_bench_tls_put(struct cl_bench_tls *t, struct cl_tcp_conn *tcp, const uint8_t *data, int64_t len);
bool cl_bench_tls_is_open(const struct cl_bench_tls *t);
bool cl_bench_tls_resumed(const struct cl_bench_tls *t);
/* Plain bytes of the next record. 0: there is none, or the peer has ended it. */
int64_t cl_bench_tls_get(struct cl_bench_tls *t, uint8_t plain[CL_BENCH_TLS_PLAIN]);
/* Returns len, or < 0. */
int64_t cl_bench_tls_write(struct cl_bench_tls *t, struct cl_tcp_conn *tcp, const void *data, int64_t len);

#endif
