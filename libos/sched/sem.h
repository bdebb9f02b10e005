/* Waits on a semaphore that are told as something else in a trace: what stands on a semaphore says what it is. */
#ifndef CORELANE_LIBOS_SCHED_SEM_H
#define CORELANE_LIBOS_SCHED_SEM_H

#include <corelane/libos/sync.h>
#include "../../runtime/trace.h"

/* As cl_sem_wait, or as cl_sem_wait_until unless deadline_ns is UINT64_MAX. what: CL_TRACE_WAITS_*; object: whose
 * semaphore it is. */
int cl_sem_wait_as(struct cl_sem *s, uint64_t deadline_ns, uint16_t what, const void *object);

#endif
