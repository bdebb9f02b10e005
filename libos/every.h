/* Periodic work of a runtime, behind cl_runtime_every. Owned by the runtime, which frees it when its uthread is
 * gone. */
#ifndef CORELANE_EVERY_H
#define CORELANE_EVERY_H

#include <corelane/libos/runtime.h>

/* Spawn its uthread. -EINVAL, -ENOMEM, -EAGAIN, -ESHUTDOWN. */
int cl_every_new(struct cl_sched *sched, uint64_t period_ns, cl_every_fn fn, void *arg, uint32_t foreign,
                 struct cl_every **out);

#endif
