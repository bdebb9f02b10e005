/* What the files of a port share. They call in one direction: watch.c, member.c, cores.c, telling.c, port.c, herald.c,
 * view.c and arena.c. */
#ifndef CORELANE_DRIVERS_PORT_INTERNAL_H
#define CORELANE_DRIVERS_PORT_INTERNAL_H

#include "../../runtime/memory.h"
#include "../../runtime/net.h"
#include "../../runtime/pool.h"
#include "../../runtime/scheduling.h"
#include "port.h"

#include <pthread.h>

/* Frames handed out and taken back, by queue. Each line has one writer. `held` frames = received + allocated -
 * returned, summed over the queues, since a frame may be given back on another queue than it came from. */
struct port_counts {
    uint64_t received CL_ALIGNED(CL_CACHELINE);  /* writer: rx side */
    uint64_t allocated CL_ALIGNED(CL_CACHELINE); /* writer: tx side */
    uint64_t returned;                           /* writer: tx side; freed, or taken by tx_burst */
};

/* One attachment. Constant once published, but for counts, pool, shadows and give_backs (each queue's own).
 *
 * An old one that nobody uses any more is vacated: its rings, its buffers, its descriptors and what it needs of the
 * heap go. Its addresses stay, with private memory behind, since a sibling may still read a park word there, or store
 * to it. So does the object, and the next attachment takes both. So a port has as many as are in use, and one more. */
struct port_arena {
    struct port_arena *older; /* chain of all; writers: under `lock` (release); readers: kthreads (acquire) */
    struct cl_arena_layout layout;
    uint32_t tag; /* 1 for the first */
    struct cl_memory memory, state;
    uint8_t *base, *buffers; /* memory.base, and the buffers in it */
    const struct cl_state_loop *loop;
    struct cl_arena_doorbell *bell; /* the arena's doorbell words */
    int doorbell;                   /* the port's number, once published */
    int passed_doorbell;            /* as it came, until then; -1 */
    bool never_sleeps;
    bool vacant;           /* vacated */
    uint32_t max_frame;    /* longest frame that the iokernel takes */
    uint32_t give_back_at; /* lent buffers that a queue collects before it flushes them */
    bool managed;          /* the iokernel manages the cores; the next five are of use then */
    uint32_t slot;         /* of kthread 0 in `slots` */
    uint32_t n_cores;      /* entries of `cores` */
    const struct cl_state_core *cores;
    const struct cl_state_kthread *slots; /* of all applications */
    int64_t most_sleep_ns; /* after which a kthread that no signal reaches polls again; 0: it sleeps until woken */
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
    struct cl_arena_doorbell *doorbell; /* the arena's word */
    uint32_t *shadow;                   /* a slot: the send buffer in it, or CL_SHM_NO_BUFFER */
    uint32_t *give_back;                /* lent buffers to return; room for all that exist */
    uint32_t n_give_back;
    uint32_t reclaimed; /* slots below are the pool's again */
    uint64_t rung;      /* the sleep of the loop in which we have rung the doorbell last */
    uint64_t frames, bytes, dropped_malformed, dropped_error, full, alloc_short, syscalls;
    const struct cl_arena_kthread *lines;
    struct cl_nic_tx_stamps stamps;
};
_Static_assert(CL_NIC_TX_STAMPS == CL_SHM_TX_STAMPS, "as many under way as the arena has room for");

/* What a kthread that waits for its core keeps. */
struct port_waiter {
    /* Writer: the kthread (relaxed, then a seq_cst fence); readers: who wants it out, see end_waits in cores.c. */
    uint32_t waiting CL_ALIGNED(CL_CACHELINE);
    uint32_t seen;            /* of its grant, at cl_cores_ops.park_begin; the kthread's own, as the next two */
    bool lost;                /* it did not own its core then */
    bool noticed;             /* it has seen that its core is another's, and says when */
    struct port_arena *arena; /* that it parked with */
};

struct port {
    struct cl_nic nic;
    struct cl_cores cores;
    /* The arena whose iokernel manages the cores, NULL: nobody does. Writer: port_cores_manage and _unmanage, under
     * `lock` (release: tables and the mapping at `view`); readers: kthreads (acquire). */
    struct port_arena *managed;
    uint8_t *view; /* page 0 and the kthreads' lines of `managed`, or private memory; constant address */
    size_t view_bytes;
    struct port_waiter *waiters;
    uint32_t
        released; /* kthreads end: nobody waits any more. Writer: cl_cores_ops.release; readers: kthreads, acquire */
    struct cl_control_kthreads kthreads; /* under `lock`; n 0: not known yet */
    struct cl_scheduling *before;        /* what they had when they were named; as many */
    struct port_arena *current;          /* writer: creator, then watcher or cl_port_reattach under `lock` (release) */
    struct cl_parker *parkers;
    struct port_herald *herald; /* herald.c; NULL: no kthread sleeps in an epoll of its own. Set once (release) */
    struct port_rx *rx;
    struct port_tx *tx;

