/* See corelane/libos/elastic.h. The word is in the arena's first page, beside the preemption flag (runtime/shm.h), which
 * lies at one address whichever iokernel there is. What is held goes to the iokernel as counters, four times a second. */
#include "elastic.h"
#include "internal.h"
#include "../runtime/shm.h"

#include <corelane/runtime/cores.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Between two pages that cannot be touched, so that Linux keeps it as a mapping of its own: what it takes can then be seen
 * from outside (iokernel/control/elastic.py). */
struct cl_elastic {
    struct cl_runtime *rt; /* NULL: it is gone */
    uint8_t *base;
    uint64_t bytes, least;
    uint64_t held;        /* writer: who uses it (relaxed); readers: anybody */
    const uint64_t *word; /* the iokernel's; of `nowhere`: there is none */
};

static const uint64_t nowhere = 0;

static uint64_t in_pages(uint64_t bytes)
{
    return (bytes + CL_SHM_PAGE - 1) / CL_SHM_PAGE * CL_SHM_PAGE;
}

/* Where the iokernel says how much it may hold, if it manages the cores. */
static const uint64_t *word_of(const struct cl_runtime *rt)
{
    if (!rt->own_nic || !rt->nic->cores)
        return &nowhere;
    return &cl_container_of(rt->nic->cores->preempt, const struct cl_arena_preempt, preempt)->memory_bytes;
}

static uint8_t *reserve(uint64_t bytes)
{
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint8_t *p = mmap(NULL, bytes + 2 * CL_SHM_PAGE, PROT_NONE, how, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (mprotect(p + CL_SHM_PAGE, bytes, PROT_READ | PROT_WRITE) == 0)
        return p + CL_SHM_PAGE;
    munmap(p, bytes + 2 * CL_SHM_PAGE);
    return NULL;
}

int cl_elastic_new(struct cl_runtime *rt, uint64_t bytes, uint64_t least, struct cl_elastic **out, char err[256])
{
    if (bytes == 0 || least > bytes || bytes > UINT64_MAX / 2)
        return cl_refuse(err, -EINVAL, "give the most bytes that it uses, and the least that it can do with");
    struct cl_elastic *e = malloc(sizeof *e);
    uint8_t *base = e ? reserve(in_pages(bytes)) : NULL;
    if (!base) {
        free(e);
        return cl_refuse(err, -ENOMEM, "there are no addresses for so many bytes: ask for fewer");
    }
    *e = (struct cl_elastic){.rt = rt, .base = base, .bytes = bytes, .least = least, .word = word_of(rt)};
    cl_spin_lock(&rt->elastic_lock);
    bool first = rt->elastic == NULL;
    if (first)
        rt->elastic = e;
    cl_spin_unlock(&rt->elastic_lock);
    if (!first) {
        e->rt = NULL;
        cl_elastic_delete(e);
        return cl_refuse(err, -EEXIST, "the runtime has elastic memory already: divide that");
    }
    *out = e;
    return 0;
}

void cl_elastic_delete(struct cl_elastic *e)
{
    if (!e)
        return;
    if (e->rt) {
        cl_spin_lock(&e->rt->elastic_lock);
        e->rt->elastic = NULL;
        cl_spin_unlock(&e->rt->elastic_lock);
    }
    munmap(e->base - CL_SHM_PAGE, in_pages(e->bytes) + 2 * CL_SHM_PAGE);
    free(e);
}

void cl_elastic_leave(struct cl_runtime *rt)
{
    cl_spin_lock(&rt->elastic_lock);
    if (rt->elastic) {
        cl_store_relaxed(&rt->elastic->word, &nowhere); /* relaxed: its kthreads have ended */
        rt->elastic->rt = NULL;
        rt->elastic = NULL;
    }
    cl_spin_unlock(&rt->elastic_lock);
}

void *cl_elastic_base(const struct cl_elastic *e)
{
    return e->base;
}

uint64_t cl_elastic_limit(const struct cl_elastic *e)
{
    /* Relaxed: seen late, it is heeded late. */
    uint64_t allowed = cl_load_relaxed(cl_load_relaxed(&e->word));
    return allowed == 0 ? e->bytes : cl_min(cl_max(allowed, e->least), e->bytes);
}

uint64_t cl_elastic_use(struct cl_elastic *e, uint64_t bytes)
{
    uint64_t now = cl_min(bytes, cl_elastic_limit(e)), before = cl_load_relaxed(&e->held);
    if (in_pages(now) < in_pages(before))
        (void)madvise(e->base + in_pages(now), in_pages(before) - in_pages(now), MADV_DONTNEED);
    cl_store_relaxed(&e->held, now);
    return now;
}

uint64_t cl_elastic_held(const struct cl_elastic *e)
{
    return cl_load_relaxed(&e->held);
}

unsigned cl_elastic_counters(struct cl_runtime *rt, struct cl_counter *out, unsigned room)
{
    static const char *const names[] = {"elastic_held_bytes", "elastic_least_bytes", "elastic_most_bytes"};
    unsigned n = 0;
    cl_spin_lock(&rt->elastic_lock);
    const struct cl_elastic *e = rt->elastic;
    if (e && room >= 3) {
        const uint64_t values[] = {cl_elastic_held(e), e->least, e->bytes};
        for (; n < 3; n++) {
            out[n] = (struct cl_counter){.value = values[n]};
            snprintf(out[n].name, sizeof out[n].name, "%s", names[n]);
        }
    }
    cl_spin_unlock(&rt->elastic_lock);
    return n;
}
