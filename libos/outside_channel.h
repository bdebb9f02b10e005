/* Channels for threads that are no kthreads: what a language's run-time has a uthread do for it in a scope.
 * See corelane/libos/channel.h. */
#ifndef CORELANE_LIBOS_OUTSIDE_CHANNEL_H
#define CORELANE_LIBOS_OUTSIDE_CHANNEL_H

#include <corelane/libos/channel.h>

// cffi: begin
/* A cl_scope_fn: do the case (struct cl_channel_case), waiting for ever, and leave what cl_channel_send or _receive
 * would return in its rc. Returns 0. */
CL_API int64_t cl_channel_outside(void *one);
// cffi: end

#endif
