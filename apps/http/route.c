/* Which handler answers. See handler.h. */
#include "handler.h"
#include "exchange.h"
#include "path.h"
#include "respond.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const method_names[CL_HTTP_METHODS] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};

static int add(struct cl_http_service *s, const char *path, uint32_t methods, const char *type,
               const struct cl_http_route *like)
{
    size_t len = strlen(path);
    if (path[0] != '/' || len >= CL_HTTP_PATH_MOST || methods == 0 || methods >= 1u << CL_HTTP_METHODS)
        return -EINVAL;
    struct cl_http_route *route = malloc(sizeof *route + len + 1);
    char *what = NULL;
    if (!route || asprintf(&what, "the handler of HTTP path %s", path) < 0) {
        free(route);
        return -ENOMEM;
    }
    *route = *like;
    route->type = type ? strdup(type) : NULL;
    route->what = what;
    route->doing = (struct cl_doing){.what = what, .arg = like->arg};
    route->doing.fn = like->handler ? (void *)(uintptr_t)like->handler : (void *)(uintptr_t)like->foreign;
    route->prefix = path[len - 1] == '*';
    route->path_len = (uint32_t)(len - route->prefix);
    route->methods = methods | (methods & CL_HTTP_TAKES_GET ? 1u << CL_HTTP_HEAD : 0);
    memcpy(route->path, path, len + 1);
    route->next = s->routes;
    s->routes = route;
    return 0;
}

int cl_http_add_handler(struct cl_http_service *s, const char *path, uint32_t methods, const char *type, uint64_t room,
                        cl_http_handler fn, void *arg)
{
    if (!fn || !type || strpbrk(type, "\r\n") || strlen(type) > 200 || room > s->options.memory_bytes)
        return -EINVAL;
    struct cl_http_route like = {.handler = fn, .room = room, .arg = arg};
    return add(s, path, methods, type, &like);
}

int cl_http_add_foreign(struct cl_http_service *s, const char *path, uint32_t methods, cl_http_foreign fn, void *arg)
{
    struct cl_http_route like = {.foreign = fn, .arg = arg};
    return fn ? add(s, path, methods, NULL, &like) : -EINVAL;
}

static bool fits(const struct cl_http_route *route, struct cl_http_text path)
{
    if (route->prefix ? path.len < route->path_len : path.len != route->path_len)
        return false;
    return memcmp(route->path, path.at, route->path_len) == 0;
}

/* The longest; of two as long the one that fits exactly. */
static const struct cl_http_route *find(const struct cl_http_service *s, struct cl_http_text path)
{
    const struct cl_http_route *best = NULL;
    for (const struct cl_http_route *route = s->routes; route; route = route->next)
        if (fits(route, path) &&
            (!best || route->path_len > best->path_len || (route->path_len == best->path_len && !route->prefix)))
            best = route;
    return best;
}

int cl_http_route(struct cl_http_exchange *x)
{
    struct cl_http_request *r = &x->request;
    x->route = x->service->routes ? find(x->service, cl_http_target_path(cl_http_target(r))) : NULL;
    if (!x->route)
        return 0;
    if (!(x->route->methods & 1u << r->method))
        return 405;
    bool sends = r->method == CL_HTTP_POST || r->method == CL_HTTP_PUT || r->method == CL_HTTP_PATCH;
    if (sends && !r->sized && !r->chunked)
        return 411;
    x->wants_body = true;
    return 0;
}

void cl_http_route_refuse(struct cl_http_exchange *x, int status)
{
    char line[100] = "Allow: ";
    size_t len = strlen(line);
    for (unsigned i = 0, n = 0; i < CL_HTTP_METHODS; i++)
        if (x->route->methods & 1u << i)
            len += (size_t)snprintf(line + len, sizeof line - len, "%s%s", n++ ? ", " : "", method_names[i]);
    snprintf(line + len, sizeof line - len, "\r\n");
    cl_http_refuse(x, status, status == 405 ? line : NULL);
}

void cl_http_routes_delete(struct cl_http_service *s)
{
    for (struct cl_http_route *route; (route = s->routes);) {
        s->routes = route->next;
        free(route->type);
        free(route->what);
        free(route);
    }
}
