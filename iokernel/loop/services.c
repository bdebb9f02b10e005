/* What applications say of the latency of their services, read from their arenas (runtime/latency.h). */
#include "../state/internal.h"

#include <errno.h>
#include <string.h>

/* Relaxed: each number is right by itself, and a sum over kthreads is of no one instant in any case. */
static uint64_t bounded(const uint64_t *theirs)
{
    uint64_t value = cl_load_relaxed(theirs);
    return cl_min(value, (uint64_t)CL_IO_SERVICE_MOST);
}

static void add_kthread(struct cl_io_service *out, const struct cl_latency *theirs)
{
    out->requests += bounded(&theirs->requests);
    out->sum_ns += bounded(&theirs->hist.sum);
    for (uint32_t i = 0; i < CL_LATENCY_BUCKETS; i++)
        out->counts[i] += bounded(&theirs->counts[i]);
}

static int read_service(const struct io_app *app, uint32_t service, struct cl_io_service *out)
{
    void *part = cl_arena_latency(app->memory.base, &app->layout);
    const struct cl_latency_names *names = part;
    /* Acquire: the name was written before the number. */
    uint32_t n = cl_min(cl_load_acquire(&names->n), (uint32_t)CL_LATENCY_SERVICES);
    if (service >= n)
        return -ENOENT;
    memset(out, 0, sizeof *out);
    memcpy(out->name, names->service[service].text, sizeof out->name - 1);
    for (uint32_t k = 0; k < app->layout.n_kthreads; k++)
        add_kthread(out, cl_latency_of(part, k, service));
    return 0;
}

int cl_io_app_service(const struct cl_io *io, uint32_t id, uint32_t service, struct cl_io_service *out)
{
    for (const struct io_app *a = io->apps; a; a = a->next)
        if (a->id == id)
            return read_service(a, service, out);
    return -ENOENT;
}
