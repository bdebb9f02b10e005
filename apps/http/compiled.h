/* The server of a compiled service's HTTP handlers (corelane/libos/service.h). A service that has some refers to this
 * function by name, so no floor below knows of it. */
#ifndef CORELANE_APPS_HTTP_COMPILED_H
#define CORELANE_APPS_HTTP_COMPILED_H

#include <corelane/libos/service.h>

/* A cl_service_server_fn. Its options are the defaults; it serves no files. */
CL_API int cl_http_compiled_serve(struct cl_runtime *rt, const struct cl_service *service, uint16_t port,
                                  struct cl_service_server *out, char err[256]);

#endif
