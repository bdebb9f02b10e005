/* The store on a Unix socket, for control: by a thread of its own, on the kernel's sockets. It reaches a server whose
 * network does not, from the machine itself, and costs the kthreads nothing but the store's locks. */
#ifndef CORELANE_APPS_KV_STREAM_LOCAL_H
#define CORELANE_APPS_KV_STREAM_LOCAL_H

#include "front.h"

// cffi: begin
struct cl_kv_local;

/* Serve the front's store on its Unix socket, which has path_mode before anybody can connect, through the last of the
 * store's threads, which nobody else may use. A socket that nobody listens on any more is replaced. -EINVAL (no path,
 * or one that is too long; no thread of its own), -EADDRINUSE (somebody listens there), -errno. */
CL_API int cl_kv_listen_local(struct cl_kv_front *front, struct cl_kv_local **out);
/* Close all its connections, end its thread, remove the socket. Before the front goes. */
CL_API void cl_kv_local_delete(struct cl_kv_local *local);
// cffi: end

#endif
