/* Dates of HTTP (RFC 9110, section 5.6.7), in seconds since 1970, UTC. */
#ifndef CORELANE_APPS_HTTP_DATE_H
#define CORELANE_APPS_HTTP_DATE_H

#include "text.h"

#define CL_HTTP_DATE_BYTES 29 /* Sun, 06 Nov 1994 08:49:37 GMT */

/* Write CL_HTTP_DATE_BYTES, without a 0 behind them. Years 1970 to 9999. */
void cl_http_date_write(char *to, int64_t seconds);
/* Read any of the three forms. False: it is none. */
bool cl_http_date_read(struct cl_http_text text, int64_t *seconds);

#endif
