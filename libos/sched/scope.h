/* Scopes, as the other files of this room know them. See corelane/libos/scope.h. */
#ifndef CORELANE_LIBOS_SCHED_SCOPE_H
#define CORELANE_LIBOS_SCHED_SCOPE_H

#include <corelane/libos/scope.h>
#include "internal.h"

/* Order of locks: a scope's, those of scopes in it, a uthread's cancel_lock, what it waits for. */
struct cl_scope {
    struct cl_sched *sched;
    struct cl_uthread *owner; /* constant; NULL: none */
    struct cl_scope *parent;  /* constant: that its owner was in */
    struct cl_spin lock;
    uint32_t cancelled;         /* writers: under the lock; readers: any, relaxed (see cl_wait_register) */
    int error;                  /* the same: why, 0 before */
    uint32_t n_running;         /* the same */
    struct cl_uthread *members; /* under the lock, as all below */
    struct cl_uthread *closer;  /* the owner, while it waits for them */
    struct cl_scope *child;     /* of those opened in it, by parent's lock: as next and prev */
    struct cl_scope *next, *prev;
    void (*watch)(void *arg);
    void *watch_arg;
    struct cl_timer timer; /* its deadline; the owner's */
    bool timed;
};

/* What runs on a uthread of a scope, in the place of its function. */
void cl_scope_run_member(struct cl_uthread *t);
/* The calling uthread ends, or what ran on it: close what it has left open, and let its own scope, if it has one, know
 * the result. */
void cl_scope_end(struct cl_uthread *t, int64_t result);
/* Free the memory of all that were opened. */
void cl_scopes_delete(struct cl_sched *sched);

#endif
