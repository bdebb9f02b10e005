/* See store.h. */
#include "store.h"

#include <errno.h>
#include <sys/mman.h>

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int cl_link_store_new(struct cl_link_store *s, uint32_t n, uint32_t bytes)
{
    s->n = n;
    s->stride = (bytes + CL_CACHELINE - 1) & ~(CL_CACHELINE - 1u);
    cl_link_list_init(&s->free);
    s->slots = reserve(n * sizeof *s->slots);
    s->bytes = reserve((size_t)n * s->stride);
    return s->slots && s->bytes ? 0 : -ENOMEM;
}

void cl_link_store_delete(struct cl_link_store *s)
{
    if (s->slots)
        munmap(s->slots, s->n * sizeof *s->slots);
    if (s->bytes)
        munmap(s->bytes, (size_t)s->n * s->stride);
}
