/* See compiled.h. */
#include "compiled.h"
#include "handler.h"
#include "serve.h"

#include <stdio.h>
#include <string.h>

static void drain(void *of)
{
    cl_http_drain(of);
}

static uint32_t alive(void *of)
{
    return cl_http_alive(of);
}

static void end(void *of)
{
    cl_http_service_delete(of);
}

static unsigned counts(void *of, struct cl_counter *out, unsigned room)
{
    struct cl_http_counts n;
    cl_http_sum_counts(of, &n);
    const struct cl_counter all[] = {
        {"requests", n.requests},
        {"opened", n.opened},
        {"ended", n.ended},
        {"refused_connections", n.refused_connections},
        {"failed_connections", n.failed_connections},
        {"ok", n.ok},
        {"redirects", n.redirects},
        {"client_errors", n.client_errors},
        {"server_errors", n.server_errors},
        {"handler_errors", n.handler_errors},
        {"no_memory", n.no_memory},
        {"late_heads", n.late_heads},
        {"slow_bodies", n.slow_bodies},
        {"slow_readers", n.slow_readers},
        {"idle", n.idle},
    };
    unsigned used = 0;
    for (unsigned i = 0; i < sizeof all / sizeof all[0] && used < room; i++)
        if (all[i].value)
            out[used++] = all[i];
    return used;
}

static int add(struct cl_http_service *s, struct cl_runtime *rt, const struct cl_service_work *w, char err[256])
{
    const struct cl_service_http *h = w->http;
    int rc =
        cl_http_add_handler(s, h->path, h->methods, h->type, h->room, (cl_http_handler)(uintptr_t)w->entry, w->state);
    if (rc == 0)
        rc = cl_runtime_name(rt, w->entry, w->name);
    if (rc)
        snprintf(err, 256, "%.80s cannot serve %.80s: %s", w->name, h->path, strerror(-rc));
    return rc;
}

int cl_http_compiled_serve(struct cl_runtime *rt, const struct cl_service *service, uint16_t port,
                           struct cl_service_server *out, char err[256])
{
    struct cl_http_service *s;
    struct cl_http_options options;
    struct cl_runtime_info info;
    cl_http_options_init(&options);
    cl_runtime_info(rt, &info);
    int rc = cl_http_service_new(&options, NULL, info.kthreads, &s, err);
    if (rc)
        return rc;
    *out = (struct cl_service_server){s, drain, alive, counts, end};
    for (unsigned i = 0; i < service->n_work && rc == 0; i++) {
        const struct cl_service_work *w = &service->work[i];
        if (w->kind != CL_SERVICE_HTTP)
            continue;
        rc = add(s, rt, w, err);
        if (!port)
            port = (uint16_t)w->port;
    }
    return rc ? rc : cl_http_serve(s, rt, port, 0, err);
}
