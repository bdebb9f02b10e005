/* Scheduling class, priority and CPUs of a thread: read before somebody changes them, and given back.
 *
 * Giving back needs a right that changing does not: an unprivileged process leaves SCHED_IDLE only as far as
 * RLIMIT_NICE of the thread's process permits, which is 0 as a rule (sched(7), getrlimit(2)). cl_scheduling_returns
 * finds out before.
 *
 * Threads: any; the threads that are changed need not be the caller's. Tests: tests/runtime/test_scheduling.py. */
#ifndef CORELANE_RUNTIME_SCHEDULING_H
#define CORELANE_RUNTIME_SCHEDULING_H

#include <corelane/runtime/base.h>

#include <sched.h>

struct cl_scheduling {
    uint64_t attr[6]; /* struct sched_attr of sched_setattr(2), first version, as the kernel gave it */
    bool has_attr;
    bool has_cpus;
    cpu_set_t cpus;
};

// cffi: begin
struct cl_scheduling;
CL_API struct cl_scheduling *cl_scheduling_new(void);
CL_API void cl_scheduling_delete(struct cl_scheduling *s);
/* What thread `tid` has now. What cannot be read is not given back. */
CL_API void cl_scheduling_read(int32_t tid, struct cl_scheduling *out);
/* Give it back: the CPUs, and class and priority if the class is another now. Where the right to that class is missing
 * it becomes SCHED_OTHER. 0; -EPERM: it stays in its class; -ESRCH: there is no such thread. */
CL_API int cl_scheduling_restore(int32_t tid, const struct cl_scheduling *s);
/* Whether a thread of process `pid` that is made SCHED_IDLE can leave it again, by us. Raises the process's RLIMIT_NICE
 * to the nice value that the thread has, if we may: then the process can do so itself, when we are no more. */
CL_API bool cl_scheduling_returns(int32_t pid, int32_t tid);
// cffi: end

#endif
