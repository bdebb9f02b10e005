/* A client's side of TLS 1.2 and 1.3, by OpenSSL through memory BIOs: bytes in, bytes out, whatever carries them.
 *
 *   what came -> cl_tls_put -> cl_tls_shake | cl_tls_read     cl_tls_write -> cl_tls_out -> to be sent
 *
 * One thread at a time uses a session. Handshakes need more stack than a uthread has: cl_tls_shake runs on the
 * kthread's own (cl_kthread_call) where it is called on a uthread. No session is resumed: each handshake is a whole
 * one. What came and what is to be sent wait without a bound of their own: who puts bytes takes what follows from them
 * at once. Users: bench/http, bench/load. Tests: tests/bench/load/test_tls.py. */
#ifndef CORELANE_BENCH_HARNESS_TLS_H
#define CORELANE_BENCH_HARNESS_TLS_H

#include <corelane/runtime/base.h>

#define CL_TLS_PLAIN 16384 /* of one record */

struct cl_tls_client;
struct cl_tls;

/* verify: look at the server's certificate; ca: a file of those that sign it (PEM), NULL: those that this machine
 * trusts. -ENOSYS: there is no OpenSSL, -EINVAL: the file cannot be used, -ENOMEM; with a sentence in err. */
int cl_tls_client_new(bool verify, const char *ca, struct cl_tls_client **out, char err[256]);
void cl_tls_client_delete(struct cl_tls_client *c);

/* A session, to its client's delete. host: whom the certificate must name (a name or an IP address), and who is asked
 * for by SNI (RFC 6066, section 3); NULL: nobody. NULL: no memory. */
struct cl_tls *cl_tls_new(struct cl_tls_client *c, const char *host);
void cl_tls_delete(struct cl_tls *t);

/* Bytes that came. 0, -ENOMEM. */
int cl_tls_put(struct cl_tls *t, const void *data, int64_t len);
/* Go on with the handshake, at first to begin it: 1 it is done, 0 more must come, -EPROTO it failed. */
int cl_tls_shake(struct cl_tls *t);
/* Why it failed: one line. */
const char *cl_tls_why(const struct cl_tls *t);
bool cl_tls_is_open(const struct cl_tls *t);
bool cl_tls_resumed(const struct cl_tls *t);
/* Plain bytes of what came, up to `room`; 0: the peer has ended the session (close_notify); -EAGAIN: more must come;
 * -EPROTO. */
int64_t cl_tls_read(struct cl_tls *t, void *plain, int64_t room);
/* Encrypt: len, or -EPROTO. */
int64_t cl_tls_write(struct cl_tls *t, const void *plain, int64_t len);
/* What is to be sent, all of it, valid until the next call: its length. Once sent, or kept: cl_tls_sent. */
int64_t cl_tls_out(struct cl_tls *t, uint8_t **data);
void cl_tls_sent(struct cl_tls *t);

#endif
