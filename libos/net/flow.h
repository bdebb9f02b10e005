/* A flow: what has come for one connection or one pair of UDP ports, in order, and who works on it.
 *
 *              something came: wake            a kthread takes it: hold
 *      IDLE ----------------------> READY -----------------------------> RUNNING --+
 *       ^                           ^   ^                                   |      | something came: wake
 *       |                           |   |   release, and there is more      |      v
 *       |                           |   +-----------------------------------+    AGAIN (running, and more)
 *       |                           +--------- release ---------------------|------+
 *       +------------------------------------- release, nothing is left ----+
 *
 * A flow that is READY stands in exactly one ready queue (ready.h), or is in the hands of the one who is about to put
 * it there or has just taken it out. Thieves take ready flows from there, never single frames. Whoever has taken one
 * out holds it: runs its callback alone, on a bounded number of what has come, and releases it, which puts it at the
 * end of its own ready queue if there is more. A holder may block in the middle, and may end on another kthread; the
 * flow stays RUNNING, and what comes meanwhile waits for it, on whatever kthread that is put.
 *
 * No kthread owns a flow. The one at whose queue its frames come is where it becomes ready, and as a rule where it
 * runs; that is a habit and promises nothing. Whoever has a frame of it finds it in the table (flow_table.h). A
 * connection may have a home, the kthread of the thread that waits for it: whoever makes it ready elsewhere puts it
 * into that one's ready queue, whole, and wakes it. That, too, is a habit: siblings take it from there as any other.
 *
 * Everything in a flow but `next_ready`, `taken` and `home` is guarded by the lock of its bucket in the table. That one
 * lock is taken once for a frame (find, append, wake), and twice for a turn of up to CL_FLOW_BURST of them. The
 * sections have some ten instructions, call nothing and are not interrupted (spin.h).
 *
 * A user that keeps flows while they are idle (a TCP connection) leaves them in the table, and wakes them for other
 * reasons than frames, too: a timer, a write. AGAIN has no frame then.
 *
 * Tests: tests/libos/net/test_flow_model.py (all interleavings), tests/libos/net/c/flow_order.c (threads, TSan). */
#ifndef CORELANE_LIBOS_NET_FLOW_H
#define CORELANE_LIBOS_NET_FLOW_H

#include "flow_hash.h"
#include "inbox.h"

#define CL_FLOW_BURST 16 /* of what has come that a holder handles before it puts the flow back */

enum cl_flow_state { CL_FLOW_IDLE = 0, CL_FLOW_READY, CL_FLOW_RUNNING, CL_FLOW_AGAIN };

/* One datagram or segment of a flow. */
struct cl_flow_item {
    struct cl_flow_item *next;
    struct cl_rx_item rx;
};

struct cl_flow {
    struct cl_flow *next;              /* in its bucket */
    struct cl_flow *next_ready;        /* in a ready queue: under its lock */
    struct cl_flow_item *first, *last; /* have come, oldest first */
    struct cl_flow_item *taken;        /* the holder's: older than `first` */
    /* Constant while it is in the table, as the next two. */
    union {
        struct cl_udp_socket *socket;
        struct cl_netif *nif; /* of a connection */
    };
    struct cl_flow_key key;
    uint32_t hash;    /* the lower half */
    uint32_t waiting; /* items in both lists, and those that the holder has handled in this turn */
    uint32_t ahead;   /* of a connection: memory that its next turn begins with, as it names it; 0: none is known */
    uint8_t state;    /* enum cl_flow_state */
    bool woken;       /* of a connection: its user is to be told (cl_tcp_wake) */
    uint8_t home;     /* of a connection: the kthread that is its home, and 1; 0: none. Relaxed: a hint */
};

/* Under the bucket's lock, all that follows. */

static inline void cl_flow_append(struct cl_flow *f, struct cl_flow_item *item)
{
    item->next = NULL;
    if (f->last)
        f->last->next = item;
    else
        f->first = item;
    f->last = item;
    f->waiting++;
}

/* Something is to be done for it. True: the caller has to put it into a ready queue. */
static inline bool cl_flow_wake(struct cl_flow *f)
{
    if (f->state == CL_FLOW_IDLE) {
        f->state = CL_FLOW_READY;
        return true;
    }
    if (f->state == CL_FLOW_RUNNING)
        f->state = CL_FLOW_AGAIN;
    return false;
}

/* Its new holder has taken it out of a ready queue. What has come is in `taken` then, if nothing was left there. */
static inline void cl_flow_hold(struct cl_flow *f)
{
    f->state = CL_FLOW_RUNNING;
    if (f->taken)
        return;
    f->taken = f->first;
    f->first = f->last = NULL;
}

/* Its holder has handled `done` items, and lets go. True: there is more, and it has to put it into a ready queue. */
static inline bool cl_flow_release(struct cl_flow *f, unsigned done)
{
    bool more = f->state == CL_FLOW_AGAIN || f->taken || f->first;
    f->waiting -= done;
    f->state = more ? CL_FLOW_READY : CL_FLOW_IDLE;
    return more;
}

/* The holder, without the lock: the oldest item that it has taken and not handled; NULL: none. */
static inline struct cl_flow_item *cl_flow_next(struct cl_flow *f)
{
    struct cl_flow_item *item = f->taken;
    if (item)
        f->taken = item->next;
    return item;
}

#endif
