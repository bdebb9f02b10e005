/* See table.h. */
#include "table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint8_t *kinds;                 /* [CL_POSIX_FDS] writers: under the lock; readers: anybody */
static struct cl_posix_object **slots; /* the same; acquire/release */
static uint32_t n_used;                /* slots below were used once. Writers: under the lock; readers: anybody */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cl_posix_object *unused[CL_POSIX_EPOLL + 1];

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

int cl_posix_table_open(uint8_t *given)
{
    void *memory = mmap(NULL, CL_POSIX_FDS * sizeof *slots, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    slots = memory;
    kinds = given;
    return -pthread_atfork(before_fork, after_fork, after_fork);
}

enum cl_posix_kind cl_posix_kind(int fd)
{
    /* Relaxed: who uses a descriptor has learned its number from who made it. */
    return slots && (uint32_t)fd < CL_POSIX_FDS ? (enum cl_posix_kind)cl_load_relaxed(&kinds[fd]) : CL_POSIX_LINUX;
}

struct cl_posix_object *cl_posix_new(enum cl_posix_kind kind, size_t bytes)
{
    pthread_mutex_lock(&lock);
    struct cl_posix_object *o = unused[kind];
    if (o)
        unused[kind] = o->next_free;
    pthread_mutex_unlock(&lock);
    uint32_t generation = o ? o->generation + 1 : 0;
    if (!o && !(o = calloc(1, bytes)))
        return NULL;
    memset((char *)o + sizeof o->refs, 0, bytes - sizeof o->refs); /* others may look at refs */
    o->kind = kind;
    o->generation = generation;
    cl_store_release(&o->refs, 1);
    return o;
}

void cl_posix_put(struct cl_posix_object *o)
{
    if (__atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL)) /* all that others did comes before the end */
        return;
    if (o->end)
        o->end(o);
    pthread_mutex_lock(&lock);
    o->next_free = unused[o->kind];
    unused[o->kind] = o;
    pthread_mutex_unlock(&lock);
}

static bool keep(struct cl_posix_object *o)
{
    uint32_t refs = cl_load_relaxed(&o->refs);
    while (refs)
        if (__atomic_compare_exchange_n(&o->refs, &refs, refs + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return true;
    return false;
}

struct cl_posix_object *cl_posix_get(int fd, enum cl_posix_kind kind)
{
    if (cl_posix_kind(fd) != kind)
        return NULL;
    for (;;) {
        struct cl_posix_object *o = cl_load_acquire(&slots[fd]);
        if (!o)
            return NULL;
        if (!keep(o))
            continue; /* it has just gone, and another one is in its place, or none */
        if (cl_load_acquire(&slots[fd]) == o && o->kind == kind)
            return o;
        cl_posix_put(o);
        if (cl_posix_kind(fd) != kind)
            return NULL;
    }
}

int cl_posix_enter(int fd, struct cl_posix_object *o)
{
    if ((uint32_t)fd >= CL_POSIX_FDS)
        return -EMFILE;
    (void)cl_posix_leave(fd); /* closed by a way that we do not see */
    pthread_mutex_lock(&lock);
    __atomic_fetch_add(&o->refs, 1, __ATOMIC_RELAXED); /* the caller has one */
    cl_store_relaxed(&o->fds, o->fds + 1);
    cl_store_release(&slots[fd], o);
    cl_store_relaxed(&kinds[fd], (uint8_t)o->kind);
    cl_store_relaxed(&n_used, cl_max(n_used, (uint32_t)fd + 1));
    pthread_mutex_unlock(&lock);
    return 0;
}

void cl_posix_inherit_number(int fd)
{
    pthread_mutex_lock(&lock);
    if ((uint32_t)fd < CL_POSIX_FDS && !slots[fd])
        cl_store_relaxed(&kinds[fd], CL_POSIX_INHERITED);
    pthread_mutex_unlock(&lock);
}

bool cl_posix_leave(int fd)
{
    if (cl_posix_kind(fd) == CL_POSIX_LINUX)
        return false;
    pthread_mutex_lock(&lock);
    struct cl_posix_object *o = slots[fd];
    cl_store_relaxed(&kinds[fd], CL_POSIX_LINUX);
    cl_store_release(&slots[fd], NULL);
    bool last = o && o->fds == 1;
    if (o)
        cl_store_relaxed(&o->fds, o->fds - 1);
    pthread_mutex_unlock(&lock);
    if (last && o->closed)
        o->closed(o);
    if (o)
        cl_posix_put(o);
    return o;
}

void cl_posix_abandon(int fd)
{
    if (cl_posix_kind(fd) == CL_POSIX_LINUX)
        return;
    cl_store_relaxed(&kinds[fd], CL_POSIX_LINUX);
    cl_store_relaxed(&slots[fd], NULL);
}

void cl_posix_each(enum cl_posix_kind kind, void (*fn)(struct cl_posix_object *o))
{
    for (uint32_t fd = 0; fd < cl_load_relaxed(&n_used); fd++) {
        struct cl_posix_object *o = cl_posix_get((int)fd, kind);
        if (!o)
            continue;
        fn(o);
        cl_posix_put(o);
    }
}
