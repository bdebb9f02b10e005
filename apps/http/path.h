/* The path of a file from the target of a request (RFC 9112, section 3.2; RFC 3986, sections 2.1 and 5.2.4). */
#ifndef CORELANE_APPS_HTTP_PATH_H
#define CORELANE_APPS_HTTP_PATH_H

#include "text.h"

#define CL_HTTP_PATH_MOST 1024
#define CL_HTTP_PATH_LONG (-2)

/* The part of a target in front of its query: of "/a?b" and of "http://host/a?b" it is "/a". Empty: it has none. */
struct cl_http_text cl_http_target_path(struct cl_http_text target);
/* Of the absolute form its host and port, as they came; else at NULL. */
struct cl_http_text cl_http_target_authority(struct cl_http_text target);
/* A target from its path on, as clients send it that ask no proxy. One without a path is "/", or itself if it has a
 * query. */
struct cl_http_text cl_http_target_origin(struct cl_http_text target);
/* Decode a path, and take its dot segments out: "/a/%62/../c" becomes "a/c". Nothing that comes out leads up, begins
 * with a slash or has an empty segment; one that names a directory ends with a slash, the root is "". Returns its
 * length, a 0 follows it. -1: it is none: a wrong escape, a zero byte, more ".." than there are segments.
 * CL_HTTP_PATH_LONG: it is longer than one that is served. */
int cl_http_path(struct cl_http_text path, char out[CL_HTTP_PATH_MOST]);
/* Whether a segment of a path begins with a dot, but for ".well-known" as the first (RFC 8615). */
bool cl_http_path_hidden(const char *path);

#endif
