/* Listening: who takes connections to a port, and how many at a time.
 *
 * `pending` counts those that are not the user's yet: half open, and if `accepts` also those that wait to be accepted.
 * A SYN that finds backlog of them is answered by a cookie (cookie.h), and leaves nothing behind; if so many wait to be
 * accepted it is dropped, as if lost, and its peer asks again. Whoever makes a block for a SYN asks cl_tcp_admit first;
 * the block gives its place back by itself.
 *
 * Threads: any; `pending` and `waiting` are exchanged, `backlog` may change (relaxed). Constant else. A listener
 * outlives its connections' `pending`. */
#ifndef CORELANE_LIBOS_NET_TCP_LISTEN_H
#define CORELANE_LIBOS_NET_TCP_LISTEN_H

#include "conn.h"

struct cl_tcp_listener {
    const struct cl_tcp_settings *settings;
    const struct cl_tcp_events *user;
    void *arg;
    uint32_t backlog;
    uint32_t pending;
    uint32_t waiting;             /* of them: open, and not accepted; if it accepts */
    struct cl_tcp_listener *next; /* of those that listen no more: flows.c keeps them for their connections */
    uint16_t service;             /* its entry in the trace */
    bool accepts;                 /* they are pending until cl_tcp_accepted, not until they are open */
};

/* Whether one more may begin; it is counted then. */
static inline bool cl_tcp_admit(struct cl_tcp_listener *l)
{
    /* Relaxed: a number, which orders nothing. */
    if (__atomic_fetch_add(&l->pending, 1, __ATOMIC_RELAXED) < cl_load_relaxed(&l->backlog))
        return true;
    __atomic_fetch_sub(&l->pending, 1, __ATOMIC_RELAXED);
    return false;
}

/* It takes those who open: else it is no use to begin. Relaxed: as many more as kthreads may get in. */
static inline bool cl_tcp_takes(const struct cl_tcp_listener *l)
{
    return !l->accepts || cl_load_relaxed(&l->waiting) < cl_load_relaxed(&l->backlog);
}

/* It is open. */
static inline void cl_tcp_waits(struct cl_tcp_listener *l)
{
    __atomic_fetch_add(&l->waiting, 1, __ATOMIC_RELAXED);
}

/* It is no longer pending: it is the user's, or over. */
static inline void cl_tcp_accepted(struct cl_tcp_conn *c)
{
    if (!c->listener)
        return;
    if (c->listener->accepts && c->state >= CL_TCP_ESTABLISHED)
        __atomic_fetch_sub(&c->listener->waiting, 1, __ATOMIC_RELAXED);
    /* Release: what it did with the listener comes before the listener may go. */
    __atomic_fetch_sub(&c->listener->pending, 1, __ATOMIC_RELEASE);
    c->listener = NULL;
}

/* A block that was initialised becomes one for a SYN that was admitted, and is given that SYN as its first segment. */
void cl_tcp_listen(struct cl_tcp_conn *c, struct cl_tcp_listener *l);
/* A SYN came for one in TIME_WAIT. Whether it opens again by it. */
bool cl_tcp_reopen(struct cl_tcp_conn *c, const struct cl_tcp_segment *syn);
/* Its first segment. */
void cl_tcp_listen_input(struct cl_tcp_conn *c, const struct cl_tcp_segment *s);

#endif
