/* Requests that wait for others, to be handled together: the queue of a handler, and when a batch of it is due.
 *
 *   poll (receive.c) --> queue of the handler --batching.h: which of them--> burst handler, on a runner (handler.c)
 *                          |        |
 *                          |        +--> dropped: too late (CL_DROP_BATCH_LATE)
 *                          +--> full: dropped (CL_DROP_BATCH_FULL)
 *
 * A queue belongs to a handler, and all kthreads put into it and take from it, under its lock: what waits on several of
 * them makes one batch, and a batch takes so long that the lock is nothing.
 *
 * Requests are due when a batch is full, when the oldest has waited as long as it may, or when it has to begin to be in
 * time; where nobody is to wait (wait_ticks 0), always. What is due counts as pending with every kthread, and whoever
 * is free first takes a batch of all that wait. While they wait nothing is pending, and the kthread may sleep: a timer
 * makes them due. The iokernel is shown what is due, at the kthread that received it (cl_netq_note_inbox).
 *
 * When a request came is what its NIC says (nic.h, rx_stamped). Where it says nothing, those that a kthread finds after
 * a batch came at equal distances since that began: it could not look meanwhile.
 *
 * Tests: tests/libos/handlers/test_batched.py. */
#ifndef CORELANE_LIBOS_NET_BATCHED_H
#define CORELANE_LIBOS_NET_BATCHED_H

#include <corelane/libos/spin.h>
#include <corelane/libos/timer.h>
#include "batching.h"
#include "inbox.h"

struct cl_netif;
struct cl_netq;

/* The queue of a handler. Under its lock, but for the constants. */
struct cl_batched {
    struct cl_spin lock;
    struct cl_netif *nif; /* constant */
    struct cl_batch_rule rule;
    uint32_t room;     /* requests that may wait; more do for a while, if it was made less */
    uint32_t first, n; /* requests that wait, from items[first % CL_UDP_BATCH_QUEUE] on */
    uint32_t due;      /* of these, from the first on, so many are shown to the iokernel; 0: none is due */
    uint64_t armed_ns; /* when the timer runs; 0: it does not */
    struct cl_batch_model model;
    struct cl_timer timer;
    struct cl_rx_item *items;
    uint64_t *since; /* when each came, a stamp of the clock */
    uint8_t *home;   /* kthread that received it */
};

/* Of an interface. */
struct cl_batches {
    uint32_t n; /* in use; release: after the entry. Under types_lock; readers: anybody, acquire */
    uint32_t
        due; /* requests, of all queues. Changed by addition, under the queues' locks; readers: relaxed, a hint that
                       * is exact for who put, and looks again before it sleeps */
    uint32_t waiting; /* requests, due or not. The same */
    struct cl_batched *of[CL_UDP_BATCHED];
};

/* Owner: put a request, which it takes; what finds no room is dropped here. */
void cl_batched_put(struct cl_netq *q, struct cl_batched *b, const struct cl_rx_item *item, uint64_t since);
/* Take the next batch, of the queue whose oldest request has the least time left, and drop who comes too late. Returns
 * how many, into items (CL_UDP_BURST); 0: nothing is due any more. *of: whose. */
unsigned cl_batched_take(struct cl_netq *q, struct cl_rx_item *items, struct cl_batched **of);
/* A batch of n took so many ticks, from when it was taken until its answers were out. */
void cl_batched_took(struct cl_batched *b, unsigned n, uint64_t ticks);

/* Whose requests wait together. -EINVAL, -ENOSPC, -ENOMEM, -EADDRINUSE with a reason in err. */
int cl_udp_bind_batched(struct cl_netif *nif, uint16_t port, cl_udp_burst_handler fn, void *arg, bool foreign,
                        const struct cl_udp_batching *how, char err[256]);
/* Another rule from now on; those that wait are due. -EINVAL with a reason; -ENOENT: none of that port waits so. Any
 * thread. */
int cl_batched_set(struct cl_netif *nif, uint16_t port, const struct cl_udp_batching *how, char err[256]);
/* What is known of a handler's batches. -ENOENT: none of that port waits so. */
int cl_batched_profile(const struct cl_netif *nif, uint16_t port, struct cl_udp_batch_profile *out);
/* Give the datagrams that wait back to the NIC. No kthread runs. */
void cl_batched_drain(struct cl_netif *nif);
void cl_batched_delete(struct cl_netif *nif);

#endif
