/* Calling a policy that is not trusted: on a copy of the table between guard pages, and with a way out of the call.
 *
 * The way out is siglongjmp from a signal handler, which runs in the loop's own thread. It is taken for SIGSEGV, SIGBUS,
 * SIGFPE and SIGILL that the called function itself raised, and for CL_POLICY_SIGNAL, which the watch sends when a call
 * takes longer than the limit. The handler looks at the clock itself, so that a signal that comes late ends no later
 * call, and leaves a call only at the second signal, since at the first the core may have been somebody else's. So a call
 * is left after limit_ns and two to three times watch_ns. Every other such signal goes to the handler that was there
 * before. The jump is sound because a policy allocates nothing and holds no lock: there is nothing that it could leave
 * half done but its own copy of the table, which is thrown away. That is checked before loading (policy_numba.py and
 * policy_so.py: a function that calls anything outside is refused).
 *
 * What this does not stop: a write to memory that is there, far from the table. Policies run in the iokernel's address
 * space; whoever may install one may as well replace the iokernel.
 *
 * The watch is a thread that looks at the stamp of the call under way every watch_ns, while it is told to. It stays off
 * the loop's CPU where it can.
 *
 * Tests: tests/iokernel/test_policy_host.py, tests/iokernel/c/policy_swap.c. */
#ifndef CORELANE_IOKERNEL_POLICY_GUARD_H
#define CORELANE_IOKERNEL_POLICY_GUARD_H

#include "policy_host.h"

struct cl_policy_guard;

int cl_policy_guard_new(uint64_t limit_ns, uint64_t watch_ns, struct cl_policy_guard **out, char *err);
void cl_policy_guard_delete(struct cl_policy_guard *g);
/* Start watching, or stop: by the controlling thread. -errno with a reason in err[256] if the thread cannot be made. */
int cl_policy_guard_watch(struct cl_policy_guard *g, bool on, char *err);

/* The copy of a table of n rows: its end is the guard page's begin. */
struct cl_policy_app *cl_policy_guard_table(struct cl_policy_guard *g, uint32_t n);
/* Call fn on the copy of `n` rows that the caller has filled. 0, or CL_POLICY_LATE, ... with *event filled but for its
 * ticket. By one thread at a time. */
uint32_t cl_policy_guard_call(struct cl_policy_guard *g, cl_policy_fn fn, const struct cl_policy_view *view,
                              struct cl_policy_app *table, struct cl_policy_event *event);

#endif
