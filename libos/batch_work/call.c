/* See call.h. */
#include "call.h"

#include <corelane/libos/sched.h>

#include <sys/eventfd.h>

void cl_batch_foreign(void *arg)
{
    const struct cl_batch_call *call = arg;
    /* A uthread of its own outside no-switch: the call cannot be refused. */
    cl_kthread_call(call->fn, call->arg);
}

void cl_batch_post(void *fd)
{
    (void)eventfd_write((int)(intptr_t)fd, 1); /* cannot fail: nobody adds up to 2^64 */
}
