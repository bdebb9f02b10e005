/* The `port` NIC: an application's end of an arena. To libos an iokernel is one more NIC.
 *
 * Queue k is the rx and tx ring of kthread k; its parker is the park word in the arena, so that the iokernel wakes it.
 *
 *   rx        descriptors out of the ring; the frame stays where the iokernel put it. free() gives the buffer back with
 *             the next sends (two indices ride on a SEND) or in FREE descriptors of three.
 *   tx        a SEND descriptor a frame; send buffers come back when the ring's published head has passed them (a
 *             private shadow of the slots says which). A received frame may be sent as it is.
 *   doorbell  a bit of the application's word (shm.h) says that the ring has something: an iokernel polls no others. If
 * it may sleep, tx_burst looks at its sleeping flag after a fence
 *             and writes the eventfd if it is set: once in each sleep, by each queue.
 *
 * When the iokernel dies. A watcher thread, asleep in poll(), sees the control socket end. It sets nic->gone, wakes
 * every kthread and reports one line. From then on rx is empty, and frames given to tx are dropped and counted
 * (tx_dropped_error): the link is down, nothing blocks. With reattach_ms set the watcher then tries the same socket
 * path until an iokernel accepts; the new arena is taken over by each queue at its next rx or tx call, by the thread
 * that uses it. Frames of the old arena stay readable until they are given back (`tag` of a frame is the number of its
 * arena): freed they vanish, sent they count as tx_dropped_error. The parker structs keep their address; their `word`
 * changes. Name, MAC and address stay. Once the frames are back and the queues have moved on, nothing of the old arena
 * is left but its addresses, which a later attachment uses again (internal.h).
 *
 * Cores. If ACCEPT says that they are managed, nic->cores is there (corelane/runtime/cores.h, cores.c). The preemption
 * flag and the kthreads' lines of each arena are mapped once more, at addresses that stay for the port's life; between
 * two iokernels private memory is there.
 *
 * Threads: queue k's rx side by one thread at a time, its tx side (tx, alloc, free) by one thread at a time, these two
 * may be different. Watcher: one thread a port, which touches no queue.
 *
 * Tests: tests/iokernel/switch/test_switch.py, tests/iokernel/test_reattach.py, tests/iokernel/switch/c/switch_stress.c
 * (TSan). */
#ifndef CORELANE_DRIVERS_PORT_PORT_H
#define CORELANE_DRIVERS_PORT_PORT_H

#include "../../runtime/control.h"
#include <corelane/drivers/nic.h>

// cffi: begin
#define CL_PORT_ATTACHED 1
#define CL_PORT_STALLED 2 /* attached, but the iokernel's loop has neither slept nor polled for seconds */
#define CL_PORT_GONE 3
#define CL_PORT_DRAIN 7 /* no state: another member of its group has taken over, and it is to drain; told once */

struct cl_port_config {
    const char *socket_path;
    const char *name;
    uint32_t n_kthreads;         /* 0: 1 */
    uint32_t rx_slots, tx_slots; /* a ring; 0: the iokernel's default, as for the next four */
    uint32_t n_rx, n_tx;         /* buffers */
    uint32_t buffer_bytes;
    uint32_t ipv4;        /* host byte order */
    uint32_t timeout_ms;  /* for connecting and for each answer; 0: 15000 */
    uint32_t reattach_ms; /* pause between attempts to attach again after the iokernel died; 0: do not */
    uint32_t reserved;
    /* What it wants of the cores, where they are managed: cl_control_hello says what each is, cl_port_info.note what
     * was not granted of it. */
    uint32_t kind, guaranteed, maximum, weight, deadline_us, quantum_us, quantum_signal;
    /* Called by the watcher thread at each change of state, with one line for people. May be NULL. Must not close the
     * port. */
    void (*on_change)(void *arg, int state, const char *text);
    void *arg;
};

struct cl_port_info {
    int state;
    uint32_t app, loop;
    uint32_t attached;   /* times, the first included */
    uint64_t generation; /* of the iokernel attached to last */
    bool may_spin;
    bool managed; /* kthreads run only while they own a core (docs/cores.md) */
    uint32_t iokernel_pid;
    uint32_t member;  /* which one of its group it is, + 1; 0: it is of none */
    uint32_t gateway; /* host byte order; 0: none */
    uint64_t arena_bytes;
    int32_t cpus[64];
    char text[512]; /* what happened last, for people */
    char note[320]; /* what was wished for and is not granted, for people; empty: nothing */
};

/* Attach to the iokernel at a socket path. -errno with one line in err (CL_CONTROL_ERR_BYTES). */
CL_API int cl_port_nic_new(const struct cl_port_config *config, struct cl_nic **out, char *err);
/* What the iokernel granted and how it is. Any thread. */
CL_API void cl_port_info(struct cl_nic *nic, struct cl_port_info *out);
/* Try now to attach again; for ports made with reattach_ms = 0. -EALREADY while attached, while
 * another thread is at it, and for ports that try by themselves. Any thread but the watcher. */
CL_API int cl_port_reattach(struct cl_nic *nic, char *err);
/* Have the watcher call `counters` some times a second, and the iokernel show what it says. It must not call the port.
 * NULL: no more; when this returns it is not called any more. Any thread. */
CL_API void cl_port_publish(struct cl_nic *nic, cl_counters_fn counters, void *arg);
/* The same of the latency of its services: `tell` is called with the part of the arena that is for it
 * (cl_arena_latency), and with how many kthreads that is for. */
CL_API void cl_port_publish_latency(struct cl_nic *nic, void (*tell)(void *arg, void *part, uint32_t n_kthreads),
                                    void *arg);
/* Have the watcher call `ask` when the iokernel passes on that requests are to be traced in another way
 * (CL_RUNTIME_TRACE_..., not checked). As for cl_port_publish. */
CL_API void cl_port_on_trace(struct cl_nic *nic, void (*ask)(void *arg, uint32_t how), void *arg);
/* A member of a group is ready, or drains (CL_MEMBER_...). others: and the other members drain from now on. What was
 * said last is said to the next iokernel, too. Returns how many others were told. -ENOTCONN: no iokernel is there, so
 * that it is said later; -EBUSY: another thread is telling it something all the time. Any thread but the watcher. */
CL_API int cl_port_say(struct cl_nic *nic, uint32_t state, bool others, char *err);
/* Ask the iokernel for a deadline, or what became of it (struct cl_control_promise, whose header is filled in).
 * -ENOTCONN: no iokernel is there; -EBUSY as cl_port_say; refused: -code, err its text. Any thread but the watcher. */
CL_API int cl_port_promise(struct cl_nic *nic, const struct cl_control_promise *ask,
                           struct cl_control_promise_ok *answer, char *err);
/* Whether all frames were taken out of the rings that were in them when the iokernel answered cl_port_say last, or
 * their iokernel is gone. Any thread. */
CL_API bool cl_port_emptied(struct cl_nic *nic);
/* Whether the iokernel has taken all that was sent, or is gone. Once nobody sends any more. */
CL_API bool cl_port_flushed(struct cl_nic *nic);
// cffi: end

/* Kthreads are about to sleep in an epoll of their own, on the eventfd that their parkers are given: have wakes from
 * other processes go there. -ENOSYS: Linux before 5.16; -errno. Before the kthreads start; once or more. */
int cl_port_herald(struct cl_nic *nic);
/* Such a kthread has set its park word, and is about to look at all work again. By its thread. */
void cl_port_parked(struct cl_nic *nic, unsigned k);

#endif
