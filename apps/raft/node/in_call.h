/* When a node may wait in the kernel for its disk (cl_blk_settle): while it is not missed meanwhile. See in_call.c. */
#ifndef CORELANE_APPS_RAFT_NODE_IN_CALL_H
#define CORELANE_APPS_RAFT_NODE_IN_CALL_H

#include <corelane/runtime/base.h>

// cffi: begin
#define CL_RAFT_IN_CALL_NEAR_NS 1500 /* what is handled so soon after a call has come during it */

/* A rest after something went wrong, longer each time that it goes wrong again soon. */
struct cl_raft_rest {
    uint64_t ns;      /* the last one; 0: there was none */
    uint64_t last_ns; /* when it began */
};

/* All zero but for limit_ns: calls are allowed. limit_ns 0: never. Times are of the runtime's clock. */
struct cl_raft_in_call {
    uint64_t limit_ns; /* a node that hears nothing for longer may be missed */
    uint64_t off_until_ns, ended_ns;
    uint64_t answered; /* turn of the kthread's loop that first answered a client since the last call; 0: none did */
    struct cl_raft_rest held_up, slow;
    uint64_t calls, late, long_ones; /* calls; those during which work came; those longer than limit_ns */
};

/* limit_ns for an election timeout: a quarter; 0 if that is less than disks stall for every now and then. */
CL_API uint64_t cl_raft_in_call_limit(uint64_t election_ns);
/* Whether the next lone write may be a call. */
CL_API bool cl_raft_in_call_may(const struct cl_raft_in_call *c, uint64_t now_ns);
CL_API void cl_raft_in_call_ended(struct cl_raft_in_call *c, uint64_t began_ns, uint64_t ended_ns);
/* A client is answered, in a turn of the kthread's loop (from 1 on). What is handled in later ones may be what it asks
 * next. */
CL_API void cl_raft_in_call_answered(struct cl_raft_in_call *c, uint64_t turn);
/* Work is handled, a client's or entries of the leader's: it may have come during the call. */
CL_API void cl_raft_in_call_work(struct cl_raft_in_call *c, uint64_t now_ns, uint64_t turn);
// cffi: end

#endif
