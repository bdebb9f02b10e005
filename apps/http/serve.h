/* An HTTP server on a runtime. Read conn.h for what a connection does. */
#ifndef CORELANE_APPS_HTTP_SERVE_H
#define CORELANE_APPS_HTTP_SERVE_H

#include <corelane/libos/runtime.h>
#include "service.h"

// cffi: begin
struct cl_http_service;

/* What is in memory of the files. */
struct cl_http_files_usage {
    uint64_t hits, looks, loads, evicted, entries, bytes;
};

/* The defaults. */
CL_API void cl_http_options_init(struct cl_http_options *o);
/* Whether the library was built with llhttp. */
CL_API bool cl_http_built(void);
/* New server of the files below `root`; NULL: of none. kthreads: of its runtime. -EINVAL, -ENOENT, -ENOMEM, -ENOSYS
 * (built without llhttp), with a sentence in err. */
CL_API int cl_http_service_new(const struct cl_http_options *o, const char *root, uint32_t kthreads,
                               struct cl_http_service **out, char err[256]);
/* Give it a certificate, for TLS, before it serves. Of several the first is for clients that name no host of another
 * one (SNI). certificates: a PEM file with the server's and those that it was signed with; key: a PEM file. -EINVAL,
 * -ENOSYS (there is no OpenSSL 3), with a sentence in err. */
CL_API int cl_http_set_certificate(struct cl_http_service *s, const char *certificates, const char *key, char err[256]);
/* Take connections to TCP ports of a runtime that has not started; tls_port with TLS. Either may be 0: none.
 * -EADDRINUSE, -EINVAL (TLS without a certificate), -ENOMEM, with a sentence in err. */
CL_API int cl_http_serve(struct cl_http_service *s, struct cl_runtime *rt, uint16_t port, uint16_t tls_port,
                         char err[256]);
/* Take no more connections (they are refused) and no more requests: those that are idle end, others with their answer.
 * Any thread, while its runtime exists. */
CL_API void cl_http_drain(struct cl_http_service *s);
/* Connections that are open. */
CL_API uint32_t cl_http_alive(const struct cl_http_service *s);
/* Bytes of requests and answers under way. */
CL_API uint64_t cl_http_used_bytes(const struct cl_http_service *s);
/* The sum over all kthreads. */
CL_API void cl_http_sum_counts(const struct cl_http_service *s, struct cl_http_counts *out);
CL_API void cl_http_files_usage(struct cl_http_service *s, struct cl_http_files_usage *out);
/* The runtime must have stopped, or never started. */
CL_API void cl_http_service_delete(struct cl_http_service *s);
// cffi: end

/* Set the clock of a server that has no runtime: ms that only grow, and the date. */
void cl_http_set_time(struct cl_http_service *s, uint64_t now_ms, int64_t date_s);

#endif
