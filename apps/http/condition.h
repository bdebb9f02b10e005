/* Conditional requests (RFC 9110, section 13) and ranges (section 14) of something that has a strong entity tag and a
 * date. Pure: texts in, a decision out. */
#ifndef CORELANE_APPS_HTTP_CONDITION_H
#define CORELANE_APPS_HTTP_CONDITION_H

#include "request.h"

#define CL_HTTP_RANGES 16 /* that are answered; a request for more is answered by all of it */

/* What a request is compared with. */
struct cl_http_validators {
    struct cl_http_text etag; /* strong, with its quotes */
    int64_t modified_s;
};

/* 0: go on; 304 or 412. */
int cl_http_condition(const struct cl_http_request *r, const struct cl_http_validators *v);

/* Bytes from..from + len - 1. */
struct cl_http_range {
    uint64_t from, len;
};

/* The ranges that a GET asks for, of `size` bytes, in its order. Returns how many; 0: all of it is asked for (no Range,
 * one that means nothing, an If-Range that is not right, too many, more bytes in sum than there are); -1: none of them
 * exists (416). */
int cl_http_ranges(const struct cl_http_request *r, const struct cl_http_validators *v, uint64_t size,
                   struct cl_http_range out[CL_HTTP_RANGES]);

#endif
