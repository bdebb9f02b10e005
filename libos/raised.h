/* Exceptions of compiled Python that end in C: a handler's, periodic work's, a job's (libos/handlers/compile.py).
 *
 * Its entry point says so here, off the path that does not raise. What was raised, and where, lies in words among the
 * constants of its code (libos/numba/raises.py): nobody takes a language's lock or unpickles anything. A thread of the
 * runtime's, which the first exception starts, tells the event CL_EVENT_RAISED: of each place that raises, with how
 * often it did, at most once a second, and the rest when the runtime is deleted.
 *
 * Threads: cl_raised on any, without a lock; on one that is no kthread it does nothing. */
#ifndef CORELANE_LIBOS_RAISED_H
#define CORELANE_LIBOS_RAISED_H

#include <corelane/libos/runtime.h>

/* name: of what raised, as "handler total"; place: of its first line. what: two strings, one behind the other: the
 * exception, and the place of the raise, empty where nobody knows that. NULL, or what begins with CL_RAISED_UNSAID:
 * there are no words of it. All of it is constant and stays as long as the runtime. */
CL_API void cl_raised(const char *name, const char *place, const char *what);
#define CL_RAISED_UNSAID 0x80 /* a pickle (its opcode PROTO) */

struct cl_raises;
/* Of a runtime, whom it tells. NULL: there is no memory. */
struct cl_raises *cl_raises_new(cl_runtime_event tell, void *arg);
/* Its kthreads have ended. What was not told is told. NULL is allowed. */
void cl_raises_delete(struct cl_raises *r);

#endif
