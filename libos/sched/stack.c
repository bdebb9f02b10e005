/* uthread objects and their stacks.
 *
 * An object keeps its stack for life. Free objects wait in LIFO caches, one per kthread and without a lock, so that the
 * next uthread runs on the stack that is warmest; half a cache at a time moves to and from a locked depot. Stacks are
 * mapped CL_STACK_SLAB at a time when the depot is empty, so memory follows the largest number of uthreads that were
 * alive at one time, and only pages that were touched are real.
 *
 * Below each stack lies a guard of 1 MiB of address space, so that a large frame of some library does not step over it
 * into the stack below: MADV_GUARD_INSTALL where the kernel has it (6.13), which costs no mapping of its own; else
 * and under valgrind mprotect, and then about 32 000 stacks fit into vm.max_map_count. First frames start at staggered
 * offsets, or the hottest lines of all stacks would share a few sets of the L1 cache. */
#include "internal.h"
#include "valgrind.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#define GUARD_BYTES (1u << 20)
#define COLOURS 4
#define COLOUR_BYTES 768u
#define CREATED_AT_A_TIME 8

int cl_stacks_new(struct cl_sched *s, const struct cl_sched_config *config, char err[256])
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (config->stack_bytes < CL_SCHED_STACK_FLOOR_BYTES || config->stack_bytes > (1u << 30)) {
        snprintf(err, 256, "stack_bytes is %u: expected %u to %u", config->stack_bytes, CL_SCHED_STACK_FLOOR_BYTES,
                 1u << 30);
        return -EINVAL;
    }
    if (config->max_uthreads < 1 || config->max_uthreads > (1u << 24)) {
        snprintf(err, 256, "max_uthreads is %u: expected 1 to %u", config->max_uthreads, 1u << 24);
        return -EINVAL;
    }
    /* Caches of siblings may hide free objects: so many more that max_uthreads can always be had. */
    s->max_uthreads = config->max_uthreads + s->n_kthreads * CL_STACK_CACHE;
    s->stack_bytes = (uint32_t)((config->stack_bytes + page - 1) & ~(page - 1));
    s->guard_bytes = GUARD_BYTES;
    s->valgrind = cl_valgrind_runs();
    s->light_guards = !s->valgrind;
    s->stack_stride = s->guard_bytes + s->stack_bytes + page /* for staggering */;
    s->slab_bytes = s->stack_stride * CL_STACK_SLAB;
    s->uthreads_bytes = (size_t)s->max_uthreads * sizeof(struct cl_uthread);
    s->slabs_bytes = (size_t)(s->max_uthreads / CL_STACK_SLAB + 1) * sizeof(char *);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *objects = mmap(NULL, s->uthreads_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    void *slabs = mmap(NULL, s->slabs_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    s->uthreads = objects == MAP_FAILED ? NULL : objects;
    s->slabs = slabs == MAP_FAILED ? NULL : slabs;
    if (!s->uthreads || !s->slabs) {
        snprintf(err, 256, "no address space for %u uthreads: lower max_uthreads", s->max_uthreads);
        return -ENOMEM;
    }
    return 0;
}

void cl_stacks_delete(struct cl_sched *s)
{
    for (uint32_t i = 0; s->valgrind && i < s->created; i++)
        cl_valgrind_request(CL_VALGRIND_STACK_DEREGISTER, s->uthreads[i].stack_id, 0);
#if CL_TSAN
    for (uint32_t i = 0; i < s->created; i++)
        if (s->uthreads[i].fiber)
            __tsan_destroy_fiber(s->uthreads[i].fiber);
#endif
    for (uint32_t i = 0; s->slabs && i * CL_STACK_SLAB < s->max_uthreads && s->slabs[i]; i++) {
#if CL_ASAN
        __asan_unpoison_memory_region(s->slabs[i], s->slab_bytes);
#endif
        munmap(s->slabs[i], s->slab_bytes);
    }
    if (s->slabs)
        munmap(s->slabs, s->slabs_bytes);
    if (s->uthreads)
        munmap(s->uthreads, s->uthreads_bytes);
}

/* Map one more slab of stacks, the guards not yet set. Depot lock held. */
static char *map_slab(struct cl_sched *s, uint32_t slab)
{
    void *p = mmap(NULL, s->slab_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* A huge page would make 2 MiB of every first touch. Fails where the kernel has none, which is as well. */
    (void)madvise(p, s->slab_bytes, MADV_NOHUGEPAGE);
    return s->slabs[slab] = p;
}

static bool unreadable(const char *at)
{
    return syscall(SYS_faccessat, AT_FDCWD, at, F_OK) < 0 && errno == EFAULT;
}

static int install_guard(struct cl_sched *s, char *lo)
{
    if (s->light_guards) {
        /* Emulators answer 0 to advice that they ignore: the first time, let a system call try to read there. */
        if (madvise(lo, s->guard_bytes, MADV_GUARD_INSTALL) == 0 && (s->created || unreadable(lo)))
            return 0;
        s->light_guards = false;
    }
    return mprotect(lo, s->guard_bytes, PROT_NONE) ? -errno : 0;
}

/* Make one more object with its stack. Depot lock held. NULL: the limit, or no memory. */
static struct cl_uthread *create(struct cl_sched *s)
{
    uint32_t i = s->created;
    if (i == s->max_uthreads)
        return NULL;
    char *slab = s->slabs[i / CL_STACK_SLAB];
    if (!slab && !(slab = map_slab(s, i / CL_STACK_SLAB)))
        return NULL;
    char *lo = slab + (i % CL_STACK_SLAB) * s->stack_stride;
    if (install_guard(s, lo))
        return NULL;
    struct cl_uthread *t = &s->uthreads[i];
    t->index = i;
    t->sched = s;
    t->stack_lo = lo + s->guard_bytes;
    t->stack_top = lo + s->stack_stride - (i % COLOURS) * COLOUR_BYTES;
    if (s->valgrind)
        t->stack_id = (uint32_t)cl_valgrind_request(CL_VALGRIND_STACK_REGISTER, (uintptr_t)t->stack_lo,
                                                    (uintptr_t)lo + s->stack_stride - 1);
    cl_store_relaxed(&s->created, i + 1);
    return t;
}

/* Move up to n free objects from the depot to *list, making new ones if it is empty. Returns how many. */
static uint32_t depot_get(struct cl_sched *s, struct cl_uthread **list, uint32_t n)
{
    uint32_t got = 0;
    cl_spin_lock(&s->depot_lock);
    while (got < n && s->depot) {
        struct cl_uthread *t = s->depot;
        s->depot = t->next;
        s->n_depot--;
        t->next = *list;
        *list = t;
        got++;
    }
    if (got == 0) {
        struct cl_uthread *t;
        for (n = cl_min(n, CREATED_AT_A_TIME); got < n && (t = create(s)); got++) {
            t->next = *list;
            *list = t;
        }
    }
    cl_spin_unlock(&s->depot_lock);
    return got;
}

struct cl_uthread *cl_stack_get(struct cl_kthread *k)
{
    if (cl_unlikely(!k->cache)) {
        k->n_cache = depot_get(k->sched, &k->cache, CL_STACK_CACHE / 2);
        if (!k->cache)
            return NULL;
    }
    struct cl_uthread *t = k->cache;
    k->cache = t->next;
    k->n_cache--;
    return t;
}

struct cl_uthread *cl_stack_get_foreign(struct cl_sched *s)
{
    struct cl_uthread *t = NULL;
    depot_get(s, &t, 1);
    return t;
}

static void spill(struct cl_kthread *k)
{
    struct cl_sched *s = k->sched;
    cl_spin_lock(&s->depot_lock);
    for (uint32_t i = 0; i < CL_STACK_CACHE / 2; i++) {
        struct cl_uthread *t = k->cache;
        k->cache = t->next;
        t->next = s->depot;
        s->depot = t;
    }
    s->n_depot += CL_STACK_CACHE / 2;
    cl_spin_unlock(&s->depot_lock);
    k->n_cache -= CL_STACK_CACHE / 2;
}

void cl_stack_put(struct cl_kthread *k, struct cl_uthread *t)
{
    /* Relaxed: whoever still holds an id of it either sees the new generation or is racing a join, which is misuse. */
    cl_store_relaxed(&t->gen, t->gen + 1);
#if CL_ASAN
    /* What its frames poisoned is not poisoned for the next uthread's frames. */
    __asan_unpoison_memory_region(t->stack_lo, (size_t)(t->stack_top - t->stack_lo));
#endif
#if CL_TSAN
    __tsan_destroy_fiber(t->fiber);
    t->fiber = NULL;
#endif
    t->next = k->cache;
    k->cache = t;
    if (cl_unlikely(++k->n_cache > CL_STACK_CACHE))
        spill(k);
}