    char *socket_path;
    struct cl_control_hello wishes;
    uint32_t timeout_ms, reattach_ms;
    void (*on_change)(void *arg, int state, const char *text);
    void *arg;
    cl_counters_fn counters; /* under `lock`, as the next one; NULL: nothing is published */
    void *counters_arg;
    void (*latency)(void *arg, void *part, uint32_t n_kthreads); /* under `lock`, as the next one; NULL: the same */
    void *latency_arg;
    pthread_t watcher;
    bool watching;
    int doorbell;  /* one number for the port's life: whoever has read it rings for the iokernel of today */
    int stop_fd;   /* eventfd: close() or cl_port_reattach() wants the watcher's attention */
    bool stopping; /* writer: close, under `lock` (release); reader: the watcher (acquire) */
    /* Guards control_fd, joining_fd, attaching, telling, info, note_is_new and what is published. */
    pthread_mutex_t lock;
    int control_fd;
    int joining_fd; /* on which a thread waits for an answer, for port_close to end it; -1: none */
    bool telling;   /* a thread waits for an answer on control_fd, which is its own to read and to keep open */
    bool attaching; /* a thread has begun to, and does so without the lock */
    struct cl_port_info info;
    uint32_t state;                             /* CL_MEMBER_..., as was said last */
    struct port_arena *said;                    /* the attachment by which it was said, ... */
    uint64_t delivered;                         /* ... and the frames that had come by that until then */
    bool told_drain;                            /* the watcher's: that it is to drain was told */
    uint32_t asked_trace;                       /* the watcher's: cl_arena_preempt.trace as it was passed on */
    void (*ask_trace)(void *arg, uint32_t how); /* under `lock`, as the next */
    void *ask_trace_arg;
    bool note_is_new; /* info.note is another one than that of the last attachment */
};

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

/* arena.c. Build an attachment from an acceptance, in a vacant arena if there is one. Takes over the descriptors. NULL:
 * *rc and err say why. Takes the lock. */
struct port_arena *port_arena_new(struct port *port, const struct cl_control_accept *acc, int *fds, int *rc, char *err);
/* It was not published. Under lock. */
void port_arena_discard(struct port *port, struct port_arena *a);
void port_arena_free(struct port_arena *a);
/* Vacate old arenas that nobody uses any more. Under lock. */
void port_vacate_old(struct port *port);
/* A frame of an older arena comes back: counted there, so that the arena can be vacated. */
void port_return_old(struct port *port, unsigned queue, const struct cl_frame *f);
/* Frames of an arena in its user's hands. Exact while nobody is inside a call. */
uint32_t port_held(struct port *port, struct port_arena *a);

/* port.c. Operations of nic.h. */
unsigned port_rx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
unsigned port_tx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
void port_prepare(struct cl_nic *nic, unsigned queue);
bool port_steering(struct cl_nic *nic, unsigned queue, uint32_t *number);
bool port_may_be_anothers(const struct cl_frame *frame);
struct cl_nic_tx_stamps *port_tx_stamps(struct cl_nic *nic, unsigned queue);
unsigned port_tx_stamps_read(struct cl_nic *nic, unsigned queue, struct cl_nic_tx_stamp *out, unsigned n);
unsigned port_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
void port_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n);
struct cl_parker *port_parker(struct cl_nic *nic, unsigned queue);
int port_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns);
void port_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out);
uint32_t port_buffers_free(struct cl_nic *nic);
int port_fd(struct cl_nic *nic, unsigned queue);
/* Before the thread that sends on the queue sleeps: give back what it no longer needs. */
void port_give_back(struct port *port, unsigned queue);

/* herald.c. The words that it sleeps on are others now. Any thread. */
void port_herald_look(struct port *port);
/* Wake kthread k, if it sleeps in an epoll of its own. Any thread. */
void port_herald_wake(struct port *port, unsigned k);
void port_herald_delete(struct port *port);

/* view.c. What is behind the port's addresses for preemption flag and lines: private memory, or the arena's. -errno. */
int port_view_nothing(struct port *port);
int port_view_arena(struct port *port, struct port_arena *a);
void port_view_delete(struct port *port);

/* cores.c */
/* Addresses for preemption flag and lines, with private memory behind; of a port that is attached for the first
 * time. */
int port_cores_new(struct port *port, char *err);
void port_cores_delete(struct port *port);
/* Tell the iokernel of the current arena who the kthreads are, and be managed by it. Under `lock`, which is let go of
 * while the answer is waited for. -EBUSY: another thread does so at this moment. */
int port_cores_manage(struct port *port, char *err);
/* The iokernel is gone: the kthreads get back the class and the CPUs that they had before, and nobody waits for it any
 * more. Under `lock`. Returns how many have to stay in SCHED_IDLE, for want of the right to leave it. */
unsigned port_cores_unmanage(struct port *port);
/* telling.c. Lock, once no other thread waits for an answer. -EBUSY: one does all the time; locked, too. */
int port_lock_to_tell(struct port *port, char *err);
/* Under `lock`, which is let go of until port_end_telling. Returns the connection. -ECANCELED: locked still. */
int port_begin_telling(struct port *port, char *err);
void port_end_telling(struct port *port);
/* member.c. Whether this arena's iokernel wants it to drain. */
bool port_is_to_drain(const struct port_arena *a);
/* It was attached with another state than it has by now: say so. Under `lock`, which is let go of meanwhile. */
int port_say_again(struct port *port, char *err);
/* Interrupt the kthreads, so that they see that they are managed (again). */
void port_cores_interrupt(struct port *port);

#endif
