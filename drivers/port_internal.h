/* Private to the port driver: shared by port.c (data path) and port_watch.c (attaching and watching). */
#ifndef CORELANE_DRIVERS_PORT_INTERNAL_H
#define CORELANE_DRIVERS_PORT_INTERNAL_H

#include "../runtime/memory.h"
#include "../runtime/net.h"
#include "../runtime/pool.h"
#include "port.h"

#include <pthread.h>

/* Frames handed out and taken back, by queue. Each line has one writer. `held` frames = received + allocated - returned,
 * summed over the queues, since a frame may be given back on another queue than it came from. */
struct port_counts {
    uint64_t received CL_ALIGNED(CL_CACHELINE);  /* writer: rx side */
    uint64_t allocated CL_ALIGNED(CL_CACHELINE); /* writer: tx side */
    uint64_t returned;                           /* writer: tx side; freed, or taken by tx_burst */
};

/* One attachment. Constant once published, but for counts, pool, shadows and give_backs (each queue's own). */
struct port_arena {
    struct port_arena *older; /* kept while frames of it may be held; all chained until the port is closed */
    struct cl_arena_layout layout;
    uint32_t tag; /* 1 for the first */
    struct cl_memory memory, state;
    uint8_t *base, *buffers; /* memory.base, and the buffers in it */
    const struct cl_state_loop *loop;
    int doorbell;
    bool never_sleeps;
    bool released;      /* rings and buffers unmapped (the lines stay: a sibling may still look at an old park word) */
    uint32_t max_frame; /* longest frame that the iokernel takes */
    uint32_t give_back_at; /* lent buffers that a queue collects before it flushes them */
    struct cl_pool *pool;
    uint32_t *shadows, *give_backs;
    struct port_counts *counts;
};

/* Receive side of a queue. Writer: the thread that polls it (or its thief, under the owner's lock). */
struct port_rx {
    struct port_arena *arena CL_ALIGNED(CL_CACHELINE);
    struct cl_ring_rx ring;
    uint64_t frames, bytes; /* over all arenas */
};

/* Send side of a queue. Writer: the thread that sends on it. */
struct port_tx {
    struct port_arena *arena CL_ALIGNED(CL_CACHELINE);
    struct cl_ring_tx ring;
    uint32_t *shadow;    /* a slot: the send buffer in it, or CL_SHM_NO_BUFFER */
    uint32_t *give_back; /* lent buffers to return; room for all that exist */
    uint32_t n_give_back;
    uint32_t reclaimed; /* slots below are the pool's again */
    uint64_t frames, bytes, dropped_malformed, dropped_error, full, alloc_short, syscalls;
};

struct port {
    struct cl_nic nic;
    struct port_arena *current; /* writer: creator, then watcher or cl_port_reattach under `lock` (release) */
    struct cl_parker *parkers;
    struct port_rx *rx;
    struct port_tx *tx;

    char *socket_path;
    struct cl_control_hello wishes;
    uint32_t timeout_ms, reattach_ms;
    void (*on_change)(void *arg, int state, const char *text);
    void *arg;
    pthread_t watcher;
    bool watching;
    int stop_fd;          /* eventfd: close() or cl_port_reattach() wants the watcher's attention */
    bool stopping;        /* writer: close (release); reader: the watcher (acquire) */
    pthread_mutex_t lock; /* guards control_fd, info and attaching */
    int control_fd;
    struct cl_port_info info;
};

extern const struct cl_nic_ops port_ops;

static inline struct port *port_of(struct cl_nic *nic)
{
    return cl_container_of(nic, struct port, nic);
}

static inline struct cl_arena_kthread *port_lines(struct port_arena *a, unsigned queue)
{
    return (struct cl_arena_kthread *)(a->base + a->layout.lines_offset) + queue;
}

static inline struct cl_desc *port_slots(struct port_arena *a, uint64_t offset, unsigned queue, uint32_t slots)
{
    return (struct cl_desc *)(a->base + offset) + (size_t)queue * slots;
}

/* A frame of an older arena comes back: counted there, so that the arena can be let go. */
void port_return_old(struct port *port, unsigned queue, const struct cl_frame *f);
/* Frames of an arena in its user's hands. Exact while nobody is inside a call. */
uint32_t port_held(struct port *port, struct port_arena *a);
void port_close(struct cl_nic *nic);

#endif
