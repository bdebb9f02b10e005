/* Content types of files by the ends of their names. */
#ifndef CORELANE_APPS_HTTP_TYPES_H
#define CORELANE_APPS_HTTP_TYPES_H

/* The type of a path, "application/octet-stream" if nothing better is known. */
const char *cl_http_type_of(const char *path);

#endif
