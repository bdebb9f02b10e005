/* The end of a process that was asked to end and does not get to it, since a kthread's code does not come back.
 *
 * As long as the thread that stops a runtime runs, cl_runtime_stop says so itself. It may not run: a handler that keeps
 * a language run-time's global lock keeps that thread from running, too. So a thread that needs no such lock waits for
 * the same request to end.
 *
 * Threads: one for each. Tests: tests/libos/test_stopping.py. */
#ifndef CORELANE_LIBOS_DEADLINE_H
#define CORELANE_LIBOS_DEADLINE_H

#include <corelane/libos/runtime.h>

// cffi: begin
struct cl_deadline;

struct cl_deadline_config {
    /* The request to end: end_fd becomes readable; or SIGINT or SIGTERM, as a byte of its number, waits in the socket
     * signal_fd (-1: none). Neither is read. */
    int end_fd, signal_fd;
    uint64_t after_ns;       /* it: if a kthread of the runtime still runs, */
    int report_fd;           /* a line goes here that says which code it is in, */
    void (*end)(int status); /* and this is called with status 1, on a thread of its own: _exit, as a rule */
};

/* From now on. *config is copied. -errno. */
CL_API int cl_deadline_new(struct cl_runtime *rt, const struct cl_deadline_config *config, struct cl_deadline **out);
/* It has ended, or is not to: before the runtime is deleted. NULL is allowed. */
CL_API void cl_deadline_delete(struct cl_deadline *d);
// cffi: end

#endif
