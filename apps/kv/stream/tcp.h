/* The store on a TCP port of a runtime. */
#ifndef CORELANE_APPS_KV_STREAM_TCP_H
#define CORELANE_APPS_KV_STREAM_TCP_H

#include <corelane/libos/runtime.h>
#include <corelane/libos/tcp.h>
#include "front.h"

// cffi: begin
/* Serve the front's store on its TCP port. A kthread works through the store's thread of the same number: the store
 * needs one for each. -EADDRINUSE, -EINVAL (too few threads, no port), -ENOMEM. The front must outlive the runtime. */
CL_API int cl_kv_listen_tcp(struct cl_kv_front *front, struct cl_runtime *rt);
// cffi: end

#endif
