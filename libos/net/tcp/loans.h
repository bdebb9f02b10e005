/* Bytes that are not copied (corelane/libos/lease.h): leases of what came, frames that are kept, regions to send from.
 *
 *   frame --turn->keep--> a chunk that stands for it --> receive --cl_tcp_lease--> the user --cl_tcp_lease_end--+
 *   segment --copied----> a chunk ---------------------> receive --^                                           |
 *   region --cl_tcp_write_from--> chunks that stand for it --> send --acknowledged, or over--> released        |
 *                                                                                            pool, NIC <-------+
 *
 * What a connection remembers of that lies in one chunk, its loans, which it gets with the first lease or write from a
 * region. Each lease that is out refers to it, too, so it may outlive the connection: `conn` is NULL then. Whoever
 * returns a lease does so from any kthread, in no turn: under `lock` it takes its bytes off, and may take the flow for
 * a turn that opens the window, since a connection that is over leaves its loans before its block is free.
 *
 * Bounds. Leases of a connection: its receive limit, by which the window shrinks. Frames: those of turn->keep. Pieces
 * of regions: the send limit. Chunks: the pool. A peer can bring about none of them beyond these.
 *
 * Tests: tests/libos/net/tcp/test_loans.py, tests/libos/test_leases.py. */
#ifndef CORELANE_LIBOS_NET_TCP_LOANS_H
#define CORELANE_LIBOS_NET_TCP_LOANS_H

#include <corelane/libos/spin.h>
#include "buffer.h"

#define CL_TCP_KEEP_LEAST 512   /* bytes in a frame that are worth it: it takes a frame's buffer and a chunk */
#define CL_TCP_PIECE_MOST 32768 /* of a region, in a chunk */

struct cl_tcp_loans {
    struct cl_spin lock;
    uint32_t refs;            /* under the lock: the connection, and leases */
    struct cl_tcp_conn *conn; /* under the lock; NULL: it is over */
    uint32_t leased;          /* what leases that are out count. Under the lock; the holder reads it without, relaxed */
    uint32_t released;        /* the holder's: bytes of regions of which the user is to hear */
};

/* Of a connection that is worked on. NULL: it has none. */
static inline struct cl_tcp_loans *cl_tcp_loans(const struct cl_tcp_conn *c)
{
    return c->loans ? (struct cl_tcp_loans *)(void *)cl_chunk_of(c->turn->stack->chunks, c->loans - 1)->data : NULL;
}

static inline uint32_t cl_tcp_leased(const struct cl_tcp_conn *c)
{
    const struct cl_tcp_loans *l = cl_tcp_loans(c);
    return cl_unlikely(l != NULL) ? cl_load_relaxed(&l->leased) : 0; /* less by now, perhaps */
}

/* Append what lies in the frame of now to `receive`, where it lies. False: it has to be copied. */
bool cl_tcp_put_frame(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len);
bool cl_region_has(const struct cl_region *region, int64_t offset, int64_t len);
/* Bytes of a region are no longer needed. */
void cl_tcp_released(struct cl_tcp_conn *c, uint32_t bytes);
/* How many, since the user was told. */
int64_t cl_tcp_take_released(struct cl_tcp_conn *c);
/* The connection is over. */
void cl_tcp_loans_leave(struct cl_tcp_conn *c);

/* A lease comes back, at a kthread (or while none runs). Its connection, if that lives, is given to `hold` under the
 * lock: it may be taken there, and cannot go away. */
void cl_tcp_lease_end(struct cl_tcp_stack *stack, unsigned kthread, struct cl_tcp_counts *counts,
                      struct cl_lease *lease, void (*hold)(struct cl_tcp_conn *c, void *arg), void *arg);

#endif
