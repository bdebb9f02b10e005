/* The arenas of a port, one an attachment: made of what an iokernel passed, kept while frames of them are out, and used
 * again. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The longest state segment of this version: addresses for the next iokernel's, which may have more loops. */
#define STATE_ROOM                                                                                                     \
    (2 * CL_SHM_PAGE + CL_SHM_MAX_LOOPS * sizeof(struct cl_state_loop) +                                               \
     CL_SHM_MAX_CORES * sizeof(struct cl_state_core) + CL_SHM_MAX_SLOTS * sizeof(struct cl_state_kthread))

/* What an attachment has on the heap, but for the object and its counts. */
static void free_heap(struct port_arena *a)
{
    cl_pool_delete(a->pool);
    free(a->shadows);
    free(a->give_backs);
    a->pool = NULL;
    a->shadows = a->give_backs = NULL;
}

static void close_passed_doorbell(struct port_arena *a)
{
    if (a->passed_doorbell >= 0)
        close(a->passed_doorbell);
    a->passed_doorbell = -1;
}

void port_arena_free(struct port_arena *a)
{
    if (!a)
        return;
    cl_memory_close(&a->memory);
    cl_memory_close(&a->state);
    close_passed_doorbell(a);
    free_heap(a);
    free(a->counts);
    free(a);
}

/* Nobody uses it any more. If the kernel refuses, all stays, and it is tried again. */
static void vacate(struct port_arena *a)
{
    close_passed_doorbell(a);
    if (cl_memory_vacate(&a->memory) < 0 || cl_memory_vacate(&a->state) < 0)
        return;
    free_heap(a);
    a->vacant = true;
}

/* Check what the iokernel wrote into the two segments against what it said in ACCEPT. */
static int check_segments(const struct port_arena *a, const struct cl_control_accept *acc, char *err)
{
    const struct cl_arena_header *h = (const struct cl_arena_header *)a->base;
    const struct cl_state_header *s = a->state.base;
    if (h->magic != CL_ARENA_MAGIC || h->version != CL_SHM_VERSION || h->generation != acc->generation ||
        h->total_bytes != acc->layout.total_bytes || s->magic != CL_STATE_MAGIC || s->version != CL_SHM_VERSION ||
        s->generation != acc->generation || acc->loop >= s->n_loops ||
        s->loops_offset + (uint64_t)s->n_loops * sizeof(struct cl_state_loop) > acc->state_bytes) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "the iokernel passed segments that do not match what it accepted");
        return -EPROTO;
    }
    return 0;
}

/* Check what ACCEPT says of managed cores, and where they are. -EPROTO with a reason. */
static int find_cores(struct port_arena *a, const struct cl_control_accept *acc, char *err)
{
    const struct cl_state_header *s = a->state.base;
    const uint8_t *base = a->state.base;
    if (!acc->managed)
        return 0;
    uint64_t cores_end = s->cores_offset + (uint64_t)s->n_cores * sizeof(struct cl_state_core);
    uint64_t slots_end = s->kthreads_offset + CL_SHM_MAX_SLOTS * sizeof(struct cl_state_kthread);
    if (!s->manages_cores || s->n_cores > CL_SHM_MAX_CORES || s->cores_offset > acc->state_bytes ||
        s->kthreads_offset > acc->state_bytes || cores_end > acc->state_bytes || slots_end > acc->state_bytes ||
        acc->slot > CL_SHM_MAX_SLOTS || acc->layout.n_kthreads > CL_SHM_MAX_SLOTS - acc->slot) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "the iokernel manages cores in a state segment that has no room for them");
        return -EPROTO;
    }
    a->cores = (const struct cl_state_core *)(base + s->cores_offset);
    a->slots = (const struct cl_state_kthread *)(base + s->kthreads_offset);
    a->n_cores = s->n_cores;
    a->slot = acc->slot;
    a->managed = true;
    return 0;
}

/* Map the arena over the addresses of the one before. If that cannot be, as it is on pages of another size now, then
 * elsewhere; those addresses stay as they are. */
static int map_arena(struct port_arena *a, int fd, char *err)
{
    uint64_t bytes = a->layout.total_bytes;
    struct cl_memory fresh;
    if (a->memory.base && cl_memory_map_over(fd, bytes, true, &a->memory, err) == 0)
        return 0;
    int rc = cl_memory_map(fd, bytes, true, &fresh, err);
    if (rc == 0)
        a->memory = fresh;
    return rc;
}

/* Map what the iokernel passed; takes over what it maps. */
static int map_segments(struct port_arena *a, const struct cl_control_accept *acc, int *fds, char *err)
{
    int rc = map_arena(a, fds[0], err);
    if (rc < 0)
        return rc;
    fds[0] = -1;
    a->base = a->memory.base;
    rc = cl_memory_map_over(fds[1], acc->state_bytes, false, &a->state, err);
    if (rc < 0)
        return rc;
    fds[1] = -1;
    cl_memory_shut(&a->state); /* it is mapped once */
    rc = check_segments(a, acc, err);
    return rc < 0 ? rc : find_cores(a, acc, err);
}

