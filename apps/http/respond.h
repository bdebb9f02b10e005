/* Heads of answers, and answers without a file. */
#ifndef CORELANE_APPS_HTTP_RESPOND_H
#define CORELANE_APPS_HTTP_RESPOND_H

#include "exchange.h"

#define CL_HTTP_NO_LENGTH UINT64_MAX /* an answer that has none: 1xx, 204, 304 */

/* The words of a status. */
const char *cl_http_reason(int status);
/* Begin the head of an answer: status line, date, and what becomes of the connection. */
void cl_http_head_begin(struct cl_http_exchange *x, int status);
/* Append lines, each with its CR LF. False: they do not fit. */
bool cl_http_head_add(struct cl_http_exchange *x, const char *lines, size_t len);
/* Append "NAME: VALUE". False: it does not fit. */
bool cl_http_head_field(struct cl_http_exchange *x, const char *name, const char *value);
/* The length of the body, the empty line, and the head becomes the first span. */
void cl_http_head_end(struct cl_http_exchange *x, uint64_t length);
/* Put a short body behind the head: one write, and with TLS one record, carries both. False: it does not fit. */
bool cl_http_head_with(struct cl_http_exchange *x, const void *body, uint64_t len);
/* A whole answer with a line of text that says what is wrong; to HEAD without it. more: header lines, or NULL. */
void cl_http_refuse(struct cl_http_exchange *x, int status, const char *more);

#endif
