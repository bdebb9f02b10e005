/* Running a call of a language run-time as batch work: what Runtime.batch spawns for plain Python functions. */
#ifndef CORELANE_LIBOS_BATCH_CALL_H
#define CORELANE_LIBOS_BATCH_CALL_H

#include <corelane/runtime/base.h>

// cffi: begin
struct cl_batch_call {
    void (*fn)(void *arg);
    void *arg;
};
/* A uthread's function: runs call->fn to completion on the kthread's own large stack, without switching stacks
 * (cl_kthread_call), since CPython's frames must nest. `call` must live until fn returns. */
CL_API void cl_batch_foreign(void *call);
/* For cl_scope_watch: write to the eventfd whose number `fd` is. */
CL_API void cl_batch_post(void *fd);
// cffi: end

#endif
