/* A list: a chain of nodes of up to 64 elements each. Both ends and whatever lies near them take constant time; an
 * index costs one step a node. */
#ifndef CORELANE_APPS_RESP_LIST_H
#define CORELANE_APPS_RESP_LIST_H

#include "resp.h"

#define CL_RLIST_NODE 64

struct cl_rlist_node {
    struct cl_rlist_node *next, *prev;
    uint32_t from, n; /* items[from] to items[from + n - 1] */
    struct cl_bytes *items[CL_RLIST_NODE];
};

struct cl_rlist {
    struct cl_rlist_node *first, *last;
    uint64_t count;
};

/* A place in a list. */
struct cl_rlist_at {
    struct cl_rlist_node *node; /* NULL: behind an end */
    uint32_t i;                 /* in items */
};

struct cl_rlist *cl_rlist_new(struct cl_rmem *m);
void cl_rlist_free(struct cl_rmem *m, struct cl_rlist *l);
void cl_rlist_push(struct cl_rmem *m, struct cl_rlist *l, struct cl_slice value, bool head);
/* Take the element at an end; the caller frees it (cl_bytes_free). The list is not empty. */
struct cl_bytes *cl_rlist_pop(struct cl_rmem *m, struct cl_rlist *l, bool head);
/* index 0 is the first, -1 the last; a place behind an end if there is none. */
struct cl_rlist_at cl_rlist_at(const struct cl_rlist *l, int64_t index);
struct cl_rlist_at cl_rlist_step(struct cl_rlist_at at, bool forward);
static inline struct cl_bytes *cl_rlist_get(struct cl_rlist_at at)
{
    return at.node->items[at.i];
}
void cl_rlist_set(struct cl_rmem *m, struct cl_rlist_at at, struct cl_slice value);
void cl_rlist_insert(struct cl_rmem *m, struct cl_rlist *l, struct cl_rlist_at at, struct cl_slice value, bool before);
/* Remove the element; returns the place of the one that follows it in that direction. */
struct cl_rlist_at cl_rlist_remove(struct cl_rmem *m, struct cl_rlist *l, struct cl_rlist_at at, bool forward);

#endif
