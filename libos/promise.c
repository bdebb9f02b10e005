/* Work with a deadline: what a runtime asks of its iokernel (docs/deadlines.md). */
#include "../drivers/port/port.h"
#include "internal.h"

#include <errno.h>

int cl_runtime_promise(struct cl_runtime *rt, const struct cl_promise *ask, struct cl_promised *out, char err[256])
{
    struct cl_control_promise message = {.ask = *ask};
    struct cl_control_promise_ok answer;
    if (!rt->own_nic)
        return cl_refuse(err, -ENOTSUP, "a deadline is an iokernel's promise: attach to one");
    if (cl_sched_self() == rt->sched)
        return cl_refuse(err, -EDEADLK, "a kthread cannot wait for the iokernel: call it from another thread");
    int rc = cl_port_promise(rt->nic, &message, &answer, err);
    if (rc == 0)
        *out = answer.answer;
    return rc;
}
