/* What a service does, given to a runtime. See corelane/libos/service.h. */
#include <corelane/libos/service.h>

#include <corelane/libos/stream.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Written by its uthread, then `ended` (release); told: by who asks for those that have ended (next_job). */
struct job {
    const struct cl_service_work *work;
    struct cl_service_bound *bound;
    int64_t result;
    uint32_t ended;
    bool told;
};

struct cl_service_bound {
    struct cl_service_server server; /* of: NULL: there is none */
    int jobs_fd;
    uint32_t n_jobs, n_told;
    bool only_jobs;
    struct job jobs[];
};

static bool has_port(const struct cl_service_work *w)
{
    return w->kind == CL_SERVICE_UDP || w->kind == CL_SERVICE_TCP;
}

static unsigned count(const struct cl_service *service, uint32_t kind)
{
    unsigned n = 0;
    for (unsigned i = 0; i < service->n_work; i++)
        n += service->work[i].kind == kind;
    return n;
}

static void run_job(void *arg)
{
    struct job *j = arg;
    j->result = ((cl_every_fn)(uintptr_t)j->work->entry)(j->work->state);
    cl_store_release(&j->ended, 1); /* the result is there */
    (void)eventfd_write(j->bound->jobs_fd, 1);
}

static int start_job(struct cl_runtime *rt, const struct cl_service_work *w, struct cl_service_bound *bound)
{
    struct job *j = &bound->jobs[bound->n_jobs];
    *j = (struct job){.work = w, .bound = bound};
    int rc = cl_runtime_spawn(rt, run_job, j);
    bound->n_jobs += rc == 0;
    return rc;
}

static int bind_one(struct cl_runtime *rt, const struct cl_service_work *w, uint16_t port,
                    struct cl_service_bound *bound, char err[256])
{
    const struct cl_every *every;
    switch (w->kind) {
    case CL_SERVICE_UDP: {
        cl_udp_handler fn = (cl_udp_handler)(uintptr_t)w->entry;
        if (w->batching)
            return cl_runtime_bind_udp_batched(rt, port, (cl_udp_burst_handler)(uintptr_t)w->entry, w->state, 0,
                                               w->batching, err);
        if (w->types)
            return cl_runtime_bind_udp_typed(rt, port, fn, w->state, w->types, err);
        return w->ordered ? cl_runtime_bind_udp_ordered(rt, port, fn, w->state)
                          : cl_runtime_bind_udp(rt, port, fn, w->state);
    }
    case CL_SERVICE_TCP:
        return cl_runtime_serve_tcp(rt, port, w->backlog, w->window, (cl_tcp_handler)(uintptr_t)w->entry, w->state);
    case CL_SERVICE_EVERY:
        return cl_runtime_every(rt, w->period_ns, (cl_every_fn)(uintptr_t)w->entry, w->state, 0, &every);
    case CL_SERVICE_JOB:
        return start_job(rt, w, bound);
    case CL_SERVICE_HTTP:
        return 0; /* by the server, with all others */
    default:
        snprintf(err, 256, "work of kind %u: this corelane knows none", w->kind);
        return -ENOTSUP;
    }
}

static int bind_all(struct cl_runtime *rt, const struct cl_service *service, uint16_t port,
                    struct cl_service_bound *bound, char err[256])
{
    for (unsigned i = 0; i < service->n_work; i++) {
        const struct cl_service_work *w = &service->work[i];
        char why[256] = "";
        uint16_t own = port ? port : (uint16_t)w->port;
        int rc = bind_one(rt, w, own, bound, why);
        if (rc == 0)
            rc = cl_runtime_name(rt, w->kind == CL_SERVICE_JOB ? (void *)(uintptr_t)run_job : w->entry, w->name);
        if (rc) {
            const char *reason = why[0] ? why : strerror(-rc);
            if (has_port(w))
                snprintf(err, 256, "%.80s cannot have port %u: %.150s", w->name, own, reason);
            else
                snprintf(err, 256, "%.80s cannot be started: %.150s", w->name, reason);
            return rc;
        }
    }
    if (!count(service, CL_SERVICE_HTTP))
        return 0;
    if (!service->http) {
        snprintf(err, 256, "its HTTP handlers have no server: compile it again");
        return -ENOEXEC;
    }
    return service->http(rt, service, port, &bound->server, err);
}

static struct cl_service_bound *new_bound(const struct cl_service *service)
{
    unsigned jobs = count(service, CL_SERVICE_JOB);
    struct cl_service_bound *bound = calloc(1, sizeof *bound + jobs * sizeof bound->jobs[0]);
    if (!bound)
        return NULL;
    bound->only_jobs = jobs == service->n_work;
    bound->jobs_fd = jobs ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (jobs && bound->jobs_fd < 0) {
        free(bound);
        return NULL;
    }
    return bound;
}

int cl_service_bind(struct cl_runtime *rt, const struct cl_service *service, uint16_t port,
                    struct cl_service_bound **out, char err[256])
{
    unsigned handlers = count(service, CL_SERVICE_UDP) + count(service, CL_SERVICE_TCP);
    handlers += count(service, CL_SERVICE_HTTP) > 0;
    *out = NULL;
    if (port && handlers != 1) {
        snprintf(err, 256, "it has %u handlers, and one port was given", handlers);
        return -EINVAL;
    }
    *out = new_bound(service);
    if (!*out) {
        snprintf(err, 256, "there is no memory or no descriptor for its jobs");
        return -ENOMEM;
    }
    return bind_all(rt, service, port, *out, err);
}

void cl_service_unbind(struct cl_service_bound *bound)
{
    if (!bound)
        return;
    if (bound->server.of)
        bound->server.end(bound->server.of);
    if (bound->jobs_fd >= 0)
        close(bound->jobs_fd);
    free(bound);
}

void cl_service_drain(struct cl_service_bound *bound)
{
    if (bound->server.of)
        bound->server.drain(bound->server.of);
}

uint32_t cl_service_alive(const struct cl_service_bound *bound)
{
    return bound->server.of ? bound->server.alive(bound->server.of) : 0;
}

unsigned cl_service_counters(void *arg, struct cl_counter *out, unsigned room)
{
    const struct cl_service_bound *bound = arg;
    return bound->server.of ? bound->server.counts(bound->server.of, out, room) : 0;
}

int cl_service_jobs_fd(const struct cl_service_bound *bound)
{
    return bound->jobs_fd;
}

int cl_service_next_job(struct cl_service_bound *bound, const char **name, int64_t *result)
{
    eventfd_t posted;
    for (uint32_t i = 0; i < bound->n_jobs; i++) {
        struct job *j = &bound->jobs[i];
        if (j->told || !cl_load_acquire(&j->ended)) /* acquire: its result */
            continue;
        j->told = true;
        bound->n_told++;
        *name = j->work->name;
        *result = j->result;
        return 1;
    }
    /* Behind the look it is read again, or what was posted in between would be forgotten. */
    if (bound->n_jobs && eventfd_read(bound->jobs_fd, &posted) == 0)
        return cl_service_next_job(bound, name, result);
    return 0;
}

bool cl_service_is_done(const struct cl_service_bound *bound)
{
    return bound->only_jobs && bound->n_told == bound->n_jobs;
}
