/* Replies: what is written to a client's chain, in RESP2 or RESP3 as the client has asked.
 * Types and framing: the RESP3 specification; RESP2 has no map, set, double, null, boolean, verbatim text or push, and
 * gets arrays, bulks and integers in their place. */
#ifndef CORELANE_APPS_RESP_REPLY_H
#define CORELANE_APPS_RESP_REPLY_H

#include "resp.h"

void cl_reply_raw(struct cl_resp_client *c, const void *p, uint64_t n);
/* A line: "+text", or whatever `text` begins with. */
void cl_reply_line(struct cl_resp_client *c, const char *text);
void cl_reply_status(struct cl_resp_client *c, const char *text);
void cl_reply_ok(struct cl_resp_client *c);
/* "-text": the text begins with its code, "ERR" as a rule. Line breaks in it become spaces. */
void cl_reply_error(struct cl_resp_client *c, const char *fmt, ...) CL_PRINTF(2, 3);
void cl_reply_int(struct cl_resp_client *c, int64_t v);
void cl_reply_bulk(struct cl_resp_client *c, const void *p, uint64_t n);
void cl_reply_slice(struct cl_resp_client *c, struct cl_slice s);
void cl_reply_text(struct cl_resp_client *c, const char *text);
/* An integer as a bulk. */
void cl_reply_bulk_int(struct cl_resp_client *c, int64_t v);
void cl_reply_null(struct cl_resp_client *c);
void cl_reply_null_array(struct cl_resp_client *c);
void cl_reply_array(struct cl_resp_client *c, int64_t n);
void cl_reply_map(struct cl_resp_client *c, int64_t n); /* n pairs */
void cl_reply_set(struct cl_resp_client *c, int64_t n);
void cl_reply_push(struct cl_resp_client *c, int64_t n);
void cl_reply_double(struct cl_resp_client *c, double v);
/* An integer of any size, as its digits. */
void cl_reply_big(struct cl_resp_client *c, const char *digits);
void cl_reply_bool(struct cl_resp_client *c, bool v);
void cl_reply_verbatim(struct cl_resp_client *c, const char *p, uint64_t n, const char *kind);
/* A header whose number is not known yet: what is written after it comes behind it, `type` is '*', '%', '~'. */
struct cl_rchunk *cl_reply_defer(struct cl_resp_client *c);
void cl_reply_deferred(struct cl_resp_client *c, struct cl_rchunk *at, char type, int64_t n);
/* Errors that many commands give. */
void cl_reply_syntax(struct cl_resp_client *c);
void cl_reply_wrong_type(struct cl_resp_client *c);
void cl_reply_not_integer(struct cl_resp_client *c);
/* The part of a container that was called has other arguments. */
void cl_reply_wrong_part(struct cl_resp_client *c);
/* n bytes of replies do not wait any more. */
void cl_reply_left(struct cl_resp *r, uint64_t n);
/* Drop what waits to be taken. */
void cl_reply_drop(struct cl_resp_client *c);
/* Have somebody look at the client: what it has to send does not follow from its own bytes. */
void cl_client_wake(struct cl_resp_client *c);

#endif
