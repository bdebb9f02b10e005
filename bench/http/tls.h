/* The client's side of TLS over corelane's TCP. Certificates are not looked at: what a handshake costs the server is
 * measured, and the server's is signed by itself. Each handshake is a whole one (harness/tls.h). */
#ifndef CORELANE_BENCH_HTTP_TLS_H
#define CORELANE_BENCH_HTTP_TLS_H

#include "../harness/tls.h"

#include <corelane/libos/tcp.h>

/* Send the first message of the handshake. < 0: it failed. */
int cl_bench_tls_begin(struct cl_tls *t, struct cl_tcp_conn *tcp);
/* Bytes came; the handshake goes on, if it is not done. < 0: it failed. */
int cl_bench_tls_put(struct cl_tls *t, struct cl_tcp_conn *tcp, const uint8_t *data, int64_t len);
/* Returns len, or < 0. */
int64_t cl_bench_tls_write(struct cl_tls *t, struct cl_tcp_conn *tcp, const void *data, int64_t len);

#endif
