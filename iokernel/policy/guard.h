/* Calling a policy that is not trusted: on a copy of the table between guard pages, and with a way out of the call.
 *
 * The way out is siglongjmp from a signal handler, which runs in the loop's own thread. It is taken for SIGSEGV,
 * SIGBUS, SIGFPE and SIGILL that the called function itself raised, and for the signal of timers, which comes to the
 * loop's thread and so on the CPU on which the function loops: no other one need be free for it. One timer counts the
 * CPU time of the thread and has the handler read the clock every watch_ns of it, or every tick of the kernel, at which
 * Linux checks such timers. The handler leaves no call at the first signal that finds it late, since the core may have
 * been somebody else's, but has another timer send a second one after limit_ns, and again while the thread has had less
 * than half of that since. So a call is left after two to three of limit_ns and a tick (2 to 6 ms at 250 ticks a
 * second), in which it has the core. The first timer runs from the first call on until
 * cl_policy_guard_rest, and sends nothing to a thread that sleeps. Every other such signal goes to the handler that was
 * there before. The jump is sound because a policy allocates nothing and holds no lock: there is nothing that it could
 * leave half done but its own copy of the table, which is thrown away. That is checked before loading (numba.py and
 * shared_object.py: a function that calls anything outside is refused).
 *
 * What this does not stop: a write to memory that is there, far from the table. Policies run in the iokernel's address
 * space; whoever may install one may as well replace the iokernel.
 *
 * Tests: tests/iokernel/policy/test_host.py, tests/iokernel/policy/c/policy_swap.c. */
#ifndef CORELANE_IOKERNEL_POLICY_GUARD_H
#define CORELANE_IOKERNEL_POLICY_GUARD_H

#include "host.h"

struct cl_policy_guard;

int cl_policy_guard_new(uint64_t limit_ns, uint64_t watch_ns, struct cl_policy_guard **out, char *err);
void cl_policy_guard_delete(struct cl_policy_guard *g);
/* Once before the first call, by any thread: the process's signal handlers. -errno with a reason in err[256]. */
int cl_policy_guard_prepare(char *err);
/* No call comes for a while: stop the timers. By the thread that calls. */
void cl_policy_guard_rest(struct cl_policy_guard *g);

/* The copy of a table of n rows: its end is the guard page's begin. */
struct cl_policy_app *cl_policy_guard_table(struct cl_policy_guard *g, uint32_t n);
/* Call fn on the copy of `n` rows that the caller has filled. 0, or CL_POLICY_LATE, ... with *event filled but for its
 * ticket. By one thread at a time. */
uint32_t cl_policy_guard_call(struct cl_policy_guard *g, cl_policy_fn fn, const struct cl_policy_view *view,
                              struct cl_policy_app *table, struct cl_policy_event *event);

#endif
