/* What can be in a poll set (corelane/libos/poll.h), as a member of it.
 *
 * Locks: the lock of whoever has the member, then that of the set. `set` changes under both. */
#ifndef CORELANE_LIBOS_NET_POLL_H
#define CORELANE_LIBOS_NET_POLL_H

#include <corelane/libos/poll.h>
#include <corelane/libos/spin.h>
#include <corelane/libos/sync.h>

struct cl_pollable {
    struct cl_poll *set; /* NULL: it is in none */
    /* What is ready now; called under the set's lock, without that of whoever has the member. */
    uint32_t (*ready)(const struct cl_pollable *member);
    struct cl_pollable *next, *prev; /* of those that may be ready; under the set's lock, as the rest */
    uint64_t data;
    bool edge, listed;
};

struct cl_netif;

/* Enter and leave. The lock of whoever has the member is held. */
int cl_pollable_add(struct cl_pollable *member, struct cl_poll *set, uint32_t how, uint64_t data);
void cl_pollable_remove(struct cl_pollable *member);
/* It may be ready. The same; cheap if it is in no set. Returns the set if somebody is to be woken by cl_poll_tell, once
 * the lock is let go: waking a kthread may take a system call. */
struct cl_poll *cl_pollable_notify(struct cl_pollable *member);
void cl_poll_tell(struct cl_poll *set);
/* Whose set it is. */
const struct cl_netif *cl_poll_netif(const struct cl_poll *set);

#endif
