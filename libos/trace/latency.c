/* Latency of services as histograms, from the stamps of the messages that are drawn (../../runtime/latency.h).
 *
 * Each kthread has pages of its own, in memory of the process; whoever shows them copies them (cl_trace_tell_latency).
 * What is recorded is the time from the first moment that is known of a message (the iokernel's pick-up, else the
 * kthread's) to its doorbell, or the end of its handler if it was not answered. Sampled: of those that are drawn. Full:
 * of 1 in about TELLS of them, since a record costs as much as a stamp. */
#include "internal.h"
#include "../../runtime/latency.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define TELLS 32

int cl_tracer_latency_new(uint32_t n_rings, void **out)
{
    /* Pages that are never needed are never touched. */
    void *part = mmap(NULL, cl_latency_bytes(n_rings), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = part == MAP_FAILED ? NULL : part;
    return *out ? 0 : -ENOMEM;
}

void cl_tracer_latency_delete(void *part, uint32_t n_rings)
{
    if (part)
        munmap(part, cl_latency_bytes(n_rings));
}

void cl_tracer_latency_name(void *part, uint32_t n_rings, uint16_t service, const char *name)
{
    if (service == 0 || service > CL_LATENCY_SERVICES)
        return;
    for (uint32_t k = 0; k < n_rings; k++)
        cl_latency_init(cl_latency_of(part, k, service - 1u));
    (void)cl_latency_name(part, name); /* services are numbered in the order in which they are named */
}

void cl_tracer_latency_take(struct cl_tracer *t, uint16_t service, uint32_t took)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    t->untold = (int32_t)(t->random >> 33) % (2 * TELLS - 1);
    if (service == 0 || service > CL_LATENCY_SERVICES)
        return;
    cl_latency_record(cl_latency_of(t->latency, t->index, service - 1u), (uint64_t)cl_ticks_to_ns(t->clock, took));
}

void cl_tracer_served(struct cl_tracer *t, uint16_t service, uint64_t n)
{
    if (service && service <= CL_LATENCY_SERVICES)
        cl_latency_count(cl_latency_of(t->latency, t->index, service - 1u), n);
}

/* Numbers of a kthread that may go on counting. */
static void copy_page(struct cl_latency *to, const struct cl_latency *from, uint64_t more)
{
    const uint64_t *words = (const uint64_t *)&from->hist;
    uint64_t *out = (uint64_t *)&to->hist;
    for (size_t i = 0; i < (sizeof from->hist + sizeof from->counts) / sizeof *words; i++)
        cl_store_relaxed(&out[i], cl_load_relaxed(&words[i]));
    /* What counts now may be counted twice, or not, while it becomes another service's; a counter never falls. */
    uint64_t requests = cl_load_relaxed(&from->requests) + more;
    cl_store_relaxed(&to->requests, cl_max(cl_load_relaxed(&to->requests), requests));
}

void cl_tracer_latency_tell(const void *part, void *out, uint32_t n_rings, const struct cl_trace_serving *now)
{
    const struct cl_latency_names *names = part;
    struct cl_latency_names *told = out;
    /* Acquire: what was named before. */
    uint32_t n = cl_load_acquire(&names->n);
    for (uint32_t k = 0; k < n_rings; k++)
        for (uint32_t s = 0; s < n; s++)
            copy_page(cl_latency_of(out, k, s), cl_latency_of((void *)(uintptr_t)part, k, s),
                      now[k].service == s + 1 ? now[k].requests : 0);
    memcpy(told->service, names->service, n * sizeof *names->service);
    cl_store_release(&told->n, n); /* release: all of it */
}
