/* Spans of files: from memory, or read piece by piece by a loader; one range, or several as multipart/byteranges. */
#ifndef CORELANE_APPS_HTTP_PIECES_H
#define CORELANE_APPS_HTTP_PIECES_H

#include "exchange.h"

/* Have x->file from x->at on, x->left bytes, follow the head. False: there is no memory for pieces. */
bool cl_http_pieces_begin(struct cl_http_exchange *x);
/* Have the parts of x->ranges follow the head. False: there is no memory for pieces. */
bool cl_http_parts_begin(struct cl_http_exchange *x);
/* The bytes that the parts will take. */
uint64_t cl_http_parts_bytes(const struct cl_http_exchange *x);
/* Free the memory of pieces. */
void cl_http_pieces_end(struct cl_http_exchange *x);

#endif
