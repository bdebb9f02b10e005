/* The arenas of a port, one an attachment: made of what an iokernel passed, kept while frames of them are out. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void port_arena_free(struct port_arena *a)
{
    if (!a)
        return;
    cl_memory_close(&a->memory);
    cl_memory_close(&a->state);
    if (a->doorbell >= 0)
        close(a->doorbell);
    cl_pool_delete(a->pool);
    free(a->shadows);
    free(a->give_backs);
    free(a->counts);
    free(a);
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

/* Map what the iokernel passed; takes over what it maps. */
static int map_segments(struct port_arena *a, const struct cl_control_accept *acc, int *fds, char *err)
{
    int rc = cl_memory_map(fds[0], a->layout.total_bytes, true, &a->memory, err);
    if (rc < 0)
        return rc;
    fds[0] = -1;
    a->base = a->memory.base;
    rc = cl_memory_map(fds[1], acc->state_bytes, false, &a->state, err);
    if (rc < 0)
        return rc;
    fds[1] = -1;
    rc = check_segments(a, acc, err);
    return rc < 0 ? rc : find_cores(a, acc, err);
}

struct port_arena *port_arena_new(const struct cl_control_accept *acc, int *fds, int *rc, char *err)
{
    struct port_arena *a = calloc(1, sizeof *a);
    uint32_t q = acc->layout.n_kthreads;
    *rc = -ENOMEM;
    snprintf(err, CL_CONTROL_ERR_BYTES, "out of memory for a port of %u queues", q);
    if (a) {
        a->doorbell = fds[2];
        fds[2] = -1;
        a->layout = acc->layout;
        a->pool = cl_pool_new(a->layout.n_rx, a->layout.n_tx, q);
        a->shadows = malloc((size_t)q * a->layout.tx_slots * sizeof(uint32_t));
        a->give_backs = malloc((size_t)q * a->layout.n_rx * sizeof(uint32_t)); /* touched only as far as it is used */
        a->counts = aligned_alloc(CL_CACHELINE, q * sizeof(*a->counts));
        if (a->pool && a->shadows && a->give_backs && a->counts) {
            memset(a->counts, 0, q * sizeof(*a->counts));
            *rc = map_segments(a, acc, fds, err);
        }
    }
    for (unsigned i = 0; i < CL_CONTROL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (*rc < 0) {
        port_arena_free(a);
        return NULL;
    }
    const struct cl_state_header *s = a->state.base;
    a->buffers = a->base + a->layout.buffers_offset;
    a->loop = (const struct cl_state_loop *)((const uint8_t *)a->state.base + s->loops_offset) + acc->loop;
    a->never_sleeps = s->never_sleeps;
    a->max_frame = cl_min(acc->mtu + CL_ETH_HLEN, a->layout.buffer_bytes);
    a->give_back_at = cl_max(3u, cl_min(48u, a->layout.n_rx / (4 * q)));
    return a;
}

uint32_t port_held(struct port *port, struct port_arena *a)
{
    uint64_t held = 0;
    for (unsigned q = 0; q < port->nic.n_queues; q++)
        held += cl_load_relaxed(&a->counts[q].received) + cl_load_relaxed(&a->counts[q].allocated) -
                cl_load_relaxed(&a->counts[q].returned);
    return (uint32_t)held;
}

void port_return_old(struct port *port, unsigned queue, const struct cl_frame *f)
{
    for (struct port_arena *a = cl_load_acquire(&port->current); a; a = a->older)
        if (a->tag == f->tag) {
            cl_count(&a->counts[queue].returned, 1);
            return;
        }
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

void port_release_old(struct port *port)
{
    for (struct port_arena *a = port->current->older; a; a = a->older) {
        if (a->released || !arena_idle(port, a))
            continue;
        /* Fails, harmlessly, where pages are larger than the parts' alignment: then all goes at close. */
        a->released = munmap(a->base + a->layout.rx_offset, a->memory.bytes - a->layout.rx_offset) == 0;
        if (a->released)
            a->memory.bytes = a->layout.rx_offset;
    }
}