/* An object with room for counts of q queues and addresses for a state segment. NULL: out of memory. */
static struct port_arena *make_object(uint32_t q)
{
    struct port_arena *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->passed_doorbell = -1;
    a->memory.fd = a->state.fd = -1;
    a->counts = aligned_alloc(CL_CACHELINE, q * sizeof(*a->counts));
    if (a->counts && cl_memory_reserve(STATE_ROOM, &a->state) == 0)
        return a;
    port_arena_free(a);
    return NULL;
}

uint32_t port_held(struct port *port, struct port_arena *a)
{
    uint64_t held = 0;
    for (unsigned q = 0; q < port->nic.n_queues; q++)
        held += cl_load_relaxed(&a->counts[q].received) + cl_load_relaxed(&a->counts[q].allocated) -
                cl_load_relaxed(&a->counts[q].returned);
    return (uint32_t)held;
}

/* Whether every queue has moved on from an old arena, and no frame of it is out. */
static bool arena_idle(struct port *port, struct port_arena *a)
{
    for (unsigned q = 0; q < port->nic.n_queues; q++)
        /* Acquire: the counts that a queue wrote before it moved on are seen. */
        if (cl_load_acquire(&port->rx[q].arena) == a || cl_load_acquire(&port->tx[q].arena) == a)
            return false;
    return port_held(port, a) == 0;
}

void port_vacate_old(struct port *port)
{
    for (struct port_arena *a = port->current->older; a; a = a->older)
        if (!a->vacant && arena_idle(port, a))
            vacate(a);
}

/* Out of the chain. A thread that stands on it goes on to older ones. */
static struct port_arena *take_vacant(struct port *port, const struct cl_arena_layout *layout)
{
    struct port_arena *found = NULL;
    pthread_mutex_lock(&port->lock);
    if (port->current)
        port_vacate_old(port);
    for (struct port_arena *a = port->current; a && a->older && !found; a = a->older)
        if (a->older->vacant && !memcmp(&a->older->layout, layout, sizeof *layout)) {
            found = a->older;
            cl_store_release(&a->older, found->older); /* release: as in publish() */
        }
    pthread_mutex_unlock(&port->lock);
    return found;
}

struct port_arena *port_arena_new(struct port *port, const struct cl_control_accept *acc, int *fds, int *rc, char *err)
{
    uint32_t q = acc->layout.n_kthreads;
    struct port_arena *a = take_vacant(port, &acc->layout);
    a = a ? a : make_object(q);
    *rc = -ENOMEM;
    snprintf(err, CL_CONTROL_ERR_BYTES, "out of memory for a port of %u queues", q);
    if (a) {
        a->vacant = a->managed = false;
        a->passed_doorbell = fds[2];
        fds[2] = -1;
        a->layout = acc->layout;
        a->pool = cl_pool_new(a->layout.n_rx, a->layout.n_tx, q);
        a->shadows = malloc((size_t)q * a->layout.tx_slots * sizeof(uint32_t));
        a->give_backs = malloc((size_t)q * a->layout.n_rx * sizeof(uint32_t)); /* touched only as far as it is used */
        memset(a->counts, 0, q * sizeof(*a->counts));
        if (a->pool && a->shadows && a->give_backs)
            *rc = map_segments(a, acc, fds, err);
    }
    for (unsigned i = 0; i < CL_CONTROL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (*rc < 0) {
        pthread_mutex_lock(&port->lock);
        port_arena_discard(port, a);
        pthread_mutex_unlock(&port->lock);
        return NULL;
    }
    const struct cl_state_header *s = a->state.base;
    a->buffers = a->base + a->layout.buffers_offset;
    a->loop = (const struct cl_state_loop *)((const uint8_t *)a->state.base + s->loops_offset) + acc->loop;
    a->bell = cl_arena_doorbell_of(a->base);
    a->never_sleeps = s->never_sleeps;
    a->max_frame = cl_min(acc->mtu + CL_ETH_HLEN, a->layout.buffer_bytes);
    a->give_back_at = cl_max(3u, cl_min(48u, a->layout.n_rx / (4 * q)));
    return a;
}

void port_arena_discard(struct port *port, struct port_arena *a)
{
    if (a && port->current && a->memory.base) { /* its addresses may be known from an attachment before */
        vacate(a);
        cl_store_release(&a->older, port->current->older);
        cl_store_release(&port->current->older, a);
    } else {
        port_arena_free(a);
    }
}

void port_return_old(struct port *port, unsigned queue, const struct cl_frame *f)
{
    for (struct port_arena *a = cl_load_acquire(&port->current); a; a = cl_load_acquire(&a->older))
        if (cl_load_relaxed(&a->tag) == f->tag) { /* relaxed: of one that is being used again, neither is it */
            cl_count(&a->counts[queue].returned, 1);
            return;
        }
}
