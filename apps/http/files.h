/* Answers from files: GET and HEAD of what lies below the root. */
#ifndef CORELANE_APPS_HTTP_FILES_H
#define CORELANE_APPS_HTTP_FILES_H

#include "exchange.h"

/* What the head of a request alone has earned: 404, 405, or 0: it is to be looked for. */
int cl_http_files_early(const struct cl_http_exchange *x);
/* Say so. */
void cl_http_files_refuse(struct cl_http_exchange *x, int status);
/* Answer one that is whole and was not refused, from its service's cache. May block. */
void cl_http_files_answer(struct cl_http_exchange *x);

#endif
