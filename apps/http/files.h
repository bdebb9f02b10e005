/* Answers from files: GET and HEAD of what lies below the root. */
#ifndef CORELANE_APPS_HTTP_FILES_H
#define CORELANE_APPS_HTTP_FILES_H

#include "exchange.h"

/* Answer a request that is whole, from its service's cache. May block. */
void cl_http_files_answer(struct cl_http_exchange *x);

#endif
